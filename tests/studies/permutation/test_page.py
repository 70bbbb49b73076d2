"""The page and its figures on the committed evidence, and where nothing was learned, or members diverged."""

import math
import re
from pathlib import Path

import pytest
from markupsafe import Markup

from hopscope.page.files import Shown, shown
from hopscope.page.story import Story
from hopscope.page.template import Held, fill
from hopscope.runs import Evidence, Member
from hopscope.studies.permutation import study as module
from hopscope.studies.permutation.study import study

PAPER = Path(__file__).parents[3] / "docs" / "results" / "permutation" / "paper"
TEMPLATE = Path(module.__file__).with_name("page.md.j2").read_text(encoding="utf-8")
CONFIGURATIONS = ("d16/1 plain", "d32/2 repeats", "d16/1 repeats")


@pytest.fixture(scope="module")
def table():
    """Three seeds of some configurations that learned all, of their curves few points."""
    frame = Evidence.read(PAPER).where(configuration=CONFIGURATIONS, seed=[0, 1, 3]).to_pandas()
    frame = frame[(frame["measure"] != "training") | (frame["step"] % 1000 == 0)]
    return frame[frame["measure"] != "formation"].drop(columns="file")


def evidence_of(frame):
    columns = ["member", "measure", "metric", "split", "step", "samples", "layer", "head", "part", "value"]
    members = frame.drop_duplicates("member").sort_values("member")
    own = [
        Member(member=m, seed=s, configuration=c)
        for m, s, c in members[["member", "seed", "configuration"]].itertuples(index=False)
    ]
    rows = frame[columns].astype(object).where(frame[columns].notna(), None).to_dict("records")
    return Evidence.of([{k: v for k, v in row.items() if v is not None or k == "value"} for row in rows], own)


def rendered(evidence, **fields):
    """Title, question, answer, and the words of sections and of tables."""
    chosen = study.changed({"configurations": list(CONFIGURATIONS), **fields})
    held, tables = Held(), []
    figures = [Shown(figure.name, {}, "", "") for figure in chosen.all_figures()]

    def table(columns, rows, caption):
        tables.append([columns, *rows])
        return Markup("")

    nothing = dict.fromkeys(("claims", "readings", "explorer", "circuits"), lambda: Markup(""))
    blocks = {**nothing, "figure": lambda each: Markup(f"[{each.name}]"), "table": table}
    about = {"options": chosen.options.model_dump(mode="json"), "study": {"name": chosen.name}}
    about["task"] = {"name": "Permutation", "fields": chosen.task.model_dump(mode="json")}
    story = Story(evidence, about, [], figures, blocks, held)
    text = fill(TEMPLATE, "page.md.j2", story.names(), lambda name: None)
    title, question, sections = held.sections(text)
    plain = " ".join(re.sub(r"<[^>]+>", " ", f"{section.heading}: {section.html}") for section in sections)
    cells = held.plain(" ".join(cell for rows in tables for row in rows for cell in row))
    return title, question, *(re.sub(r"\s+", " ", each) for each in (held.plain(story.lead[0]), plain, cells))


def test_what_was_learned(table):
    title, question, answer, text, cells = rendered(evidence_of(table))
    assert title.startswith("Permutation lookup") and "3 configurations, 9 models" in question
    assert answer.startswith("Every model rules out used values")
    assert "Recall is learned where training rewards it: d32/2 repeats recalls" in answer
    for heading in (
        "Is recall a phase transition?",
        "How recall works",
        "What each head is for",
        "Is accuracy below chance",
    ):
        assert f"{heading}" in text
    assert "the last answer does not use it" in text and "diverged" not in text
    assert "published" in cells and "9.56 %" in cells
    assert len(answer.split(". ")) <= 3


def test_nothing_learned(table):
    low = {
        "elimination": 0.2,
        "recall": 0.1,
        "relative_width": math.inf,
        "width": math.inf,
        "time": math.inf,
        "last_row_change": 0.5,
    }
    frame = table.copy()
    for metric, value in low.items():
        frame.loc[frame["metric"] == metric, "value"] = value
    _, _, answer, text, _ = rendered(evidence_of(frame))
    assert answer.startswith("No model rules out used values")
    assert "Training with repeats did not bring full recall" in answer
    assert "Recall did not rise well above chance in 3 of 3 seeds" in text
    assert "the tests have little to take apart" in text and "does not use it" not in text


def test_members_that_diverged(table):
    one = table.copy()
    one.loc[(one["configuration"] == "d32/2 repeats") & (one["seed"] == 1), "value"] = math.nan
    _, _, answer, text, cells = rendered(evidence_of(one))
    assert "Recall is learned" in answer and "Training of d32/2 repeats, seed 1 diverged" in text
    assert "3, 1 diverged" in cells
    gone = table.assign(value=math.nan)
    _, _, answer, text, _ = rendered(evidence_of(gone))
    assert (
        answer == "Training of every model diverged, so there is no answer."
        and "How recall works" not in text
    )


def test_without_repeats_or_with_basic_measurements(table):
    plain = table[table["configuration"] == "d16/1 plain"]
    _, _, answer, text, _ = rendered(evidence_of(plain), configurations=["d16/1 plain"])
    assert "No training data had repeats" in answer and "phase transition" not in text
    basic = table[~table["measure"].isin(["battery", "roles", "patterns"])]
    _, _, answer, text, _ = rendered(evidence_of(basic), measurements="basic")
    assert "Recall is learned" in answer and "What each head is for" not in text


def test_sweeps(table):
    frame = table.replace({"configuration": {"d16/1 repeats": "d16/1 plain batch=128"}})
    *_, text, cells = rendered(
        evidence_of(frame), configurations=["d16/1 plain", "d32/2 repeats"], sweeps=["batch"]
    )
    assert "One thing" in text or "one thing varies at a time" in text
    assert "d16/1 plain batch=128" in cells


@pytest.mark.parametrize(
    "name", ["loss", "skills", "accuracy_by_step", "head_roles", "attention", "ablation"]
)
def test_figures_show_what_was_measured(name, table):
    evidence = evidence_of(table)
    figures = {
        each.name: each for each in study.changed({"configurations": list(CONFIGURATIONS)}).all_figures()
    }
    found = shown(figures[name], evidence)
    assert found.caption and found.alt and found.spec["data"]["values"].count("\n") > 3


def test_levels_are_of_the_models_that_are_shown():
    def levels(*names):
        made = study.chosen(None, {"configurations": names})
        return {each.name: each.draw.shown.get("levels") for each in made.all_figures()}

    four, both = levels("d32/2 plain V=4"), levels("d32/2 plain V=4", "d32/2 plain")
    assert levels("d32/2 repeats slots=2")["final"] == {}  # another place of the repeat has another guess
    assert four["final"] == {"guess among values shown": pytest.approx(1 / 3)}
    assert four["loss"]["all mappings equally likely"] == pytest.approx(math.log(24) / 4)
    assert both["final"] == {} and both["loss"]["all mappings equally likely"] == pytest.approx(
        math.log(120) / 5
    )
