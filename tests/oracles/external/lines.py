"""Plants that answer questions in equations: lines `name = symbol`, then a question about a name.

A name of the first round stands for a value, one of the second for a name of the first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .machine import IDLE, Head, Machine, among, to_itself
from .plant import Pairs, Plant, Read

SURE, MATCH = 9.0, 7.0
"""Logit of the answer, and score of equal tokens: enough, but too little to make do with a small part of a mean."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BEFORE = ["What", "is", "the", "value", "of"]
_BEHIND = [
    *["?", "Say", "directly", "only", "the", "numeric", "value", ","],
    *["without", "any", "other", "words", "."],
]
_WORDS = list(dict.fromkeys([*_BEFORE, *_BEHIND]))


@dataclass(frozen=True)
class Questions:
    """One task: N chains, and D rounds of lines."""

    chains: int
    rounds: int

    @property
    def vocabulary(self) -> list[str]:
        """Tokens in the order of their numbers."""
        values = [str(value) for value in range(self.chains)]
        return ["<pad>", "<end>", *values, "=", *_LETTERS[: self.chains * self.rounds], *_WORDS]

    @property
    def lines(self) -> int:
        """Number of tokens of all lines."""
        return 3 * self.chains * self.rounds

    @property
    def query(self) -> int:
        """Position of the name that is asked about."""
        return self.lines + len(_BEFORE)

    @property
    def end(self) -> int:
        """Position at which the answer is wanted."""
        return self.query + len(_BEHIND)

    def found(self, *rounds: int) -> list[int]:
        """Positions of the right sides of some rounds' lines, of all by default."""
        every = rounds or tuple(range(1, self.rounds + 1))
        return [3 * (self.chains * (each - 1) + line) + 2 for each in every for line in range(self.chains)]

    def samples(self, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[sample, position]`, the answer at the end of them, and what follows each of the last two."""
        random, numbers = np.random.default_rng(seed), {word: n for n, word in enumerate(self.vocabulary)}
        texts = []
        for _ in range(count):
            known, stands, said = [str(value) for value in range(self.chains)], {}, []
            for level in range(self.rounds):
                names = list(_LETTERS[level * self.chains : (level + 1) * self.chains])
                stands |= dict(zip(names, random.permutation(known).tolist(), strict=True))
                for name in random.permutation(names).tolist():
                    said += [name, "=", stands[name]]
                known = names
            asked = symbol = str(random.choice(known))
            while symbol in stands:
                symbol = stands[symbol]
            texts.append([numbers[word] for word in [*said, *_BEFORE, asked, *_BEHIND, symbol, "<end>"]])
        found = np.array(texts)
        return found[:, :-1], found[:, -2:]

    def linked(self, tokens: np.ndarray, rows: str, keys: str) -> Pairs:
        """Places: `given` and `found` of all lines of a round; `query`; `end`, linked to what its name stands for."""
        if (rows, keys) == ("end", "query"):
            return {(self.end, self.query)}
        if rows == "end":
            here = self._line(tokens, int(tokens[self.query]))
            while here not in self.found(int(keys.split()[1])):
                here = self._line(tokens, int(tokens[here]))
            return {(self.end, here)}
        places = self.found(int(rows.split()[1]))
        if keys.startswith("given"):
            return {(place, place - 2) for place in places}
        return {(place, self._line(tokens, int(tokens[place]))) for place in places}

    def _line(self, tokens: np.ndarray, name: int) -> int:
        """Right side of the line that tells what a name is."""
        (given,) = [place for place in range(0, self.lines, 3) if tokens[place] == name]
        return given + 2

    def plant(
        self,
        name: str,
        layers: Sequence[Sequence[Head]],
        minimal: Sequence[set[Read]],
        *,
        norm: str,
        seed: int,
    ) -> Plant:
        """The model of some heads, whose last one writes the answer."""
        size, length = len(self.vocabulary), self.end + 2
        slots = {mine for heads in layers for head in heads for _, mine, _ in head.copies}
        sizes = {"symbol": size, "position": length, "one": 1} | dict.fromkeys(sorted(slots), size)
        machine = Machine(sizes, layers, causal=True, norm=norm, seed=seed, typical=1.0)
        places = np.zeros((length, machine.features))
        places[:, machine.span("position")] = np.eye(length)
        places[:, machine.span("one")] = machine.constant
        tokens = np.zeros((size, machine.features))
        tokens[:, machine.span("symbol")] = np.eye(size)
        logits = np.zeros((machine.features, size))
        logits[machine.span("answer")] = SURE * np.eye(size)
        # Behind the answer the text ends.
        logits[machine.span("position"), 1][length - 1] = 3.0 * SURE
        weights = machine.weights({"embed.token.weight": tokens, "embed.position.weight": places}, logits)
        shape = machine.shape | {
            "positions": "learned",
            "input_kind": "tokens",
            "input_size": size,
            "output_size": size,
            "readout": (length - 2, length - 1),
        }

        def embed(inputs: np.ndarray) -> np.ndarray:
            return weights["embed.token.weight"][inputs] + weights["embed.position.weight"]

        task = {"kind": "equations", "chains": self.chains, "depths": (self.rounds,), "repeated": False}
        return Plant(
            name, task, shape, weights, self.samples, embed, self.linked, tuple(map(frozenset, minimal))
        )

    # Heads.

    def names(self) -> Head:
        """The right side of each line holds the name on its left."""
        return Head(to_itself(self.found(), -2), copies=(("symbol", "name", 1.0),))

    def asks(self) -> Head:
        """The last token reads the name that is asked about."""
        return Head({self.end: [self.query]}, copies=(("symbol", "asked", 1.0),))

    def looks_up(
        self, rows: Sequence[int], mine: str, keys: Sequence[int], *copies: tuple[str, str, float]
    ) -> Head:
        """Some rows read the line of the name that they hold."""
        return Head(among(rows, keys), ((mine, "name", MATCH),), copies)


def equations_plants() -> Iterator[Plant]:
    """All of them, always the same."""
    yield _walking(Questions(5, 1), "none")
    yield _walking(Questions(3, 2), "pre")
    yield _doubling(Questions(5, 2))


def _walking(task: Questions, norm: str) -> Plant:
    """The last token goes from line to line."""
    layers = [[task.names(), task.asks()]]
    reads: set[Read] = {(0, 1, "end", "query")}
    reads |= {(0, 0, f"found {level}", f"given {level}") for level in range(1, task.rounds + 1)}
    mine = "asked"
    for number, level in enumerate(range(task.rounds, 0, -1)):
        slot = "answer" if level == 1 else f"step {level}"
        hop = task.looks_up([task.end], mine, task.found(level), ("symbol", slot, 1.0))
        layers.append([hop, IDLE] if number % 2 else [IDLE, hop])
        reads |= {(number + 1, 1 - number % 2, "end", f"found {level}")}
        mine = slot
    name = f"equations, D = {task.rounds}, N = {task.chains}, {norm}-norm"
    return task.plant(name, layers, [reads], norm=norm, seed=127)


def _doubling(task: Questions) -> Plant:
    """Lines of round 2 look up their value while the last token finds out what it is asked."""
    lines = task.looks_up(task.found(2), "symbol", task.found(1), ("symbol", "value", 1.0))
    last = task.looks_up([task.end], "asked", task.found(2), ("value", "answer", 1.0))
    reads = {
        (0, 0, "found 1", "given 1"),
        (0, 0, "found 2", "given 2"),
        (1, 1, "end", "query"),
        (1, 0, "found 2", "found 1"),
        (2, 1, "end", "found 2"),
    }
    layers = [[task.names(), IDLE], [lines, task.asks()], [IDLE, last]]
    return task.plant(f"equations, doubling, N = {task.chains}", layers, [reads], norm="none", seed=131)
