"""The time that a command may take."""

import time
from dataclasses import dataclass, field

from hopscope.errors import TimeBudgetReached


@dataclass
class TimeBudget:
    """Seconds that work may take, checked where work can be taken up again.

    Attributes:
        seconds: the budget; `None` means no limit.
        started: monotonic time at which it began.
    """

    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left; infinite without a budget."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.started)

    def check(self, needed: float = 0.0) -> None:
        """Raise if less than `needed` seconds are left.

        Raises:
            TimeBudgetReached: the work so far is safe, and the same command goes on.
        """
        if self.seconds is not None and self.left < needed:
            raise TimeBudgetReached(
                f"time budget of {self.seconds:g} s reached; what is done is kept, the same command goes on"
            )
