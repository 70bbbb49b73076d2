"""Asking until an acceptable answer comes: the paper's protocol, as an Inspect solver."""

from inspect_ai.model import GenerateConfigArgs, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from tenacity import RetryError

from hopscope.language.inspect.watch import WATCH
from hopscope.language.questions.matching import matched, normal_form

ATTEMPTS = "attempts"
STUCK = "stuck"
"""Keys of a sample's store: every answer in order, and whether asking ended because the answers repeated."""


class NoReplyError(Exception):
    """Every try of a request failed; says how the last one did."""


@solver
def resample(attempts: int = 10, identical: int = 3) -> Solver:
    """Ask a question afresh until the answer is acceptable.

    A rejected answer never enters the conversation: each attempt sends the question alone.  Only the first
    attempt may come from Inspect's cache, and where a sampling seed is fixed every attempt has another one,
    because otherwise the same answer would come again.

    Args:
        attempts: cap on answers for one question.
        identical: unacceptable answers of the same normal form in a row after which asking ends: such a
            server (greedy decoding, a refusal) would never give another.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        watch = WATCH.get()
        if watch is not None:
            watch.begin()
        question = list(state.messages)
        answers: list[dict[str, str | None]] = []
        while not _finished(answers, attempts, identical):
            state.messages = list(question)
            state = await _ask(state, generate, len(answers))
            text = state.output.completion
            found = matched(text, state.metadata["acceptable"])
            answers.append({"text": text, "acceptable": found, "stop": state.output.stop_reason})
        state.store.set(ATTEMPTS, answers)
        state.store.set(STUCK, _stuck(answers, identical))
        if watch is not None:
            watch.end()
        return state

    return solve


async def _ask(state: TaskState, generate: Generate, attempt: int) -> TaskState:
    changes: GenerateConfigArgs = {} if attempt == 0 else {"cache": False}
    seed = get_model().config.seed
    if attempt and seed is not None:
        changes["seed"] = seed + attempt
    try:
        return await generate(state, tool_calls="none", **changes)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise NoReplyError(f"{type(cause).__name__}: {cause}") from cause


def _finished(answers: list[dict[str, str | None]], attempts: int, identical: int) -> bool:
    if not answers:
        return False
    return answers[-1]["acceptable"] is not None or len(answers) >= attempts or _stuck(answers, identical)


def _stuck(answers: list[dict[str, str | None]], identical: int) -> bool:
    last = answers[-identical:]
    if len(last) < identical or any(answer["acceptable"] is not None for answer in last):
        return False
    return len({normal_form(answer["text"] or "") for answer in last}) == 1
