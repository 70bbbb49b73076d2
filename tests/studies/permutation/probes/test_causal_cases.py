"""The sequences of the causal tests, checked one by one in plain Python."""

import pytest
import torch

from hopscope.studies.permutation.probes import causal_cases
from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask


def task(values=5, **changes):
    return PermutationTask(PermutationConfig(values=values, **{"repeat_ratio": 0.3} | changes))


def sequences(cases):
    """(pairs, last x, right answer, whether it is a repeat) of every sequence of a chunk."""
    found = []
    for tokens, answer, repeat in zip(
        cases.batch.inputs[0].tolist(), cases.right.tolist(), cases.repeat.tolist(), strict=True
    ):
        found.append((list(zip(tokens[:-1:2], tokens[1::2], strict=True)), tokens[-1], answer, repeat))
    return found


@pytest.mark.parametrize(("values", "limit"), [(3, 100), (4, 73), (5, 100), (6, 101), (7, 53), (8, 37)])
def test_every_sequence_is_a_held_out_one_with_its_answer(values, limit):
    asked = task(values)
    held_out = {
        tuple(m)
        for m in asked.split.mapping(torch.arange(asked.split.count("held_out")), "held_out").tolist()
    }
    for cases in causal_cases.causal_cases(asked, limit):
        for pairs, last, answer, repeat in sequences(cases):
            shown = dict(pairs)
            assert len(shown) == values - 1
            if repeat:
                assert shown[last] == answer
                missing = (set(range(1, values + 1)) - set(shown)).pop()
                shown[missing] = (set(range(1, values + 1)) - set(shown.values())).pop()
            else:
                assert last not in shown and answer not in shown.values()
                shown[last] = answer
            assert tuple(shown[x] for x in range(1, values + 1)) in held_out


@pytest.mark.parametrize(
    ("values", "limit", "repeats", "plain"),
    [(3, 100, 12, 6), (4, 1000, 360, 120), (5, 3000, 3000, 2880), (5, 101, 100, 101), (7, 100, 96, 100)],
)
def test_how_many_and_from_every_source_alike(values, limit, repeats, plain):
    chunks = causal_cases.causal_cases(task(values), limit)
    found = [sequence for cases in chunks for sequence in sequences(cases)]
    sources = [[x for x, _ in pairs].index(last) for pairs, last, _, repeat in found if repeat]
    assert (len(sources), len(found) - len(sources)) == (repeats, plain)
    assert {slot: sources.count(slot) for slot in range(values - 1)} == dict.fromkeys(
        range(values - 1), repeats // (values - 1)
    )
    together = [(*pairs, last) for pairs, last, _, _ in found]
    assert len(set(together)) == len(together)
    assert all(len(sequences(cases)) <= 1.1 * causal_cases.CHUNK for cases in chunks)


def test_the_sequences_do_not_depend_on_where_training_has_its_repeats():
    (plain,) = causal_cases.causal_cases(task(4, repeat_ratio=0.0), 60)
    (elsewhere,) = causal_cases.causal_cases(task(4, repeat_slots=(2, 3)), 60)
    (other,) = causal_cases.causal_cases(task(4, split_seed=7), 60)
    assert torch.equal(plain.batch.inputs, elsewhere.batch.inputs)
    assert not torch.equal(plain.batch.inputs, other.batch.inputs)


def test_training_mappings_are_others():
    asked = task(4)
    (held_out,), (training,) = (
        causal_cases.causal_cases(asked, 60, split) for split in ("held_out", "train")
    )
    inputs = ({tuple(row) for row in cases.batch.inputs[0].tolist()} for cases in (held_out, training))
    assert not set.intersection(*inputs)


@pytest.mark.parametrize("values", [3, 4, 5, 7])
def test_first_second_and_third_pairs(values):
    seconds = set()
    for cases in causal_cases.causal_cases(task(values), 100):
        relations, inputs = cases.batch.relations, cases.batch.inputs[0]
        assert ("x_third" in relations) == (values > 3)
        names = ("first", "second", "third")[: 2 if values == 3 else 3]
        for number, (pairs, last, answer, repeat) in enumerate(sequences(cases)):
            places = []
            for name in names:
                x, y = (relations[f"{kind}_{name}"][0, number] for kind in ("x", "y"))
                assert x.unique().numel() == 1 and torch.equal(y, x + 1)
                places.append(int(x[0]))
                assert (int(inputs[number, places[-1]]), int(inputs[number, places[-1] + 1])) in pairs
            assert len(set(places)) == len(places) and all(place % 2 == 0 for place in places)
            if repeat:
                assert int(inputs[number, places[0]]) == last
                assert relations["same_symbol"][0, number, -1] == places[0]
                assert int(cases.other[number]) == int(inputs[number, places[1] + 1]) != answer
            else:
                assert relations["same_symbol"][0, number, -1] == NO_RELATION
            seconds.add((places[0], places[1], repeat))
    assert len(seconds) == 2 * (values - 1) * (values - 2)


def test_roles_of_rows_and_idle_keys():
    (cases,) = causal_cases.causal_cases(task(4), 30)
    for number, (pairs, last, _, repeat) in enumerate(sequences(cases)):
        xs = [x for x, _ in pairs]
        idle = [int(not (repeat and x == last)) for x in xs]
        assert cases.batch.roles["idle"][0, number].tolist() == [value for i in idle for value in (i, 0)] + [
            0
        ]
        assert cases.batch.roles["place"][0, number].tolist() == [0] * 6 + [1]


@pytest.mark.parametrize(("values", "limit"), [(3, 100), (4, 73), (5, 3000)])
def test_donors(values, limit):
    for cases in causal_cases.causal_cases(task(values), limit):
        found = sequences(cases)
        assert cases.donors["self"][0].tolist() == list(range(len(found)))
        donors = cases.donors["other"][0].tolist()
        for number, ((pairs, last, answer, repeat), donor) in enumerate(zip(found, donors, strict=True)):
            theirs = found[donor]
            assert theirs[3] == repeat and theirs[2] == int(cases.other[number]) != answer
            if repeat:
                assert theirs[0] == pairs and theirs[1] != last
                assert theirs[1] == int(
                    cases.batch.inputs[0, number, cases.batch.relations["x_second"][0, number, -1]]
                )


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_mixed_donors_come_from_the_training_mixture(ratio):
    chunks = causal_cases.causal_cases(task(repeat_ratio=ratio), 3000)
    donors = [cases.donors["mixed"][0] for cases in chunks]
    share = (
        torch.cat([cases.repeat[donor] for cases, donor in zip(chunks, donors, strict=True)]).float().mean()
    )
    assert float(share) == pytest.approx(ratio, abs=0.03)  # five standard deviations
    for donor in donors:
        if 0.0 < ratio < 1.0:
            assert donor.unique().numel() > 0.5 * len(donor)
    again = causal_cases.causal_cases(task(repeat_ratio=ratio), 3000)
    assert all(torch.equal(a.donors["mixed"][0], b) for a, b in zip(again, donors, strict=True))


def test_weights_of_a_mixture():
    chunks = causal_cases.causal_cases(task(4), 1000)
    total = {True: 0.0, False: 0.0}
    for weight, inputs in causal_cases.mixture(chunks, 0.3):
        repeated = bool((inputs[0, 0, :-1:2] == inputs[0, 0, -1]).any())
        total[repeated] += weight
    assert total == pytest.approx({True: 0.3, False: 0.7})
    kinds = [inputs[0, :, :-1:2] == inputs[0, :, -1:] for _, inputs in causal_cases.mixture(chunks, 0.0)]
    assert not torch.cat(kinds).any()


@pytest.mark.parametrize(("values", "limit"), [(5, 3), (4, 0), (8, 6)])
def test_a_limit_without_one_group_is_refused(values, limit):
    with pytest.raises(ValueError, match=f"limit: expected at least {values - 1}, one .*, found {limit}"):
        causal_cases.causal_cases(task(values), limit)


def test_plain_sequences_with_one_answer_only_are_refused():
    with pytest.raises(
        ValueError, match="limit: expected one that leaves plain sequences with different answers"
    ):
        causal_cases._with_another_answer(torch.tensor([2, 2, 2]))
