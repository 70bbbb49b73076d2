"""Pretrained models of this process: answers in batches, and the choice among acceptable answers, also by servers."""

import math
from collections import Counter

import pytest
from click import ClickException
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    Logprob,
    Logprobs,
    ModelOutput,
    TopLogprob,
)
from scipy.stats import binomtest

from hopscope.errors import UserError
from hopscope.language.inspect import tasks
from hopscope.language.inspect.evaluation import Watch, evaluate
from hopscope.language.inspect.pretrained import Choice, PretrainedModel, Wanted
from hopscope.language.inspect.tasks import TASKS, NoReplyError, by_first_token
from hopscope.language.questions.answers import rows, tallies
from hopscope.language.questions.sets import question_set

from .own import ask
from .own import build as build_own
from .test_tasks import run
from .tiny import build

SAID = {"0": 0.5, "1": 0.25, "a": 0.15, "b": 0.1}
SMALL = {"depths": [1], "chains": 2, "count": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("pretrained"), SAID)


def test_samples_of_a_batch_have_the_distribution_of_the_model(folder):
    model, count = PretrainedModel(str(folder)), 997
    found = Counter(model._answer([Wanted("What is a?", 1.0, seed, 1) for seed in range(count)]))
    for word, share in SAID.items():
        low, high = binomtest(found[word], count).proportion_ci(0.9999)
        assert low < share < high, word
    alone = [model._answer([Wanted("What is a?", 1.0, seed, 1)])[0] for seed in range(5)]
    assert alone == model._answer([Wanted("What is a?", 1.0, seed, 1) for seed in range(5)])


def test_a_pretrained_folder_answers_with_a_progress_and_an_estimate(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "RETRIES", 0)
    said = []
    one = question_set(formulations=("equations",), **SMALL)
    (log,) = evaluate([f"hopscope/{folder}"], [one], log_dir=tmp_path, temperature=0.0, timeout=1,
                      watch=Watch(say=said.append))  # fmt: skip
    assert {row.answer for row in rows(log)} == {"0"}
    assert said[0] == f"hopscope/{folder}: about 1 min for 7 questions, by a probe of four"
    assert any("7 of 7 questions answered" in words for words in said)


def test_a_slow_model_of_this_process_is_under_no_limit(folder, tmp_path, monkeypatch):
    import time

    answer = PretrainedModel._answer

    def slow(self, wanted):
        time.sleep(2.5)
        return answer(self, wanted)

    monkeypatch.setattr(PretrainedModel, "_answer", slow)
    (log,) = ask([f"hopscope/{folder}"], ["equations"], log_dir=tmp_path, temperature=0.0, timeout=1, **SMALL)
    assert len(rows(log)) == 7


@pytest.mark.parametrize("kind", ["pretrained", "our own"])
def test_the_likeliest_answer_is_chosen(kind, folder, tmp_path):
    chosen = folder if kind == "pretrained" else build_own(tmp_path / "own", SAID, chains=2)
    (log,) = ask([f"hopscope/{chosen}"], ["equations"], log_dir=tmp_path / "logs", measure="choice", **SMALL)
    found = rows(log)
    assert {row.answer for row in found} == {"0"} and {row.attempts for row in found} == {1}
    # "0" is also the likeliest of all symbols; whose it is, the question says.
    assert {row.said for row in found} == {"asked chain, hop 1", "other chain, hop 1"}
    assert all((row.said == "asked chain, hop 1") == row.correct for row in found)
    (cell,) = tallies(found)
    assert (cell.acceptance.value, cell.guess, sum(cell.said.values())) == (1.0, 0.5, 7)
    scores = log.samples[0].scores["retrieval_score"].metadata["scores"]["acceptable"]
    assert scores["0"] - scores["1"] == pytest.approx(math.log(2), abs=1e-4)


def test_another_symbol_may_be_likelier_than_every_answer(tmp_path):
    chosen = build(tmp_path / "model", {"a": 0.9, "b": 0.05, "0": 0.03, "1": 0.02})
    (log,) = ask([f"hopscope/{chosen}"], ["equations"], log_dir=tmp_path / "logs", measure="choice", **SMALL)
    assert {row.answer for row in rows(log)} == {"0"}
    assert {row.said for row in rows(log)} <= {"asked chain, hop 0", "other chain, hop 0"}


def test_what_cannot_be_chosen_or_answered_is_said_in_one_line(folder, tmp_path):
    model = PretrainedModel(str(folder))
    with pytest.raises(UserError, match="found others or an unknown one; use another model or formulation"):
        model._choose([Choice("a =", ("0", "zebra"), ("0", "zebra"))])
    bare = build(tmp_path / "bare", SAID)
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(
        UserError, match=r"expected a tokenizer with a chat template.*--measure choice"
    ) as raised:
        ask([f"hopscope/{bare}"], ["equations"], log_dir=tmp_path / "logs", **SMALL)
    assert "\n" not in str(raised.value)
    (log,) = ask([f"hopscope/{bare}"], ["equations"], log_dir=tmp_path / "chosen", measure="choice", **SMALL)
    assert len(rows(log)) == 7


def test_precision_is_that_of_models_of_this_process(folder, tmp_path):
    import torch

    assert next(PretrainedModel(str(folder), "bfloat16")._decoder._model.parameters()).dtype == torch.bfloat16
    assert next(PretrainedModel(str(folder))._decoder._model.parameters()).dtype == torch.float32
    with pytest.raises(UserError, match="precision: expected float32 or bfloat16, found 'int3'; take one"):
        PretrainedModel(str(folder), "int3")
    one = question_set(formulations=("equations",), measure="choice", **SMALL)
    (log,) = evaluate([f"hopscope/{folder}"], [one], log_dir=tmp_path / "short", precision="bfloat16")
    assert log.eval.model_args == {"precision": "bfloat16"} and len(rows(log)) == 7
    (log,) = evaluate([f"hopscope/{folder}"], [one], log_dir=tmp_path / "long")
    assert log.eval.model_args == {}
    own = build_own(tmp_path / "own", {"0": 1.0})
    with pytest.raises(UserError, match="expected no model arguments, found precision"):
        evaluate([f"hopscope/{own}"], [one], log_dir=tmp_path / "own-logs", precision="bfloat16")


def output(*tokens):
    """Each token: its text, and the likeliest ones in its place."""
    content = [
        Logprob(token=text, logprob=-1.0, top_logprobs=[TopLogprob(token=t, logprob=p) for t, p in top])
        for text, top in tokens
    ]
    message = ChatMessageAssistant(content="".join(text for text, _ in tokens))
    return ModelOutput(
        model="m", choices=[ChatCompletionChoice(message=message, logprobs=Logprobs(content=content))]
    )


def test_a_server_s_first_tokens_choose():
    names = ("Amsterdam", "Athens", "Berlin")
    scores, answer = by_first_token(output(("Ber", [("Ber", -0.5), (" ber", -0.5), ("Am", -1.5)])), names)
    assert answer == "Berlin" and scores == {"Berlin": pytest.approx(-0.5 + math.log(2)), "Amsterdam": -1.5}
    # White space is no answer, and what two answers share tells nothing.
    assert by_first_token(output((" ", [(" ", -0.1)]), ("Am", [("Am", -0.3)])), names)[1] == "Amsterdam"
    assert by_first_token(output(("A", [("A", -0.2), ("Ber", -3.0)])), names)[1] is None
    assert by_first_token(output(("I", [("I", -0.1)])), names) == ({}, None)
    with pytest.raises(NoReplyError, match="no log-probabilities"):
        by_first_token(ModelOutput.from_content("m", "Berlin"), names)


def test_a_server_without_log_probabilities(tmp_path):
    with pytest.raises(AssertionError, match="no log-probabilities, which a choice is made of"):
        run(lambda prompt, before: "0", tmp_path, measure="choice")


def test_a_refused_depth_says_how_it_is_mended_in_inspect():
    with pytest.raises(ClickException, match=r"\(such as -T chains=3 -T depths=1\)$"):
        TASKS["lives_with"](chains=40, depths=10)
    TASKS["lives_with"](chains=3, depths=1, count=2)
