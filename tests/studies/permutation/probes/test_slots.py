"""Recall by slots against a plain loop, and on observers whose answers are known."""

import json
import math

import pytest
import torch
from tests.oracles.posteriors import uniform_posterior

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.studies.permutation.probes import slots

from .observers import Observers, eliminator, guesser, ideal, table, task, unbound

MEMBERS = 3


def small(values):
    config = TransformerConfig(
        width=17,
        heads=3,
        head_dim=7,
        length=2 * values - 1,
        input_size=values + 1,
        output_size=values + 1,
        readout=tuple(range(0, 2 * values - 1, 2)),
        init="encoder",
    )
    return Transformer.initial(config, torch.arange(19, 19 + MEMBERS))


def looped(predicted, batch):
    """Recall and mean mass, `{(slot, source): (share, mass)}`, of one member, sequence by sequence."""
    found = {}
    for sequence, inputs in enumerate(batch.inputs[0].tolist()):
        xs, ys = inputs[::2], inputs[1::2]
        ((slot, source),) = [(k, xs.index(x)) for k, x in enumerate(xs) if x in xs[:k]]
        row = predicted[sequence][slot]
        hit = max(range(len(row)), key=row.__getitem__) == ys[source]
        found.setdefault((slot, source), []).append((hit, row[ys[source]]))
    return {
        pair: tuple(sum(part) / len(part) for part in zip(*measured, strict=True))
        for pair, measured in found.items()
    }


@pytest.fixture(scope="module")
def record():
    """V = 4, trained with repeats of slot 2 at slot 3 only."""
    asked = task(values=4, repeat_ratio=0.3, repeat_slots=(3,), repeat_sources=(2,))
    return slots.recall_by_slot_pair(small(4), asked, 50_000)


def test_any_members_equal_a_plain_loop(record):
    batch = task(values=4, repeat_slots=(2, 3, 4)).evaluation("repeats")
    assert record["sequences"] == batch.inputs.shape[1] == 5 * 24 * 6 and record["exhaustive"]
    predicted = probes.predict(small(4), batch).tolist()
    masses = set()
    for member in range(MEMBERS):
        expected = looped(predicted[member], batch)
        assert len(expected) == 6
        for slot in range(4):
            for source in range(4):
                share, mass = expected.get((slot, source), (None, None))
                assert record["recall"][member][slot][source] == share
                found = record["mass_recalled"][member][slot][source]
                assert found == (None if mass is None else pytest.approx(mass, abs=1e-6))
                masses.add(found and round(found, 4))
    assert len(masses) > 12  # members, slots and sources have different values that could be mixed up


def test_the_record_is_json(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_floors_are_what_observers_without_recall_reach():
    asked = task(values=5, repeat_slots=(2,))
    batch = probes.with_repeats(asked, (2, 3, 4, 5)).evaluation("repeats").take(slice(None, None, 7))
    members = {"elimination": eliminator, "guess": guesser, "unbound": unbound}
    predicted = torch.cat([table(batch, observer(5)) for observer in members.values()])
    found = slots.slot_pairs(predicted, batch)
    floor = slots.recall_floor(5)
    assert floor.keys() == members.keys()
    for member, name in enumerate(members):
        for slot in range(5):
            masses = found["mass_recalled"][member, slot]
            assert floor[name][slot] == (None if slot == 0 else pytest.approx(float(masses[0])))
            torch.testing.assert_close(masses[:slot], masses[:1].expand(slot))
            assert bool(masses[slot:].isnan().all()) and not masses[:slot].isnan().any()
    assert not found["recall"][0].nan_to_num().any()
    assert float(found["recall"][2, 1, 0]) == 1.0  # at slot 2 a repeat has but one value to come back with


def test_who_recalls_does_so_everywhere_and_who_eliminates_nowhere():
    found = slots.recall_by_slot_pair(Observers(ideal(4), eliminator(4)), task(values=4), 50_000)
    for slot in range(4):
        for source in range(4):
            expected = [1.0, 0.0] if source < slot else [None, None]
            assert [found["recall"][member][slot][source] for member in (0, 1)] == expected
            assert [found["mass_recalled"][member][slot][source] for member in (0, 1)] == expected


def test_slot_and_source_are_told_apart():
    """A member that recalls slot 1 at slot 3 and slot 3 at slot 4, and nothing else."""
    able = {(3, 1), (4, 3)}

    def row(xs, ys, x):
        recalls = x in xs and (len(xs) + 1, xs.index(x) + 1) in able
        return uniform_posterior(xs, ys, x, 5) if recalls else eliminator(5)(xs, ys, x)  # slots from 1

    batch = (
        probes.with_repeats(task(values=5), (2, 3, 4, 5)).evaluation("repeats").take(slice(None, None, 11))
    )
    found = slots.slot_pairs(table(batch, row), batch)["recall"][0]
    for slot in range(1, 6):
        for source in range(1, 6):
            share = float(found[slot - 1, source - 1])
            if source >= slot:
                assert math.isnan(share)
            else:
                assert share == float((slot, source) in able)


def test_the_last_slot_is_that_of_the_repeat_probe():
    asked, model = task(values=4), small(4)
    batch = asked.evaluation("repeats")
    expected = probes.repeat_probe(probes.predict(model, batch), batch)
    found = slots.recall_by_slot_pair(model, asked, 50_000)
    for member in range(MEMBERS):
        assert found["recall"][member][3][:3] == expected["recall_by_slot"][member, :3].tolist()
        mean = sum(found["mass_recalled"][member][3][:3]) / 3
        assert mean == pytest.approx(float(expected["mass_recalled"][member]), abs=1e-6)


@pytest.mark.parametrize(("slot", "sources"), [((), ()), ((2,), (1,)), ((3, 5), (2,))])
def test_the_evaluation_repeats_everything_on_the_same_split(slot, sources):
    asked = task(
        values=5,
        split_seed=7,
        held_out_share=0.3,
        repeat_ratio=0.3,
        repeat_slots=slot,
        repeat_sources=sources,
    )
    every = probes.with_repeats(asked, (2, 3, 4, 5))
    assert every.config.repeat_pairs() == [(k, j) for k in range(2, 6) for j in range(1, k)]
    kept = {"repeat_slots", "repeat_sources"}
    assert every.config.model_dump(exclude=kept) == asked.config.model_dump(exclude=kept)
    held_out = asked.split.mapping(torch.arange(36), "held_out")
    assert asked.split.count("held_out") == every.split.count("held_out") == 36
    assert torch.equal(every.split.mapping(torch.arange(36), "held_out"), held_out)
    assert every.device == asked.device


def test_many_sequences_are_sampled():
    found = slots.recall_by_slot_pair(small(5), task(values=5), 211)
    assert (found["sequences"], found["exhaustive"]) == (211, False)
    assert all(
        (found["recall"][member][slot][source] is None) == (source >= slot)
        for member in range(MEMBERS)
        for slot in range(5)
        for source in range(5)
    )


def test_a_pair_that_no_probe_has_is_missing():
    batch = task(values=5, repeat_slots=(4,), repeat_sources=(3,)).evaluation("repeats").take(slice(0, 13))
    found = slots.slot_pairs(probes.uniform_posterior(batch), batch)
    expected = torch.full((1, 5, 5), math.nan, dtype=torch.float64)
    expected[0, 3, 2] = 1.0
    torch.testing.assert_close(found["recall"], expected, equal_nan=True)
    torch.testing.assert_close(found["mass_recalled"], expected, equal_nan=True)


def test_sequences_without_one_repeat_are_refused():
    plain = task(values=4).evaluation("plain")
    with pytest.raises(ValueError, match="expected one repeated x in every sequence"):
        slots.slot_pairs(probes.uniform_posterior(plain), plain)
