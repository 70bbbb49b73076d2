"""Head roles of circuits whose heads are known, and the words for them on hand-made losses."""

import json

import pytest
import torch
from tests.oracles.edits import Edited

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import AblateHead
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.causal_cases import causal_cases
from hopscope.studies.permutation.probes.causal_runs import CausalRuns, reference_means
from hopscope.studies.permutation.probes.head_roles import measure_roles
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

from .planted_recall import CODES, DIRECT, ELIMINATOR, POINTER, REDUNDANT, SPLIT, SWAPPED, circuits, decoder

LIMIT = 240


def task(values=5, **changes):
    return PermutationTask(PermutationConfig(values=values, **{"repeat_ratio": 0.3} | changes))


# Circuits.


@pytest.fixture(scope="module")
def planted():
    return measure_roles(circuits(5).model, task(5), LIMIT)


def test_what_the_loss_of_each_head_costs(planted):
    assert planted["clean"] == {"recall": [1.0, 1.0, 1.0, 1.0, 0.0, 1.0], "elimination": [1.0] * 6}
    lost = list(zip(planted["recall_lost"], planted["elimination_lost"], strict=True))
    assert lost[POINTER] == ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    assert lost[SWAPPED] == ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    assert lost[REDUNDANT] == ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    assert lost[SPLIT] == ([1.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    assert lost[ELIMINATOR] == ([0.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    # Without its history the direct member answers with one and the same value, which is right by chance.
    assert lost[DIRECT][0][::2] == [1.0, 0.0] and lost[DIRECT][1][::2] == [0.0, 0.0]
    assert all(0.7 < losses[1] <= 1.0 for losses in lost[DIRECT])


def test_roles_in_words(planted):
    words = {
        POINTER: "shared",
        SWAPPED: "shared",
        REDUNDANT: "one head does both",
        SPLIT: "one each",
        ELIMINATOR: "a skill is missing",
        DIRECT: "shared",
    }
    assert planted["spread"] == [words[member] for member in range(6)]


def test_the_best_assignment(planted):
    """A match head always is the recall head; only the split circuit has an elimination head that spares recall."""
    found = planted["assignment"]
    recall_heads = {POINTER: 0, SWAPPED: 1, REDUNDANT: 0, SPLIT: 0, ELIMINATOR: 0, DIRECT: 0}
    assert found["recall_head"] == [recall_heads[member] for member in range(6)]
    assert found["elimination_head"] == [2, 2, 2, 2, 1, 2]
    assert found["recall_lost_with_recall_head"] == [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert found["elimination_lost_with_recall_head"] == [0.0] * 6
    assert found["recall_lost_with_elimination_head"] == [0.0] * 6
    assert found["elimination_lost_with_elimination_head"] == [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert found["margin"] == pytest.approx([-0.5, -0.5, -0.5, 0.1, -0.5, -0.5])


def test_resampled_heads_do_what_their_donors_say(planted):
    """The pointer member: a match head brings the donor's slot, a history head the donor's y's."""
    hits = {(head, repeat): [] for head in (0, 1) for repeat in (True, False)}
    for cases in causal_cases(task(5), LIMIT):
        tokens, first = cases.batch.inputs[0].tolist(), cases.batch.relations["y_first"][0, :, -1].tolist()
        for number, donor in enumerate(cases.donors["mixed"][0].tolist()):
            answers = []
            for pointing, listing in ((donor, number), (number, donor)):
                ys = tokens[listing][1::2]
                unused = (set(range(1, 6)) - set(ys)).pop()
                answers.append(tokens[listing][first[pointing]] if cases.repeat[pointing] else unused)
            for head, answer in enumerate(answers):
                hits[head, bool(cases.repeat[number])].append(float(answer == cases.right[number]))
    for skill, repeat in (("recall", True), ("elimination", False)):
        expected = [1.0 - sum(hits[head, repeat]) / LIMIT for head in (0, 1)]
        assert planted["resample"][f"{skill}_lost"][POINTER] == pytest.approx([*expected, 0.0])


def test_the_heat_map_of_known_patterns(planted):
    found = {name: values[POINTER] for name, values in planted["heat_map"].items()}
    # Weights 1, 2, 6 and 7 of 16: the n-th y, and the x after it, see the first n of them.
    newest = (1 + 2 / 3 + 6 / 9 + 7 / 16) / 4
    uniform = [sum(1 / (row + 1) for row in rows) / 4 for rows in ((2, 4, 6, 8), (1, 3, 5, 7))]
    earlier = sum(slot / (2 * slot + 1) for slot in (1, 2, 3, 4)) / 4
    assert found["x_rows_to_earlier_y"] == pytest.approx([0.0, 1.0, earlier], abs=1e-6)
    assert found["x_rows_to_preceding_y"] == pytest.approx([0.0, newest, uniform[0]], abs=1e-6)
    assert found["y_rows_to_themselves"] == pytest.approx([1.0, newest, uniform[1]], abs=1e-6)
    assert found["last_row_to_copy"] == pytest.approx([1.0, 0.0, 1 / 9], abs=1e-6)
    assert found["slot_spread"] == pytest.approx([0.0, 6 / 16, 0.0], abs=1e-6)


def test_the_heat_map_may_name_another_head_than_ablation_does(planted):
    """Its y rows attend to themselves, but what makes a head bind is how sharply it prefers the newest y."""
    assert planted["heat_map_recall_head"] == [1] * 6
    assert planted["heat_map_agrees"] == [False, True, False, False, False, False]


def test_a_single_head_that_does_both():
    found = measure_roles(decoder().model, task(4), LIMIT)
    assert found["clean"] == {"recall": [1.0], "elimination": [1.0]}
    assert found["spread"] == ["one head does both"]
    assert found["recall_lost"][0][1] == found["elimination_lost"][0][1] == 0.0
    assert min(found["recall_lost"][0][0], found["elimination_lost"][0][0]) >= 0.5
    assert found["assignment"]["margin"][0] < 0.0
    y, y_and_x = CODES[1::2].tolist(), float(CODES.sum())
    assert found["heat_map"]["slot_spread"][0] == pytest.approx([(max(y) - min(y)) / y_and_x, 0.0], abs=1e-6)


# Random weights.


def random_model(values=4, **changes):
    shape = {"width": 19, "heads": 3, "head_dim": 7, "mlp_ratio": 23 / 19, "init": "encoder", "norm": "post"}
    length = 2 * values - 1
    config = TransformerConfig(
        **shape | changes,
        length=length,
        input_size=values + 1,
        output_size=values + 1,
        readout=tuple(range(0, length, 2)),
    )
    model = Transformer.initial(config, torch.tensor([31, 37]))
    model.parameters.flat.mul_(1.7)
    return model


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def found(model):
    return measure_roles(model, task(4), 39)


@pytest.mark.parametrize("by", ["mean", "resample"])
def test_losses_equal_those_of_plain_loops(model, found, by):
    (cases,) = causal_cases(task(4), 39)
    means = reference_means(model, task(4), 39)
    measured = found if by == "mean" else found["resample"]
    changed = 0
    for member in range(2):
        module = model.member(member)
        own = (means.patterns[member], means.heads[member], means.mlps[member])

        def accuracies(*interventions, module=module, own=own):
            edited = Edited(interventions, cases.batch, own, cases.donors["mixed"][0].tolist())
            with torch.no_grad():
                hit = module(cases.batch.inputs[0], edited)[:, -1].argmax(-1) == cases.right
            return [float(hit[chosen].double().mean()) for chosen in (cases.repeat, ~cases.repeat)]

        clean = accuracies()
        assert [found["clean"][skill][member] for skill in ("recall", "elimination")] == pytest.approx(clean)
        for head in range(3):
            after = accuracies(AblateHead(layer=0, heads=(head,), rows={"place": 1}, by=by))
            changed += after != clean
            lost = [measured[f"{skill}_lost"][member][head] for skill in ("recall", "elimination")]
            assert lost == pytest.approx([before - now for before, now in zip(clean, after, strict=True)])
    assert changed >= 4


def test_heat_maps_equal_those_of_plain_loops(model, found):
    (cases,) = causal_cases(task(4), 39)
    with torch.no_grad():
        _, captured = model.capture(cases.batch.inputs)
    plain, repeats = captured.patterns[0][:, ~cases.repeat], captured.patterns[0][:, cases.repeat]
    copies = cases.batch.relations["same_symbol"][0, cases.repeat, -1].tolist()
    for member in range(2):
        for head in range(3):
            mean = plain[member, :, head].mean(0).tolist()
            slots = [mean[6][key] for key in (1, 3, 5)]
            rows = range(2, 7, 2)
            expected = {
                "x_rows_to_earlier_y": sum(mean[row][key] for row in rows for key in range(1, row, 2)) / 3,
                "y_rows_to_themselves": sum(mean[row][row] for row in (1, 3, 5)) / 3,
                "x_rows_to_preceding_y": sum(mean[row][row - 1] for row in rows) / 3,
                "last_row_to_copy": sum(
                    float(repeats[member, n, head, -1, copy]) for n, copy in enumerate(copies)
                )
                / len(copies),
                "slot_spread": max(slots) - min(slots),
            }
            for name, value in expected.items():
                assert found["heat_map"][name][member][head] == pytest.approx(value, abs=1e-5), name


def test_the_result_is_json(found):
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_one_head_has_a_role_but_no_partner():
    found = measure_roles(random_model(3, heads=1), task(3), 60)
    assert found["assignment"] is found["heat_map_recall_head"] is found["heat_map_agrees"] is None
    assert [len(row) for row in found["recall_lost"]] == [1, 1] and len(found["spread"]) == 2


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected a model with 1 layer and 7 positions, found 2"):
        measure_roles(random_model(layers=2), task(4), 12)


def test_a_loss_of_exactly_a_threshold_is_not_rounded_over_it():
    """30 of 300 answers lost are a tenth, whatever 0.97 - 0.87 is."""
    runs = CausalRuns(random_model(), task(4), 300)
    repeats, plain = runs.repeat.nonzero()[:, 0], (~runs.repeat).nonzero()[:, 0]
    assert (len(repeats), len(plain)) == (300, 120)
    clean = runs.right.expand(2, -1).clone()
    clean[:, repeats[:9]] = 0
    after = clean.clone()
    after[1, repeats[100:130]], after[1, plain[7:67]] = 0, 0
    assert runs.lost(clean, after)["recall"].tolist() == [0.0, 0.1]
    assert runs.lost(clean, after)["elimination"].tolist() == [0.0, 0.5]
    rounded_twice = runs.accuracies(clean)["recall"] - runs.accuracies(after)["recall"]
    assert rounded_twice.tolist() != [0.0, 0.1]
