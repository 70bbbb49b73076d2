"""Random numbers, theory and crossings are those of the package before, to the bit."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from hopscope import rng as old_rng
from hopscope.claims import crossings as old_crossings
from hopscope.theory import information_flow as old_flow
from hopscope.theory import posteriors as old_posteriors
from hopscope.theory.sequences import read_sequence as old_read
from hopscope_next import rng, theory
from hopscope_next.claims import crossings


@pytest.mark.parametrize("stream", [*old_rng.STREAMS, 12345])
def test_random_numbers(stream):
    seeds, steps = torch.tensor([0, 1, 7, 2**62 + 3])[:, None, None], torch.tensor([0, 3, 2**31])[:, None]
    index, found = torch.tensor([0, 1, 5, 2**32 - 1, 77]), {}
    for each in (old_rng, rng):
        words = torch.stack([each.bits(seeds, stream, steps, index, block) for block in (0, 3)])
        high, low = words[..., 0], words[..., 1]
        drawn = [each.integers(high, low, n) for n in (1, 97, 2**31 - 1, torch.tensor(1009))]
        ranks = [each.permutation_index(high, low, n) for n in (1, 5, 12)]
        orders = [each.permutation_from_index(rank, n) for rank, n in zip(ranks, (1, 5, 12), strict=True)]
        numbers = [words, each.uniform(words), each.normal(words)]
        found[each] = [*numbers, *drawn, *ranks, *orders]
    for shape in ((), (3, 5)):
        for draw, numbers in ((old_rng.normal_tensor, rng.normal), (old_rng.uniform_tensor, rng.uniform)):
            found[old_rng].append(draw(seeds.flatten(), stream, 3, shape))
            found[rng].append(rng.tensor(numbers, seeds.flatten(), stream, 3, shape))
    assert rng.STREAMS == old_rng.STREAMS
    assert all(torch.equal(one, other) for one, other in zip(found[old_rng], found[rng], strict=True))


@pytest.mark.parametrize("mask", ["causal", "none"])
def test_information_flow(mask):
    orders = [order for steps in range(1, 6) for order in itertools.permutations(range(1, steps + 1))]
    named = [(steps, name) for steps in (7, 12, 31, 64) for name in ("deepest-first", "shallowest-first")]
    for steps, order in [*((len(order), order) for order in orders), *named]:
        for name in ("held_pieces", "two_target_plan", "exact_layers", "layers_per_step"):
            assert getattr(theory, name)(steps, mask, order) == getattr(old_flow, name)(steps, mask, order)
        assert theory.pair_order(steps, order) == old_flow.pair_order(steps, order)
    for name in ("theorem_bound", "bound_layers", "exact_layers_single_target"):
        assert all(getattr(theory, name)(steps) == getattr(old_flow, name)(steps) for steps in range(1, 1025))


def test_posteriors():
    for values in range(2, 13):
        assert theory.elimination_floor(values) == old_posteriors.elimination_floor(values)
        assert theory.training_floor(values, 2) == old_posteriors.training_floor(values, 2)
        for name in ("blind_to_repeats_floor", "unbound_repeats_floor"):
            for ratio in (0.0, 0.3, 1.0):
                expected = pytest.approx(getattr(old_posteriors, name)(values, ratio), rel=1e-15)
                assert getattr(theory, name)(values, ratio) == expected
    for mapping in itertools.permutations((1, 2, 3)):
        for xs in itertools.product((1, 2, 3), repeat=3):
            tokens = [token for x in xs for token in (x, mapping[x - 1])]
            for given in (tokens, tokens[:-1]):
                questions, found = theory.read_sequence(given, 3)
                old = old_read(given, 3)
                assert found == old.mapping
                one, other = ([*map(dataclasses.asdict, each)] for each in (questions, old.questions))
                assert one == other


def test_crossings():
    draw = np.random.default_rng(0)
    times, curves = [0.0, 3.0, 7.0, 11.0, 18.0], draw.normal(size=(200, 5)).tolist()
    seen = {old_crossings: [], crossings: []}
    for each, found in seen.items():
        for values, rising in itertools.product(curves, (True, False)):
            found += [
                call(times, values, 0.1, rising=rising) for call in (each.first_crossing, each.last_crossing)
            ]
        rises = [dataclasses.astuple(each.rise(times, values, start=-0.5, end=1.0)) for values in curves]
        pairs = [str(each.order(one, other)) for one, other in itertools.product(found[:60], repeat=2)]
        whole = [
            each.median(found[:31]),
            *map(dataclasses.astuple, (each.earliest(found), each.latest(found[:3]))),
        ]
        seen[each] = [*map(dataclasses.astuple, found), *rises, *pairs, *whole]
    assert seen[crossings] == seen[old_crossings]
