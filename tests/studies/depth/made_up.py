"""Evidence of runs that never were: losses by step and depth, and when each step was learned."""

from collections.abc import Mapping, Sequence

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.depth.evidence import Evidence

PAPER_SCALE = DepthStudyConfig(
    seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=tuple(range(1, 9)), steps=5, steps_last=3,
    pool=2**20, heads=8, width=128, mlp_ratio=4.0, training_steps=10_000, batch_size=512, beta2=0.999,
)  # fmt: skip
"""At the scale of the paper, so that nothing is below it."""

EVALUATED = list(range(0, 10_001, 100))


def curve_through(crossing: float | None) -> tuple[list[int], list[float]]:
    """A partial loss that falls from 0.75 to 0.1 at a step, or never."""
    return EVALUATED, [0.75 if crossing is None or at < crossing else 0.1 for at in EVALUATED]


def made_up(
    config: DepthStudyConfig,
    configuration: Configuration,
    partial: Sequence[float],
    crossings: Sequence[Sequence[float | None]] | None = None,
    losses: Sequence[float] | None = None,
    frozen: Sequence[int] = (),
    error: float = 0.001,
) -> Evidence:
    """All seeds alike but for what is given seed by seed.

    Args:
        partial: final partial loss of each asked step.
        crossings: by seed, when each asked step was learned.
        losses: final loss of each seed; by default the mean of the partial losses.
        frozen: places of diverged members.
    """
    asked = config.task(configuration).asked
    count = config.seeds_of(configuration)
    crossings = crossings or [[None] * len(asked)] * count
    losses = losses or [sum(partial) / len(partial)] * count
    members = list(range(100, 100 + count))

    def healthy(values: Sequence[float]) -> list[float | None]:
        return [None if place in frozen else value for place, value in enumerate(values)]

    return Evidence(
        configuration=configuration,
        departures=config.departures(configuration),
        members=members,
        seeds=list(range(count)),
        frozen=[members[place] for place in frozen],
        asked=asked,
        loss=healthy(losses),
        loss_error=healthy([error] * count),
        partial={step: healthy([loss] * count) for step, loss in zip(asked, partial, strict=True)},
        accuracy={step: healthy([0.25] * count) for step in asked},
        curves={
            step: [curve_through(of_seed[place]) for of_seed in crossings] for place, step in enumerate(asked)
        },
        files=["units/a/analysis/retrieval-step-10000.json"] * count,
    )


def staircase(
    config: DepthStudyConfig, learned: Mapping[int, int], **changes: object
) -> dict[Configuration, Evidence]:
    """IC models that learn the first so many steps at each depth, one after another; non-IC ones learn nothing."""
    evidence = {}
    for each in config.base():
        asked = config.task(each).asked
        if each.asked == "non-IC":
            evidence[each] = made_up(config, each, [0.75] * len(asked))
            continue
        known = learned[each.layers]
        partial = [0.05 if step <= known else 0.75 for step in asked]
        times = [1000.0 * step if step <= known else None for step in asked]
        evidence[each] = made_up(config, each, partial, [times] * config.seeds_of(each), **changes)
    return evidence
