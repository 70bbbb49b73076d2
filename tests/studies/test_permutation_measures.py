"""Analysis files as rows of the evidence table."""

import json
import math

import pytest

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.measures import measurements, of_member
from hopscope.studies.permutation.measures import rows as rows_of

from .analysed import looked_up, records
from .cells import table
from .made_up import evidence


def places(record, members, measure="probes"):
    """Metric, part, split and head → values by member."""
    found = {}
    for place in range(members):
        for row in rows_of(7 + place, measure, of_member(record, place, members), (5, 35), "f"):
            assert (row.member, row.measure, row.step, row.samples, row.file) == (
                7 + place,
                measure,
                5,
                35,
                "f",
            )
            assert row.layer == (None if row.head is None else 0)
            found.setdefault((row.metric, row.part, row.split, row.head), []).append(row.value)
    return found


def test_a_list_over_members_is_a_number_of_each():
    assert places({"recall": [0.5, None, 0.25]}, 3) == {("recall", None, "held_out", None): [0.5, None, 0.25]}


def test_nested_keys_are_the_part():
    record = {"mlp_ablation": {"mean": {"recall": [0.5, 0.25]}, "zero": None}}
    assert places(record, 2) == {("recall", "mlp_ablation.mean", "held_out", None): [0.5, 0.25]}


def test_conditions_are_never_the_metric():
    record = {"swap": {"mass_moved": {"repeats": [1.0, 2.0], "plain": [3.0, 4.0]}}}
    assert places(record, 2) == {
        ("mass_moved", "swap.repeats", "held_out", None): [1.0, 2.0],
        ("mass_moved", "swap.plain", "held_out", None): [3.0, 4.0],
    }


def test_splits_come_from_keys_and_names():
    record = {
        "pointer": {"linear": {"train": [1.0], "held_out": [2.0]}},
        "kl_uniform_train": [[3.0]],
        "kl_uniform_held_out": [[4.0]],
        "train_minus_held_out": [5.0],
        "memorised_share": [6.0],
        "held_out_loss": [7.0],
    }
    assert places(record, 1) == {
        ("pointer", "linear", "train", None): [1.0],
        ("pointer", "linear", "held_out", None): [2.0],
        ("kl_uniform", "step_1", "train", None): [3.0],
        ("kl_uniform", "step_1", "held_out", None): [4.0],
        ("train_minus_held_out", None, "held_out", None): [5.0],
        ("memorised_share", None, "train", None): [6.0],
        ("held_out_loss", None, "held_out", None): [7.0],
    }


def test_inner_lists_run_over_heads_steps_or_slots():
    heads = places({"by_head": {"stays": [[1.0, 2.0, 3.0], [4.0, None, 6.0]]}}, 2, "battery")
    assert heads == {
        ("stays", None, "held_out", head): [1.0 + head, [4.0, None, 6.0][head]] for head in range(3)
    }
    record = {"accuracy_by_step": [[1.0, 2.0]], "recall_by_slot": [[3.0, 4.0]], "mae": [[5.0, 6.0]]}
    assert places(record, 1) == {
        ("accuracy", "step_1", "held_out", None): [1.0],
        ("accuracy", "step_2", "held_out", None): [2.0],
        ("recall", "slot_1", "held_out", None): [3.0],
        ("recall", "slot_2", "held_out", None): [4.0],
        ("mae", "step_1", "held_out", None): [5.0],
        ("mae", "step_2", "held_out", None): [6.0],
    }


def test_facts_are_true_of_every_member():
    """Their lists are not over members, even where they are as long."""
    record = {
        "exhaustive": {"plain": True, "repeats": False},
        "floors": {"majority": {"history": [0.5, 0.25]}, "used": 0.125},
        "sequences": {"repeats": {"train": 7}},
        "recall_floor": {"guess": [None, 0.5]},
        "training_floor": None,
    }
    assert places(record, 2, "decoding") == {
        ("exhaustive", "plain", "held_out", None): [1.0, 1.0],
        ("exhaustive", "repeats", "held_out", None): [0.0, 0.0],
        ("floors", "majority.history.slot_1", "held_out", None): [0.5, 0.5],
        ("floors", "majority.history.slot_2", "held_out", None): [0.25, 0.25],
        ("floors", "used", "held_out", None): [0.125, 0.125],
        ("sequences", "repeats", "train", None): [7.0, 7.0],
        ("recall_floor", "guess.slot_2", "held_out", None): [0.5, 0.5],
    }


@pytest.mark.parametrize(
    "record", [{"recall": [0.5, 0.25]}, {"recall": [0.5, 0.25, "high"]}, {"recall": 0.5}]
)
def test_other_records_are_refused(record):
    with pytest.raises((ValueError, TypeError), match=r"expected|has no len"):
        places(record, 3)


def test_a_damaged_analysis_is_named():
    found = evidence("d32/2 repeats", seeds=3, recall=[0.5, 0.25, 0.75])
    found.records["probes"]["recall"].pop()
    with pytest.raises(UserError, match=r"units/u/analysis/probes\.json: expected the probes of 3 members"):
        found.rows(PermutationStudyConfig())


def test_what_never_happened_is_infinite_and_what_is_unknown_is_missing():
    cells = [evidence("d32/2 repeats", seeds=3, rise=[100.0, None, 100.0], frozen=[102])]
    width = table(cells, PermutationStudyConfig()).last(
        "relative_width", measure="transition", part="from_zero"
    )
    assert 0 < width[0] < 1
    assert width[1] == math.inf
    assert math.isnan(width[2])


# Whole runs.


@pytest.fixture(scope="module")
def run(whole_run):
    return RunFolder(whole_run)


@pytest.fixture(scope="module")
def rows(run):
    return list(measurements(run, PermutationStudyConfig.model_validate(run.config)))


@pytest.fixture(scope="module")
def found(run, rows):
    members = [
        {**record.model_dump(), "configuration": run.unit(record.unit).record["label"]}
        for record in run.members
    ]
    return Evidence.of(members, rows, run.config)


NAME = "d32/2 repeats"
"""A configuration of which everything was measured."""


def leaves(value):
    """Every number of nested records, truth values and nothings included."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for entry in value for leaf in leaves(entry)]
    return [] if isinstance(value, str) else [value]


def test_every_number_of_the_analyses_is_a_row(run, rows):
    """A number that no row has would be one that no claim, figure or page could name."""
    values = {}
    for row in rows:
        values.setdefault(row.file, set()).add(row.value)
    left_out = {"members", "step", "model", "tokens", "mapping", "questions", "checkpoints"}
    for path in sorted(run.path.glob("units/*/analysis/*.json")):
        file = str(path.relative_to(run.path))
        record = json.loads(path.read_text(encoding="utf-8"))
        for name in left_out:
            record.pop(name, None)
        for sequence in record.get("sequences", {}).values() if "worked" in path.name else ():
            for name in left_out:
                sequence.pop(name, None)
        assert {leaf for leaf in leaves(record) if leaf is not None} <= values[file], file


def test_every_member_has_every_metric_of_its_configuration(run, found):
    config = PermutationStudyConfig.model_validate(run.config)
    frame = found.rows(split=None)
    frame = frame[frame["measure"] != "training"]
    assert not frame.duplicated(
        ["member", "measure", "metric", "split", "step", "part", "layer", "head"]
    ).any()
    members = {}
    for member in run.members:
        members.setdefault(run.unit(member.unit).record["label"], []).append(member.member)
    assert list(members) == [configuration.name for configuration in config.grid()]
    for configuration in config.grid():
        here = frame[frame["configuration"] == configuration.name]
        counts = here.groupby("member").size()
        assert sorted(counts.index) == members[configuration.name]
        assert counts.nunique() == 1, configuration.name
        last = here[here["measure"] != "formation"]
        training = config.training(configuration)
        assert set(last["step"]) == {training.steps}
        assert set(last["samples"]) == {training.steps * training.batch_size}
        assert all((run.path / file).is_file() for file in here["file"].unique())


@pytest.mark.parametrize(
    ("metric", "measure", "where", "path"),
    [
        ("recall", "probes", {}, "recall"),
        ("recall", "probes", {"part": "slot_2"}, "recall_by_slot.[m].1"),
        ("accuracy", "posteriors", {"part": "step_4", "split": "train"}, "accuracy_train_by_step.[m].3"),
        ("recall", "battery", {"part": "mlp_ablation.mean"}, "mlp_ablation.mean.recall"),
        ("last_row_change", "battery", {"part": "earlier_rows.random.plain"},
         "earlier_rows.last_row_change.random.plain"),
        ("to_other", "battery", {"part": "y_swap", "layer": 0, "head": 1}, "y_swap.by_head.to_other.[m].1"),
        ("recall_lost", "roles", {"layer": 0, "head": 1}, "recall_lost.[m].1"),
        ("recall_lost_with_recall_head", "roles", {"part": "assignment"}, "assignment.recall_lost_with_recall_head"),
        ("answer", "decoding", {"part": "untrained.repeats.before.mlp"}, "untrained.repeats.before.mlp.held_out"),
        ("history", "decoding", {"part": "slot_3.linear", "split": "train"}, "history.2.linear.train"),
        ("recall", "slots", {"part": "slot_4.source_2"}, "recall.[m].3.1"),
        ("match", "formation", {"layer": 0, "head": 0}, "match.[m].-1.0"),
        ("formed", "formation", {"part": "history.before"}, "order.[m].parts.history.before"),
    ],
)  # fmt: skip
def test_rows_are_the_numbers_of_the_analyses(run, found, metric, measure, where, path):
    series = found.last(metric, measure=measure, configuration=NAME, **where)
    expected = looked_up(run, NAME, measure, path)
    assert list(series.index) == list(expected)
    assert series.tolist() == pytest.approx(list(expected.values()), nan_ok=True)


def test_roles_in_words_are_truth_values(run, found):
    words = looked_up(run, NAME, "roles", "spread")
    for word in ("one each", "shared", "a skill is missing"):
        shown = found.last("spread", measure="roles", part=word, configuration=NAME)
        assert shown.to_dict() == {member: float(each == word) for member, each in words.items()}


def test_formation_is_a_curve(run, found):
    curve = found.curve("history", measure="formation", configuration=NAME)
    record = next(records(run, NAME, "formation"))
    assert list(curve.index) == record["checkpoints"]["step"]
    for member, expected in looked_up(run, NAME, "formation", "history").items():
        assert curve[member].tolist() == expected


def test_attention_maps_stay_in_their_file(run, found):
    maps = found.rows("attention_pattern", part="repeat_of_3", configuration=NAME)
    assert maps["value"].isna().all() and len(maps) > 1
    assert all(file.endswith(".npz") and (run.path / file).is_file() for file in maps["file"])


def test_order_is_a_number(run, found):
    words = looked_up(run, NAME, "formation", "order.[m].orders.half.match.history")
    shown = found.last("order", measure="formation", part="half.match.history", configuration=NAME)
    numbers = {"before": -1.0, "tie": 0.0, "after": 1.0, "unknown": math.nan}
    assert shown.tolist() == pytest.approx([numbers[word] for word in words.values()], nan_ok=True)
