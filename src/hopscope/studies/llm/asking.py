"""Asking the models, and writing down what they said."""

from collections.abc import Callable

from hopscope.errors import UserError
from hopscope.language.inspect.evaluation import Watch, evaluate
from hopscope.language.inspect.failures import check_installed
from hopscope.language.questions.answers import FILE, SCHEMA_VERSION, Answers, rows, tallies
from hopscope.language.questions.sets import QuestionSet, question_set
from hopscope.runs import RunFolder
from hopscope.studies.llm.config import LanguageModelConfig
from hopscope.tasks.text import FORMULATIONS
from hopscope.training.budget import TimeBudget


def check(config: LanguageModelConfig) -> None:
    """Refuse to begin without a model, or without Inspect.

    Raises:
        UserError: says how to name a model, or how to install what is missing.
    """
    if not config.model:
        raise UserError(
            "model: expected at least one to ask, found none; name it as Inspect does, such as "
            "--model openai/gpt-4o or --model hopscope/FOLDER"
        )
    check_installed()


def gather(
    run: RunFolder, config: LanguageModelConfig, budget: TimeBudget, say: Callable[[str], None]
) -> None:
    """Ask what has not been answered yet, and write `llm/answers.json`.

    Raises:
        TimeBudgetReached: what was answered is in the logs, and the same call goes on.
        UserError: a model cannot be asked; likewise.
    """
    asked = asked_of(config)
    logs = evaluate(
        config.model,
        asked,
        log_dir=run.path / "logs",
        attempts=config.attempts,
        identical=config.identical,
        timeout=config.timeout,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        max_connections=config.max_connections,
        base_url=config.base_url,
        precision=config.precision,
        watch=Watch(budget, say),
    )
    found = tuple(row for log in logs for row in rows(log))
    questions = {question.id: question for one in asked for question in one.questions()}
    answers = Answers(schema_version=SCHEMA_VERSION, cells=tuple(tallies(found, questions)), rows=found)
    run.write_json(FILE, answers.model_dump(mode="json"))


def asked_of(config: LanguageModelConfig) -> list[QuestionSet]:
    """The questions that a run puts to each of its models, by formulation."""
    return [
        question_set(
            formulations=(formulation,),
            depths=config.depths_of(formulation),
            count=config.count,
            seed=config.seed,
            **config.changes(),
        )
        for formulation in FORMULATIONS
        if formulation in config.formulations
    ]
