"""What forms when: on hand-built models, against slow references, and on planted curves."""

import math

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Edits
from hopscope.models.interventions import Site, SwapValues
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import formation
from hopscope.studies.permutation.probes import predictions as permutation
from hopscope.studies.permutation.probes.decoding import chosen_sequences
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

from .recallers import BY_CONTENT, MATCH_HEAD, ORDERED, UNORDERED, by_module, recallers

TASK = PermutationTask(PermutationConfig(values=4))


def random_model(values=4, **changes):
    shape = {
        "heads": 2,
        "head_dim": 5,
        "width": 11,
        "mlp_ratio": 2.0,
        "activation": "relu",
        "norm": "post",
        "length": 2 * values - 1,
        "input_size": values + 1,
        "output_size": values + 1,
        "readout": tuple(range(0, 2 * values - 1, 2)),
        "init": "encoder",
    }
    config = TransformerConfig(**{**shape, **changes})
    return Transformer.initial(config, torch.tensor([19, 23, 29]))


# Hand-built models.


@pytest.fixture(scope="module")
def built():
    return formation.measure_formation([(0, recallers())], TASK, samples_per_step=11, sequences=101)


def only(measured, name, member):
    """The value at the only checkpoint."""
    (value,) = measured[name][member]
    return value


def test_a_match_head_matches_and_other_heads_do_not(built):
    for member in (ORDERED, UNORDERED):
        heads = only(built, "match", member)
        assert heads[MATCH_HEAD] == pytest.approx(1.0) and max(heads[:MATCH_HEAD]) < 1e-6
        assert only(built, "best_head", member) == MATCH_HEAD
    # Heads without weights attend to all seven positions alike.
    assert only(built, "match", BY_CONTENT)[1:] == pytest.approx([1 / 7] * 3)
    assert built["floors"] == {"match": 1 / 7, "recall": 1 / 3}


def test_the_pointer_moves_with_the_copy(built):
    """The row is six ones: token, position, three values, pointer.  A pointer that moves changes two numbers by one."""
    for member in (ORDERED, UNORDERED):
        assert only(built, "pointer", member) == pytest.approx(math.sqrt(2 / 6), rel=1e-5)
        assert only(built, "pointer_control", member) < 1e-5
    assert only(built, "pointer", BY_CONTENT) < 1e-5


def test_order_is_found_where_it_is_kept_and_the_set_alone_gives_none(built):
    """Two values that change slots change four of the six numbers by one."""
    for name in ("history", "history_weakest"):
        assert only(built, name, ORDERED) == pytest.approx(math.sqrt(4 / 6), rel=1e-5)
        assert only(built, name, UNORDERED) < 1e-5 and only(built, name, BY_CONTENT) < 1e-5


def test_exchanging_values_alone_finds_order_where_there_is_none():
    """Why history is not measured in the value path: attention that depends on the values themselves."""
    batch = chosen_sequences(TASK, "repeats", "held_out", 101)
    sites = [Site(roles={"kind": 1, "step": step}) for step in (1, 2)]
    swap = SwapValues(layer=0, what="symbol", first=sites[0], second=sites[1])
    model = recallers()
    with torch.no_grad():
        found = [model.capture(batch.inputs, visit)[1] for visit in (None, Edits(model, [swap], batch))]
    clean, swapped = (captured.heads[0][BY_CONTENT, :, 0, -1] for captured in found)
    assert float((swapped - clean).norm(dim=-1).min()) > 0.1


def test_the_weakest_pair_of_slots_is_the_one_that_is_told_apart_least():
    model = recallers()
    output = model.weights["layers.0.attention.output.weight"][ORDERED]
    output[7:14] = output[7:14].roll(-5, -1)  # the second slot's head writes where the first one's does
    found = formation.measure_formation([(0, model)], TASK, samples_per_step=1, sequences=101)
    assert only(found, "history_weakest", ORDERED) < 1e-5
    # Two of the three pairs are still told apart; in both, the shared slot loses one value and wins another.
    assert only(found, "history", ORDERED) == pytest.approx(2 / 3 * math.sqrt(4 / 6), rel=1e-5)


def test_answers_of_the_hand_built_models(built):
    expected = {"recall": 1.0, "mass_recalled": 1.0, "detection": 1.0, "trapped": 0.0, "elimination": 1.0}
    trapped = {"recall": 0.0, "mass_recalled": 0.0, "detection": 0.0, "trapped": 1.0, "elimination": 1.0}
    for name in expected:
        assert only(built, name, ORDERED) == pytest.approx(expected[name], abs=1e-6)
        assert only(built, name, UNORDERED) == pytest.approx(trapped[name], abs=1e-6)


# Slow references.


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_changes_equal_those_of_the_plain_module_sequence_by_sequence(norm):
    model = random_model(norm=norm)
    found = formation.measure_formation([(0, model)], TASK, samples_per_step=1, sequences=13)
    sequences = chosen_sequences(TASK, "repeats", "held_out", 13).inputs[0].tolist()
    for member in range(3):
        module = model.member(member)

        def read(tokens, module=module):
            with torch.no_grad():
                return by_module(module, torch.tensor([tokens]))[0][0, -1]

        changes = {"y": {}, "moved": [], "still": []}
        for tokens in sequences:
            clean = read(tokens)
            for first, second in ((0, 1), (0, 2), (1, 2)):
                for kind, start in (("x", 0), ("y", 1)):
                    swapped = list(tokens)
                    one, other = 2 * first + start, 2 * second + start
                    swapped[one], swapped[other] = tokens[other], tokens[one]
                    change = float((read(swapped) - clean).norm() / clean.norm())
                    if kind == "y":
                        changes["y"].setdefault((first, second), []).append(change)
                    else:
                        copied = tokens[-1] in (tokens[one], tokens[other])
                        changes["moved" if copied else "still"].append(change)
        by_pair = [sum(pair) / len(pair) for pair in changes["y"].values()]
        assert only(found, "history", member) == pytest.approx(sum(by_pair) / 3, rel=1e-4)
        assert only(found, "history_weakest", member) == pytest.approx(min(by_pair), rel=1e-4)
        for name, kind in (("pointer", "moved"), ("pointer_control", "still")):
            mean = sum(changes[kind]) / len(changes[kind])
            assert only(found, name, member) == pytest.approx(mean, rel=1e-4)


def test_answers_equal_those_of_the_whole_model():
    task = PermutationTask(PermutationConfig(values=5))
    model = random_model(values=5)
    found = formation.measure_formation([(0, model)], task, samples_per_step=1, sequences=211)
    assert found["sequences"] == {"repeats": 211, "plain": 211}
    repeats, plain = (chosen_sequences(task, kind, "held_out", 211) for kind in ("repeats", "plain"))
    predicted = permutation.predict(model, repeats)
    probe = permutation.repeat_probe(predicted, repeats)
    shown = 1.0 - probe["mass_unused"] - predicted[:, :, -1, 0].mean(1)
    elimination = permutation.accuracy_by_slot(permutation.predict(model, plain), plain)[:, -1]
    expected = {
        "recall": probe["recall"],
        "mass_recalled": probe["mass_recalled"],
        "trapped": probe["trapped"],
        "detection": shown,
        "elimination": elimination,
    }
    for name, values in expected.items():
        for member in range(3):
            assert only(found, name, member) == pytest.approx(float(values[member]), abs=1e-5)


# Checkpoints.


def test_checkpoints_are_measured_one_by_one_in_samples():
    early, late = random_model(), recallers()
    late.weights["embed.token.weight"][BY_CONTENT] = math.nan
    both = formation.measure_formation(iter([(0, late), (7, late)]), TASK, samples_per_step=13, sequences=17)
    assert (both["step"], both["samples"]) == ([0, 7], [0, 91])
    one = formation.measure_formation([(7, late)], TASK, samples_per_step=13, sequences=17)
    other = formation.measure_formation([(0, early)], TASK, samples_per_step=13, sequences=17)
    for name in ("match", "pointer", "history", "recall", "elimination", "best_head"):
        assert both[name][ORDERED][1] == one[name][ORDERED][0]
    assert both["history"][UNORDERED][0] != other["history"][UNORDERED][0]
    assert both["recall"][BY_CONTENT] == [None, None]
    assert both["match"][BY_CONTENT] == [[None] * 4] * 2 and both["best_head"][BY_CONTENT] == [None, None]


def test_three_values_leave_no_control():
    task = PermutationTask(PermutationConfig(values=3))
    found = formation.measure_formation([(0, random_model(values=3))], task, samples_per_step=1)
    assert found["pointer_control"] == [[None]] * 3
    assert all(pointer[0] > 0 for pointer in found["pointer"])


def test_there_must_be_a_checkpoint():
    with pytest.raises(ValueError, match="expected at least one checkpoint, found none"):
        formation.measure_formation([], TASK, samples_per_step=1)


# The order, from measurements.


def test_the_order_of_every_member_is_in_samples_and_follows_the_best_head_of_the_end():
    rising = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    later = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    flat = [0.0] * 8
    match = [[[0.5, a, 0.1] for a in rising], [[a, 0.4, 0.1] for a in flat], [[None] * 3] * 8]
    measured = {
        "samples": [100 * n for n in range(8)],
        "match": match,
        "best_head": [[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8, [None] * 8],
        **{name: [later, flat, [None] * 8] for name in ("history", "pointer", "recall", "detection")},
        "floors": {"match": 0.2, "recall": 0.25},
    }
    first, second, third = formation.order_of_formation(measured)
    assert first["first"] == {"half": ["match"], "start": ["match"]}
    half = first["parts"]["match"]["half"]
    assert (half["low"], half["high"]) == (100.0, 200.0) and half["time"] == pytest.approx(160.0)
    assert first["parts"]["recall"]["half"]["time"] == pytest.approx(300.0 + 62.5)
    assert first["orders"]["half"]["history"] == {
        "match": "after",
        "pointer": "tie",
        "detection": "tie",
        "recall": "tie",
    }
    assert second["first"] == {"half": [], "start": []} and set(second["reached"].values()) == {None}
    assert second["parts"]["match"]["half"]["censored_at"] == 700.0
    assert third is None
