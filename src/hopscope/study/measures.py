"""Measures that every task can use (public name `hopscope.measures`); see `hopscope.measure` for one's own.

Loads no torch: files of studies import it, and listing studies stays quick.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.errors import UserError
from hopscope.runs.checkpoint import sha256
from hopscope.study.measure import CHUNK, Context, Measure, measure

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks import Batch


@measure
def accuracy(context: Context) -> None:
    """Accuracy of a task with class ids: it is recorded in training anyway, so nothing is left to do."""
    if context.task.shape().outputs != "classes":
        found = "found one with vectors; leave it out"
        raise UserError(f"measure accuracy: expected a task with class ids, {found}")


def attention_to(relation: str) -> Measure:
    """Mean attention of every head to the partner of a row under a relation of the task, at every checkpoint.

    The mean is over the readout rows that have a partner which they may see; a member without any such row has none.
    Metric `attention_to_<relation>`, by layer and head, and the same for each group of the held-out samples.
    """

    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", relation)
    # Relations whose names differ in more than a space are measures of their own.
    plain += "" if plain == relation.replace(" ", "_") else f".{sha256(relation.encode())[:8]}"

    @measure(when="checkpoints", name=f"attention_to_{plain}")
    def attention(context: Context) -> "dict[str, Tensor]":
        import torch

        batch, config = context.held_out, context.ensemble.config
        if relation not in batch.relations:
            known = f"a relation of the task ({', '.join(batch.relations) or 'none: give the batch some'})"
            raise UserError(f"measure attention_to: expected {known}, found {relation!r}")
        found = []
        for piece in _pieces(batch, context):
            keys = piece.relations[relation][..., list(config.readout_positions)]
            rows = torch.tensor(config.readout_positions, device=keys.device)
            seen = (keys >= 0) & (keys <= rows) if config.causal else keys >= 0
            patterns = _readout_patterns(context, piece)
            index = keys.clamp(min=0)[:, None, :, None, :, None].expand(*patterns.shape[:-1], 1)
            to_partner = patterns.gather(-1, index)[..., 0]
            # Rows without a partner become NaN, which the mean leaves out.
            found.append(to_partner.masked_fill(~seen[:, None, :, None, :], torch.nan))
        attention, name = torch.cat(found, 2), f"attention_to_{relation}"
        means = {name: attention.nanmean((2, 4))}
        for group, chosen in batch.groups.items():
            of_group = attention.masked_fill(~chosen[:, None, :, None, None], torch.nan)
            means[f"{name}@{group}"] = of_group.nanmean((2, 4))
        return means

    return attention


@measure(when="checkpoints")
def attention_entropy(context: Context) -> "dict[str, Tensor]":
    """Mean entropy of every head's attention at the readout rows, in nats, at every checkpoint.

    0: each row attends to one key.  Metric `attention_entropy`, by layer and head.
    """
    import torch

    pieces = _pieces(context.held_out, context)
    found = [torch.special.entr(_readout_patterns(context, piece)).sum(-1) for piece in pieces]
    return {"attention_entropy": torch.cat(found, 2).mean((2, 4))}


@measure
def head_ablation(context: Context) -> Iterator[dict[str, Any]]:
    """Everything that the task measures (loss, its parts, accuracy) without each head, at the end.

    A head is taken out by putting its mean output over the held-out samples in place, position by position.
    Metrics `<metric>_without_head`, by layer and head.
    """
    import torch

    from hopscope.tasks import losses

    ensemble, batch = context.ensemble, context.held_out
    sites = [f"blocks.{layer}.attn.hook_z" for layer in range(ensemble.config.layers)]
    caches = (ensemble.cache(piece.inputs, sites) for piece in _pieces(batch, context))
    sums = [{site: z.sum(1) for site, z in cache.items()} for cache in caches]
    for layer, site in enumerate(sites):
        mean = torch.stack([each[site] for each in sums]).sum(0) / batch.inputs.shape[1]
        for head in range(ensemble.config.heads):
            edit = {site: partial(_replaced_head, head=head, by=mean)}
            predictions = [ensemble.intervene(piece, edit) for piece in _pieces(batch, context)]
            for metric, values in losses(context.task, torch.cat(predictions, 1), batch).items():
                name, at, group = metric.partition("@")
                metric = f"{name}_without_head{at}{group}"
                yield {"metric": metric, "value": values, "layer": layer, "head": head}


@measure
def by_readout(context: Context) -> Iterator[dict[str, Any]]:
    """Loss (and, for classes, accuracy) at each readout position alone, at the end.

    The loss is the mean cross-entropy, or the mean squared error, of the samples that count at that position.  Metrics
    `loss_at` and `accuracy_at`; the part is the position.
    """
    import torch

    from hopscope.tasks import counted
    from hopscope.tasks.batch import terms, weighted

    batch = context.held_out
    predictions = torch.cat([context.ensemble(piece.inputs) for piece in _pieces(batch, context)], 1)
    measured = {"loss_at": terms(predictions, batch)}
    if batch.targets.is_floating_point():
        asked = weighted(torch.ones_like(measured["loss_at"]), batch) > 0.0  # other dimensions do not count
        measured["loss_at"] = measured["loss_at"].masked_fill(~asked, torch.nan).nanmean(-1)
    else:
        measured["accuracy_at"] = (predictions.argmax(-1) == batch.targets).float()
    for metric, values in measured.items():
        means = values.masked_fill(~counted(batch), torch.nan).nanmean(1)
        for place, position in enumerate(context.ensemble.config.readout_positions):
            yield {"metric": metric, "value": means[:, place], "part": str(position)}


def _pieces(batch: "Batch", context: Context) -> "Iterator[Batch]":
    return batch.pieces(max(1, CHUNK // len(context.ensemble)))


def _replaced_head(z: "Tensor", head: int, by: "Tensor") -> "Tensor":
    """Head outputs `[member, batch, position, head, head_dim]`, those of one head replaced in all samples."""
    z[..., head, :] = by[:, None, :, head]
    return z


def _readout_patterns(context: Context, piece: "Batch") -> "Tensor":
    """Attention of the readout rows, `[member, layer, batch, head, readout, key]`; of other rows nothing is kept."""
    import torch

    found, rows = list[torch.Tensor](), list(context.ensemble.config.readout_positions)

    def keep(site: str, tensor: torch.Tensor) -> torch.Tensor:
        if site.endswith("attn.hook_pattern"):
            found.append(tensor[..., rows, :])
        return tensor

    context.ensemble(piece.inputs, keep)
    return torch.stack(found, 1)
