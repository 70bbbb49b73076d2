"""Recall wherever an x may come back and whatever it copies, also where training never had a repeat.

Training repeats one slot (the last, in the presentation): whether a member can recall elsewhere tells a circuit that
is bound to positions from one that is not.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.predictions import (
    Probabilities,
    answers,
    as_json,
    predict,
    repeated_slot,
    with_repeats,
)
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask


def slot_pairs(predicted: Probabilities, batch: Batch) -> dict[str, Float[Tensor, "member slot source"]]:
    """Recall by the slot of the repeat and the slot that it copies (index 0 is slot 1); NaN where no probe has them.

    Returns:
        `recall`, the share of probes whose most probable token is the value seen before, and `mass_recalled`, the mean
        probability of that value.

    Raises:
        ValueError: a sequence has no repeated x, or several.
    """
    members, slots = predicted.shape[0], predicted.shape[2]
    slot = repeated_slot(batch)
    source = batch.relations["same_symbol"].amax(-1) // 2
    here = slot.expand(members, -1)[..., None]
    hit = (predicted.argmax(-1) == answers(batch)).double().gather(2, here)[..., 0]
    right = answers(batch).expand(members, -1, -1)[..., None]
    mass = predicted.gather(-1, right)[..., 0].gather(2, here)[..., 0].double()
    pairs = [(slot == s) & (source == t) for s in range(slots) for t in range(slots)]
    # 0 / 0 is NaN, which says that no probe has the pair.
    return {
        name: torch.stack(
            [torch.where(pair, values, 0.0).sum(1) / pair.sum(1) for pair in pairs], 1
        ).unflatten(1, (slots, slots))
        for name, values in (("recall", hit), ("mass_recalled", mass))
    }


def recall_by_slot_pair(model: Transformer, task: PermutationTask, limit: int) -> dict[str, Any]:
    """Recall on held-out mappings at every slot, whatever slots the training data repeats.

    Args:
        model: the members.
        task: what they learned.
        limit: largest evaluation set that is gone through in full.

    Returns:
        JSON values; V × V lists have slot 1 first, and None where the source does not stand before the slot.

        * `recall`, `mass_recalled` `[member][slot][source]`: share of probes that are answered with the value seen
          before; its mean probability.
        * `recall_floor`: what observers without recall reach at each slot, as share and as mass: `elimination`
          (an even choice among the values not shown: 0), `guess` (among all values: 1/V) and `unbound` (sees that
          an x came back, but not beside which value: an even choice among the values shown, 1/(slot - 1)).
        * `sequences`, `exhaustive`: number of probes; whether these are all.
    """
    asked = with_repeats(task, tuple(range(2, task.config.values + 1)))
    batch = asked.evaluation("repeats", limit=limit)
    return {
        **as_json(slot_pairs(predict(model, batch), batch)),
        "recall_floor": recall_floor(task.config.values),
        "sequences": batch.inputs.shape[1],
        "exhaustive": asked.evaluation_count("repeats") <= limit,
    }


def recall_floor(values: int) -> dict[str, list[float | None]]:
    """Recall of observers that do not recall, by slot (see `recall_by_slot_pair`); None at slot 1."""
    later = range(2, values + 1)
    return {
        "elimination": [None, *(0.0 for _ in later)],
        "guess": [None, *(1 / values for _ in later)],
        "unbound": [None, *(1 / (slot - 1) for slot in later)],
    }
