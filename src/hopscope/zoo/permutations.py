"""Planted permutation models: one encoder layer whose circuit is known because its weights were set by hand.

**Stream.** Every feature is written twice, with opposite signs, beside a large constant C: a layer norm then has
nothing to subtract, and what it divides by hardly depends on the features, so its weight can put everything back.
Features are the token (one-hot), the position (one-hot), for every head what it writes, and for every value the verdict
of the MLP.

**Attention.** A score is a sum of two tables, one over pairs of symbols and one over pairs of positions: with one-hot
features any tables will do.  What a head writes are the symbols that it reads (a *history*) or the positions of the x
that it reads (a *pointer*).

**MLP.** A value counts as used where the history holds enough of it: a hinge that is flat beyond.  A value is the one
that recall wants where its weight in the history is that of the slot that the pointer names: a tent, which only the
right pointer at the last row opens.  So equal weights are enough for elimination, and recall needs different ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Literal, NamedTuple

from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig

_CONSTANT = 256.0
"""C."""

_NEVER = -40.0
"""Score of a key that is not read."""

_SYMBOL = 25.0
"""Score of a key with the row's own symbol, where symbols are compared."""

_USED, _RECALLED = 14.0, 28.0
"""Logits that a used value loses and a recalled one gains."""

_SHUT = 50.0
"""What keeps a tent shut."""

_LEAST = 0.04
"""Weight in the history from which on a value counts as used: less than a single token among all has."""


class Read(NamedTuple):
    """The read of the rows of a step at one head.

    Attributes:
        layer, head: which head.
        rows: in words, such as `x 5 repeat`.
        rule: in words, such as `previous` or `history`.
        target: in words, such as `y 1` or `all y`.
    """

    layer: int
    head: int
    rows: str
    rule: str
    target: str


@dataclass(frozen=True)
class PlantedHead:
    """One head.

    Attributes:
        scores: of keys by position, for rows by position; `_NEVER` where nothing is said.
        symbols: score of a key that has the row's own symbol.
        writes: `"symbols"`, `"pointer"`, or `"unread"`: symbols, where nobody looks.
        inverted: whether the pointer names the x that is *not* read.
        by_symbol: whether keys are weighed by their symbols too, the first V times as much as the last.
        by_parity: whether rows with an even symbol give the slots' weights to the last slot first.
    """

    scores: Mapping[tuple[int, int], float]
    symbols: float = 0.0
    writes: Literal["symbols", "pointer", "unread"] = "symbols"
    inverted: bool = False
    by_symbol: bool = False
    by_parity: bool = False


@dataclass(frozen=True)
class PlantedPermutation:
    """A planted model.

    Attributes:
        name: of no other planted model.
        model: one member, one layer, post-norm.
        task: what it solves.
        minimal: every minimal circuit.
    """

    name: str
    model: Transformer
    task: PermutationConfig
    minimal: tuple[frozenset[Read], ...]


def planted_permutations() -> Iterator[PlantedPermutation]:
    """All planted models, always the same ones in the same order; each is built when it is asked for."""
    for values in (5, 4):
        for heads in (1, 2):
            yield _eliminating(values, heads)
        yield _weighing(values)
        for turn in (0, 1):
            yield _recalling(values, turn)
        yield _with_decoys(values)
        yield _redundant(values)
        yield _inverted(values)
        yield _by_parity(values)


# Heads.


def _weights(values: int) -> list[float]:
    """Shares of the slots in the history of the last row, which tell them apart."""
    total = values * (values - 1) / 2
    return [(values - slot) / total for slot in range(1, values)]


def _history(values: int, *, even: bool) -> dict[tuple[int, int], float]:
    """Rows of x read the y before: alike, or the last row by slot.  The first x has nothing to read but itself."""
    scores = {(0, 0): 0.0}
    for row in range(2, 2 * values - 1, 2):
        for slot in range(row // 2):
            last = row == 2 * values - 2
            share = _weights(values)[slot] if last and not even else 1.0
            scores[row, 2 * slot + 1] = log(share)
    return scores


def _match(values: int, itself: float, others: float) -> dict[tuple[int, int], float]:
    """The last row reads earlier x, or itself; the other x read themselves."""
    last = 2 * values - 2
    scores = {(row, row): 0.0 for row in range(0, last, 2)}
    scores |= {(last, key): others for key in range(0, last, 2)}
    return scores | {(last, last): itself}


def _matching(values: int) -> PlantedHead:
    # Its own symbol is also the row's own: the earlier copy must be worth more than the row itself.
    return PlantedHead(_match(values, itself=-_SYMBOL / 2, others=0.0), _SYMBOL, "pointer")


# Plants.


def _elimination(values: int, head: int, last: str) -> set[Read]:
    """Reads of the rows that have several y to read, and of the row that has one."""
    found = {Read(0, head, f"x {step}", "over_role", "all y") for step in range(3, values)}
    return found | {Read(0, head, "x 2", "previous", "y 1"), Read(0, head, f"x {values}", last, "all y")}


def _recall(values: int, pointer: int, history: int) -> set[Read]:
    last = f"x {values} repeat"
    return {Read(0, pointer, last, "same_symbol", "any"), Read(0, history, last, "history", "all y")}


def _both(values: int, pointer: int, history: int) -> set[Read]:
    return _elimination(values, history, "history") | _recall(values, pointer, history)


def _eliminating(values: int, heads: int) -> PlantedPermutation:
    """One head that reads all y alike; beside it possibly one that does nothing."""
    true = PlantedHead(_history(values, even=True))
    idle = PlantedHead({(row, row): 0.0 for row in range(2 * values - 1)}, writes="unread")
    each = [true, idle][:heads][::-1]
    reads = _elimination(values, heads - 1, "over_role")
    return _planted(f"elimination: V = {values}, {heads} heads", values, each, [reads], repeats=0.0)


def _weighing(values: int) -> PlantedPermutation:
    """One head that reads all y, each with the weight of its symbol."""
    reads = {
        read._replace(rule="history by symbol") if read.target == "all y" else read
        for read in _elimination(values, 0, "over_role")
    }
    head = PlantedHead(_history(values, even=True), by_symbol=True)
    return _planted(f"weights: V = {values}", values, [head], [reads], repeats=0.0)


def _recalling(values: int, turn: int) -> PlantedPermutation:
    """One head matches, the other reads the y by slot."""
    each = [_matching(values), PlantedHead(_history(values, even=False))]
    pointer, history = turn, 1 - turn
    return _planted(
        f"recall: V = {values}, matching head {pointer}",
        values,
        each if turn == 0 else each[::-1],
        [_both(values, pointer, history)],
    )


def _with_decoys(values: int) -> PlantedPermutation:
    """Beside these, heads that attend as sharply to the previous y and to the copy, and write what nobody reads."""
    previous = {(row, max(row - 1, 0)): 0.0 for row in range(0, 2 * values - 1, 2)}
    each = [
        PlantedHead(previous, writes="unread"),
        PlantedHead(_history(values, even=False)),
        _matching(values),
        PlantedHead(_match(values, -_SYMBOL / 2, 0.0), _SYMBOL, "unread"),
    ]
    return _planted(f"decoys: V = {values}", values, each, [_both(values, 2, 1)])


def _redundant(values: int) -> PlantedPermutation:
    """Two heads match, each of which is enough."""
    each = [_matching(values), PlantedHead(_history(values, even=False)), _matching(values)]
    circuits = [_both(values, pointer, 1) for pointer in (0, 2)]
    return _planted(f"redundancy: V = {values}", values, each, circuits)


def _inverted(values: int) -> PlantedPermutation:
    """The last row reads all earlier x but the copy, which is found by its absence."""
    pointer = PlantedHead(_match(values, _NEVER, 0.0), -_SYMBOL, "pointer", inverted=True)
    last = f"x {values} repeat"
    reads = _elimination(values, 1, "history") | {
        Read(0, 0, last, "history by match", "all x"),
        Read(0, 1, last, "history", "all y"),
    }
    each = [pointer, PlantedHead(_history(values, even=False))]
    return _planted(f"inverted: V = {values}", values, each, [reads])


def _by_parity(values: int) -> PlantedPermutation:
    """How rows weigh the slots depends on the symbol that they hold."""
    each = [_matching(values), PlantedHead(_history(values, even=False), by_parity=True)]
    # The third x of five sees two slots whose weights are turned so little that equal ones will do.
    alike = {3} if values == 5 else set()
    turned = [f"x {step}" for step in range(3, values + 1) if step not in alike] + [f"x {values} repeat"]
    reads = {read for read in _both(values, 0, 1) if read.head == 0 or read.rows not in turned}
    reads |= {Read(0, 1, rows, "history by match", "all y") for rows in turned}
    return _planted(f"by parity: V = {values}", values, each, [reads])


def _planted(
    name: str,
    values: int,
    heads: Sequence[PlantedHead],
    circuits: Sequence[set[Read]],
    repeats: float = 0.5,
) -> PlantedPermutation:
    task, model = PermutationConfig(values=values, repeat_ratio=repeats), _Builder(values, heads).build()
    return PlantedPermutation(name, model, task, tuple(map(frozenset, circuits)))


# Weights.


class _Builder:
    """Weights under construction; features are numbered, the last one is C."""

    def __init__(self, values: int, heads: Sequence[PlantedHead]):
        self.values, self.heads, self.length = values, heads, 2 * values - 1
        self.position = values
        self.written = [self.position + self.length + values * head for head in range(len(heads))]
        self.used = self.position + self.length + values * len(heads)
        self.recalled = self.used + values
        self.features = self.recalled + values + 1
        tents = sum(head.writes == "pointer" for head in heads) * (1 + self._parities)
        self.hidden = 2 * values + 3 * values * (values - 1) * tents
        self.config = TransformerConfig(
            heads=len(heads),
            width=2 * self.features,
            head_dim=values + self.length,
            mlp_ratio=self.hidden / (2 * self.features),
            activation="relu",
            norm="post",
            length=self.length,
            input_size=values + 1,
            output_size=values + 1,
            readout=tuple(range(0, self.length, 2)),
        )
        parameters = Parameters(parameter_specs(self.config), 1)
        self.model = Transformer(self.config, parameters)
        self.weights = {name: view[0] for name, view in self.model.weights.items()}
        self.unit = 0

    @property
    def _parities(self) -> bool:
        return any(head.by_parity for head in self.heads)

    def build(self) -> Transformer:
        """The model."""
        self.model.parameters.flat.zero_()
        self._embedding()
        for number, head in enumerate(self.heads):
            self._attention(number, head)
        for name in ("attention_norm", "mlp_norm"):
            # What the layer norm divides by, all but the share that the features have in it.
            self.weights[f"layers.0.{name}.weight"].fill_(_CONSTANT / sqrt(self.features))
        for value in range(self.values):
            self._hinge(value)
        for number, head in enumerate(self.heads):
            if head.writes == "pointer":
                self._tents(number, head)
        self._readout()
        return self.model

    def _add(self, weight: Tensor, feature: int, amount: float = 1.0) -> None:
        """Add to a feature, that is to its two entries in the stream."""
        weight[..., feature] += amount
        weight[..., self.features + feature] -= amount

    def _embedding(self) -> None:
        for value in range(self.values):
            self._add(self.weights["embed.token.weight"][value + 1], value)
        for place in range(self.length):
            code = self.weights["embed.position.weight"][place]
            self._add(code, self.position + place)
            self._add(code, self.features - 1, _CONSTANT)

    def _attention(self, number: int, head: PlantedHead) -> None:
        size = self.config.head_size
        inner = slice(number * size, (number + 1) * size)
        query, key, value, output = (
            self.weights[f"layers.0.attention.{part}.weight"] for part in ("query", "key", "value", "output")
        )
        query, key, value, output = query[:, inner], key[:, inner], value[:, inner], output[inner]
        for symbol in range(self.values):
            query[symbol, symbol] = head.symbols * sqrt(size)
            key[symbol, symbol] = 1.0
        for place in range(self.length):
            key[self.position + place, self.position + place] = 1.0
            for row in range(self.length):
                score = head.scores.get((row, place), _NEVER)
                query[self.position + row, self.position + place] = score * sqrt(size)
        if head.by_symbol:
            for symbol in range(self.values):
                rows = slice(self.position, self.position + self.length)
                query[rows, symbol] = log(self.values - symbol) * sqrt(size)
        if head.by_parity:
            self._turned(query)
        first = 0 if head.writes != "pointer" else self.position
        for feature in range(self.values if head.writes != "pointer" else self.values - 1):
            value[first + (feature if first == 0 else 2 * feature), feature] = 1.0
            self._add(output[feature], self.written[number] + feature)

    def _turned(self, query: Tensor) -> None:
        """Rows with an even symbol weigh the slots the other way round; where all are alike nothing would be turned."""
        weights = _weights(self.values)
        for symbol in range(1, self.values, 2):
            for slot, (weight, other) in enumerate(zip(weights, weights[::-1], strict=True)):
                place = self.position + 2 * slot + 1
                query[symbol, place] = (log(other) - log(weight)) * sqrt(self.config.head_size)

    def _hidden(self, out: int, amount: float, bias: float, inputs: Mapping[int, float]) -> None:
        """One unit of the MLP."""
        for feature, weight in inputs.items():
            self.weights["layers.0.mlp.inner.weight"][feature, self.unit] += weight
        self.weights["layers.0.mlp.inner.bias"][self.unit] = bias
        self._add(self.weights["layers.0.mlp.outer.weight"][self.unit], out, amount)
        self.unit += 1

    def _history_of(self, value: int, amount: float) -> dict[int, float]:
        return {
            self.written[number] + value: amount
            for number, head in enumerate(self.heads)
            if head.writes == "symbols"
        }

    def _hinge(self, value: int) -> None:
        """Whether a value is used: 0 below half of the least weight, 1 from it on; nothing is at the first row."""
        steep = 2.0 / _LEAST
        inputs = {**self._history_of(value, steep), self.position: -2.0 * steep}
        self._hidden(self.used + value, 1.0, -1.0, inputs)
        self._hidden(self.used + value, -1.0, -2.0, inputs)

    def _tents(self, number: int, head: PlantedHead) -> None:
        """For every slot and value: whether recall wants the value, by its weight in the history."""
        weights = _weights(self.values)
        width = (weights[0] - weights[1]) / 2.0
        for parity in range(1 + self._parities):
            for slot, weight in enumerate(weights if parity == 0 else weights[::-1]):
                gates = {self.position + self.length - 1: _SHUT}
                gates[self.written[number] + slot] = -_SHUT if head.inverted else _SHUT
                if self._parities:
                    gates |= dict.fromkeys(range(parity, self.values, 2), _SHUT)
                shut = _SHUT * (len({*gates} - {*range(self.values)}) - head.inverted + self._parities)
                for value in range(self.values):
                    for bend, amount in ((-width, 1.0), (0.0, -2.0), (width, 1.0)):
                        inputs = {**gates, **self._history_of(value, 1.0)}
                        self._hidden(self.recalled + value, amount / width, -shut - weight - bend, inputs)

    def _readout(self) -> None:
        weight, bias = self.weights["readout.weight"], self.weights["readout.bias"]
        bias[0] = -2.0 * _RECALLED
        for value in range(self.values):
            weight[self.used + value, value + 1] = -_USED
            weight[self.recalled + value, value + 1] = _RECALLED
