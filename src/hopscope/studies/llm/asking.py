"""Asking the models, and writing down what they said."""

from collections.abc import Callable, Iterator

from hopscope.language.inspect.evaluation import evaluate
from hopscope.language.inspect.watch import Watch
from hopscope.language.questions.answers import Row, records, rows
from hopscope.language.questions.cells import FILE, SCHEMA_VERSION, Answers, cells_of
from hopscope.language.questions.sets import question_set
from hopscope.runs import RunFolder
from hopscope.studies.llm.config import LanguageModelConfig
from hopscope.tasks.text import FORMULATIONS, Question
from hopscope.tasks.text.config import Formulation
from hopscope.training.budget import TimeBudget

LOGS = "logs"
"""Folder of the run for Inspect's logs."""

_PARTS = 10
"""How often a kind of question is reported on while it is asked."""


def gather(
    run: RunFolder, config: LanguageModelConfig, budget: TimeBudget, say: Callable[[str], None]
) -> None:
    """Ask what has not been answered yet, and write `llm/answers.json`.

    Raises:
        TimeBudgetReached: what was answered is in the logs, and the same call goes on.
        UserError: a model cannot be asked; likewise.
    """
    if (run.path / FILE).is_file():
        return
    watch = Watch(budget)
    found = [
        row
        for model in config.model
        for formulation in _formulations(config)
        for row in _ask(run, config, model, formulation, watch, say)
    ]
    questions = {question.id: question for question in questions_of(config)}
    answers = Answers(
        schema_version=SCHEMA_VERSION, cells=tuple(cells_of(found, questions)), rows=tuple(found)
    )
    run.write_json(FILE, answers.model_dump(mode="json"))


def _formulations(config: LanguageModelConfig) -> list[Formulation]:
    return [name for name in FORMULATIONS if name in config.formulations]


def questions_of(config: LanguageModelConfig) -> Iterator[Question]:
    """All questions that a run puts to each of its models."""
    for formulation in _formulations(config):
        yield from question_set(
            formulations=(formulation,),
            depths=config.depths_of(formulation),
            count=config.count,
            seed=config.seed,
        ).questions()


def _ask(
    run: RunFolder,
    config: LanguageModelConfig,
    model: str,
    formulation: Formulation,
    watch: Watch,
    say: Callable[[str], None],
) -> list[Row]:
    depths = config.depths_of(formulation)
    total = config.count * len(depths)
    before, part = watch.answered, max(1, total // _PARTS)

    def heard(answered: int) -> None:
        if (answered - before) % part == 0:
            say(f"{model}: {formulation}, {answered - before:,} of {total:,} questions answered in this call")

    watch.heard = heard
    logs = evaluate(
        [model],
        [formulation],
        log_dir=run.path / LOGS,
        depths=depths,
        count=config.count,
        seed=config.seed,
        attempts=config.attempts,
        identical=config.identical,
        timeout=config.timeout,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        max_connections=config.max_connections,
        base_url=config.base_url,
        watch=watch,
    )
    say(f"{model}: {formulation} done")
    return rows(record for log in logs for record in records(log))
