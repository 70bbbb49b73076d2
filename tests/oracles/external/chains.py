"""Chains of vectors: the task written down once more, and what models of it are made of.

N chains of D + 1 Gaussian symbols.  For each step k a block of N pairs (x_{k-1}, x_k) in random order, then the queries
x_0 in random order; every query is asked for x_1 … x_D.  An input is the symbol and a code of its position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .machine import Head, Machine, Unit, among, to_itself
from .plant import Pairs, Plant, Read

SHARP, LESS_SHARP = 2.0, 1.0
"""Weight of a comparison of symbols, and that of large ones: scores differ by about so many times a symbol's size."""


@dataclass(frozen=True)
class Chains:
    """One task.

    Attributes:
        steps, chains, size: D, N and the components K of a symbol.
        order: of the blocks: `"deepest-first"`, `"shallowest-first"` or `"random"`.
    """

    steps: int
    chains: int
    size: int
    order: str = "deepest-first"

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.chains * (2 * self.steps + 1)

    @property
    def config(self) -> dict[str, object]:
        """The task as plain values."""
        return {
            "kind": "retrieval",
            "steps": self.steps,
            "chains": self.chains,
            "symbol_dim": self.size,
            "order": self.order,
        }

    @property
    def sharp(self) -> float:
        """Weight of a comparison: enough to tell symbols apart, too little to tell a small part of a mean."""
        return SHARP if self.size < 30 else LESS_SHARP

    # Positions.

    @property
    def pairs(self) -> int:
        """Number of positions before the queries."""
        return 2 * self.chains * self.steps

    @property
    def queries(self) -> list[int]:
        """Positions of the queries."""
        return list(range(self.pairs, self.length))

    def block(self, step: int) -> int:
        """Which block, counted from 0, shows a step."""
        return step - 1 if self.order == "shallowest-first" else self.steps - step

    def firsts(self, *steps: int) -> list[int]:
        """Positions of the first tokens of some steps' pairs, of all by default."""
        if not steps:
            return list(range(0, self.pairs, 2))
        starts = [2 * self.chains * self.block(step) for step in steps]
        return [start + 2 * pair for start in starts for pair in range(self.chains)]

    def seconds(self, *steps: int) -> list[int]:
        """Positions of the second tokens of some steps' pairs, of all by default."""
        return [position + 1 for position in self.firsts(*steps)]

    @property
    def codes(self) -> np.ndarray:
        """`[position, size]`: cosines and sines of K / 2 multiples of the angle of a position on a circle."""
        turns = np.arange(1, self.size // 2 + 1)
        angle = 2.0 * np.pi * np.arange(self.length)[:, None] * turns / self.length
        return np.concatenate((np.cos(angle), np.sin(angle)), -1)

    # Samples.

    def samples(self, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs `[sample, position, 2 K]` and right answers `[sample, query, D K]`."""
        random = np.random.default_rng(seed)
        inputs, answers = [], []
        for _ in range(count):
            symbols = random.normal(size=(self.chains, self.steps + 1, self.size))
            steps = list(range(1, self.steps + 1))
            if self.order == "deepest-first":
                steps = steps[::-1]
            if self.order == "random":
                random.shuffle(steps)
            shown: list[np.ndarray] = []
            for step in steps:
                for chain in random.permutation(self.chains):
                    shown += [symbols[chain, step - 1], symbols[chain, step]]
            asked = random.permutation(self.chains)
            shown += [symbols[chain, 0] for chain in asked]
            inputs.append(np.concatenate((np.stack(shown), self.codes), -1))
            answers.append(symbols[asked, 1:].reshape(self.chains, -1))
        return np.stack(inputs), np.stack(answers)

    def linked(self, inputs: np.ndarray, rows: str, keys: str) -> Pairs:
        """Positions of two places on the same chain, found by comparing symbols; places are as `second 2`, `query`."""
        found: Pairs = set()
        for query in self.queries:
            places = self._chain(inputs[:, : self.size], query)
            found.add((places[rows], places[keys]))
        return found

    def _chain(self, symbols: np.ndarray, query: int) -> dict[str, int]:
        places, here = {"query": query}, symbols[query]
        for step in range(1, self.steps + 1):
            (first,) = [place for place in self.firsts() if np.array_equal(symbols[place], here)]
            places |= {f"first {step}": first, f"second {step}": first + 1}
            here = symbols[first + 1]
        return places

    # Models.

    def plant(
        self,
        name: str,
        layers: Sequence[Sequence[Head]],
        minimal: Sequence[set[Read]],
        *,
        answers: Mapping[str, tuple[int, float]] | None = None,
        causal: bool = True,
        norm: str = "none",
        seed: int = 0,
        units: Mapping[int, Sequence[Unit]] | None = None,
        outside: Sequence[tuple[int, int]] = (),
        single: Sequence[str] = (),
        sides: Mapping[str, np.ndarray] | None = None,
        marks: Mapping[str, np.ndarray] | None = None,
    ) -> Plant:
        """The model of some heads.

        Args:
            name, minimal, outside: as of the plant.
            layers: heads of each layer, equally many.
            answers: slot → step that it answers, and the factor; by default `x1` … of each step.
            causal, norm, seed, units: as of the machine.
            single: features of one component that heads or units write.
            sides: features of one component that tokens have from the start: products with their symbols `[size]`.
            marks: likewise, values by position `[position]`.
        """
        slots = {mine for heads in layers for head in heads for _, mine, _ in head.copies}
        slots |= {name for each in (units or {}).values() for unit in each for name, _, _ in unit.writes}
        sizes = {"symbol": self.size, "position": self.length, "one": 1}
        # Sorted: weights must not depend on the order of a set.
        sizes |= {slot: 1 if slot in single else self.size for slot in sorted(slots)}
        sides, marks = sides or {}, marks or {}
        sizes |= dict.fromkeys([*sides, *marks], 1)
        machine = Machine(sizes, layers, causal=causal, norm=norm, seed=seed, units=units)
        answers = answers or {f"x{step}": (step, 1.0) for step in range(1, self.steps + 1)}
        readout = np.zeros((machine.features, self.steps * self.size))
        for slot, (step, gain) in answers.items():
            columns = slice((step - 1) * self.size, step * self.size)
            readout[machine.span(slot), columns] += gain * np.eye(self.size)
        weights = machine.weights(self._embedding(machine, sides, marks), readout)
        shape = machine.shape | {
            "positions": "carried",
            "position_size": self.size,
            "input_kind": "vectors",
            "input_size": 2 * self.size,
            "output_size": self.steps * self.size,
            "readout": tuple(self.queries),
        }

        def embed(inputs: np.ndarray) -> np.ndarray:
            return inputs @ weights["embed.vector.weight"] + weights["embed.vector.bias"]

        return Plant(
            name, self.config, shape, weights, self.samples, embed, self.linked,
            tuple(map(frozenset, minimal)), tuple(outside),
        )  # fmt: skip

    def _embedding(
        self, machine: Machine, sides: Mapping[str, np.ndarray], marks: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """A code of a position becomes an indicator of it: codes and a constant span all functions of the position."""
        known = np.concatenate((self.codes, np.ones((self.length, 1))), 1)
        indicators = np.linalg.lstsq(known, np.eye(self.length), rcond=None)[0]
        if np.abs(known @ indicators - np.eye(self.length)).max() > 1e-6:
            raise ValueError(
                f"{self.length} positions: expected at least as many components, found {self.size}"
            )
        matrix, bias = np.zeros((2 * self.size, machine.features)), np.zeros(machine.features)
        matrix[: self.size, machine.span("symbol")] = np.eye(self.size)
        for name, direction in sides.items():
            matrix[: self.size, machine.span(name)] = direction[:, None]
        told = {"position": np.eye(self.length)} | {name: mark[:, None] for name, mark in marks.items()}
        for name, values in told.items():
            matrix[self.size :, machine.span(name)] = indicators[:-1] @ values
            bias[machine.span(name)] = indicators[-1] @ values
        bias[machine.span("one")] = machine.constant
        return {"embed.vector.weight": matrix, "embed.vector.bias": bias}

    # Heads.

    def mates(self, *steps: int, slot: str = "mate", feature: str = "symbol", gain: float = 1.0) -> Head:
        """Second tokens read the token before them."""
        return Head(to_itself(self.seconds(*steps), -1), copies=((feature, slot, gain),))

    def forward_mates(self, *steps: int, slot: str = "mate") -> Head:
        """First tokens read the token behind them."""
        return Head(to_itself(self.firsts(*steps), 1), copies=(("symbol", slot, 1.0),))

    def asks(self, mine: str, theirs: str, keys: Sequence[int], *copies: tuple[str, str, float]) -> Head:
        """Queries read the key in whose slot is what they hold themselves."""
        return self.matches(self.queries, mine, theirs, keys, *copies)

    def matches(
        self,
        rows: Sequence[int],
        mine: str,
        theirs: str,
        keys: Sequence[int],
        *copies: tuple[str, str, float],
    ) -> Head:
        """Some rows read the key in whose slot is what they hold themselves."""
        return Head(among(rows, keys), ((mine, theirs, self.sharp),), copies)


def step_units(feature: str, direction: np.ndarray, flag: str, steep: float = 1000.0) -> list[Unit]:
    """A flag that is 1 where a vector is on one side of a plane and 0 on the other."""
    reads = tuple((feature, number, steep * float(part)) for number, part in enumerate(direction))
    return [Unit(reads, 0.5, ((flag, 0, 1.0),)), Unit(reads, -0.5, ((flag, 0, -1.0),))]


def gate_units(
    size: int,
    source: str,
    target: str,
    gates: Sequence[tuple[str, int, float]],
    *,
    shift: float = 0.0,
    closed: float = 8.0,
    gain: float = 1.0,
) -> list[Unit]:
    """Hand a vector on where `shift` and the gates' weighted sum are 0 together, and write 0 where they are -1 or less.

    Args:
        size: of the vector.
        source, target: features that are read and written.
        gates: (feature, component, weight).
        shift: see above.
        closed: what a closed gate takes off; more than any component.
        gain: factor of what is handed on.
    """
    wide = tuple((name, number, closed * weight) for name, number, weight in gates)
    return [
        Unit(((source, number, sign), *wide), closed * shift, ((target, number, sign * gain),))
        for number in range(size)
        for sign in (1.0, -1.0)
    ]
