"""Watching an evaluation from outside: how many questions are answered, and whether there is time for another."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from hopscope.training.budget import TimeBudget


@dataclass
class Watch:
    """What a caller wants to know of an evaluation while it runs, and when it must stop.

    Attributes:
        budget: no question is begun after it, but for the first: every call gets somewhere.
        heard: called with the number of questions answered so far, after each.
        answered: questions answered so far.
        late: a question was not begun because the budget is spent.
    """

    budget: TimeBudget = field(default_factory=TimeBudget)
    heard: Callable[[int], None] = lambda answered: None
    answered: int = 0
    late: bool = False

    def begin(self) -> None:
        """Called before each question.

        Raises:
            OutOfTimeError: the budget is spent.
        """
        if self.answered and self.budget.left <= 0:
            self.late = True
            raise OutOfTimeError

    def end(self) -> None:
        """Called after each question that was answered."""
        self.answered += 1
        self.heard(self.answered)


class OutOfTimeError(Exception):
    """Ends an evaluation between two questions; what was answered is in its log."""


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)
"""The watch of the evaluation under way.  Not an argument of the Inspect tasks: those are written into the log, and a
resumed evaluation would begin with the limits of the first."""
