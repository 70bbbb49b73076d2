"""Which circuit each way to ask ends with (S1f): readings of every member that learned x_D, and how far they are apart.

All members are read on the same samples: those of the retrieval problem, asked for the whole chain.  In a circuit, a
read is told by its layer, its rows and what they read.  Heads are left out, because those of a layer have no order: two
seeds that do the same by another head of that layer do the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import hopscope as hs
from hopscope.circuits.config import READ, ReaderConfig, reading_name
from hopscope.circuits.rereading import Circuits, circuits_of, path_distance
from hopscope.claims.intervals import excess_interval
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import smaller_scale
from hopscope.tasks.config import TaskReference
from hopscope.training.config import TrainJob, job_of

if TYPE_CHECKING:
    import numpy as np

    from hopscope.circuits.built_in_tasks import ReadTask
    from hopscope.measures.context import Context
    from hopscope.runs import RunFolder, UnitFolder

READER = ReaderConfig(samples=128, orders=2, most_circuits=4, random_circuits=0)
"""How members are read: fewer searches than usual, on more sequences, so that all of them can be, each twice.

On the usual 48 sequences the loss of a model can lie above what a circuit may have: then nothing can be taken away.
"""

READINGS = (READER, READER.again(1))
"""Two readings of every member: other sequences, other orders."""

LEAST_SEEDS = 8
"""Seeds of each way to ask that a verdict needs."""


def _task(job: TrainJob) -> "hs.tasks.Retrieval":
    """The problem on which a unit's members are read: the same for all ways to ask."""
    assert isinstance(job.task, TaskReference)
    fields = job.task.fields
    same = {name: fields[name] for name in ("steps", "chains", "symbol_dim")}
    return hs.tasks.Retrieval(**same, position="pair", targets="ic")


def _read_on(unit: "UnitFolder") -> "ReadTask":
    found: Any = _task(job_of(unit)).on()
    return found


@hs.measure(name="circuit")
def circuits(context: "Context") -> Iterator[dict[str, Any]]:
    """The circuit of each member that learned x_D, read twice; nothing unless the study's options ask for it.

    Metrics: `was_read`, 1 if rules account for what the member learned; `heads`, `paths`, `layers` of the smallest
    circuit; `reread`, distance of the two readings.  Members that did not learn x_D have no rows.
    """
    from hopscope.circuits.record import read_member
    from hopscope.runs.metrics import read_metrics

    if not context.run.config["options"].get("read"):
        return
    assert context.unit is not None
    steps = _task(job_of(context.unit)).steps
    table = read_metrics(context.unit.path).to_pandas()
    table = table[(table["split"] == "held_out") & (table["metric"] == f"loss_step_{steps}")]
    final = table[table["step"] == context.step].set_index("member")["value"]
    for member in context.members:
        if not final.get(member, math.inf) < LEARNED:
            continue
        context.budget.check()
        found = [read_member(context.run, member, context.step, config, task=_read_on) for config in READINGS]
        if not all(f"step_{steps}" in each["learned"] for each in found):
            continue  # under one half, but not under what the reader asks for
        reads = {(path["layer"], path["head"]) for path in found[0]["paths"]}
        counts = {
            "heads": len(reads),
            "paths": len(found[0]["paths"]),
            "layers": len({at[0] for at in reads}),
        }
        counts["was_read"] = int(found[0]["verdict"] == READ)
        for metric, count in counts.items():
            yield {"metric": metric, "member": member, "value": float(count)}
        first, second = map(reads_of, found)
        yield {"metric": "reread", "member": member, "value": path_distance(first, second)}


def reads_of(reading: Mapping[str, Any]) -> Circuits:
    """The minimal circuits of a reading, as reads by layer: which head of the layer does one is left out."""
    found = circuits_of(each["circuit"] for each in reading["minimal_circuits"])
    return frozenset(frozenset((layer, 0, rows, read) for layer, _, rows, read in each) for each in found)


@hs.measure(when="run", needs=(circuits,))
def distances(context: "Context") -> Iterator[dict[str, Any]]:
    """How far the circuits of two members are apart: 0 is the same reads in the same layers, 1 none in common.

    Metrics: `distance`, part `member N`, to each other member; and means over others of a member: `within`, of its own
    way to ask; `between`, of other ways and with another seed; `same_start`, of other ways and with its own seed.
    """
    known = sorted({row.member for row in context.rows("circuit") if row.member is not None})
    places = {member: (unit.hash, seed) for unit, member, seed in _members(context.run)}
    first = {member: _first_reading(context.run, member) for member in known}
    apart = {
        (one, other): path_distance(first[one], first[other])
        for one in known
        for other in known
        if one != other
    }
    for (one, other), value in apart.items():
        yield {"metric": "distance", "part": f"member {other}", "member": one, "value": value}
    for one in known:
        way, seed = places[one]
        groups: dict[str, list[float]] = {"within": [], "between": [], "same_start": []}
        for other in known:
            if other != one:
                of_way, of_seed = places[other]
                name = "within" if of_way == way else "same_start" if of_seed == seed else "between"
                groups[name].append(apart[one, other])
        for name, values in groups.items():
            if values:
                yield {"metric": name, "member": one, "value": sum(values) / len(values)}


def _members(run: "RunFolder") -> Iterator[tuple["UnitFolder", int, int]]:
    """Unit, number and seed of every member; the members of a unit are those of one way to ask."""
    for record in run.members:
        yield run.unit(record.unit), record.member, record.seed


def _first_reading(run: "RunFolder", member: int) -> Circuits:
    unit = next(unit for unit, number, _ in _members(run) if number == member)
    step = job_of(unit).training.steps
    return reads_of(unit.read_analysis(reading_name(member, READER), step))


# What is claimed.


def excess(evidence: Any) -> hs.Samples:
    """By seed: mean distance to models of other ways less that to models of the same way, always of another seed."""
    import numpy as np

    same, other = _by_seeds(evidence)
    return _samples(evidence, other - same, np.zeros(len(same)))


def rereading(evidence: Any) -> hs.Samples:
    """By seed: distance of two readings of one model less that between seeds of one way to ask."""
    import numpy as np

    same, _ = _by_seeds(evidence)
    seeds = sorted(set(evidence.seeds.values()))
    own = evidence.last("reread") if "reread" in evidence else {}
    by_seed = [
        [value for member, value in own.items() if evidence.seeds[member] == seed and value == value]
        for seed in seeds
    ]
    again = np.array([np.mean(each) if each else np.nan for each in by_seed])
    return _samples(evidence, -same, -again)


def _by_seeds(evidence: Any) -> "tuple[np.ndarray, np.ndarray]":
    """Mean distance of models of two seeds, of the same way to ask and of different ones, each `[seed, seed]`.

    NaN where no two such models have circuits, and for one seed itself.
    """
    import numpy as np

    seeds = sorted(set(evidence.seeds.values()))
    found: dict[tuple[bool, int, int], list[float]] = {}
    if "distance" in evidence:
        rows = evidence.rows("distance", measure="distances")
        for one, part, value in zip(rows["member"], rows["part"], rows["value"], strict=True):
            other = int(part.removeprefix("member "))
            same = evidence.configurations[one] == evidence.configurations[other]
            places = (seeds.index(evidence.seeds[one]), seeds.index(evidence.seeds[other]))
            for pair in (places, places[::-1]):
                found.setdefault((same, *pair), []).append(value)
    tables = np.full((2, len(seeds), len(seeds)), np.nan)
    for (same, one, other), values in found.items():
        if one != other:
            tables[int(not same), one, other] = np.mean(values)
    return tables[0], tables[1]


def _samples(evidence: Any, pairs: "np.ndarray", own: "np.ndarray") -> hs.Samples:
    """By seed: the mean over its pairs less its own number; seeds are resampled, because pairs share them.

    Args:
        evidence: of the run.
        pairs: a number for each two seeds, `[seed, seed]`.
        own: a number for each seed, `[seed]`.
    """
    import numpy as np

    whole = ~np.isnan(own)
    alone = np.eye(len(own), dtype=bool)
    # A seed without a number for some other one is left out, the emptiest first.
    while whole.sum() > 1 and np.isnan(pairs[np.ix_(whole, whole)][~alone[np.ix_(whole, whole)]]).any():
        gaps = np.where(whole, (np.isnan(pairs) & whole[None, :] & ~alone).sum(1), -1)
        whole[gaps.argmax()] = False
    count = int(whole.sum())
    if count < 3:
        return hs.Samples([], unit="seed", note="fewer than three seeds have circuits to compare")
    kept = np.where(alone[:count, :count], 0.0, pairs[np.ix_(whole, whole)])
    values = np.full(len(own), np.nan)
    values[whole] = kept.sum(1) / (count - 1) - own[whole]
    return hs.Samples(list(values), unit="seed", interval=excess_interval(kept, list(own[whole])))


def circuit_claims() -> list[hs.Claim]:
    """What is claimed of the circuits."""
    return [
        hs.Claim(
            id="S1f",
            statement="Models that learn by different curricula end with different circuits than two seeds of the same "
            "curriculum do.",
            source="summary of the paper, next check 1",
            protocol="of members that learned x₂, by seed: mean distance between the circuits of two ways to ask minus "
            "that between two models of one way, always of two seeds; seeds resampled.  Distance: 1 minus the share of "
            "reads (layer, rows, what they read) in common, over all minimal circuits.  The control must show that two "
            "readings of one model are nearer than two seeds",
            value=excess,
            must=hs.at_least(0.0),
            rule="effect",
            controls={"two readings of one model, less two seeds of one way": rereading},
            must_not=hs.at_least(0.0),
            seeds_needed=LEAST_SEEDS,
            at_scale=smaller_scale,
            kind="general",
        )
    ]
