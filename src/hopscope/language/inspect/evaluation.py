"""Putting questions to language models from Python, with Inspect's `eval_set` in this process, which resumes.

Every answered question is written to the log folder at once.  The same call goes on where the last one stopped: an
evaluation that is complete is read, one that is not is resumed with what was answered.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.language.inspect.failures import as_user_error, check_installed, failure_of
from hopscope.language.questions.sets import Precision, QuestionSet
from hopscope.training.budget import TimeBudget

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.log import EvalLog
    from inspect_ai.model import Model

_PARTS = 10
"""How often an evaluation is reported on while it runs."""


class OutOfTimeError(Exception):
    """Ends an evaluation between two questions; what was answered is in its log."""


@dataclass
class Watch:
    """Counts the questions that are answered in one call, reports on them, and ends the call when time is up.

    Attributes:
        budget: no question is begun after it, but for the first: every call gets somewhere.
        say: is told in words how far an evaluation is.
        name, total, answered: the evaluation under way, its questions, and those of them answered in this call.
        begun: whether any question was answered in this call.
        late: whether a question was not begun because the budget is spent.
    """

    budget: TimeBudget = field(default_factory=TimeBudget)
    say: Callable[[str], None] = lambda words: None
    name: str = ""
    total: int = 0
    answered: int = 0
    begun: bool = False
    late: bool = False

    def begin(self) -> None:
        """Called before each question.

        Raises:
            OutOfTimeError: the budget is spent.
        """
        if self.begun and self.budget.left <= 0:
            self.late = True
            raise OutOfTimeError

    def end(self) -> None:
        """Called after each question that was answered."""
        self.begun = True
        self.answered += 1
        if self.answered % max(1, self.total // _PARTS) == 0:
            self.say(f"{self.name}, {self.answered:,} of {self.total:,} questions answered in this call")


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)
"""The watch of the evaluation under way.  Not an argument of the Inspect tasks: those are written into the log, and
decide which evaluation it is."""


def evaluate(
    models: Sequence[str],
    asked: Sequence[QuestionSet],
    *,
    log_dir: Path,
    attempts: int = 10,
    identical: int = 3,
    timeout: int | None = 50,
    temperature: float | None = None,
    max_tokens: int | None = None,
    max_connections: int | None = None,
    base_url: str | None = None,
    precision: Precision = "float32",
    watch: Watch | None = None,
) -> "list[EvalLog]":
    """Put the questions to each model, one set after the other.

    Args:
        models: as Inspect names them.
        asked: sets of questions, each of one formulation.
        log_dir: where the logs are written and looked for; made if absent.
        attempts: answers asked for at most until one is acceptable.
        identical: unacceptable answers of the same wording in a row after which a question is given up.
        timeout: seconds after which a request, with its retries, is given up; one try has half of them.
        temperature: of sampling, None for the model's own.
        max_tokens: of an answer, None for the model's own.
        max_connections: requests at a time, None for the model's own.
        base_url: of the models' server, if not the provider's own; it does not tell evaluations apart.
        precision: number format of pretrained models of this process.
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
    if not models:
        raise UserError(
            "models: expected at least one model to ask, found none; name one, such as openai/gpt-4o"
        )
    from inspect_ai.model import get_model

    from hopscope.language.inspect.tasks import request_limits

    how: dict[str, Any] = {
        "log_dir": str(log_dir.resolve()),
        "temperature": temperature,
        "max_tokens": max_tokens,
        "max_connections": max_connections,
        **request_limits(timeout),
    }
    tasks = [_task(one, attempts, identical) for one in asked]
    prompts = [str(sample.input) for task in tasks for sample in task.dataset]
    watch = watch or Watch()
    watching = WATCH.set(watch)
    # What is as ever goes without a word, as logs of before there was a choice have it.
    own = {} if precision == "float32" else {"precision": precision}
    try:
        logs = []
        for name in models:
            # One for all of its questions: it may be large.  Not one that an earlier call made: `hopscope/FOLDER`
            # remembers how often a prompt was asked.
            try:
                model = get_model(name, base_url=base_url, memoize=False, **own)
            except Exception as error:
                raise as_user_error(error, name) from error
            watch.say(f"{name}: {_estimate(model, prompts, asked, attempts, max_tokens)}")
            for one, task in zip(asked, tasks, strict=True):
                watch.name, watch.total = f"{name}: {one.formulations[0]}", len(task.dataset)
                watch.answered = 0
                logs.append(_evaluated(task, model, name, how, watch))
                watch.say(f"{watch.name} done")
        return logs
    finally:
        WATCH.reset(watching)


def _estimate(
    model: "Model",
    prompts: Sequence[str],
    asked: Sequence[QuestionSet],
    attempts: int,
    max_tokens: int | None,
) -> str:
    """What the questions cost, in words: time by a probe where the model is ours to probe, else what is sent.

    Raises:
        UserError: the model cannot be asked.
    """
    from hopscope.language.inspect.pretrained import SENTENCE, words_of

    chosen = any(one.measure == "choice" for one in asked)
    most = 1 if chosen else attempts
    pretrained = getattr(model.api, "pretrained", None)
    if pretrained is not None:
        return words_of(pretrained.seconds(prompts, max_tokens or SENTENCE, most, chosen), len(prompts))
    words = sum(len(prompt.split()) for prompt in prompts)
    return f"{len(prompts):,} questions of {words:,} words in all, each asked {most} times at most"


def _task(one: QuestionSet, attempts: int, identical: int) -> "Task":
    """The Inspect task, which holds the questions; its arguments decide which evaluation it is.

    Raises:
        UserError: there are no such questions.
    """
    from click import ClickException

    from hopscope.language.inspect.tasks import TASKS

    (formulation,) = one.formulations
    # What is asked as ever goes without a word: logs of before there was a choice are found again.
    usual = {
        name for name in ("few_shot", "filler", "repeats", "measure") if name not in one.model_fields_set
    }
    arguments = one.model_dump(mode="json", exclude={"formulations", *usual})
    try:
        return TASKS[formulation](**arguments, attempts=attempts, identical=identical)
    except ClickException as error:
        raise UserError(error.message) from None


def _evaluated(task: "Task", model: "Model", name: str, how: dict[str, Any], watch: Watch) -> "EvalLog":
    """The complete log of one model and task: read, resumed, or of questions asked for the first time."""
    from inspect_ai import eval_set
    from inspect_ai.log import read_eval_log

    try:
        with redirect_stdout(io.StringIO()):  # it says there that it is done
            complete, logs = eval_set(
                task,
                model=[model],
                # Others of this folder are other evaluations.
                log_dir_allow_dirty=True,
                # Requests are made again; what fails then is for the user to mend.
                retry_attempts=1,
                retry_immediate=False,
                # A question answered is written at once, and into the log alone.
                log_buffer=1,
                log_realtime=False,
                log_format="eval",
                ctl_server=False,
                display="none",
                score_display=False,
                **how,
            )
    except Exception as error:
        raise as_user_error(error, name) from error
    if not logs:
        raise KeyboardInterrupt
    if watch.late and not complete:
        raise TimeBudgetReached("time budget reached; what is answered is kept, the same command goes on")
    log = read_eval_log(logs[0].location)
    if not complete:
        raise failure_of(log, name, Path(how["log_dir"]))
    return log
