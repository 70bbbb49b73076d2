"""Observers whose answers are known, as tables of probabilities and as members of an ensemble."""

import torch
from tests.oracles.posteriors import mappings_posterior, uniform_posterior

from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask


def task(**changes):
    return PermutationTask(PermutationConfig(**changes))


def rows_of(inputs, row_of):
    """Probabilities of every slot of one sequence from `row_of(xs, ys, x)`, a list for the values 1 … V."""
    xs, ys = inputs[::2], inputs[1::2]
    return [[0.0, *row_of(xs[:slot], ys[:slot], xs[slot])] for slot in range(len(xs))]


def table(batch, row_of):
    """Probabilities `[1, batch, slot, output]`."""
    return torch.tensor([rows_of(inputs, row_of) for inputs in batch.inputs[0].tolist()])[None]


def both(first, second):
    """Two members with different answers."""
    return torch.cat((first, second))


def ideal(values):
    return lambda xs, ys, x: uniform_posterior(xs, ys, x, values)


def eliminator(values):
    """Never sees that an x comes back: uniform over the values not shown yet."""

    def row(xs, ys, x):
        free = [value not in ys for value in range(1, values + 1)]
        return [is_free / sum(free) for is_free in free]

    return row


def guesser(values):
    return lambda xs, ys, x: [1.0 / values] * values


def unbound(values):
    """Sees that an x comes back, but not beside which value it stood: uniform over the values shown."""

    def row(xs, ys, x):
        fits = [(value in ys) == (x in xs) for value in range(1, values + 1)]
        return [is_fit / sum(fits) for is_fit in fits]

    return row


def trained(mappings, values):
    """Knows the mappings that it was trained on; where none of them fits, it knows permutations only."""
    known = [tuple(mapping) for mapping in mappings]

    def row(xs, ys, x):
        found = mappings_posterior(xs, ys, x, known, values)
        return uniform_posterior(xs, ys, x, values) if found is None else found

    return row


def mixture(first, second, share):
    """Leans by a share from the first observer towards the second."""

    def row(xs, ys, x):
        pairs = zip(first(xs, ys, x), second(xs, ys, x), strict=True)
        return [(1 - share) * a + share * b for a, b in pairs]

    return row


class Observers(Transformer):
    """An ensemble whose members are observers."""

    def __init__(self, *members):
        self.observers = members

    def __call__(self, inputs):
        answers = [
            [rows_of(sequence, row_of) for sequence in inputs[0].tolist()] for row_of in self.observers
        ]
        return torch.tensor(answers).log()
