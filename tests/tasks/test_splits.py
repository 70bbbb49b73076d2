import itertools
import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopscope.tasks import splits
from hopscope.tasks.splits import MappingSplit

HELD_OUT = {3: 1, 4: 5, 5: 24, 6: 144, 7: 1008, 8: 8064, 9: 72576, 10: 725760, 11: 7983360, 12: 95800320}
"""A fifth of V!, rounded."""


def all_of(split, part):
    return split.mapping(torch.arange(split.count(part)), part)


def as_set(mappings):
    found = {tuple(mapping) for mapping in mappings.tolist()}
    assert len(found) == len(mappings), "a mapping is listed twice"
    return found


@pytest.mark.parametrize("values", HELD_OUT)
def test_sizes_are_exact(values):
    split = MappingSplit(values, 0.2, split_seed=0)
    assert split.total == math.factorial(values)
    assert split.count("held_out") == HELD_OUT[values]
    assert split.count("train") == split.training == split.total - HELD_OUT[values]


@pytest.mark.parametrize(("share", "held_out"), [(1e-9, 1), (0.5, 3), (0.999, 5)])
def test_neither_part_is_ever_empty(share, held_out):
    assert MappingSplit(3, share, split_seed=0).count("held_out") == held_out


@pytest.fixture(params=["listed", "hashed"])
def make_split(request):
    """Makes splits in either way, whatever V: the hashed ones can so be gone through in full."""
    return partial(MappingSplit, listed_values=8 if request.param == "listed" else 2)


@pytest.mark.parametrize("values", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("seed", [0, 2, (1 << 63) - 1])
def test_the_two_parts_are_all_permutations_each_once(make_split, values, seed):
    split = make_split(values, 0.2, seed)
    train, held_out = as_set(all_of(split, "train")), as_set(all_of(split, "held_out"))
    assert not train & held_out
    assert train | held_out == set(itertools.permutations(range(1, values + 1)))


@pytest.mark.parametrize("values", [3, 5, 7])
def test_membership_agrees_with_the_lists(make_split, values):
    split = make_split(values, 0.2, 11)
    assert split.is_training(all_of(split, "train")).all()
    assert not split.is_training(all_of(split, "held_out")).any()


def test_eight_values_are_listed_in_full():
    split = MappingSplit(8, 0.2, split_seed=3)
    ranks = torch.cat(
        [splits.rng.index_from_permutation(all_of(split, part) - 1) for part in ("train", "held_out")]
    )
    assert torch.equal(ranks.sort().values, torch.arange(math.factorial(8)))


@given(st.integers(9, 12), st.integers(0, (1 << 63) - 1), st.lists(st.integers(0, (1 << 63) - 1), min_size=1))
def test_large_sets_are_permuted_and_back(values, seed, numbers):
    split = MappingSplit(values, 0.2, seed)
    index = torch.tensor(numbers) % split.total
    rank = split._forward(index)
    assert ((rank >= 0) & (rank < split.total)).all()
    assert torch.equal(split._inverse(rank), index)


@pytest.mark.parametrize("values", [9, 11, 12])
@pytest.mark.parametrize("part", ["train", "held_out"])
def test_membership_of_large_sets_at_random_and_at_both_ends(values, part):
    split = MappingSplit(values, 0.2, split_seed=7)
    count = split.count(part)
    drawn = torch.randint(count, (1009,), generator=torch.Generator().manual_seed(13))
    mappings = split.mapping(torch.cat((torch.tensor([0, count - 1]), drawn)), part)
    assert torch.equal(mappings.sort(-1).values, torch.arange(1, values + 1).expand_as(mappings))
    assert (split.is_training(mappings) == (part == "train")).all()


@pytest.mark.parametrize("values", [5, 11])
def test_another_seed_gives_another_split(values):
    index = torch.arange(24)
    first, again, second = (MappingSplit(values, 0.2, seed).mapping(index, "held_out") for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("values", [7, 11])
def test_held_out_mappings_are_spread_over_all(make_split, values):
    """A split that held out neighbours in lexicographic order would leave whole first values unseen."""
    split = make_split(values, 0.2, 17)
    generator = torch.Generator().manual_seed(19)
    index = torch.randperm(split.count("held_out"), generator=generator)[:4999]
    firsts = split.mapping(index, "held_out")[:, 0].bincount(minlength=values + 1)[1:]
    expected = len(index) / values
    # Pearson's chi-squared with V - 1 degrees of freedom: 35 is beyond the 0.9999 quantile for V = 11.
    assert ((firsts - expected) ** 2 / expected).sum() < 35


def test_mappings_take_any_shape():
    split = MappingSplit(5, 0.2, split_seed=0)
    index = torch.arange(2 * 3).reshape(2, 3)
    assert split.mapping(index, "train").shape == (2, 3, 5)
    assert split.is_training(split.mapping(index, "train")).shape == (2, 3)
