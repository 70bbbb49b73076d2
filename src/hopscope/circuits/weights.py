"""Weights set by hand: small functions that write heads and hidden units, and a compiler of designs for retrieval.

**Slots.** A token keeps what it has read in slots of the residual stream, each of which holds a symbol or a position
code: at first its own symbol (slot 0) and its own code (slot -1).  Slots are numbered along the chain: slot 1 is the
code of the other token with that symbol, slot -2 the symbol of the other token of the pair, and so on: even slots hold
symbols, odd ones codes.  A head compares one slot of the reading row with one slot of every key, and adds slots of the
keys that it attends to, weighted, to slots of the row.

**Which key fits.** A dot product does not find the equal symbol (docs/witnesses.md), so every slot holds a vector *and*
minus half its square.  The MLP of the first layer makes the squares: gelu(z) + gelu(-z) = √(2/π) z² + O(z⁴).  The first
layer itself has only its layer norm, which divides by the stream's length; over a stream (x, c, C), where C is constant
and |c|² too, that makes (x, R) with R² = C² + |c|² a key of unit length.  C is large, so that later norms hardly change
values; where the first layer compares symbols it must be moderate, as they differ by a share |u - v|²/2R² of the score
only.  Every feature is written twice, with opposite signs: the mean is zero.

**Who else fits.** The row itself holds the piece that it looks for; so heads avoid keys with the row's own code or
symbol.  First tokens and queries, which have no pair mate to read under the causal mask, read themselves; the MLP of
that layer notices it, and later heads avoid them.  The differences that decide are small: products must be float32.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Retrieval, Task
from hopscope.tasks.vectors import position_codes

SYMBOL, CODE, MATE = 0, -1, -2
UNREAD = 200  # slots from this number on are read by nobody
_CONSTANT = {True: 64.0, False: 12.0}  # C in the first layer, by mask; without a mask it compares symbols
_RAISED = 2.0**14  # C after the first attention
_MARGIN = 24.0  # between the scores of keys that only codes tell apart: more than float32 rounds off
_SYMBOL_MARGIN = 400.0  # the same where the row's own symbol is avoided
_FARTHEST = 50.0  # half a squared distance that symbols of up to 8 dimensions do not exceed in practice
_SMALL = 1.0 / 64.0  # scale at which gelu is used as a square
_STEEP, _EQUAL = 8.0, 0.02  # scale at which it is a hinge; difference up to which components count as equal
_LEAST_GAP = 0.004  # between a position code's product with itself and with others, that float32 still sees

Score = tuple[Float[Tensor, "feature compared"], Float[Tensor, "feature compared"]]
Move = tuple[Float[Tensor, "feature moved"], Float[Tensor, "feature moved"]]
Heads = Mapping[tuple[int, int], tuple[Score, Move]]
"""By layer and number: maps of features to a query and a key, and to what is read of a key and where it is written."""
Units = tuple[Float[Tensor, "feature unit"], float, Float[Tensor, "feature written"]]
"""Hidden units of an MLP: what each reads, their bias, and what each writes (one column: all the same)."""


def features(sizes: Mapping[Any, int]) -> dict[Any, Float[Tensor, "feature column"]]:
    """The parts of a stream by name, as linear maps that read them; a transposed one writes its part."""
    return dict(zip(sizes, torch.eye(sum(sizes.values())).split(list(sizes.values()), 1), strict=True))


def writing(part: Float[Tensor, "*row feature"]) -> Float[Tensor, "*row width"]:
    """Features as they are written into the stream: twice, with opposite signs."""
    return torch.cat((part, -part), -1)


def reading(part: Float[Tensor, "feature column"], scale: float = 1.0) -> Float[Tensor, "width column"]:
    """A map of features that reads a stream which a norm has divided by `scale`."""
    return torch.cat((part, -part)) * (scale / 2.0)


def put(model: Transformer, name: str, block: Tensor, row: int = 0, column: int = 0) -> None:
    """Put a block into a weight matrix."""
    weight = model.get_parameter(f"{name}.weight").data
    weight[row : row + block.shape[0], column : column + block.shape[1]] = block


def assembled(
    declared: Model, task: Task, heads: Heads, units: list[list[Units]], scales: Sequence[float] = (1.0, 1.0)
) -> Transformer:
    """A single model of given heads, and hidden units of every layer; embedding and readout are left to write.

    Norms divide the stream by the first of `scales` before the first attention, and by the second later.
    """
    size = max(maps[0].shape[1] for pair in heads.values() for maps in pair)
    most = max(sum(reads.shape[1] for reads, _, _ in each) for each in units)
    sizes = {"head_dim": size, "mlp_ratio": most / declared.width}
    model = Transformer(declared.model_copy(update=sizes).for_task(task.shape())).knowing(task)
    for name, weight in model.weights().items():
        weight.fill_(float(name.endswith("norm.weight")))
    for (layer, number), ((query, key), (value, output)) in heads.items():
        name, start, scale = f"layers.{layer}.attention", number * size, scales[min(layer, 1)]
        for part, maps in (("query", query * math.sqrt(size)), ("key", key), ("value", value)):
            put(model, f"{name}.{part}", reading(maps, scale), column=start)
        put(model, f"{name}.output", writing(output.T), row=start)
    for layer, each in enumerate(units):
        start, name = 0, f"layers.{layer}.mlp"
        for reads, bias, writes in each:
            count = reads.shape[1]
            put(model, f"{name}.inner", reading(reads, scales[1]), column=start)
            model.get_parameter(f"{name}.inner.bias").data[start : start + count] = bias
            put(model, f"{name}.outer", writing(writes.T.expand(count, -1)), row=start)
            start += count
    return model


class Copy(NamedTuple):
    """A slot of the row to which a slot of the key is added, times a weight; its half square is right at 1 only."""

    mine: int
    theirs: int
    weight: float = 1.0


class Head(NamedTuple):
    """What one head does.

    Attributes:
        compares, copies: slots of the row and of the key that must agree (none: uniform attention); what is written.
        avoid: what keys have that fit but are not meant: the row's own symbol or code (the row itself), or no pair
            mate.  `"other symbol"` leaves the row itself alone; `"other kind"` is `"unpaired"` for rows that have a
            pair mate, and the opposite for those without.
        reads: of rows on which an answer depends, what they read of their own chain (`None`: not always the same), in
            words such as `query` and `second 2`.  Of decoys: by what rule they read.
    """

    compares: tuple[int, ...] = ()
    copies: tuple[Copy, ...] = ()
    avoid: Literal["own symbol", "own code", "unpaired", "other symbol", "other kind"] | None = None
    shift: int = 0  # a row with the code of place p looks for that of p + shift, in pairs and then queries
    sharpness: float = 2e5  # score for each unit of half a squared distance between symbols
    unpaired: float = 60.0  # score that an avoided key without pair mate loses by dimension of its symbol
    reads: Mapping[str, str | None] = {}
    route: int | None = None  # of which one may be missing; `None`: the answer needs the head


class Design(NamedTuple):
    """Heads of every layer (those too few are idle), and slots of a query that answer: for each step that is asked for,
    slots and weights whose sum is its symbol (by default slot 2k for step k)."""

    task: Retrieval
    layers: Sequence[Sequence[Head]]
    causal: bool = True
    answers: Sequence[tuple[tuple[int, float], ...]] = ()

    @property
    def heads(self) -> list[tuple[int, int, Head]]:
        """Layer and number of those that write."""
        every = ((layer, n, head) for layer, row in enumerate(self.layers) for n, head in enumerate(row))
        return [each for each in every if each[2].copies]


def build(design: Design) -> Transformer:
    """The transformer that does what a design says: pre-norm, GELU, codes carried by the inputs.

    `UserError`: the task is no chain, or its position codes are not by pair, or too many to be told apart.
    """
    task = design.task
    if task.position != "pair" or task.nodes:
        got = "a graph of nodes" if task.nodes else f"position={task.position!r}"
        raise UserError(f"task: expected a chain of steps with position='pair', found {got}; change the task")
    return _Compiler(design).model()


class _Compiler:
    def __init__(self, design: Design):
        self.design, task, self.dim = design, design.task, design.task.symbol_dim
        self.written = {(layer, copy.mine) for layer, _, head in design.heads for copy in head.copies}
        self.slots = sorted({CODE, SYMBOL} | {slot for _, slot in self.written})
        parts = [part for slot in self.slots for part in ((slot, self.dim), (("square", slot), 1))]
        self.at = features({"constant": 1, "unpaired": 1} | dict(parts))
        self.constant, self.unpaired = self.at["constant"], self.at["unpaired"]
        self.first = _CONSTANT[design.causal]
        self.length = math.sqrt(self.first**2 + self.dim / 2)
        base = task.frequency_base if task.frequencies == "geometric" else None
        self.codes = position_codes(task.chains * (task.steps + 1), self.dim, base)
        alike = (self.codes.double() @ self.codes.double().T).fill_diagonal_(-torch.inf).max()
        self.gap = self.dim / 2 - float(alike)
        if self.gap < _LEAST_GAP:
            hint = "take fewer chains or steps, a larger symbol_dim, or other frequencies"
            wanted = f"to differ by {_LEAST_GAP} or more"
            raise UserError(f"position codes: expected {wanted}, found {self.gap:.2g}; {hint}")

    def model(self) -> Transformer:
        at, task, layers, constant = self.at, self.design.task, self.design.layers, self.constant[:, 0]
        whole = {slot: torch.cat((at[slot], at["square", slot]), 1) for slot in self.slots}
        heads = {}
        for layer, number, head in self.design.heads:
            value = torch.cat([copy.weight * whole[copy.theirs] for copy in head.copies], 1)
            output = torch.cat([whole[copy.mine] for copy in head.copies], 1)
            heads[layer, number] = self._score(layer, head), (value, output)
        count = max(map(len, layers))
        shape = Model(layers=len(layers), heads=count, width=2 * len(constant), causal=self.design.causal)
        scales = [size / math.sqrt(len(constant)) for size in (self.length, _RAISED)]
        model = assembled(shape, task, heads, [self._units(layer) for layer in range(len(layers))], scales)
        put(model, "embed.vector", writing(torch.cat((at[SYMBOL], at[CODE]), 1).T))
        model.weights()["embed.vector.bias"].copy_(writing(self.first * constant))
        model.weights()["layers.0.attention.output.bias"].copy_(writing((_RAISED - self.first) * constant))
        answers = self.design.answers or [((2 * step, 1.0),) for step in task.asked.values()]
        symbols = [torch.stack([weight * at[slot] for slot, weight in each]).sum(0) for each in answers]
        put(model, "readout", reading(torch.cat(symbols, 1), scales[1]))
        return model

    def _score(self, layer: int, head: Head) -> Score:
        # The comparison of the head and what it avoids, with weights that keep the two apart.
        if not head.compares:
            return self.constant[:, :0], self.constant[:, :0]
        mine, theirs = head.compares
        apart, by_mate = _MARGIN / self.gap, head.avoid in ("unpaired", "other kind")
        # What a key can lose by what is avoided must not outweigh another code.
        lost = {"own symbol": _SYMBOL_MARGIN * _FARTHEST, "own code": apart * self.dim}
        most = head.unpaired * self.dim if by_mate else lost.get(head.avoid or "", 0.0)
        weight = (most + _MARGIN) / self.gap if mine % 2 else head.sharpness
        terms = self._alike(layer, mine, theirs, weight, head.shift)
        if by_mate:
            terms.append((-head.unpaired / _RAISED * self.constant, self.unpaired))
            if head.avoid == "other kind":  # a row without pair mate has a mark of `dim`
                terms.append((2.0 * head.unpaired / self.dim * self.unpaired, self.unpaired))
        elif head.avoid is not None:
            slot, size = (CODE, apart) if head.avoid == "own code" else (SYMBOL, _SYMBOL_MARGIN)
            terms += self._alike(layer, slot, slot, size if head.avoid == "other symbol" else -size)
        return torch.cat([query for query, _ in terms], 1), torch.cat([key for _, key in terms], 1)

    def _alike(self, layer: int, mine: int, theirs: int, weight: float, shift: int = 0) -> list[Score]:
        # A score that is largest, over all keys, where both slots hold the same (or theirs the shifted code).
        at = self.at
        vectors = (weight * (at[mine] @ self._rotation(shift) if shift else at[mine]), at[theirs])
        if layer > 0:
            one = self.constant / _RAISED
            return [vectors, (weight * at["square", mine], one), (weight * one, at["square", theirs])]
        one = self.constant / self.first
        # Codes all have the same length; (symbol, R) has it after the layer norm.
        rest = self.length**2 if mine == SYMBOL else -self.dim / 2
        return [vectors, (weight * rest * one, one)]

    def _rotation(self, shift: int) -> Tensor:
        # Turns the code of place p, as a row, into that of place p + shift.
        cos, sin = (part.diag() for part in self.codes[abs(shift)].chunk(2))
        sin = sin if shift > 0 else -sin
        return torch.cat((torch.cat((cos, sin), 1), torch.cat((-sin, cos), 1)))

    def _units(self, layer: int) -> list[Units]:
        at, found = self.at, list[Units]()
        if layer == 0:  # half squares of all that is there after the first attention, and of use
            height = -0.5 / (_SMALL**2 * math.sqrt(2.0 / math.pi))
            copied = {slot for number, slot in self.written if number == 0 and slot < UNREAD}
            for slot in sorted({SYMBOL, CODE} | copied):
                for scale in (_SMALL, -_SMALL):
                    found.append((scale * at[slot], 0.0, height * at["square", slot]))
        asked = any(head.avoid in ("unpaired", "other kind") for _, _, head in self.design.heads)
        if asked and (layer, MATE) in self.written:
            # Whether the symbol that was read is the own one, for each dimension: a hat of three hinges.
            difference = _STEEP / _EQUAL * (at[MATE] - at[SYMBOL])
            for bias, height in ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0)):
                found.append((difference, _STEEP * bias, height / _STEEP * self.unpaired))
        return found
