"""Errors that end a command: each is one clear line and an exit status.

A message says what was wrong, what was expected, what was found and what to do, in one line; the command line
prints it on standard error and exits with the class's status.  Nothing else may end a command with a traceback.
"""


def printable(text: str) -> str:
    """Text in one line, in which nothing commands a terminal: words of a foreign file may stand in it."""
    if text.isprintable():
        return text
    line = " ".join(piece for piece in map(str.strip, text.splitlines()) if piece)
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


class HopscopeError(Exception):
    """Base of every error that a user is meant to read.

    Attributes:
        exit_status: status of the process when this error ends a command.
    """

    exit_status = 2

    def __str__(self) -> str:
        return printable(super().__str__())


class UserError(HopscopeError):
    """Something that the user can mend: a bad value, a damaged file, a full disk (exit status 2)."""


class TimeBudgetReached(HopscopeError):
    """The time budget is spent; the same command goes on where this one stopped (exit status 75)."""

    exit_status = 75
