"""Losses and gradients of one-layer post-norm models of short token sequences, several times as fast as by autograd.

Three facts make it so.  At the only layer a stream is one of few vectors, token + position, so queries, keys, scores
and what a head writes are small tables.  A causal row depends on the tokens up to it alone, so the early rows of a
batch repeat each other: each different prefix is computed once and counts as often as it occurs.  And between the large
matrix products, which torch does best, everything is a loop over rows that stays in cache, compiled by numba, with the
derivatives written out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Permutation, Task
from hopscope_next.training.config import Training

from . import shallow_loops as loops
from .batches import Step, batches

_rectify_back = torch.ops.aten.threshold_backward.grad_input


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    assert isinstance(task, Permutation)
    config, batch_of, size = model.config, batches(task, training, seeds), training.batch_size
    weights, slopes = (_weights(views, config) for views in (model.weights(), model.views(buffer)))
    readout, scale = config.readout_positions, np.float32(config.head_size**-0.5)
    places = loops.Places(np.array(config.position_codes), np.array(readout), scale)
    prefixes = [config.input_size ** (position + 1) for position in readout]
    counted = sum(count <= size for count in prefixes)
    most = sum(prefixes[:counted]) + size * (len(prefixes) - counted)
    # torch's memory is aligned for the widest registers.
    kept = {name: torch.zeros(len(seeds), *shape) for name, shape in _room(config, most).items()}
    kept |= {name: kept[name].long() for name in ("tokens", "slots")}
    room = loops.Room(**{name: kept[name].numpy() for name in loops.Room._fields})
    whole = [kept[name] for name in ("stream", "out", "more", "hidden", "back_hidden")]
    inner, inner_bias, outer, outer_bias = _mlp(model.weights())
    back_inner, back_inner_bias, back_outer, _ = _mlp(model.views(buffer))

    @torch.no_grad()
    def of_step(step: int) -> dict[str, Tensor]:
        batch = batch_of(step)
        inputs, targets = batch.inputs.contiguous().numpy(), batch.targets.contiguous().numpy()
        rows = loops.gather(inputs, targets, places, counted, room)
        loops.make_tables(weights, places, room)
        loops.attend(rows, weights, places, room)
        stream, out, more, hidden, back_hidden = (each[:, :rows] for each in whole)
        torch.baddbmm(inner_bias[:, None], stream, inner, out=hidden).relu_()
        torch.baddbmm(outer_bias[:, None], hidden, outer, out=out)
        loops.judge(rows, size, weights, slopes, room)
        torch.bmm(hidden.transpose(1, 2), out, out=back_outer)
        torch.bmm(out, outer.transpose(1, 2), out=back_hidden)
        _rectify_back(back_hidden, hidden, 0, grad_input=back_hidden)
        torch.sum(back_hidden, 1, out=back_inner_bias)
        torch.bmm(stream.transpose(1, 2), back_hidden, out=back_inner)
        torch.bmm(back_hidden, inner.transpose(1, 2), out=more)
        loops.attend_back(rows, weights, slopes, places, room)
        loops.tables_back(weights, slopes, places, room)
        by_step = torch.from_numpy(room.losses.copy())
        return {"loss": by_step.mean(-1)} | {f"loss_step_{n + 1}": by_step[:, n] for n in range(len(readout))}

    return of_step


def _mlp(views: Mapping[str, Tensor]) -> list[Tensor]:
    names = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
    return [views[f"layers.0.mlp.{name}"] for name in names]


def _weights(views: Mapping[str, Tensor], config: TransformerConfig) -> Any:
    arrays = [view.numpy() for view in views.values()]
    if not config.position_count:
        arrays.insert(1, np.zeros((len(arrays[0]), 1, config.width), np.float32))
    return loops.Weights(*arrays)


def _room(config: TransformerConfig, rows: int) -> dict[str, tuple[int, ...]]:
    heads, head, keys = config.heads, config.head_size, config.length
    size, width = config.input_size, config.width
    slots, sources = len(config.readout_positions), size + max(config.position_count, 1)
    table = (heads, slots, size, keys, size)
    # A row's tokens, slot, how often each target follows it (never where a row is not used), attention, stream …
    return {
        "tokens": (rows, keys), "slots": (rows,), "counts": (rows, config.output_size),
        "attention": (rows, heads, keys), "spread": (rows,), "normed": (rows, width), "stream": (rows, width),
        "out": (rows, width), "more": (rows, width), "hidden": (rows, config.mlp_size),
        "back_hidden": (rows, config.mlp_size), "losses": (slots,), "sources": (sources, width),
        "back_sources": (sources, width), "projected": (3, sources, heads * head),
        "query": (heads, slots, size, head), "key": (heads, keys, size, head),
        "write": (heads, keys, size, width), "back_write": (heads, keys, size, width),
        "score": table, "power": table, "back_score": table,
    }  # fmt: skip
