"""Tasks as a user would write them, and models of them whose weights are set by hand."""

import math

import torch

import hopscope as hs
from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.tasks.device import TaskOnDevice

SHARP = 3000.0
"""Scale of attention scores of hand-set heads: keys are rarely nearer to each other than this tells apart."""


class Lookup(hs.Task):
    """Items with a key of length one and a value each, then a query that repeats a key: answer the value beside it."""

    items: int = 5
    size: int = 3

    def shape(self):
        return hs.Shape(
            inputs="vectors",
            input_size=2 * self.size + 1,  # key, value, and whether it is the query
            positions=self.items + 1,
            readout=(self.items,),
            output_size=self.size,
        )

    def sample(self, draws):
        keys = torch.nn.functional.normalize(draws.normal("keys", (self.items, self.size)), dim=-1)
        values = draws.normal("values", (self.items, self.size))
        asked = draws.integers("asked", self.items, (1,))
        here = asked[..., None].expand(*asked.shape, self.size)
        key, value = keys.gather(2, here), values.gather(2, here)
        none = torch.zeros_like(key)
        inputs = torch.cat((torch.cat((keys, values), -1), torch.cat((key, none), -1)), 2)
        flag = draws.constant([0.0] * self.items + [1.0], (self.items + 1,))
        match = draws.constant(-1, (self.items + 1,))
        match[..., -1:] = asked
        return hs.Batch(
            inputs=torch.cat((inputs, flag[..., None]), -1),
            targets=value,
            roles={"kind": flag.long()},
            relations={"match": match},
        )

    def floors(self):
        return {"zero": 1.0, "mean of the values": 1 - 1 / self.items}

    @property
    def words(self):
        return {"roles": {"kind": ("item", "query")}}


class Pairs(hs.Task):
    """Tokens key, value, key, value … with position codes, then a query that repeats a key: answer what follows it."""

    pairs: int = 3
    size: int = 5

    @property
    def length(self):
        return 2 * self.pairs + 1

    def shape(self):
        return hs.Shape(
            inputs="vectors",
            input_size=self.size + self.length,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=self.size,
            position_size=self.length,
        )

    def sample(self, draws):
        symbols = torch.nn.functional.normalize(draws.normal("symbols", (self.length - 1, self.size)), dim=-1)
        asked = 2 * draws.integers("asked", self.pairs, (1,))
        here = asked[..., None].expand(*asked.shape, self.size)
        content = torch.cat((symbols, symbols.gather(2, here)), 2)
        codes = torch.eye(self.length, device=draws.device).expand(*draws.size, -1, -1)
        answer = draws.constant(-1, (self.length,))
        answer[..., -1:] = asked + 1
        return hs.Batch(
            inputs=torch.cat((content, codes), -1),
            targets=symbols.gather(2, here + 1),
            roles={"kind": draws.constant([0, 1] * self.pairs + [2], (self.length,))},
            relations={"answer": answer},
        )

    @property
    def words(self):
        return {"roles": {"kind": ("key", "value", "query")}}


class Sum(hs.Task):
    """The value at each of two fixed places, one part of the loss each; every third sample is of a group of its own."""

    scale: float = 1.0
    """Of the second value, and so of its part."""

    def shape(self):
        return hs.Shape(inputs="vectors", input_size=2, positions=5, readout=(4,), output_size=2)

    def sample(self, draws):
        numbers = draws.normal("numbers", (5, 2))
        numbers[..., 1] = self.scale * numbers[..., 1]
        targets = torch.stack((numbers[..., 0, 0], numbers[..., 2, 1]), -1)[..., None, :]
        third = (draws.index % 3 == 0).expand(draws.size)
        return hs.Batch(inputs=numbers, targets=targets, groups={"third": third})

    def parts(self, predictions, batch):
        first, second = (predictions - batch.targets).square().mean((1, 2)).unbind(-1)
        right = -(predictions - batch.targets).abs().mean((1, 2, 3))
        return {"loss": first + second, "first": first, "second": second, "likeness": right}


def on_device(task):
    return TaskOnDevice(task)


def model_of(task, layers, heads, head_dim, weights, *, width=None, positions="none", causal=True):
    """A model without norms and MLPs whose weights are zero but for these: name → entries {(row, column): value}."""
    shape = task.shape()
    config = TransformerConfig(
        layers=layers, heads=heads, head_dim=head_dim, width=width or 4 * shape.input_size, mlp_ratio=0.0,
        norm="none", positions=positions, position_size=shape.position_size if positions == "carried" else 0,
        length=shape.positions, input_kind=shape.inputs, input_size=shape.input_size,
        output_size=shape.output_size, readout=shape.readout, causal=causal,
    )  # fmt: skip
    parameters = Parameters(parameter_specs(config), 1)
    views = parameters.views()
    for name, entries in weights.items():
        for place, value in entries.items():
            views[name][(0, *place)] = value
    return Transformer(config, parameters)


def copied(rows, columns, value=1.0):
    """Entries of a map that copies some dimensions to others."""
    return dict.fromkeys(zip(rows, columns, strict=True), value)


def lookup_model(task, *, share=1.0):
    """Head 1 looks for the item with the query's key; head 0 reads the same and writes where nobody looks.

    Args:
        task: a `Lookup`.
        share: by which the answer is less than the value.
    """
    size, flag, free = task.size, 2 * task.size, 2 * task.size + 1
    dims = 2 * size
    key, value = range(size), range(size, 2 * size)
    sharp = math.sqrt(SHARP * math.sqrt(dims))
    of_heads = [range(head * dims, head * dims + size) for head in (0, 1)]
    looks = {k: v for head in of_heads for k, v in copied(key, head, sharp).items()}
    # A query is like its own key, too: the flag of keys keeps it from reading itself.
    keys = looks | {(flag, head[0] + size): 1.0 for head in of_heads}
    queries = looks | {(flag, head[0] + size): -SHARP for head in of_heads}
    writes = copied(of_heads[0], range(free, free + size), 0.7) | copied(
        of_heads[1], range(free + size, free + 2 * size), share
    )
    return model_of(
        task,
        1,
        2,
        dims,
        {
            "embed.vector.weight": copied(range(flag + 1), range(flag + 1)),
            "layers.0.attention.query.weight": queries,
            "layers.0.attention.key.weight": keys,
            "layers.0.attention.value.weight": {
                k: v for head in of_heads for k, v in copied(value, head).items()
            },
            "layers.0.attention.output.weight": writes,
            "readout.weight": copied(range(free + size, free + 2 * size), range(size)),
        },
    )


def pairs_model(task):
    """Layer 0: tokens read the one before, by its position code.  Layer 1: the query finds what follows its key."""
    size, length = task.size, task.length
    codes, before, found = range(size, size + length), size + length, 2 * size + length
    dims = max(size, length)
    sharp = math.sqrt(SHARP * math.sqrt(dims))
    content = range(size)
    return model_of(
        task,
        2,
        1,
        dims,
        {
            "embed.vector.weight": copied(range(size + length), range(size + length)),
            "layers.0.attention.query.weight": copied(codes[1:], range(length - 1), sharp),
            "layers.0.attention.key.weight": copied(codes, range(length), sharp),
            "layers.0.attention.value.weight": copied(content, range(size)),
            "layers.0.attention.output.weight": copied(range(size), range(before, before + size)),
            # The very first token reads itself and so looks as if it followed its own key: the query avoids it.
            "layers.1.attention.query.weight": copied(content, range(size), sharp)
            | {(codes[-1], size): sharp},
            "layers.1.attention.key.weight": copied(range(before, before + size), range(size), sharp)
            | {(codes[0], size): -sharp},
            "layers.1.attention.value.weight": copied(content, range(size)),
            "layers.1.attention.output.weight": copied(range(size), range(found, found + size)),
            "readout.weight": copied(range(found, found + size), range(size)),
        },
        positions="carried",
    )


def sum_model(task, first=1.0, second=1.0):
    """Uniform attention cannot tell the places: two heads find them by learned position codes."""
    dims, sharp = 2, math.sqrt(SHARP)
    return model_of(
        task,
        1,
        2,
        dims,
        {
            "embed.vector.weight": copied(range(2), range(2)),
            # The row that is read out, and the two places.
            "embed.position.weight": {(4, 2): 1.0, (0, 3): 1.0, (2, 4): 1.0},
            "layers.0.attention.query.weight": {(2, 0): sharp, (2, 2): sharp},
            "layers.0.attention.key.weight": {(3, 0): sharp, (4, 2): sharp},
            "layers.0.attention.value.weight": {(0, 0): 1.0, (1, 3): 1.0},
            "layers.0.attention.output.weight": {(0, 5): first, (3, 6): second},
            "readout.weight": copied((5, 6), (0, 1)),
        },
        positions="learned",
    )


class Where(hs.Task):
    """Tokens in a random order, then one of them again: at which place does it, or a later token, stand?"""

    symbols: int = 5
    later: int = 0

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=self.symbols,
            positions=self.symbols + 1,
            readout=(self.symbols,),
            output_size=self.symbols,
        )

    def sample(self, draws):
        order = draws.permutation("order", self.symbols)
        asked = draws.integers("asked", self.symbols, (1,))
        place = (order == (asked + self.later) % self.symbols).long().argmax(-1, keepdim=True)
        return hs.Batch(inputs=torch.cat((order, asked), -1), targets=place)
