"""Questions put through Inspect: the protocol, a server that fails, what is kept, the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hopscope
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.language.answers import rows
from hopscope.language.questions import kinds
from hopscope.training.train import TimeBudget

from .stub import Stub, solve

pytest.importorskip("inspect_ai")

from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from hopscope.language import evaluate
from hopscope.language.evaluate import TASKS, ask

pytestmark = pytest.mark.extras
PACKAGE = evaluate.__name__.split(".")[0]
MODEL = "openai-api/stub/tiny"
KINDS = kinds(["equations"], [2], 3, count=3)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")


@pytest.fixture
def _impatient(monkeypatch):
    """The clients try again within two seconds; Inspect's own retries, which wait longer, are left out."""
    monkeypatch.setattr(evaluate, "RETRIES", 0)


def metrics(answers):
    return {row["metric"]: row["value"] for row in rows(answers)}


def test_the_protocol(tmp_path):
    """Asked afresh until an answer is acceptable; a rejected one never enters the chat; other questions are new."""
    with Stub(answer=lambda prompt, n: f"“{solve(prompt)}”." if n == 2 else f"hm {n}") as stub:
        found = ask([MODEL], KINDS, tmp_path, base_url=stub.url)
        assert [(one.correct, len(one.said), one.stuck) for one in found] == [(True, 3, False)] * 3
        assert [len(body["messages"]) for body in stub.requests] == [1] * 9
        assert {body["messages"][0]["content"] for body in stub.requests} == {
            one.question.prompt for one in found
        }
        assert ask([MODEL], KINDS, tmp_path, base_url=stub.url) == found and len(stub.requests) == 9
        ask(
            [MODEL],
            kinds(["equations"], [2], 3, count=3, seed=1),
            tmp_path,
            base_url=stub.url,
            temperature=0.5,
        )
    assert len(stub.requests) == 18 and stub.requests[-1]["temperature"] == 0.5


def test_a_model_that_repeats_itself_or_never_answers_is_given_up(tmp_path):
    with Stub(
        answer=lambda prompt, n: "I cannot say." if "= 0" in prompt.split("\n")[0] else f"no {n}"
    ) as stub:
        found = ask([MODEL], kinds(["equations"], [1], 3, count=11), tmp_path, base_url=stub.url, attempts=5)
    assert {(one.stuck, len(one.said)) for one in found} == {(True, 3), (False, 5)}
    assert metrics(found)["accuracy"] is None and metrics(found)["answered"] == 0.0


@pytest.mark.parametrize("fault", [500, "half", "closed"])
def test_a_fault_that_passes_costs_nothing(fault, tmp_path):
    with Stub(lambda number, prompt: fault if number == 1 else None) as stub:
        found = ask([MODEL], KINDS, tmp_path, base_url=stub.url)
    assert [one.correct for one in found] == [True] * 3 and len(stub.requests) == 4


@pytest.mark.parametrize(
    ("fault", "words"),
    [(401, "planted 401"), (500, "InternalServerError: .*planted 500"), ("hang", "attempt_timeout '1' exceeded"),
     ("other", "TypeError|AttributeError")],
)  # fmt: skip
@pytest.mark.usefixtures("_impatient")
def test_a_fault_that_stays_ends_in_one_line(fault, words, tmp_path):
    began = time.monotonic()
    with Stub(lambda number, prompt: fault) as stub, pytest.raises(UserError, match=words) as raised:
        ask([MODEL], KINDS, tmp_path, base_url=stub.url, timeout=2 if fault == "hang" else 30)
    assert "\n" not in str(raised.value) and "0 of 3 questions are answered and kept" in str(raised.value)
    assert time.monotonic() - began < 30


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_dies_half_way_costs_only_what_it_did_not_answer(tmp_path):
    several = kinds(["equations"], [2], 3, count=7)
    with (
        Stub(lambda number, prompt: "closed" if number >= 4 else None) as stub,
        pytest.raises(UserError) as raised,
    ):
        ask([MODEL], several, tmp_path, base_url=stub.url, max_connections=1)
    assert "Connection error" in str(raised.value) and "4 of 7 questions are answered and kept" in str(
        raised.value
    )
    with Stub(port=stub.port) as again:
        found = ask([MODEL], several, tmp_path, base_url=stub.url, max_connections=1)
    assert [one.correct for one in found] == [True] * 7 and len(again.requests) == 3
    # What is complete is only read, by the dead server's address too.
    assert ask([MODEL], several, tmp_path, base_url=stub.url) == found


def test_a_kind_that_is_too_long_is_not_run_and_the_others_are(tmp_path):
    said = []
    several = kinds(["equations"], [1, 3, 2], 3, count=5)
    with Stub(lambda number, prompt: 400 if prompt.count("\n") == 9 else None) as stub:
        found = ask([MODEL], several, tmp_path, base_url=stub.url, say=said.append)
        assert ask([MODEL], several, tmp_path, base_url=stub.url) == found
    table = [row for row in rows(found) if row["metric"] in ("accuracy", "too_long")]
    parts = [(row["metric"], row["part"][-5:], row["value"]) for row in table]
    assert parts == [("accuracy", "D = 1", 1.0), ("too_long", "D = 3", 5.0), ("accuracy", "D = 2", 1.0)]
    (line,) = [words for words in said if "not run" in words]
    assert line == f"{MODEL}: equations D = 3 not run, 5 of 5 questions are longer than the model's context"


def test_a_budget_ends_between_questions_and_the_next_call_goes_on(tmp_path):
    several = kinds(["equations"], [2], 3, count=5)
    with Stub() as stub:
        with pytest.raises(TimeBudgetReached):
            ask([MODEL], several, tmp_path, base_url=stub.url, max_connections=1, budget=TimeBudget(0.0))
        assert 0 < len(stub.requests) < 5
        found = ask([MODEL], several, tmp_path, base_url=stub.url, max_connections=1)
    assert [one.correct for one in found] == [True] * 5 and len(stub.requests) <= 6


def test_an_evaluation_that_is_killed_goes_on(tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from hopscope.language.evaluate import ask; from hopscope.language.questions import kinds\n"
        "ask([sys.argv[1]], kinds(['equations'], [2], 3, count=7), Path(sys.argv[2]), base_url=sys.argv[3], timeout=60,"
        " max_connections=1)"
    )
    with Stub(lambda number, prompt: "hang" if number == 4 else None) as stub:
        process = subprocess.Popen([sys.executable, "-c", script, MODEL, str(tmp_path), stub.url])
        while len(stub.requests) < 5:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = ask(
            [MODEL], kinds(["equations"], [2], 3, count=7), tmp_path, base_url=stub.url, max_connections=1
        )
    assert [one.correct for one in found] == [True] * 7
    # What was answered is not asked again, but for the last question, whose answer may not have been written yet.
    assert 3 <= len(stub.requests) - 5 <= 4


def test_a_server_cannot_choose(tmp_path):
    with (
        Stub() as stub,
        pytest.raises(UserError, match="no model of this machine, which alone can choose; ask for"),
    ):
        ask([MODEL], kinds(["equations"], [2], 3, count=3, measure="choice"), tmp_path, base_url=stub.url)
    assert not stub.requests


def test_inspect_shows_shares_of_each_kind(tmp_path):
    def say(messages, tools, choice, config):
        prompt = messages[-1].text
        made = ModelOutput.from_content(
            "mockllm/told", solve(prompt) if "value of" in prompt and "(" not in prompt else "no"
        )
        made.usage = ModelUsage()  # else Inspect counts tokens with a tokenizer from the network
        return made

    model = get_model("mockllm/told", custom_outputs=say)
    how = {"display": "none", "log_dir": str(tmp_path), "ctl_server": False, "log_realtime": False}
    (log,) = eval(TASKS["retrieval"](depths="1", count=2, attempts=1), model=model, **how)
    scores = {
        score.name: {each.name: each.value for each in score.metrics.values()} for score in log.results.scores
    }
    assert log.status == "success" and len(log.samples) == 10
    assert scores["guess"]["relatives"] == 1 / 16 and scores["answered"]["equations D = 1"] == 1.0
    assert scores["answered"]["kingdoms"] == 0.0 and "kingdoms" not in scores["accuracy"]


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Runs `inspect`, which finds the tasks through an entry point."""
    site = tmp_path_factory.mktemp("site")
    info = site / f"{PACKAGE}-0.dist-info"
    info.mkdir()
    # As pip writes for an editable install: Inspect reads from it that the tasks belong to a package.
    (info / "direct_url.json").write_text(
        json.dumps({"url": Path.cwd().as_uri(), "dir_info": {"editable": True}})
    )
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[inspect_ai]\n{PACKAGE} = {evaluate.__name__}\n")
    paths = os.pathsep.join([str(site), str(Path(hopscope.__file__).parents[1])])

    def call(*arguments, cwd):
        words = [sys.executable, "-m", "inspect_ai", *arguments]
        known = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=known, cwd=cwd, timeout=120
        )

    return call


def test_the_command_line(command, tmp_path):
    with Stub() as stub:
        done = command(
            *(
                "eval",
                f"{PACKAGE}/equations",
                "--model",
                MODEL,
                "--display",
                "plain",
                "--model-base-url",
                stub.url,
            ),
            *(
                "-T",
                "depths=1,3",
                "-T",
                "count=3",
                "-T",
                "chains=2",
                "--log-dir",
                "logs",
                "--log-format",
                "json",
            ),
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(path.read_text(encoding="utf-8"))
    assert (log["status"], log["eval"]["task"]) == ("success", f"{PACKAGE}/equations")
    kinds_ = [sample["metadata"]["kind"] for sample in log["samples"]]
    assert kinds_ == ["equations D = 1"] * 3 + ["equations D = 3"] * 3
    assert {sample["scores"]["retrieval"]["value"]["accuracy"] for sample in log["samples"]} == {1}
    wrong = ("--model", "mockllm/model", "-T", "cuont=3", "--display", "plain")
    done = command("eval", f"{PACKAGE}/equations", *wrong, cwd=tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode and "no field 'cuont'; did you mean 'count'?" in said and "Traceback" not in said
