"""The study of emergence from end to end, on a small run whose members learn."""

import csv
import shutil

import numpy as np
import pytest

from hopscope.circuits.config import formation_name, maps_name
from hopscope.claims.crossings import first_crossing
from hopscope.report.record import read_run
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.circuit_study.members import gather
from hopscope.studies.emergence import clamps
from hopscope.studies.emergence.config import EmergenceConfig, clamps_name
from hopscope.training.budget import TimeBudget
from hopscope.training.config import job_of


@pytest.fixture(scope="module")
def run(emergence_run):
    return RunFolder.open(emergence_run)


@pytest.fixture(scope="module")
def config(run):
    return EmergenceConfig.model_validate(run.config)


@pytest.fixture(scope="module")
def members(run, config):
    return gather(run, config)


def rows_of(run, name):
    with (run.path / "figures" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.long
def test_the_run_is_done_with_every_figure_and_picture(run, config):
    assert (run.path / "DONE").is_file()
    for name in (figure.name for figure in find_study("emergence").figures(config)):
        for suffix in ("vl.json", "csv", "svg", "png"):
            assert (run.path / "figures" / f"{name}.{suffix}").is_file(), name
    assert (run.path / "figures" / "circuit-0.svg").is_file()


def place(path):
    return path["layer"], path["head"], path["query_role"]


def test_a_picture_says_how_much_of_the_circuit_it_shows(run, members):
    story, of = run.read_json("story.json"), {member.member: member for member in members}
    blocks = [block for section in story["sections"] for block in section["blocks"]]
    views = [each["view"] for block in blocks if block["kind"] == "circuit" for each in block["circuits"]]
    assert len(views) == len([member for member in members if member.paths])
    for view in views:
        member, drawn = of[view["member"]], {(path["layer"], path["head"]) for path in view["paths"]}
        assert len(view["paths"]) + view["undrawn"] == len(member.reading["paths"])
        shown = [*view["paths"], *view["listed"]]
        assert sorted(map(place, shown)) == sorted(map(place, member.reading["paths"]))
        assert len(drawn) + view["undrawn_heads"] == len(member.heads)


def test_members_learned_and_were_read(members):
    assert [(member.init_seed, member.data_seed) for member in members] == [(0, 0), (1, 1), (0, 1), (1, 0)]
    assert all(member.learned == (1,) for member in members)
    assert sum(member.was_read for member in members) >= 3


def test_crossed_members_begin_alike_and_differ_later(run, members):
    weights = {}
    for member in members:
        place = next(record.index for record in run.members if record.member == member.member)
        for step in (0, 200):
            _, tensors, _ = member.unit.checkpoint(step)
            flat = [tensors[name][place].ravel() for name in sorted(tensors) if name.startswith("weights/")]
            weights[member.init_seed, member.data_seed, step] = np.concatenate(flat)
    assert np.array_equal(weights[0, 0, 0], weights[0, 1, 0])
    assert not np.array_equal(weights[0, 0, 0], weights[1, 0, 0])
    assert not np.array_equal(weights[0, 0, 200], weights[0, 1, 200])


def test_attention_at_the_end_is_what_the_reader_measured_on_other_sequences(members):
    pairs = [(path.attention[-1], path.mean_attention) for member in members for path in member.paths]
    assert pairs
    for followed, measured in pairs:
        assert followed == pytest.approx(measured, abs=0.1)


def test_paths_form_while_the_model_learns(members):
    for member in members:
        if member.was_read:
            assert max(path.attention[0] for path in member.paths) < 0.75
            formed = member.hop_formed(1)
            assert formed is None or formed.time is None or formed.time > 0


def test_crossings_of_the_figure_are_those_of_the_attention_on_record(run, members):
    rows = {row["event"]: row for row in rows_of(run, "crossings")}
    member = members[0]
    for path in member.paths:
        found = first_crossing(member.checkpoints, path.attention, 0.5)
        row = rows[f"{member.name}: {path.name}"]
        assert row["seen"] == ("crossed" if found.time is not None else "not within training")
        assert float(row["step"]) == pytest.approx(found.time or found.censored_at, rel=1e-4)


def test_the_gallery_shows_the_last_map_of_every_head(run, config, members):
    kept = members[0].unit.read_analysis(maps_name(0), config.training_steps)
    last = kept["maps"][-1]
    assert last.shape == (3, 2, config.task().positions, config.task().positions)
    # Causal rows add up to one, but for the rounding of each cell.
    assert np.abs(last.astype(float).sum(-1) / 255.0 - 1.0).max() < 0.05
    shown = rows_of(run, "gallery")
    assert len(shown) == int((last >= 8).sum())
    row = shown[7]
    layer, head = map(int, row["head"].split("."))
    assert float(row["attention"]) == pytest.approx(
        last[layer, head, int(row["query"]), int(row["key"])] / 255, abs=0.01
    )


def test_a_member_was_trained_again_from_its_own_checkpoint(run, config, members):
    found = Evidence.read(run)
    start = found.last("clamped_from").dropna()
    assert list(start.index) == [0]
    runs = {
        part: found.curve("clamped_loss_step_1", part=part, member=0)[0]
        for part in ("nothing clamped", "step_1", "control for step_1")
    }
    assert set(found.rows("clamped_loss_step_1")["part"]) == set(runs)
    alone = runs["nothing clamped"]
    assert (alone.index[0], alone.index[-1]) == (start[0], config.training_steps)
    # Nothing clamped, the model at the checkpoint is the one that training had there.
    at_start = dict(zip(*members[0].curves[1], strict=True))[start[0]]
    assert alone.iloc[0] == pytest.approx(at_start, abs=1e-3)
    assert alone.iloc[-1] < 0.3
    assert (runs["step_1"] - alone).abs().max() > 0.01
    rows = found.rows("clamped_rows")
    assert {part.split(": ")[0] for part in rows["part"]} == {"step_1", "control for step_1"}
    assert found.last("clamped_fell_step_1", part="nothing clamped")[0] == 1.0


def test_without_its_first_checkpoints_a_member_is_not_trained_again(run, config, tmp_path):
    """No checkpoint that is left is known to be from before its heads formed."""
    copy = RunFolder.open(shutil.copytree(run.path, tmp_path / "runs" / "emergence" / run.path.name))
    unit, step = copy.unit(copy.members[0].unit), config.training_steps
    followed = unit.read_analysis(formation_name(0), step)
    late = {
        **followed,
        "checkpoints": followed["checkpoints"][-1:],
        "paths": [{**path, "attention": path["attention"][-1:]} for path in followed["paths"]],
    }
    unit.write_analysis(formation_name(0), step, late)
    unit.analysis_path(clamps_name(0), step).unlink()
    job = job_of(unit)
    clamps.analyse(config, unit, job, find_study("emergence").task(job, "cpu"), TimeBudget(60.0), "cpu")
    assert unit.read_analysis(clamps_name(0), step) == {"member": 0}


def test_the_page_holds_the_circuits(run):
    record = read_run(run.path)
    blocks = [block for section in record.story.sections for block in section.blocks]
    (player,) = (block for block in blocks if block.kind == "circuit")
    assert [named.view.member for named in player.circuits] == [0, 1, 2, 3]
    sections = [section.id for section in record.story.sections]
    assert "what-needs-what-training-again-with-a-read-clamped" in sections
    assert 'id="run-1-which-heads-do-it"' in (run.path / "report.html").read_text(encoding="utf-8")
