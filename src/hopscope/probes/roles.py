"""What each head of a one-layer model is for: a function, found by ablating it, not a label read off a heat map.

Presentation, section 10, reads two roles off attention maps: a head that scans all earlier y's does elimination, one
whose y rows attend to themselves and whose x rows attend to the preceding y does recall.  Here a head's role is what
its loss costs: its output at the last row is replaced and both skills are measured again.  The heat map's reading is
measured beside it, so that the two can be compared.
"""

from itertools import permutations
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.interventions import AblateHead
from hopscope.models.transformer import Transformer
from hopscope.probes.causal_cases import LAST_ROW, LIMIT
from hopscope.probes.causal_runs import Answers, CausalRuns, as_json
from hopscope.probes.spreads import MISSING, NEITHER, ONE_DOES_BOTH, ONE_EACH, SHARED
from hopscope.tasks.permutation import PermutationTask

NEEDED, SPARED = 0.5, 0.1
"""Thresholds of claim P9: least loss of a skill that needs a head, largest loss of one that is spared by it."""

SKILLS = ("recall", "elimination")


def measure_roles(model: Transformer, task: PermutationTask, limit: int = LIMIT) -> dict[str, Any]:
    """Ablate each head at the last row, and read its attention map, on held-out sequences.

    Args:
        model: a one-layer ensemble.
        task: its task; its share of repeats is that of the reference for means and donors, see `reference_means`.
        limit: most repeats, and most plain sequences.

    Returns:
        JSON values.  `[m]` are lists over members, `[m][h]` over members and heads; shares are fractions.

        * `sequences`: `repeats` and `plain`, how many; `clean`: `recall` and `elimination` `[m]`.
        * `recall_lost`, `elimination_lost` `[m][h]`: fall of each skill when the head's output is the mean of the
          reference; `resample`: the same two when it is another sequence's.
        * `assignment` (null for one head): the pair of heads that comes closest to P9's thresholds (see `assigned`):
          `recall_head`, `elimination_head` `[m]`, `recall_lost_with_recall_head`,
          `elimination_lost_with_recall_head`, `recall_lost_with_elimination_head`,
          `elimination_lost_with_elimination_head` `[m]`, and `margin` `[m]`, at least 0 where all four are met.
        * `spread` `[m]`: how roles are spread, in words (see `spread`).
        * `heat_map` `[m][h]`: mean attention of `x_rows_to_earlier_y`, `y_rows_to_themselves`,
          `x_rows_to_preceding_y` (x rows from x₂ on, plain sequences), `last_row_to_copy` (repeats), and
          `slot_spread`, largest minus smallest mean weight of the last row on a y (plain sequences).
        * `heat_map_recall_head` `[m]` (null for one head): the head with the largest `y_rows_to_themselves` +
          `x_rows_to_preceding_y`; `heat_map_agrees` `[m]`: whether it is the recall head of `assignment`.

    Raises:
        ValueError: the model has several layers or does not fit the task, or the limit is too small.
    """
    runs = CausalRuns(model, task, limit)
    answers = runs.answers()
    clean = runs.accuracies(answers)
    lost, resampled = _lost(runs, answers, "mean"), _lost(runs, answers, "resample")
    repeats = int(runs.repeat.sum())
    heat_map = _heat_map(runs)
    found: dict[str, Any] = {
        "sequences": {"repeats": repeats, "plain": len(runs.repeat) - repeats},
        "clean": clean,
        **{f"{skill}_lost": lost[skill] for skill in SKILLS},
        "resample": {f"{skill}_lost": resampled[skill] for skill in SKILLS},
        "spread": spread(clean, lost),
        "heat_map": heat_map,
        "assignment": None,
        "heat_map_recall_head": None,
        "heat_map_agrees": None,
    }
    if len(runs.heads) > 1:
        binding = heat_map["y_rows_to_themselves"] + heat_map["x_rows_to_preceding_y"]
        found["assignment"] = assigned(lost)
        found["heat_map_recall_head"] = binding.argmax(1).tolist()
        pairs = zip(found["heat_map_recall_head"], found["assignment"]["recall_head"], strict=True)
        found["heat_map_agrees"] = [read == ablated for read, ablated in pairs]
    return as_json(found)


def _lost(
    runs: CausalRuns, clean: Answers, by: Literal["mean", "resample"]
) -> dict[str, Float[Tensor, "member head"]]:
    """Fall of each skill when a head is ablated at the last row."""
    return runs.by_head(
        lambda heads: AblateHead(layer=0, heads=heads, rows=LAST_ROW, by=by),
        lambda given: runs.lost(clean, given),
        donors="mixed",
    )


def assigned(lost: dict[str, Float[Tensor, "member head"]]) -> dict[str, list[Any]]:
    """The two heads of each member that come closest to one recall head and one elimination head (claim P9).

    The recall head shall cost at least 0.5 of recall and at most 0.1 of elimination, the elimination head the
    reverse.  Of all pairs the one is chosen whose worst margin to these four thresholds is largest; of equal ones the
    first.  Keys as under `assignment` in `measure_roles`.
    """
    names = [f"{skill}_lost_with_{role}_head" for role in SKILLS for skill in SKILLS]
    found: dict[str, list[Any]] = {name: [] for name in ("recall_head", "elimination_head", *names, "margin")}
    recall, elimination = lost["recall"].tolist(), lost["elimination"].tolist()
    for in_recall, in_elimination in zip(recall, elimination, strict=True):
        best: tuple[Any, ...] | None = None
        for first, second in permutations(range(len(in_recall)), 2):
            four = (in_recall[first], in_elimination[first], in_recall[second], in_elimination[second])
            margin = min(four[0] - NEEDED, SPARED - four[1], SPARED - four[2], four[3] - NEEDED)
            if best is None or margin > best[-1]:
                best = (first, second, *four, margin)
        assert best is not None
        for values, value in zip(found.values(), best, strict=True):
            values.append(value)
    return found


def spread(
    clean: dict[str, Float[Tensor, " member"]], lost: dict[str, Float[Tensor, "member head"]]
) -> list[str]:
    """How roles are spread over the heads of each member, in words; the first that applies.

    A skill *needs* a head whose loss costs at least 0.5 and is *spared* by one whose loss costs at most 0.1.

    * `"a skill is missing"`: recall or elimination is below 0.5 to begin with, and cannot lose that much.
    * `"one each"`: recall needs one head that elimination is spared by, elimination needs another one that recall is
      spared by (claim P9).
    * `"one head does both"`: both skills need one head, and are spared by every other.  Heads that can stand in for
      one another are spared too: ablating them one at a time does not show them.
    * `"neither"`: no skill needs any single head.
    * `"shared"`: everything else.  Some skill needs a head, but roles and heads do not match one to one.
    """
    words = []
    for member in range(lost["recall"].shape[0]):
        if min(float(clean[skill][member]) for skill in SKILLS) < NEEDED:
            words.append(MISSING)
            continue
        needed = {skill: (lost[skill][member] >= NEEDED).tolist() for skill in SKILLS}
        spared = {skill: (lost[skill][member] <= SPARED).tolist() for skill in SKILLS}
        words.append(_word(needed, spared))
    return words


def _word(needed: dict[str, list[bool]], spared: dict[str, list[bool]]) -> str:
    heads = range(len(needed["recall"]))
    for_recall = {h for h in heads if needed["recall"][h] and spared["elimination"][h]}
    for_elimination = {h for h in heads if needed["elimination"][h] and spared["recall"][h]}
    if for_recall and for_elimination:
        return ONE_EACH
    both = {h for h in heads if needed["recall"][h] and needed["elimination"][h]}
    idle = {h for h in heads if spared["recall"][h] and spared["elimination"][h]}
    if len(both) == 1 and both | idle == set(heads):
        return ONE_DOES_BOTH
    if not any(needed["recall"]) and not any(needed["elimination"]):
        return NEITHER
    return SHARED


def _heat_map(runs: CausalRuns) -> dict[str, Float[Tensor, "member head"]]:
    """What one reads off mean attention maps."""
    plain, to_copy = [], []
    for part in runs.cases:
        with torch.no_grad():
            _, captured = runs.model.capture(part.batch.inputs)
        pattern = captured.patterns[0]
        plain.append(pattern[:, ~part.repeat].double().sum(1))
        copy = part.batch.relations["x_first"][:, part.repeat, -1]
        rows = pattern[:, part.repeat, :, -1]
        to_copy.append(torch.take_along_dim(rows, copy[..., None, None], -1)[..., 0].double().sum(1))
    repeats = int(runs.repeat.sum())
    mean = torch.stack(plain).sum(0) / (len(runs.repeat) - repeats)
    to_themselves = mean.diagonal(0, -2, -1)
    to_preceding = mean.diagonal(-1, -2, -1)
    slots = mean[..., -1, 1::2]
    return {
        "x_rows_to_earlier_y": mean[..., 2::2, 1::2].sum(-1).mean(-1),
        "y_rows_to_themselves": to_themselves[..., 1::2].mean(-1),
        "x_rows_to_preceding_y": to_preceding[..., 1::2].mean(-1),
        "last_row_to_copy": torch.stack(to_copy).sum(0) / repeats,
        "slot_spread": slots.amax(-1) - slots.amin(-1),
    }
