"""The Inspect tasks with a model that says what a test wants: protocol, score, metrics, and the command line."""

import json
import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from click import ClickException
from inspect_ai import eval, eval_set
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.viewer import TaskSamplesColumnId

import hopscope
from hopscope.claims.intervals import wilson
from hopscope.language.inspect.tasks import TASKS
from hopscope.language.questions.answers import rows, tallies

from .stub import Stub, solve

ROOT = Path(__file__).parents[3]


def told(say):
    """A model that says `say(prompt, before)`, where `before` counts earlier answers to this prompt."""
    asked = {}

    def answer(messages, tools, choice, config):
        prompt = messages[-1].text
        seen = asked.setdefault(prompt, [])
        seen.append((len(messages), config.seed))
        output = ModelOutput.from_content("mockllm/told", say(prompt, len(seen) - 1))
        output.usage = ModelUsage()  # else Inspect counts tokens with a tokenizer from the network
        return output

    return get_model("mockllm/told", custom_outputs=answer), asked


def run(say, folder, name="equations", *, cache=None, seed=None, **arguments):
    model, asked = told(say)
    how = {"display": "none", "log_dir": str(folder), "ctl_server": False, "log_realtime": False}
    if seed is not None:
        model.config.seed = seed
    settings = {"depths": 2, "chains": 3, "count": 5, **arguments}
    (log,) = eval(TASKS[name](**settings), model=model, cache=cache, **how)
    assert log.status == "success", log.error
    return log, asked


def metrics(log):
    """Score → kind of question → its value."""
    return {
        score.name: {metric.name: metric.value for metric in score.metrics.values()}
        for score in log.results.scores
    }


def test_a_sample_is_a_question_and_what_its_score_needs(tmp_path):
    log, _ = run(lambda prompt, before: solve(prompt), tmp_path)
    sample = log.samples[0]
    assert sample.id == "equations-d2-n3-s0-000000"
    assert solve(sample.input) == sample.target
    assert {**sample.metadata, "symbols": 0, "chain": 0, "alternatives": 0} == {
        "formulation": "equations",
        "depth": 2,
        "kind": "equations D=2",
        "chains": 3,
        "seed": 0,
        "acceptable": ["0", "1", "2"],
        "alternatives": 0,
        "symbols": 0,
        "chain": 0,
    }
    asked = sample.metadata["symbols"][sample.metadata["chain"]]
    assert asked[-1] == sample.target and f"value of {asked[0]}?" in sample.input
    assert {other["answer"] for other in sample.metadata["alternatives"]} == {"0", "1", "2"} - {sample.target}
    assert sample.scores["retrieval_score"].value == {
        "accuracy": 1,
        "first_attempt": 1,
        "acceptance": 1,
        "answered": 1,
        "stuck": 0,
        "guess": 1 / 3,
    }
    assert sample.scores["retrieval_score"].metadata == {
        "attempts": [{"text": sample.target, "acceptable": sample.target, "stop": "stop"}],
        "stuck": False,
        "answer": sample.target,
    }


def test_asking_goes_on_until_an_acceptable_answer(tmp_path):
    log, asked = run(
        lambda prompt, before: f" “{solve(prompt)}”. " if before == 3 else f"no {before}", tmp_path
    )
    for sample, row in zip(log.samples, rows(log), strict=True):
        assert (row.attempts, row.correct, row.first, row.stuck) == (4, True, None, False)
        assert sample.store["attempts"] == sample.scores["retrieval_score"].metadata["attempts"]
        assert len(sample.messages) == 2
    assert [[length for length, _ in times] for times in asked.values()] == [[1] * 4] * 5


def test_the_cap_ends_asking(tmp_path):
    log, asked = run(lambda prompt, before: f"no {before}", tmp_path, attempts=7)
    assert [len(times) for times in asked.values()] == [7] * 5
    scores = [sample.scores["retrieval_score"] for sample in log.samples]
    assert {(score.value["answered"], score.answer, score.explanation) for score in scores} == {
        (0, None, "no acceptable answer in 7 attempts")
    }
    assert all(math.isnan(score.value["accuracy"]) for score in scores)
    assert [tally.accuracy.value for tally in tallies(rows(log))] == [None]
    assert metrics(log)["answered"]["equations D=2"] == 0
    assert all(math.isnan(value) for value in metrics(log)["accuracy"].values())


@pytest.mark.parametrize("identical", [2, 5])
def test_repeated_answers_end_asking_and_are_told(identical, tmp_path):
    # The third answer differs, so that a run of five begins at the fourth.
    log, asked = run(
        lambda prompt, before: "other" if before == 2 and identical == 5 else " No. " if before % 2 else "no",
        tmp_path,
        identical=identical,
    )
    assert [len(times) for times in asked.values()] == [2 if identical == 2 else 8] * 5
    score = log.samples[0].scores["retrieval_score"]
    assert score.metadata["stuck"] and score.value["stuck"] == 1
    assert "the same unacceptable answer" in score.explanation
    assert metrics(log)["stuck"]["equations D=2"] == 1


def test_the_cache_gives_first_answers_only(tmp_path, monkeypatch):
    monkeypatch.setenv("INSPECT_CACHE_DIR", str(tmp_path / "cache"))

    def later(prompt, before):
        return solve(prompt) if before == 2 else f"no {before}"

    first, _ = run(later, tmp_path, cache=True)
    assert [row.attempts for row in rows(first)] == [3] * 5
    again, asked_again = run(later, tmp_path, cache=True)
    # The first answer, "no 0", comes from the cache; the model is asked on from there.
    assert [len(times) for times in asked_again.values()] == [3] * 5
    assert [row.attempts for row in rows(again)] == [4] * 5
    assert [attempt["text"] for attempt in again.samples[0].store["attempts"][:2]] == ["no 0", "no 0"]


def test_a_fixed_sampling_seed_differs_at_each_attempt(tmp_path):
    _, asked = run(lambda prompt, before: f"no {before}", tmp_path, seed=11, attempts=3)
    assert [[seed for _, seed in times] for times in asked.values()] == [[11, 12, 13]] * 5


def test_metrics_are_those_of_the_rows(tmp_path):
    def say(prompt, before):
        lines = prompt.count("\n")  # 3 at depth 1, 9 at depth 3
        number = sum(map(ord, prompt.partition("What")[2] + solve(prompt))) % 5
        if number == 0:
            return f"no {before}"
        wrong = str((int(solve(prompt)) + 1) % 3)
        return "hm" if number == 1 and before == 0 else wrong if number == 2 or lines == 3 else solve(prompt)

    log, _ = run(say, tmp_path, depths=[3, 1], count=23)
    found = metrics(log)
    one, three = tallies(rows(log))
    assert (one.depth, three.depth) == (1, 3)
    assert 0 < three.accuracy.value < 1 and one.accuracy.value == 0
    for tally in (one, three):
        kind = f"equations D={tally.depth}"
        shares = {
            "accuracy": tally.accuracy,
            "first_attempt": tally.first_accuracy,
            "acceptance": tally.acceptance,
            "answered": tally.answered,
        }
        for name, share in shares.items():
            assert found[name][kind] == pytest.approx(share.value)
            ends = found[name][f"{kind} lower"], found[name][f"{kind} upper"]
            assert ends == pytest.approx(wilson(share.count, share.of))
        assert found["guess"][kind] == pytest.approx(1 / 3)
    assert three.acceptance.count < three.answered.count < 23


def test_all_formulations_in_one_task(tmp_path):
    log, _ = run(lambda prompt, before: "no", tmp_path, name="retrieval", chains=None, depths=[1, 2], count=2)
    groups = [(tally.formulation, tally.depth) for tally in tallies(rows(log))]
    assert groups == [
        ("equations", 1),
        ("equations", 2),
        ("lives_with", 1),
        ("lives_with", 2),
        ("kingdoms", 5),
        ("functions", 2),
        ("relatives", 4),
    ]
    assert metrics(log)["guess"]["relatives D=4"] == 1 / 16


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Runs `inspect`, which finds the tasks through the entry point that pyproject.toml declares."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / "hopscope-0.dist-info"
    info.mkdir()
    # As pip writes for an editable install: Inspect reads from it that the tasks belong to a package.
    editable = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(editable))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hopscope\nVersion: 0\n")
    points = project["entry-points"]["inspect_ai"]
    lines = ["[inspect_ai]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def call(*arguments, cwd):
        known = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), str(Path(hopscope.__file__).parents[1])]),
        }
        return subprocess.run(
            [sys.executable, "-m", "inspect_ai", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=known,
            cwd=cwd,
            timeout=120,
        )

    return call


def test_the_command_line(command, tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")
    with Stub() as stub:
        done = command(
            *("eval", "hopscope/equations", "--model", "openai-api/stub/tiny", "--display", "plain"),
            *("--model-base-url", stub.url, "-T", "depths=1,3", "-T", "count=3", "-T", "chains=2"),
            *("--log-dir", str(tmp_path / "logs"), "--log-format", "json"),
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(path.read_text(encoding="utf-8"))
    assert (log["status"], log["eval"]["task"]) == ("success", "hopscope/equations")
    assert [sample["metadata"]["depth"] for sample in log["samples"]] == [1] * 3 + [3] * 3
    assert {sample["scores"]["retrieval_score"]["value"]["accuracy"] for sample in log["samples"]} == {1}


@pytest.mark.soak
def test_the_command_line_refuses_in_one_line(command, tmp_path):
    done = command(
        *("eval", "hopscope/equations", "--model", "mockllm/model", "-T", "depths=one", "--display", "plain"),
        cwd=tmp_path,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Error: depths: expected different whole numbers such as 1,2,3, found 'one'" in " ".join(
        said.split()
    )
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 0}, "count: expected greater than or equal to 1, found 0"),
        ({"attempts": 0}, "attempts: expected a whole number of at least 1, found 0"),
        ({"identical": 1}, "identical: expected a whole number of at least 2, found 1"),
        ({"timeout": 0}, "timeout: expected a whole number of at least 1, found 0"),
        ({"depths": [2, 2]}, "depths: expected different whole numbers"),
    ],
)
def test_arguments_out_of_range(arguments, words):
    with pytest.raises(ClickException, match=words):
        TASKS["equations"](**arguments)


def test_the_viewer_shows_every_score_of_a_log_and_nothing_else(tmp_path):
    """Columns are found by name: one that no score has would stay empty without a word."""
    log, _ = run(lambda prompt, before: solve(prompt), tmp_path)
    view = log.eval.viewer
    columns = [column.id for column in view.task_samples_view.columns]
    (name,) = log.samples[0].scores
    scores = log.samples[0].scores[name].value
    assert {column for column in columns if column.startswith("score__")} == {
        f"score__{name}__{score}" for score in scores
    }
    assert set(view.task_samples_view.score_labels) == set(scores)
    assert set(view.task_samples_view.score_color_scales) == set(scores)
    known = set(get_args(TaskSamplesColumnId))
    assert {column for column in columns if not column.startswith("score__")} <= known
    assert {each.column for each in view.task_samples_view.sort} <= known
    assert view.trust_content is False  # Markdown would change what was said


def test_an_eval_set_of_several_tasks_is_complete_and_found_again(tmp_path):
    """Several tasks and arguments in one set: Inspect tells them apart, and repeats nothing."""
    model, asked = told(lambda prompt, before: solve(prompt))
    settings = {"chains": 3, "count": 2}
    how = {
        "model": [model], "log_dir": str(tmp_path), "display": "none", "ctl_server": False, "log_realtime": False,
        "retry_attempts": 1,
    }  # fmt: skip

    def tasks():
        varied = ({"depths": 1}, {"depths": 2}, {"depths": 1, "seed": 7})
        return [TASKS["equations"](**settings, **each) for each in varied]

    complete, logs = eval_set(tasks(), **how)
    assert complete and [log.status for log in logs] == ["success"] * 3
    assert len(asked) == 6
    complete, again = eval_set(tasks(), **how)
    assert complete and len(asked) == 6 and all(len(times) == 1 for times in asked.values())
    names = [
        {Path(log.location).name for log in found} for found in (logs, again)
    ]  # one has a scheme in front
    assert names[0] == names[1] and len(names[0]) == 3
