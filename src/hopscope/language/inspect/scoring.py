"""The score of a sample, and the numbers of an evaluation, each by formulation and depth.

Inspect's `grouped(ci_wilson())` cannot be used in the supported versions, and accuracy given acceptable
leaves samples out of its denominator; so the metrics are those of `hopscope.language.questions.answers`, which the study and
its page use too.
"""

from collections.abc import Callable

from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState

from hopscope.language.inspect.resampling import ATTEMPTS, STUCK
from hopscope.language.questions.answers import Share, Tally, record, rows, tallies

# A metric is given no model, and all its samples are of one.
_ONE_MODEL = "model"


@metric
def accuracy_given_acceptable() -> Metric:
    """Correct among the questions with an acceptable answer: "accuracy equations D=5", " low" and " high"."""
    return _by_depth(lambda tally: _interval("accuracy", tally, tally.accuracy))


@metric
def first_attempt_accuracy() -> Metric:
    """Correct at the first attempt, among all questions."""
    return _by_depth(lambda tally: _interval("first attempt", tally, tally.first_accuracy))


@metric
def acceptance_rate() -> Metric:
    """Acceptable first answers, and questions answered acceptably within the cap, among all questions."""
    return _by_depth(
        lambda tally: {
            **_interval("acceptance", tally, tally.acceptance),
            **_interval("answered", tally, tally.answered),
        }
    )


@metric
def guess_line() -> Metric:
    """Mean over the questions of 1 / number of acceptable answers: what blind guessing reaches."""
    return _by_depth(lambda tally: {_name("guess", tally): tally.guess})


@metric
def stuck() -> Metric:
    """Questions at which the model kept giving the same unacceptable answer."""
    return _by_depth(lambda tally: {_name("stuck", tally): float(tally.stuck)})


def _by_depth(numbers: Callable[[Tally], dict[str, float]]) -> Metric:
    def compute(scores: list[SampleScore]) -> Value:
        found: dict[str, float] = {}
        for tally in _tallies(scores):
            found |= numbers(tally)
        return found

    return compute


def _tallies(scores: list[SampleScore]) -> list[Tally]:
    return tallies(
        rows(
            record(
                str(score.sample_id),
                _ONE_MODEL,
                1,
                score.sample_metadata or {},
                score.score.metadata or {},
            )
            for score in scores
        )
    )


def _name(quantity: str, tally: Tally) -> str:
    return f"{quantity} {tally.formulation} D={tally.depth}"


def _interval(quantity: str, tally: Tally, share: Share) -> dict[str, float]:
    ends = {"": share.value, " low": share.low, " high": share.high}
    return {_name(quantity, tally) + end: value for end, value in ends.items() if value is not None}


@scorer(
    metrics=[
        accuracy_given_acceptable(),
        first_attempt_accuracy(),
        acceptance_rate(),
        guess_line(),
        stuck(),
    ]
)
def retrieval_score() -> Scorer:
    """Correct (C), incorrect (I), or no acceptable answer within the cap (N); every attempt in the metadata.

    Metadata: `attempts`, a list of {"text", "acceptable", "stop"}; `stuck`; `answer`, the correct one.
    """

    async def score(state: TaskState, target: Target) -> Score:
        attempts = state.store.get(ATTEMPTS)
        repeated = state.store.get(STUCK)
        answer = attempts[-1]["acceptable"]
        return Score(
            value=NOANSWER if answer is None else CORRECT if answer == target.text else INCORRECT,
            answer=answer,
            explanation=_explanation(answer, len(attempts), repeated),
            reason=None if answer is not None else "stuck" if repeated else "invalid_response_format",
            metadata={"attempts": attempts, "stuck": repeated, "answer": target.text},
        )

    return score


def _explanation(answer: str | None, attempts: int, repeated: bool) -> str:
    if answer is not None:
        return f"acceptable at attempt {attempts}"
    if repeated:
        return f"stopped after {attempts} attempts: the same unacceptable answer came again and again"
    return f"no acceptable answer in {attempts} attempts"
