"""Named draws: what they depend on, what they look like, and the same in plain Python."""

import itertools
import math

import pytest
import torch
from scipy import stats

from hopscope import rng
from hopscope.errors import UserError
from hopscope.tasks.draws import LARGEST_UNRANKED, Draws, name_key
from hopscope.tasks.plain_draws import PlainDraws

SEEDS, BATCH = torch.tensor([19, 23]), 7


def draws(use="train", step=29, batch=BATCH, start=0, seeds=SEEDS, **options):
    return Draws.of(seeds, use, step, batch, start=start, **options)


KINDS = {
    "integers": lambda draws, name="a": draws.integers(name, 11, (3, 5)),
    "integers below a limit each": lambda draws, name="a": draws.integers(name, LIMITS, (3, 5)),
    "one integer": lambda draws, name="a": draws.integers(name, 11),
    "uniform": lambda draws, name="a": draws.uniform(name, (3, 5)),
    "one uniform": lambda draws, name="a": draws.uniform(name),
    "normal": lambda draws, name="a": draws.normal(name, (3, 5)),
    "one normal": lambda draws, name="a": draws.normal(name),
    "permutation": lambda draws, name="a": draws.permutation(name, 5),
    "largest unranked permutation": lambda draws, name="a": draws.permutation(name, LARGEST_UNRANKED),
    "smallest sorted permutation": lambda draws, name="a": draws.permutation(name, LARGEST_UNRANKED + 1),
    "long permutation": lambda draws, name="a": draws.permutation(name, 101),
    "raw words": lambda draws, name=0: draws.bits(name if isinstance(name, int) else 1),
}
LIMITS = torch.tensor([[2, 3, 5, 7, 11], [13, 17, 19, 23, 29], [31, 37, 41, 43, 47]])


@pytest.fixture(params=KINDS)
def drawn(request):
    return KINDS[request.param]


def test_shapes_and_types(drawn, request):
    kind = request.node.callspec.params["drawn"]
    found = drawn(draws())
    sizes = {"permutation": (5,), "raw words": (4,), "long permutation": (101,)}
    sizes |= {"largest unranked permutation": (12,), "smallest sorted permutation": (13,)}
    rest = () if kind.startswith("one ") else sizes.get(kind, (3, 5))
    assert found.shape == (2, BATCH, *rest)
    assert found.dtype == (torch.float32 if "uniform" in kind or "normal" in kind else torch.int64)


def test_a_draw_is_a_function_of_its_address_alone(drawn):
    whole = drawn(draws())
    assert torch.equal(whole, drawn(draws()))
    assert torch.equal(whole[:, 3:], drawn(draws(batch=BATCH - 3, start=3)))
    assert torch.equal(whole[1:], drawn(draws(seeds=SEEDS[1:])))
    several = drawn(draws(step=range(28, 31)))
    assert torch.equal(several[:, BATCH : 2 * BATCH], whole)
    assert torch.equal(drawn(draws(step=torch.tensor(29))), whole)
    draws_ = draws()
    draws_.integers("other", 3)
    assert torch.equal(drawn(draws_), whole)


def test_seed_use_step_sample_and_name_each_change_a_draw(drawn):
    several = {"seeds": SEEDS + 2}, {"use": "held-out"}, {"use": "probe"}, {"step": 30}, {"start": 1}
    first = drawn(draws(batch=101))
    for changes in several:
        assert not torch.equal(drawn(draws(batch=101, **changes)), first), changes
    assert not torch.equal(drawn(draws(batch=101), "b" if drawn is not KINDS["raw words"] else 3), first)


def test_draws_under_different_names_are_independent():
    some = draws(batch=2003)
    first, second = (some.integers(name, 5) for name in "ab")
    table = torch.zeros(5, 5)
    table.index_put_((first.flatten(), second.flatten()), torch.ones(1), accumulate=True)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3
    assert torch.corrcoef(torch.stack((some.normal("c"), some.normal("d"))).flatten(1))[0, 1].abs() < 0.05


def test_every_value_is_as_likely():
    some = draws(batch=2003)
    assert stats.chisquare(some.integers("a", 7, (3,)).flatten().bincount().tolist()).pvalue > 1e-3
    assert stats.kstest(some.uniform("b", (3,)).flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(some.normal("c", (3,)).flatten().numpy(), "norm").pvalue > 1e-3
    ranks = rng.index_from_permutation(some.permutation("d", 4)).flatten()
    assert stats.chisquare(ranks.bincount(minlength=24).tolist()).pvalue > 1e-3
    first = some.permutation("e", 17)[..., 0].flatten()
    assert stats.chisquare(first.bincount(minlength=17).tolist()).pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 2, 12, 13, 31])
def test_a_permutation_has_everything_once(n):
    found = draws().permutation("a", n)
    assert torch.equal(found.sort(-1).values, torch.arange(n).expand_as(found))


def test_limits_hold_each_for_its_place():
    found = draws(batch=503).integers("a", LIMITS, (3, 5))
    assert (found >= 0).all() and (found < LIMITS).all()
    assert (found.amax((0, 1)) == LIMITS - 1).all()
    of_samples = torch.arange(1, 504)[:, None]
    assert (draws(batch=503).integers("a", of_samples, (3,)) < of_samples).all()


def test_constants_have_the_axes_of_a_draw():
    some = draws()
    for value, dtype in ((3, torch.int64), (0.5, torch.float32), (True, torch.bool)):
        found = some.constant(value, (5,))
        assert found.shape == (2, BATCH, 5) and found.dtype == dtype and (found == value).all()
    rows = some.constant(torch.arange(5), (3, 5))
    rows[0, 0, 0] = 7
    assert rows[1, 2, 0].tolist() == [0, 1, 2, 3, 4] and some.constant(2).shape == (2, BATCH)


def test_raw_words_are_those_of_rng_at_the_unnamed_address():
    for step in (29, range(28, 30)):
        some = draws(step=step, start=3)
        index = torch.arange(3, 3 + BATCH)
        steps = torch.tensor([29]) if step == 29 else torch.tensor([28, 29]).repeat_interleave(BATCH)
        index = index if step == 29 else index.repeat(2)
        assert torch.equal(some.bits(2), rng.bits(SEEDS[:, None], "train", steps, index, 2))
    assert torch.equal(draws("held-out").bits(), rng.bits(SEEDS[:, None], "evaluate", 29, torch.arange(7)))


def test_a_draw_by_hand():
    """Under a name the key is the seed with the name's 62 bits mixed in, and blocks count words by four."""
    found = draws().integers("a", 11, (3,))
    for member, seed in enumerate(SEEDS.tolist()):
        words = [rng.bits(seed ^ name_key("a"), "train", 29, 5, block).tolist() for block in (0, 1)]
        flat = [*words[0], *words[1]]
        expected = [((flat[2 * i] << 32 | flat[2 * i + 1]) * 11) >> 64 for i in range(3)]
        assert found[member, 5].tolist() == expected
    # hashlib's, the same in every process: committed numbers hang on it.
    assert name_key("a") == 0xCA978112CA1BBDCA >> 2 and name_key("") == 0xE3B0C44298FC1C14 >> 2


def test_what_is_known_of_the_samples():
    some = draws(step=range(3, 5), start=11)
    assert some.step.tolist() == [3] * 7 + [4] * 7 and some.index.tolist() == [*range(11, 18)] * 2
    assert some.size == (2, 14) and some.device == torch.device("cpu") and torch.equal(some.seeds, SEEDS)
    assert draws(step=torch.tensor(5)).step.tolist() == [5] * 7
    uses = {
        "train": "train",
        "held-out": "held-out",
        "probe": "probe",
        "evaluate": "held-out",
        "circuit": "probe",
    }
    assert {stream: draws(stream).use for stream in uses} == uses


@pytest.mark.parametrize("pair", list(itertools.product([1, 3], [1, 3])))
def test_one_name_draws_once(pair):
    first, second = pair
    some = draws()
    some.integers("noise", 5, (first,))
    with pytest.raises(UserError, match="found 'noise' twice") as refused:
        some.normal("noise", (second,))
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="'noise' twice"):
        some.integers("noise", 5, (first,))
    with pytest.raises(UserError, match="'p' twice"):
        [some.permutation("p", 3) for _ in range(2)]


def test_bad_arguments_are_said_in_one_line():
    some = draws()
    for high in (0, -1, 1 << 31):
        with pytest.raises(
            UserError, match=rf"draws.integers\('a'\): expected 1 <= high < 2\*\*31, found {high}"
        ):
            some.integers("a", high)
    with pytest.raises(
        UserError, match=r"draws.permutation\('b'\): expected at least one thing, found n = 0"
    ):
        some.permutation("b", 0)
    for size in (3, 11):
        with pytest.raises(
            UserError, match=r"draws.integers\('.+'\): expected high to broadcast to \(2, 7, 5\)"
        ):
            some.integers(str(size), torch.full((size,), 5), (5,))


# A finite pool.


def test_a_pool_has_so_many_examples():
    some = draws(batch=1009, examples=13)
    tokens, words = some.integers("a", 1 << 30, (2,)), some.bits()
    for member in range(2):
        assert len(tokens[member].unique(dim=0)) == len(words[member].unique(dim=0)) == 13
    assert some.index.shape == (2, 1009) and some.index.max() == 12 and (some.step == 29).all()
    again = draws(step=31, batch=1009, examples=13).integers("a", 1 << 30, (2,))
    for member in range(2):
        assert torch.equal(tokens[member].unique(dim=0), again[member].unique(dim=0))
    assert not torch.equal(again, tokens)
    assert torch.equal(draws("held-out", examples=13).bits(), draws("held-out").bits())


# In plain Python.


@pytest.mark.parametrize("options", [{}, {"examples": 5}], ids=["fresh", "pool"])
@pytest.mark.parametrize("use", ["train", "held-out"])
def test_plain_draws_are_the_same_numbers(drawn, use, options):
    found = drawn(draws(use, **options))
    for member, seed in enumerate(SEEDS.tolist()):
        for index in range(BATCH):
            plain = PlainDraws(seed, use, 29, index, **options)
            expected = torch.tensor(drawn(_Listed(plain)), dtype=found.dtype)
            torch.testing.assert_close(found[member, index], expected, rtol=1e-6, atol=1e-6)


class _Listed:
    """Plain draws that are given nested lists in place of tensors."""

    def __init__(self, plain):
        self._plain = plain

    def integers(self, name, high, shape=()):
        return self._plain.integers(name, high.tolist() if isinstance(high, torch.Tensor) else high, shape)

    def __getattr__(self, name):
        return getattr(self._plain, name)


def test_plain_constants_and_limits():
    plain = PlainDraws(19, "train", 29, 3)
    assert plain.constant(3) == 3 and plain.constant(0.5, (2,)) == [0.5, 0.5]
    assert plain.constant([1, 2], (3, 2)) == [[1, 2]] * 3 and plain.constant([[1], [2]], (2, 1)) == [[1], [2]]
    limits = plain.integers("a", [2, 3, 5], (3,))
    assert all(0 <= value < limit for value, limit in zip(limits, [2, 3, 5], strict=True))
    assert (plain.use, plain.step, plain.index) == ("train", 29, 3)
    assert math.isfinite(plain.normal("b"))
