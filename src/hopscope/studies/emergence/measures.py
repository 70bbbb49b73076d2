"""What the study of emergence measures beside the rows of all studies of chains: members that were trained again.

Measure `clamps`, of the members that were trained again from an earlier checkpoint; part: the run, which is
`nothing clamped`, `step_k` (the read for step k clamped) or `control for step_k` (as many rows clamped that no circuit
uses).

    `clamped_from`: step of the checkpoint from which the member was trained again.
    `clamped_rows`: 1 for each group of rows that was clamped; layer, head, and part `run: query`.
    `clamped_loss`, `clamped_loss_step_k`: held-out losses of a run, at each of its evaluations.
    `clamped_fell_step_k`: when the loss of step k fell under one half; a time, see `hopscope.studies.chains.measures`.
"""

from collections.abc import Iterator, Sequence

from hopscope.claims.crossings import first_crossing
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.studies.chains import measures
from hopscope.studies.chains.evidence import FALLEN, Member, gather
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.events import Again, trained_again

CLAMPS = "clamps"


def measurements(run: RunFolder, config: EmergenceConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    yield from measures.measurements(run, config)
    yield from clamp_rows(gather(run, config), config)


def clamp_rows(members: Sequence[Member], config: EmergenceConfig) -> Iterator[Row]:
    """The rows of members that were trained again."""
    for again in trained_again(members, config):
        add = measures.adding(again.member, config)
        yield add(CLAMPS, "clamped_from", float(again.start), file=again.file)
        for number, run in enumerate(again.runs):
            for place in run["clamped"]:
                layer, head, query = _place(place)
                part = f"{run['name']}: {query}"
                yield add(CLAMPS, "clamped_rows", 1.0, layer=layer, head=head, part=part, file=again.file)
            yield from _losses(again, number, config)


def _losses(again: Again, number: int, config: EmergenceConfig) -> Iterator[Row]:
    """Losses of one run, and when they fell."""
    run = again.runs[number]
    for name, values in run["losses"].items():
        for step, value in zip(again.steps, values, strict=True):
            add = measures.adding(again.member, config, step)
            yield add(CLAMPS, f"clamped_{name}", value, part=run["name"], file=again.file)
    for step in config.task().asked:
        fell = first_crossing(again.steps, run["losses"][f"loss_step_{step}"], FALLEN, rising=False)
        yield from measures.time_rows(
            measures.adding(again.member, config),
            CLAMPS,
            f"clamped_fell_step_{step}",
            fell,
            part=run["name"],
            file=again.file,
        )


def _place(words: str) -> tuple[int, int, str]:
    """What `clamps` wrote of some clamped rows: `1.0 second 2` → layer 1, head 0, `second 2`."""
    head, query = words.split(" ", 1)
    layer, number = head.split(".")
    return int(layer), int(number), query
