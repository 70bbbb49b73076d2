"""The questions as Inspect tasks: what is asked, how until an answer is acceptable, and what an answer scores.

This is the module that Inspect imports for the name `hopscope` (entry point of the group `inspect_ai`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from click import ClickException
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, GenerateConfigArgs, ModelOutput, get_model
from inspect_ai.scorer import (
    Metric,
    MetricProtocol,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    ci_wilson,
    grouped,
    mean,
    metric,
    scorer,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.viewer import (
    SampleScoreView,
    ScoreColorScale,
    TaskSamplesColumn,
    TaskSamplesSort,
    TaskSamplesView,
    ViewerConfig,
)
from tenacity import RetryError

from hopscope.errors import UserError
from hopscope.language.inspect.evaluation import WATCH, Watch
from hopscope.language.inspect.provider import CANDIDATES
from hopscope.language.inspect.provider import hopscope as hopscope
from hopscope.language.questions.matching import matched, normal_form
from hopscope.language.questions.sets import question_set, remembered
from hopscope.tasks.text import FORMULATIONS

Depths = int | str | list[int] | list[str] | None

RETRIES = 3
"""Retries of one request, at most; Inspect's own default is to go on for ever."""

ATTEMPTS = "attempts"
STUCK = "stuck"
SCORES = "scores"
"""Keys of a sample's store: every answer in order, whether asking ended because the answers repeated, and what a choice
was made of."""

OURS = "hopscope/"
IN_PROCESS = (OURS, "hf/")
"""Beginnings of names of models that run in this process."""

_NO_LIMIT = 10**8
"""Seconds: Inspect knows no way to take a limit back."""

SCORER = "retrieval_score"
"""Name of the scorer in logs; a score is a column under it."""

_GOOD = ("accuracy", "first_attempt", "acceptance", "answered")
_LABELS: Final = {
    "accuracy": "right",
    "first_attempt": "right at the first attempt",
    "acceptance": "first answer acceptable",
    "answered": "answered",
    "stuck": "given up",
    "guess": "guess line",
}
"""Score → what the viewer calls it."""

_TOP, _FIRST = 20, 3
"""Likeliest tokens that a server is asked for, and how many tokens: the first may be white space."""


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
        few_shot: int = 0,
        filler: int = 0,
        repeats: int = 1,
        measure: str = "answers",
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
            few_shot: solved examples of the same kind before each question.
            filler: dots between each question and its answer.
            repeats: how often each problem is told.
            measure: `answers`, or `choice`: which acceptable answer the model finds likeliest as the end of a
                sentence; nothing is said, and asked once.
        """
        try:
            _check_limit("attempts", attempts, 1)
            _check_limit("identical", identical, 2)
            _check_limit("timeout", timeout, 1)
            asked = question_set(
                formulations=formulations,
                depths=depths,
                chains=chains,
                count=count,
                seed=seed,
                held_out=held_out,
                split_seed=split_seed,
                few_shot=few_shot,
                filler=filler,
                repeats=repeats,
                measure=measure,
            )
            samples = [
                Sample(
                    id=question.id,
                    input=prompt,
                    target=question.answer,
                    metadata=remembered(question, asked.seed),
                )
                for question, prompt in asked.prompts()
            ]
        except UserError as error:
            # Inspect's command prints this kind of error as one line; any other is shown with its traceback.
            raise ClickException(f"{error}{_as_arguments(str(error))}") from None
        return Task(
            dataset=MemoryDataset(samples, name=name),
            solver=likeliest() if asked.measure == "choice" else resample(attempts, identical),
            scorer=retrieval_score(),
            config=GenerateConfig(**request_limits(timeout)),
            viewer=default_view(),
        )

    return build


def default_view() -> ViewerConfig:
    """How Inspect's viewer lists the questions, unless its user chose otherwise: the answer and its scores in a row.

    What a model said is shown as plain text, letter by letter: whether an answer is acceptable may hang on a sign that
    Markdown would take away.
    """
    shown = ("sampleStatus", "sampleId", "input", "target", "answer")
    return ViewerConfig(
        trust_content=False,
        sample_score_view=SampleScoreView(default="grid"),
        task_samples_view=TaskSamplesView(
            name="Questions",
            columns=[
                *(TaskSamplesColumn(id=name) for name in shown),
                *(TaskSamplesColumn.score(SCORER, name) for name in _LABELS),
            ],
            sort=[TaskSamplesSort(column="sampleId")],
            multiline=False,
            score_labels=_LABELS,
            score_color_scales={
                **{name: ScoreColorScale(palette="good-high", min=0.0, max=1.0) for name in _GOOD},
                "stuck": ScoreColorScale(palette="good-low", min=0.0, max=1.0),
                "guess": ScoreColorScale(palette="neutral", min=0.0, max=1.0),
            },
        ),
    )


def _check_limit(name: str, value: int | None, least: int) -> None:
    """Refuse a limit under which nothing would be asked, or the same answer never be noticed."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise UserError(f"{name}: expected a whole number of at least {least}, found {value!r}")


def _as_arguments(found: str) -> str:
    """How questions that are too many names long are asked for on the command line of Inspect."""
    return " (such as -T chains=3 -T depths=1)" if "depth · chains" in found else ""


def request_limits(timeout: int | None) -> GenerateConfigArgs:
    """Limits on one request, so that a dead server ends in an error instead of being asked for ever.

    A try has half of the time, so that one that hangs can be made again.
    """
    if timeout is None:
        return {"max_retries": RETRIES}
    return {"max_retries": RETRIES, "timeout": timeout, "attempt_timeout": max(1, timeout // 2)}


class NoReplyError(Exception):
    """Every try of a request failed; says how the last one did."""


@solver
def resample(attempts: int = 10, identical: int = 3) -> Solver:
    """Ask a question afresh until the answer is acceptable: the paper's protocol.

    A rejected answer never enters the conversation: each attempt sends the question alone.  Only the first
    attempt may come from Inspect's cache, and where a sampling seed is fixed every attempt has another one,
    because otherwise the same answer would come again.

    Args:
        attempts: cap on answers for one question.
        identical: unacceptable answers of the same normal form in a row after which asking ends: such a
            server (greedy decoding, a refusal) would never give another.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        watch = WATCH.get() or Watch()
        watch.begin()
        question = list(state.messages)
        answers: list[dict[str, str | None]] = []
        stuck = False
        while not (stuck or len(answers) == attempts or (answers and answers[-1]["acceptable"] is not None)):
            state.messages = list(question)
            state = await _ask(state, generate, len(answers))
            text = state.output.completion
            found = matched(text, state.metadata["acceptable"])
            answers.append({"text": text, "acceptable": found, "stop": state.output.stop_reason})
            stuck = _stuck(answers[-identical:], identical)
        state.store.set(ATTEMPTS, answers)
        state.store.set(STUCK, stuck)
        watch.end()
        return state

    return solve


async def _ask(state: TaskState, generate: Generate, attempt: int, **changes: Any) -> TaskState:
    if attempt:
        changes["cache"] = False
    model = get_model()
    if attempt and model.config.seed is not None:
        changes["seed"] = model.config.seed + attempt
    if str(model).startswith(IN_PROCESS):
        # It answers in its own time, and cannot be dead.
        changes |= {"timeout": _NO_LIMIT, "attempt_timeout": _NO_LIMIT}
    try:
        return await generate(state, tool_calls="none", **changes)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise NoReplyError(f"{type(cause).__name__}: {cause}") from cause


@solver
def likeliest() -> Solver:
    """Find the acceptable answer that a model thinks likeliest as the end of a sentence: nothing is sampled.

    A model of this process gives the log-probability of every acceptable answer, up to the token that tells it from the
    others, and of every other symbol of the question.  A server gives those of the likeliest first tokens alone.  Where
    none of them, or one that several answers share, leads, the question has no answer.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        watch = WATCH.get() or Watch()
        watch.begin()
        acceptable: list[str] = state.metadata["acceptable"]
        symbols = [*dict.fromkeys([*acceptable, *(s for chain in state.metadata["symbols"] for s in chain)])]
        if str(get_model()).startswith(OURS):
            body = {CANDIDATES: {"acceptable": acceptable, "symbols": symbols}}
            state = await _ask(state, generate, 0, extra_body=body)
            found = state.output.metadata or {}
            scores = dict(zip(acceptable, found["acceptable"], strict=True))
            said = max(zip(found["symbols"], symbols, strict=True))[1]
            answer: str | None = max(acceptable, key=lambda each: scores[each])
        else:
            state = await _ask(
                state, generate, 0, logprobs=True, top_logprobs=_TOP, max_tokens=_FIRST, temperature=1.0
            )
            scores, answer = by_first_token(state.output, acceptable)
            said = answer or state.output.completion
        state.store.set(ATTEMPTS, [{"text": answer or said, "acceptable": answer, "stop": None}])
        state.store.set(STUCK, False)
        state.store.set(SCORES, {"acceptable": scores, "said": said})
        watch.end()
        return state

    return solve


def by_first_token(output: ModelOutput, acceptable: Sequence[str]) -> tuple[dict[str, float], str | None]:
    """What a server's likeliest first tokens say of each answer, and the answer that leads, if a single one does.

    Raises:
        NoReplyError: the server gave no log-probabilities.
    """
    told = output.choices[0].logprobs if output.choices else None
    if told is None or not told.content or not any(token.top_logprobs for token in told.content):
        raise NoReplyError(
            "no log-probabilities, which a choice is made of; ask a server that gives them, or measure answers"
        )
    # The first token that is more than white space.
    first = next((token for token in told.content if token.token.strip()), told.content[0])
    scores: dict[str, float] = {}
    leading: list[tuple[float, list[str]]] = []
    for token in first.top_logprobs or []:
        begun = normal_form(token.token)
        named = [each for each in acceptable if begun and normal_form(each).startswith(begun)]
        leading.append((token.logprob, named))
        if len(named) == 1:
            before = scores.get(named[0], -math.inf)
            scores[named[0]] = max(before, token.logprob) + math.log1p(math.exp(-abs(before - token.logprob)))
    shared = max((logprob for logprob, named in leading if len(named) > 1), default=-math.inf)
    best = max(scores, key=lambda each: scores[each], default=None)
    return scores, best if best is not None and scores[best] > shared else None


def _stuck(last: list[dict[str, str | None]], identical: int) -> bool:
    if len(last) < identical or any(answer["acceptable"] is not None for answer in last):
        return False
    return len({normal_form(answer["text"] or "") for answer in last}) == 1


@metric
def share_by_kind() -> Metric:
    """Mean of each kind of question with its 95 % Wilson interval: "equations D=2", "… lower" and "… upper".

    Inspect's `grouped` takes no metric of several numbers, such as `ci_wilson`.
    """
    share, ends = cast(MetricProtocol, mean()), cast(MetricProtocol, ci_wilson())

    def compute(scores: list[SampleScore]) -> Value:
        kinds: dict[str, list[SampleScore]] = {}
        for one in scores:
            kinds.setdefault((one.sample_metadata or {})["kind"], []).append(one)
        found: dict[str, Any] = {}
        for kind, of in kinds.items():
            found |= {kind: share(of), **{f"{kind} {end}": value for end, value in ends(of).items()}}
        return found

    return compute


@scorer(
    metrics={
        **{
            name: [share_by_kind()]
            for name in ("accuracy", "first_attempt", "acceptance", "answered", "stuck")
        },
        "guess": [grouped(mean(), "kind", all=False)],
    }
)
def retrieval_score() -> Scorer:
    """What one question contributes to the mean of its kind (formulation and depth); every attempt in the metadata.

    Values: `accuracy`, whether the acceptable answer is right, not a number without one (Inspect leaves it out of the
    mean); of all questions, `first_attempt`, `acceptance` (of the first answer), `answered` (within the cap) and
    `stuck`; and `guess`, what blind guessing among the acceptable answers reaches.

    Metadata: `attempts`, a list of {"text", "acceptable", "stop"}; `stuck`; `answer`, the correct one.
    """

    async def score(state: TaskState, target: Target) -> Score:
        attempts, stuck = state.store.get(ATTEMPTS), state.store.get(STUCK)
        first, answer = attempts[0]["acceptable"], attempts[-1]["acceptable"]
        if answer is not None:
            explanation = f"acceptable at attempt {len(attempts)}"
        elif stuck:
            explanation = (
                f"stopped after {len(attempts)} attempts: the same unacceptable answer came again and again"
            )
        else:
            explanation = f"no acceptable answer in {len(attempts)} attempts"
        return Score(
            value={
                "accuracy": float("nan") if answer is None else float(answer == target.text),
                "first_attempt": float(first == target.text),
                "acceptance": float(first is not None),
                "answered": float(answer is not None),
                "stuck": float(stuck),
                "guess": 1 / len(state.metadata["acceptable"]),
            },
            answer=answer,
            explanation=explanation,
            metadata={"attempts": attempts, "stuck": stuck, "answer": target.text, **_chosen(state)},
        )

    return score


def _chosen(state: TaskState) -> dict[str, Any]:
    """What a choice knows beside its answer: log-probabilities, and the likeliest of all symbols."""
    scores = state.store.get(SCORES)
    return {} if scores is None else {SCORES: scores}


TASKS: Final[Mapping[str, Callable[..., Task]]] = MappingProxyType(
    {
        **{name: _retrieval_task(name, (name,)) for name in FORMULATIONS},
        "retrieval": _retrieval_task("retrieval", FORMULATIONS),
    }
)
"""`hopscope/NAME` for each formulation, and `hopscope/retrieval` for all; made when this module is imported,
because that is how Inspect finds tasks."""
