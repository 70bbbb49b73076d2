"""`hopscope/PATH`: a model whose distribution is known answers what it should, alone or in a batch."""

import re
from collections import Counter

import pytest
import torch
from inspect_ai.model import GenerateConfig, get_model

import hopscope.language.inspect.registry  # noqa: F401
from hopscope.claims.intervals import clopper_pearson
from hopscope.errors import UserError
from hopscope.language.inspect import evaluate
from hopscope.language.inspect.answerer import load_answerer
from hopscope.language.inspect.continuing import choose
from hopscope.language.questions.answers import records, rows, tallies

from .tiny import POSITIONS, build

ANSWERS = {"0": 0.42, "1": 0.28, "s": 0.19, "Berlin": 0.11}
PROMPTS = ["a = 1 What is a ?", "b", "c = 0 and", "What is a ?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tiny"), ANSWERS)


@pytest.fixture(scope="module")
def answerer(folder):
    return load_answerer(folder)


def test_greedy_takes_the_likeliest(answerer):
    assert answerer.answer(PROMPTS, 0.0, [1, 2, 3, 4]) == ["0"] * 4


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_have_the_distribution_of_the_model(answerer, temperature):
    count = 1009
    found = Counter(answerer.answer(["What is a ?"] * count, temperature, range(count)))
    weights = {word: p ** (1 / temperature) for word, p in ANSWERS.items()}
    for word, weight in weights.items():
        low, high = clopper_pearson(found[word], count, confidence=0.9999)
        assert low < weight / sum(weights.values()) < high, word
    assert set(found) <= set(ANSWERS)


def test_an_answer_does_not_depend_on_its_batch(answerer):
    seeds = [3, 1, 4, 1]
    together = answerer.answer(PROMPTS * 30, 1.0, seeds * 30)
    alone = [answerer.answer([prompt], 1.0, [seed])[0] for prompt, seed in zip(PROMPTS, seeds, strict=True)]
    assert together == alone * 30
    assert len(set(answerer.answer(["b"] * 20, 1.0, range(20)))) > 1


def test_an_answer_has_the_tokens_that_it_may_have(folder, tmp_path):
    ceaseless = build(tmp_path, ANSWERS, ends=False)
    assert load_answerer(ceaseless).answer(["b"], 0.0, [0], max_tokens=3) == ["0 0 0"]
    assert load_answerer(folder).answer(["b"], 0.0, [0], max_tokens=3) == ["0"]


def test_a_token_of_no_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).repeat(997, 1)
    drawn = choose(logits, 1.0, torch.arange(997), 0)
    assert set(drawn.tolist()) == {1, 3}
    assert drawn.tolist() != choose(logits, 1.0, torch.arange(997), 1).tolist()


def test_a_prompt_that_does_not_fit(answerer):
    with pytest.raises(
        UserError, match=rf"at most {POSITIONS} tokens with the answer, found {POSITIONS + 3}"
    ):
        answerer.answer(["a " * (POSITIONS - 6)], 0.0, [0])


def damaged(folder, name, content):
    (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: folder / "nowhere", "nowhere: expected the folder of a language model, found none"),
        (lambda folder: folder, "found no config.json and no tokenizer.json"),
        (
            lambda folder: damaged(damaged(folder, "config.json", "{}"), "tokenizer.json", "{}"),
            "found no model_type",
        ),
        (lambda folder: damaged(damaged(folder, "config.json", "[]"), "tokenizer.json", "{}"), "found list"),
        (
            lambda folder: damaged(build(folder, ANSWERS), "model.safetensors", "torn"),
            "transformers can read, found:",
        ),
        (
            lambda folder: damaged(build(folder, ANSWERS), "tokenizer.json", "{"),
            "transformers can read, found:",
        ),
    ],
)
def test_folders_that_hold_no_model(spoil, words, tmp_path):
    with pytest.raises(UserError, match=re.escape(words)) as raised:
        load_answerer(spoil(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.anyio
async def test_the_provider_repeats_itself_only_as_a_whole(folder):
    async def asked():
        model = get_model(f"hopscope/{folder}", memoize=False)
        outputs = [await model.generate(prompt) for prompt in ["b", "b", "c", "b", "b", "c"] * 7]
        return [output.completion for output in outputs]

    once = await asked()
    assert once == await asked()
    assert len(set(once[::3])) > 1
    model = get_model(f"hopscope/{folder}", memoize=False)
    other = [(await model.generate("b", config=GenerateConfig(seed=5))).completion for _ in range(28)]
    assert other != [word for place, word in enumerate(once) if place % 3 != 2]
    cold = [(await model.generate("b", config=GenerateConfig(temperature=0))).completion for _ in range(5)]
    assert cold == ["0"] * 5


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_an_evaluation_measures_the_known_model(tmp_path):
    folder = build(tmp_path / "tiny", {"0": 0.2, "1": 0.1, "2": 0.3, "3": 0.1, "zz": 0.2, "a b": 0.1})
    settings = {"log_dir": tmp_path / "logs", "depths": [2], "count": 71}
    logs = evaluate([f"hopscope/{folder}"], ["functions", "equations"], **settings)
    found = tallies(row for log in logs for row in rows(records(log)))
    assert [tally.formulation for tally in found] == ["equations", "functions"]
    for tally in found:
        # Whatever is asked, 0.7 of the answers are acceptable, and a quarter of those is right by chance.
        for share, expected in (
            (tally.acceptance, 0.7),
            (tally.accuracy, 0.25),
            (tally.first_accuracy, 0.175),
        ):
            low, high = clopper_pearson(share.count, share.of, confidence=0.9999)
            assert low < expected < high
        assert tally.answered.count == 71 - tally.stuck
        assert tally.guess == 1 / 4
        assert set(tally.rejected) == {"other"}
    again = evaluate([f"hopscope/{folder}"], ["functions", "equations"], **settings)
    assert [rows(records(log)) for log in again] == [rows(records(log)) for log in logs]


def test_questions_that_do_not_exist_are_refused_before_a_model_is_made(tmp_path):
    with pytest.raises(UserError, match="count: expected at most 8") as raised:
        evaluate(["nobody/knows"], ["equations"], log_dir=tmp_path, depths=[1], chains=2, count=9)
    assert "nobody" not in str(raised.value)
    with pytest.raises(UserError, match="depth: expected 5 for kingdoms, found 3"):
        evaluate(["nobody/knows"], ["kingdoms"], log_dir=tmp_path, depths=[3])


def test_an_evaluation_is_the_same_when_it_is_made_anew(folder, tmp_path):
    def made(name):
        (log,) = evaluate([f"hopscope/{folder}"], ["relatives"], log_dir=tmp_path / name, count=13)
        return rows(records(log))

    assert made("one") == made("other")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("hopscope//nowhere/at/all", "found: /nowhere/at/all: expected the folder of a language model"),
        (
            "nobody/knows",
            "Model API nobody of model 'nobody/knows' not recognized; name the model as PROVIDER/MODEL",
        ),
        ("gpt-4o", "gpt-4o: expected a model that can be asked, found: .*PROVIDER/MODEL"),
        ("openai/gpt-4o", "OPENAI_API_KEY.*; set the key that this provider reads"),
        ("openai-api/stub/tiny", "STUB_API_KEY.*; set the key that this provider reads"),
        ("anthropic/claude", "pip install anthropic.*; install what it names"),
        ("hf/nowhere-at-all", "nowhere-at-all.*; check the model's name"),
    ],
)
def test_models_that_cannot_be_asked(model, words, tmp_path, monkeypatch):
    for key in ("OPENAI_API_KEY", "STUB_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(UserError, match=words) as raised:
        evaluate([model], ["equations"], log_dir=tmp_path, count=2)
    assert "\n" not in str(raised.value) and str(raised.value).startswith(model)
    assert not list(tmp_path.iterdir())


def test_no_model_is_named(tmp_path):
    with pytest.raises(UserError, match="models: expected at least one model to ask"):
        evaluate([], log_dir=tmp_path)


def test_model_arguments_are_refused(folder):
    with pytest.raises(Exception, match="expected no model arguments, found device"):
        get_model(f"hopscope/{folder}", device="cpu")
