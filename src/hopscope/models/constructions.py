"""Witnesses: transformers with hand-built weights that solve the retrieval problem in the fewest layers possible.

`theory.information_flow` says how many layers are necessary in a model of attention; a witness is an ordinary
`Transformer` that needs no more.  `witness_plans` says who reads whom; here a plan becomes weights.

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
mate to read under the causal mask, they read themselves; the first MLP notices that, and later heads avoid them.

The differences that decide are small shares of scores: witnesses need float32 products, not TF32 or bfloat16.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.models.witness_plans import MATE, OWN_CODE, OWN_SYMBOL, Mask, PlannedHead, WitnessPlan, plan
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.tasks.vectors import position_codes

_CONSTANT: dict[Mask, float] = {"causal": 64.0, "none": 12.0}
"""C in the first layer, by mask; without a mask, symbols are compared there."""

_RAISED = 2.0**14
"""C after the first attention."""

_SHARPNESS = 2e5
"""Score for each unit of half a squared distance between symbols.  Float32 rounds such scores by a few units in the
first layer, where R² is a part of them, and by less than one later."""

_MARGIN = 24.0
"""Least difference of scores between the wanted key and one that only codes tell apart: more than the rounding."""

_SYMBOL_MARGIN = 400.0
"""The same where the row's own symbol is avoided, so that it reads its pair mate."""

_FARTHEST = 50.0
"""Half a squared distance that symbols of up to 8 dimensions do not exceed in practice (a chi-square of 100)."""

_UNPAIRED = 60.0
"""Score that a token without pair mate loses for each dimension of its symbol."""

_SMALL = 1.0 / 64.0
"""Scale at which gelu is used as a square."""

_STEEP, _EQUAL = 8.0, 0.02
"""Scale at which gelu is used as a hinge, and the difference up to which two components are taken to be equal."""

_LEAST_GAP = 0.004
"""Difference between position codes (1 - cosine, summed over frequencies) that float32 still tells apart."""


def witness(task: RetrievalConfig, *, mask: Mask = "causal") -> Transformer:
    """A transformer of one member that solves the task: mean squared error below 0.01 for K ≥ 4, N = 4 and D ≤ 8.

    Symbols that almost coincide are confused.  That matters for many keys in few dimensions only: without a mask, the
    error is about 0.05 for K = 2, N = 5, D = 3.

    Args:
        task: any chains, steps and targets, with position codes by pair; with the causal mask, deepest first.
        mask: `"causal"`: one head a layer and 1 + ⌈log₂(D + 1)⌉ layers.  `"none"`: at most two heads, and the
            least t layers with (3^t - 1)/2 ≥ 2D.

    Returns:
        An ordinary transformer: pre-norm, GELU, codes carried by the inputs; only its first MLP does anything.

    Raises:
        ValueError: the task's position codes or order are others, or its codes too many to be told apart.
    """
    if task.position != "pair":
        raise ValueError(f"position: expected 'pair', as in the proof of Theorem 1, found {task.position!r}")
    deepest_first = task.order == "deepest-first" or task.order == tuple(range(task.steps, 0, -1))
    if mask == "causal" and not deepest_first:
        raise ValueError(f"order: expected 'deepest-first' with the causal mask, found {task.order!r}")
    return _Compiler(RetrievalTask(task), plan(task.steps, mask=mask, asked=task.asked)).model


@dataclass(frozen=True)
class _Features:
    """Where things are in the stream, seen as features of which each is written twice.

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
    """Turns a plan into weights.

    Attributes:
        model: the result.
    """

    def __init__(self, task: RetrievalTask, plan: WitnessPlan):
        self.dim, self.plan, self.task = task.config.symbol_dim, plan, task
        self.at = _Features(plan.slots, self.dim)
        self.first = _CONSTANT[plan.mask]
        self.length = math.sqrt(self.first**2 + self.dim / 2)
        self.gap = _code_gap(task.config)
        terms = [[self._terms(layer, head) for head in heads] for layer, heads in enumerate(plan.layers)]
        units = self._squares() + (self._mates_missing() if plan.mask == "causal" else [])
        shape = self._shape(terms, sum(unit.reads.shape[1] for unit in units))
        self.model = Transformer(shape, Parameters(parameter_specs(shape), 1))
        self._fill(terms)
        self._mlp(units)

    def _shape(self, terms: list[list[list[_Term]]], hidden: int) -> TransformerConfig:
        compared = (sum(query.shape[1] for query, _ in head) for heads in terms for head in heads)
        copied = (len(head.copies) * (self.dim + 1) for heads in self.plan.layers for head in heads)
        width = 2 * self.at.count
        return TransformerConfig(
            layers=len(self.plan.layers),
            heads=self.plan.heads,
            width=width,
            head_dim=max(*compared, *copied),
            mlp_ratio=hidden / width,
            norm="pre",
            causal=self.plan.mask == "causal",
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
        for layer, heads in enumerate(self.plan.layers):
            for number, head in enumerate(heads):
                self._attention(layer, number, head, terms[layer][number])
        raised = (_RAISED - self.first) * at.constant[:, 0]
        weights["layers.0.attention.output.bias"][0] = _written(raised)
        answers = torch.cat([at.vector(2 * step) for step in self.task.config.asked], 1)
        self._set("readout", self._read(answers, _RAISED))

    def _attention(self, layer: int, number: int, head: PlannedHead, terms: list[_Term]) -> None:
        name, size = f"layers.{layer}.attention", self.model.config.head_size
        norm = self.length if layer == 0 else _RAISED
        query, key = (torch.cat(part, 1) for part in zip(*terms, strict=True))
        value = torch.cat([self.at.whole(theirs) for _, theirs in head.copies], 1)
        output = torch.cat([self.at.whole(mine) for mine, _ in head.copies], 1)
        column = number * size
        self._set(f"{name}.query", self._read(query * math.sqrt(size), norm), column=column)
        self._set(f"{name}.key", self._read(key, norm), column=column)
        self._set(f"{name}.value", self._read(value, norm), column=column)
        self._set(f"{name}.output", _written(output.T), row=column)

    # Scores.

    def _terms(self, layer: int, head: PlannedHead) -> list[_Term]:
        """What the head compares, and what it avoids, with weights that keep the two apart."""
        avoid_code = _MARGIN / self.gap
        if head.avoid == "own symbol":
            wanted = (_SYMBOL_MARGIN * _FARTHEST + _MARGIN) / self.gap
            avoided = self._likeness(layer, OWN_SYMBOL, OWN_SYMBOL, -_SYMBOL_MARGIN)
        elif head.avoid == "own code":
            wanted = _SHARPNESS if head.mine % 2 == 0 else (avoid_code * self.dim + _MARGIN) / self.gap
            avoided = self._likeness(layer, OWN_CODE, OWN_CODE, -avoid_code)
        else:
            wanted = _SHARPNESS
            avoided = [(-_UNPAIRED / _RAISED * self.at.constant, self.at.unpaired)]
        return self._likeness(layer, head.mine, head.theirs, wanted) + avoided

    def _likeness(self, layer: int, mine: int, theirs: int, weight: float) -> list[_Term]:
        """A score that is largest, over all keys, where both slots hold the same."""
        at = self.at
        vectors = (weight * at.vector(mine), at.vector(theirs))
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

    # The first MLP.

    def _squares(self) -> list[_Units]:
        """Half squares of all that is there after the first attention."""
        at = self.at
        copied = {mine for head in self.plan.layers[0] for mine, _ in head.copies}
        scale = -0.5 / (_SMALL**2 * math.sqrt(2.0 / math.pi))
        return [
            _Units(sign * _SMALL * at.vector(slot), 0.0, scale * at.half_square(slot))
            for slot in sorted({OWN_SYMBOL, OWN_CODE} | copied)
            for sign in (1.0, -1.0)
        ]

    def _mates_missing(self) -> list[_Units]:
        """For each dimension of a symbol, whether the symbol that was read is the own one: a hat of three hinges."""
        difference = _STEEP / _EQUAL * (self.at.vector(MATE) - self.at.vector(OWN_SYMBOL))
        hinges = ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0))
        return [
            _Units(difference, _STEEP * shift, height / _STEEP * self.at.unpaired) for shift, height in hinges
        ]

    def _mlp(self, units: list[_Units]) -> None:
        self._set("layers.0.mlp.inner", self._read(torch.cat([unit.reads for unit in units], 1), _RAISED))
        written = [unit.writes.T.expand(self.dim, -1) for unit in units]
        self._set("layers.0.mlp.outer", _written(torch.cat(written)))
        biases = [torch.full((self.dim,), unit.bias) for unit in units]
        self.model.weights["layers.0.mlp.inner.bias"][0] = torch.cat(biases)

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


def _code_gap(task: RetrievalConfig) -> float:
    """How much less the dot product of two different position codes is than that of a code with itself."""
    # One for every pair and every query.
    codes = position_codes(task, task.chains * (task.steps + 1)).double()
    alike = (codes @ codes.T).fill_diagonal_(-torch.inf).max()
    gap = task.symbol_dim / 2 - float(alike)
    if gap < _LEAST_GAP:
        raise ValueError(
            f"position codes: expected to differ by {_LEAST_GAP} or more, found {gap:.2g}; "
            f"take fewer chains or steps, a larger symbol_dim, or other frequencies"
        )
    return gap
