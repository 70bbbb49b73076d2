"""In-context Markov chains: samples, and the predictors that count, against loops."""

import math
from collections import Counter

import pytest
import torch

import hopscope as hs
from hopscope.studies.markov.task import MarkovChains
from hopscope.tasks.draws import Draws

STATES, LENGTH = 5, 11


def drawn(samples=7, **fields):
    task = MarkovChains(**{"states": STATES, "length": LENGTH, **fields})
    return task, task.sample(Draws.of(torch.tensor([3, 13]), "train", 2, samples))


@pytest.mark.parametrize("fields", [{}, {"states": 2, "length": 2}, {"states": 7, "length": 5}])
def test_it_keeps_the_contract(fields):
    hs.testing.check_task(MarkovChains(**fields))


def test_the_next_state_is_asked_for():
    _, batch = drawn()
    assert torch.equal(batch.inputs[..., 1:], batch.targets[..., :-1])
    assert batch.relations["previous"][0, 0].tolist() == [-1, *range(LENGTH - 1)]


def test_walks_follow_their_matrix():
    """Long walks of few states: how often each pair comes is what the matrix says."""
    task = MarkovChains(states=3, length=20_000)
    draws = Draws.of(torch.tensor([3]), "train", 2, 2)
    batch = task.sample(draws)
    weights = -torch.log1p(-Draws.of(torch.tensor([3]), "train", 2, 2).uniform("matrix", (3, 3)))
    matrix = weights / weights.sum(-1, keepdim=True)
    for sample in range(2):
        pairs = Counter(zip(batch.inputs[0, sample].tolist(), batch.targets[0, sample].tolist(), strict=True))
        for state in range(3):
            total = sum(pairs[state, other] for other in range(3))
            for other in range(3):
                expected = float(matrix[0, sample, state, other])
                assert pairs[state, other] / total == pytest.approx(expected, abs=5 / math.sqrt(total))


def test_matrices_are_uniform_over_distributions():
    """The mean of a probability is 1/S, and its variance that of Dirichlet's distribution with parameters 1."""
    weights = -torch.log1p(-Draws.of(torch.tensor([3]), "train", 2, 20_000).uniform("matrix", (3, 3)))
    first = (weights / weights.sum(-1, keepdim=True))[0, :, 0, 0]
    assert float(first.mean()) == pytest.approx(1 / 3, abs=0.01)
    assert float(first.var()) == pytest.approx(2 / (9 * 4), abs=0.003)


def test_predictors_are_those_of_a_loop():
    task, batch = drawn()
    found = task.predictors(batch.inputs)
    for member in range(2):
        for sample in range(7):
            states = batch.inputs[member, sample].tolist()
            for place, state in enumerate(states):
                seen = Counter(states[: place + 1])
                followed = Counter(states[i + 1] for i in range(place) if states[i] == state)
                for name, counts in (("uniform", Counter()), ("unigram", seen), ("bigram", followed)):
                    total = sum(counts.values()) + STATES
                    expected = [(counts[other] + 1) / total for other in range(STATES)]
                    assert found[name][member, sample, place].tolist() == pytest.approx(expected)


def test_distances_are_zero_from_oneself_and_the_best_has_no_excess():
    task, batch = drawn(31)
    given = task.predictors(batch.inputs)
    for name, probabilities in given.items():
        parts = task.parts(probabilities.log(), batch)
        assert float(parts[f"from_{name}"].abs().max()) < 1e-6
        for other in set(given) - {name}:
            divergence = (given[other] * (given[other] / probabilities).log()).sum(-1).mean((1, 2))
            torch.testing.assert_close(parts[f"from_{other}"], divergence)
    best = task.parts(given["bigram"].log(), batch)
    assert float(best["excess"].abs().max()) < 1e-6
    cross_entropy = -given["bigram"].gather(-1, batch.targets[..., None]).log().mean((1, 2, 3))
    torch.testing.assert_close(best["loss"], cross_entropy)


def test_no_predictor_is_better_than_counting_pairs():
    task, batch = drawn(5_000, states=3, length=29)
    given = task.predictors(batch.inputs)
    losses = {name: task.parts(each.log(), batch)["loss"].mean() for name, each in given.items()}
    assert losses["bigram"] < losses["unigram"] - 0.01 < losses["uniform"] - 0.02
