"""The page of the permutation study: its numbers are those of the evidence, and no sentence contradicts the run."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.story.user_run import texts

from hopscope.claims import Ledger, Verdict, judge
from hopscope.claims.intervals import bootstrap_mean
from hopscope.report.record import read_run
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.loading import study_names
from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.config import PRESETS, PermutationStudyConfig

from .page_evidence import page_evidence, told
from .stories import blocks

PAPER = Path(__file__).parents[2] / "docs" / "results" / "permutation" / "paper"
SOURCES = Path(__file__).parents[2] / "src" / "hopscope" / "studies"
BASE = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")


@pytest.fixture(scope="module", params=["whole_run", "small_run"])
def run(request):
    return RunFolder(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def evidence(run):
    return Evidence.read(run)


@pytest.fixture
def story(run):
    return run.read_json("story.json")


# Every number is where it is said to be.

KEY = re.compile(
    r"(?P<what>.*?)metric = (?P<metric>\w+), (?P<where>.*?)"
    r"(, (?P<late>in the last fifth of training: (?P<end>\w+))|, last step)?"
    r"(, over \d+ members|, member (?P<member>\d+))?"
)
MEETS = {
    "equal": np.equal, "at least": np.greater_equal, "at most": np.less_equal, "above": np.greater, "below": np.less,
}  # fmt: skip


def rows_of(frame, metric, where):
    """Rows that a key names, in plain pandas."""
    frame = frame[frame["metric"] == metric]
    asked = dict(condition.split(" = ") for condition in re.split(r", (?=\w+ = )", where))
    for name, value in asked.items():
        frame = frame[frame[name].astype(str).str.removesuffix(".0").isin(value.split(", "))]
    for name in ("part", "head"):
        frame = frame if name in asked else frame[frame[name].isna()]
    return frame


def look_up(frame, key):
    """What a reader finds who follows a key in the evidence table."""
    match = KEY.fullmatch(key)
    assert match, key
    frame = rows_of(frame, match["metric"], match["where"])
    if match["late"]:
        values = frame[frame["step"] > 0.8 * frame["step"].max()]["value"].dropna()
        return {"lowest": min, "highest": max}[match["end"]](values)
    last = frame[frame["step"] == frame.groupby("member")["step"].transform("max")].set_index("member")
    values = last["value"].dropna()
    assert values.index.is_unique, key
    if match["member"]:
        return values[int(match["member"])]
    what = match["what"].strip()
    if what.startswith("members"):
        condition, bound = re.fullmatch(r"members (.+) (\S+) of", what).groups()
        return int(MEETS[condition](values, float(bound)).sum())
    known = values[np.isfinite(values)].tolist()
    if what == "mean of":
        return sum(known) / len(known)
    end = re.fullmatch(r"95 % bootstrap interval over seeds, (lower|upper) end, of the mean of", what)[1]
    return bootstrap_mean(known)[("lower", "upper").index(end)]


def check_numbers(story, evidence, every=1):
    numbers = list(story["numbers"].items())
    measured = [(name, number) for name, number in numbers if number["file"] == "evidence.parquet"]
    others = [number for _, number in numbers if number["file"] != "evidence.parquet"]
    assert {number["file"] for number in others} == {"config.json"}
    assert len(others) <= 6
    frame = evidence.to_pandas()
    for name, number in measured[::every]:
        assert look_up(frame, number["key"]) == pytest.approx(number["value"]), (name, number)
    return len(measured)


def test_every_number_is_where_it_is_said_to_be(story, evidence):
    assert check_numbers(story, evidence) > 50


@pytest.fixture(scope="module")
def committed():
    """The committed results of the configurations that are asked for without changes, and their page."""
    run = RunFolder(PAPER)
    config = PermutationStudyConfig.model_validate(run.config)
    evidence = Evidence.read(run).where(configuration=BASE)
    config = config.model_copy(update={"sweeps": ()})
    ledger = Ledger([judge(claim, evidence) for claim in claims(config)])
    return evidence, find_study("permutation").story(run, config, evidence, ledger)


@pytest.mark.extras
@pytest.mark.long
def test_the_page_of_the_committed_results(committed):
    evidence, story = committed
    assert check_numbers(story, evidence, 7) > 500
    words = texts(story)
    for sentence in (
        "5 configurations, 50 models, measured on mappings that training never uses.",
        "Recall rose well above chance in 10 of 10 seeds of d32/2 repeats.",
        "d32/2 repeats | accuracy | published | 14.6 % | 16.4 % | 23.4 % | 41.5 % | 100 % | 100 %",
        "d32/2 repeats | 10 | shared in 10 of 10 | head 0.0 in 6 of 10; head 0.1 in 4 of 10",
        "Whatever binding a heat map shows in the earlier rows, the last answer does not use it.",
        "Width decides more than heads do.",
    ):
        assert sentence in words or sentence in lines(story), sentence


def test_worked_sequences_are_those_of_the_record(run, story):
    worked = blocks(story, "worked")
    files = list(run.path.glob("units/*/analysis/worked-*.json"))
    assert bool(worked) == bool(files)
    for block in worked:
        record = json.loads((run.path / block["file"]).read_text(encoding="utf-8"))
        sequence, index = re.fullmatch(r"sequences\.(.+)\.probabilities\.(\d+)", block["key"]).groups()
        assert [[bar["probability"] for bar in step["bars"]] for step in block["steps"]] == (
            record["sequences"][sequence]["probabilities"][int(index)]
        )
        assert ", seed 0 of this run" in block["caption"]


def lines(story):
    """Rows of the tables, with the numbers filled in."""
    rows = "\n".join(" | ".join(row) for block in blocks(story, "table") for row in block["rows"])
    return re.sub(r"\{(n\d+)\}", lambda found: story["numbers"][found[1]]["text"], rows)


def placeholders(value):
    if isinstance(value, str):
        return set(re.findall(r"\{(\w+)\}", value))
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return set().union(*map(placeholders, entries))


def test_texts_are_the_values_rounded(story):
    scale = 1
    for name, number in story["numbers"].items():
        text = number["text"].replace("−", "-").replace(",", "")
        # The ends of an interval have the unit of the mean before them.
        if not number["key"].startswith("95 %"):
            scale = 100 if text.endswith("%") else 1
        shown = text.rstrip("%\N{NO-BREAK SPACE} ")
        decimals = len(shown.partition(".")[2])
        rounding = max(0.51 * 10.0**-decimals, 6e-4 * abs(scale * number["value"]))
        assert float(shown) == pytest.approx(scale * number["value"], abs=rounding), name


def test_every_placeholder_has_its_number_and_is_used(story):
    assert placeholders([story["lead"], story["sections"]]) == set(story["numbers"])


def test_no_other_measured_number_is_written_into_the_text(story):
    """Digits with decimals come from `numbers`; what remains are constants of the protocol."""
    texts = " ".join(block.get("text", "") for section in story["sections"] for block in section["blocks"])
    assert not re.search(r"(?<![\d{])0\.\d{3,}", re.sub(r"[\d.]+ of \d+ epochs", "", texts))


def test_blocks_name_what_is_there(run, story):
    kinds = {"markdown", "sequence", "figure", "table", "verdicts", "worked", "explorer"}
    identifiers = [section["id"] for section in story["sections"]]
    assert len(set(identifiers)) == len(identifiers)
    for section in story["sections"]:
        assert section["heading"]
        for block in section["blocks"]:
            assert block["kind"] in kinds
            if block["kind"] == "figure":
                assert (run.path / "figures" / f"{block['name']}.vl.json").is_file()
                assert block["alt"] and block["caption"]
            if block["kind"] == "table":
                assert block["rows"]
                assert {len(row) for row in block["rows"]} == {len(block["columns"])}
    assert read_run(run.path).story.title


def test_every_figure_of_the_run_is_on_its_page(run, story):
    config = PermutationStudyConfig.model_validate(run.config)
    shown = [block["name"] for block in blocks(story, "figure")]
    # When nothing formed there is no order to draw.
    names = [figure.name for figure in find_study("permutation").figures(config)]
    assert set(names) - set(shown) <= {"formation_order"}
    assert len(set(shown)) == len(shown)


def test_the_explorer_follows_the_task_and_begins_where_there_is_something_to_recall(story):
    names = [section["id"] for section in story["sections"]]
    assert names.index("the-task") < names.index("take-a-model-apart")
    (explorer,) = blocks(story, "explorer")
    start = explorer["start"]
    task = explorer["tasks"][explorer["models"][start["model"]]["task"]]
    *before, last = task["examples"][start["example"]]["inputs"][::2]
    assert last in before
    assert not any("section" in example["name"] for example in task["examples"])


@pytest.mark.parametrize("name", study_names())
def test_every_page_explains_its_task_before_a_model_is_taken_apart(name):
    template = SOURCES / name.replace("-", "_") / "page.md.j2"
    before, found, _ = template.read_text(encoding="utf-8").partition("{{ explorer(")
    assert not found or "\n## " in before or "{{ chains_task() }}" in before


def test_a_small_run_says_what_it_lacks(story):
    words = texts(story)
    assert re.search(r"[\d.]+ of (20|50) epochs", words)
    assert "a claim about every seed needs ten" in words


# No sentence contradicts the run.

CONFIG = PermutationStudyConfig(seeds=3)
ROSE, NONE_ROSE = (
    "Recall rose well above chance in 3 of 3 seeds",
    "0 of 3 seeds of d32/2 repeats, so there is no rise",
)
SENTENCES = {
    "learned": (
        {},
        [ROSE, "match came before history in 3 of 3 seeds", "match had made 50.2 % of its own"],
        [NONE_ROSE, "diverged", "none of them recalls", "so neither came first", "no value"],
    ),
    "nothing learned": (
        {"learned": False},
        [NONE_ROSE, "So none of them recalls half of the repeats", "so neither came first"],
        [ROSE, "came before history in", "of its own", "diverged", "no value"],
    ),
    "one diverged": (
        {"diverged": (4,)},
        [
            "Training of d32/2 repeats, seed 1 diverged: the loss was no longer finite.",
            "Recall rose well above chance in 2 of 2 seeds",
            "3, 1 diverged",
            "Seeds that diverged are not among these.",
        ],
        [ROSE, "no value"],
    ),
    "all of them diverged": (
        {"diverged": (3, 4, 5)},
        ["d32/2 repeats, seed 2 diverged", "3, 3 diverged"],
        [ROSE, "How recall works", "phase transition?"],
    ),
    "match never formed in one": (
        {"matchless": (4,)},
        [
            "match came before history in 2 of 2 seeds in which both formed, after it in 0 of 2",
            "Match never formed in 1 of 3 seeds.",
        ],
        ["after it in 1", "History never formed"],
    ),
    "match never formed": (
        {"matchless": (3, 4, 5)},
        ["In no seed did both form", "Match never formed in 3 of 3 seeds."],
        ["came before history"],
    ),
    "everything diverged": ({"diverged": range(6)}, ["3, 3 diverged"], [ROSE, "Whatever binding"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SENTENCES)
def test_the_page_says_only_what_is_so(tmp_path, case):
    made, present, absent = SENTENCES[case]
    story = told(tmp_path, CONFIG, page_evidence(CONFIG, **made))
    words = texts(story).replace("\u00a0", " ")
    assert [sentence for sentence in present if sentence not in words] == []
    assert [sentence for sentence in absent if sentence in words] == []
    check_numbers(story, page_evidence(CONFIG, **made), 5)


@pytest.mark.parametrize(
    "config",
    [
        PRESETS["smoke"],
        PermutationStudyConfig(configurations=("d16/1 plain",), seeds=1),
        PermutationStudyConfig(configurations=("d32/2 repeats V=4",), seeds=2),
        PermutationStudyConfig(configurations=("d8/4 repeats",), seeds=2, values=3, repeat_slots=(2, 3)),
        PermutationStudyConfig(measurements="basic", seeds=2),
        PermutationStudyConfig(width=8, seeds=1, sweeps=("values", "positions")),
        PermutationStudyConfig(
            seeds=1, sweep_seeds=1, sweeps=("batch", "positions", "memorisation", "ratio")
        ),
    ],
)
def test_every_configuration_has_a_page(tmp_path, config):
    evidence = page_evidence(config)
    story = told(tmp_path, config, evidence)
    check_numbers(story, evidence, 5)
    shown = {block["name"] for block in blocks(story, "figure")}
    assert shown == {figure.name for figure in find_study("permutation").figures(config)}


def test_evidence_that_lacks_measures_has_a_page(tmp_path):
    """Such as that of a run that was made before they were thought of."""
    evidence = page_evidence(CONFIG, only=("probes", "last_epoch"))
    words = texts(told(tmp_path, CONFIG, evidence))
    assert "What was trained" in words
    assert "tilt" not in words and "How recall works" not in words


# What lies behind the verdicts.

BEHIND = {
    "P1": "reproduced", "P2": "reproduced", "P3": "refuted", "P4": "reproduced", "P6": "reproduced", "P7": "refuted",
    "P8": "refuted", "P9": "refuted", "P10a": "reproduced", "P10b": "refuted", "P11": "refuted",
}  # fmt: skip
"""Claim → the verdict that the page explains; P5 is explained whichever it is."""


def explained(tmp_path, evidence, config, verdict):
    """Claims that have an explanation where all of them come to one verdict."""
    ledger = [
        judge(claim, evidence).model_copy(update={"verdict": Verdict(verdict)}) for claim in claims(config)
    ]
    story = told(tmp_path, config, evidence, Ledger(ledger))
    (table,) = (block for block in blocks(story, "table") if block["columns"][-1] == "what lies behind it")
    assert [row[1] for row in table["rows"]] == [claim.id for claim in ledger]
    assert {row[0] for row in table["rows"]} == {verdict}
    return {row[1] for row in table["rows"] if row[3] != "–"}


BROAD = PermutationStudyConfig(all_configurations=True, seeds=2, sweeps=("memorisation",))


@pytest.mark.parametrize("verdict", ["reproduced", "refuted", "inconclusive"])
def test_an_explanation_stands_only_beside_the_verdict_that_it_explains(tmp_path, verdict):
    found = explained(tmp_path, page_evidence(BROAD), BROAD, verdict)
    expected = {id for id, explains in BEHIND.items() if explains == verdict}
    # Of models that all learned everything, neither P3 nor P8 is refuted for the reasons that the page knows.
    assert found == expected - {"P3", "P8"} | ({"P5"} if verdict != "inconclusive" else set())


def test_an_explanation_needs_the_numbers_that_bear_it_out(tmp_path):
    """The verdicts are the same, but nothing was learned."""
    found = explained(tmp_path, page_evidence(BROAD, learned=False), BROAD, "refuted")
    assert "P5" not in found
    assert "P10a" not in explained(
        tmp_path / "again", page_evidence(BROAD, learned=False), BROAD, "reproduced"
    )


def test_models_that_were_not_trained_explain_nothing(tmp_path):
    config = PermutationStudyConfig(configurations=("d16/1 plain",), seeds=2)
    found = explained(tmp_path, page_evidence(config), config, "refuted")
    assert not {"P3", "P5", "P8", "P9", "P11"} & found


def test_claims_that_were_not_run_are_not_told_again(tmp_path):
    config = PermutationStudyConfig(configurations=("d16/1 plain",), seeds=2)
    story = told(tmp_path, config, page_evidence(config), Ledger([]))
    assert "No claim could be judged in this run." in texts(story)


# Figures.


@pytest.mark.parametrize("name", ["loss", "skills", "recall_by_slot", "attention"])
def test_figures_have_their_data(run, name):
    chart = run.read_json(f"figures/{name}.vl.json")
    assert chart["data"]["url"] == f"{name}.csv"
    assert "vega-lite" in chart["$schema"]
    with (run.path / "figures" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file))
    for suffix, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        content = (run.path / "figures" / f"{name}.{suffix}").read_bytes()
        assert start in content[:300]
        assert len(content) > 2000
