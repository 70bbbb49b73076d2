"""What was measured of a made-up configuration, and the evidence table of a run that has only such."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

from hopscope.runs.evidence import Evidence, Row
from hopscope.studies.permutation.config import Configuration
from hopscope.studies.permutation.measures import of_analysis, of_curves
from hopscope.training.config import MemberPlan, TrainJob


@dataclass(frozen=True, eq=False)
class Cell:
    """One configuration, all of whose members are trained as one unit.  Cells that tables share must not be changed.

    Attributes:
        name: of the configuration.
        members, seeds: one for each; a table numbers the members anew.
        records: analysis → what is on disk.
        curves: `split/metric` → each member's curve, as (samples, values).
        frozen: members whose training broke off.
    """

    name: str
    members: list[int]
    seeds: list[int]
    records: dict
    curves: dict = field(default_factory=dict)
    frozen: list[int] = field(default_factory=list)

    @property
    def overrides(self):
        return Configuration.parse(self.name).overrides()

    def numbered(self, first):
        """The same with members from a number on."""
        return _numbered(self, first)

    def jobs(self, config):
        """The plan of its unit."""
        configuration = Configuration.parse(self.name)
        return TrainJob(
            label=self.name,
            task=config.task(configuration),
            model=config.model(configuration),
            training=config.training(configuration),
            members=tuple(
                MemberPlan(member=member, seed=seed, overrides=self.overrides)
                for member, seed in zip(self.members, self.seeds, strict=True)
            ),
        )

    def rows(self, config):
        """Rows of everything; none of a frozen member has a value."""
        return _rows(self, config)

    def first_losses(self):
        """The first of every member's training losses, as a run's own record has them all."""
        for member, (_, losses) in zip(self.members, self.curves.get("train/loss", []), strict=False):
            if losses:
                yield Row(member, "training", "loss", losses[0], "train", 1)


@lru_cache(maxsize=128)
def _numbered(cell, first):
    numbers = {old: first + place for place, old in enumerate(cell.members)}
    return replace(cell, members=list(numbers.values()), frozen=[numbers[old] for old in cell.frozen])


@lru_cache(maxsize=128)
def _rows(cell, config):
    job = cell.jobs(config)
    curves = {split: _Curves(cell, split, job.training.batch_size) for split in ("train", "held_out")}
    found = [*of_curves(job, config, curves, cell.frozen), *cell.first_losses()]
    for analysis, record in cell.records.items():
        known = {"members": cell.members, **record}
        found += of_analysis(job, analysis, known, f"units/u/analysis/{analysis}.json")
    return [replace(row, value=None) if row.member in cell.frozen else row for row in found]


@dataclass(frozen=True)
class _Curves:
    """The curves of a cell, as `Metrics` gives those of a run: by steps."""

    cell: Cell
    split: str
    batch_size: int

    def curve(self, metric, member):
        curves = self.cell.curves.get(f"{self.split}/{metric}")
        if curves is None:
            return [], []
        samples, values = curves[self.cell.members.index(member)]
        return [at / self.batch_size for at in samples], values


OF_SPLITS = ("P6", "P7", "P11")
"""Claims whose numbers hang on which mappings are held out."""


def of_splits(cells, ids, count=10):
    """The cells, and those of the study's own reading for more splits of the mappings, where a claim asks for them."""
    cells = list(cells)
    if any("split=" in cell.name for cell in cells) or not {*ids} & {*OF_SPLITS}:
        return cells
    own = [cell for cell in cells if Configuration.parse(cell.name) == Configuration.parse(cell.name).bare]
    return cells + [_of_split(cell, split) for split in range(1, count) for cell in own]


@lru_cache(maxsize=128)
def _of_split(cell, split):
    return replace(cell, name=f"{cell.name} split={split}")


def table(cells, config, folder=None, more=lambda cell: []):
    """The evidence table of a run that trained these configurations, and only them, its members numbered anew.

    Args:
        cells: in the run's order.
        config: of the study; how training departs from the source follows from it.
        folder: of the run, where there is one.
        more: further rows of a cell.
    """
    members, rows = [], []
    for cell in cells:
        numbered = cell.numbered(len(members))
        members += [
            {"member": member, "seed": seed, "configuration": cell.name, "overrides": cell.overrides}
            for member, seed in zip(numbered.members, numbered.seeds, strict=True)
        ]
        rows += [*numbered.rows(config), *more(numbered)]
    return Evidence.of(members, rows, config.model_dump(mode="json"), folder)
