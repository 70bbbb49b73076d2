"""Streams of different questions, each a function of (configuration, seed, index)."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from hopscope.errors import UserError
from hopscope.tasks.text.config import TextConfig
from hopscope.tasks.text.draws import Draws
from hopscope.tasks.text.functions import Functions
from hopscope.tasks.text.linear import equations, kingdoms, lives_with
from hopscope.tasks.text.page import Drawn, Form, Page
from hopscope.tasks.text.relatives import Relatives
from hopscope.tasks.text.values import Question

_LINEAR = {"equations": equations, "lives_with": lives_with, "kingdoms": kingdoms}
_LARGEST_SEED = (1 << 63) - 1
_DIGEST = 16


def questions(config: TextConfig, count: int, seed: int, *, start: int = 0) -> Iterator[Question]:
    """Questions start … start + count - 1 of a seed, one after the other.

    No two questions of a configuration and a seed have equal prompts, and none depends on how many are asked for.  To
    know that, those before `start` are drawn too.

    Args:
        config: formulation, depth and chains.
        count: at least 1.
        seed: 0 to 2**63 - 1.
        start: index of the first question.

    Raises:
        UserError: at the call, if a number is out of range or there are not so many different questions.
    """
    _check(config, count, seed, start)
    return (_question(config, seed, draft) for draft in _drafts(config, count, seed, start))


def question(config: TextConfig, index: int, seed: int) -> Question:
    """Question `index` of a seed: the same as `questions` has there, and as slow as to draw all before it.

    Raises:
        UserError: index or seed is out of range.
    """
    return next(questions(config, 1, seed, start=index))


def records(config: TextConfig, count: int, seed: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
    """Records of questions (`Question.record`), several times as fast, because no structure is worked out."""
    _check(config, count, seed, start)
    return (_record(config, seed, draft) for draft in _drafts(config, count, seed, start))


def space(config: TextConfig) -> int:
    """Number of different prompts of a configuration."""
    return form(config).size


@lru_cache(maxsize=64)
def form(config: TextConfig) -> Form:
    """The formulation of a configuration."""
    if config.formulation in _LINEAR:
        return _LINEAR[config.formulation](config.steps, config.chains)
    return Functions() if config.formulation == "functions" else Relatives()


class _Draft(NamedTuple):
    number: int
    drawn: Drawn
    page: Page
    prompt: str


def _drafts(config: TextConfig, count: int, seed: int, start: int) -> Iterator[_Draft]:
    written = form(config)
    seen: set[bytes] = set()
    for index in range(start + count):
        draft = _new(written, f"{_name(config)}/{seed}/{index}", index, seen)
        if index >= start:
            yield draft


def _new(written: Form, address: str, index: int, seen: set[bytes]) -> _Draft:
    """Draw again until the prompt is new; `seen` holds digests, for prompts take much memory."""
    words, attempt = written.words, 0
    while True:
        drawn = written.draw(Draws(f"hopscope/text/{address}/{attempt}", words))
        page = drawn.page()
        prompt = page.prompt()
        digest = hashlib.blake2b(prompt.encode(), digest_size=_DIGEST).digest()
        if digest not in seen:
            seen.add(digest)
            return _Draft(index, drawn, page, prompt)
        attempt += 1


def _name(config: TextConfig) -> str:
    return f"{config.formulation}-d{config.steps}-n{config.chains}"


def _question(config: TextConfig, seed: int, draft: _Draft) -> Question:
    return Question(**_fields(config, seed, draft), structure=draft.drawn.structure())


def _record(config: TextConfig, seed: int, draft: _Draft) -> dict[str, Any]:
    fields = _fields(config, seed, draft)
    return fields | {"acceptable": list(fields["acceptable"])}


def _fields(config: TextConfig, seed: int, draft: _Draft) -> dict[str, Any]:
    return {
        "id": f"{_name(config)}-s{seed}-{draft.number:06d}",
        "formulation": config.formulation,
        "depth": config.steps,
        "chains": config.chains,
        "prompt": draft.prompt,
        "answer": draft.page.answer,
        "acceptable": draft.page.acceptable,
    }


def _check(config: TextConfig, count: int, seed: int, start: int) -> None:
    for name, found, least in (("count", count, 1), ("start", start, 0), ("seed", seed, 0)):
        if found < least:
            raise UserError(f"{name}: expected at least {least}, found {found}; take a larger number")
    if seed > _LARGEST_SEED:
        raise UserError(f"seed: expected at most 2**63 - 1, found {seed}; take a smaller number")
    size = space(config)
    if start + count > size:
        wanted = f"{count}" if not start else f"{count} from {start} on"
        raise UserError(
            f"count: expected at most {size}, for so many different questions of {_name(config)} there are, "
            f"found {wanted}; ask for fewer, or for more depth or chains"
        )
