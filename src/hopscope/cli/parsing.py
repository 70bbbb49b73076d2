"""Command lines through tyro, with its multi-line boxes turned into one-line errors, and tables for a terminal."""

import contextlib
import functools
import io
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import tyro
from pydantic import ValidationError

from hopscope.config import validation_line
from hopscope.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

Options = TypeVar("Options")

# Tyro draws them with minus signs where standard output is not UTF-8.
_FRAME = re.compile(r"[│╭╮╰╯─]+|^\s*-+\s*$")
_PIPE_WIDTH = 160  # columns of a table that does not go to a terminal


def parse(
    options: Callable[..., Options], arguments: Sequence[str], command: str, description: str | None = None
) -> Options:
    """Read what follows a command into a dataclass, whose docstring (or `description`) is the help text.

    `UserError`: an option is unknown, missing, or has a value that does not fit.
    """
    program = f"hopscope {command}"
    advice = f"see {program} --help"
    # Which pathlib would take for the current folder.
    if any(not word or re.fullmatch(r"--[\w.-]+=", word) for word in arguments):
        raise UserError(f"{command}: expected a PATH or a value, found an empty word; {advice}")
    errors = io.StringIO()
    about: Any = {"prog": program, "description": description, "config": (tyro.conf.FlagCreatePairsOff,)}
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(options, args=list(arguments), **about)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        words = _sentence(errors.getvalue())
        missed = re.match(r"Missing value for argument '(\w+)'", words)
        named = words.partition(": ")[2] if words.startswith("Missing from ") else ""
        absent = re.findall(r"(--\S+ \S+|\S+) (.+?)\.? \(required\)", named)
        if missed and (flag := f"--{missed[1]}") in [word.partition("=")[0] for word in arguments]:
            words = f"{missed[1]}: expected the value alone, found {flag}; leave {flag} out"
        elif absent:
            wanted = " and ".join(f"{name} ({about})" for name, about in absent)
            words = f"{command}: expected {wanted}, found none"
        raise UserError(f"{words}; {advice}") from None
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; {advice}") from None


def bound(command: Callable[..., None], arguments: Sequence[str]) -> Callable[[], None]:
    """A command with its arguments, to be called; errors as of `parse`."""
    # Lines of an argument's description that the docstring breaks would stay broken in the help.
    command.__doc__ = re.sub(r"\n {12,}", " ", command.__doc__ or "")

    @functools.wraps(command)
    def given(*values: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(command, *values, **named)

    return parse(given, arguments, command.__name__)


def console() -> "Console":
    """A console on standard output, as wide as the terminal (or as COLUMNS says)."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which ends a command in silence

    return Screen(width=shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, highlight=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table on `console`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    style: Any = {"box": SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "collapse_padding": True}
    table = Table(*columns, title=title, **style)
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


@contextlib.contextmanager
def stage() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done: one line of a terminal's standard error, which goes in the end."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda words: status.update(Text(f"{words} …"))


def _sentence(box: str) -> str:
    lines = [_FRAME.sub(" ", line).strip() for line in box.splitlines()]
    body: list[str] = []
    for line in lines[1:]:
        ended = bool(body) and not line
        if ended or line.startswith(("Argument helptext", "For full helptext", "Perhaps you meant")):
            break
        body.append(line)
    return " ".join(" ".join(body).split()).rstrip(". ") or "the options do not fit"
