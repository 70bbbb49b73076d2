"""The Inspect tasks: one for each formulation, and one for all of them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from inspect_ai import Task, task

# Inspect prints this kind of error as one line; any other is shown with its traceback.
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig

from hopscope.errors import UserError
from hopscope.language.inspect.resampling import resample
from hopscope.language.inspect.scoring import retrieval_score
from hopscope.language.questions.sets import QuestionSet, question_set, remembered
from hopscope.tasks.text import FORMULATIONS

Depths = int | str | list[int] | list[str] | None

RETRIES = 3
"""Retries of one request, at most; Inspect's own default is to go on for ever."""


def _retrieval_task(name: str, formulations: tuple[str, ...]) -> Callable[..., Task]:
    """Register the task that asks questions of these formulations."""

    @task(name=name)
    def build(
        depths: Depths = None,
        count: int = 500,
        chains: int | None = None,
        seed: int = 0,
        attempts: int = 10,
        identical: int = 3,
        timeout: int | None = 50,
        held_out: float | None = None,
        split_seed: int = 0,
    ) -> Task:
        """Questions whose answer is found by going along a chain of facts, or by conditional retrieval.

        Args:
            depths: one or several, such as 1,2,3,4,5; by default the paper's.
            count: questions for each formulation and depth.
            chains: N, by default the paper's 4.
            seed: of the questions.
            attempts: answers asked for at most until one is acceptable.
            identical: unacceptable answers of the same wording in a row after which a question is given up.
            timeout: seconds after which a request, with its retries, is given up; one try has half of them.
                Null for none.
            held_out: only questions that no training of `tiny-lm` with this held-out share sees (equations).
            split_seed: of that split.
        """
        try:
            _check_limits(attempts, identical, timeout)
            asked = question_set(
                formulations=formulations,
                depths=depths,
                chains=chains,
                count=count,
                seed=seed,
                held_out=held_out,
                split_seed=split_seed,
            )
            dataset = MemoryDataset(_samples(asked), name=name)
        except UserError as error:
            raise PrerequisiteError(str(error)) from None
        return Task(
            dataset=dataset,
            solver=resample(attempts, identical),
            scorer=retrieval_score(),
            config=request_limits(timeout),
        )

    return build


def request_limits(timeout: int | None) -> GenerateConfig:
    """Limits on one request, so that a dead server ends in an error instead of being asked for ever.

    A try has half of the time, so that one that hangs can be made again.
    """
    if timeout is None:
        return GenerateConfig(max_retries=RETRIES)
    return GenerateConfig(max_retries=RETRIES, timeout=timeout, attempt_timeout=max(1, timeout // 2))


def _samples(asked: QuestionSet) -> list[Sample]:
    return [
        Sample(
            id=question.id,
            input=question.prompt,
            target=question.answer,
            metadata=remembered(question, asked.seed),
        )
        for question in asked.questions()
    ]


def _check_limits(attempts: int, identical: int, timeout: int | None) -> None:
    """Refuse limits under which nothing would be asked, or the same answer never be noticed."""
    for name, value, least in (
        ("attempts", attempts, 1),
        ("identical", identical, 2),
        ("timeout", timeout, 1),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise UserError(f"{name}: expected a whole number of at least {least}, found {value!r}")


TASKS: Final[Mapping[str, Callable[..., Task]]] = MappingProxyType(
    {
        **{name: _retrieval_task(name, (name,)) for name in FORMULATIONS},
        "retrieval": _retrieval_task("retrieval", FORMULATIONS),
    }
)
"""`hopscope/NAME` for each formulation, and `hopscope/retrieval` for all; made when this module is imported,
because that is how Inspect finds tasks."""
