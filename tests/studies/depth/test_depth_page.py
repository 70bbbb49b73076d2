"""The depth study's figures and words: on a small run from end to end, and on made-up evidence of a large one."""

import csv
import json
import math
import re

import pytest

from hopscope.claims import Ledger, judge
from hopscope.claims.crossings import first_crossing, median
from hopscope.claims.intervals import bootstrap_mean
from hopscope.report.figures import figure_names as written_figures
from hopscope.report.figures import render_figure
from hopscope.report.page import build_report
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.depth.figures import figure_names
from hopscope.studies.depth.figures.depths import partial_rows
from hopscope.studies.depth.figures.learning import NEVER, SEEN, crossing_rows
from hopscope.studies.depth.figures.sweeps import (
    BELOW_BOUND,
    BELOW_EXACT,
    ENOUGH,
    specification_rows,
    steps_rows,
)
from hopscope.studies.depth.results import gather
from hopscope.theory.information_flow import layers_per_step

from .made_up import evidence_of, made_up

SWEPT = DepthStudyConfig(
    seeds=2,
    deepest_seeds=3,
    layers=(1, 2, 3),
    layers_last=(1, 3),
    steps=3,
    steps_last=2,
    sweeps=("steps", "specification"),
)


def swept_evidence(config, diverged=()):
    """A step is learned with one more layer than its number, one after another."""
    made = {}
    for each in config.grid():
        partial = [0.1 if each.asked == "IC" and step < each.layers else 0.75 for step in each.asked_steps]
        times = [
            500.0 * step if loss < 0.5 else None for step, loss in zip(each.asked_steps, partial, strict=True)
        ]
        made[each] = made_up(config, each, partial, times=[times] * config.seeds_of(each), diverged=diverged)
    return evidence_of(config, made)


@pytest.fixture(scope="module")
def swept():
    """What the table says of `SWEPT`."""
    return gather(swept_evidence(SWEPT))


def presented(evidence, config, out):
    """A run folder with the ledger, the figures and the story of some evidence."""
    run = RunFolder.create(out, "depth", config.model_dump(mode="json"), [], None)
    ledger = Ledger([judge(claim, evidence) for claim in claims(config)])
    run.write_json("claims.json", ledger.to_json())
    find_study("depth").present(run, config, evidence, ledger)
    return run


@pytest.fixture(scope="module")
def made_up_folder(tmp_path_factory):
    return presented(swept_evidence(SWEPT), SWEPT, tmp_path_factory.mktemp("made_up"))


def test_every_figure_of_the_configuration_is_written_and_can_be_drawn(made_up_folder):
    names = set(figure_names(SWEPT))
    assert {
        "loss_by_depth",
        "partial_by_depth",
        "information_flow",
        "steps_by_depth",
        "specification",
    } <= names
    assert set(written_figures(made_up_folder.path / "figures")) == names
    for name in ("partial_by_depth", "crossings", "steps_by_depth", "specification"):
        svg, png = render_figure(made_up_folder.path / "figures", name)
        assert svg.stat().st_size > 1000 and png.stat().st_size > 1000


def test_the_page_is_built_of_words_that_all_have_their_numbers(made_up_folder):
    story = json.loads((made_up_folder.path / "story.json").read_text())
    text = json.dumps(story["sections"])
    assert set(re.findall(r"\{(n\d+)\}", text)) == set(story["numbers"])
    assert [each["id"] for each in story["sections"]] == [
        "task", "verdicts", "depths", "order", "accuracy", "theory", "steps", "specification",
    ]  # fmt: skip
    build_report([made_up_folder.path], made_up_folder.path / "report.html")
    page = (made_up_folder.path / "report.html").read_text()
    assert "None" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


@pytest.mark.parametrize("diverged", [(1,), (0, 1, 2)])
def test_a_page_of_diverged_models_has_no_numbers_of_them(diverged, tmp_path):
    run = presented(swept_evidence(SWEPT, diverged), SWEPT, tmp_path)
    text = json.dumps(run.read_json("story.json"), ensure_ascii=False)
    assert not re.search(r"\b(nan|NaN|None)\b", text)
    (order,) = (each for each in run.read_json("story.json")["sections"] if each["id"] == "order")
    assert (f"; {len(SWEPT.layers)} diverged." in json.dumps(order)) == (diverged == (1,))


def order_words(run):
    """The first paragraph of the section on the order of learning, numbers written out."""
    story = run.read_json("story.json")
    (section,) = (each for each in story["sections"] if each["id"] == "order")
    text = next(block["text"] for block in section["blocks"] if block["kind"] == "text")
    return re.sub(r"\{(n\d+)\}", lambda found: story["numbers"][found[1]]["text"], text)


def test_the_page_says_whether_the_deepest_models_learned(made_up_folder, run):
    # 3 seeds of 3 layers learn the first two of three steps.
    assert order_words(made_up_folder).startswith(
        "How the deepest models learn: of 9 curves, 6 fall under 0.5."
    )
    assert order_words(run).startswith(
        "Of the deepest models no curve falls under 0.5: none of them learned a step"
    )


def test_exact_minima_are_drawn_where_the_theory_has_them(swept):
    rows = [row for row in partial_rows(SWEPT, swept) if row["kind"] == "exact"]
    expected = layers_per_step(3, "causal", "deepest-first")
    assert [row["layers"] for row in rows] == list(expected.values())


def test_crossings_that_never_happened_stand_at_the_end_of_training(swept):
    rows = crossing_rows(SWEPT, swept)
    never = [row for row in rows if row["seen"] == NEVER]
    assert never and all(row["high"] is None and row["step"] == 10_000 for row in never)
    seen = [row for row in rows if row["seen"] == SEEN]
    assert seen and all(row["low"] <= row["step"] <= row["high"] for row in seen)


def test_cells_know_what_the_theory_says_of_them(swept):
    theory = {(row["steps"], row["layers"]): row["theory"] for row in steps_rows(SWEPT, swept)}
    assert theory[1, 1] == BELOW_EXACT  # the induction head takes two layers, the bound allows one
    assert theory[3, 1] == BELOW_BOUND and theory[3, 3] == ENOUGH and len(theory) == 15


def test_every_reading_has_its_rows(swept):
    rows = specification_rows(SWEPT, swept)
    assert len({row["reading"] for row in rows}) == 16
    assert {row["what"] for row in rows} == {"IC x₁", "IC x₂", "IC x₃", "non-IC x₂"}


# A run from end to end.


@pytest.fixture
def run(depth_run):
    return RunFolder(depth_run)


def test_a_run_is_whole(run):
    study = find_study("depth")
    config = DepthStudyConfig.model_validate(run.config)
    assert run.is_done and [claim["id"] for claim in run.read_json("claims.json")] == [
        "R1", "R2", "R3", "R9a", "R9b", "R11",
    ]  # fmt: skip
    assert set(written_figures(run.path / "figures")) == set(study.figures(config))
    assert len(run.members) == 6


def test_evidence_is_what_the_metrics_say(run):
    config = DepthStudyConfig.model_validate(run.config)
    results = gather(Evidence.read(run))
    table = [row for row in run.metrics().to_pylist() if row["split"] == "held_out"]
    for each, found in results.items():
        final = config.training(each).final_steps()
        assert final == [9, 10, 12]
        for place, member in enumerate(found.members):
            of = [row for row in table if row["member"] == member]
            last = [row["value"] for row in of if row["metric"] == "loss_step_2" and row["step"] in final]
            assert found.partial[2][place] == pytest.approx(sum(last) / 3, abs=1e-12)
            steps, values = found.curves[2][place]
            assert dict(zip(steps, values, strict=True)) == {
                row["step"]: row["value"] for row in of if row["metric"] == "loss_step_2"
            }
            assert 0.0 <= found.accuracy[2][place] <= 1.0


def test_partial_losses_make_up_the_loss(run):
    found = gather(Evidence.read(run))[Configuration("IC", 2, 1)]
    for place, loss in enumerate(found.loss):
        assert loss == pytest.approx((found.partial[1][place] + found.partial[2][place]) / 2, rel=1e-6)


def test_numbers_of_the_page_can_be_found_again(run):
    config = DepthStudyConfig.model_validate(run.config)
    story = run.read_json("story.json")
    followed = 0
    for number in story["numbers"].values():
        match = re.fullmatch(
            r"(?P<end>mean|lowest|highest|95 % interval of mean) of held_out/(?P<metric>loss\w*), final window over "
            r"members? (?P<first>\d+)(–(?P<last>\d+))?(: (?P<side>low|high))?",
            number["key"],
        )
        if match is None:
            continue
        members = range(int(match["first"]), int(match["last"] or match["first"]) + 1)
        values = final_losses(run, config, members, match["metric"])
        interval = bootstrap_mean(values)
        ends = {"lowest": min(values), "highest": max(values), "mean": math.fsum(values) / len(values)}
        if match["side"]:
            ends[match["end"]] = interval[match["side"] == "high"]
        assert number["value"] == pytest.approx(ends[match["end"]], abs=1e-12)
        followed += 1
    assert followed >= 15


def final_losses(run, config, members, metric):
    """Straight from the rows of the table."""
    table = [
        row for row in run.metrics().to_pylist() if row["split"] == "held_out" and row["metric"] == metric
    ]
    of = [
        [row["value"] for row in table if row["member"] == member and row["step"] in (9, 10, 12)]
        for member in members
    ]
    return [math.fsum(values) / len(values) for values in of]


def test_data_of_a_figure_hold_every_seed(run):
    with (run.path / "figures" / "loss_by_depth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["kind"] == "seed" for row in rows) == 6
    assert {row["task"] for row in rows} == {"IC, D = 2", "non-IC, D = 2"}


def test_the_median_counts_seeds_that_never_learned():
    times = [0, 100, 200]
    never = first_crossing(times, [0.9, 0.9, 0.9], 0.5, rising=False)
    once = first_crossing(times, [0.9, 0.4, 0.1], 0.5, rising=False)
    assert median([never, never, once]) is None and median([once, never]) == once.time
