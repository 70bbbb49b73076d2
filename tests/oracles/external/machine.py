"""A transformer as plain numpy matrices: named features, heads that compare and copy them, and a slow forward pass.

A model is written down in *features*: the symbol of a token, its position as one of P indicators, a constant, and slots
that heads write to.  `Machine.weights` then hides them: the stream is a random orthogonal mixture of the features, and
every head has a random rotation of its own.  With a layer norm the mixture has mean zero, and the constant is so large
that all tokens are about equally long.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

FAR = 300.0
"""Score that a key loses where a row must not see it."""

CONSTANT = 200.0
"""Value of the constant feature where there is a layer norm."""


@dataclass(frozen=True)
class Head:
    """One head.

    Attributes:
        reads: for each row that reads, the keys that it may read; all other rows read themselves.
        compares: (feature of the row, feature of the key, weight): a product that is added to the score.
        copies: (feature that is read, feature that is written, gain).
        bias: (row, key) → score, beside what is said by `reads`.
        uniform: rows that do not read anything look at all they can see.
    """

    reads: Mapping[int, Sequence[int]] = field(default_factory=dict)
    compares: tuple[tuple[str, str, float], ...] = ()
    copies: tuple[tuple[str, str, float], ...] = ()
    bias: Mapping[tuple[int, int], float] = field(default_factory=dict)
    uniform: bool = False


IDLE = Head(uniform=True)
"""Looks at everything alike and writes nothing."""


@dataclass(frozen=True)
class Unit:
    """One hidden unit: the ReLU of a weighted sum of (feature, component) and a bias, written to others."""

    reads: tuple[tuple[str, int, float], ...]
    bias: float
    writes: tuple[tuple[str, int, float], ...]


class Machine:
    """A model under construction.

    Attributes:
        sizes: components of each feature.
        layers: heads of each layer.
        units: hidden units of each layer.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        layers: Sequence[Sequence[Head]],
        *,
        causal: bool,
        norm: str = "none",
        seed: int = 0,
        units: Mapping[int, Sequence[Unit]] | None = None,
        typical: float | None = None,
    ):
        """Start.

        Args:
            sizes, layers, units: see above; layers have equally many heads.
            causal: whether a row sees no key behind it.
            norm: `"pre"`, `"post"` or `"none"`.
            seed: of the mixtures.
            typical: squared length of a symbol; by default the number of its components.
        """
        self.sizes = dict(sizes)
        self.starts = dict(zip(self.sizes, np.cumsum([0, *self.sizes.values()]).tolist(), strict=False))
        self.features = sum(self.sizes.values())
        self.positions = self.sizes["position"]
        self.layers, self.causal, self.norm = layers, causal, norm
        self.units = {layer: list(units.get(layer, ())) for layer in range(len(layers))} if units else {}
        self.hidden = max((len(each) for each in self.units.values()), default=0)
        self.random = np.random.default_rng(seed)
        self.constant = 1.0 if norm == "none" else CONSTANT
        self.width = self.features + (norm != "none")
        self.basis = self._basis()
        # Of a stream: the constant, position, and about three symbols.
        self.typical = float(self.sizes["symbol"]) if typical is None else typical
        self.length = math.sqrt(self.constant**2 + 1.0 + 3.0 * self.typical)
        self.rms = self.length / math.sqrt(self.width)
        self.head_size = max(self._score_size(head) for heads in layers for head in heads)

    def _basis(self) -> np.ndarray:
        """`[feature, width]` with orthonormal rows, which have mean zero where there is a layer norm."""
        start = self.random.normal(size=(self.width, self.width))
        if self.norm != "none":
            start[:, 0] = 1.0
        q, _ = np.linalg.qr(start)
        return q.T[self.width - self.features :]

    def _score_size(self, head: Head) -> int:
        compared = sum(self.sizes[mine] for mine, _, _ in head.compares)
        copied = sum(self.sizes[theirs] for theirs, _, _ in head.copies)
        return max(compared + self.positions, copied)

    def span(self, name: str) -> slice:
        """Where a feature is among all."""
        return slice(self.starts[name], self.starts[name] + self.sizes[name])

    # Weights.

    def reader(self, parts: Sequence[tuple[str, float]], size: int) -> np.ndarray:
        """`[feature, size]`: features side by side, each times a factor."""
        found = np.zeros((self.features, size))
        column = 0
        for name, factor in parts:
            width = self.sizes[name]
            found[self.span(name), column : column + width] = factor * np.eye(width)
            column += width
        return found

    def _allowed(self, head: Head) -> np.ndarray:
        """Score of each key position for each row position."""
        scores = np.full((self.positions, self.positions), -FAR)
        for row in range(self.positions):
            if row in head.reads:
                scores[row, list(head.reads[row])] = 0.0
            elif head.uniform:
                scores[row] = 0.0
            else:
                scores[row, row] = 0.0
        for place, score in head.bias.items():
            scores[place] = score
        return scores

    def _head(self, head: Head) -> tuple[np.ndarray, ...]:
        """Query, key, value `[feature, head_size]` and output `[head_size, feature]`."""
        size, root = self.head_size, math.sqrt(self.head_size)
        query = self.reader([(mine, weight) for mine, _, weight in head.compares], size)
        key = self.reader([(theirs, 1.0) for _, theirs, _ in head.compares], size)
        first = sum(self.sizes[mine] for mine, _, _ in head.compares)
        here, columns = self.span("position"), slice(first, first + self.positions)
        query[here, columns] += self._allowed(head)
        key[here, columns] += np.eye(self.positions)
        value = self.reader([(theirs, gain) for theirs, _, gain in head.copies], size)
        output = self.reader([(mine, 1.0) for _, mine, _ in head.copies], size).T
        turn, other = (np.linalg.qr(self.random.normal(size=(size, size)))[0] for _ in range(2))
        return query @ turn * root, key @ turn, value @ other, other.T @ output

    def read(self, matrix: np.ndarray) -> np.ndarray:
        """A map from features as one from the stream, after a layer norm if there is one before it."""
        return self.basis.T @ matrix * (self.rms if self.norm == "pre" else 1.0)

    def weights(self, embedding: Mapping[str, np.ndarray], readout: np.ndarray) -> dict[str, np.ndarray]:
        """Every weight by name; maps are `[in, out]`.

        Args:
            embedding: maps to features, by the weight's name.
            readout: `[feature, output]`.
        """
        found = {name: matrix @ self.basis for name, matrix in embedding.items()}
        for layer, heads in enumerate(self.layers):
            parts = list(zip(*(self._head(head) for head in heads), strict=True))
            name = f"layers.{layer}.attention"
            for part, matrices in zip(("query", "key", "value"), parts, strict=False):
                found[f"{name}.{part}.weight"] = self.read(np.concatenate(matrices, 1))
                found[f"{name}.{part}.bias"] = np.zeros(len(heads) * self.head_size)
            found[f"{name}.output.weight"] = np.concatenate(parts[3]) @ self.basis
            found[f"{name}.output.bias"] = np.zeros(self.width)
            if self.hidden:
                found |= self._mlp(layer)
            found |= self._norms(layer)
        if self.norm == "pre":
            found |= {"final_norm.weight": np.ones(self.width), "final_norm.bias": np.zeros(self.width)}
        found["readout.weight"] = self.read(readout)
        found["readout.bias"] = np.zeros(readout.shape[1])
        return found

    def _norms(self, layer: int) -> dict[str, np.ndarray]:
        if self.norm == "none":
            return {}
        names = ["attention_norm", *(["mlp_norm"] if self.hidden else [])]
        size = self.rms if self.norm == "post" else 1.0
        weights = {f"layers.{layer}.{name}.weight": np.full(self.width, size) for name in names}
        return weights | {f"layers.{layer}.{name}.bias": np.zeros(self.width) for name in names}

    def _mlp(self, layer: int) -> dict[str, np.ndarray]:
        inner, outer = np.zeros((self.features, self.hidden)), np.zeros((self.hidden, self.features))
        bias = np.zeros(self.hidden)
        for number, unit in enumerate(self.units[layer]):
            bias[number] = unit.bias
            for name, component, weight in unit.reads:
                inner[self.starts[name] + component, number] += weight
            for name, component, weight in unit.writes:
                outer[number, self.starts[name] + component] += weight
        name = f"layers.{layer}.mlp"
        return {
            f"{name}.inner.weight": self.read(inner),
            f"{name}.inner.bias": bias,
            f"{name}.outer.weight": outer @ self.basis,
            f"{name}.outer.bias": np.zeros(self.width),
        }

    @property
    def shape(self) -> dict[str, object]:
        """What the weights are of, but for inputs and outputs."""
        return {
            "layers": len(self.layers),
            "heads": len(self.layers[0]),
            "width": self.width,
            "head_dim": self.head_size,
            "mlp_ratio": self.hidden / self.width,
            "activation": "relu",
            "norm": self.norm,
            "causal": self.causal,
            "length": self.positions,
        }


# The forward pass, slow and obvious.


def normed(stream: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Layer norm over the last axis."""
    centred = stream - stream.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def affine(inputs: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A matrix product and a bias."""
    return inputs @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def forward(
    shape: Mapping[str, object],
    weights: Mapping[str, np.ndarray],
    stream: np.ndarray,
    blind: Sequence[tuple[int, int, Sequence[int]]] = (),
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Predictions `[position, output]` and patterns `[head, row, key]` of each layer, of one sample's embedded stream.

    Rows that are `blind`, told by layer, head and positions, look at all they can see.
    """
    norm, patterns = shape["norm"], []
    size = int(str(shape["head_dim"]))
    for layer in range(int(str(shape["layers"]))):
        name = f"layers.{layer}"
        inside = normed(stream, weights, f"{name}.attention_norm") if norm == "pre" else stream
        query, key, value = (
            affine(inside, weights, f"{name}.attention.{part}") for part in ("query", "key", "value")
        )
        heads, maps = [], []
        for head in range(int(str(shape["heads"]))):
            here = slice(head * size, (head + 1) * size)
            scores = query[:, here] @ key[:, here].T / math.sqrt(size)
            for _, _, rows in (each for each in blind if each[:2] == (layer, head)):
                scores[list(rows)] = 0.0
            if shape["causal"]:
                scores = np.where(np.tri(len(stream), dtype=bool), scores, -np.inf)
            weight = np.exp(scores - scores.max(-1, keepdims=True))
            maps.append(weight / weight.sum(-1, keepdims=True))
            heads.append(maps[-1] @ value[:, here])
        patterns.append(np.stack(maps))
        stream = stream + affine(np.concatenate(heads, -1), weights, f"{name}.attention.output")
        if norm == "post":
            stream = normed(stream, weights, f"{name}.attention_norm")
        if f"{name}.mlp.inner.weight" in weights:
            inside = normed(stream, weights, f"{name}.mlp_norm") if norm == "pre" else stream
            hidden = np.maximum(affine(inside, weights, f"{name}.mlp.inner"), 0.0)
            stream = stream + affine(hidden, weights, f"{name}.mlp.outer")
            if norm == "post":
                stream = normed(stream, weights, f"{name}.mlp_norm")
    if norm == "pre":
        stream = normed(stream, weights, "final_norm")
    return affine(stream, weights, "readout"), patterns


def to_itself(rows: Iterable[int], offset: int) -> dict[int, list[int]]:
    """Every row with the one key that is so far from it."""
    return {row: [row + offset] for row in rows}


def among(rows: Iterable[int], keys: Iterable[int]) -> dict[int, list[int]]:
    """Every row with all these keys."""
    seen = list(keys)
    return dict.fromkeys(rows, seen)
