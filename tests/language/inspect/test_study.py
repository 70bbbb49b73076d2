"""`hopscope run llm` from end to end: a stub server, a model in a folder, a budget that ends, a server that dies."""

import pytest

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors.local import run_study
from hopscope.language.inspect import tasks
from hopscope.language.inspect.evaluation import OutOfTimeError, Watch
from hopscope.language.questions.answers import FILE, read_answers
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.llm.asking import gather
from hopscope.studies.llm.config import LanguageModelConfig
from hopscope.training.budget import TimeBudget

from .own import build
from .stub import Stub, solve

STUDY = find_study("llm")
MODEL = "openai-api/stub/tiny"


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")


def config(stub, **changes):
    fields = {"model": (MODEL,), "formulations": ("equations",), "depths": (1, 2), "count": 7}
    return LanguageModelConfig(**{**fields, "base_url": stub and stub.url, **changes})


def test_a_run_asks_counts_and_is_found_again(tmp_path):
    said = []
    with Stub() as stub:
        asked = config(stub)
        run = run_study(STUDY, asked, out=tmp_path, preset="smoke", device="cpu", say=said.append)
        assert len(stub.requests) == 14
        again = run_study(STUDY, asked, out=tmp_path, device="cpu")
        (run.path / FILE).unlink()
        before = (run.path / "claims.json").read_bytes()
        run_study(STUDY, asked, out=tmp_path, device="cpu")
        assert len(stub.requests) == 14  # the answers are in the logs
    assert again.path == run.path and run.is_done and run.members == []
    assert [(c.depth, c.accuracy.count, c.accuracy.of) for c in read_answers(run).cells] == [
        (1, 7, 7),
        (2, 7, 7),
    ]
    assert (run.path / "claims.json").read_bytes() == before
    assert len(list((run.path / "logs").glob("*.eval"))) == 1
    assert f"{MODEL}: equations done" in said
    assert any("questions answered" in words for words in said)


def test_a_budget_ends_between_questions_and_the_next_call_goes_on(tmp_path):
    with Stub() as stub:
        asked = config(stub, max_connections=1, depths=(2,), count=5)
        with pytest.raises(TimeBudgetReached):
            run_study(STUDY, asked, out=tmp_path, device="cpu", time_budget=1e-3)
        kept = len(stub.requests)
        assert 0 < kept < 5
        run = run_study(STUDY, asked, out=tmp_path, device="cpu")
        answered = {request["messages"][-1]["content"] for request in stub.requests}
    assert len(answered) == 5 and len(stub.requests) <= 6
    (cell,) = read_answers(run).cells
    assert (cell.questions, cell.accuracy.count) == (5, 5)


def test_a_server_that_dies_keeps_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "RETRIES", 0)
    with Stub(lambda number, prompt: "401" if number == 2 else None) as stub:
        asked = config(stub, max_connections=1, depths=(2,), count=5)
        with pytest.raises(UserError, match="planted 401"):
            run_study(STUDY, asked, out=tmp_path, device="cpu")
        run = run_study(STUDY, asked, out=tmp_path, device="cpu")
    assert run.is_done and read_answers(run).cells[0].accuracy.count == 5


def test_a_model_in_a_folder_slips_as_it_was_built(tmp_path):
    folder = build(tmp_path / "known", {"0": 0.4, "1": 0.2, "2": 0.2, "3": 0.1, "is": 0.1}, chains=4)
    asked = config(None, model=(f"hopscope/{folder}",), depths=(2,), count=31, max_tokens=1)
    run = run_study(STUDY, asked, out=tmp_path / "runs", device="cpu")
    (cell,) = read_answers(run).cells
    assert cell.wrong == cell.lost_chain == sum(cell.from_first_line.values()) > 0
    assert cell.accuracy.of + cell.questions - cell.answered.count == 31
    (claim,) = run.read_json("claims.json")
    assert claim["verdict"] == "inconclusive"
    assert claim["value"] == {"equations D = 2": cell.accuracy.value} and claim["n"] == cell.accuracy.of
    correct = Evidence.read(run).rows("correct")["value"]
    assert (len(correct), correct.sum()) == (31, cell.accuracy.count)


def test_what_is_there_is_not_asked_again(tmp_path):
    with Stub() as stub:
        run = run_study(STUDY, config(stub, depths=(1,), count=2), out=tmp_path, device="cpu")
        gather(run, config(stub, depths=(1,), count=2), TimeBudget(), print)
        assert len(stub.requests) == 2


def test_a_watch_lets_the_first_question_begin():
    said = []
    watch = Watch(TimeBudget(0.0), said.append, name="m: equations", total=20)
    watch.begin()
    watch.end()
    watch.end()
    (line,) = said
    assert line.startswith("m: equations, 2 of 20 ")
    with pytest.raises(OutOfTimeError):
        watch.begin()
    assert watch.late
    assert solve("a = 1\nWhat is the value of a?") == "1"
