"""The page of small language models says only what is so, whatever came out."""

import json
import re
from dataclasses import replace

import pytest
from tests.story.user_run import texts
from tests.studies.stories import table

from hopscope.figures import write_figures
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.studies import find_study
from hopscope.studies.tiny_lm.config import PRESETS, TinyLmConfig

from .made_up import diverged, evidence_of, members_of, presented, read, training_rows

CONFIG = TinyLmConfig(
    seeds=2, chains=3, depths=(1, 2), layers=2, heads=3, width=33, training_steps=8, checkpoint_every=4
)
FLAT = ([0, 8], [0.25, 0.3])


def learned():
    return [read(member) for member in members_of(CONFIG, {"uniform": 97, "zipf": 96})]


def nothing():
    return [
        replace(member, accuracy={1: FLAT, 2: FLAT})
        for member in members_of(CONFIG, {"uniform": 24, "zipf": 25})
    ]


def one_diverged():
    first, *others = learned()
    return [diverged(first), *others]


def all_diverged():
    return [diverged(member) for member in learned()]


CASES = {"learned": learned, "nothing": nothing, "one diverged": one_diverged, "all diverged": all_diverged}


@pytest.fixture(params=CASES)
def told(request, tmp_path, monkeypatch):
    """Name of the case, its story, and the story's words."""
    run = presented(tmp_path, CASES[request.param](), CONFIG, monkeypatch)
    story = run.read_json("story.json")
    return request.param, story, texts(story).replace("\u00a0", " ")


OF_ALL = {
    "learned": "Of 4 models, 4 learned a depth, and 4 of these were read.",
    "nothing": "Of 4 models, 0 learned a depth, and 0 of these were read.",
    "one diverged": "Of 4 models, 3 learned a depth, and 3 of these were read.",
    "all diverged": "Of 4 models, 0 learned a depth, and 0 of these were read.",
}


def test_the_page_says_what_came_out(told):
    case, story, words = told
    assert OF_ALL[case] in words
    gone = {"one diverged": ["uniform, seed 0"], "all diverged": [f"{mixture}, seed {seed}"
            for mixture in ("uniform", "zipf") for seed in (0, 1)]}.get(case, [])  # fmt: skip
    assert (f"Training diverged: {'; '.join(gone)}. There are no answers of " in words) == bool(gone)
    assert ("Ask it yourself" in words) == (case != "all diverged")
    asked = {row["model"] for row in table(story, "What they answer")}
    every = {row["model"]: row for row in table(story, "Which heads")}
    assert len(every) == 4 and asked == set(every) - set(gone)
    assert {model for model, row in every.items() if row["verdict"] == "diverged"} == set(gone)
    assert ("The paths of the circuits that were read" in words) == (case in ("learned", "one diverged"))
    times = table(story, "How they learn")
    assert {row["D = 1"] for row in times} == {
        "learned": {"7"}, "nothing": {"not within training"}, "one diverged": {"7"}, "all diverged": set(),
    }[case]  # fmt: skip


def test_every_number_of_the_page_is_of_the_evidence(told):
    _, story, _ = told
    used = set(re.findall(r"\{(n\d+)\}", json.dumps(story)))
    assert used == set(story["numbers"])
    files = {number["file"] for number in story["numbers"].values()}
    assert files - {"config.json"} == {"evidence.parquet"}  # a guess is a fact of the configuration


def test_the_folder_that_is_asked_is_one_with_numbers(tmp_path, monkeypatch):
    run = presented(tmp_path, one_diverged(), CONFIG, monkeypatch)
    words = texts(run.read_json("story.json"))
    assert "--model hopscope/models/member-1" in words and "member-0" not in words


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_figure_is_drawn(tmp_path, preset, case):
    config = PRESETS[preset].model_copy(update={"seeds": 1})
    members = members_of(config, {"uniform": 97, "zipf": 24})
    members = [diverged(each) for each in members] if "diverged" in case else members
    found = evidence_of(members, config, *training_rows(members))
    write_figures(RunFolder(tmp_path), find_study("tiny-lm").figures(config), found)
    assert figure_names(tmp_path / "figures") == ["accuracy", "curves"]
    for name in figure_names(tmp_path / "figures"):
        render_figure(tmp_path / "figures", name)
