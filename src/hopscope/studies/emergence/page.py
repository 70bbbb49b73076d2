"""What the page of emergence says of the order of events: numbers that are derived from the times in the evidence."""

from collections.abc import Mapping
from typing import Any

from hopscope.claims.crossings import median
from hopscope.claims.precedence import Precedence
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.story.functions import PageFunctions
from hopscope.story.text import DASH
from hopscope.story.values import Said
from hopscope.studies.chains.claims import independent
from hopscope.studies.emergence.config import EmergenceConfig, clamped_runs
from hopscope.studies.emergence.events import (
    Event,
    alike,
    before,
    both,
    censored,
    events,
    read_of,
    shares,
    waits,
)
from hopscope.studies.emergence.figures import clamped_rows


def names(page: PageFunctions, config: EmergenceConfig) -> Mapping[str, Any]:
    """Names that the template may use beside those of all studies of chains.

    `order`: see `Orders`.  `runs`: name of each run of a member trained again → what the page calls it.
    `clamped_rows`: what was clamped in a run of a member.  `crossed_times`: of each event of the crossed models, in how
    many it never came, and how the variance of its time splits.  `alike`: see `hopscope.studies.emergence.events`.
    `crossed_models`: how many models are not independent of the others.
    """
    evidence = page.evidence
    return {
        "order": Orders(page, config),
        "runs": clamped_runs(config),
        "clamped_rows": lambda member, run: ", ".join(clamped_rows(evidence, member, run)) or DASH,
        "crossed_times": lambda: [
            {"event": event.name, "never": censored(config, event), "split": shares(config, event)}
            for event in events(evidence, config.steps, evidence.members)
        ],
        "alike": lambda: alike(config, evidence),
        "crossed_models": len(config.members()) - config.seeds,
    }


class Orders:
    """When and in which order events came in the independent members that were read, as the template says it.

    Attributes:
        events: the events, in the order of the chain.
        hops: reads of a step and the fall of its loss, step by step.
        read: the members.
    """

    def __init__(self, page: PageFunctions, config: EmergenceConfig):
        self._page = page
        self.read = read_of(page.evidence, independent(page.evidence))
        self.events = events(page.evidence, config.steps, self.read)
        self.hops = list(zip(self.events[::2], self.events[1::2], strict=True))

    def median(self, event: Event) -> str:
        """The median of its time; a dash where it did not come in more than half of the members."""
        middle = median(list(event.times.values())) if event.times else None
        what = f"median of the step at which {event.name}"
        return DASH if middle is None else str(self._page.number(middle, what, decimals=0, file=EVIDENCE))

    def came(self, event: Event) -> str:
        """In how many members it came, of those that say something of it."""
        count = sum(time.time is not None for time in event.times.values())
        number = self._page.number(count, f"members in which {event.name}", file=EVIDENCE)
        return f"{number} of {len(event.times)}"

    def wait(self, first: Event, second: Event) -> Said:
        """Mean steps from one event to another, in members to which both happened."""
        return self._page.mean(waits(first, second), f"steps from {first.name} to {second.name}", decimals=0)

    def have_both(self, first: Event, second: Event) -> int:
        """Members that say something of both events."""
        return len(both(first, second))

    def precedence(self, first: Event, second: Event) -> Precedence:
        """In how many members the first came before the second, for conditions."""
        return before(first, second)

    def before(self, first: Event, second: Event) -> str:
        """The same in words, with the exact interval of the share; a dash where the order is known of no member."""
        found = before(first, second)
        if found.interval is None:
            return DASH
        what = f"members in which {first.name} before {second.name}"
        count = self._page.number(found.before, what, file=EVIDENCE)
        low, high = (
            self._page.number(end, f"95 % interval of the share of {what}", decimals=2, file=EVIDENCE)
            for end in found.interval
        )
        return f"{count} of {found.known} [{low}, {high}]"
