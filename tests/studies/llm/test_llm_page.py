"""The page, the figures and the command line, on answers made up by a rule."""

import json
import re

import pytest
from tests.story.user_run import texts
from tests.studies.stories import table

from hopscope.claims import Ledger
from hopscope.cli.parsing import joined
from hopscope.cli.run import read_options
from hopscope.errors import UserError
from hopscope.executors.finish import finish
from hopscope.figures import write_figures
from hopscope.language.questions.answers import FILE, read_answers
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.llm.config import PRESETS, LanguageModelConfig, short_names
from hopscope.studies.llm.measurements import cells

from .made_up import answered, evidence_of, judged

STUDY = find_study("llm")
LONG = "hopscope/" + "long/" * 9 + "tiny"


def slips(model, question, number):
    """One model is right; the other slips two times in three, after it stopped on the way."""
    if model == "a/b" or number % 3 == 0:
        return [question.answer]
    wrong = question.structure.alternatives[number % 3].answer
    return [question.structure.symbols[question.structure.chain][0], wrong]


def right(model, question, number):
    return [question.answer]


def mumbles(model, question, number):
    return ["hm"] * 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run of two models."""
    config = PRESETS["smoke"].model_copy(update={"model": ("a/b", LONG)})
    run = RunFolder.create(tmp_path_factory.mktemp("llm"), "llm", config.model_dump(mode="json"), [], "smoke")
    run.write_json(FILE, answered(config, slips).model_dump(mode="json"))
    finish(run, STUDY, config)
    return run, config, Evidence.read(run)


def told(root, say, **changes):
    """The words of the page, and the folder, of answers by a rule."""
    config = LanguageModelConfig(**{"model": ("a/b",), "count": 8, **changes})
    run = RunFolder.create(root, "llm", config.model_dump(mode="json"), [], None)
    answers = answered(config, say)
    STUDY.present(run, config, evidence_of(answers, config), Ledger([judged(answers, config)]))
    return texts(run.read_json("story.json")).replace("\u00a0", " "), run


# The page.


def test_every_number_of_the_page_is_in_the_evidence(made):
    run, _, evidence = made
    story = run.read_json("story.json")
    used = set(re.findall(r"\{(n\d+)\}", json.dumps([story["lead"], story["sections"]])))
    assert used == set(story["numbers"])
    rows = evidence.rows(measure="tally")
    found = {(row.metric, row.part): row.value for row in rows.itertuples()}
    direct = 0
    for number in story["numbers"].values():
        assert number["file"] == "evidence.parquet", number
        place = re.fullmatch(r"metric = (\w+), split = held_out, measure = tally, part = (.+)", number["key"])
        if place:
            assert found[place[1], place[2]] == number["value"], number
            direct += 1
    assert direct > 200


def test_counts_that_are_worked_out_are_those_of_the_cells(made):
    run, config, evidence = made
    story, found = run.read_json("story.json"), cells(evidence, config)
    accuracy = table(story, "How often they are right")
    assert [row["model"] for row in accuracy] == ["a/b"] * 9 + ["hopscope/…/tiny"] * 9
    assert [row["accuracy, given acceptable"].split(" of ")[1] for row in accuracy] == [
        str(cell.accuracy.of) for cell in found
    ]
    assert accuracy[0]["accuracy, given acceptable"] == "100 % [67.6, 100] of 8"
    wrong = [cell for cell in found if cell.wrong]
    followed = table(story, "Wrong answers")
    assert [row["wrong answers"] for row in followed] == [str(cell.wrong) for cell in wrong]
    for name, column in (
        ("from_first_line", "begins one line away"), ("from_answer_line", "answer stands one line away"),
    ):  # fmt: skip
        near = [getattr(cell, name).get("-1", 0) + getattr(cell, name).get("1", 0) for cell in wrong]
        assert [row[column] for row in followed] == list(map(str, near)) and any(near)
    assert {row["one line away by chance"] for row in followed} == {"50 %"}
    lost = table(story, "Wrong answers", 1)
    assert {row["questions"] for row in lost} == {"functions", "relatives"}
    by_steps = [str(count) for cell in wrong[-2:] for count in cell.lost_steps.values()]
    assert [row["wrong answers"].split(" of ")[0] for row in lost] == by_steps
    rejected = table(story, "Answers that were rejected")
    assert [row["stopped at hop 0"] for row in rejected] == [
        str(cell.rejected["stopped at hop 0"]) for cell in wrong
    ]
    assert {row["questions given up"] for row in rejected} == {"0"}
    hops = table(story, "How much of the skill")
    assert [(row["model"], row["D"]) for row in hops[:2]] == [("a/b", "1"), ("a/b", "2")]
    assert hops[1]["survives the added hop"].startswith("100 % [")
    assert hops[0]["skill of the depth before"] == "–"


def test_the_page_is_whole(made):
    run, config, _ = made
    for figure in STUDY.figures(config):
        for kind in ("svg", "png"):
            assert (run.path / "figures" / f"{figure.name}.{kind}").stat().st_size > 1000
    page = re.sub(r"<script.*?</script>", "", (run.path / "report.html").read_text(), flags=re.S)
    assert "None" not in page and "hopscope/…/tiny" in page


def test_a_model_that_is_right_has_no_failures(tmp_path):
    words, _ = told(tmp_path, right)
    assert "No acceptable answer was wrong. So there is no failure to look at." in words
    assert "which chain was followed" not in words and "rejected" not in words
    assert "8 of 500 questions of each kind), so it can neither reproduce nor refute" in words
    assert "1 model, 8 questions of each kind." in words


def test_a_model_that_never_answers_has_no_accuracy(tmp_path):
    words, run = told(tmp_path, mumbles)
    assert "No model gave an acceptable answer to any question." in words
    assert "No acceptable answer was wrong" not in words and "How much of the skill" not in words
    rows = table(run.read_json("story.json"), "How often they are right")
    assert {row["accuracy, given acceptable"] for row in rows} == {"– of 0"}
    assert {row["mean attempts"] for row in rows} == {"3.00"}
    rejected = table(run.read_json("story.json"), "Answers that were rejected")
    assert {row["other"] for row in rejected} == {"24"}


def test_the_paper_s_scale_is_not_called_small(tmp_path):
    words, _ = told(tmp_path, right, count=500)
    assert "smaller than the paper's protocol" not in words
    words, _ = told(tmp_path / "some", right, count=500, formulations=("kingdoms", "functions"))
    assert "(7 of 9 kinds of questions not asked)" in words


def test_of_one_depth_no_hop_is_told(tmp_path):
    words, _ = told(tmp_path, slips, formulations=("equations",), depths=(3,))
    assert "How much of the skill" not in words and "equations_by_depth" not in words


# Figures.


def test_the_counts_are_in_the_table_again(made):
    run, config, evidence = made
    found = [cell.model_dump(mode="json") for cell in cells(evidence, config)]
    assert found == run.read_json(FILE)["cells"]


def drawn(config, evidence, name):
    (figure,) = [figure for figure in STUDY.figures(config) if figure.name == name]
    return figure.draw(evidence)[1]


def test_the_figures_show_the_cells(made):
    _, config, evidence = made
    rows = [row for row in drawn(config, evidence, "accuracy_by_formulation") if row["kind"] == "mean"]
    assert [row["y"] for row in rows[:5]] == [
        "equations, D = 5", "lives with, D = 5", "kingdoms, D = 5", "functions, D = 2", "relatives, D = 4",
    ]  # fmt: skip
    assert all(row["value"] == 1.0 and row["low"] < 1 for row in rows[:5])
    guesses = [row["value"] for row in rows if row["name"] == "a guess"]
    assert guesses == [0.25] * 4 + [0.0625]
    by_depth = [row for row in drawn(config, evidence, "equations_by_depth") if row["kind"] == "mean"]
    of = {(cell.model, str(cell.depth)): cell.accuracy.value for cell in cells(evidence, config)
          if cell.formulation == "equations"}  # fmt: skip
    names = short_names(config.model)
    assert {(row["name"], row["x"]): row["value"] for row in by_depth} == {
        (names[model], depth): pytest.approx(value, rel=1e-4) for (model, depth), value in of.items()
    }


def test_wrong_answers_are_drawn_where_their_lines_stand(made):
    _, config, evidence = made
    rows = [row for row in drawn(config, evidence, "chains_followed") if row["kind"] == "mean"]
    assert {row["name"] for row in rows} == {
        "hopscope/…/tiny",
        "if every other chain is followed equally often",
    }
    for panel in ("equations", "lives with", "kingdoms", "functions", "relatives"):
        for name in {row["name"] for row in rows}:
            shares = [row["value"] for row in rows if row["panel"] == panel and row["name"] == name]
            assert len(shares) == 6 and sum(shares) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("say", [right, mumbles, slips])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_figure_is_drawn(tmp_path, preset, say):
    config = PRESETS[preset].model_copy(update={"model": ("a/b", LONG), "count": 2})
    write_figures(RunFolder(tmp_path), STUDY.figures(config), evidence_of(answered(config, say), config))
    names = figure_names(tmp_path / "figures")
    assert names == ["accuracy_by_formulation", "chains_followed", "equations_by_depth"]
    for name in names:
        render_figure(tmp_path / "figures", name)


def test_what_was_not_asked_has_no_figure():
    names = {
        fields: [figure.name for figure in STUDY.figures(LanguageModelConfig(model=("a/b",), **dict(fields)))]
        for fields in ((("depths", (3,)),), (("formulations", ("kingdoms",)),))
    }
    assert set(map(tuple, names.values())) == {("accuracy_by_formulation", "chains_followed")}
    assert STUDY.figures(LanguageModelConfig()) == ()


# The command line.


def test_a_run_of_before_without_a_model_is_still_concluded(tmp_path):
    config = PRESETS["smoke"]
    run = RunFolder.create(tmp_path, "llm", config.model_dump(mode="json"), [], "smoke")
    run.write_json(FILE, {"schema_version": 1, "cells": [], "rows": []})
    finish(run, STUDY, config)
    (claim,) = run.read_json("claims.json")
    assert (claim["id"], claim["verdict"], claim["value"], claim["n"]) == ("R10", "not run", None, 0)
    assert "No model was asked" in (run.path / "report.html").read_text()


def test_answers_on_record_of_before_are_read(made, tmp_path):
    """With counts that are worked out now, and of chains that stood beside each cell."""
    run, config, _ = made
    record = run.read_json(FILE)
    assert all(
        cell["wrong"] == cell["accuracy"]["of"] - cell["accuracy"]["count"] for cell in record["cells"]
    )
    for cell in record["cells"]:
        del cell["chains"]
    older = RunFolder.create(tmp_path, "llm", config.model_dump(mode="json"), [], None)
    older.write_json(FILE, record)
    assert read_answers(older).rows == read_answers(run).rows


def test_models_on_the_command_line():
    for given in (["--model", "a/b", "c/d"], ["--model", "a/b", "--count", "3", "--model=c/d"]):
        _, config = read_options(STUDY, given)
        assert config.model == ("a/b", "c/d")
    assert joined(["--out", "model", "--model", "x", "--model", "y"], ["model"]) == [
        "--out", "model", "--model", "x", "y",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--model", "gpt-4o"], "model: expected PROVIDER/MODEL, such as openai/gpt-4o, found 'gpt-4o'"),
        (["--model", "a/b", "--model", "a/b"], "model: expected each once, found a/b a/b"),
        (["--depths", "3", "1"], r"depths: expected ascending numbers of steps, found \[3, 1\]"),
    ],
)
def test_what_cannot_be_asked_is_one_line(given, words):
    with pytest.raises(UserError, match=words):
        read_options(STUDY, given)


def test_how_long_one_waits_is_not_on_record():
    patient = LanguageModelConfig(timeout=7, max_connections=3)
    assert patient.model_dump(mode="json") == LanguageModelConfig().model_dump(mode="json")
    assert [len(config.kinds()) for config in PRESETS.values()] == [9, 9, 9]
    assert [config.count for config in PRESETS.values()] == [8, 100, 500]


def test_short_names_stay_different():
    long = [f"hopscope/{'x' * 40}{end}/model" for end in "ab"]
    assert short_names(long) == {name: name for name in long}
    assert short_names(["openai/gpt-4o"]) == {"openai/gpt-4o": "openai/gpt-4o"}


def test_a_choice_and_changed_questions_are_told_and_are_another_run(tmp_path):
    usual = LanguageModelConfig(model=("a/b",))
    assert not {"measure", "few_shot", "filler", "repeats"} & set(usual.model_dump(mode="json"))
    changed = {"measure": "choice", "few_shot": 2, "filler": 5, "repeats": 3}
    assert changed.items() <= usual.model_copy(update=changed).model_dump(mode="json").items()
    words, _ = told(tmp_path, right, **changed, formulations=("equations",), depths=(1, 2))
    assert (
        "the one counts that the model finds likeliest" in words
        and "An answer is *acceptable* if" not in words
    )
    assert "2 solved examples" in words and "told 3 times" in words and "5 dots" in words
    assert "a choice among the acceptable answers instead of an answer" in words
    assert "the likeliest one was right in" in words and "Where an answer was acceptable" not in words
    usually, _ = told(tmp_path / "usual", right, formulations=("equations",), depths=(1,))
    assert "Where an answer was acceptable" in usually and "a blind guess is right in" in usually
    assert "likeliest" not in usually and "put in another way" not in usually


def test_several_models_are_ranked_and_what_was_said_is_counted(made):
    run, _, _ = made
    page = (run.path / "story.json").read_text(encoding="utf-8")
    assert "The models side by side, best first" in page
    (table_,) = [
        block
        for section in json.loads(page)["sections"]
        for block in section["blocks"]
        if block.get("kind") == "table" and "best first" in block["caption"]
    ]
    assert [row[:2] for row in table_["rows"]] == [["1", "a/b"], ["2", short_names(("a/b", LONG))[LONG]]]
    assert "asked chain, hop 0" in page
