"""What the study of emergence measures beside the rows of all studies of chains: members that were trained again.

Measure `clamps`, of the members that were trained again from an earlier checkpoint; part: the run, which is
`nothing clamped`, `step_k` (the read for step k clamped) or `control for step_k` (as many rows clamped that no circuit
uses).

    `clamped_from`: step of the checkpoint from which the member was trained again.
    `clamped_rows`: 1 for each group of rows that was clamped; layer, head, and part `run: query`.
    `clamped_loss`, `clamped_loss_step_k`: held-out losses of a run, at each of its evaluations.
    `clamped_fell_step_k`: when the loss of step k fell under one half; a time, see `hopscope.circuits.history_rows`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from hopscope.circuits.history_rows import adding, time_rows
from hopscope.claims.crossings import first_crossing
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.studies.circuit_study.config import FALLEN
from hopscope.studies.emergence.config import EmergenceConfig, clamps_name

CLAMPS = "clamps"


def measurements(run: RunFolder, config: EmergenceConfig) -> Iterator[Row]:
    """The rows of the members that were trained again.

    Raises:
        UserError: a file is missing or damaged.
    """
    for record in run.members:
        if record.member < config.clamped:
            unit, name = run.unit(record.unit), clamps_name(record.member)
            file = unit.file_of(name, config.training_steps)
            found = unit.read_analysis(name, config.training_steps)
            # A member that was not read has nothing that could be clamped.
            if "runs" in found:
                yield from clamp_rows(record.member, found, file, config)


def clamp_rows(member: int, found: Mapping[str, Any], file: str, config: EmergenceConfig) -> Iterator[Row]:
    """The rows of a member that was trained again, from what `hopscope.studies.emergence.clamps` wrote into a file."""
    row = partial(Row, member, CLAMPS, file=file)
    last = partial(row, step=config.training_steps)
    yield last(metric="clamped_from", value=float(found["start"]))
    for run in found["runs"]:
        for place in run["clamped"]:
            where, query = place.split(" ", 1)  # such as `1.0 second 2`
            layer, head = map(int, where.split("."))
            yield last(
                metric="clamped_rows", value=1.0, layer=layer, head=head, part=f"{run['name']}: {query}"
            )
        for name, values in run["losses"].items():
            for step, value in zip(found["steps"], values, strict=True):
                yield row(metric=f"clamped_{name}", value=value, step=step, part=run["name"])
        for step in config.task().asked:
            fell = first_crossing(found["steps"], run["losses"][f"loss_step_{step}"], FALLEN, rising=False)
            event = f"clamped_fell_step_{step}"
            yield from time_rows(
                adding(member, config.training_steps), CLAMPS, event, fell, part=run["name"], file=file
            )
