"""Controls of the permutation study: what must not be there, or a claim would hold for a reason of no interest.

Every one is read from what the run has measured anyway, of members of one reading.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.claims import Criterion, Samples
from hopscope.studies.permutation.readings import measured

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def undetermined(evidence: "Evidence", name: str) -> Samples:
    """Accuracy at step 4, where two values are left and nothing can tell which comes (P1).

    If it were perfect, held-out mappings would be known, and step 5 would not be elimination.
    """
    return measured(evidence, name, "accuracy", "probes", part="step_4")


def first_loss(evidence: "Evidence", *names: str) -> dict[str, Samples]:
    """Training loss at the first step (P4): an untrained model must not rest at the floor."""
    if "loss" not in evidence:
        return dict.fromkeys(names, Samples([], note="not measured"))
    curves = evidence.rows("loss", measure="training", split="train")
    first = curves.groupby("member", sort=False).value.first()
    found = {}
    for name in names:
        at_end = measured(evidence, name, "last_epoch_loss", "last_epoch", split="train")
        known = [first.get(member) for member in at_end.members or ()]
        found[name] = replace(at_end, values=known)
    return found


def heads_without_the_skill(evidence: "Evidence", name: str, must: Mapping[str, Criterion]) -> Samples:
    """How far the heads of a model that never learned to recall are from meeting every part of P9; 0 if they do."""
    parts = [measured(evidence, name, part, "roles", part="assignment") for part in must]
    return farthest(parts, [*must.values()])


def farthest(parts: Sequence[Samples], criteria: Sequence[Criterion]) -> Samples:
    """Of each member, how far the number that is farthest from its criterion is from it; 0 if all are met."""
    distances = []
    for numbers in zip(*(part.values for part in parts), strict=True):
        pairs = zip(numbers, criteria, strict=True)
        known = [None if number is None else criterion.distance(number) for number, criterion in pairs]
        distances.append(None if None in known else max(each for each in known if each is not None))
    return replace(parts[0], values=distances)


def memorised_held_out(evidence: "Evidence", name: str) -> Samples:
    """The share of P11 on held-out mappings, which nobody can have memorised."""
    loss, uniform, known = (
        measured(evidence, name, metric, "posteriors", any_values=True)
        for metric in ("held_out_loss", "uniform_floor", "training_floor")
    )
    numbers = zip(loss.values, uniform.values, known.values, strict=True)
    shares = [None if None in each else (each[1] - each[0]) / (each[1] - each[2]) for each in numbers]
    return replace(loss, values=shares)
