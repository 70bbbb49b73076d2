"""Head specialisation: how two skills are spread over heads, by what the loss of each head costs (no torch)."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

ONE_EACH = "one each"
ONE_DOES_BOTH = "one head does both"
SHARED = "shared"
NEITHER = "neither"
MISSING = "a skill is missing"

NEEDED, SPARED = 0.5, 0.1
"""Thresholds of claim P9: least loss of a skill that needs a head, largest loss of one that is spared by it."""

SKILLS = ("recall", "elimination")


def assigned(lost: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, list[Any]]:
    """The two heads of each member that come closest to one recall head and one elimination head (claim P9).

    The recall head shall cost at least 0.5 of recall and at most 0.1 of elimination, the elimination head the
    reverse.  Of all pairs the one is chosen whose worst margin to these four thresholds is largest; of equal ones the
    first.  Keys as under `assignment` in `measure_roles`.

    Args:
        lost: fall of each skill without each head, `[member][head]`.
    """
    names = [f"{skill}_lost_with_{role}_head" for role in SKILLS for skill in SKILLS]
    found = []
    for in_recall, in_elimination in zip(lost["recall"], lost["elimination"], strict=True):
        pairs = []
        for first, second in permutations(range(len(in_recall)), 2):
            four = (in_recall[first], in_elimination[first], in_recall[second], in_elimination[second])
            margin = min(four[0] - NEEDED, SPARED - four[1], SPARED - four[2], four[3] - NEEDED)
            pairs.append((first, second, *four, margin))
        found.append(max(pairs, key=lambda pair: pair[-1]))
    columns = map(list, zip(*found, strict=True))
    return dict(zip(("recall_head", "elimination_head", *names, "margin"), columns, strict=True))


def spread(clean: Mapping[str, Sequence[float]], lost: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    """How roles are spread over the heads of each member, in words; the first that applies.

    A skill *needs* a head whose loss costs at least 0.5 and is *spared* by one whose loss costs at most 0.1.

    * `"a skill is missing"`: recall or elimination is below 0.5 to begin with, and cannot lose that much.
    * `"one each"`: recall needs one head that elimination is spared by, elimination needs another one that recall is
      spared by (claim P9).
    * `"one head does both"`: both skills need one head, and are spared by every other.  Heads that can stand in for
      one another are spared too: ablating them one at a time does not show them.
    * `"neither"`: no skill needs any single head.
    * `"shared"`: everything else.  Some skill needs a head, but roles and heads do not match one to one.

    Args:
        clean: each skill with all heads, `[member]`.
        lost: fall of each skill without each head, `[member][head]`.
    """
    members = zip(clean["recall"], clean["elimination"], lost["recall"], lost["elimination"], strict=True)
    return [
        MISSING if min(recall, elimination) < NEEDED else _word(of_recall, of_elimination)
        for recall, elimination, of_recall, of_elimination in members
    ]


def _word(recall: Sequence[float], elimination: Sequence[float]) -> str:
    """How roles are spread over the heads of one member, by what each skill loses without each head."""
    falls = list(zip(recall, elimination, strict=True))
    for_recall = any(one >= NEEDED and other <= SPARED for one, other in falls)
    for_elimination = any(other >= NEEDED and one <= SPARED for one, other in falls)
    if for_recall and for_elimination:
        return ONE_EACH
    both = sum(min(fall) >= NEEDED for fall in falls)
    idle = sum(max(fall) <= SPARED for fall in falls)
    if both == 1 and both + idle == len(falls):
        return ONE_DOES_BOTH
    return NEITHER if max(map(max, falls)) < NEEDED else SHARED
