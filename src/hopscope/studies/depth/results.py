"""What the evidence table says of a run, configuration by configuration: the ground of figures and story."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.claims.crossings import Crossing
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.depth.runs import Runs, all_runs
from hopscope.studies.depth.values import crossings_of
from hopscope.studies.recipe import RETRIEVAL
from hopscope.studies.rows import Curve

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence


@dataclass(frozen=True)
class Results:
    """One configuration, seed by seed; what a diverged member has no value for is `None`.

    Attributes:
        configuration: which one.
        members, seeds: run-global members and their seeds.
        asked: steps k of the chain that the models are asked for.
        loss: final loss: the mean held-out loss over the final window.
        partial: step k → final partial losses.
        accuracy: step k → nearest-candidate accuracy at the last checkpoint.
        curves: step k → each member's partial held-out loss, as (steps, values).
        crossings: step k → when each member's partial loss fell under 0.5, in training steps.
        files: analysis file of each member, relative to the run.
    """

    configuration: Configuration
    members: list[int]
    seeds: list[int]
    asked: tuple[int, ...]
    loss: list[float | None]
    partial: dict[int, list[float | None]]
    accuracy: dict[int, list[float | None]]
    curves: dict[int, list[Curve]]
    crossings: dict[int, list[Crossing | None]]
    files: list[str]

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.configuration.name


AllResults = Mapping[Configuration, Results]


def known(values: Iterable[float | None]) -> list[float]:
    """Values that exist."""
    return [value for value in values if value is not None]


def gather(evidence: "Evidence") -> dict[Configuration, Results]:
    """Results of every configuration of a run, in the order of the grid."""
    runs = all_runs(evidence)
    steps = sorted({step for each in runs for step in each.configuration.asked_steps})
    found = _Tables(
        loss=evidence.last("final_loss"),
        partial={step: evidence.last("final_loss", part=f"step_{step}") for step in steps},
        accuracy={step: evidence.last("accuracy", measure=RETRIEVAL, part=f"step_{step}") for step in steps},
        curves={step: evidence.curve(f"loss_step_{step}", measure="training") for step in steps},
        crossings=crossings_of(evidence, runs),
        files=evidence.rows("checkpoint_loss", part=None).set_index("member")["file"],
    )
    return {each.configuration: found.of(each) for each in runs}


@dataclass(frozen=True)
class _Tables:
    """The same over all members of a run."""

    loss: "pd.Series[float]"
    partial: "dict[int, pd.Series[float]]"
    accuracy: "dict[int, pd.Series[float]]"
    curves: "dict[int, pd.DataFrame]"
    crossings: dict[int, list[Crossing] | None]
    files: "pd.Series[str]"

    def of(self, runs: Runs) -> Results:
        """Those of one configuration."""
        asked, members = runs.configuration.asked_steps, runs.members
        return Results(
            configuration=runs.configuration,
            members=members,
            seeds=list(runs.seeds),
            asked=asked,
            loss=_numbers(self.loss[members]),
            partial={step: _numbers(self.partial[step][members]) for step in asked},
            accuracy={step: _numbers(self.accuracy[step][members]) for step in asked},
            curves={step: [_curve(self.curves[step][member]) for member in members] for step in asked},
            crossings={
                step: [None if found is None else found[place] for found in map(self.crossings.get, members)]
                for place, step in enumerate(asked)
            },
            files=self.files[members].tolist(),
        )


def _numbers(values: "pd.Series[float]") -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _curve(values: "pd.Series[float]") -> Curve:
    measured = values.dropna()
    return measured.index.tolist(), measured.tolist()
