"""What happens while members learn, and in which order: reads of a step that form, partial losses that fall.

Everything is computed from the times in the evidence table (`hopscope.circuits.places`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from hopscope.circuits.places import FELL, FORMED, of_step, times
from hopscope.claims.crossings import Crossing, Precedence, median, precedence
from hopscope.claims.variance import Shares, variance_shares
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.words import symbol

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


@dataclass(frozen=True)
class Event:
    """Something that happens once to a member.

    Attributes:
        name: what.
        step: the step of the chain that it belongs to.
        times: member → when; a member to which it cannot happen is absent.
    """

    name: str
    step: int
    times: Mapping[int, Crossing]

    @property
    def came(self) -> int:
        """Members to which it happened within training."""
        return sum(time.time is not None for time in self.times.values())

    @property
    def median(self) -> float | None:
        """The step by which it had happened to half of the members; none if more than half were never seen to."""
        return median(list(self.times.values())) if self.times else None


def events(evidence: "Evidence", steps: int, members: Iterable[int]) -> list[Event]:
    """For each step of the chain, all its reads have formed, then its partial loss fell under one half.

    Args:
        evidence: what was measured.
        steps: of the chain.
        members: whose times are wanted.
    """
    kinds = {"reads for {} formed": times(evidence, FORMED), "loss of {} fell": times(evidence, FELL)}
    wanted = set(members)
    return [
        Event(
            words.format(symbol(step)),
            step,
            {member: time for member, time in of_step(found, step).items() if member in wanted},
        )
        for step in range(1, steps + 1)
        for words, found in kinds.items()
    ]


def read_of(evidence: "Evidence", members: Iterable[int]) -> list[int]:
    """Those of some members that were read: paths of others could not be followed."""
    read = evidence.last("was_read")
    return [member for member in members if read[member] == 1.0]


def both(first: Event, second: Event) -> dict[int, tuple[Crossing, Crossing]]:
    """Members that have both events → their times."""
    return {
        member: (time, second.times[member]) for member, time in first.times.items() if member in second.times
    }


def before(first: Event, second: Event) -> Precedence:
    """In how many members one event came before another."""
    pairs = list(both(first, second).values())
    return precedence([one for one, _ in pairs], [other for _, other in pairs])


def waits(first: Event, second: Event) -> list[float]:
    """Training steps from one event to another, in members to which both happened."""
    return [
        other.time - one.time
        for one, other in both(first, second).values()
        if one.time is not None and other.time is not None
    ]


# Crossed seeds.


def crossed(config: EmergenceConfig) -> list[list[int]]:
    """Every crossed member: rows are initial weights, columns are data."""
    of = {(plan.init_seed, plan.data_seed): plan.member for plan in config.members()}
    every = range(config.crossed)
    return [[of[init, data] for data in every] for init in every]


def censored(config: EmergenceConfig, event: Event) -> int:
    """Crossed members to which an event did not happen within training."""
    times = [event.times.get(member) for row in crossed(config) for member in row]
    return sum(time is not None and time.time is None for time in times)


def shares(config: EmergenceConfig, event: Event) -> Shares | None:
    """How the variance of an event's time splits; what never happened counts as the end of training.

    Returns:
        None if a crossed member says nothing about the event (it diverged, was not read, or needs no read of its own
        for it), or all times are equal.
    """
    end, found = float(config.training_steps), crossed(config)
    times = [[event.times[member].time for member in row if member in event.times] for row in found]
    rows = [[end if time is None else time for time in row] for row in times]
    whole = config.crossed > 0 and all(len(row) == config.crossed for row in rows)
    return variance_shares(rows) if whole else None


def alike(config: EmergenceConfig, evidence: "Evidence") -> dict[str, tuple[int, int]]:
    """Whether circuits of crossed members that were read are more alike where weights, or data, are the same.

    Returns:
        What the members of a pair share → pairs whose circuits do the same reads, and all such pairs.
    """
    found = dict.fromkeys(("initial weights", "data", "neither"), (0, 0))
    kinds = {(True, False): "initial weights", (False, True): "data", (False, False): "neither"}
    seeds = {plan.member: (plan.init_seed, plan.data_seed) for plan in config.members()}
    read = read_of(evidence, [member for row in crossed(config) for member in row])
    classes = evidence.last("circuit_class") if "circuit_class" in evidence else {}
    for one, other in combinations(read, 2):
        kind = kinds[seeds[one][0] == seeds[other][0], seeds[one][1] == seeds[other][1]]
        equal, pairs = found[kind]
        found[kind] = equal + bool(classes[one] == classes[other]), pairs + 1
    return found
