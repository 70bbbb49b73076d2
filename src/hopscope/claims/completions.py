"""Verdicts under the completions of a recipe: which were run, and what follows while some were not (docs/protocols.md).

A source does not give its recipe whole.  What it says of its own trained models (*existence*) holds if it holds under
one of the registered completions, and is refuted only if every one refutes it.  What it says in general needs all under
which anything is learned, and is refuted by one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from hopscope.claims.verdicts import UNTRIED, Judgement, Verdict
from hopscope.completion import COMPLETION_NAMES, COMPLETIONS, CompletionName, departures

Kind = Literal["existence", "general"]
"""What a claim says: of a source's own trained models, or of all models."""

BEFORE: CompletionName = "gpt2-base"
"""Completion of the runs from before there were any names of them, whose records have none."""


@dataclass(frozen=True)
class Completed:
    """The completion of a run.

    Attributes:
        name: of the completion.
        departures: fields that the run gives other values; it is then a run under none of the registered ones.
    """

    name: str
    departures: tuple[str, ...] = ()

    @classmethod
    def of(cls, evidence: Any) -> Self | None:
        """The completion that a run's configuration names; `None` where it has neither one nor a recipe."""
        config = getattr(evidence, "config", None) or {}
        if (name := config.get("completion", BEFORE)) not in COMPLETIONS:
            return None
        steps, found = _recipe(config)
        return None if steps is None else cls(name, tuple(departures(name, steps, found)))

    @property
    def words(self) -> str:
        """The completion as a ledger names it."""
        return self.name + (f", but for {_listed(self.departures)}" if self.departures else "")


def _recipe(config: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
    """Training steps, and the fields of a completion as a run has them; those that its record lacks are left out."""
    training = config.get("training") or config
    found = {**training, **(config.get("model") or {})}
    if (betas := found.get("betas")) is not None:
        found["beta2"] = betas[1]
    steps = training.get("training_steps", training.get("steps"))
    names = COMPLETIONS[BEFORE].values(1)
    return steps, {name: found[name] for name in names if name in found}


def by_name(readings: Collection[str]) -> bool:
    """Whether the readings of a claim are completions."""
    return bool(readings) and {*readings} <= {*COMPLETION_NAMES}


def of_run(judgement: Judgement, kind: Kind, run: Completed) -> Judgement:
    """What the judgement of a run under one completion says beside those that were not run.

    A run that departs from its completion is under none of those that are registered: one violation refutes what is
    said in general, and nothing else is decided.
    """
    if judgement.verdict not in (Verdict.REPRODUCED, Verdict.REFUTED):
        return judgement
    if not run.departures:
        return over_completions({run.name: judgement}, kind)
    words = f"{judgement.words}; under {run.words}"
    if kind == "general" and judgement.verdict is Verdict.REFUTED:
        return _with(judgement, judgement.verdict, words)
    words += f", which is no registered completion; not run: {_listed(COMPLETION_NAMES)}"
    return _with(judgement, Verdict.INCONCLUSIVE, words)


def over_completions(
    judgements: Mapping[str, Judgement], kind: Kind, *, aside: Collection[str] = (), here: bool = False
) -> Judgement:
    """Combine the judgements of a claim under several completions.

    Args:
        judgements: completion → judgement; one that was not run counts as not tried, as do those that are not named.
        kind: what the claim says.
        aside: completions that were run and under which nothing was learned: they decide nothing.
        here: whether only what was run counts.

    Returns:
        The judgement; value, interval and n are those of the completion that `deciding` names.
    """
    shown = judgements[deciding(judgements, kind)]
    tried = {name: each for name, each in judgements.items() if each.verdict is not Verdict.NOT_RUN}
    if not tried:
        return shown
    left = [] if here else [name for name in COMPLETION_NAMES if name not in {*tried, *aside}]
    nothing = f"; nothing was learned under {_listed(aside)}" if aside else ""
    not_run = f"; not run: {_listed(left)}" if left else ""
    enough, all_needed = _settling(kind)
    settled = [name for name, each in tried.items() if each.verdict is enough]
    if settled:
        share = f" ({len(settled)} of {len(tried)} that were tried)" if len(tried) > 1 else ""
        words = f"{shown.words}; {enough.value} under {_listed(settled)}{share}{nothing}{not_run}"
        return _with(shown, enough, words)
    if any(each.verdict is not all_needed for each in tried.values()):
        found = "; ".join(f"{name}: {each.words}" for name, each in tried.items())
        return _with(shown, Verdict.INCONCLUSIVE, f"{found}{nothing}{not_run}")
    words = f"{shown.words}; {all_needed.value} under {_listed(tried)}{nothing}"
    if not left:
        return _with(shown, all_needed, words)
    sign = UNTRIED if all_needed is Verdict.REFUTED else UNTRIED_IN_GENERAL
    return _with(shown, Verdict.INCONCLUSIVE, f"{words}{sign}{_listed(left)}")


UNTRIED_IN_GENERAL = (
    "; reproduced only if it holds under every completion under which anything is learned, not tried: "
)
"""Stands in the words of a general claim that everything tried reproduces, before the names of what was not."""


def deciding(judgements: Mapping[str, Judgement], kind: Kind) -> str:
    """The completion whose numbers are shown: the first that settles the claim, or else the first that was run."""
    settling, _ = _settling(kind)
    ran = [name for name, each in judgements.items() if each.verdict is not Verdict.NOT_RUN]
    settled = [name for name in ran if judgements[name].verdict is settling]
    return [*settled, *ran, *judgements][0]


def _settling(kind: Kind) -> tuple[Verdict, Verdict]:
    """The verdict that one completion is enough for, and the one that takes all."""
    found = (Verdict.REPRODUCED, Verdict.REFUTED)
    return found if kind == "existence" else found[::-1]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _with(judgement: Judgement, verdict: Verdict, words: str) -> Judgement:
    return judgement.model_copy(update={"verdict": verdict, "words": words})
