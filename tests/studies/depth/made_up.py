"""Evidence of runs that never were: losses by step and depth, and when each step was learned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hopscope.runs.evidence import Evidence, Row
from hopscope.studies.depth.config import Configuration, DepthStudyConfig

PAPER_SCALE = DepthStudyConfig(
    seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=tuple(range(1, 9)), steps=5, steps_last=3,
    pool=2**20, heads=8, width=128, mlp_ratio=4.0, training_steps=10_000, batch_size=512, beta2=0.999,
)  # fmt: skip
"""At the scale of the paper, so that nothing is below it."""

EVALUATED = range(0, 10_001, 500)
FILE = "units/a/analysis/retrieval-step-10000.json"


@dataclass(frozen=True)
class Models:
    """The models of one configuration, all seeds alike but for what is given seed by seed.

    Attributes:
        partial: final partial loss of each asked step.
        seeds: how many there are.
        times: by seed, when each asked step was learned; never by default.
        losses: final loss of each seed; by default the mean of the partial losses.
        diverged: seeds whose training broke off.
        error: standard error of each loss.
        by_seed: by seed, final partial loss of each asked step; by default `partial` of every seed.
    """

    partial: Sequence[float]
    seeds: int
    times: Sequence[Sequence[float | None]] | None = None
    losses: Sequence[float] | None = None
    diverged: Sequence[int] = ()
    error: float = 0.0005
    by_seed: Sequence[Sequence[float]] | None = None

    def rows(self, configuration: Configuration, members: Mapping[int, int]) -> Iterator[Row]:
        """What was recorded of them, by seed."""
        steps = configuration.asked_steps
        losses = self.losses or [sum(self.partial) / len(self.partial)] * self.seeds
        times = self.times or [[None] * len(steps)] * self.seeds
        for seed, member in members.items():
            alive = seed not in self.diverged
            numbers = {
                ("final", "final_loss", None): losses[seed],
                ("retrieval", "checkpoint_loss", None): losses[seed],
                ("retrieval", "checkpoint_loss_error", None): self.error,
            }
            partial = self.partial if self.by_seed is None else self.by_seed[seed]
            for step, loss in zip(steps, partial, strict=True):
                numbers["final", "final_loss", f"step_{step}"] = loss
                numbers["retrieval", "accuracy", f"step_{step}"] = 0.25
                numbers["retrieval", "checkpoint_loss_error", f"step_{step}"] = self.error
            for (measure, metric, part), value in numbers.items():
                yield Row(
                    member,
                    measure,
                    metric,
                    value if alive else None,
                    step=EVALUATED[-1],
                    part=part,
                    file=FILE,
                )
            for step, time in zip(steps, times[seed], strict=True):
                for at in EVALUATED:
                    learned = time is not None and at >= time
                    value = None if at == EVALUATED[-1] and not alive else 0.1 if learned else 0.75
                    yield Row(member, "training", f"loss_step_{step}", value, step=at)


Made = Mapping[Configuration, Models]


def made_up(
    config: DepthStudyConfig, configuration: Configuration, partial: Sequence[float], **more
) -> Models:
    """As many models of a configuration as the study has."""
    return Models(partial, config.seeds_of(configuration), **more)


def evidence_of(config: DepthStudyConfig, made: Made) -> Evidence:
    """The evidence table of a run with these models."""
    members, rows = [], []
    for configuration, models in made.items():
        numbers = {seed: 100 + len(members) + seed for seed in range(models.seeds)}
        members += [
            {
                "member": member,
                "seed": seed,
                "configuration": configuration.name,
                "overrides": configuration.overrides(),
            }
            for seed, member in numbers.items()
        ]
        rows += models.rows(configuration, numbers)
    return Evidence.of(members, rows, config.model_dump(mode="json"))


def staircase(config: DepthStudyConfig, learned: Mapping[int, int]) -> dict[Configuration, Models]:
    """IC models that learn the first so many steps at each depth, one after another; non-IC ones learn nothing."""
    made = {}
    for each in config.base():
        if each.asked == "non-IC":
            made[each] = made_up(config, each, [0.75])
            continue
        known = learned[each.layers]
        partial = [0.05 if step <= known else 0.75 for step in each.asked_steps]
        times = [1000.0 * step if step <= known else None for step in each.asked_steps]
        made[each] = made_up(config, each, partial, times=[times] * config.seeds_of(each))
    return made


def changed(made: Made, asked: str, layers: int, **changes) -> dict[Configuration, Models]:
    """The same with other models of one configuration."""
    (each,) = (each for each in made if (each.asked, each.layers) == (asked, layers))
    return {**made, each: replace(made[each], **changes)}
