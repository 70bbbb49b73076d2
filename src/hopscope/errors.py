"""Errors that end a command: each is one clear line and an exit status.

A message says what was wrong, what was expected, what was found and what to do, in one line; the command line
prints it on standard error and exits with the class's status.  Nothing else may end a command with a traceback.
"""


class HopscopeError(Exception):
    """Base of every error that a user is meant to read.

    Attributes:
        exit_status: status of the process when this error ends a command.
    """

    exit_status = 2


class UserError(HopscopeError):
    """Something that the user can mend: a bad value, a damaged file, a full disk (exit status 2)."""


class TimeBudgetReached(HopscopeError):
    """The time budget is spent; the same command goes on where this one stopped (exit status 75)."""

    exit_status = 75
