"""Errors that end a command: each is one clear line (what was expected, what was found, what to do) and an exit status.

Nothing else may end a command with a traceback.
"""


def printable(text: str) -> str:
    """Text in one line, in which nothing commands a terminal: words of a foreign file may stand in it."""
    if text.isprintable():
        return text
    line = " ".join(piece for piece in map(str.strip, text.splitlines()) if piece)
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


class HopscopeError(Exception):
    """Base of every error that a user is meant to read; `exit_status` is the status of a process that it ends."""

    exit_status = 2

    def __str__(self) -> str:
        return printable(super().__str__())


class UserError(HopscopeError):
    """Something that the user can mend: a bad value, a damaged file, a full disk."""


class NoMembers(UserError):
    """The run has no models such as were asked for."""


class TimeBudgetReached(HopscopeError):
    """The time budget is spent; the same command goes on where this one stopped."""

    exit_status = 75
