"""The causal tests on circuits whose answers are known, and on random weights against plain loops over one module."""

import json

import pytest
import torch
from tests.oracles.edits import Edited

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    ReplacePattern,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import causal_cases
from hopscope.studies.permutation.probes import causal_tests as causal
from hopscope.studies.permutation.probes.causal_runs import CausalRuns, reference_means
from hopscope.studies.permutation.probes.causal_tests import measure_causal_tests
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

from .planted_recall import CODES, DIRECT, DISTINCT, ELIMINATOR, circuits, decoder

LIMIT = 240


def task(values=5, **changes):
    return PermutationTask(PermutationConfig(values=values, **{"repeat_ratio": 0.3} | changes))


def random_model(values=4, members=2, **changes):
    """Weights at which most interventions change some answers."""
    shape = {"width": 19, "heads": 2, "head_dim": 7, "mlp_ratio": 23 / 19, "init": "encoder", "norm": "post"}
    length = 2 * values - 1
    config = TransformerConfig(
        **shape | changes,
        length=length,
        input_size=values + 1,
        output_size=values + 1,
        readout=tuple(range(0, length, 2)),
    )
    model = Transformer.initial(config, torch.tensor([31, 37, 41][:members]))
    model.parameters.flat.mul_(1.7)
    return model


# Circuits.


@pytest.fixture(scope="module")
def planted():
    return measure_causal_tests(circuits(5).model, task(5), LIMIT)


def per_member(head_0, head_1, head_2):
    """Six members' shares by head, from the heads that hold each role: 1 where a member is named."""
    heads = (head_0, head_1, head_2)
    return [[float(member in named) for named in heads] for member in range(6)]


POINTING = per_member({0, 2, 3, 5}, {1}, set())
"""The head that recall follows; the redundant member (2) has another one for the case that it fails."""

SUMMING = per_member({1}, {0, 2, 3, 5}, set())
"""The head whose history recall reads."""

RECALLS = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
NOTHING, EVERYTHING = [0.0] * 6, [1.0] * 6


def unless_eliminator(by_head):
    """What stays where `by_head` does not move: nothing of a member that never recalls."""
    return [[recalls * (1.0 - moved) for moved in row] for recalls, row in zip(RECALLS, by_head, strict=True)]


@pytest.mark.parametrize("values", [3, 4, 5])
def test_the_circuits_solve_what_they_are_made_for(values, planted):
    found = planted if values == 5 else measure_causal_tests(circuits(values).model, task(values), LIMIT)
    assert found["clean"] == {"recall": RECALLS, "elimination": EVERYTHING}
    assert found["floors"] == {"uniform": 1 / values, "used": 1 / (values - 1)}
    assert found["sequences"] == {3: {"repeats": 12, "plain": 6}, 4: {"repeats": LIMIT, "plain": 120}}.get(
        values, {"repeats": LIMIT, "plain": LIMIT}
    )


def test_earlier_rows_do_not_matter_although_their_own_answers_change(planted):
    found = planted["earlier_rows"]
    for name in ("uniform", "identity", "random"):
        assert found["last_row_change"][name] == {"repeats": NOTHING, "plain": NOTHING}
        for changes in found["earlier_rows_change"][name].values():
            assert min(changes) > 0.5


def test_the_last_row_itself_needs_its_pattern(planted):
    """Read alone, its own token is the one that is not eliminated; the smallest other value wins."""
    found = planted["earlier_rows"]["last_row_replaced"]
    for skill in ("recall", "elimination"):
        assert found["uniform"][skill][:DIRECT] == NOTHING[:DIRECT]
    alone = {"repeats": [], "plain": []}
    for cases in causal_cases.causal_cases(task(5), LIMIT):
        last = cases.batch.inputs[0, :, -1]
        alone["repeats"] += (torch.where(last == 1, 2, 1) == cases.right)[cases.repeat].tolist()
        alone["plain"] += (torch.where(last == 1, 2, 1) == cases.right)[~cases.repeat].tolist()
    assert found["identity"]["recall"] == pytest.approx([sum(alone["repeats"]) / LIMIT] * 6)
    assert found["identity"]["elimination"] == pytest.approx([sum(alone["plain"]) / LIMIT] * 6)


@pytest.mark.parametrize(
    ("name", "heads"), [("position_code_swap", POINTING), ("attention_swap", POINTING), ("y_swap", SUMMING)]
)
def test_a_swap_moves_the_answer_by_the_head_that_reads_it(planted, name, heads):
    found = planted[name]
    assert found["to_other"] == RECALLS and found["stays"] == NOTHING
    assert found["neither"] == [1.0 - share for share in RECALLS]
    assert found["plain_accuracy"] == EVERYTHING and found["control_stays"] == RECALLS
    assert found["by_head"]["to_other"] == heads
    assert found["by_head"]["stays"] == unless_eliminator(heads)
    assert found["by_head"]["plain_accuracy"] == [[1.0] * 3] * 6


def test_only_a_matching_head_has_attention_to_move(planted):
    found = planted["attention_swap"]
    matching = per_member({0, 2, 3, 5}, {1}, {2})
    torch.testing.assert_close(torch.tensor(found["mass_moved"]["repeats"]), torch.tensor(matching))
    for nothing in (found["mass_moved"]["plain"], *found["control_mass_moved"].values()):
        torch.testing.assert_close(torch.tensor(nothing), torch.zeros(6, 3))


def test_equal_weights_of_the_y_end_recall_alone(planted):
    found = planted["equal_y_weights"]
    assert found["recall"] == NOTHING and found["elimination"] == EVERYTHING
    assert found["by_head"] == {"recall": unless_eliminator(SUMMING), "elimination": [[1.0] * 3] * 6}
    assert found["control_recall"] == RECALLS and found["control_elimination"] == EVERYTHING
    moved = sum(abs(weight - 0.25) for weight in DISTINCT[5]) / 2.0
    for kind in ("repeats", "plain"):
        expected = moved * torch.tensor(SUMMING)
        torch.testing.assert_close(torch.tensor(found["mass_moved"][kind]), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(torch.tensor(found["control_mass_moved"][kind]), torch.zeros(6, 3))


def test_without_the_ffn_only_direct_elimination_is_left(planted):
    direct = [float(member == DIRECT) for member in range(6)]
    for by in ("mean", "zero"):
        assert planted["mlp_ablation"][by] == {"recall": NOTHING, "elimination": direct}


def test_a_resampled_ffn_gives_the_donors_answer(planted):
    """But the eliminator's FFN knows the unused value only, and direct elimination is there without it."""
    hits = {True: [], False: []}
    for cases in causal_cases.causal_cases(task(5), LIMIT):
        donors, tokens = cases.donors["mixed"][0].tolist(), cases.batch.inputs[0]
        unused = [(set(range(1, 6)) - set(row)).pop() for row in tokens[:, 1::2].tolist()]
        for number, donor in enumerate(donors):
            theirs, right = int(cases.right[donor]), int(cases.right[number])
            by_member = [theirs] * 6
            by_member[ELIMINATOR] = unused[donor]
            by_member[DIRECT] = theirs if cases.repeat[donor] else unused[number]
            hits[bool(cases.repeat[number])].append([float(answer == right) for answer in by_member])
    expected = {
        "recall": torch.tensor(hits[True]).mean(0).tolist(),
        "elimination": torch.tensor(hits[False]).mean(0).tolist(),
    }
    assert planted["mlp_ablation"]["resample"]["recall"] == pytest.approx(expected["recall"])
    assert planted["mlp_ablation"]["resample"]["elimination"] == pytest.approx(expected["elimination"])


def test_interchanged_ffn_outputs_bring_the_donors_answer(planted):
    found = planted["mlp_interchange"]
    assert found["to_other"] == RECALLS and found["stays"] == NOTHING
    direct = [float(member == DIRECT) for member in range(6)]
    assert found["plain_to_other"] == [1.0 - share for share in direct] and found["plain_stays"] == direct
    assert found["earlier_rows_change"] == NOTHING and found["self_change"] == NOTHING
    # The direct member's FFN has nothing to say before the last row.
    assert min(found["earlier_rows_own_change"][:DIRECT]) > 0.5 > found["earlier_rows_own_change"][DIRECT]


def test_interchanged_heads_tell_which_one_points_and_which_one_lists(planted):
    found = planted["head_interchange"]
    assert found["to_other"] == RECALLS and found["plain_to_other"] == EVERYTHING
    assert found["stays"] == NOTHING and found["plain_stays"] == NOTHING
    assert found["by_head"]["to_other"] == POINTING
    assert found["by_head"]["stays"] == unless_eliminator(POINTING)
    listing = per_member({1}, {0, 2, 4, 5}, {3})
    assert found["by_head"]["plain_to_other"] == listing
    assert found["by_head"]["plain_stays"] == [[1.0 - share for share in row] for row in listing]
    assert found["earlier_rows_change"] == NOTHING and found["self_change"] == NOTHING
    assert min(found["earlier_rows_own_change"]) > 0.5


def test_recall_without_a_pointer_is_told_from_recall_with_one():
    """Position codes and the interchange of heads do not move it, all that it reads does."""
    found = measure_causal_tests(decoder().model, task(4), LIMIT)
    assert found["clean"] == {"recall": [1.0], "elimination": [1.0]}
    moved, unmoved = [[1.0, 0.0]], [[0.0, 0.0]]
    for name, heads in (("position_code_swap", unmoved), ("y_swap", moved), ("attention_swap", moved)):
        assert found[name]["by_head"]["to_other"] == heads
        assert found[name]["to_other"] == heads[0][:1] and found[name]["stays"] == [1.0 - heads[0][0]]
        assert found[name]["control_stays"] == [1.0] and found[name]["plain_accuracy"] == [1.0]
    assert found["equal_y_weights"]["recall"] == [0.0] and found["equal_y_weights"]["elimination"] == [1.0]
    assert found["mlp_interchange"]["to_other"] == [1.0] and found["head_interchange"]["stays"] == [1.0]
    for test in ("mlp_interchange", "head_interchange"):
        assert found[test]["self_change"] == [0.0] and found[test]["earlier_rows_change"] == [0.0]


def test_attention_that_a_decoder_moves():
    """Weights of x₁, x₂ and x₃ are 1, 2 and 3 of 38, of the y's 4, 8 and 20; its idle head's are all the same."""
    found = measure_causal_tests(decoder().model, task(4), 12)
    xs, total = CODES[:-1:2].tolist(), float(CODES.sum())
    (cases,) = causal_cases.causal_cases(task(4), 12)
    moved = {(True, "first"): [], (True, "second"): [], (False, "first"): [], (False, "second"): []}
    for number, repeat in enumerate(cases.repeat.tolist()):
        place = [
            int(cases.batch.relations[f"x_{n}"][0, number, 0]) // 2 for n in ("first", "second", "third")
        ]
        moved[repeat, "first"].append(abs(xs[place[0]] - xs[place[1]]) / total)
        moved[repeat, "second"].append(abs(xs[place[1]] - xs[place[2]]) / total)
    for name, one in (("mass_moved", "first"), ("control_mass_moved", "second")):
        for kind, repeat in (("repeats", True), ("plain", False)):
            expected = sum(moved[repeat, one]) / len(moved[repeat, one])
            assert found["attention_swap"][name][kind] == [[pytest.approx(expected, abs=1e-6), 0.0]]
    ys = [4.0, 8.0, 20.0]
    expected = sum(abs(y - sum(ys) / 3) for y in ys) / 2 / total
    assert found["equal_y_weights"]["mass_moved"]["plain"][0] == pytest.approx([expected, 0.0], abs=1e-6)


def test_several_chunks_change_no_exact_number(planted):
    limit = causal_cases.CHUNK // 2 + 4
    assert [len(causal_cases.causal_cases(task(5), each)) for each in (LIMIT, limit)] == [1, 2]
    found = measure_causal_tests(circuits(5).model, task(5), limit)
    for name in ("clean", "position_code_swap", "y_swap", "mlp_interchange", "head_interchange"):
        assert found[name] == planted[name]


# Random weights.


def site(relation):
    return Site(roles={"step": 4, "kind": 0}, relation=relation)


LAST, EARLIER = {"place": 1}, {"place": 0}
PATH = {
    ("clean",): (None, "self"),
    ("position_code_swap",): (
        SwapValues(layer=0, what="position", first=site("x_first"), second=site("x_second")),
        "self",
    ),
    ("y_swap",): (
        SwapValues(layer=0, what="symbol", first=site("y_first"), second=site("y_second")),
        "self",
    ),
    ("attention_swap",): (
        SwapAttention(layer=0, rows=LAST, first=site("x_first"), second=site("x_second")),
        "self",
    ),
    ("equal_y_weights",): (EqualizeAttention(layer=0, rows=LAST, keys={"kind": 1}), "self"),
    ("mlp_ablation", "mean"): (AblateMLP(layer=0, rows=LAST, by="mean"), "self"),
    ("mlp_ablation", "resample"): (AblateMLP(layer=0, rows=LAST, by="resample"), "mixed"),
    ("mlp_ablation", "zero"): (AblateMLP(layer=0, rows=LAST, by="zero"), "self"),
    ("mlp_interchange",): (AblateMLP(layer=0, rows=LAST, by="resample"), "other"),
    ("head_interchange",): (AblateHead(layer=0, rows=LAST, by="resample"), "other"),
    ("earlier_rows", "last_row_replaced", "uniform"): (
        ReplacePattern(layer=0, rows=LAST, by="uniform"),
        "self",
    ),
    ("earlier_rows", "last_row_replaced", "identity"): (
        ReplacePattern(layer=0, rows=LAST, by="identity"),
        "self",
    ),
    ("earlier_rows", "last_row_replaced", "random"): (
        ReplacePattern(layer=0, rows=LAST, by="matrix", matrix=causal.random_pattern(0, 7)),
        "self",
    ),
}
CONTROLS = {
    ("position_code_swap", "control_stays"): SwapValues(
        layer=0, what="position", first=site("x_second"), second=site("x_third")
    ),
    ("y_swap", "control_stays"): SwapValues(
        layer=0, what="symbol", first=site("y_second"), second=site("y_third")
    ),
    ("attention_swap", "control_stays"): SwapAttention(
        layer=0, rows=LAST, first=site("x_second"), second=site("x_third")
    ),
    ("equal_y_weights", "control_recall"): EqualizeAttention(layer=0, rows=LAST, keys={"idle": 1}),
}


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def found(model):
    return measure_causal_tests(model, task(4), 39)


@pytest.fixture(scope="module")
def cases():
    (only,) = causal_cases.causal_cases(task(4), 39)
    return only


def slow_answers(model, cases, member, interventions, donors="self"):
    """One member's answers at the last row, from the plain module."""
    means = reference_means(model, task(4), 39)
    own = (means.patterns[member], means.heads[member], means.mlps[member])
    module = model.member(member)
    edited = Edited(interventions, cases.batch, own, cases.donors[donors][0].tolist(), module=module)
    with torch.no_grad():
        return module(cases.batch.inputs[0], edited)[:, -1].argmax(-1).tolist()


def shares(cases, given):
    """Every reading of these answers, by the name that it has among the causal tests."""
    rows = list(zip(given, cases.right.tolist(), cases.other.tolist(), cases.repeat.tolist(), strict=True))
    repeats, plain = [row for row in rows if row[3]], [row for row in rows if not row[3]]

    def share(rows, column):
        return sum(row[0] == row[column] for row in rows) / len(rows)

    return {
        "recall": share(repeats, 1),
        "elimination": share(plain, 1),
        "plain_accuracy": share(plain, 1),
        "stays": share(repeats, 1),
        "to_other": share(repeats, 2),
        "neither": 1.0 - share(repeats, 1) - share(repeats, 2),
        "plain_stays": share(plain, 1),
        "plain_to_other": share(plain, 2),
        "control_stays": share(repeats, 1),
        "control_recall": share(repeats, 1),
    }


def followed(found, path):
    for name in path:
        found = found[name]
    return found


@pytest.mark.parametrize("path", PATH, ids=lambda path: " ".join(path))
def test_every_reading_equals_that_of_plain_loops(model, found, cases, path):
    intervention, donors = PATH[path]
    measured = followed(found, path)
    names = set(measured) & set(shares(cases, [0] * len(cases.right))) - {"control_stays", "control_recall"}
    assert len(names) >= 2
    for member in range(2):
        given = slow_answers(model, cases, member, [intervention] if intervention else [], donors)
        expected = shares(cases, given)
        for name in names:
            assert measured[name][member] == pytest.approx(expected[name]), name
        for head in range(2 if "by_head" in measured else 0):
            one = intervention.model_copy(update={"heads": (head,)})
            expected = shares(cases, slow_answers(model, cases, member, [one], donors))
            for name, values in measured["by_head"].items():
                assert values[member][head] == pytest.approx(expected[name]), (name, head)


@pytest.mark.parametrize("path", CONTROLS, ids=lambda path: " ".join(path))
def test_every_control_equals_that_of_plain_loops(model, found, cases, path):
    for member in range(2):
        expected = shares(cases, slow_answers(model, cases, member, [CONTROLS[path]]))[path[-1]]
        assert followed(found, path)[member] == pytest.approx(expected)


def test_random_weights_answer_otherwise_under_most_interventions(model, cases):
    """Otherwise the equalities above would hold for tests that do nothing."""
    clean = slow_answers(model, cases, 0, [])
    edits = [(edit, donors) for edit, donors in PATH.values() if edit] + [
        (e, "self") for e in CONTROLS.values()
    ]
    changed = [slow_answers(model, cases, 0, [edit], donors) != clean for edit, donors in edits]
    assert sum(changed) >= len(edits) - 2


def test_random_weights_keep_the_exact_zeros(found):
    for kinds in found["earlier_rows"]["last_row_change"].values():
        assert kinds == {"repeats": [0.0, 0.0], "plain": [0.0, 0.0]}
    for test in ("mlp_interchange", "head_interchange"):
        assert found[test]["earlier_rows_change"] == found[test]["self_change"] == [0.0, 0.0]
        assert min(found[test]["earlier_rows_own_change"]) > 0.01
    for kinds in found["earlier_rows"]["earlier_rows_change"].values():
        assert min(kinds["repeats"] + kinds["plain"]) > 0.01


def test_the_zeros_are_not_zero_for_what_does_matter(model):
    """The measurement behind them sees the rows that are edited, and no others."""
    runs = CausalRuns(model, task(4), 39)
    for edit in (
        ReplacePattern(layer=0, rows=LAST, by="uniform"),
        AblateMLP(layer=0, rows=LAST, by="resample"),
    ):
        for change in runs.changes(edit, donors="other").values():
            assert (change.last > 0.01).all() and not change.earlier.any()


def test_moved_mass_equals_that_of_patterns(model, found, cases):
    with torch.no_grad():
        _, captured = model.capture(cases.batch.inputs)
    for number, repeat in enumerate((True, False)):
        kind = ("repeats", "plain")[number]
        moved = []
        for sample in range(len(cases.repeat)):
            if bool(cases.repeat[sample]) == repeat:
                rows = captured.patterns[0][:, sample, :, -1]
                first, second = (
                    int(cases.batch.relations[f"x_{n}"][0, sample, 0]) for n in ("first", "second")
                )
                moved.append((rows[..., first] - rows[..., second]).abs())
        expected = torch.stack(moved).mean(0)
        measured = torch.tensor(found["attention_swap"]["mass_moved"][kind])
        torch.testing.assert_close(measured, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("values", "chunks"), [(3, 1), (4, 2)])
@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_reference_means_are_those_of_the_training_mixture(values, chunks, ratio):
    asked, model = task(values, repeat_ratio=ratio), random_model(values)
    assert len(causal_cases.causal_cases(asked, 10_000, "train")) == chunks
    found = reference_means(model, asked, 10_000)
    kinds = [asked.evaluation(data, "train").inputs for data in ("plain", "repeats")]
    plain, repeats = (model.means(inputs) for inputs in kinds)
    for name in ("patterns", "heads", "mlps"):
        expected = (1.0 - ratio) * getattr(plain, name) + ratio * getattr(repeats, name)
        torch.testing.assert_close(getattr(found, name), expected, rtol=1e-4, atol=1e-5)


# Other models and tasks.


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (3, {}),
        (6, {"heads": 1, "members": 1}),
        (7, {"norm": "pre", "positions": "pair"}),
        (8, {"heads": 3, "members": 1, "positions": "none"}),
    ],
)
def test_other_shapes(values, changes):
    model = random_model(values, **changes)
    found = measure_causal_tests(model, task(values), 60)
    heads, members = model.config.heads, model.members
    assert (found["position_code_swap"] is None) == (model.config.positions == "none")
    for name in ("position_code_swap", "y_swap", "attention_swap", "head_interchange"):
        if found[name] is not None:
            by_head = found[name]["by_head"]["to_other"]
            assert len(by_head) == members and all(len(row) == heads for row in by_head)
            assert heads > 1 or [row[0] for row in by_head] == found[name]["to_other"]
    assert (found["y_swap"]["control_stays"] is None) == (values == 3)
    assert all(
        (found["equal_y_weights"][f"control_{name}"] is None) == (values == 3)
        for name in ("recall", "elimination", "mass_moved")
    )
    assert found["earlier_rows"]["last_row_change"]["random"]["plain"] == [0.0] * members
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_model_without_ffn_has_no_tests_of_it():
    found = measure_causal_tests(random_model(mlp_ratio=0.0), task(4), 12)
    assert found["mlp_ablation"] is None and found["mlp_interchange"] is None
    assert found["head_interchange"]["self_change"] == [0.0, 0.0]


def test_repeats_elsewhere_or_none_in_training_change_only_the_references():
    planted = circuits(4).model
    for changes in ({"repeat_ratio": 0.0}, {"repeat_slots": (2, 3)}):
        found = measure_causal_tests(planted, task(4, **changes), 60)
        assert found["clean"]["recall"] == RECALLS and found["position_code_swap"]["to_other"] == RECALLS


@pytest.mark.parametrize(
    ("changes", "values", "complaint"),
    [
        ({"layers": 2}, 4, "expected a model with 1 layer and 7 positions, found 2 and 7"),
        ({}, 5, "expected a model with 1 layer and 9 positions, found 1 and 7"),
    ],
)
def test_models_that_do_not_fit_are_refused(changes, values, complaint):
    with pytest.raises(ValueError, match=complaint):
        measure_causal_tests(random_model(**changes), task(values), 12)


def test_a_random_pattern_is_a_causal_one_of_its_seed():
    pattern = torch.tensor(causal.random_pattern(3, 11))
    torch.testing.assert_close(pattern.sum(-1), torch.ones(11))
    assert torch.equal(pattern, pattern.tril()) and (pattern[pattern.tril() > 0] > 0).all()
    assert causal.random_pattern(3, 11) == causal.random_pattern(3, 11) != causal.random_pattern(5, 11)
    assert 0.05 < float(pattern[-1].std()) < 0.09
