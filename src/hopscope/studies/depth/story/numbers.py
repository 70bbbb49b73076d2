"""The numbers of the depth study's page, each with the file and the key it came from."""

from collections.abc import Iterable, Sequence

from hopscope.studies.depth.results import Results, known
from hopscope.studies.numbers import DASH, PageNumbers

METRICS = "metrics.parquet"


class Numbers(PageNumbers):
    """Those of the depth study.

    Keys are `<end> of <what> over members <a>–<b>`, where an end is `mean`, `lowest`, `highest`, or an end of the 95 %
    interval, and what is a metric (`held_out/loss_step_2, final window`), a crossing, or a key of an analysis.
    """

    def estimate(
        self,
        found: Results,
        values: Iterable[float | None],
        what: str,
        file: str = METRICS,
        style: str = ".3f",
    ) -> str:
        """The mean over seeds with its 95 % bootstrap interval; a dash where there is no value."""
        return self.estimated(known(values), f"{what} over {members(found)}", file, style)

    def range(
        self,
        found: Results,
        values: Iterable[float | None],
        what: str,
        file: str = METRICS,
        style: str = ".3f",
    ) -> str:
        """The lowest and the highest seed."""
        measured = known(values)
        if not measured:
            return DASH
        over = f"{what} over {members(found)}"
        low, high = (
            self.add(end, format(end, style), file, f"{name} of {over}")
            for name, end in (("lowest", min(measured)), ("highest", max(measured)))
        )
        return f"{low} to {high}"

    def count(self, of: Sequence[bool], what: str, file: str = METRICS) -> str:
        """How many of some runs something holds for."""
        return self.add(sum(of), str(sum(of)), file, f"number of {what}")


def members(found: Results) -> str:
    """Whose numbers these are."""
    first, last = found.members[0], found.members[-1]
    return f"member {first}" if first == last else f"members {first}–{last}"


def final(step: int | None = None) -> str:
    """The key of a final loss: of x_k, or of all targets together."""
    return f"held_out/loss{'' if step is None else f'_step_{step}'}, final window"
