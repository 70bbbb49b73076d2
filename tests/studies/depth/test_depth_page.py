"""The depth study's figures and words: on a small run from end to end, and on made-up evidence of larger ones."""

import csv
import json
import math
import re

import pytest
from tests.studies.stories import blocks, numbers_about

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
from hopscope.studies.depth.config import PRESETS, Configuration, DepthStudyConfig
from hopscope.studies.depth.figures import BELOW_BOUND, BELOW_EXACT, NEVER, SEEN, crossing_rows, figures
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
PLAIN = SWEPT.model_copy(update={"sweeps": ()})


def a_step_per_layer(each, step):
    """A step is learned with one more layer than its number."""
    return each.asked == "IC" and step < each.layers


def everything(each, step):
    """Every step of the chain is learned at every depth."""
    return each.asked == "IC"


def nothing(each, step):
    """No step is learned."""
    return False


def made_up_evidence(config, learned=a_step_per_layer, diverged=()):
    """What is learned is learned one step after another; seeds that diverged did so in every configuration."""
    made = {}
    for each in config.grid():
        partial = [0.3 / each.layers if learned(each, step) else 0.75 for step in each.asked_steps]
        times = [
            500.0 * step if loss < 0.5 else None for step, loss in zip(each.asked_steps, partial, strict=True)
        ]
        made[each] = made_up(config, each, partial, times=[times] * config.seeds_of(each), diverged=diverged)
    return evidence_of(config, made)


def presented(evidence, config, out):
    """A run folder with the ledger, the figures and the story of some evidence."""
    run = RunFolder.create(out, "depth", config.model_dump(mode="json"), [], None)
    ledger = Ledger([judge(claim, evidence) for claim in claims(config)])
    run.write_json("claims.json", ledger.to_json())
    find_study("depth").present(run, config, evidence, ledger)
    return run


def words(run):
    """All that the page says, numbers written out: lines of text, captions and cells of tables."""
    story = run.read_json("story.json")
    said = [story["title"], story["subtitle"]]
    for section in story["sections"]:
        said.append("## " + section["heading"])
        for block in section["blocks"]:
            said += [block.get("text", ""), block.get("caption", "")]
            said += [" | ".join(row) for row in block.get("rows", [])]
    return re.sub(r"\{(n\d+)\}", lambda found: story["numbers"][found[1]]["text"], "\n".join(said))


@pytest.fixture(scope="module")
def swept():
    """The evidence of `SWEPT`."""
    return made_up_evidence(SWEPT)


@pytest.fixture(scope="module")
def made_up_folder(swept, tmp_path_factory):
    return presented(swept, SWEPT, tmp_path_factory.mktemp("made_up"))


# Figures.


def test_every_figure_of_the_configuration_is_written_and_can_be_drawn(made_up_folder):
    names = {figure.name for figure in figures(SWEPT)}
    plain = {figure.name for figure in figures(PLAIN)}
    assert plain < names and len(names - plain) == len(SWEPT.sweeps)
    assert set(written_figures(made_up_folder.path / "figures")) == names
    for name in names:
        svg, png = render_figure(made_up_folder.path / "figures", name)
        assert svg.stat().st_size > 1000 and png.stat().st_size > 1000


ALIKE = {(config.steps, *(figure.name for figure in figures(config))): config for config in PRESETS.values()}
"""Of presets that have the same figures and as many steps, the last."""


@pytest.mark.parametrize("config", ALIKE.values(), ids=lambda config: f"{config.steps} steps")
def test_every_preset_has_its_figures_and_its_page(config, tmp_path):
    run = presented(made_up_evidence(config), config, tmp_path)
    names = {figure.name for figure in figures(config)}
    assert set(written_figures(run.path / "figures")) == names
    assert {block["name"] for block in blocks(run.read_json("story.json"), "figure")} == names
    for name in names:
        svg, _ = render_figure(run.path / "figures", name)
        assert svg.stat().st_size > 1000


def test_exact_minima_are_drawn_where_the_theory_has_them():
    (figure,) = (each for each in figures(SWEPT) if each.name == "partial_by_depth")
    marks = [mark for mark in figure.series.marks if mark.axis == "x"]
    assert {mark.name: mark.value for mark in marks} == {
        f"x{'₀₁₂₃'[step]}": layers for step, layers in layers_per_step(3, "causal", "deepest-first").items()
    }
    low, high = figure.series.across.ends
    assert all(low < mark.value < high for mark in marks)


def test_crossings_that_never_happened_stand_at_the_end_of_training(swept):
    rows = crossing_rows(swept)
    never = [row for row in rows if row["seen"] == NEVER]
    assert never and all(row["high"] is None and row["step"] == 10_000 for row in never)
    seen = [row for row in rows if row["seen"] == SEEN]
    assert seen and all(row["low"] <= row["step"] <= row["high"] for row in seen)


def data(run, name):
    """The rows of a figure."""
    with (run.path / "figures" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_cells_know_what_the_theory_says_of_them(made_up_folder):
    rows = data(made_up_folder, "steps_by_depth")
    theory = {(int(row["y"]), int(row["x"])): row["outline"] for row in rows}
    assert theory[1, 1] == BELOW_EXACT  # the induction head takes two layers, the bound allows one
    assert theory[3, 1] == BELOW_BOUND and theory[3, 3] == "" and len(theory) == 15


def test_every_reading_has_its_rows(made_up_folder):
    rows = data(made_up_folder, "specification")
    assert len({row["y"] for row in rows}) == 16
    assert {row["name"] for row in rows} == {"IC x₁", "IC x₂", "IC x₃", "non-IC x₂"}


# Words.


def test_the_page_is_built_of_words_that_all_have_their_numbers(made_up_folder):
    story = json.loads((made_up_folder.path / "story.json").read_text(encoding="utf-8"))
    text = json.dumps([story["lead"], story["sections"]])
    assert set(re.findall(r"\{(n\d+)\}", text)) == set(story["numbers"])
    build_report([made_up_folder.path], made_up_folder.path / "report.html")
    page = (made_up_folder.path / "report.html").read_text(encoding="utf-8")
    assert "None" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_the_page_tells_what_was_learned_and_in_which_order(made_up_folder):
    said = words(made_up_folder)
    # 3 seeds of 3 layers learn the first two of three steps; those of 1 layer learn none.
    assert numbers_about(said, "curves of the deepest models") == [9, 3, 3, 6, 0.5]
    assert numbers_about(said, "learned the steps in the order") == [5, 5]
    assert numbers_about(said, "learned no step") == [2]
    assert "x₁: 3 of 3; x₂: 3 of 3; x₃: 0 of 3" in said
    # Curves fall from 0.75 to 0.1 between two evaluations, 500 steps apart.
    assert "x₁ | 192 | 192 – 192 | 3 of 3 |" in said
    assert "x₂ | 692 | 692 – 692 | 3 of 3 | 500 [500, 500]" in said
    assert "x₃ | – | – | 0 of 3 | –" in said
    assert "diverged" not in said


def test_the_page_tells_what_the_sweeps_come_to(made_up_folder):
    said = words(made_up_folder)
    # D of 2 to 5 with 1 layer, and of 5 with 2: two seeds each; x_D is learned with more than D layers.
    assert numbers_about(said, BELOW_BOUND, "learned") == [10, 0]
    assert numbers_about(said, BELOW_EXACT, "learned") == [22, 0]
    assert "speaks against" not in said
    # Eight readings with each mask; the study's own has one seed more.
    assert numbers_about(said, "with a causal mask", "learned at least") == [17, 17, 17]
    assert numbers_about(said, "without a mask", "learned at least")[:2] == [16, 16]
    assert "causal, code per token, β₂ 0.95, no MLP | 0.750 (n = 6) |" in said


def test_a_page_of_models_that_learned_everything_says_so(tmp_path):
    said = words(presented(made_up_evidence(PLAIN, everything), PLAIN, tmp_path))
    assert numbers_about(said, "curves of the deepest models") == [9, 3, 3, 9, 0.5]
    assert numbers_about(said, "learned the steps in the order") == [7, 7]
    assert "learned no step" not in said and "none of them" not in said
    assert "## How deep" not in said and "readings" not in said
    # Theory asks for two layers at least by its bound, and for three by the exact count.
    assert numbers_about(said, BELOW_BOUND, "learned") == [2, 2]
    assert numbers_about(said, BELOW_EXACT, "learned") == [4, 4]
    assert "speaks against the first assumption" in said


def test_a_page_of_models_that_learned_nothing_says_only_that(tmp_path, run):
    for said in (words(presented(made_up_evidence(PLAIN, nothing), PLAIN, tmp_path)), words(run)):
        assert "none of them learned a step" in said
        assert "No IC model of any depth learned a step" in said
        assert "learned the steps in the order" not in said


@pytest.mark.parametrize("diverged", [(1,), (0, 1, 2)])
def test_a_page_of_diverged_models_has_no_numbers_of_them(diverged, tmp_path):
    run = presented(made_up_evidence(SWEPT, diverged=diverged), SWEPT, tmp_path)
    said = words(run)
    assert not re.search(r"\b(nan|NaN|None)\b", json.dumps(run.read_json("story.json"), ensure_ascii=False))
    every = len(diverged) == 3
    assert ("Training of every model diverged" in said) == every
    assert (
        "Training diverged in 108 of 217 models" in said and "; IC D=3, 2 layers, seed 1;" in said
    ) != every
    assert ("Training of all the deepest models (IC D=3, 3 layers) diverged" in said) == every
    curves = [] if every else [6, 3, 3, 4, 0.5]
    assert numbers_about(said, "curves of the deepest models") == curves
    assert ("3 IC models diverged" in said) != every
    assert ("No IC model of any depth learned a step" in said) is False
    for name in written_figures(run.path / "figures"):
        render_figure(run.path / "figures", name)


def test_a_run_of_one_way_to_ask_alone_has_its_page(tmp_path):
    for name, fields in {"last": {"layers": ()}, "chain": {"layers_last": ()}, "one": {"steps": 1}}.items():
        config = DepthStudyConfig.model_validate(PLAIN.model_dump() | fields)
        said = words(presented(made_up_evidence(config), config, tmp_path / name))
        assert ("## In which order" in said) == bool(config.layers)
        assert ("non-IC, D = 2 | 1 |" in said) == bool(config.layers_last)
        assert ("in the order of the chain" in said) == (name == "chain")


# A run from end to end.


@pytest.fixture
def run(depth_run):
    return RunFolder(depth_run)


def test_a_run_is_whole(run):
    study = find_study("depth")
    config = DepthStudyConfig.model_validate(run.config)
    assert run.is_done and [claim["id"] for claim in run.read_json("claims.json")] == [
        "R1", "R2", "R3", "R9a", "R9b", "R9c", "R11", "N11", "N13a", "N13b", "N15",
    ]  # fmt: skip
    assert set(written_figures(run.path / "figures")) == {figure.name for figure in study.figures(config)}
    assert len(run.members) == 6


def test_evidence_is_what_the_metrics_say(run):
    config, evidence = DepthStudyConfig.model_validate(run.config), Evidence.read(run)
    table = [row for row in run.metrics().to_pylist() if row["split"] == "held_out"]
    losses = evidence.last("final_loss", part="step_2")
    curves = evidence.curve("loss_step_2", measure="training")
    accuracy = evidence.last("accuracy", measure="retrieval", part="step_2")
    for each in config.grid():
        final = config.training(each).final_steps()
        assert final == [9, 10, 12]
        for member in evidence.where(configuration=each.name).members:
            of = [row for row in table if row["member"] == member and row["metric"] == "loss_step_2"]
            last = [row["value"] for row in of if row["step"] in final]
            assert losses[member] == pytest.approx(sum(last) / 3, abs=1e-12)
            assert curves[member].dropna().to_dict() == {row["step"]: row["value"] for row in of}
            assert 0.0 <= accuracy[member] <= 1.0


def test_partial_losses_make_up_the_loss(run):
    evidence = Evidence.read(run).where(configuration=Configuration("IC", 2, 1).name)
    first, second = (evidence.last("final_loss", part=f"step_{step}") for step in (1, 2))
    assert ((first + second) / 2).tolist() == pytest.approx(evidence.last("final_loss").tolist(), rel=1e-6)


def test_numbers_of_the_page_can_be_found_again(run):
    story = run.read_json("story.json")
    followed = 0
    for number in story["numbers"].values():
        match = re.fullmatch(
            r"(mean of |95 % bootstrap interval over seeds, (?P<side>\w+) end, of the mean of )?"
            r"metric = final_loss, split = held_out, (part = (?P<part>\w+), )?configuration = (?P<name>.*), "
            r"last step, (over \d+ members|member (?P<member>\d+))",
            number["key"],
        )
        if match is None:
            continue
        metric = "loss" if match["part"] is None else f"loss_{match['part']}"
        values = final_losses(run, match["name"], metric)
        if match["member"]:
            expected = values[int(match["member"])]
        elif match["side"]:
            expected = bootstrap_mean(list(values.values()))[match["side"] == "upper"]
        else:
            expected = math.fsum(values.values()) / len(values)
        assert number["value"] == pytest.approx(expected, abs=1e-12)
        followed += 1
    assert followed >= 15


def final_losses(run, configuration, metric):
    """Of each member of a configuration, straight from the rows of the table."""
    of = {record.member for record in run.members if run.unit(record.unit).record["label"] == configuration}
    table = [
        row for row in run.metrics().to_pylist() if row["split"] == "held_out" and row["metric"] == metric
    ]
    values = {
        member: [row["value"] for row in table if row["member"] == member and row["step"] in (9, 10, 12)]
        for member in sorted(of)
    }
    return {member: math.fsum(each) / len(each) for member, each in values.items()}


def test_data_of_a_figure_hold_every_seed(run):
    rows = data(run, "loss_by_depth")
    assert sum(row["kind"] == "seed" for row in rows) == 6
    assert {row["name"] for row in rows} == {"IC, D = 2", "non-IC, D = 2"}


def test_the_median_counts_seeds_that_never_learned():
    times = [0, 100, 200]
    never = first_crossing(times, [0.9, 0.9, 0.9], 0.5, rising=False)
    once = first_crossing(times, [0.9, 0.4, 0.1], 0.5, rising=False)
    assert median([never, never, once]) is None and median([once, never]) == once.time
