"""A server that speaks OpenAI's protocol and fails: what is retried, what ends in one line, what is kept."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from inspect_ai.log import list_eval_logs, read_eval_log

from hopscope.errors import UserError
from hopscope.language.inspect import tasks
from hopscope.language.questions.answers import rows

from .own import ask as ask_sets
from .stub import Stub, solve

MODEL = "openai-api/stub/tiny"


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")


def ask(url, folder, count=3, **how):
    settings = {"depths": [2], "chains": 3, "timeout": 30, **how}
    (log,) = ask_sets([MODEL], ["equations"], log_dir=folder, count=count, base_url=url, **settings)
    return rows(log)


@pytest.fixture
def _impatient(monkeypatch):
    """The clients try again within two seconds; Inspect's own retries, which wait longer, are left out."""
    monkeypatch.setattr(tasks, "RETRIES", 0)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize("fault", [slow("429"), "500", slow("closed"), "half", slow("hang")])
def test_a_fault_that_passes_costs_nothing(fault, tmp_path):
    with Stub(lambda number, prompt: fault if number == 1 else None) as stub:
        found = ask(stub.url, tmp_path, timeout=8 if fault == "hang" else 30)
    assert [row.correct for row in found] == [True] * 3
    assert [row.attempts for row in found] == [1] * 3
    assert len(stub.requests) == 4


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("401", "planted 401.*set the key"),
        ("429", "RateLimitError: .*planted 429.*ask fewer questions at a time"),
        ("500", "InternalServerError: .*planted 500.*check the model's name, its server"),
        ("hang", "attempt_timeout '1' exceeded.*allow it more time"),
        ("wrong", "a reply that is no chat completion"),
        ("other", "a reply that is no chat completion"),
    ],
)
@pytest.mark.usefixtures("_impatient")
def test_a_fault_that_stays_ends_in_one_line(fault, words, tmp_path):
    timeout = 1 if fault == "hang" else 30
    with Stub(lambda number, prompt: fault) as stub, pytest.raises(UserError, match=words) as raised:
        ask(stub.url, tmp_path, timeout=timeout)
    assert "\n" not in str(raised.value)
    assert "0 of 3 questions are answered" in str(raised.value)


def dead_address():
    with Stub() as stub:
        return stub.url


@pytest.mark.usefixtures("_impatient")
def test_a_dead_server_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"APIConnectionError: Connection error.*0 of 3 questions") as raised:
        ask(dead_address(), tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.soak
@pytest.mark.parametrize("silent", [False, True])
def test_the_limits_end_a_dead_or_silent_server_within_a_minute(silent, tmp_path):
    began = time.monotonic()
    with Stub(lambda number, prompt: "hang") as stub, pytest.raises(UserError, match="0 of 3") as raised:
        ask(stub.url if silent else dead_address(), tmp_path, timeout=50)
    assert ("attempt_timeout '25' exceeded" if silent else "APIConnectionError: Connection error") in str(
        raised.value
    )
    assert time.monotonic() - began < 60


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_dies_half_way_costs_only_what_it_did_not_answer(tmp_path):
    # One request at a time: the first four questions are answered, then the server is gone.
    with (
        Stub(lambda number, prompt: "closed" if number >= 4 else None) as stub,
        pytest.raises(UserError, match="4 of 7 questions are answered and kept"),
    ):
        ask(stub.url, tmp_path, count=7, max_connections=1)
    answered = {body["messages"][-1]["content"] for body in stub.requests[:4]}
    with Stub(port=stub.port) as again:
        found = ask(stub.url, tmp_path, count=7, max_connections=1)
    assert [row.correct for row in found] == [True] * 7
    assert len(again.requests) == 3
    assert not answered & {body["messages"][-1]["content"] for body in again.requests}
    # What is complete is only read, by the dead server's address too.
    assert ask(stub.url, tmp_path, count=7) == found
    statuses = [read_eval_log(info, header_only=True).status for info in list_eval_logs(str(tmp_path))]
    assert statuses == ["success"]  # the other one is part of it


@contextmanager
def evaluating(url, folder):
    """A process that puts seven questions to a server, one after the other."""
    script = (
        "import sys; from pathlib import Path; from hopscope.language.inspect import evaluate\n"
        "from hopscope.language.questions.sets import question_set\n"
        "asked = question_set(formulations=('equations',), depths=[2], chains=3, count=7)\n"
        "try: evaluate([sys.argv[1]], [asked], log_dir=Path(sys.argv[2]), base_url=sys.argv[3],"
        " timeout=60, max_connections=1)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, MODEL, str(folder), url], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(happened, process):
    for _ in range(3000):
        if happened():
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    pytest.fail("nothing happened for minutes")


@pytest.mark.parametrize("how", [signal.SIGKILL, slow(signal.SIGINT)])
def test_an_evaluation_that_is_ended_goes_on(how, tmp_path):
    with Stub(lambda number, prompt: "hang" if number == 4 else None) as stub:
        with evaluating(stub.url, tmp_path) as process:
            until(lambda: len(stub.requests) > 4, process)
            process.send_signal(how)
            process.communicate(timeout=100)
        assert process.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
        found = ask(stub.url, tmp_path, count=7, max_connections=1)
    assert [row.correct for row in found] == [True] * 7
    answered = [body["messages"][-1]["content"] for body in stub.requests]
    # What was answered is not asked again, but for the last question, whose answer may not have been written yet.
    assert 3 <= len(answered) - 5 <= 4
    assert len(set(answered)) == 7


def test_other_questions_are_asked_anew(tmp_path):
    with Stub() as stub:
        first, other = ask(stub.url, tmp_path), ask(stub.url, tmp_path, seed=1)
        assert not {row.id for row in first} & {row.id for row in other}
        assert len(stub.requests) == 6
        ask(stub.url, tmp_path, temperature=0.5)
    assert len(stub.requests) == 9
    assert stub.requests[-1]["temperature"] == 0.5


def test_a_rejected_answer_never_enters_the_chat(tmp_path):
    with Stub(answer=lambda prompt, before: solve(prompt) if before == 2 else f"hm {before}") as stub:
        found = ask(stub.url, tmp_path)
    assert [(row.attempts, row.correct, row.first) for row in found] == [(3, True, None)] * 3
    assert [len(body["messages"]) for body in stub.requests] == [1] * 9
    assert [rejected.text for rejected in found[0].rejected] == ["hm 0", "hm 1"]


def test_a_server_that_repeats_itself_is_not_hammered(tmp_path):
    with Stub(answer=lambda prompt, before: "I cannot say.") as stub:
        found = ask(stub.url, tmp_path)
    assert [(row.attempts, row.answer, row.stuck) for row in found] == [(3, None, True)] * 3
    assert len(stub.requests) == 9
