"""Command lines through tyro, with its multi-line boxes turned into one-line errors."""

import contextlib
import io
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import tyro
from pydantic import ValidationError
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from hopscope.config import validation_line
from hopscope.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

Options = TypeVar("Options")

# Tyro draws them with minus signs where standard output is not UTF-8.
_FRAME = re.compile(r"[│╭╮╰╯─]+|^\s*-+\s*$")
_PIPE_WIDTH = 160  # columns of a table that does not go to a terminal


def parse(
    options: type[Options], arguments: Sequence[str], command: str, description: str | None = None
) -> Options:
    """Read what follows a command into its options, a dataclass whose docstrings are the help texts.

    `description` stands in place of the docstring of `options`; `UserError`: an option is unknown, missing, or has a
    value that does not fit.
    """
    errors, registry = io.StringIO(), ConstructorRegistry()
    registry.primitive_rule(_path_rule)
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                options, args=list(arguments), prog=f"hopscope {command}", description=description, registry=registry,
                config=(tyro.conf.FlagCreatePairsOff,),
            )  # fmt: skip
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(f"{_sentence(errors.getvalue())}; see hopscope {command} --help") from None
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; see hopscope {command} --help") from None


def console() -> "Console":
    """A console on standard output, as wide as the terminal (or as COLUMNS says)."""
    from rich.console import Console

    return Console(width=shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, highlight=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table on `console`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        *columns, title=title, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True
    )
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


@contextlib.contextmanager
def stage() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done: one line of a terminal's standard error, which goes in the end."""
    from rich.console import Console
    from rich.text import Text

    if not sys.stderr.isatty():
        yield lambda words: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda words: status.update(Text(f"{words} …"))


def _filled_path(words: list[str]) -> Path:
    if not words[0]:
        raise ValueError("expected a path, found an empty one")  # which pathlib takes for the current folder
    return Path(words[0])


def _path_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    if info.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1, metavar="PATH", instance_from_str=_filled_path,
        is_instance=lambda value: isinstance(value, Path), str_from_instance=lambda path: [str(path)],
    )  # fmt: skip


def _sentence(box: str) -> str:
    lines = [_FRAME.sub(" ", line).strip() for line in box.splitlines()]
    body: list[str] = []
    for line in lines[1:]:
        ended = bool(body) and not line
        if ended or line.startswith(("Argument helptext", "For full helptext", "Perhaps you meant")):
            break
        body.append(line)
    return " ".join(" ".join(body).split()).rstrip(".") or "the options do not fit"
