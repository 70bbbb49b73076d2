"""What of the recall mechanism forms when: matching, history, and what they bring about, checkpoint by checkpoint.

The mechanism has two parts that meet at the last row: *matching* (some head sends a repeated x to its earlier copy and
imports where that stands) and *history* (the row holds which y stood in which slot, not only which were shown).  Each
is measured in what the MLP reads at the last row, as the relative change ‖Δ‖/‖input‖ when two tokens of the context
change places:

* `history`: two y change places.  If only their set mattered, nothing would change.
* `pointer`: two x change places, one of them the copy of the last x.  If the row did not know where the copy stands,
  no more would change than when two others change places (`pointer_control`).

Why history is measured so, and not otherwise (d32/2 heads with 30 % repeats, two seeds):

* *Unequal attention over the y slots* is also there before training (standard deviation over mean, of a head's mean
  attention, 0.2 to 0.3; 0.3 to 0.6 at the end): it ignores that the untrained attention output is small, and it sees
  no order that is kept by attention to *values* together with the position codes it imports.
* *A probe of the y of each slot* depends on its effort, since activations have no noise.  A linear one is right in 0.7
  of the cases just after elimination was learned, where no member recalls anything, and in less than 0.4 at the end:
  slots of middle weight are never linear.  An MLP probe is right in 0.3 to 0.4 on the plateau and, fitted six times
  as long, in 0.65 to 0.8.  Adding noise would only hide that choice in the size of the noise.
* *Two y changing places in the value path alone* changes the sum whenever attention depends on the values it reads,
  even if the true order of the sequence leaves no trace: by 0.13 to 0.34 on the plateau.

Changing the places of the tokens themselves has none of these defects: 0 if only the set is kept, by whatever means;
in units of what the MLP reads; one pass.  It was 0.05 to 0.08 before training, up to 0.2 shortly after, 0.02 on the
plateau and 0.34 to 0.40 at the end.  It does not say whether the MLP uses what it reads; recall does.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.models.linear import linear
from hopscope.models.transformer import Transformer
from hopscope.probes.retrieval import json_numbers
from hopscope.studies.permutation.probes.change_points import LEAST_RECALL, formation_order
from hopscope.studies.permutation.probes.decoding import chosen_sequences, row_activations
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask

SEQUENCES = 240
"""Held-out sequences of each kind that every checkpoint is measured on."""

LEAST_RISE: Mapping[str, float] = {
    "match": 0.05,
    "pointer": 0.05,
    "history": 0.05,
    "detection": 0.25,
    "recall": LEAST_RECALL,
}
"""How far each curve must rise above the level before (recall: above chance) for something to have formed."""

RANKED = ("match", "history", "recall")
"""Parts among which the first is named; `pointer` is another measure of matching, `detection` its consequence."""


class _Sequences(NamedTuple):
    """What every checkpoint is asked.

    Attributes:
        repeats, plain: held-out sequences, `member == 1`.
        source: slot (from 0) of the earlier copy of the last x.
        moved: for each pair of slots, whether one of them is the source.
        y_swapped, x_swapped: for each pair of slots, `repeats` with these two y, or these two x, in each other's place.
    """

    repeats: Batch
    plain: Batch
    source: Int[Tensor, " sample"]
    moved: Bool[Tensor, "pair sample"]
    y_swapped: Int[Tensor, "pair sample position"]
    x_swapped: Int[Tensor, "pair sample position"]


def measure_formation(
    models_by_step: Iterable[tuple[int, Transformer]],
    task: PermutationTask,
    *,
    samples_per_step: int,
    sequences: int = SEQUENCES,
) -> dict[str, Any]:
    """What the members hold and do at each checkpoint, on the same held-out sequences.

    Args:
        models_by_step: checkpoints with their steps, ascending (one layer, tokens); one is looked at at a time.
        task: what they learn; repeats are asked at the last slot, of every slot before.
        samples_per_step: training samples of one step (the batch size).
        sequences: most sequences of each kind, with a repeat and without.

    Returns:
        JSON values; None where a member is not finite.

        * `step`, `samples`: of each checkpoint; `sequences`: number of each kind.
        * `match` `[member][checkpoint][head]`: mean attention of the last row to the earlier copy of its x;
          `best_head` `[member][checkpoint]`: the head (from 0) with most.
        * `pointer`, `pointer_control`, `history` `[member][checkpoint]`: see the module; means over the sequences
          and the pairs of slots (the control is None for V = 3, which has no two other slots).
        * `history_weakest` `[member][checkpoint]`: of the pair of slots that is told apart least.
        * `recall`, `mass_recalled` `[member][checkpoint]`: share of repeats that are answered with the recalled
          value; its mean probability.  `detection`: mean probability of all values shown, which is what noticing
          the repeat brings.  `trapped`: share that is answered with the unused value.
        * `elimination` `[member][checkpoint]`: share of right answers at the last step without a repeat.
        * `floors`: `match` under uniform attention, `recall` by guessing among the values shown.

    Raises:
        ValueError: there is no checkpoint.
    """
    asked = _sequences(task, sequences)
    steps, found = [], []
    for step, model in models_by_step:
        steps.append(step)
        found.append(_measured(model, asked))
    if not found:
        raise ValueError("formation: expected at least one checkpoint, found none")
    curves = {name: json_numbers(torch.stack([part[name] for part in found], 1)) for name in found[0]}
    curves["best_head"] = [
        [None if None in heads else heads.index(max(heads)) for heads in checkpoints]
        for checkpoints in curves["match"]
    ]
    return {
        "step": steps,
        "samples": [step * samples_per_step for step in steps],
        "sequences": {"repeats": asked.repeats.inputs.shape[1], "plain": asked.plain.inputs.shape[1]},
        **curves,
        "floors": {"match": 1 / task.positions, "recall": 1 / (task.config.values - 1)},
    }


def _sequences(task: PermutationTask, most: int) -> _Sequences:
    repeats, plain = (chosen_sequences(task, kind, "held_out", most) for kind in ("repeats", "plain"))
    source = repeats.relations["same_symbol"][0, :, -1] // 2
    pairs = list(combinations(range(task.config.values - 1), 2))

    def swapped(offset: int) -> Int[Tensor, "pair sample position"]:
        every = repeats.inputs.repeat(len(pairs), 1, 1)
        for tokens, (j, k) in zip(every, pairs, strict=True):
            first, second = 2 * j + offset, 2 * k + offset
            tokens[:, [first, second]] = tokens[:, [second, first]]
        return every

    moved = torch.stack([(source == j) | (source == k) for j, k in pairs])
    return _Sequences(repeats, plain, source, moved, y_swapped=swapped(1), x_swapped=swapped(0))


def _measured(model: Transformer, asked: _Sequences) -> dict[str, Tensor]:
    """Everything about one checkpoint, with the member axis first."""
    last = asked.repeats.inputs.shape[-1] - 1
    with torch.no_grad():
        pattern = model.capture(asked.repeats.inputs)[1].patterns[0][:, :, :, -1]
        repeats = row_activations(model, asked.repeats.inputs, last)
        plain = row_activations(model, asked.plain.inputs, last)
        y_change = _changes(model, asked.y_swapped, repeats.before)
        x_change = _changes(model, asked.x_swapped, repeats.before)
        on_repeats, on_plain = (
            linear(model.weights, "readout", row.after[:, :, None])[:, :, 0].double().softmax(-1)
            for row in (repeats, plain)
        )
    copy = (2 * asked.source)[:, None, None].expand(model.members, -1, model.config.heads, 1)
    by_pair = y_change.mean(2)
    measured = {
        "match": pattern.gather(-1, copy)[..., 0].double().mean(1),
        "pointer": _mean_where(asked.moved, x_change),
        "pointer_control": _mean_where(~asked.moved, x_change),
        "history": by_pair.mean(1),
        "history_weakest": by_pair.amin(1),
        **_answered(on_repeats, asked.repeats),
        "elimination": (on_plain.argmax(-1) == asked.plain.targets[:, :, -1]).double().mean(1),
    }
    finite = model.parameters.flat.isfinite().all(1)
    return {
        name: torch.where(finite.view(-1, *[1] * (values.dim() - 1)), values, torch.nan)
        for name, values in measured.items()
    }


def _changes(
    model: Transformer,
    swapped: Int[Tensor, "pair sample position"],
    before: Float[Tensor, "member sample model"],
) -> Float[Tensor, "member pair sample"]:
    """Relative change of what the MLP reads at the last row."""
    pairs, samples, positions = swapped.shape
    changed = row_activations(model, swapped.reshape(1, pairs * samples, positions), positions - 1).before
    changed = changed.unflatten(1, (pairs, samples))
    return ((changed - before[:, None]).norm(dim=-1) / before.norm(dim=-1)[:, None]).double()


def _mean_where(
    chosen: Bool[Tensor, "pair sample"], values: Float[Tensor, "member pair sample"]
) -> Float[Tensor, " member"]:
    """NaN where nothing is chosen."""
    return torch.where(chosen, values, 0.0).sum((1, 2)) / chosen.sum()


def _answered(
    predicted: Float[Tensor, "member sample output"], batch: Batch
) -> dict[str, Float[Tensor, " member"]]:
    """Answers at a repeat in the last slot."""
    right = batch.targets[:, :, -1]
    shown = torch.nn.functional.one_hot(batch.inputs[0, :, 1::2], predicted.shape[-1]).sum(1)
    unused = shown == 0
    unused[:, 0] = False
    best = predicted.argmax(-1)
    expanded = unused.expand(predicted.shape)
    return {
        "recall": (best == right).double().mean(1),
        "mass_recalled": predicted.gather(-1, right.expand(best.shape)[..., None])[..., 0].mean(1),
        "detection": (predicted * shown).sum(-1).mean(1),
        "trapped": expanded.gather(-1, best[..., None])[..., 0].double().mean(1),
    }


def order_of_formation(formation: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """`formation_order` of every member, in samples, from what `measure_formation` returned.

    `match` is the head that attends most to the copy at the end.  None for a member that is not finite everywhere.
    """
    orders: list[dict[str, Any] | None] = []
    for member, heads in enumerate(formation["best_head"]):
        if None in heads:
            orders.append(None)
            continue
        curves = {name: formation[name][member] for name in LEAST_RISE}
        curves["match"] = [by_head[heads[-1]] for by_head in curves["match"]]
        orders.append(formation_order(formation["samples"], curves, LEAST_RISE, formation["floors"], RANKED))
    return orders
