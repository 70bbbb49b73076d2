"""A run that never was, made up to fool the rules of verdicts, with the verdict that is right."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hopscope.claims import JudgedClaim, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "adversaries.md"

REPRODUCED, REFUTED, INCONCLUSIVE, NOT_RUN = Verdict


@dataclass(frozen=True)
class Adversary:
    """A synthetic run that tries to fool a rule.

    Attributes:
        name: as in the table of `docs/adversaries.md`.
        trick: how it tries to fool, in one sentence.
        judged: makes the run up and judges it.
        verdict: the right one.
        here: the right one at the scale of the run; by default the same.
        leaning: where the numbers point.
        registration: how the claim's rule stands to the registered one.
        says: what the words give as the reason, as a regular expression.
    """

    name: str
    trick: str
    judged: Callable[[], JudgedClaim]
    verdict: Verdict
    here: Verdict | None = None
    leaning: str | None = None
    registration: str = "none"
    says: str = ""

    def check(self) -> None:
        """Fail unless the run is judged rightly, for the right reason."""
        found = self.judged()
        here = Verdict.NOT_RUN if found.here is None else found.here.verdict
        state = found.registration.state
        assert (found.verdict, here, found.leaning, state) == (
            self.verdict, self.here or self.verdict, self.leaning, self.registration,
        ), found.words  # fmt: skip
        said = f"{found.words}; {found.registration.words}"
        assert re.search(self.says, said), said

    def row(self) -> str:
        """The line of the table of `docs/adversaries.md`."""
        here = f"; here {self.here}" if self.here not in (None, self.verdict) else ""
        leaning = f" ({self.leaning})" if self.leaning else ""
        state = f"; rule {self.registration}" if self.registration in ("changed", "added") else ""
        return f"| {self.name} | {self.trick} | {self.verdict}{leaning}{here}{state} |"


def listed(section: str) -> list[str]:
    """The lines of the table under a heading of the page."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    return [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")][2:]
