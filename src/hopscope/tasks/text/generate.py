"""Streams of different questions, each a function of (configuration, seed, index)."""

import hashlib
import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from hopscope.errors import UserError
from hopscope.tasks.text.config import TextConfig
from hopscope.tasks.text.draws import Draws
from hopscope.tasks.text.functions import Applied, Functions
from hopscope.tasks.text.linear import Chains, Linear, equations, kingdoms, lives_with
from hopscope.tasks.text.page import Page
from hopscope.tasks.text.relatives import Family, Relatives
from hopscope.tasks.text.values import Question

Form = Linear | Functions | Relatives
"""A formulation of a given depth with a given number of chains: it draws questions, all with the same probability."""

Drawn = Chains | Applied | Family
"""The random choices of one question, from which its page and its structure are made."""

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
    drafts = _drafts(config, count, seed, start)
    return (Question(**fields, structure=drawn.structure()) for fields, drawn in drafts)


def question(config: TextConfig, index: int, seed: int) -> Question:
    """Question `index` of a seed: the same as `questions` has there, and as slow as to draw all before it.

    Raises:
        UserError: index or seed is out of range.
    """
    return next(questions(config, 1, seed, start=index))


def records(config: TextConfig, count: int, seed: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
    """`questions` as JSON objects without their structure, which makes them several times as fast."""
    _check(config, count, seed, start)
    drafts = _drafts(config, count, seed, start)
    return (fields | {"acceptable": list(fields["acceptable"])} for fields, _ in drafts)


def space(config: TextConfig) -> int:
    """Number of different prompts of a configuration."""
    return form(config).size


@lru_cache(maxsize=64)
def form(config: TextConfig) -> Form:
    """The formulation of a configuration."""
    if config.formulation in _LINEAR:
        return _LINEAR[config.formulation](config.steps, config.chains)
    return Functions() if config.formulation == "functions" else Relatives()


def _drafts(config: TextConfig, count: int, seed: int, start: int) -> Iterator[tuple[dict[str, Any], Drawn]]:
    """Fields of every question but its structure, and the draw that has it."""
    written, name = form(config), _name(config)
    seen: set[bytes] = set()
    for index in range(start + count):
        drawn, page, prompt = _new(written, f"{name}/{seed}/{index}", seen)
        if index >= start:
            fields = {
                "id": f"{name}-s{seed}-{index:06d}",
                "formulation": config.formulation,
                "depth": config.steps,
                "chains": config.chains,
                "prompt": prompt,
                "answer": page.answer,
                "acceptable": page.acceptable,
            }
            yield fields, drawn


def _new(written: Form, address: str, seen: set[bytes]) -> tuple[Drawn, Page, str]:
    """Draw again until the prompt is new; `seen` holds digests, for prompts take much memory."""
    words = written.words
    for attempt in itertools.count():
        drawn = written.draw(Draws(f"hopscope/text/{address}/{attempt}", words))
        page = drawn.page()
        prompt = page.prompt()
        digest = hashlib.blake2b(prompt.encode(), digest_size=_DIGEST).digest()
        if digest not in seen:
            break
    seen.add(digest)
    return drawn, page, prompt


def _name(config: TextConfig) -> str:
    return f"{config.formulation}-d{config.steps}-n{config.chains}"


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
