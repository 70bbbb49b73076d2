"""Induction with tokens: samples, questions and the plateau, against loops."""

import pytest
import torch
from pydantic import ValidationError

import hopscope as hs
from hopscope.studies.formation.task import Induction
from hopscope.tasks.draws import Draws

MEMBERS = torch.tensor([3, 13])


def drawn(samples=7, **fields):
    task = Induction(**{"context": 22, "kinds": 13, **fields})
    return task, task.sample(Draws.of(MEMBERS, "train", 2, samples))


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("context", [4, 22])
def test_it_keeps_the_contract(context, repeats, shuffled):
    hs.testing.check_task(Induction(context=context, kinds=13, repeats=repeats, shuffled=shuffled))


def test_one_answer_needs_a_key_for_each_pair():
    with pytest.raises(ValidationError, match="one for each of 11 pairs"):
        Induction(context=22, kinds=7)
    assert Induction(context=22, kinds=7, repeats=True).pairs == 11


@pytest.mark.parametrize("repeats", [False, True])
def test_a_question_asks_for_the_value_that_followed_its_key(repeats):
    task, batch = drawn(repeats=repeats)
    asked = 0
    for member in range(2):
        for sample in range(7):
            tokens = batch.inputs[member, sample].tolist()
            assert all(token < 13 for token in tokens[::2])
            assert all(token >= 13 for token in tokens[1::2])
            for place, row in enumerate(task.shape().readout):
                behind = [at + 1 for at in range(0, row, 2) if tokens[at] == tokens[row]]
                weight = 1.0 if batch.weights is None else float(batch.weights[member, sample, place])
                assert weight == bool(behind)
                assert batch.relations["answer"][member, sample, row] == (behind[-1] if behind else -1)
                if behind:
                    asked += 1
                    target = int(batch.targets[member, sample, place])
                    assert {tokens[at] for at in behind} == {13 + target}
    assert asked > 0


def test_one_answer_is_anywhere_and_its_keys_differ():
    _, batch = drawn(5_000)
    assert all(len(set(row.tolist())) == 11 for row in batch.inputs[0, :50, :-1:2])
    places = batch.relations["answer"][0, :, -1].bincount(minlength=22)[1::2] / 5_000
    assert float((places - 1 / 11).abs().max()) < 0.02


def test_longer_contexts_have_more_questions_for_each_token_where_keys_repeat():
    shares = []
    for context in (6, 22):
        _, batch = drawn(2_000, context=context, repeats=True)
        shares.append(float(batch.weights.sum()) / batch.inputs.numel())
    assert shares[1] > 2 * shares[0]


@pytest.mark.parametrize("repeats", [False, True])
def test_shuffled_values_cannot_be_known(repeats):
    """The answer is the value that stood behind the key no more often than any value is that of an earlier pair."""
    _, batch = drawn(5_000, repeats=repeats, shuffled=True)
    rows = [22] if not repeats else list(range(2, 23, 2))
    place = rows.index(22)
    tokens = batch.inputs[0]
    source = batch.relations["answer"][0, :, 22]
    known = source >= 0
    values = tokens[known].gather(-1, source[known, None])[:, 0] - 13
    right = float((batch.targets[0, known, place] == values).float().mean())
    earlier = tokens[known, 1::2] - 13
    assert right == pytest.approx(float((earlier == values[:, None]).float().mean()), abs=0.03)
    assert bool((earlier == batch.targets[0, known, place, None]).any(-1).all())


@pytest.mark.parametrize("repeats", [False, True])
def test_the_plateau_is_that_of_a_loop(repeats):
    task, batch = drawn(11, repeats=repeats)
    guesses = []
    for tokens in batch.inputs.flatten(0, 1).tolist():
        for row in task.shape().readout:
            if tokens[row] in tokens[:row:2]:
                guesses.append(1 / len({*tokens[1:row:2]}))
    assert Induction.chance(batch.inputs, task.shape().readout) == pytest.approx(sum(guesses) / len(guesses))
