"""One model under rules, in plain loops over samples, heads and rows: the slow obvious reference of `execution`."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from hopscope.models.patterns import (
    History,
    Identity,
    Learned,
    MeanMap,
    OverRole,
    OwnChain,
    Related,
    TwoTargets,
    Uniform,
    reads_nothing,
)


def has(batch, roles, sample, position) -> bool:
    return all(int(batch.roles[name][0, sample, position]) == value for name, value in roles.items())


def keys(batch, causal, rule, sample, row) -> list[int]:
    """Keys that a rule reads from a row."""
    seen = range(row + 1) if causal else range(batch.inputs.shape[2])
    if isinstance(rule, Uniform):
        return list(seen)
    if isinstance(rule, Related):
        partner = int(batch.relations[rule.relation][0, sample, row])
        return [partner] if partner in seen else []
    if isinstance(rule, OverRole):
        return [key for key in seen if has(batch, rule.keys, sample, key)]
    if isinstance(rule, OwnChain):
        chain = batch.roles["chain"][0, sample]
        return [key for key in seen if has(batch, rule.keys, sample, key) and chain[key] == chain[row]]
    assert isinstance(rule, Identity)
    return [row]


def weights(batch, causal, rule, sample, row, alike=None) -> torch.Tensor:
    """A row of the pattern that a rule stands for; where it leads nowhere, the row itself.

    `alike` are the head's own patterns on the samples in which this row has the same role, by sample.
    """
    found = torch.zeros(batch.inputs.shape[2])
    if isinstance(rule, TwoTargets):
        parts = [(rule.first, rule.share), (rule.second, 1.0 - rule.share)]
        if all(keys(batch, causal, part, sample, row) for part, _ in parts):
            return sum(share * weights(batch, causal, part, sample, row) for part, share in parts)
        found[row] = 1.0
        return found
    if isinstance(rule, History | MeanMap):
        weigh = weights_by_match if rule.by == "match" else mean_weights
        found = weigh(batch, rule, sample, row, alike)
        return found / found.sum() if found.sum() > 0 else torch.eye(len(found))[row]
    chosen = keys(batch, causal, rule, sample, row) or [row]
    found[chosen] = 1.0 / len(chosen)
    return found


def mean_weights(batch, rule, sample, row, alike) -> torch.Tensor:
    """Mean weight of every key that a rule reads, over the other samples, or those with the same symbol there."""
    found = torch.zeros(batch.inputs.shape[2])
    for key in range(len(found)):
        if isinstance(rule, MeanMap) or has(batch, rule.keys, sample, key):
            same = [
                pattern[row, key]
                for other, pattern in alike.items()
                if rule.by == "position" or batch.inputs[0, other, key] == batch.inputs[0, sample, key]
            ]
            found[key] = sum(same) / len(same)
    return found


def weights_by_match(batch, rule, sample, row, alike) -> torch.Tensor:
    """Weight of every key that a rule reads: a score for its place and whether it holds the row's symbol.

    Of the samples whose row has the same symbol, least squares over scores and one constant for each sample.
    """
    tokens = batch.inputs[0]
    like = [other for other in alike if tokens[other, row] == tokens[sample, row]]
    seen = [key for key in range(tokens.shape[1]) if any(alike[other][row, key] > 0 for other in like)]

    def column(other, key):
        return 2 * seen.index(key) + int(tokens[other, key] == tokens[other, row])

    design, logs = np.zeros((len(like) * len(seen), 2 * len(seen) + len(like))), []
    for number, other in enumerate(like):
        for key in seen:
            design[len(logs), [column(other, key), 2 * len(seen) + number]] = 1.0
            logs.append(np.log(max(float(alike[other][row, key]), 1e-30)))
    scores = np.linalg.lstsq(design, np.array(logs), rcond=None)[0]
    found = torch.zeros(tokens.shape[1])
    for key in seen:
        if isinstance(rule, MeanMap) or has(batch, rule.keys, sample, key):
            found[key] = float(np.exp(scores[column(sample, key)]))
    return found


def reads(model, batch, roles, rules, mode: str):
    """What a row attends to: a function of sample, layer, head, row and the head's own pattern on the stream there.

    Args:
        model: a plain module.
        batch: of one member.
        roles: row roles, by number.
        rules: (layer, head, role) → rule.
        mode: "rules" or "recomputed".
    """
    every = range(batch.inputs.shape[1])
    clean = [attention(model, batch, sample) for sample in every]

    def row_of(sample, layer, head, row, own):
        (role,) = [number for number, names in enumerate(roles) if has(batch, names, sample, row)]
        rule = rules[layer, head, role]
        if mode == "recomputed" and not reads_nothing(rule):
            return own[row]
        if isinstance(rule, Learned):
            return clean[sample][layer][head, row]
        alike = {other: clean[other][layer][head] for other in every if has(batch, roles[role], other, row)}
        return weights(batch, model.config.causal, rule, sample, row, alike)

    return row_of


def predictions(model, batch, roles, rules, mode: str) -> torch.Tensor:
    """Predictions at the readout positions `[batch, readout, output]`; arguments as of `reads`."""
    row_of = reads(model, batch, roles, rules, mode)
    return torch.stack(
        [
            forward(model, inputs, partial(row_of, sample))[list(model.config.readout_positions)]
            for sample, inputs in enumerate(batch.inputs[0])
        ]
    )


def attention(model, batch, sample) -> list[torch.Tensor]:
    """The unedited model's patterns on one sample, `[head, query, key]` for each layer."""
    layers = []
    through(
        model, embedded(model, batch.inputs[0, sample]), usual(lambda layer, head, row, own: own[row]), layers
    )
    return [layer.own for layer in layers]


def forward(model, inputs, row_of) -> torch.Tensor:
    """Predictions for one sample; `row_of` says what each row of each head attends to."""
    return through(model, embedded(model, inputs), usual(row_of))


def usual(row_of):
    """What a row of a head brings home from the values of its own stream."""
    return lambda layer, head, row, inside: row_of(layer, head, row, inside.own[head]) @ inside.value[head]


class Inside(NamedTuple):
    """What the heads of one layer compute of one sample's stream: `[head, position, head_dim]`, and their patterns."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    own: torch.Tensor


def embedded(model, inputs) -> torch.Tensor:
    """The stream of one sample before the first layer."""
    with torch.no_grad():
        symbol, position = model.embed(inputs[None])
        return (symbol + position)[0]


def through(model, stream, output_of, layers=None) -> torch.Tensor:
    """Predictions for one sample, from its stream before the first layer.

    Args:
        model: a plain module.
        stream: `[position, model]`.
        output_of: what a row of a head brings home: a function of layer, head, row and the layer's `Inside`.
        layers: a list to which every layer's `Inside` is added.
    """
    with torch.no_grad():
        x = stream[None]
        for layer, block in enumerate(model.layers):
            pre = model.config.norm == "pre"
            read = block.attention_norm(x) if pre else x
            maps = block.attention.query, block.attention.key, block.attention.value
            inside = Inside(
                *(block.attention.split(each(read))[0] for each in maps), block.attention.pattern(read)[0]
            )
            if layers is not None:
                layers.append(inside)
            heads = [
                torch.stack([output_of(layer, head, row, inside) for row in range(len(stream))])
                for head in range(model.config.heads)
            ]
            x = x + block.attention.output(torch.cat(heads, -1))[None]
            x = x if pre else block.attention_norm(x)
            if model.config.mlp_size:
                x = x + block.mlp(block.mlp_norm(x) if pre else x)
                x = x if pre else block.mlp_norm(x)
        return model.readout(model.final_norm(x))[0]
