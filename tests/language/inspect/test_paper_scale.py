"""As many questions as in the paper, to a model whose mistakes are known, with a break on the way."""

import random
from math import sqrt

import pytest
from tests.tasks.text.solvers import SOLVERS

from hopscope.errors import UserError
from hopscope.executors.local import run_study
from hopscope.language.questions.answers import FILE, read_answers
from hopscope.language.questions.survival import survivals
from hopscope.studies import find_study
from hopscope.studies.llm.asking import asked_of
from hopscope.studies.llm.config import PAPER_COUNT, LanguageModelConfig

from .stub import Stub

KEPT = 0.9
"""Share of hops that are read right; where one is lost, the answer is a blind guess."""
TALKS, REFUSED = 0.05, 0.01
"""Share of answers that are sentences, and of requests that are refused."""
BREAK = 1_500
"""The request at which the server ends the run."""


class Forgetful:
    """Answers of a model that loses a hop now and then; the same whenever a question is asked for the same time."""

    def __init__(self, config: LanguageModelConfig):
        self.questions = {each.prompt: each for one in asked_of(config) for each in one.questions()}

    def __call__(self, prompt: str, before: int) -> str:
        question, chance = self.questions[prompt], random.Random(f"{prompt} {before}")
        right = SOLVERS[question.formulation](prompt)
        if chance.random() < TALKS:
            return f"That must be {right}, I think."
        if all(chance.random() < KEPT for _ in range(question.depth)):
            return right
        return chance.choice(question.acceptable)


def refused(number: int, prompt: str) -> str | None:
    if number == BREAK:
        return "401"
    return "429" if random.Random(number).random() < REFUSED else None


@pytest.mark.soak
def test_known_mistakes_are_measured_at_the_paper_s_scale(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_API_KEY", "a key")
    config = LanguageModelConfig(model=("openai-api/stub/forgetful",), count=PAPER_COUNT)
    model = Forgetful(config)
    with Stub(refused, answer=model) as stub:
        config = config.model_copy(update={"base_url": stub.url})
        with pytest.raises(UserError, match="planted 401"):
            run_study(find_study("llm"), config, out=tmp_path, preset="paper", device="cpu")
        assert BREAK < len(stub.requests) < len(model.questions) == 9 * PAPER_COUNT
        run = run_study(find_study("llm"), config, out=tmp_path, preset="paper", device="cpu")

    rows = run.read_json(FILE)["rows"]
    assert len({row["id"] for row in rows}) == len(rows) == len(model.questions)
    # What was answered before the break was not asked again, but for what was under way.
    assert sum(stub.asked.values()) <= sum(row["attempts"] for row in rows) + 50

    cells = read_answers(run).cells
    for cell in cells:
        assert cell.questions == PAPER_COUNT
        guess = cell.guess
        expected = guess + (1.0 - guess) * KEPT**cell.depth
        spread = sqrt(expected * (1.0 - expected) / PAPER_COUNT)
        assert cell.accuracy.value == pytest.approx(expected, abs=4.0 * spread), cell
    hops = survivals([cell for cell in cells if cell.formulation == "equations"])
    assert len(hops) == 5
    assert sum(hop.interval[0] <= KEPT <= hop.interval[1] for hop in hops) >= 4
    (claim,) = run.read_json("claims.json")
    least = min(cell.accuracy.of for cell in cells)  # a question may have no acceptable answer
    assert (claim["verdict"], claim["n"]) == ("refuted", least)
    assert list(claim["value"].values()) == [cell.accuracy.value for cell in cells]
