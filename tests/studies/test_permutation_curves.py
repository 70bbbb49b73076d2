"""What is read off the curves of a permutation run, from its folder."""

import json
import math
import shutil

import pytest

from hopscope.errors import UserError
from hopscope.runs import (
    RunFolder,
    load_checkpoint,
    save_checkpoint,
    write_evidence,
    write_json,
    write_part,
)
from hopscope.runs.curves import Metrics
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.measures import measurements, median_late, of_curves
from hopscope.studies.permutation.probes.change_points import transition


@pytest.fixture
def run(tmp_path):
    """Two members of one unit, without any record yet."""
    members = [
        {"member": n, "unit": "aaaaaaaaaaaa", "index": n, "seed": 5 + n,
         "overrides": {"width": 16, "heads": 1, "data": "plain"}}
        for n in (0, 1)
    ]  # fmt: skip
    return RunFolder.create(tmp_path, "permutation", {"a": 1}, members, None)


def write_losses(run, losses):
    """Mean training losses as (member, step, value)."""
    rows = {name: [] for name in ("member", "step", "samples", "split", "metric", "value")}
    for member, step, value in losses:
        for name, entry in zip(rows, (member, step, 7 * step, "train", "loss", value), strict=True):
            rows[name].append(entry)
    write_part(run.units[0].path, 0, 100, rows)


def last_epochs(run, configuration="d16/1 plain", gone=(), **fields):
    """Member → mean training loss of its last epoch."""
    config = PermutationStudyConfig(configurations=(configuration,), seeds=2, **fields)
    (unit,) = config.jobs()
    curves = {split: Metrics(run, split) for split in ("train", "held_out")}
    rows = [row for row in of_curves(unit, config, curves, gone) if row.measure == "last_epoch"]
    end = unit.training.steps
    for row in rows:
        assert (row.metric, row.split, row.part, row.file) == (
            "last_epoch_loss",
            "train",
            None,
            "metrics.parquet",
        )
        assert (row.step, row.samples) == (end, end * unit.training.batch_size)
    return {row.member: row.value for row in rows}


LOSSES = [(0, 2, 9.0), (0, 13, 7.0), (0, 17, 3.0), (0, 23, 2.0), (1, 2, 5.0), (1, 13, 1.0)]
"""Rows tell the mean since the row before: steps 1–2, 3–13, 14–17 and 18–23."""


@pytest.mark.parametrize("gathered", [False, True])
def test_last_epoch_weighs_rows_by_their_steps(run, gathered):
    write_losses(run, LOSSES)
    if gathered:
        write_evidence(run, [])
    found = last_epochs(run, samples_per_epoch=70, batch_size=7)  # ten steps: from 13 on
    assert found == {0: pytest.approx((4 * 3.0 + 6 * 2.0) / 10), 1: pytest.approx((11 * 1.0) / 11)}


@pytest.mark.parametrize(("batch", "expected"), [(14, 2.0), (5, (11 * 7.0 + 4 * 3.0 + 6 * 2.0) / 21)])
def test_the_last_epoch_has_the_steps_of_the_configurations_own_batch(run, batch, expected):
    """Five steps or fourteen, where the study's batch would have ten."""
    write_losses(run, LOSSES)
    found = last_epochs(run, f"d16/1 plain batch={batch}", samples_per_epoch=70, batch_size=7)
    assert found[0] == pytest.approx(expected)


def test_last_epoch_of_a_run_that_is_shorter(run):
    write_losses(run, [(0, 1, 3.0), (0, 5, 2.0)])
    found = last_epochs(run, samples_per_epoch=700, batch_size=7)
    assert found == {0: pytest.approx((3.0 + 4 * 2.0) / 5), 1: None}


def test_an_epoch_smaller_than_a_batch_is_the_last_row(run):
    write_losses(run, [(0, 1, 3.0), (0, 5, 2.0)])
    assert last_epochs(run, samples_per_epoch=3, batch_size=7) == {0: 2.0, 1: None}


def test_nothing_is_known_of_a_member_that_diverged(run):
    write_losses(run, LOSSES)
    found = last_epochs(run, gone={0}, samples_per_epoch=70, batch_size=7)
    assert found == {0: None, 1: pytest.approx(1.0)}


# Whole runs.


@pytest.fixture
def copy(small_run, tmp_path):
    """A finished run of one unit, to be changed."""
    shutil.copytree(small_run, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def rows_of(run, measure):
    """(metric, part) → member → value of the last step."""
    found = {}
    for row in measurements(run, PermutationStudyConfig.model_validate(run.config)):
        if row.measure == measure:
            found.setdefault((row.metric, row.part), {})[row.member] = row.value
    return found


def flat(value, part=()):
    """(metric, part) → every number of what `transition` says."""
    if not isinstance(value, dict):
        return {(part[-1], ".".join(part[:-1]) or None): value}
    return {
        place: number for name, each in value.items() for place, number in flat(each, (*part, name)).items()
    }


def test_how_sudden_recall_was_is_told_of_every_member(copy):
    """By samples, against the record of the run."""
    table, found = copy.metrics().to_pandas(), rows_of(copy, "transition")
    falls = {(name, "steepest_fall") for name in ("rate", "time", "low", "high")}
    for member in (0, 1):
        here = table[table["member"] == member]
        recall = here[(here["split"] == "held_out") & (here["metric"] == "recall")]
        losses = here[(here["split"] == "train") & (here["metric"] == "loss")].set_index("samples")["value"]
        samples = recall["samples"].tolist()
        assert len(samples) > 3
        said = transition(samples, recall["value"].tolist(), [losses.get(at) for at in samples], chance=1 / 4)
        assert set(said["steepest_fall"].values()) == {None}  # too short to have learned anything
        eliminated = here[(here["split"] == "held_out") & (here["metric"] == "elimination")]["value"].tolist()
        other = transition(samples, eliminated, [losses.get(at) for at in samples], chance=1 / 5)
        expected = flat(said) | flat(
            {way: other[way] for way in ("from_zero", "from_chance")}, ("elimination",)
        )
        assert set(found) == set(expected) >= falls
        for metric, part in set(expected) - falls:
            never = metric in ("time", "width", "widest", "relative_width")
            value = expected[metric, part]
            value = math.inf if value is None and never else value
            assert found[metric, part][member] == value, (metric, part)
        assert {found[place][member] for place in falls} == {None}


@pytest.mark.parametrize("broken", [{1}, {0, 1}])
def test_a_frozen_member_is_known_from_its_checkpoint(copy, broken):
    """Also where the log of events was lost; and all rows are there, even where no member has a number."""
    whole = rows_of(copy, "transition")
    (copy.path / "events.jsonl").unlink()
    path = copy.units[0].checkpoint_path(8)
    tensors, metadata = load_checkpoint(path)
    for member in broken:
        metadata["frozen_at"][copy.members[member].index] = 7
    save_checkpoint(path, tensors, metadata)
    for measure in ("last_epoch", "transition"):
        found = rows_of(copy, measure)
        known = {member for values in found.values() for member, value in values.items() if value is not None}
        assert known == {0, 1} - broken
        assert all(set(values) == {0, 1} for values in found.values())
    assert set(rows_of(copy, "transition")) == set(whole)


@pytest.mark.parametrize(
    "content",
    [{"step": 8}, {"members": {"0": 0.5}}, {"members": [0], "recall": [0.5]}, {"members": [1, 0]}],
)
def test_another_record_in_place_of_an_analysis_is_named(copy, content):
    path = copy.units[0].analysis_path("probes", 8)
    write_json(path, content)
    with pytest.raises(UserError) as caught:
        rows_of(copy, "probes")
    message = str(caught.value)
    file = path.relative_to(copy.path)
    assert message.startswith(f"{file}: expected the probes of 2 members, found another record (")
    assert "delete it" in message and "\n" not in message


@pytest.mark.parametrize(("name", "suffix"), [("probes", "json"), ("patterns", "npz")])
def test_a_missing_or_damaged_analysis_is_named(copy, name, suffix):
    path = copy.units[0].analysis_path(name, 8, suffix)
    path.write_bytes(path.read_bytes()[:10])
    for _ in ("damaged", "missing"):
        with pytest.raises(UserError) as caught:
            rows_of(copy, name)
        assert path.name.partition(".")[0] in str(caught.value) and "\n" not in str(caught.value)
        path.unlink(missing_ok=True)


def test_a_list_that_lacks_a_member_is_named(copy):
    path = copy.units[0].analysis_path("probes", 8)
    record = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {**record, "recall": record["recall"][:1]})
    with pytest.raises(UserError, match=r"probes-step-000000008\.json: expected the probes of 2 members"):
        rows_of(copy, "probes")


def test_the_late_median_is_over_the_last_steps_alone():
    curve = ([5, 7, 11, 13, 17], [0.9, 0.1, 0.4, 0.2, 0.8])
    assert median_late(curve, 7) == 0.4  # steps 11 to 17: after step 10
    assert median_late(curve, 6) == pytest.approx(0.5)  # 13 and 17: step 11 is six steps before the end
    assert median_late(curve, 100) == 0.4
    assert median_late(([], []), 5) is None
