"""Transformers with hand-built weights: a design says which head compares and copies what, here it becomes weights.

**Slots.** A token keeps what it has read in slots of the residual stream, each of which holds a symbol or a position
code.  It begins with two, its own symbol and its own code.  A head compares one slot of the reading row with one
slot of every key, and adds slots of the keys that it attends to, weighted, to slots of the row.

**Which key fits.** The dot product of Gaussian symbols is no comparison: u·v is larger for a long v than for v = u.
Among the symbols of all pairs it picks a wrong one 15 % of the time for D = 1 and 59 % for D = 8 (N = K = 4), and
that at any temperature.  What is largest for v = u is -|u - v|²/2 = u·v - |u|²/2 - |v|²/2.  So every slot of the
stream holds a vector *and* minus half its square, and a head's queries and keys are (u, -|u|²/2, 1) and (v, 1,
-|v|²/2).

**Where squares come from.** The MLP of the first layer: gelu(z) + gelu(-z) = √(2/π) z² + O(z⁴).  The first layer
itself has only its layer norm, which divides by the stream's length; over a stream (x, c, C), where C is constant
and |c|² too, that makes (x, R) with R² = C² + |c|² a key of unit length, and (u, R)·(v, R)/|(v, R)| is again
largest for v = u.

**Values** shall pass through layer norms unchanged, so the stream's length must hardly depend on the symbols: C is
large.  Where the first layer compares symbols it must be moderate, because there they differ by a share |u -
v|²/2R² of the score only; after the first attention it is raised.  (Values read before lose a share |v|²/2R²: that
is the error of about 0.0005 of the witnesses without a mask.) Every feature is written twice, with opposite signs,
so that the mean is zero.

**Who else fits.** The row itself holds the piece that it looks for; so heads avoid keys with the row's own code (or
its own symbol, where that of the other token of its pair is looked for).  First tokens and queries have no pair
mate to read under the causal mask, they read themselves; the MLP of that layer notices it, and later heads avoid
them.

The differences that decide are small shares of scores: such models need float32 products, not TF32 or bfloat16.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.tasks.vectors import position_codes
from hopscope.theory.information_flow import Mask

OWN_SYMBOL, OWN_CODE, MATE = 0, -1, -2
"""Slots: those that every position begins with, and the one for the symbol of the pair mate."""

_CONSTANT: dict[Mask, float] = {"causal": 64.0, "none": 12.0}
"""C in the first layer, by mask; without a mask, symbols are compared there."""

_RAISED = 2.0**14
"""C after the first attention."""

SHARPNESS = 2e5
"""Score for each unit of half a squared distance between symbols.  Float32 rounds such scores by a few units in the
first layer, where R² is a part of them, and by less than one later."""

_MARGIN = 24.0
"""Least difference of scores between the wanted key and one that only codes tell apart: more than the rounding."""

_SYMBOL_MARGIN = 400.0
"""The same where the row's own symbol is avoided, so that it reads its pair mate."""

_FARTHEST = 50.0
"""Half a squared distance that symbols of up to 8 dimensions do not exceed in practice (a chi-square of 100)."""

UNPAIRED = 60.0
"""Score that a token without pair mate loses for each dimension of its symbol."""

_SMALL = 1.0 / 64.0
"""Scale at which gelu is used as a square."""

_STEEP, _EQUAL = 8.0, 0.02
"""Scale at which gelu is used as a hinge, and the difference up to which two components are taken to be equal."""

_LEAST_GAP = 0.004
"""Difference between position codes (1 - cosine, summed over frequencies) that float32 still tells apart."""


class Copy(NamedTuple):
    """A slot of the row to which a slot of the key is added, times a weight.

    Minus half a square is copied like the rest of a slot.  It is that of the vector only where the row's slot was empty
    and the weight is 1; elsewhere nobody should compare it.
    """

    mine: int
    theirs: int
    weight: float = 1.0


Avoid = Literal["own symbol", "own code", "unpaired", "other symbol", "other kind"]
"""What marks keys that agree with the row as well as the wanted one but are not meant: they have the row's own symbol
or own code (it is the row itself), or have found no pair mate.  `"other symbol"` leaves the row itself alone; `"other
kind"` is `"unpaired"` for rows that have a pair mate, and the opposite for those without."""

_BY_MATE = ("unpaired", "other kind")


@dataclass(frozen=True)
class HeadDesign:
    """One head.

    Attributes:
        compares: slots of the row and of the key that must agree: two symbols (even numbers) or two codes (odd ones);
            `None` where all keys score alike, so that attention is uniform over the visible ones.
        copies: what is written.
        avoid: what decides between keys that agree.
        shift: a row that holds the code of place p looks for that of place p + shift, counted in pairs and then queries
            (harmonic codes are cyclic).
        sharpness: score for each unit of half a squared distance between symbols.
        unpaired: score that keys without pair mate lose for each dimension of a symbol, where they are avoided.
    """

    compares: tuple[int, int] | None
    copies: tuple[Copy, ...]
    avoid: Avoid | None = None
    shift: int = 0
    sharpness: float = SHARPNESS
    unpaired: float = UNPAIRED


Answer = tuple[tuple[int, float], ...]
"""Slots of a query and their weights, whose sum is a symbol that it is asked for."""


@dataclass(frozen=True)
class Design:
    """A whole model.

    Attributes:
        mask: what a position sees.
        layers: heads of each layer, equally many; `None` for one that does nothing (it attends uniformly and writes
            zero).
        answers: for every step that is asked for, in order.
    """

    mask: Mask
    layers: tuple[tuple[HeadDesign | None, ...], ...]
    answers: tuple[Answer, ...]

    @property
    def slots(self) -> tuple[int, ...]:
        """All slots that are in use, ascending."""
        written = {copy.mine for _, head in self.heads for copy in head.copies}
        return tuple(sorted({OWN_CODE, OWN_SYMBOL} | written))

    @property
    def read_slots(self) -> set[int]:
        """Slots of which something depends: a comparison, a copy or an answer."""
        compared = {slot for _, head in self.heads for slot in head.compares or ()}
        copied = {copy.theirs for _, head in self.heads for copy in head.copies}
        return compared | copied | {slot for answer in self.answers for slot, _ in answer}

    @property
    def heads(self) -> list[tuple[int, HeadDesign]]:
        """The heads that do something, each with its layer."""
        return [
            (layer, head) for layer, heads in enumerate(self.layers) for head in heads if head is not None
        ]

    @property
    def mate_layer(self) -> int | None:
        """Layer in which the symbol of the pair mate is read, if any head must know who has none."""
        if all(head.avoid not in _BY_MATE for _, head in self.heads):
            return None
        (layer,) = {layer for layer, head in self.heads if any(copy.mine == MATE for copy in head.copies)}
        return layer


def build(task: RetrievalConfig, design: Design) -> Transformer:
    """The transformer of one member that does what a design says.

    Args:
        task: what the inputs are; position codes by pair.
        design: the heads.

    Returns:
        An ordinary transformer: pre-norm, GELU, codes carried by the inputs.

    Raises:
        ValueError: the position codes are too many to be told apart.
    """
    return _Compiler(RetrievalTask(task), design).model


@dataclass(frozen=True)
class _Features:
    """The places of things in the stream, seen as features of which each is written twice.

    The first is the constant, the second says how unpaired a token is; then a vector and a half square for each slot.
    """

    slots: tuple[int, ...]
    dim: int

    @property
    def count(self) -> int:
        return 2 + len(self.slots) * (self.dim + 1)

    @property
    def constant(self) -> Tensor:
        return self._columns(0, 1)

    @property
    def unpaired(self) -> Tensor:
        return self._columns(1, 1)

    def vector(self, slot: int) -> Tensor:
        return self._columns(self._start(slot), self.dim)

    def half_square(self, slot: int) -> Tensor:
        return self._columns(self._start(slot) + self.dim, 1)

    def whole(self, slot: int) -> Tensor:
        return self._columns(self._start(slot), self.dim + 1)

    def _start(self, slot: int) -> int:
        return 2 + self.slots.index(slot) * (self.dim + 1)

    def _columns(self, start: int, size: int) -> Float[Tensor, "feature column"]:
        """The linear map that reads these features; its transpose writes them."""
        return torch.eye(self.count)[:, start : start + size]


@dataclass(frozen=True)
class _Units:
    """Hidden units of the MLP, one for each dimension of a symbol: what they read, and what all of them write to."""

    reads: Float[Tensor, "feature dim"]
    bias: float
    writes: Float[Tensor, "feature 1"]


_Term = tuple[Tensor, Tensor]
"""Maps from features to a part of the queries and of the keys, which are multiplied."""


class _Compiler:
    """Turns a design into weights.

    Attributes:
        model: the result.
    """

    def __init__(self, task: RetrievalTask, design: Design):
        self.dim, self.design, self.task = task.config.symbol_dim, design, task
        self.at = _Features(design.slots, self.dim)
        self.first = _CONSTANT[design.mask]
        self.length = math.sqrt(self.first**2 + self.dim / 2)
        self.gap = _code_gap(task.config)
        terms = [[self._terms(layer, head) for head in heads] for layer, heads in enumerate(design.layers)]
        units = [self._units(layer) for layer in range(len(design.layers))]
        shape = self._shape(terms, max(sum(unit.reads.shape[1] for unit in each) for each in units))
        self.model = Transformer(shape, Parameters(parameter_specs(shape), 1))
        self._fill(terms)
        for layer, each in enumerate(units):
            self._mlp(layer, each)

    def _shape(self, terms: list[list[list[_Term]]], hidden: int) -> TransformerConfig:
        compared = (sum(query.shape[1] for query, _ in head) for heads in terms for head in heads)
        copied = (len(head.copies) * (self.dim + 1) for _, head in self.design.heads)
        width = 2 * self.at.count
        return TransformerConfig(
            layers=len(self.design.layers),
            heads=len(self.design.layers[0]),
            width=width,
            head_dim=max(*compared, *copied),
            mlp_ratio=hidden / width,
            norm="pre",
            causal=self.design.mask == "causal",
            positions="carried",
            position_size=self.dim,
            length=self.task.positions,
            input_kind="vectors",
            input_size=self.task.input_size,
            output_size=self.task.output_size,
            readout=self.task.readout,
        )

    # Layers.

    def _fill(self, terms: list[list[list[_Term]]]) -> None:
        for name, weight in self.model.weights.items():
            if name.endswith("norm.weight"):
                weight.fill_(1.0)
        at, weights = self.at, self.model.weights
        embedded = torch.cat((at.vector(OWN_SYMBOL), at.vector(OWN_CODE)), 1)
        self._set("embed.vector", _written(embedded.T))
        weights["embed.vector.bias"][0] = _written(self.first * at.constant[:, 0])
        for layer, heads in enumerate(self.design.layers):
            for number, head in enumerate(heads):
                if head is not None:
                    self._attention(layer, number, head, terms[layer][number])
        raised = (_RAISED - self.first) * at.constant[:, 0]
        weights["layers.0.attention.output.bias"][0] = _written(raised)
        answers = [
            torch.stack([weight * at.vector(slot) for slot, weight in answer]).sum(0)
            for answer in self.design.answers
        ]
        self._set("readout", self._read(torch.cat(answers, 1), _RAISED))

    def _attention(self, layer: int, number: int, head: HeadDesign, terms: list[_Term]) -> None:
        name, size = f"layers.{layer}.attention", self.model.config.head_size
        norm = self.length if layer == 0 else _RAISED
        column = number * size
        if terms:
            query, key = (torch.cat(part, 1) for part in zip(*terms, strict=True))
            self._set(f"{name}.query", self._read(query * math.sqrt(size), norm), column=column)
            self._set(f"{name}.key", self._read(key, norm), column=column)
        value = torch.cat([copy.weight * self.at.whole(copy.theirs) for copy in head.copies], 1)
        output = torch.cat([self.at.whole(copy.mine) for copy in head.copies], 1)
        self._set(f"{name}.value", self._read(value, norm), column=column)
        self._set(f"{name}.output", _written(output.T), row=column)

    # Scores.

    def _terms(self, layer: int, head: HeadDesign | None) -> list[_Term]:
        """The comparisons of the head and those that it avoids, with weights that keep the two apart."""
        if head is None or head.compares is None:
            return []
        of_codes = head.compares[0] % 2 == 1
        wanted = self._code_weight(head) if of_codes else head.sharpness
        return self._likeness(layer, *head.compares, wanted, head.shift) + self._avoided(layer, head)

    def _avoided(self, layer: int, head: HeadDesign) -> list[_Term]:
        if head.avoid == "own symbol":
            return self._likeness(layer, OWN_SYMBOL, OWN_SYMBOL, -_SYMBOL_MARGIN)
        if head.avoid == "other symbol":
            return self._likeness(layer, OWN_SYMBOL, OWN_SYMBOL, _SYMBOL_MARGIN)
        if head.avoid == "own code":
            return self._likeness(layer, OWN_CODE, OWN_CODE, -self._apart)
        return self._by_mate(head)

    @property
    def _apart(self) -> float:
        """Weight at which different codes are told apart."""
        return _MARGIN / self.gap

    def _code_weight(self, head: HeadDesign) -> float:
        """Weight at which the most that a key loses by what is avoided does not outweigh another code."""
        if head.avoid == "own symbol":
            return (_SYMBOL_MARGIN * _FARTHEST + _MARGIN) / self.gap
        if head.avoid == "own code":
            return (self._apart * self.dim + _MARGIN) / self.gap
        if head.avoid in _BY_MATE:
            return (head.unpaired * self.dim + _MARGIN) / self.gap
        return self._apart

    def _by_mate(self, head: HeadDesign) -> list[_Term]:
        if head.avoid not in _BY_MATE:
            return []
        terms = [(-head.unpaired / _RAISED * self.at.constant, self.at.unpaired)]
        if head.avoid == "other kind":
            # A row without pair mate has a mark of `dim`.
            terms.append((2.0 * head.unpaired / self.dim * self.at.unpaired, self.at.unpaired))
        return terms

    def _likeness(self, layer: int, mine: int, theirs: int, weight: float, shift: int = 0) -> list[_Term]:
        """A score that is largest, over all keys, where both slots hold the same (or theirs the shifted code)."""
        at = self.at
        vector = at.vector(mine) @ _shifted(self.task.config, shift) if shift else at.vector(mine)
        vectors = (weight * vector, at.vector(theirs))
        if layer > 0:
            one = at.constant / _RAISED
            return [
                vectors,
                (weight * at.half_square(mine), one),
                (weight * one, at.half_square(theirs)),
            ]
        one = at.constant / self.first
        # Codes all have the same length; (symbol, R) has it after the layer norm.
        rest = self.length**2 if mine == OWN_SYMBOL else -self.dim / 2
        return [vectors, (weight * rest * one, one)]

    # MLPs.

    def _units(self, layer: int) -> list[_Units]:
        squares = self._squares() if layer == 0 else []
        return squares + (self._mates_missing() if layer == self.design.mate_layer else [])

    def _squares(self) -> list[_Units]:
        """Half squares of all that is there after the first attention, and of use."""
        at = self.at
        copied = {copy.mine for layer, head in self.design.heads if layer == 0 for copy in head.copies}
        scale = -0.5 / (_SMALL**2 * math.sqrt(2.0 / math.pi))
        return [
            _Units(sign * _SMALL * at.vector(slot), 0.0, scale * at.half_square(slot))
            for slot in sorted({OWN_SYMBOL, OWN_CODE} | (copied & self.design.read_slots))
            for sign in (1.0, -1.0)
        ]

    def _mates_missing(self) -> list[_Units]:
        """For each dimension of a symbol, whether the symbol that was read is the own one: a hat of three hinges."""
        difference = _STEEP / _EQUAL * (self.at.vector(MATE) - self.at.vector(OWN_SYMBOL))
        hinges = ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0))
        return [
            _Units(difference, _STEEP * shift, height / _STEEP * self.at.unpaired) for shift, height in hinges
        ]

    def _mlp(self, layer: int, units: list[_Units]) -> None:
        if not units:
            return
        name = f"layers.{layer}.mlp"
        self._set(f"{name}.inner", self._read(torch.cat([unit.reads for unit in units], 1), _RAISED))
        written = [unit.writes.T.expand(self.dim, -1) for unit in units]
        self._set(f"{name}.outer", _written(torch.cat(written)))
        biases = torch.cat([torch.full((self.dim,), unit.bias) for unit in units])
        self.model.weights[f"{name}.inner.bias"][0, : len(biases)] = biases

    # Writing and reading features.

    def _read(
        self, features: Float[Tensor, "feature column"], length: float
    ) -> Float[Tensor, "width column"]:
        """Read features from a stream after a layer norm, where `length` is the length of all features together."""
        return torch.cat((features, -features)) * (length / (2.0 * math.sqrt(self.at.count)))

    def _set(self, name: str, weight: Float[Tensor, "a b"], *, row: int = 0, column: int = 0) -> None:
        """Put a block into a weight matrix."""
        whole = self.model.weights[f"{name}.weight"][0]
        whole[row : row + weight.shape[0], column : column + weight.shape[1]] = weight


def _written(features: Float[Tensor, "*column feature"]) -> Float[Tensor, "*column width"]:
    """Write every feature twice, with opposite signs."""
    return torch.cat((features, -features), -1)


def _codes(task: RetrievalConfig) -> Float[Tensor, "code dim"]:
    """One for every pair and every query."""
    return position_codes(task, task.chains * (task.steps + 1))


def _shifted(task: RetrievalConfig, shift: int) -> Float[Tensor, "dim dim"]:
    """The matrix that turns the code of place p, as a row, into that of place p + shift: a rotation."""
    # Cosines and sines of the angles are the code of the place |shift|.
    cos, sin = (part.diag() for part in _codes(task)[abs(shift)].chunk(2))
    sin = sin if shift > 0 else -sin
    return torch.cat((torch.cat((cos, sin), 1), torch.cat((-sin, cos), 1)))


def _code_gap(task: RetrievalConfig) -> float:
    """Least difference between the dot product of a position code with itself and with another one."""
    codes = _codes(task).double()
    alike = (codes @ codes.T).fill_diagonal_(-torch.inf).max()
    gap = task.symbol_dim / 2 - float(alike)
    if gap < _LEAST_GAP:
        raise ValueError(
            f"position codes: expected to differ by {_LEAST_GAP} or more, found {gap:.2g}; "
            f"take fewer chains or steps, a larger symbol_dim, or other frequencies"
        )
    return gap
