"""Trains seeds of one contestant, with one thread, until they have learned; `solved.py` starts it.

Its argument is what to train, as JSON (`Orders`).  Every line of standard input is a group of seeds that are trained
together, `FIRST COUNT`.  Of each group it says, a JSON line each, how it is trained, and then of every seed that it has
learned, or that it has not when the limit was reached.  A seed that has learned goes on as long as others of its group
have not.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from _depth import Shape
from _held_out import Bar, finite
from _learners import LEARNERS, Learner, Training


@dataclass(frozen=True)
class Orders:
    """What a process does.

    Attributes:
        contestant: who trains.
        training: what.
        bar: when a seed has learned.
        every: steps between looks at the held-out set.
        limit: steps after which a seed counts as not learned.
    """

    contestant: str
    training: Training
    bar: Bar
    every: int
    limit: int

    def written(self) -> str:
        """The orders as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "Orders":
        """Orders that were written."""
        values: dict[str, Any] = json.loads(text)
        training = {**values["training"], "shape": Shape(**values["training"]["shape"])}
        return cls(**{**values, "training": Training(**training), "bar": Bar(**values["bar"])})


@dataclass(frozen=True)
class Verdict:
    """Of one member, when it is known: whether it has learned, after how many steps, and its score then."""

    member: int
    learned: bool
    steps: int
    score: float | None


def verdicts(learner: Learner, orders: Orders) -> Iterator[Verdict]:
    """Train, look at the held-out set at every cadence, and tell of each member once."""
    waiting = list(range(learner.members))
    while waiting:
        learner.train_to(min(learner.steps - learner.steps % orders.every + orders.every, orders.limit))
        scores = learner.scores()
        over = learner.steps >= orders.limit
        for member in list(waiting):
            learned = orders.bar.met(scores[member])
            if learned or over:
                waiting.remove(member)
                yield Verdict(member, learned, learner.steps, finite(scores[member]))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until standard input ends."""
    (text,) = sys.argv[1:] if argv is None else argv
    orders = Orders.read(text)
    prepare, make = LEARNERS[orders.contestant]
    prepare()
    for line in sys.stdin:
        first, count = map(int, line.split())
        learner = make(orders.training, first, count)
        print(json.dumps({"facts": learner.facts}), flush=True)
        for verdict in verdicts(learner, orders):
            told = {"seed": first + verdict.member, **asdict(verdict)}
            print(json.dumps({name: value for name, value in told.items() if name != "member"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
