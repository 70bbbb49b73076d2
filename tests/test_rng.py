import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from torch.fx.experimental.proxy_tensor import make_fx

from hopscope import rng

MASK = 0xFFFFFFFF
WORD = st.integers(0, MASK)
SEED = st.integers(0, 2**63 - 1)
RANDOM123 = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


def grid(members=7, samples=11, stream="test", step=3, block=0):
    return rng.bits(torch.arange(members)[:, None], stream, step, torch.arange(samples), block)


@pytest.mark.parametrize(("counter", "key", "expected"), RANDOM123)
def test_vectors_of_random123(counter, key, expected):
    (index, step, stream, block), (low, high) = words(counter), words(key)
    # As a tensor a seed may have all of its 64 bits set.
    seed = torch.from_numpy(np.array([high << 32 | low], dtype=np.uint64).view(np.int64))
    assert rng.bits(seed, stream, step, index, block)[0].tolist() == words(expected)


@given(SEED, WORD, WORD, WORD, WORD)
@settings(max_examples=50)
def test_an_address_is_the_counter_under_the_seed(seed, stream, step, index, block):
    c, k0, k1 = [index, step, stream, block], seed & MASK, seed >> 32
    for _ in range(10):  # Philox word by word, in unbounded integers
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    assert rng.bits(seed, stream, step, index, block).tolist() == c
    tensors = rng.bits(torch.tensor([seed]), stream, torch.tensor(step), torch.tensor([[index]]), block)
    assert tensors.shape == (1, 1, 4) and tensors.flatten().tolist() == c


@given(st.lists(SEED, min_size=1, max_size=5), st.integers(1, 13), st.data())
@settings(max_examples=30)
def test_no_split_of_members_samples_steps_or_blocks_changes_a_bit(seeds, samples, data):
    cut, index = data.draw(st.integers(0, samples)), torch.arange(samples)
    whole = rng.bits(torch.tensor(seeds)[:, None], "train", 17, index)
    halves = [
        rng.bits(torch.tensor(seeds)[:, None], "train", 17, part) for part in (index[:cut], index[cut:])
    ]
    assert torch.equal(whole, torch.cat(halves, dim=1))
    for member, seed in enumerate(seeds):
        assert torch.equal(whole[member], rng.bits(seed, "train", 17, index))
        steps = rng.bits(
            seed, "train", torch.tensor([2, 17, 3])[:, None, None], index, torch.tensor([5, 0])[:, None]
        )
        assert torch.equal(whole[member], steps[1, 1])


@pytest.mark.parametrize("numbers", [rng.normal, rng.uniform])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 7), (2, 3, 5)])
def test_a_member_draws_its_tensor_alone_and_in_company_and_from_nothing_else(numbers, shape):
    seeds, draw = torch.tensor([13, 2, 7, 2**62 + 1, 5]), partial(rng.tensor, numbers)
    torch.manual_seed(1)
    many, state = draw(seeds, "init", 3, shape), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert many.shape == (5, *shape) and many.dtype == torch.float32
    for member, seed in enumerate(seeds.tolist()):
        assert torch.equal(many[member : member + 1], draw(seeds[member : member + 1], "init", 3, shape))
        in_order = numbers(rng.bits(seed, "init", 3, torch.arange(8))).flatten()[: math.prod(shape)]
        assert torch.equal(many[member].flatten(), in_order)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: compares its bits with the CPU's")
def test_a_gpu_gives_the_same_bits():
    seeds, index = torch.tensor([[2], [2**62 + 3]]), torch.arange(257)
    gpu, cpu = rng.bits(seeds.cuda(), "train", 5, index.cuda()), rng.bits(seeds, "train", 5, index)
    assert torch.equal(gpu.cpu(), cpu) and torch.equal(rng.uniform(gpu).cpu(), rng.uniform(cpu))
    assert torch.allclose(rng.normal(gpu).cpu(), rng.normal(cpu), rtol=3e-7, atol=0)


def test_no_number_of_more_than_31_bits_is_added_or_multiplied():
    """`torch.compile` takes such arithmetic on a range for an index, which has 32 bits with a sign on CUDA."""
    draw = make_fx(lambda seed: rng.bits(seed, "train", 5, torch.arange(7)))(torch.tensor([[2**62 + 3]]))
    arithmetic = [node for node in draw.graph.nodes if str(node.target).startswith(("aten.mul", "aten.add"))]
    assert arithmetic
    assert not [n for n in arithmetic if any(isinstance(x, int) and abs(x) >= 1 << 31 for x in n.args)]


def test_words_are_uniform_and_numbers_normal():
    drawn = grid(members=3, samples=20_011)
    for word, shift in itertools.product(range(4), (0, 8, 16, 24)):
        counts = np.bincount(((drawn[..., word] >> shift) & 0xFF).flatten().numpy(), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.kstest(rng.uniform(drawn).flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(rng.normal(drawn).flatten().numpy(), "norm").pvalue > 1e-3
    n = torch.tensor([5, 24, 97])[:, None]
    for row, size in zip(rng.integers(drawn[..., 0], drawn[..., 1], n).numpy(), (5, 24, 97), strict=True):
        assert stats.chisquare(np.bincount(row, minlength=size)).pvalue > 1e-3


@given(arrays(np.int64, (5, 4), elements=st.one_of(WORD, st.sampled_from([0, 255, MASK - 1, MASK]))))
@settings(max_examples=50)
def test_normal_is_finite_and_is_box_muller_and_uniform_stays_below_one(drawn):
    numbers, below = rng.normal(torch.from_numpy(drawn)), rng.uniform(torch.from_numpy(drawn))
    assert numbers.abs().max() < 6.77 and below.max() < 1 and below.dtype == torch.float32
    radius, angle = np.sqrt(-2 * np.log((drawn[:, 2] + 0.5) / 2**32)), 2 * np.pi * drawn[:, 3] / 2**32
    np.testing.assert_allclose(numbers[:, 2], radius * np.cos(angle), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(numbers[:, 3], radius * np.sin(angle), rtol=1e-6, atol=1e-6)


@given(WORD, WORD, st.integers(1, 2**31 - 1))
def test_integers_are_the_exact_multiply_shift(high, low, n):
    expected = (((high << 32) + low) * n) >> 64
    for limit in (n, torch.tensor(n)):
        assert rng.integers(torch.tensor([high]), torch.tensor([low]), limit).tolist() == [expected]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ranks_are_lexicographic(n):
    expected = torch.tensor(list(itertools.permutations(range(n))))
    assert torch.equal(rng.permutation_from_index(torch.arange(math.factorial(n)), n), expected)


@given(st.integers(1, 20), st.data())
def test_ranking_inverts_unranking(n, data):
    ranks = torch.from_numpy(
        data.draw(arrays(np.int64, (2, 3), elements=st.integers(0, math.factorial(n) - 1)))
    )
    permutations = rng.permutation_from_index(ranks, n)
    assert torch.equal(permutations.sort(-1).values, torch.arange(n).expand(2, 3, n))
    for rank, order in zip(ranks.flatten().tolist(), permutations.flatten(0, 1).tolist(), strict=True):
        smaller = [sum(later < each for later in order[place:]) for place, each in enumerate(order)]
        assert rank == sum(count * math.factorial(n - 1 - place) for place, count in enumerate(smaller))


@pytest.mark.parametrize(
    "address",
    [(-1, 0, 0, 0, 0), (2**63, 0, 0, 0, 0), (0, 2**32, 0, 0, 0),
     (0, 0, -1, 0, 0), (0, 0, 0, 2**32, 0), (0, 0, 0, 0, -1)],
)  # fmt: skip
def test_what_is_out_of_range_is_refused(address):
    with pytest.raises(ValueError, match=f"out of range.*found {min(address) or max(address)}"):
        rng.bits(*address)
    zero = torch.zeros(3, dtype=torch.int64)
    for n in (0, 2**31):
        with pytest.raises(ValueError, match=f"n out of range.*found {n}"):
            rng.integers(zero, zero, n)
    with pytest.raises(ValueError, match=r"on one device, found seed: .* on cpu, index: .* on meta"):
        rng.bits(torch.arange(3), "test", 0, torch.arange(3, device="meta"))
