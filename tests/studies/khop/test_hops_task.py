"""K-hop induction: samples against loops over the definition, and how often two hops fewer are as good."""

from itertools import pairwise

import pytest
import torch

import hopscope as hs
from hopscope.studies.khop.study import shortcut_accuracy
from hopscope.studies.khop.task import Hops, one_hop
from hopscope.tasks.draws import Draws

LETTERS, LENGTH, HOPS = 5, 23, (1, 2, 7)


def drawn(samples=11, **fields):
    task = Hops(**{"letters": LETTERS, "length": LENGTH, "hops": HOPS, **fields})
    return task, task.sample(Draws.of(torch.tensor([3, 13]), "train", 2, samples))


def find(text, place):
    """The position after the last earlier occurrence of the letter, from the definition; `None`: there is none."""
    places = [after for after in range(1, place + 1) if text[after - 1] == text[place]]
    return max(places, default=None)


@pytest.mark.parametrize(
    "fields", [{}, {"letters": 3, "length": 7, "hops": (1,)}, {"length": 13, "hops": (3, 5)}]
)
def test_it_keeps_the_contract(fields):
    hs.testing.check_task(Hops(**fields))


def test_answers_are_those_of_the_definition():
    _, batch = drawn()
    reached = 0
    for member in range(2):
        for sample in range(11):
            first, *text = batch.inputs[member, sample].tolist()
            hops = HOPS[first - LETTERS]
            assert all(one != other for one, other in pairwise(text))
            assert [bool(batch.groups[name][member, sample]) for name in ("1 hop", "2 hops", "7 hops")] == [
                hops == each for each in HOPS
            ]
            for place in range(LENGTH):
                end = place
                for _ in range(hops):
                    end = end if end is None else find(text, end)
                answer = batch.relations["answer"][member, sample, 1 + place]
                one = find(text, place)
                assert batch.relations["one_hop"][member, sample, 1 + place] == (
                    -1 if one is None else 1 + one
                )
                assert batch.weights[member, sample, place] == (end is not None)
                assert answer == (-1 if end is None else 1 + end)
                assert batch.targets[member, sample, place] == (0 if end is None else text[end])
                reached += end is not None
    assert reached > 2 * 11 * LENGTH / 4


def test_texts_are_uniform_without_equal_neighbours():
    _, batch = drawn(5_000)
    letters = batch.inputs[..., 1:]
    assert torch.bincount(letters.flatten(), minlength=LETTERS) / letters.numel() == pytest.approx(
        1 / LETTERS, abs=0.005
    )
    pairs = torch.zeros(LETTERS, LETTERS)
    pairs.index_put_(
        (letters[..., :-1].flatten(), letters[..., 1:].flatten()), torch.tensor(1.0), accumulate=True
    )
    shares = pairs / pairs.sum(-1, keepdim=True)
    expected = (1 - torch.eye(LETTERS)) / (LETTERS - 1)
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("letters", [3, 5])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_two_hops_fewer_are_right_in_two_of_as_many_as_there_are_letters(letters, hops):
    """In long texts, at their ends, where every letter occurred before."""
    task, batch = drawn(2_000, letters=letters, length=61, hops=(hops,))
    found = shortcut_accuracy(task, batch, last=10)
    assert float(found[f"{hops} hop" + "s" * (hops > 1)].mean()) == pytest.approx(2 / letters, abs=0.02)
    assert task.floors()["accuracy"] == {"a guess": 1 / letters, "two hops fewer": 2 / letters}


def test_one_hop_of_a_text_without_repetition_leads_nowhere():
    assert one_hop(torch.tensor([[7, 3, 5, 3, 5, 7]])).tolist() == [[0, 0, 0, 2, 3, 1]]
