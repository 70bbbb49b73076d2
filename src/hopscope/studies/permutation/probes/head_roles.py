"""What each head of a one-layer model is for: a function, found by ablating it, not a label read off a heat map.

Presentation, section 10, reads two roles off attention maps: a head that scans all earlier y's does elimination, one
whose y rows attend to themselves and whose x rows attend to the preceding y does recall.  Here a head's role is what
its loss costs: its output at the last row is replaced and both skills are measured again.  The heat map's reading is
measured beside it, so that the two can be compared.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.interventions import AblateHead
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.causal_cases import LAST_ROW, LIMIT
from hopscope.studies.permutation.probes.causal_runs import Answers, CausalRuns
from hopscope.studies.permutation.probes.head_specialization import SKILLS, assigned, spread
from hopscope.studies.permutation.probes.predictions import as_json
from hopscope.tasks.permutation import PermutationTask


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
    of_skills, of_heads = ({skill: x[skill].tolist() for skill in SKILLS} for x in (clean, lost))
    repeats = int(runs.repeat.sum())
    heat_map = _heat_map(runs)
    found: dict[str, Any] = {
        "sequences": {"repeats": repeats, "plain": len(runs.repeat) - repeats},
        "clean": clean,
        **{f"{skill}_lost": lost[skill] for skill in SKILLS},
        "resample": {f"{skill}_lost": resampled[skill] for skill in SKILLS},
        "spread": spread(of_skills, of_heads),
        "heat_map": heat_map,
        "assignment": None,
        "heat_map_recall_head": None,
        "heat_map_agrees": None,
    }
    if len(runs.heads) > 1:
        binding = heat_map["y_rows_to_themselves"] + heat_map["x_rows_to_preceding_y"]
        found["assignment"] = assigned(of_heads)
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
