"""The page and the command line, on answers made up by a rule."""

import json
import re

import pytest

from hopscope.cli.parsing import joined
from hopscope.cli.run import read_options
from hopscope.errors import UserError
from hopscope.executors.finish import finish
from hopscope.executors.local import run_study
from hopscope.runs import RunFolder, find_run
from hopscope.studies import find_study
from hopscope.studies.llm.cells import FILE
from hopscope.studies.llm.config import PRESETS, LanguageModelConfig
from hopscope.studies.llm.figures import accuracy_rows, figure_names, followed_rows, headline
from hopscope.studies.llm.words import short_names

from .made_up import answered

STUDY = find_study("llm")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of two models: one right, one that slips, stops on the way and is asked again."""
    config = PRESETS["smoke"].model_copy(update={"model": ("a/b", "hopscope/" + "long/" * 9 + "tiny")})

    def say(model, question, number):
        if model == "a/b" or number % 3 == 0:
            return [question.answer]
        wrong = question.structure.alternatives[number % 3].answer
        return [question.structure.symbols[question.structure.chain][0], wrong]

    run = RunFolder.create(tmp_path_factory.mktemp("llm"), "llm", config.model_dump(mode="json"), [], "smoke")
    answers = answered(config, say)
    run.write_json(FILE, answers.model_dump(mode="json"))
    finish(run, STUDY, config)
    return run, config, answers.cells


def test_every_number_can_be_followed_to_its_place(made):
    run, _, _ = made
    story, record = run.read_json("story.json"), run.read_json(FILE)
    used = set(re.findall(r"\{(n\d+)\}", json.dumps(story["sections"])))
    assert used == set(story["numbers"])
    plain = [n for n in story["numbers"].values() if n["key"].startswith("cells[")]
    assert len(plain) > 100
    for number in plain:
        assert number["file"] == FILE
        assert followed_key(record, number["key"]) == number["value"], number


def followed_key(record, key):
    """What stands in a record at `cells[3].accuracy.value` or `cells[3].rejected['stopped at hop 0']`."""
    for word, place, name in re.findall(r"\['([^']+)'\]|\[(\d+)\]|([a-z_]+)", key):
        record = record[int(place) if place else name or word]
    return record


def test_the_page_is_whole(made):
    run, config, _ = made
    sections = [section["id"] for section in run.read_json("story.json")["sections"]]
    assert sections == ["task", "verdicts", "accuracy", "wrong", "hops", "rejected", "limits"]
    for name in figure_names(config):
        for kind in ("svg", "png"):
            assert (run.path / "figures" / f"{name}.{kind}").stat().st_size > 1000
    page = re.sub(r"<script.*?</script>", "", (run.path / "report.html").read_text(), flags=re.S)
    assert "None" not in page and "hopscope/…/tiny" in page


def test_the_figures_show_the_cells(made):
    _, config, found = made
    left = accuracy_rows(config, headline(found))
    assert [row["depth"] for row in left] == [5, 5, 5, 2, 4] * 2
    assert [row["guess"] for row in left] == [0.25] * 4 + [0.0625] + [0.25] * 4 + [0.0625]
    assert all(row["value"] == 1.0 and row["low"] < 1 for row in left[:5])
    every = followed_rows(config, found)
    assert all((row["share"] is None) == (row["of"] == 0) for row in every)
    followed = [row for row in every if row["of"]]
    assert {row["model"] for row in followed} == {"hopscope/…/tiny"}
    for name in {row["formulation"] for row in followed}:
        of = [row for row in followed if row["formulation"] == name]
        assert sum(row["count"] for row in of) == of[0]["of"]


def test_without_a_model_the_run_says_how_to_give_one(tmp_path):
    config = PRESETS["smoke"]
    run = run_study(STUDY, config, out=tmp_path, preset="smoke", device="cpu")
    assert run.is_done and run.members == [] and run.metrics().num_rows == 0
    (claim,) = run.read_json("claims.json")
    assert (claim["id"], claim["verdict"], claim["value"], claim["n"]) == ("R10", "not run", None, 0)
    page = (run.path / "report.html").read_text()
    assert "--model openai/gpt-4o" in page and "not run" in page
    (run.path / FILE).unlink()
    again = run_study(find_study("llm"), config, out=tmp_path, device="cpu")
    assert again.path == run.path and (run.path / FILE).is_file() and find_run(tmp_path).is_done


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
