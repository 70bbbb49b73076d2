"""Checks of annotated shapes that cost little: jaxtyping's own check every argument twice and bind every call.

A function whose annotations name shapes is checked by beartype within a context of jaxtyping, in which an axis has one
size for all arguments and the result; one whose annotations name none needs no context.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

_jaxtyped = jaxtyping.jaxtyped
_typed = beartype(conf=BeartypeConf(violation_type=TypeError))


def names_shapes(annotations: object) -> bool:
    """Whether a shape stands anywhere in these annotations."""
    return "jaxtyping" in repr(annotations)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arguments and result are checked at every call; a `TypeError` tells which is wrong."""
    # A name in quotes is of a class that does not exist yet, or that only type checkers import; jaxtyping, too, passes.
    known = {name: Any if isinstance(each, str) else each for name, each in function.__annotations__.items()}
    function.__annotations__ = known
    typed = _typed(function)
    if not names_shapes(known):
        return typed

    @wraps(typed)
    def within_a_context(*arguments: Any, **named: Any) -> Any:
        with _jaxtyped("context"):
            return typed(*arguments, **named)

    return within_a_context


def jaxtyped(subject: Any = None, **options: Any) -> Any:
    """What jaxtyping's import hook puts on every function; anything but a function is left to jaxtyping."""
    if subject is None and options:
        return lambda each: jaxtyped(each, **options)
    return checked(subject) if inspect.isfunction(subject) else _jaxtyped(subject, **options)


def install(modules: list[str]) -> None:
    """Check the functions of these modules when they are imported."""
    # The hook looks this name up when a module runs, so that jaxtyping's rewriting and its cache are used as they are.
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(modules, "beartype.beartype")
