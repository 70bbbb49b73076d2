"""Command lines through tyro, with its multi-line boxes turned into one-line errors."""

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro
from pydantic import ValidationError
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from hopscope.config import validation_line
from hopscope.errors import UserError

Options = TypeVar("Options")

_FRAME = re.compile(r"[│╭╮╰╯─]+|^\s*-+\s*$")
"""Frames and rules; tyro draws them with minus signs where standard output is not UTF-8."""


def _filled_path(words: list[str]) -> Path:
    if not words[0]:
        raise ValueError("expected a path, found an empty one")  # which pathlib takes for the current folder
    return Path(words[0])


def _path_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    """The rule by which tyro reads paths: an empty one is an error."""
    if info.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=_filled_path,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


def _registry() -> ConstructorRegistry:
    registry = ConstructorRegistry()
    registry.primitive_rule(_path_rule)
    return registry


def parse(options: type[Options], arguments: Sequence[str], command: str, **settings: Any) -> Options:
    """Read a command's options.

    Args:
        options: a dataclass whose docstrings are the help texts.
        arguments: what follows the command.
        command: its name, for help and errors.
        settings: further arguments of `tyro.cli`.

    Raises:
        UserError: an option is unknown, missing, or has a value that does not fit.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            parsed: Options = tyro.cli(
                options,
                args=list(arguments),
                prog=f"hopscope {command}",
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=_registry(),
                **settings,
            )
            return parsed
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(f"{_sentence(errors.getvalue())}; see hopscope {command} --help") from None
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; see hopscope {command} --help") from None


def joined(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The arguments with what was said of an option in several places put together in the first.

    `--model a --model b` is then `--model a b`, which is how options of several values are read.

    Args:
        arguments: of a command.
        names: of the options, without hyphens in front.
    """
    chunk: list[str] = []
    chunks = [chunk]
    first: dict[str, list[str]] = {}
    for argument in arguments:
        if not argument.startswith("--"):
            chunk.append(argument)
            continue
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--").replace("_", "-")
        if name in first:
            chunk = first[name]
            chunk += [value] if equals else []
            continue
        chunk = [option, value] if equals and name in names else [argument]
        chunks.append(chunk)
        if name in names:
            first[name] = chunk
    return [word for each in chunks for word in each]


def _sentence(box: str) -> str:
    """The message in tyro's error box, without frame, heading and repeated help text."""
    lines = [_FRAME.sub(" ", line).strip() for line in box.splitlines()]
    body: list[str] = []
    for line in lines[1:]:
        ended = bool(body) and not line
        if ended or line.startswith(("Argument helptext", "For full helptext", "Perhaps you meant")):
            break
        body.append(line)
    return " ".join(" ".join(body).split()).rstrip(".") or "the options do not fit"
