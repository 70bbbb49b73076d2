"""Questions put to language models through Inspect: its tasks, and one call that asks and goes on where it stopped.

Inspect imports this module for the name `hopscope` (entry point of the group `inspect_ai`).
"""

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.language.answers import SCORES, Answer, matched, normal_form, scores
from hopscope.language.local import beginnings, context_of, continuations, encoded, log_probabilities, source
from hopscope.language.questions import FORMULATIONS, Protocol, Question, Questions, kinds
from hopscope.training.train import TimeBudget

try:
    import inspect_ai  # noqa: F401 - what the extra is for is named first
    from click import ClickException
    from inspect_ai import Task, eval_set, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import Score, Scorer, Target, grouped, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from tenacity import RetryError
except ImportError as error:
    raise UserError(f"{error.name}: expected this package, found none; pip install 'hopscope[llm]'") from None

LOCAL = "hf/"
"""Beginning of the names of models of this machine: hf/FOLDER, hf/FILE.gguf, hf/NAME (on the hub)."""

RETRIES, ANSWER = 3, 16
"""Retries of one request (Inspect's default is to go on for ever); most tokens of a local model's answer."""

_TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum context|too many tokens|(prompt|input|request).*too long",
    re.IGNORECASE,
)


def ask(
    models: Sequence[str], questions: Sequence[Questions], folder: Path, *, budget: TimeBudget | None = None,
    say: Callable[[str], object] = lambda words: None, device: str | None = None, **how: Any,
) -> list[Answer]:  # fmt: skip
    """Put every kind of questions to each model.  The same call goes on where the last one stopped.

    Models are called as Inspect calls them, those of this machine as `LOCAL` says, on a `device` if not on Inspect's
    choice.  Every answer is written at once into Inspect's logs in `folder`; the budget is looked at between questions,
    of which every call answers one at least.  `how`: fields of `Protocol`.  `UserError`: a model cannot be asked, or
    its server does not answer; `TimeBudgetReached`: the budget is spent.  What was answered is kept.
    """
    found, protocol = list[Answer](), Protocol(**how)
    fields = ("temperature", "max_tokens", "max_connections")
    settings = {"max_retries": RETRIES, **{name: getattr(protocol, name) for name in fields}}
    # A try has half of the time, so that one that hangs can be made again.
    limits = {"timeout": protocol.timeout, "attempt_timeout": max(1, protocol.timeout // 2)}
    for name in models:
        try:
            called, config, local = name, GenerateConfig(**settings, **limits), dict[str, Any]()
            if name.startswith(LOCAL):  # it answers in its own time, and cannot be dead
                called, config = f"{LOCAL}{source(name.removeprefix(LOCAL))}", GenerateConfig(**settings)
                local = {"dtype": protocol.precision, **({} if device is None else {"device": device})}
            # One for all of its questions, which may be large.
            model = get_model(called, config=config, base_url=protocol.base_url, memoize=False, **local)
        except Exception as error:
            raise _failure(name, "a model that can be asked", error) from None
        shown = name.replace("//", "/")  # of an absolute folder, which Inspect calls hf//home/…
        for kind in questions:
            found += _evaluated(model, shown, kind, folder, protocol, budget, say)
    return found


# Called before and after each question.  Not an argument of the tasks: those decide which evaluation it is.
_PACE: ContextVar[Callable[[bool], None]] = ContextVar("_PACE", default=lambda answered: None)


def _evaluated(
    model: Any, name: str, kind: Questions, folder: Path, protocol: Protocol, budget: Any, say: Any
) -> list[Answer]:
    done = 0

    def pace(answered: bool) -> None:
        nonlocal done
        if not answered and done and budget:
            budget.check()
        done += answered
        if answered and done % max(1, kind.count // 10) == 0:
            say(f"{name}: {kind.kind}, {done} of {kind.count} questions answered in this call")

    fields = kind.model_dump(exclude={"formulation", "depth"})
    fields |= protocol.model_dump(include={"attempts", "identical"})
    token = _PACE.set(pace)
    try:
        complete, logs = eval_set(
            TASKS[kind.formulation](kind.depth, **fields), model=[model], log_dir=str(folder.resolve()),
            log_dir_allow_dirty=True, retry_attempts=1, retry_immediate=False, log_buffer=1, log_realtime=False,
            log_format="eval", ctl_server=False, display="none", score_display=False,
            **model.config.model_dump(exclude_none=True),
        )  # fmt: skip
    except Exception as error:
        raise _failure(name, "answers", error) from None
    finally:
        _PACE.reset(token)
    if not logs:
        raise KeyboardInterrupt
    log = read_eval_log(logs[0].location)
    whole = (one for one in log.samples or [] if one.scores and not one.error)
    known = {one.id: one.scores["retrieval"].metadata for one in whole}
    if not complete:
        if budget:
            budget.check()
        kept = f"{len(known)} of {kind.count} questions are answered and kept; "
        raise _failure(name, "answers", log.error or log.status, kept)
    if too_long := sum("too_long" in each for each in known.values()):
        words = f"{too_long} of {kind.count} questions are longer than the model's context"
        say(f"{name}: {kind.kind} not run, {words}")
    drawn = {one.id: one for one in kind.drawn()}
    return [Answer(name, kind.kind, drawn[id], **each) for id, each in known.items()]


def _failure(name: str, wanted: str, error: Any, kept: str = "") -> UserError:
    if isinstance(error, UserError):
        return error
    text = " ".join(re.sub(r"\[/?[a-z ]+\]", "", str(getattr(error, "message", None) or error)).split())
    inner = re.fullmatch(r"(?:NoReply|User)Error\((['\"])(.*)\1\)", text)
    said = (inner[2] if inner else text)[:300].removeprefix("ERROR: ").rstrip(".;")
    advised = text.startswith("UserError") or "pip install" in text
    usual = "; check the model's name, its key, its server and the network, or allow more time (timeout)"
    return UserError(f"{name}: expected {wanted}, found: {kept}{said}{'' if advised else usual}")


class NoReplyError(Exception):
    """No try of a request brought an answer; says how the last one failed."""


class _TooLongError(Exception):
    pass


def _task(name: str, formulations: tuple[str, ...]) -> Callable[..., Task]:
    @task(name=name)
    def build(
        depths: Any = None, chains: int | None = None, attempts: int = 10, identical: int = 3, **fields: Any
    ) -> Task:  # fmt: skip
        """Questions whose answer is found by going along a chain of facts, or by conditional retrieval.

        Args:
            depths, chains: D, one or several (1,2,3), and N; by default the paper's.
            attempts, identical: as of `hopscope.language.questions.Protocol`.
            fields: others of `hopscope.language.Questions`, such as count, seed and measure.
        """
        several = depths if isinstance(depths, list | tuple) else [] if depths is None else [depths]
        try:
            asked = kinds(formulations, several, chains, **fields)
            protocol = Protocol(attempts=attempts, identical=identical)
            samples = [_sample(kind, question) for kind in asked for question in kind.drawn()]
        except UserError as error:
            # Inspect's command prints this kind of error as one line; any other is shown with its traceback.
            raise ClickException(str(error)) from None
        solving = asking(protocol.attempts, protocol.identical, asked[0].measure == "choice")
        return Task(dataset=MemoryDataset(samples, name=name), solver=solving, scorer=retrieval())

    return build


def _sample(kind: Questions, question: Question) -> Sample:
    symbols = sorted({*question.acceptable, *(symbol for path in question.symbols for symbol in path)})
    known = {"kind": kind.kind, "acceptable": [*question.acceptable], "symbols": symbols}
    return Sample(id=question.id, input=kind.put(question).text, target=question.answer, metadata=known)


@solver
def asking(attempts: int, identical: int, choice: bool) -> Solver:
    """Ask a question afresh until the answer is acceptable: the paper's protocol.  A rejected one is never sent.

    Or a `choice`: find the acceptable answer that a model of this machine thinks likeliest as the end of a sentence, by
    the log-probability of every acceptable answer, up to the token that tells it from the others; and so of every
    symbol of the question.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question, acceptable, said = list(state.messages), state.metadata["acceptable"], list[str]()
        known: dict[str, Any] = {"said": said}
        _PACE.get()(False)
        try:
            if choice:
                known = _chosen(get_model(), state.input_text, acceptable, state.metadata["symbols"])
            while not (choice or len(said) == attempts or known.get("stuck")):
                state.messages = list(question)
                state = await _asked(state, generate, len(said))
                said.append(state.output.completion)
                if matched(said[-1], acceptable):
                    break
                same = {normal_form(text) for text in said[-identical:]}
                known["stuck"] = len(same) == 1 and len(said) >= identical
        except _TooLongError:
            known = {"said": [], "too_long": True}
        _PACE.get()(True)
        state.store.set("known", known)
        return state

    return solve


async def _asked(state: TaskState, generate: Generate, attempt: int) -> TaskState:
    model, changes = get_model(), dict[str, Any]()
    if attempt:  # only the first may come from Inspect's cache; under a fixed seed all would be alike
        changes["cache"] = False
        changes |= {} if model.config.seed is None else {"seed": model.config.seed + attempt}
    if str(model).startswith(LOCAL):
        if model.api.tokenizer.chat_template is None:
            wanted = "a tokenizer without a chat template"
            raise UserError(f"{wanted}; let the model choose instead (measure choice)")
        ids = model.api.tokenizer(state.input_text, add_special_tokens=False)["input_ids"]
        if model.api.tokenizer.unk_token_id in ids:
            raise UserError("words that the model does not know; use another model or formulation")
        if model.config.temperature == 0:  # transformers has another word for that
            model.api.do_sample, changes["temperature"] = False, 1.0
        room = _room(model.api, model.api.hf_chat(state.messages, []))
        changes["max_tokens"] = min(model.config.max_tokens or ANSWER, room)
    try:
        state = await generate(state, tool_calls="none", **changes)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise NoReplyError(f"{type(cause).__name__}: {cause}") from cause
    except Exception as error:
        raise (_TooLongError() if _TOO_LONG.search(str(error)) else error) from None
    if state.output.stop_reason == "model_length":
        raise _TooLongError
    return state


def _room(api: Any, text: str, wanted: int = 1) -> int:
    # Tokens that a local model can say behind a text; the last one need not be read.
    room = context_of(api.model) + 1 - len(api.tokenizer(text)["input_ids"])
    if room < wanted:
        raise _TooLongError
    return room


def _chosen(model: Any, text: str, acceptable: Sequence[str], symbols: Sequence[str]) -> dict[str, Any]:
    if not str(model).startswith(LOCAL):
        wanted = "no model of this machine, which alone can choose"
        raise UserError(f"{wanted}; ask for answers, or name a model hf/…")
    api = model.api
    told, n = continuations(api.tokenizer, text, [*acceptable, *symbols]), len(acceptable)
    answers = told and beginnings(told[:n])
    if not told or not answers:
        wanted = f"answers such as {acceptable[0]!r} in tokens that do not tell them from the text, or from each other"
        raise UserError(f"{wanted}; use another model or formulation")
    # Where one symbol begins another, both are read to their ends.
    every = [*answers, *(beginnings(told[n:]) or told[n:])]
    _room(api, text, max(map(len, every)))
    scores = log_probabilities(api.model, encoded(api.tokenizer, text)[0], every)
    return {"said": [acceptable[int(scores[:n].argmax())]], "likeliest": symbols[int(scores[n:].argmax())]}


_MEAN = grouped(mean(), "kind", all=False)
_ERROR = grouped(stderr(), "kind", all=False, name_template="{group_name} stderr")


@scorer(metrics={name: [_MEAN, _ERROR] for name in SCORES})
def retrieval() -> Scorer:
    """See `hopscope.language.answers.scores`; Inspect leaves NaN out of a mean."""

    async def score(state: TaskState, target: Target) -> Score:
        known, acceptable = state.store.get("known"), state.metadata["acceptable"]
        found = scores(known["said"], target.text, acceptable, known.get("stuck", False))
        return Score(value=found, answer=known["said"][-1] if known["said"] else None, metadata=known)

    return score


TASKS: dict[str, Any] = {name: _task(name, (name,)) for name in FORMULATIONS}
TASKS["retrieval"] = _task("retrieval", FORMULATIONS)
"""`hopscope/NAME` for each formulation, and `hopscope/retrieval` for all."""
