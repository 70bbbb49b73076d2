"""What the page of emergence says of the order of events: numbers that are derived from the times in the evidence."""

from collections.abc import Mapping
from typing import Any

from hopscope.story.functions import PageFunctions
from hopscope.story.text import DASH
from hopscope.story.values import Said
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.emergence import events
from hopscope.studies.emergence.config import EmergenceConfig, clamped_runs
from hopscope.studies.emergence.figures import clamped_rows


def names(page: PageFunctions, config: EmergenceConfig) -> Mapping[str, Any]:
    """Names that the template may use beside those of all studies of circuits.

    `seeds_read`: the independent members that were read.  `events`: what happened to them, in the order of the chain.
    `hops`: reads of a step and the fall of its loss, step by step.  `before`, `both`: see
    `hopscope.studies.emergence.events`.  `wait`: mean steps from one event to another, in members to which both
    happened.  `runs`: name of each run of a member trained again → what the page calls it.  `clamped_rows`: what was
    clamped in a run of a member.  `crossed_times`: of each event of the crossed models, in how many it never came, and
    how the variance of its time splits.  `alike`: see `hopscope.studies.emergence.events`.  `crossed_models`: how many
    models are not independent of the others.
    """
    evidence = page.evidence
    seeds_read = events.read_of(evidence, independent(evidence))
    every = events.events(evidence, config.steps, seeds_read)

    def wait(first: events.Event, second: events.Event) -> Said:
        steps = events.waits(first, second)
        return page.mean(steps, f"steps from {first.name} to {second.name}", decimals=0)

    return {
        "seeds_read": seeds_read,
        "events": every,
        "hops": list(zip(every[::2], every[1::2], strict=True)),
        "before": events.before,
        "both": events.both,
        "wait": wait,
        "runs": clamped_runs(config),
        "clamped_rows": lambda member, run: ", ".join(clamped_rows(evidence, member, run)) or DASH,
        "crossed_times": lambda: [
            {
                "event": event.name,
                "never": events.censored(config, event),
                "split": events.shares(config, event),
            }
            for event in events.events(evidence, config.steps, evidence.members)
        ],
        "alike": lambda: events.alike(config, evidence),
        "crossed_models": len(config.members()) - config.seeds,
    }
