"""Which circuit each way to ask ends with (S1f): readings of every member that learned x_D, and how far they are apart.

All members are read on the same samples: those of the retrieval problem, asked for the whole chain.  In a circuit, a
read is told by its layer, its rows and what they read.
"""

import math
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from hopscope.claims import Samples, at_least
from hopscope.studies.chains.circuits import last_of
from hopscope.studies.chains.evidence import LEARNED
from hopscope.studies.chains.measures import Rows
from hopscope.studies.chains.readings import farther, graphs_of, numbers, path_distance, reading_of
from hopscope.studies.curriculum.wide import open_claim
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of each member that learned x_D, read twice; nothing unless the study's options ask for it.

    Metrics: `was_read`, 1 if rules account for what the member learned; `heads`, `paths`, `layers` of the smallest
    circuit; `reread`, distance of the two readings.  The file has the first reading as JSON.  Members that did not
    learn x_D have no rows.
    """
    for place, member in enumerate(context.members) if context.options.read else ():
        yield from context.part(f"member-{member}", partial(_read_twice, context, place))


def _read_twice(context: Context, place: int) -> Rows:
    import numpy as np

    from hopscope.circuits.reader import READ, ReaderConfig, read
    from hopscope.tasks import Retrieval

    own, member = context.task, context.members[place]
    assert isinstance(own, Retrieval)
    last = f"step_{own.steps}"
    if not context.evidence.last(f"loss_{last}").get(member, math.inf) < LEARNED:
        return
    same = ("steps", "chains", "symbol_dim", "order", "position", "frequencies", "frequency_base")
    task = Retrieval(**{name: getattr(own, name) for name in same})
    # Fewer searches than usual, so that all members can be read twice, on more samples: on the usual 48 the loss of a
    # model can lie above what a circuit may have, and then nothing can be taken away.
    config = ReaderConfig(samples=128, orders=2, most_circuits=4, random_circuits=0, searched=1.0)
    model = context.ensemble.member(place)
    first, second = (read(model, task, each) for each in (config, config.again(1)))
    if last not in first.learned or last not in second.learned:
        return  # under one half, but not under what the reader asks for
    text, heads = np.frombuffer(first.model_dump_json().encode(), np.uint8), first.circuit.heads
    found = {
        "was_read": first.verdict == READ,
        "heads": len(heads),
        "paths": len(first.circuit.paths),
        "layers": len({layer for layer, _ in heads}),
        "reread": path_distance(graphs_of(first, by_layer=True), graphs_of(second, by_layer=True)),
    }
    yield from numbers(found, member=member, file=context.save(f"reading-{member}", {"both-0": text}))


@measure(when="run", needs=(circuits,))
def distances(context: Context) -> Rows:
    """How far the circuits of two members are apart: 0 is the same reads in the same layers, 1 none in common.

    Metrics: `distance`, part `member N`, to each other member; and means over others of a member: `within`, of its own
    way to ask; `between`, of other ways and with another seed; `same_start`, of other ways and with its own seed.
    """
    files = {row["member"]: row["file"] for row in context.rows("circuit") if row["metric"] == "was_read"}
    first = {member: graphs_of(reading_of(context, file, member), True) for member, file in files.items()}
    who = {each.member: each for each in context.unit.members}
    for one in first:
        groups: dict[str, list[float]] = {"within": [], "between": [], "same_start": []}
        for other in (each for each in first if each != one):
            apart = path_distance(first[one], first[other])
            yield {"metric": "distance", "part": f"member {other}", "member": one, "value": apart}
            same_way = who[one].configuration == who[other].configuration
            same_seed = who[one].seed == who[other].seed
            groups["within" if same_way else "same_start" if same_seed else "between"].append(apart)
        yield from numbers({name: fmean(each) for name, each in groups.items() if each}, member=one)


# What is claimed.

LEAST, TOO_FEW = 3, "fewer than three seeds have circuits to compare"


def excess(evidence: "Evidence") -> Samples:
    """By seed: mean distance to models of other ways less that to models of the same way, always of another seed."""
    pairs = between_seeds(evidence, same_way=False) - between_seeds(evidence, same_way=True)
    return farther(pairs, pairs.index.to_series() * 0.0, LEAST, TOO_FEW)


def rereading(evidence: "Evidence") -> Samples:
    """By seed: distance of two readings of one model less that between seeds of one way to ask."""
    pairs = between_seeds(evidence, same_way=True)
    again = last_of(evidence, "reread", evidence.members)
    own = again.groupby(evidence.seeds).mean().reindex(pairs.index)
    return farther(-pairs, -own, LEAST, TOO_FEW)


def between_seeds(evidence: "Evidence", same_way: bool) -> "pd.DataFrame":
    """Mean distance of models of two seeds, of the same way to ask or of two, `[seed, seed]`.

    NaN where no two such models have circuits, and for one seed itself.
    """
    import pandas as pd

    seeds = sorted({*evidence.seeds.values()})
    if "distance" not in evidence:
        return pd.DataFrame(index=seeds, columns=seeds, dtype=float)
    rows = evidence.rows("distance", measure="distances")
    others = rows["part"].str.removeprefix("member ").astype(int)
    same = rows["configuration"] == others.map(evidence.configurations)
    rows = rows.assign(other=others.map(evidence.seeds))[same == same_way]
    rows = rows[rows["seed"] != rows["other"]]
    found = rows.groupby(["seed", "other"])["value"].mean().unstack()
    return found.reindex(index=seeds, columns=seeds).astype(float)


CLAIM = open_claim(
    id="S1f",
    statement="Circuits differ more between models of different curricula than between two seeds of one curriculum.",
    source="summary of the paper, next check 1",
    protocol="of members that learned x₂, by seed: mean distance between the circuits of two ways to ask minus that "
    "between two models of one way, always of two seeds; seeds resampled.  Distance: 1 minus the share of reads "
    "(layer, rows, what they read) in common, over all minimal circuits.  The control must show that two readings of "
    "one model are nearer than two seeds",
    value=excess,
    must=at_least(0.0),
    rule="effect",
    controls={"two readings of one model, less two seeds of one way": rereading},
)
