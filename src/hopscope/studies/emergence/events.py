"""What happens while members learn, and in which order: hops of the circuit that form, partial losses that fall."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from hopscope.claims.crossings import Crossing
from hopscope.claims.precedence import Precedence, precedence
from hopscope.claims.variance import Shares, variance_shares
from hopscope.studies.chains.evidence import Member, step_of
from hopscope.studies.emergence.config import CONTROL, EmergenceConfig, clamps_name
from hopscope.studies.words import symbol


@dataclass(frozen=True)
class Event:
    """Something that happens once to a member.

    Attributes:
        name: what.
        step: the step of the chain that it belongs to.
        of: when it happened to a member; `None` where the member has no such event.
    """

    name: str
    step: int
    of: Callable[[Member], Crossing | None]


def hop_events(steps: int) -> list[Event]:
    """All reads that a step needs have formed."""
    return [
        Event(f"reads for {symbol(k)} formed", k, methodcaller("hop_formed", k)) for k in range(1, steps + 1)
    ]


def loss_events(steps: int) -> list[Event]:
    """A partial loss fell under 0.5."""
    return [Event(f"loss of {symbol(k)} fell", k, methodcaller("fallen", k)) for k in range(1, steps + 1)]


def events(steps: int) -> list[Event]:
    """Both, step by step."""
    return [event for both in zip(hop_events(steps), loss_events(steps), strict=True) for event in both]


def followed(members: Sequence[Member]) -> list[Member]:
    """Members that were read, so that their paths could be followed."""
    return [member for member in members if member.was_read]


def both(members: Sequence[Member], first: Event, second: Event) -> list[tuple[Member, Crossing, Crossing]]:
    """Members that have both events, with their times."""
    found = ((member, first.of(member), second.of(member)) for member in followed(members))
    return [(member, one, other) for member, one, other in found if one is not None and other is not None]


def before(members: Sequence[Member], first: Event, second: Event) -> Precedence:
    """In how many members one event came before another."""
    pairs = both(members, first, second)
    return precedence([one for _, one, _ in pairs], [other for _, _, other in pairs])


def waits(members: Sequence[Member], first: Event, second: Event) -> list[float]:
    """Training steps from one event to another, in members to which both happened."""
    return [
        other.time - one.time
        for _, one, other in both(members, first, second)
        if one.time is not None and other.time is not None
    ]


# Crossed seeds.


def table(
    members: Sequence[Member], config: EmergenceConfig, value: Callable[[Member], Any]
) -> list[list[Any]]:
    """A value of every crossed member: rows are initial weights, columns are data."""
    of = {(member.init_seed, member.data_seed): member for member in members}
    every = range(config.crossed)
    return [[value(of[init, data]) for data in every] for init in every]


def censored(members: Sequence[Member], config: EmergenceConfig, event: Event) -> int:
    """Crossed members to which an event did not happen within training."""
    times = [event.of(member) for row in table(members, config, lambda member: member) for member in row]
    return sum(time is not None and time.time is None for time in times)


def shares(members: Sequence[Member], config: EmergenceConfig, event: Event) -> Shares | None:
    """How the variance of an event's time splits; what never happened counts as the end of training.

    Returns:
        None if a crossed member says nothing about the event (it was not read, or needs no read of its own for it), or
        all times are equal.
    """
    if not config.crossed:
        return None
    found = table(members, config, event.of)
    if any(time is None for row in found for time in row):
        return None
    end = float(config.training_steps)
    return variance_shares([[end if time.time is None else time.time for time in row] for row in found])


@dataclass(frozen=True)
class Alike:
    """Pairs of members, and how many of them have circuits that do the same reads.

    Attributes:
        what: the members of a pair share.
        equal, pairs: how many are equal, of how many.
    """

    what: str
    equal: int
    pairs: int


def alike(members: Sequence[Member], config: EmergenceConfig) -> list[Alike]:
    """Whether circuits are more alike where the initial weights, or the data, are the same."""
    crossed = followed([member for row in table(members, config, lambda member: member) for member in row])
    pairs = [(one, other) for n, one in enumerate(crossed) for other in crossed[:n]]
    kinds: dict[str, Callable[[Member, Member], bool]] = {
        "initial weights": lambda one, other: one.init_seed == other.init_seed,
        "data": lambda one, other: one.data_seed == other.data_seed,
        "neither": lambda one, other: one.init_seed != other.init_seed and one.data_seed != other.data_seed,
    }
    found = []
    for what, same in kinds.items():
        here = [(one.circuit, other.circuit) for one, other in pairs if same(one, other)]
        found.append(Alike(what, sum(one == other for one, other in here), len(here)))
    return found


# Members trained again.


@dataclass(frozen=True)
class Again:
    """One member's runs from a checkpoint.

    Attributes:
        member: which one.
        start: step of the checkpoint.
        steps: of the evaluations.
        runs: name, what was clamped, and each partial loss, run by run.
        file: where this is from.
    """

    member: Member
    start: int
    steps: list[int]
    runs: list[dict[str, Any]]
    file: str


def trained_again(members: Sequence[Member], config: EmergenceConfig) -> list[Again]:
    """Members that were trained again; those that were not read have nothing that could be clamped."""
    found = []
    for member in members:
        if member.member < config.clamped:
            name, last = clamps_name(member.member), config.training_steps
            record = member.unit.read_analysis(name, last)
            file = str(member.unit.analysis_path(name, last).relative_to(member.unit.run.path))
            if "runs" in record:
                found.append(Again(member, record["start"], record["steps"], record["runs"], file))
    return found


def clamp_words(run: str) -> str:
    """What a run is called on the page."""
    if run.startswith(CONTROL):
        return f"control for {symbol(step_of(run.removeprefix(CONTROL)))}"
    return f"the read for {symbol(step_of(run))} clamped" if run.startswith("step_") else run
