"""`hopscope/FOLDER`: a model whose distribution is known answers what it should, and models that cannot be asked."""

import re
from collections import Counter

import pytest
import torch
from click import ClickException
from inspect_ai.model import GenerateConfig, get_model
from scipy.stats import binomtest
from tests.oracles.equations import reference_text

import hopscope.language.inspect.tasks  # noqa: F401
from hopscope.errors import UserError
from hopscope.language.gpt2_folder import WEIGHTS, read_folder, write_folder
from hopscope.language.inspect import evaluate
from hopscope.language.inspect.sampling import choose
from hopscope.language.questions.answers import rows, tallies
from hopscope.models.member import MemberTransformer
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.text.tokens import END

from .own import ask, build, random_member, shape_of

ANSWERS = {"0": 0.42, "1": 0.28, "is": 0.19, END: 0.11}
TASK = EquationsTask(EquationsConfig(chains=3, depths=(1, 2)))


def model_of(folder):
    return get_model(f"hopscope/{folder}", memoize=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("known"), ANSWERS)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained")
    write_folder(random_member(TASK), TASK.vocabulary, folder, {})
    return folder


def prompts(count):
    return [reference_text(TASK.config, 3, "train", 0, index)["prompt"] for index in range(count)]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_have_the_distribution_of_the_model(folder, temperature):
    count, api = 1009, model_of(folder).api
    found = Counter(api.answer("What is", temperature, seed, 1) for seed in range(count))
    weights = {word: p ** (1 / temperature) for word, p in ANSWERS.items()}
    weights[""] = weights.pop(END)
    for word, weight in weights.items():
        low, high = binomtest(found[word], count).proportion_ci(0.9999)
        assert low < weight / sum(weights.values()) < high, word
    assert set(found) <= set(weights)


def test_an_answer_ends_at_the_mark_at_the_most_tokens_or_one_behind_the_context(folder):
    api = model_of(folder).api
    assert api.answer("What is", 0.0, 0, 3) == "0 0 0"
    assert api.answer("is " * (TASK.positions - 1), 0.0, 0) == "0 0"
    assert api.answer("is " * TASK.positions, 0.0, 0) == "0"
    with pytest.raises(UserError, match=f"expected at most {TASK.positions} tokens, found 200"):
        api.answer("a " * 200, 0.0, 0)
    long = [api.answer("What is", 1.0, seed) for seed in range(31)]
    # Up to the end token, which is drawn at one place in nine.
    assert {len(words.split()) for words in long} > {1, 8}
    assert max(len(words.split()) for words in long) == 8


def test_the_likeliest_word_is_the_model_s(untrained):
    module, _ = read_folder(untrained)
    for prompt in prompts(9):
        first = TASK.vocabulary[int(module(TASK.read(prompt)[None])[0, -1].argmax())]
        assert model_of(untrained).api.answer(prompt, 0.0, 0, 1) == first.replace(END, "")


class Said(MemberTransformer):
    """Says the same words after any prompt, one after another."""

    def __init__(self, *words):
        super().__init__(shape_of(TASK))
        self.words = [TASK.vocabulary.index(word) for word in words]
        self.lengths = []

    def forward(self, inputs):
        self.lengths.append(inputs.shape[1])
        logits = torch.zeros(*inputs.shape, len(TASK.vocabulary))
        logits[:, -1, self.words[len(self.lengths) - 1]] = 90.0
        return logits


def test_what_was_said_is_read_and_nothing_behind_the_end(untrained, monkeypatch):
    api, said = model_of(untrained).api, Said("2", "1", END, "0")
    monkeypatch.setattr(api, "_module", said)
    assert api.answer("What is", 0.0, 0) == "2 1"
    assert said.lengths == [2, 3, 4]


def test_what_the_model_cannot_read_is_said_in_one_line(folder):
    with pytest.raises(UserError, match="expected words that the model was trained on, found 'zebra'"):
        model_of(folder).api.answer("What is the value of zebra?", 0.0, 0)


def test_a_token_of_no_probability_is_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    drawn = [choose(logits, 1.0, seed, 0) for seed in range(997)]
    assert set(drawn) == {1, 3}
    assert drawn != [choose(logits, 1.0, seed, 1) for seed in range(997)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "nowhere: expected the folder of a language model, found none; check the path"),
        (WEIGHTS, "expected an exported language model, found: "),
    ],
)
def test_folders_that_hold_no_model_of_ours(name, words, tmp_path):
    folder = build(tmp_path / "model", ANSWERS)
    (folder / name).unlink(missing_ok=True)
    with pytest.raises(ClickException, match=re.escape(words)) as raised:
        model_of(folder / name if name == "nowhere" else folder)
    assert "\n" not in str(raised.value)


@pytest.mark.anyio
async def test_the_provider_repeats_itself_only_as_a_whole(folder):
    short = GenerateConfig(max_tokens=1)

    async def asked():
        model = model_of(folder)
        order = ["What", "What", "is", "What", "What", "is"] * 7
        return [(await model.generate(prompt, config=short)).completion for prompt in order]

    once = await asked()
    assert once == await asked()
    assert len(set(once[::3])) > 1
    model = model_of(folder)
    seeded = GenerateConfig(max_tokens=1, seed=5)
    other = [(await model.generate("What", config=seeded)).completion for _ in range(28)]
    assert other != [word for place, word in enumerate(once) if place % 3 != 2]
    cold = GenerateConfig(max_tokens=1, temperature=0)
    assert [(await model.generate("What", config=cold)).completion for _ in range(5)] == ["0"] * 5


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_an_evaluation_measures_the_known_model(tmp_path):
    folder = build(tmp_path / "known", {"0": 0.2, "1": 0.1, "2": 0.4, "is": 0.2, "What": 0.1})
    settings = {"log_dir": tmp_path / "logs", "depths": [2, 1], "chains": 3, "count": 71, "max_tokens": 1}
    logs = ask([f"hopscope/{folder}"], ["equations"], **settings)
    found = tallies(row for log in logs for row in rows(log))
    assert [tally.depth for tally in found] == [1, 2]
    for tally in found:
        # Whatever is asked, 0.7 of the answers are acceptable, and a third of those is right by chance.
        for share, expected in (
            (tally.acceptance, 0.7),
            (tally.accuracy, 1 / 3),
            (tally.first_accuracy, 0.7 / 3),
        ):
            low, high = binomtest(share.count, share.of).proportion_ci(0.9999)
            assert low < expected < high
        assert tally.answered.count == 71 - tally.stuck
        assert tally.guess == pytest.approx(1 / 3)
        assert set(tally.rejected) == {"other"}
    again = ask([f"hopscope/{folder}"], ["equations"], **settings)
    assert [rows(log) for log in again] == [rows(log) for log in logs]
    anew = ask([f"hopscope/{folder}"], ["equations"], **{**settings, "log_dir": tmp_path / "other"})
    assert [rows(log) for log in anew] == [rows(log) for log in logs]


def test_questions_that_do_not_exist_are_refused_before_a_model_is_made(tmp_path):
    with pytest.raises(UserError, match="count: expected at most 8") as raised:
        ask(["nobody/knows"], ["equations"], log_dir=tmp_path, depths=[1], chains=2, count=9)
    assert "nobody" not in str(raised.value)
    with pytest.raises(UserError, match="depth: expected 5 for kingdoms, found 3"):
        ask(["nobody/knows"], ["kingdoms"], log_dir=tmp_path, depths=[3])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("hopscope//nowhere/at/all", "^/nowhere/at/all: expected the folder of a language model"),
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
        ask([model], ["equations"], log_dir=tmp_path, count=2)
    assert "\n" not in str(raised.value) and str(raised.value).startswith(model.removeprefix("hopscope/"))
    assert not list(tmp_path.iterdir())


def test_no_model_is_named(tmp_path):
    with pytest.raises(UserError, match="models: expected at least one model to ask"):
        evaluate([], [], log_dir=tmp_path)


def test_model_arguments_are_refused(folder):
    with pytest.raises(ClickException, match="expected no model arguments, found device"):
        get_model(f"hopscope/{folder}", device="cpu")
