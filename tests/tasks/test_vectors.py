import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hopscope.tasks import vectors
from hopscope.tasks.batch import Batch
from hopscope.tasks.config import VectorTaskConfig
from hopscope.tasks.draws import pooled
from hopscope.tasks.vector_task import VectorTask

SEEDS = torch.tensor([19, 23])


def address(count, stream="test", step=29, seeds=SEEDS):
    return seeds[:, None], stream, step, torch.arange(count)


# Position codes.


def test_harmonic_codes_are_orthogonal_waves():
    codes = vectors.position_codes(VectorTaskConfig(symbol_dim=6), 31)
    assert codes.shape == (31, 6)
    torch.testing.assert_close(codes.T @ codes, 15.5 * torch.eye(6), rtol=0, atol=1e-5)
    # Each is a turn of the one before: how alike two are depends on their distance alone.
    alike = codes @ codes.T
    torch.testing.assert_close(alike[0], alike.roll((7, 7), (0, 1))[0], rtol=0, atol=1e-5)
    assert alike[0].argsort(descending=True)[0] == 0 and alike[0, 1:].max() < 2.9


def test_geometric_codes_by_hand():
    config = VectorTaskConfig(symbol_dim=4, frequencies="geometric", frequency_base=100.0)
    codes = vectors.position_codes(config, 5).tolist()
    for place, code in enumerate(codes):
        expected = [math.cos(place), math.cos(place / 10), math.sin(place), math.sin(place / 10)]
        assert code == pytest.approx(expected, abs=1e-6)


# Draws.


def test_symbols_are_standard_normal_and_independent():
    drawn = vectors.draw_symbols(address(2003), 3, 5).double()
    assert drawn.shape == (2, 2003, 3, 5)
    assert stats.kstest(drawn.flatten().tolist(), "norm").pvalue > 1e-3
    together = drawn.permute(1, 0, 2, 3).flatten(1)
    found = torch.corrcoef(together.T) - torch.eye(30)
    assert found.abs().max() < 4.5 / math.sqrt(2003)


@pytest.mark.parametrize(("groups", "group"), [((3, 3, 2), 0), ((3, 3, 2), 1), ((2, 3), 1), ((11, 3), 1)])
def test_every_order_is_as_likely(groups, group):
    ranks = vectors.draw_ranks(address(3001), groups).split(list(groups), -1)[group]
    orders = [tuple(row) for row in ranks.flatten(0, 1).tolist()]
    assert len(set(orders)) == math.factorial(groups[group])
    assert stats.chisquare([orders.count(order) for order in set(orders)]).pvalue > 1e-3


@pytest.mark.parametrize("size", [7, 8, 9, 13])
def test_many_things_have_every_place_as_often(size):
    ranks = vectors.draw_ranks(address(1009), (size, size))
    first, second = ranks.split(size, -1)
    assert torch.equal(first.sort(-1).values, torch.arange(size).expand_as(first))
    for thing in range(size):
        assert stats.chisquare(first[..., thing].flatten().bincount(minlength=size).tolist()).pvalue > 1e-4
    assert not torch.equal(first, second)
    table = torch.stack((first[..., 0].flatten(), second[..., 0].flatten()))
    assert abs(torch.corrcoef(table.double())[0, 1]) < 4 / math.sqrt(2018)


@pytest.mark.parametrize("size", [5, 13])
def test_equal_words_stand_in_their_own_order(size):
    words = torch.randint(3, (17, size), generator=torch.Generator().manual_seed(31))
    for row, ranks in zip(words.tolist(), vectors._ranks(words).tolist(), strict=True):
        in_order = sorted(range(size), key=lambda thing: (row[thing], thing))
        assert ranks == [in_order.index(thing) for thing in range(size)]


def test_inverse():
    places = torch.tensor([[[2, 0, 1]], [[1, 2, 0]]])
    assert vectors.inverse(places).tolist() == [[[1, 2, 0]], [[2, 0, 1]]]


def test_a_pool_is_for_training_only():
    seeds, stream, step, index = pooled(address(3001, "train"), 7)
    assert (stream, step) == ("pool", 0) and seeds.tolist() == [[19], [23]]
    assert index.shape == (2, 3001)
    for member in index:
        assert stats.chisquare(member.bincount(minlength=7).tolist()).pvalue > 1e-3
    assert not torch.equal(index[0], index[1])
    assert not torch.equal(index, pooled(address(3001, "train", step=30), 7)[3])
    for unchanged in (pooled(address(5, "train"), None), pooled(address(5, "evaluate"), 7)):
        assert unchanged[1] in ("train", "evaluate") and torch.equal(unchanged[3], torch.arange(5))


# Losses and accuracies.


def batch_of(targets, weights=None):
    members, samples, readout, _ = targets.shape
    positions = torch.zeros(members, samples, readout, dtype=torch.int64)
    if weights is not None:
        weights = (weights / weights.mean(-1, keepdim=True))[None, :, None]
    return Batch(positions[..., None].float(), targets, weights=weights)


def random(*shape, seed=37):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("weighted", [False, True])
def test_partial_losses_by_hand(weighted):
    members, samples, readout, names, dim = 2, 5, 3, ("p", "q"), 7
    targets, predictions = (
        random(members, samples, readout, 14),
        random(members, samples, readout, 14, seed=41),
    )
    chosen = torch.tensor([[1, 0], [1, 0], [0, 1], [1, 1], [1, 1]]).float()
    weights = chosen.repeat_interleave(dim, -1) if weighted else None
    losses = VectorTask.losses(SimpleNamespace(names=names), predictions, batch_of(targets, weights))
    assert set(losses) == {"loss", "loss_p", "loss_q"}
    for member in range(members):
        wrong = (predictions[member] - targets[member]).tolist()
        squared = [
            [[sum(x * x for x in row[dim * n : dim * (n + 1)]) / dim for n in range(2)] for row in sample]
            for sample in wrong
        ]
        for n, name in enumerate(names):
            mean = sum(row[n] for sample in squared for row in sample) / (samples * readout)
            assert float(losses[f"loss_{name}"][member]) == pytest.approx(mean, rel=1e-5)
        wanted = [[n for n in range(2) if not weighted or chosen[sample, n]] for sample in range(samples)]
        terms = [
            sum(row[n] for n in wanted[number]) / len(wanted[number])
            for number, sample in enumerate(squared)
            for row in sample
        ]
        assert float(losses["loss"][member]) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


@given(seed=st.integers(0, 2**32 - 1), chains=st.sampled_from([1, 2, 5]), symbols=st.sampled_from([1, 3]))
def test_the_nearest_candidate_is_found_by_comparing_all(seed, chains, symbols):
    targets, noise = (
        random(2, 3, chains, symbols * 4, seed=seed),
        random(2, 3, chains, symbols * 4, seed=seed + 1),
    )
    predictions = targets + noise
    found = vectors.nearest_candidate(predictions, targets, symbols)
    for member in range(2):
        for symbol in range(symbols):
            part = slice(4 * symbol, 4 * symbol + 4)
            right = 0
            for sample in range(3):
                distance = torch.cdist(predictions[member, sample, :, part], targets[member, sample, :, part])
                right += int((distance.argmin(-1) == torch.arange(chains)).sum())
            assert float(found[member, symbol]) == pytest.approx(right / (3 * chains))


def test_a_guess_is_right_one_time_in_n_and_the_truth_always():
    targets = random(1, 2003, 5, 6)
    assert vectors.nearest_candidate(targets, targets, 2).tolist() == [[1.0, 1.0]]
    # The targets of all members may be the same, as those of an evaluation are.
    guesses = vectors.nearest_candidate(random(2, 2003, 5, 6, seed=43), targets, 2)
    assert guesses.shape == (2, 2) and (guesses - 0.2).abs().max() < 4 * math.sqrt(0.16 / 10_015)
    same = vectors.nearest_candidate(torch.zeros_like(targets), targets, 2)
    torch.testing.assert_close(same, torch.full((1, 2), 0.2, dtype=torch.float64))
