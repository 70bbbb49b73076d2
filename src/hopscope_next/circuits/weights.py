"""Weights set by hand: small functions that write heads and hidden units, and a compiler of designs for retrieval.

**Slots.** A token keeps what it has read in slots of the residual stream, each of which holds a symbol or a position
code.  It begins with its own symbol (slot 0) and its own code (slot -1).  Slots are numbered along the chain: slot 1 is
the code of the other token with that symbol, slot -2 the symbol of the other token of the pair, and so on: even slots
hold symbols, odd ones codes.  A head compares one slot of the reading row with one slot of every key, and adds slots of
the keys that it attends to, weighted, to slots of the row.

**Which key fits.** The dot product of Gaussian symbols is no comparison: u·v is larger for a long v than for v = u.
Among the symbols of all pairs it picks a wrong one 15 % of the time for D = 1 and 59 % for D = 8 (N = K = 4), at any
temperature.  What is largest for v = u is -|u - v|²/2 = u·v - |u|²/2 - |v|²/2.  So every slot holds a vector *and*
minus half its square.  The MLP of the first layer makes the squares: gelu(z) + gelu(-z) = √(2/π) z² + O(z⁴).  The first
layer itself has only its layer norm, which divides by the stream's length; over a stream (x, c, C), where C is constant
and |c|² too, that makes (x, R) with R² = C² + |c|² a key of unit length.

**Values** shall pass through layer norms unchanged, so the stream's length must hardly depend on the symbols: C is
large.  Where the first layer compares symbols it must be moderate, as they differ by a share |u - v|²/2R² of the score
only; after the first attention it is raised.  Every feature is written twice, with opposite signs: the mean is zero.

**Who else fits.** The row itself holds the piece that it looks for; so heads avoid keys with the row's own code or
symbol.  First tokens and queries have no pair mate to read under the causal mask, they read themselves; the MLP of that
layer notices it, and later heads avoid them.

The differences that decide are small shares of scores: such models need float32 products.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope_next.errors import UserError
from hopscope_next.models.config import Model, TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Retrieval
from hopscope_next.tasks.vectors import position_codes

OWN_SYMBOL, OWN_CODE, MATE = 0, -1, -2

SHARPNESS = 2e5
"""Score for each unit of half a squared distance between symbols."""
UNPAIRED = 60.0
"""Score that a token without pair mate loses for each dimension of its symbol, where it is avoided."""
UNREAD = 200
"""Slots from this number on are read by nobody."""

_CONSTANT = {True: 64.0, False: 12.0}  # C in the first layer, by mask; without a mask it compares symbols
_RAISED = 2.0**14  # C after the first attention
_MARGIN = 24.0  # between the scores of keys that only codes tell apart: more than float32 rounds off
_SYMBOL_MARGIN = 400.0  # the same where the row's own symbol is avoided
_FARTHEST = 50.0  # half a squared distance that symbols of up to 8 dimensions do not exceed in practice
_SMALL = 1.0 / 64.0  # scale at which gelu is used as a square
_STEEP, _EQUAL = 8.0, 0.02  # scale at which it is a hinge; difference up to which components count as equal
_LEAST_GAP = 0.004  # between position codes that float32 still tells apart


class Features:
    """Named parts of a stream in which every feature is written twice, with opposite signs."""

    def __init__(self, sizes: Mapping[Any, int]):
        self.count = sum(sizes.values())
        self._parts = dict(zip(sizes, torch.eye(self.count).split(list(sizes.values()), 1), strict=True))

    def __getitem__(self, name: Any) -> Float[Tensor, "feature column"]:
        """The linear map that reads a part; its transpose writes it."""
        return self._parts[name]


def writing(features: Float[Tensor, "*row feature"]) -> Float[Tensor, "*row width"]:
    """Features as they are written into the stream."""
    return torch.cat((features, -features), -1)


def reading(features: Float[Tensor, "feature column"], scale: float = 1.0) -> Float[Tensor, "width column"]:
    """A map of features that reads a stream which a norm has divided by `scale`."""
    return torch.cat((features, -features)) * (scale / 2.0)


def put(model: Transformer, name: str, block: Tensor, row: int = 0, column: int = 0) -> None:
    """Put a block into a weight matrix."""
    model.weights()[f"{name}.weight"][row : row + block.shape[0], column : column + block.shape[1]] = block


Score = tuple[Float[Tensor, "feature part"], Float[Tensor, "feature part"]]
"""Maps of features to a query and to a key, whose product is the score."""

Move = tuple[Float[Tensor, "feature copied"], Float[Tensor, "feature copied"]]
"""What a head reads of its keys, and where it writes that."""

Units = tuple[Float[Tensor, "feature unit"], Float[Tensor, " unit"], Float[Tensor, "unit feature"]]
"""Hidden units of an MLP: what they read, their biases, and what they write."""


def put_head(
    model: Transformer, layer: int, head: int, score: Score | None, move: Move, scale: float = 1.0
) -> None:
    """Write one head; without a score it attends to all keys alike."""
    name, size = f"layers.{layer}.attention", model.config.head_size
    if score is not None:
        put(model, f"{name}.query", reading(score[0] * math.sqrt(size), scale), column=head * size)
        put(model, f"{name}.key", reading(score[1], scale), column=head * size)
    put(model, f"{name}.value", reading(move[0], scale), column=head * size)
    put(model, f"{name}.output", writing(move[1].T), row=head * size)


def put_units(model: Transformer, layer: int, units: Sequence[Units], scale: float = 1.0) -> None:
    """Write the first hidden units of an MLP."""
    if units:
        reads, biases, writes = zip(*units, strict=True)
        put(model, f"layers.{layer}.mlp.inner", reading(torch.cat(reads, 1), scale))
        put(model, f"layers.{layer}.mlp.outer", writing(torch.cat(writes)))
        bias = torch.cat(biases)
        model.weights()[f"layers.{layer}.mlp.inner.bias"][: len(bias)] = bias


def blank(config: TransformerConfig) -> Transformer:
    """A single model whose norms keep what they norm and whose other weights are zero."""
    model = Transformer(config)
    for name, weight in model.weights().items():
        weight.fill_(float(name.endswith("norm.weight")))
    return model


# Designs.


class Copy(NamedTuple):
    """A slot of the row to which a slot of the key is added, times a weight.

    Its half square comes with it, and is right only in an empty slot at a weight of 1.
    """

    mine: int
    theirs: int
    weight: float = 1.0


class Head(NamedTuple):
    """What one head does.

    Attributes:
        compares: slots of the row and of the key that must agree; `None` for uniform attention.
        copies: what is written.
        avoid: keys that fit but are not meant have the row's own symbol or code (it is the row itself), or no pair
            mate.  `"other symbol"` leaves the row itself alone; `"other kind"` is `"unpaired"` for rows that have a
            pair mate, and the opposite for those without.
        shift: a row with the code of place p looks for that of place p + shift, counted in pairs and then queries.
        sharpness, unpaired: see `SHARPNESS` and `UNPAIRED`.
    """

    compares: tuple[int, int] | None
    copies: tuple[Copy, ...]
    avoid: Literal["own symbol", "own code", "unpaired", "other symbol", "other kind"] | None = None
    shift: int = 0
    sharpness: float = SHARPNESS
    unpaired: float = UNPAIRED


Grid = Sequence[Sequence[Head | None]]
"""[layer][head]; `None`: one that does nothing."""

Answer = tuple[tuple[int, float], ...]
"""Slots of a query and their weights, whose sum is a symbol that it is asked for."""


def build(task: Retrieval, grid: Grid, answers: Sequence[Answer], *, causal: bool) -> Transformer:
    """The transformer that does what a design says: pre-norm, GELU, codes carried by the inputs.

    Raises:
        UserError: the task is no chain, or its position codes are not by pair, or too many to be told apart.
    """
    if task.position != "pair" or task.nodes:
        found = "a graph of nodes" if task.nodes else f"position={task.position!r}"
        raise UserError(
            f"task: expected a chain of steps with position='pair', found {found}; change the task"
        )
    return _Compiler(task, grid, causal).model(answers)


class _Compiler:
    def __init__(self, task: Retrieval, grid: Grid, causal: bool):
        self.task, self.grid, self.causal, self.dim = task, grid, causal, task.symbol_dim
        self.heads = [(layer, head) for layer, heads in enumerate(grid) for head in heads if head is not None]
        self.written = [(layer, copy.mine) for layer, head in self.heads for copy in head.copies]
        slots = sorted({OWN_CODE, OWN_SYMBOL} | {slot for _, slot in self.written})
        parts = [part for slot in slots for part in ((slot, self.dim), (("square", slot), 1))]
        self.at = Features({"constant": 1, "unpaired": 1} | dict(parts))
        self.constant, self.unpaired = self.at["constant"], self.at["unpaired"]
        self.first = _CONSTANT[causal]
        self.length = math.sqrt(self.first**2 + self.dim / 2)
        base = task.frequency_base if task.frequencies == "geometric" else None
        self.codes = position_codes(task.chains * (task.steps + 1), self.dim, base)
        self.gap = _gap(self.codes)

    def model(self, answers: Sequence[Answer]) -> Transformer:
        scores = [[self._score(layer, head) for head in heads] for layer, heads in enumerate(self.grid)]
        units = [self._units(layer) for layer in range(len(self.grid))]
        compared = [score[0].shape[1] for heads in scores for score in heads if score is not None]
        copied = [len(head.copies) * (self.dim + 1) for _, head in self.heads]
        at, width = self.at, 2 * self.at.count
        layers, heads, size = len(self.grid), len(self.grid[0]), max(compared + copied)
        mlp_ratio = max(sum(len(bias) for _, bias, _ in found) for found in units) / width
        declared = Model(
            layers=layers, heads=heads, width=width, head_dim=size, mlp_ratio=mlp_ratio, causal=self.causal
        )
        model = blank(declared.for_task(self.task.shape()))
        weights, constant = model.weights(), self.constant[:, 0]
        put(model, "embed.vector", writing(torch.cat((at[OWN_SYMBOL], at[OWN_CODE]), 1).T))
        weights["embed.vector.bias"].copy_(writing(self.first * constant))
        weights["layers.0.attention.output.bias"].copy_(writing((_RAISED - self.first) * constant))
        raised = _RAISED / math.sqrt(at.count)
        for layer, row in enumerate(self.grid):
            scale = raised if layer else self.length / math.sqrt(at.count)
            for number, head in enumerate(row):
                if head is not None:
                    value = torch.cat([copy.weight * self._whole(copy.theirs) for copy in head.copies], 1)
                    output = torch.cat([self._whole(copy.mine) for copy in head.copies], 1)
                    put_head(model, layer, number, scores[layer][number], (value, output), scale)
            put_units(model, layer, units[layer], raised)
        found = [torch.stack([weight * at[slot] for slot, weight in each]).sum(0) for each in answers]
        put(model, "readout", reading(torch.cat(found, 1), raised))
        return model

    def _whole(self, slot: int) -> Tensor:
        return torch.cat((self.at[slot], self.at["square", slot]), 1)

    def _score(self, layer: int, head: Head | None) -> Score | None:
        """The comparison of the head and what it avoids, with weights that keep the two apart."""
        if head is None or head.compares is None:
            return None
        apart, by_mate = _MARGIN / self.gap, head.avoid in ("unpaired", "other kind")
        # What a key can lose by what is avoided must not outweigh another code.
        lost = {"own symbol": _SYMBOL_MARGIN * _FARTHEST, "own code": apart * self.dim}
        most = head.unpaired * self.dim if by_mate else lost.get(head.avoid or "", 0.0)
        weight = (most + _MARGIN) / self.gap if head.compares[0] % 2 else head.sharpness
        terms = self._alike(layer, *head.compares, weight, head.shift)
        if by_mate:
            terms.append((-head.unpaired / _RAISED * self.constant, self.unpaired))
            if head.avoid == "other kind":  # a row without pair mate has a mark of `dim`
                terms.append((2.0 * head.unpaired / self.dim * self.unpaired, self.unpaired))
        elif head.avoid is not None:
            slot = OWN_CODE if head.avoid == "own code" else OWN_SYMBOL
            size = apart if head.avoid == "own code" else _SYMBOL_MARGIN
            terms += self._alike(layer, slot, slot, size if head.avoid == "other symbol" else -size)
        query, key = (torch.cat(part, 1) for part in zip(*terms, strict=True))
        return query, key

    def _alike(self, layer: int, mine: int, theirs: int, weight: float, shift: int = 0) -> list[Score]:
        """A score that is largest, over all keys, where both slots hold the same (or theirs the shifted code)."""
        at = self.at
        vectors = (weight * (at[mine] @ self._rotation(shift) if shift else at[mine]), at[theirs])
        if layer > 0:
            one = self.constant / _RAISED
            return [vectors, (weight * at["square", mine], one), (weight * one, at["square", theirs])]
        one = self.constant / self.first
        # Codes all have the same length; (symbol, R) has it after the layer norm.
        rest = self.length**2 if mine == OWN_SYMBOL else -self.dim / 2
        return [vectors, (weight * rest * one, one)]

    def _rotation(self, shift: int) -> Tensor:
        """Turns the code of place p, as a row, into that of place p + shift."""
        cos, sin = (part.diag() for part in self.codes[abs(shift)].chunk(2))
        sin = sin if shift > 0 else -sin
        return torch.cat((torch.cat((cos, sin), 1), torch.cat((-sin, cos), 1)))

    def _units(self, layer: int) -> list[Units]:
        at, found = self.at, []
        if layer == 0:  # half squares of all that is there after the first attention, and of use
            height = -0.5 / (_SMALL**2 * math.sqrt(2.0 / math.pi))
            copied = {slot for number, slot in self.written if number == 0 and slot < UNREAD}
            for slot in sorted({OWN_SYMBOL, OWN_CODE} | copied):
                for sign in (1.0, -1.0):
                    found.append(self._unit(sign * _SMALL * at[slot], 0.0, height * at["square", slot]))
        asked = any(head.avoid in ("unpaired", "other kind") for _, head in self.heads)
        if asked and (layer, MATE) in self.written:
            # Whether the symbol that was read is the own one, for each dimension: a hat of three hinges.
            difference = _STEEP / _EQUAL * (at[MATE] - at[OWN_SYMBOL])
            for bias, height in ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0)):
                found.append(self._unit(difference, _STEEP * bias, height / _STEEP * self.unpaired))
        return found

    def _unit(self, reads: Tensor, bias: float, writes: Tensor) -> Units:
        return reads, torch.full((self.dim,), bias), writes.T.expand(self.dim, -1)


def _gap(codes: Float[Tensor, "code dim"]) -> float:
    """Least difference between the dot product of a position code with itself and with another one."""
    alike = (codes.double() @ codes.double().T).fill_diagonal_(-torch.inf).max()
    gap = codes.shape[1] / 2 - float(alike)
    if gap < _LEAST_GAP:
        raise UserError(
            f"position codes: expected to differ by {_LEAST_GAP} or more, found {gap:.2g}; "
            "take fewer chains or steps, a larger symbol_dim, or other frequencies"
        )
    return gap
