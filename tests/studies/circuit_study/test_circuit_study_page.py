"""The pages of the studies of circuits and of emergence: what they say of runs whose members are known."""

import json
import re

import pytest
from tests.studies.stories import blocks, numbers_about

from hopscope.report.page import render_all
from hopscope.report.record import read_run
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.circuit_study.charts import controls, gallery, modes, reads
from hopscope.studies.circuits.config import PRESETS as CIRCUITS
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.emergence.config import PRESETS as EMERGENCE
from hopscope.studies.emergence.config import EmergenceConfig, clamped_runs
from hopscope.studies.emergence.measures import clamp_rows

from .made_up import evidence_of, induction, last_look, member, path, presented, reflected, texts

SMALL = {"seeds": 3, "steps": 2, "layers": 4, "heads": 1, "training_steps": 1_000, "galleries": 2}
OF_CIRCUITS = CircuitsConfig(**SMALL)
OF_EMERGENCE = EmergenceConfig(**SMALL, crossed=2, clamped=1)
STUDIES = {
    "circuits": (find_study("circuits"), OF_CIRCUITS),
    "emergence": (find_study("emergence"), OF_EMERGENCE),
}
NOT_LEARNED = {
    "verdict": "no circuit: above plateau",
    "learned": (),
    "falls": {1: None, 2: None},
    "loss": 0.7,
}


def members(config, make=lambda plan: {"paths": induction()}):
    """Every member of a configuration; `make` says how each of them came out."""
    return [
        member(plan.member, init=plan.init_seed, data=plan.data_seed, **make(plan))
        for plan in config.members()
    ]


@pytest.fixture(params=STUDIES)
def told(request, tmp_path):
    """Writes the story of a run, of each study: gives the story and its words."""
    study, config = STUDIES[request.param]

    def tell(make=lambda plan: {"paths": induction()}):
        _, story = presented(tmp_path, study, config, members(config, make), draw=False)
        return story, texts(story)

    return tell


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_says_of_whom_nobody_saw_how_attention_formed(name, tmp_path):
    study, config = STUDIES[name]
    first, second, *others = members(config)
    _, whole = presented(tmp_path / "a", study, config, [first, second, *others], draw=False)
    _, story = presented(tmp_path / "b", study, config, [first, last_look(second), *others], draw=False)
    said = "The first checkpoints of seed 1 were deleted before its circuit was read."
    assert texts(story).count("The first checkpoints of") == 1 and said in texts(story)
    assert "The first checkpoints of" not in texts(whole)


def headings(story):
    return [section["heading"] for section in story["sections"]]


ABOUT_CIRCUITS = {
    "Do seeds agree?", "What is a path worth? It depends on how one asks", "Is it more than chance?",
}  # fmt: skip


# What it says.


def test_a_run_in_which_all_learned(told):
    story, words = told()
    count = 3 if story["title"] == "Which circuits do models learn?" else 5
    assert numbers_about(words, "learned the whole chain") == [count] * 3
    assert numbers_about(words, "the loss without it stays under") == [3, 3, 0.15]
    assert numbers_about(words, "everything later is recomputed") == [3, 3, 0.5]
    assert numbers_about(words, "have paths to show") == [count]
    assert "All of them have the same circuit" in words
    assert set(headings(story)) >= ABOUT_CIRCUITS
    assert "Training of" not in words and "not read, with the reason" not in words


def test_a_run_in_which_none_learned(told):
    story, words = told(lambda plan: NOT_LEARNED)
    assert numbers_about(words, "learned the whole chain")[1:] == [0, 0]
    assert not ABOUT_CIRCUITS & set(headings(story))
    assert "look" not in words.split("Which heads do it")[1]
    if story["title"] == "Heads as they form":
        assert "No independent model was read, so no order is known." in words
        assert "Does a loss fall when its heads form?" not in headings(story)


def test_a_member_that_was_read_for_a_part_is_not_passed_over(told):
    part = {"paths": induction(), "learned": (1,), "falls": {1: 150.0, 2: None}}
    _, words = told(lambda plan: part if plan.member == 1 else NOT_LEARNED)
    assert numbers_about(words, "that learned a part of it was read too")[1:] == [0, 0, 1]
    _, words = told(lambda plan: part if plan.member < 2 else {"paths": induction()})
    assert numbers_about(words, "that learned a part of it were read too")[-1] == 2
    assert "learned a part of it" not in told()[1]


def test_a_run_of_which_one_member_diverged(told):
    story, words = told(lambda plan: {"paths": induction(), "loss": None if plan.member == 1 else 0.005})
    count = 3 if story["title"] == "Which circuits do models learn?" else 5
    assert numbers_about(words, "learned the whole chain") == [count, count - 1, count - 1]
    assert "seed 1 diverged" in words
    assert numbers_about(words, "the loss without it stays under")[:2] == [2, 2]
    shown = [
        block for section in story["sections"] for block in section["blocks"] if block["kind"] == "circuit"
    ]
    assert [each["name"] for each in shown[0]["circuits"]][:2] == ["seed 0", "seed 2"]


def test_members_that_were_not_read_are_told_with_the_reason(told):
    story, words = told(
        lambda plan: {
            "paths": reflected(),
            **({"verdict": "unexplained: no rule"} if plan.member == 2 else {}),
        }
    )
    (table,) = [block for section in story["sections"] for block in section["blocks"]
                if block["kind"] == "table" and "why it was not read" in block["columns"]]  # fmt: skip
    best = "; ".join(
        ["0.0 query → first 1", "1.0 query → second 1", "2.0 second 1 → second 2", "3.0 query → second 1"]
    )
    assert table["rows"] == [["seed 2", "unexplained: no rule", best]]
    assert "In 2 of 2 models the loss without it" in words


def test_different_circuits_are_counted(told):
    _, words = told(lambda plan: {"paths": reflected() if plan.member == 2 else induction()})
    assert "paths to show.\nThey have 2 different circuits." in words


def test_a_head_that_is_dear_by_the_rules_is_not_called_free(told):
    dear = [path(0, "second 1", "first 1", 150, 1, rules=0.4), path(1, "query", "second 1", 150, 1)]
    _, words = told(lambda plan: {"paths": dear})
    assert "In 0 of 3 models the loss without it stays under 0.15 by the rules." in words
    assert "where everything later is recomputed" not in words


def test_a_run_below_the_papers_scale_says_how_it_departs(told):
    _, words = told()
    assert "This run departs from the paper's: 1,000 of" in words


def clamped(config, start=300):
    """Rows of member 0, trained again from a step: with the read for x₁ clamped x₂ is not learned."""
    runs = [
        {"name": name, "clamped": [] if name == "nothing clamped" else ["1.0 query", "2.0 second 1"],
         "losses": {"loss_step_1": [0.4, 0.1], "loss_step_2": [0.7, 0.9 if name == "step_1" else 0.2]}}
        for name in clamped_runs(config)
    ]  # fmt: skip
    found = {"start": start, "steps": [start, 1_000], "runs": runs}
    return list(clamp_rows(0, found, "units/a/analysis/clamps-0.json", config))


def emergence(root, make=lambda plan: {"paths": induction(150, 450)}, further=(), draw=False):
    """The folder and the story of a run of emergence, its tables by their columns, and its words."""
    config = OF_EMERGENCE
    run, story = presented(root, find_study("emergence"), config, members(config, make), further, draw)
    numbers = {name: number["text"] for name, number in story["numbers"].items()}

    def table(*columns):
        (found,) = [block for section in story["sections"] for block in section["blocks"]
                    if block["kind"] == "table" and set(columns) <= set(block["columns"])]  # fmt: skip
        return [[re.sub(r"\{(n\d+)\}", lambda key: numbers[key[1]], cell).replace("\u00a0", " ") for cell in row]
                for row in found["rows"]]  # fmt: skip

    return run, story, table, texts(story)


def test_members_trained_again_are_told_run_by_run(tmp_path):
    _, story, table, _ = emergence(tmp_path, further=clamped(OF_EMERGENCE))
    where = "1.0 query, 2.0 second 1"
    rows = table("clamped")
    assert rows[0] == ["seed 0", "300", "nothing clamped", "–", "0.100, from the start", "0.200, at 580"]
    assert rows[1] == [
        "seed 0",
        "300",
        "the read for x₁ clamped",
        where,
        "0.100, from the start",
        "0.900, never",
    ]
    assert [row[2] for row in rows[2:]] == ["control for x₁", "the read for x₂ clamped", "control for x₂"]
    assert "What needs what: training again with a read clamped" in headings(story)


def test_without_members_trained_again_the_page_says_so(tmp_path):
    _, _, _, words = emergence(tmp_path)
    assert "The first model was to be trained again with a read clamped, but it was not read" in words


def test_orders_and_waits_are_told_of_independent_seeds(tmp_path):
    def make(plan):
        swapped = plan.init_seed != plan.data_seed or plan.seed == 2
        return {
            "paths": induction(450, 150) if swapped else induction(150, 450),
            "falls": {1: 300.0, 2: 600.0},
        }

    _, _, table, words = emergence(tmp_path, make)
    assert "The reads for x₁ had formed before those for x₂ in 2 of 3 [0.09, 0.99] seeds (0 ties)." in words
    reads_1, fell_1, reads_2, fell_2 = table("median step")
    assert reads_1[:3] == ["reads for x₁ formed", "150", "3 of 3"]
    assert reads_2[:3] == ["reads for x₂ formed", "450", "3 of 3"]
    assert (reads_1[3], fell_2[4]) == ("–", "–")
    assert fell_1[3].startswith("44 [")  # 294 - 150, twice, and 294 - 450
    assert fell_1[4].startswith("2 of 3 [")


def test_which_came_first_is_told_where_the_interval_says_so(tmp_path):
    _, _, table, _ = emergence(
        tmp_path, lambda plan: {"paths": induction(150, 850), "falls": {1: 300.0, 2: 600.0}}
    )
    assert [(row[0], row[2], row[3]) for row in table("which came first")] == [
        ("x₁", "3 of 3", "the reads"), ("x₂", "3 of 3", "the loss"),
    ]  # fmt: skip


def test_shares_of_the_variance_are_told_of_crossed_models(tmp_path):
    _, _, table, words = emergence(
        tmp_path, lambda plan: {"paths": induction(150 + 200 * plan.init_seed, 850)}
    )
    rows = {row[0]: row[1:] for row in table("initial weights", "data", "rest")}
    assert rows["reads for x₁ formed"][0] == "0"
    assert rows["reads for x₁ formed"][1].startswith("100 % (p ")
    assert rows["reads for x₂ formed"] == ["0", "–", "–", "–"]
    assert "initial weights: 2 of 2 pairs" in words


# Numbers and figures.


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_says_where_it_is_from(name, tmp_path):
    study, config = STUDIES[name]
    run, story = presented(tmp_path, study, config, members(config), draw=False)
    words = json.dumps(story, ensure_ascii=False)
    used = set(re.findall(r"\{(n\d+)\}", words))
    assert used <= set(story["numbers"]) and len(used) > 30
    assert {number["file"] for number in story["numbers"].values()} <= {"config.json", "evidence.parquet"}
    read_run(run.path)


@pytest.mark.parametrize("learned", [True, False])
def test_every_figure_can_be_drawn(learned, tmp_path):
    def make(plan):
        return {"paths": induction(150 + 200 * plan.init_seed, 850)} if learned else NOT_LEARNED

    run, _, _, _ = emergence(tmp_path, make, clamped(OF_EMERGENCE) if learned else (), draw=True)
    render_all(run.path)
    names = [figure.name for figure in find_study("emergence").figures(OF_EMERGENCE)]
    assert names == ["timeline", "crossings", "precedence", "alignment", "reads", "controls", "modes", "clamps",
                     "variance", "gallery"]  # fmt: skip
    nothing = (
        set() if learned else {"precedence", "alignment", "reads", "controls", "modes", "clamps", "variance"}
    )
    for name in names:
        picture = (run.path / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert ("nothing to show" in picture) == (name in nothing), name


ALIKE = {
    (study.name, config.steps == 1, *(figure.name for figure in study.figures(config))): (study, config)
    for study, presets in ((find_study("circuits"), CIRCUITS), (find_study("emergence"), EMERGENCE))
    for config in presets.values()
}
"""Of presets that have the same figures and more than one step, the largest."""


@pytest.mark.parametrize(("study", "config"), ALIKE.values(), ids=lambda value: value.name)
def test_every_figure_of_every_preset_is_written_and_shown(study, config, tmp_path):
    falls = dict.fromkeys(range(1, config.steps + 1), 300.0)
    one_step = [each for each in induction() if each.needed_for == 1]
    every = {"paths": one_step if config.steps == 1 else induction(), "falls": falls, "learned": tuple(falls)}
    config = config.model_copy(update={"training_steps": 1_000})
    run, story = presented(tmp_path, study, config, members(config, lambda plan: every))
    written = {file.stem.removesuffix(".vl") for file in (run.path / "figures").iterdir()}
    assert written == {figure.name for figure in study.figures(config)}
    shown = [block["name"] for block in blocks(story, "figure")]
    # No member was trained again, and all times are equal.
    assert set(shown) == written - {"clamps", "variance"}
    assert len(shown) == len(set(shown))


def drawn(draw, *found):
    return draw(OF_CIRCUITS, evidence_of(found, OF_CIRCUITS))[1]


def test_reads_name_every_head_that_does_one():
    twice = [*induction(), path(3, "query", "second 1", 200, 1)]
    rows = {(row["seed"], row["read"]): row for row in drawn(reads, member(0, twice), member(1, induction()))}
    assert rows["seed 0", "query → second 1"]["heads"] == "1.0, 3.0"
    assert rows["seed 1", "query → second 1"]["heads"] == "1.0"
    assert len(rows) == 6
    assert {row["attention"] for row in rows.values()} == {0.9}


def test_modes_and_controls_are_the_losses_on_record():
    found = [member(0, induction(), full=0.011, rules=0.042), member(1, loss=None)]
    losses = {(row["path"], row["mode"].partition(":")[0]): row["loss"] for row in drawn(modes, *found)}
    assert losses["1.0 query → second 1", "rules"] == 0.8
    assert losses["2.0 query → second 2", "recomputed"] == 0.6
    assert len(losses) == 9
    rows = {row["what"]: row for row in drawn(controls, *found)}
    assert (rows["model"]["loss"], rows["circuit by its rules"]["loss"]) == (0.011, 0.042)
    random = rows["random circuits (range)"]
    assert (random["loss"], random["low"], random["high"]) == (0.95, 0.8, 1.1)
    assert rows["model"]["low"] is None


def test_the_gallery_shows_the_last_maps_of_the_first_members(tmp_path):
    run, story = presented(tmp_path, find_study("circuits"), OF_CIRCUITS, members(OF_CIRCUITS))
    lines = (run.path / "figures" / "gallery.csv").read_text(encoding="utf-8").splitlines()
    assert lines == ["seed,head,query,key,attention", "seed 0,0.0,3,1,0.4", "seed 1,0.0,3,1,0.4"]
    assert "on one example sequence, seed 0, seed 1. Queries down" in texts(story)


def test_a_run_without_maps_on_record_has_no_gallery():
    chart, rows = gallery(OF_CIRCUITS, Evidence.of([{"member": 0}], []))
    assert rows == [] and chart.to_dict()
