"""The study of language models: its options, its claim, its page, and a whole run with a server that answers."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from made import page_of
from stub import Stub, solve

import hopscope
from hopscope.claims.judge import judge
from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.llm.study import KINDS, TOO_LONG, Options, claims, study

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "llm"
MODELS = ("one/a", "two/b")


def rows_of(model, kind, right, wrong=0, silent=0, guess=0.25, too_long=0):
    """What a model answered to one kind of questions, as the study's measure tells it."""
    part, asked = f"{model}, {kind}", right + wrong + silent
    if too_long:
        yield {"metric": "too_long", "part": part, "value": float(too_long)}
        return
    yield from ({"metric": "correct", "part": part, "value": 1.0} for _ in range(right))
    yield from ({"metric": "correct", "part": part, "value": 0.0} for _ in range(wrong))
    yield from ({"metric": "correct", "part": part, "value": None} for _ in range(silent))
    answered = right + wrong
    shares = {"accuracy": right / answered if answered else None, "answered": answered / asked,
              "acceptance": answered / asked, "first_accuracy": right / asked, "stuck": 0.0}  # fmt: skip
    numbers = {"questions": asked, "attempts": 1.0, "guess": guess}
    numbers |= {f"{name}{end}": value for name, value in shares.items() for end in ("", "_low", "_high")}
    yield from ({"metric": name, "part": part, "value": value} for name, value in numbers.items())
    if wrong:
        yield {"metric": "count", "part": f"{part}: said other chain, hop 1", "value": float(wrong)}


def evidence(*rows):
    return Evidence.of([{"measure": "answers", **row} for each in rows for row in each], [])


def every(model, right, wrong=0, silent=0, **more):
    return [rows_of(model, kind, right, wrong, silent, **more) for kind in KINDS]


@pytest.mark.parametrize(
    "found, verdict, words",
    [
        (every("one/a", 500), "reproduced", "9 of 9 hold"),
        ([rows_of("one/a", KINDS[0], 500), *every("one/a", 50, 450)[1:]], "refuted", "8 of 9 fail"),
        (every("one/a", 50, 450), "not run", "below the task"),
        (every("one/a", 0, 0, 500), "not run", "below the task"),
        ([*every("one/a", 500)[:-1], rows_of("one/a", KINDS[-1], 490, 0, 10)], "reproduced", "9 of 9 hold"),
        ([*every("one/a", 500)[:-1], rows_of("one/a", KINDS[-1], 200, 1, 299)], "inconclusive", "299 questions"),
        ([*every("one/a", 500)[:-1], rows_of("one/a", KINDS[-1], 1, too_long=3)], "inconclusive", TOO_LONG),
    ],
)  # fmt: skip
def test_the_claim(found, verdict, words):
    judged = judge(next(claims(Options(model=("one/a",), count=500))), evidence(*found))
    said = judged.words + " ".join(each.words for each in judged.parts.values())
    assert judged.verdict == verdict and words in said, judged


def test_a_model_below_the_task_leaves_the_verdict_to_the_others():
    options = Options(model=MODELS, count=500)
    judged = judge(next(claims(options)), evidence(*every(MODELS[0], 500), *every(MODELS[1], 10, 490)))
    assert judged.verdict == "reproduced" and "two/b" in judged.words and "below the task" in judged.words


def test_smaller_runs_decide_nothing():
    judged = judge(next(claims(Options(model=("one/a",)))), evidence(*every("one/a", 100)))
    assert judged.verdict == "inconclusive" and "100 of 500 questions of each kind" in judged.words


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"model": ("gpt",)}, "expected PROVIDER/MODEL"),
        ({"model": ("a/b", "a/b")}, "expected each once"),
        ({"depths": (2, 1)}, "ascending numbers of steps"),
        ({"depths": (1, 1)}, "ascending numbers of steps"),
        ({"formulations": ()}, r"formulations: expected .* at least 1"),
        ({"model": ("openai/x",), "precision": "bfloat16"}, "whose server decides"),
    ],
)
def test_options_that_cannot_be_asked_are_one_line(fields, words):
    with pytest.raises(UserError, match=words):
        study.changed(fields)


def test_without_a_model_nothing_begins(tmp_path):
    with pytest.raises(UserError, match="model: expected at least one to ask"):
        hopscope.run("llm", out=tmp_path)
    assert not any(tmp_path.iterdir())


def words_of(page):
    return " ".join(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page)).split())


@pytest.fixture
def _without_drawings(monkeypatch):
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))


@pytest.mark.extras
@pytest.mark.usefixtures("_without_drawings")
@pytest.mark.parametrize(
    "right, wrong, silent, too_long, words",
    [
        (11, 0, 0, 0, "it was right in 100 % of the cases"),
        (0, 11, 0, 0, "it was right in 0 % of the cases"),
        (0, 0, 11, 0, "No answer was acceptable, so there is no accuracy"),
        (1, 0, 0, 5, "5 questions are longer than the model's context"),
        (7, 2, 2, 0, "How they fail"),
    ],
)
def test_a_page_of_any_outcome(tmp_path, right, wrong, silent, too_long, words):
    rows = [
        row
        for model in MODELS
        for each in every(model, right, wrong, silent, too_long=too_long)
        for row in each
    ]
    page, _ = page_of(tmp_path, "llm", "laptop", lambda planned: rows, fields={"model": MODELS})  # fmt: skip
    found = words_of(page).replace("&#39;", "'")
    assert words in found and "nan" not in found.lower().split()
    assert ("longer than" in found) == bool(too_long) and ("said other chain" in found) == bool(wrong)


@pytest.mark.extras
@pytest.mark.usefixtures("_without_drawings")
@pytest.mark.parametrize("run", ["smollm2-sampled", "choice-few-shot-4"])
def test_the_page_of_a_committed_run(tmp_path, run):
    models = ("hopscope/smollm2", "hopscope/gemma3-270m")[: 1 + (run != "smollm2-sampled")]
    page, ledger = page_of(
        tmp_path, "llm", "laptop", parquet=RESULTS / run / "evidence.parquet", fields={"model": models}
    )
    assert len(words_of(page)) > 3000 and ledger[0].verdict == "not run"


@pytest.mark.extras
@pytest.mark.usefixtures("_without_drawings")
@pytest.mark.skipif(not find_spec("inspect_ai"), reason="needs Inspect")
def test_a_whole_run(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")
    fields = {
        "formulations": ("equations",),
        "depths": (1, 2),
        "count": 3,
        "model": ("openai-api/stub/tiny",),
    }
    with Stub(answer=lambda prompt, number: solve(prompt)) as stub:
        run = hopscope.run("llm", out=tmp_path, base_url=stub.url, **fields)
        asked = len(stub.requests)
        again = hopscope.run("llm", out=tmp_path, base_url=stub.url, timeout=7, **fields)
        assert len(stub.requests) == asked == 6 and again.path == run.path
    assert [*run.evidence.rows("accuracy")["value"]] == [1.0, 1.0]
    assert run.claims[0].verdict == "inconclusive" and run.claims[0].here.value


@pytest.mark.extras
@pytest.mark.usefixtures("_without_drawings")
@pytest.mark.skipif(not find_spec("inspect_ai"), reason="needs Inspect")
@pytest.mark.parametrize("device, told", [("auto", None), ("cpu", "cpu")])
def test_models_of_this_machine_answer_on_the_device_of_the_command(tmp_path, monkeypatch, device, told):
    asked = {}
    monkeypatch.setattr("hopscope.language.evaluate.ask", lambda *models, **how: asked.update(how) or [])
    hopscope.run("llm", "smoke", out=tmp_path, device=device, model=("hf/x",))
    assert asked.get("device") == told
