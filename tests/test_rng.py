import itertools
import math

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


def words(text):
    return [int(word, 16) for word in text.split()]


def reference_philox(counter, key):
    """Philox4x32-10 word by word, in Python's unbounded integers."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def grid(members=7, samples=11, stream="test", step=3, block=0, seed0=0):
    return rng.bits(torch.arange(seed0, seed0 + members)[:, None], stream, step, torch.arange(samples), block)


WORD = st.integers(0, MASK)
VECTORS = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


# The generator


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_random123_vectors(counter, key, expected):
    (index, step, stream, block), (low, high) = words(counter), words(key)
    assert reference_philox(words(counter), words(key)) == words(expected)
    # As a tensor a seed may have all of its 64 bits set.
    seed = torch.from_numpy(np.array([high << 32 | low], dtype=np.uint64).view(np.int64))
    assert rng.bits(seed, stream, step, index, block)[0].tolist() == words(expected)


@given(arrays(np.int64, (3,), elements=WORD), arrays(np.int64, (5, 1), elements=st.integers(0, 2**63 - 1)))
@settings(deadline=None, max_examples=30)
def test_bits_are_the_reference_for_every_index_and_seed(indices, seeds):
    found = rng.bits(torch.from_numpy(seeds), 7, 2, torch.from_numpy(indices), 3)
    assert found.shape == (5, 3, 4)
    for seed, rows in zip(seeds[:, 0].tolist(), found.tolist(), strict=True):
        key = seed & MASK, seed >> 32
        assert rows == [reference_philox((index, 2, 7, 3), key) for index in indices.tolist()]


@given(st.integers(0, 2**63 - 1), WORD, WORD, WORD, WORD)
@settings(deadline=None, max_examples=50)
def test_an_address_is_the_counter_index_step_stream_block_under_the_seed(seed, stream, step, index, block):
    expected = reference_philox((index, step, stream, block), (seed & MASK, seed >> 32))
    assert rng.bits(seed, stream, step, index, block).tolist() == expected
    tensors = rng.bits(torch.tensor([seed]), stream, torch.tensor(step), torch.tensor([[index]]), block)
    assert tensors.shape == (1, 1, 4)
    assert tensors.flatten().tolist() == expected


# Independence of everything else


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.integers(1, 13), st.data())
@settings(deadline=None, max_examples=40)
def test_no_split_of_members_or_batch_changes_a_bit(seeds, samples, data):
    cut = data.draw(st.integers(0, samples))
    members = torch.tensor(seeds)[:, None]
    index = torch.arange(samples)
    whole = rng.bits(members, "train", 17, index)
    halves = [rng.bits(members, "train", 17, part) for part in (index[:cut], index[cut:])]
    assert torch.equal(whole, torch.cat(halves, dim=1))
    for member, seed in enumerate(seeds):
        assert torch.equal(whole[member], rng.bits(seed, "train", 17, index))
    order = torch.tensor(data.draw(st.permutations(range(samples))))
    assert torch.equal(whole[:, order], rng.bits(members, "train", 17, order))


def test_a_tensor_of_blocks_is_many_blocks():
    seeds, index, blocks = torch.arange(7)[:, None, None], torch.arange(11)[:, None], torch.arange(5)
    together = rng.bits(seeds, "test", 3, index, blocks)
    assert together.shape == (7, 11, 5, 4)
    for block in range(5):
        assert torch.equal(together[:, :, block], grid(block=block))
    assert torch.equal(rng.bits(3, "test", 5, 7, blocks)[2], rng.bits(3, "test", 5, 7, 2))
    with pytest.raises(TypeError, match="block"):
        rng.bits(3, "test", 5, 7, blocks.int())


def test_a_tensor_of_steps_is_many_steps():
    steps = torch.tensor([2, 3, 5])[:, None]
    many = rng.bits(11, "train", steps, torch.arange(7))
    assert many.shape == (3, 7, 4)
    assert torch.equal(many[2], rng.bits(11, "train", 5, torch.arange(7)))


@pytest.mark.parametrize("draw", [rng.normal_tensor, rng.uniform_tensor])
def test_a_member_draws_the_same_tensor_alone_and_in_company(draw):
    seeds = torch.tensor([13, 2, 7, 2**62 + 1, 5])
    many = draw(seeds, "init", 3, (2, 3, 5))
    assert many.shape == (5, 2, 3, 5)
    assert many.dtype == torch.float32
    for member in range(5):
        assert torch.equal(many[member : member + 1], draw(seeds[member : member + 1], "init", 3, (2, 3, 5)))
    assert not torch.equal(many, draw(seeds, "init", 3, (2, 3, 5), block=1))
    assert len(many.unique()) == many.numel()


@pytest.mark.parametrize(("shape", "elements"), [((), 1), ((0,), 0), ((3,), 3), ((2, 7), 14)])
def test_a_drawn_tensor_fills_its_shape_in_order(shape, elements):
    drawn = rng.uniform_tensor(torch.tensor([1, 2, 3]), "init", 0, shape)
    assert drawn.shape == (3, *shape)
    expected = rng.uniform(rng.bits(2, "init", 0, torch.arange(5))).flatten()[:elements]
    assert torch.equal(drawn[1].flatten(), expected)


def test_global_random_state_is_neither_read_nor_changed():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = rng.normal_tensor(torch.tensor([3]), "init", 0, (5, 7))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(first, rng.normal_tensor(torch.tensor([3]), "init", 0, (5, 7)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: compares its bits with the CPU's")
def test_a_gpu_gives_the_same_bits():
    seeds, index = torch.tensor([[2], [2**62 + 3]]), torch.arange(257)
    gpu = rng.bits(seeds.cuda(), "train", 5, index.cuda())
    cpu = rng.bits(seeds, "train", 5, index)
    assert torch.equal(gpu.cpu(), cpu)
    assert torch.equal(rng.uniform(gpu).cpu(), rng.uniform(cpu))
    assert torch.allclose(rng.normal(gpu).cpu(), rng.normal(cpu), rtol=3e-7, atol=0)
    assert (
        rng.bits(1, "train", 5, torch.tensor(7, device="cuda")).tolist()
        == rng.bits(1, "train", 5, 7).tolist()
    )


def test_no_number_of_more_than_31_bits_is_added_or_multiplied():
    """`torch.compile` takes such arithmetic on a range for an index, which has 32 bits with a sign on CUDA."""
    draw = make_fx(lambda seed: rng.bits(seed, "train", 5, torch.arange(7)))(torch.tensor([[2**62 + 3]]))
    arithmetic = [node for node in draw.graph.nodes if str(node.target).startswith(("aten.mul", "aten.add"))]
    assert arithmetic
    assert not [n for n in arithmetic if any(isinstance(x, int) and abs(x) >= 1 << 31 for x in n.args)]


# Addresses are distinct and well mixed


def test_different_addresses_give_different_words():
    draws = [
        grid(stream=stream, step=step, block=block, seed0=seed0).reshape(-1, 4)
        for stream, step, block, seed0 in itertools.product(
            ("init", "train", 99), (0, 1, 2), (0, 1), (0, 1000)
        )
    ]
    seen = {tuple(row) for draw in draws for row in draw.tolist()}
    assert len(seen) == 3 * 3 * 2 * 2 * 7 * 11


def test_changing_one_bit_of_an_address_changes_half_of_the_bits_drawn():
    base = rng.bits(0, 0, 0, 0)
    flips = [rng.bits(0, 0, 0, 1 << bit) for bit in range(32)]
    flips += [rng.bits(0, 0, 1 << bit, 0) for bit in range(32)]
    flips += [rng.bits(1 << bit, 0, 0, 0) for bit in range(63)]
    changed = [sum(word.bit_count() for word in (base ^ flip).tolist()) for flip in flips]
    # 128 fair coins each: the standard deviation of one count is 5.7, of their mean 0.5.
    assert abs(np.mean(changed) - 64) < 2
    assert min(changed) > 35 and max(changed) < 93


def test_words_are_uniform_by_chi_square_in_every_byte():
    draws = grid(members=5, samples=20_000).numpy()
    assert draws.min() >= 0 and draws.max() <= MASK
    for word in range(4):
        for shift in (0, 8, 16, 24):
            counts = np.bincount(((draws[..., word] >> shift) & 0xFF).ravel(), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_are_uncorrelated_along_every_axis():
    numbers = rng.uniform(grid(members=101, samples=1009)).numpy().astype(np.float64)
    limit = 4 / math.sqrt(numbers.size)
    for axis in range(3):
        moved = np.moveaxis(numbers, axis, 0)
        assert abs(np.corrcoef(moved[1:].ravel(), moved[:-1].ravel())[0, 1]) < limit


# Draws


def test_uniform_is_uniform_and_keeps_below_one():
    assert rng.uniform(torch.tensor([0, 255, 256, MASK])).tolist() == [0.0, 0.0, 2.0**-24, 1 - 2.0**-24]
    numbers = rng.uniform(grid(members=3, samples=10_007))
    assert numbers.dtype == torch.float32
    assert stats.kstest(numbers.numpy().ravel(), "uniform").pvalue > 1e-3


def test_normal_is_normal_and_its_pairs_are_independent():
    numbers = rng.normal(grid(members=3, samples=10_007)).numpy().astype(np.float64)
    assert stats.kstest(numbers.ravel(), "norm").pvalue > 1e-3
    assert abs(numbers.mean()) < 4 / math.sqrt(numbers.size)
    assert abs(numbers.var() - 1) < 4 * math.sqrt(2 / numbers.size)
    flat = numbers.reshape(-1, 4)
    for first, second in itertools.combinations(range(4), 2):
        for power in (1, 2):
            found = np.corrcoef(flat[:, first] ** power, flat[:, second] ** power)[0, 1]
            assert abs(found) < 4 / math.sqrt(len(flat))


@given(arrays(np.int64, (5, 4), elements=st.one_of(WORD, st.sampled_from([0, 1, MASK - 1, MASK]))))
@settings(deadline=None, max_examples=50)
def test_normal_is_finite_and_is_box_muller_of_its_words(drawn):
    numbers = rng.normal(torch.from_numpy(drawn))
    assert numbers.dtype == torch.float32 and numbers.shape == (5, 4)
    assert numbers.abs().max() < 6.77
    first, second = (drawn[:, 2] + 0.5) / 2**32, drawn[:, 3] / 2**32
    radius = np.sqrt(-2 * np.log(first))
    np.testing.assert_allclose(numbers[:, 2], radius * np.cos(2 * np.pi * second), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(numbers[:, 3], radius * np.sin(2 * np.pi * second), rtol=1e-6, atol=1e-6)


@given(WORD, WORD, st.one_of(st.integers(1, 2**31 - 1), st.sampled_from([1, 2**31 - 1])))
def test_integers_are_the_exact_multiply_shift(high, low, n):
    expected = (((high << 32) + low) * n) >> 64
    assert rng.integers(torch.tensor([high]), torch.tensor([low]), n).tolist() == [expected]
    assert rng.integers(torch.tensor([high]), torch.tensor([low]), torch.tensor(n)).tolist() == [expected]
    assert 0 <= expected < n


def test_integers_are_uniform_for_each_n_of_a_tensor():
    drawn = grid(members=3, samples=30_011)
    n = torch.tensor([5, 24, 97])[:, None]
    found = rng.integers(drawn[..., 0], drawn[..., 1], n)
    for row, size in zip(found.numpy(), n.flatten().tolist(), strict=True):
        assert stats.chisquare(np.bincount(row, minlength=size)).pvalue > 1e-3


# Permutations


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_ranks_are_lexicographic(n):
    expected = torch.tensor(list(itertools.permutations(range(n))))
    found = rng.permutation_from_index(torch.arange(math.factorial(n)), n)
    assert torch.equal(found, expected)
    assert torch.equal(rng.index_from_permutation(expected), torch.arange(math.factorial(n)))


@given(st.integers(1, 20), st.data())
@settings(deadline=None)
def test_unranking_is_inverted_by_ranking(n, data):
    edges = st.sampled_from([0, math.factorial(n) - 1])
    rank = st.one_of(st.integers(0, math.factorial(n) - 1), edges)
    ranks = torch.from_numpy(data.draw(arrays(np.int64, (2, 3), elements=rank)))
    permutations = rng.permutation_from_index(ranks, n)
    assert permutations.shape == (2, 3, n)
    assert torch.equal(permutations.sort(-1).values, torch.arange(n).expand(2, 3, n))
    assert torch.equal(rng.index_from_permutation(permutations), ranks)


def test_drawn_permutations_are_uniform():
    drawn = grid(members=3, samples=20_011)
    ranks = rng.permutation_index(drawn[..., 2], drawn[..., 3], 5)
    assert ranks.shape == (3, 20_011)
    assert stats.chisquare(np.bincount(ranks.flatten().numpy(), minlength=120)).pvalue > 1e-3
    last = rng.permutation_index(torch.tensor([MASK]), torch.tensor([MASK]), 12)
    assert rng.permutation_from_index(last, 12).tolist() == [list(range(11, -1, -1))]


# Refusals


def test_streams_have_distinct_numbers_and_unknown_ones_are_named():
    assert len(set(rng.STREAMS.values())) == len(rng.STREAMS)
    assert torch.equal(rng.bits(1, "train", 2, 3), rng.bits(1, rng.STREAMS["train"], 2, 3))
    assert rng.stream_id(12345) == 12345
    with pytest.raises(ValueError, match=r"unknown stream: expected one of init, .*, found 'trian'"):
        rng.stream_id("trian")


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_counters_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=f"stream out of range.*found {bad}"):
        rng.stream_id(bad)
    with pytest.raises(ValueError, match=f"step out of range.*found {bad}"):
        rng.bits(0, "test", bad, 0)
    with pytest.raises(ValueError, match=f"index out of range.*found {bad}"):
        rng.bits(0, "test", 0, bad)
    with pytest.raises(ValueError, match=f"block out of range.*found {bad}"):
        rng.bits(0, "test", 0, 0, bad)


@pytest.mark.parametrize("bad", [-1, 2**63])
def test_seeds_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=f"seed out of range.*found {bad}"):
        rng.bits(bad, "test", 0, 0)


def test_tensors_of_another_type_or_device_are_refused():
    # Where shape checks are switched on, they refuse it first.
    with pytest.raises(TypeError, match=r"(?is)index.*int64"):
        rng.bits(0, "test", 0, torch.zeros(3))
    with pytest.raises(ValueError, match="expected one device, found seed on cpu, index on meta"):
        rng.bits(torch.arange(3), "test", 0, torch.arange(3, device="meta"))


def test_sizes_out_of_range_are_refused():
    zero = torch.zeros(3, dtype=torch.int64)
    for n in (0, 2**31):
        with pytest.raises(ValueError, match=f"n out of range.*found {n}"):
            rng.integers(zero, zero, n)
    for n in (0, 13):
        with pytest.raises(ValueError, match=f"n out of range.*found {n}"):
            rng.permutation_index(zero, zero, n)
    for n in (0, 21):
        with pytest.raises(ValueError, match=f"n out of range.*found {n}"):
            rng.permutation_from_index(zero, n)
    with pytest.raises(ValueError, match=r"n out of range.*found 21"):
        rng.index_from_permutation(torch.zeros(2, 21, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"even last axis, found shape \(2, 3\)"):
        rng.normal(torch.zeros(2, 3, dtype=torch.int64))
