"""Putting questions to language models from Python: Inspect's `eval` in this process, resumable.

Every answered question is written to the log folder at once.  The same call goes on where the last one stopped: an
evaluation that is complete is read, one that is not is resumed with what was answered.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope.config import Config
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.language.inspect.failures import as_user_error, check_installed, failure_of, in_one_line
from hopscope.language.inspect.watch import WATCH, Watch
from hopscope.language.questions.sets import QuestionSet, question_set
from hopscope.runs.hashing import content_hash
from hopscope.tasks.text import FORMULATIONS
from hopscope.tasks.text.config import Formulation

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.log import EvalLog, EvalLogInfo
    from inspect_ai.model import Model

_IDENTITY = "hopscope"
"""Key of a log's metadata under which stands what was asked, as a hash."""


class Evaluation(Config):
    """What is asked of one model, all of which decides its answers.

    Attributes:
        model: as Inspect names it, such as "openai/gpt-4o" or "hopscope/PATH".
        base_url: of the model's server, if not the provider's own.
        asked: the questions, of one formulation.
        attempts: answers asked for at most until one is acceptable.
        identical: unacceptable answers of the same wording in a row after which a question is given up.
        temperature: of sampling, None for the model's own.
        max_tokens: of an answer, None for the model's own.
    """

    model: str
    base_url: str | None
    asked: QuestionSet
    attempts: int
    identical: int
    temperature: float | None
    max_tokens: int | None

    @property
    def formulation(self) -> Formulation:
        """The formulation of the questions."""
        (formulation,) = self.asked.formulations
        return formulation

    def identity(self) -> str:
        """Hash of what is asked, under which an evaluation is found again."""
        how = self.model_dump(mode="json", exclude={"asked"})
        return content_hash({**how, "formulation": self.formulation, **self._which()})

    def task_arguments(self) -> dict[str, Any]:
        """Arguments of the Inspect task."""
        return {**self._which(), "attempts": self.attempts, "identical": self.identical}

    def _which(self) -> dict[str, Any]:
        return self.asked.model_dump(mode="json", exclude={"formulations"})


def evaluate(
    models: Sequence[str],
    formulations: Sequence[str] = FORMULATIONS,
    *,
    log_dir: Path,
    depths: Sequence[int] | None = None,
    chains: int | None = None,
    count: int = 500,
    seed: int = 0,
    attempts: int = 10,
    identical: int = 3,
    timeout: int | None = 50,
    temperature: float | None = None,
    max_tokens: int | None = None,
    max_connections: int | None = None,
    base_url: str | None = None,
    held_out: float | None = None,
    split_seed: int = 0,
    display: str = "none",
    watch: Watch | None = None,
) -> "list[EvalLog]":
    """Put the questions to each model, one formulation after the other.

    Args:
        models: as Inspect names them.
        formulations: which questions.
        log_dir: where the logs are written and looked for; made if absent.
        depths: of the formulations that have one to choose.
        chains: of the formulations that have them to choose.
        count: questions for each formulation and depth.
        seed: of the questions.
        attempts: answers asked for at most until one is acceptable.
        identical: unacceptable answers of the same wording in a row after which a question is given up.
        timeout: seconds after which a request, with its retries, is given up; one try has half of them.
        temperature: of sampling, None for the model's own.
        max_tokens: of an answer, None for the model's own.
        max_connections: requests at a time, None for the model's own.
        base_url: of the models' server, if not the provider's own.
        held_out: only questions that no training with this held-out share sees (equations); None asks all.
        split_seed: of that split.
        display: what Inspect shows meanwhile: "none", "plain", "rich", "full".
        watch: hears of every answered question, and says when to stop.

    Returns:
        Complete logs with their samples, models outermost; `hopscope.language.questions.answers` reads them.

    Raises:
        UserError: the extra is missing, a question set or model cannot be made, or a server does not
            answer; what was answered stands in `log_dir`, and the same call goes on.
        TimeBudgetReached: the watch's budget is spent; likewise.
        KeyboardInterrupt: interrupted; likewise.
    """
    check_installed()
    asked = question_set(
        formulations=tuple(formulations),
        depths=depths,
        chains=chains,
        count=count,
        seed=seed,
        held_out=held_out,
        split_seed=split_seed,
    )
    evaluations = [
        Evaluation(
            model=model,
            base_url=base_url,
            asked=asked.alone(formulation),
            attempts=attempts,
            identical=identical,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        for model in models
        for formulation in asked.formulations
    ]
    if not evaluations:
        raise UserError(
            "models: expected at least one model to ask, found none; name one, such as openai/gpt-4o"
        )
    tasks = [_task(one, timeout) for one in evaluations]
    shown = {"max_connections": max_connections, "display": display}
    made: dict[str, Any] = {}
    watching = WATCH.set(watch)
    try:
        return [
            _evaluate(one, task, log_dir.resolve(), made, shown)
            for one, task in zip(evaluations, tasks, strict=True)
        ]
    finally:
        WATCH.reset(watching)


def _task(one: Evaluation, timeout: int | None) -> "Task":
    """The Inspect task, which holds the questions.

    Raises:
        UserError: there are no such questions.
    """
    from inspect_ai._util.error import PrerequisiteError

    from hopscope.language.inspect.tasks import TASKS

    try:
        return TASKS[one.formulation](**one.task_arguments(), timeout=timeout)
    except PrerequisiteError as error:
        raise UserError(in_one_line(error)) from None


def _evaluate(
    one: Evaluation, task: "Task", log_dir: Path, made: "dict[str, Model]", shown: dict[str, Any]
) -> "EvalLog":
    """One model and formulation: read from its log, resumed, or asked for the first time."""
    from inspect_ai.log import read_eval_log

    earlier = _earlier(one, log_dir)
    before = None if earlier is None else read_eval_log(earlier)
    if before is not None and before.status == "success":
        return before
    try:
        # Made first, so that a missing key or folder is one line before Inspect begins a log.
        if one.model not in made:
            made[one.model] = _model(one)
        log = (
            _begin(one, task, made[one.model], log_dir, shown)
            if before is None
            else _resume(before, task, log_dir, shown)
        )
    except Exception as error:
        raise as_user_error(error, one.model) from error
    watch = WATCH.get()
    if log.status != "success" and watch is not None and watch.late:
        raise TimeBudgetReached("time budget reached; what is answered is kept, the same command goes on")
    if log.status != "success":
        raise failure_of(log, one.model, log_dir)
    return read_eval_log(log.location)


_QUIET: dict[str, Any] = {
    # A question answered is written at once, and into the log alone.
    "log_buffer": 1,
    "log_realtime": False,
    "log_format": "eval",
    "ctl_server": False,
    "score_display": False,
}


def _begin(one: Evaluation, task: "Task", model: "Model", log_dir: Path, shown: dict[str, Any]) -> "EvalLog":
    from inspect_ai import eval

    logs = eval(
        task,
        model=model,
        log_dir=str(log_dir),
        metadata={_IDENTITY: one.identity()},
        temperature=one.temperature,
        max_tokens=one.max_tokens,
        **_QUIET,
        **shown,
    )
    return _only(logs)


def _resume(before: "EvalLog", task: "Task", log_dir: Path, shown: dict[str, Any]) -> "EvalLog":
    from inspect_ai import eval_retry

    # A retry writes a log of its own, into which it copies what was answered.
    logs = eval_retry(
        before,
        log_dir=str(log_dir),
        timeout=task.config.timeout,
        attempt_timeout=task.config.attempt_timeout,
        max_retries=task.config.max_retries,
        **_QUIET,
        **shown,
    )
    return _only(logs)


def _only(logs: "list[EvalLog]") -> "EvalLog":
    """The log of the one evaluation; interrupted early, Inspect returns none."""
    if not logs or logs[0].status == "cancelled":
        raise KeyboardInterrupt
    return logs[0]


def _model(one: Evaluation) -> "Model":
    from inspect_ai.model import get_model

    import hopscope.language.inspect.registry  # noqa: F401  (registers the provider where the package is not installed)

    # Not one that an earlier call made: `hopscope/PATH` remembers how often a prompt was asked.
    return get_model(one.model, base_url=one.base_url, memoize=False)


def _earlier(one: Evaluation, log_dir: Path) -> "EvalLogInfo | None":
    """The log of an earlier call to go on from: complete, or else with most answers; the latest of equals."""
    from inspect_ai.log import list_eval_logs, read_eval_log_sample_summaries

    found = list_eval_logs(
        str(log_dir),
        filter=lambda log: (log.eval.metadata or {}).get(_IDENTITY) == one.identity(),
        descending=False,
    )
    best: tuple[tuple[bool, int], EvalLogInfo] | None = None
    for info in found:
        summaries = read_eval_log_sample_summaries(info)
        rank = (_complete(info), sum(summary.completed and not summary.error for summary in summaries))
        if best is None or rank >= best[0]:
            best = (rank, info)
    return None if best is None else best[1]


def _complete(info: "EvalLogInfo") -> bool:
    from inspect_ai.log import read_eval_log

    return read_eval_log(info, header_only=True).status == "success"
