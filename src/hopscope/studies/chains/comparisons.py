"""Circuits of several members, or of several readings of one, beside each other."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hopscope.studies.chains.circuits import PREFIX, Proof
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.circuits.reader import Reader, Reading
    from hopscope.models.transformer import Transformer

Rows = Iterator[dict[str, Any]]
Circuits = frozenset[frozenset[tuple[int, int, str, str]]]
"""A set of circuits: of each path layer, head, rows and what they read."""


def plain_reader(context: Context, model: "Transformer") -> "Reader":
    """A reader of a member, on the samples that all readings report on."""
    from hopscope.circuits.reader import Reader, ReaderConfig

    return Reader(model, context.task, ReaderConfig())


def circuits_of(reading: "Reading") -> Circuits:
    """The minimal circuits of a reading: two are equal if the same heads do the same reads on the same rows."""
    return frozenset(
        frozenset(
            (path.layer, path.head, path.query, path.target or path.rule.kind) for path in circuit.paths
        )
        for circuit, _ in reading.minimal
    )


def whole_distance(one: Circuits, other: Circuits) -> float:
    """1 minus the mean of the two shares of circuits that are in the other set."""
    common = len(one & other)
    return 1.0 - (common / len(one) + common / len(other)) / 2.0


def path_distance(one: "frozenset[frozenset[Any]]", other: "frozenset[frozenset[Any]]") -> float:
    """1 minus the share of paths that a circuit of one set has in common with the nearest one of the other set.

    The share is of the paths that either of the two has.  It is a mean over the circuits of each set, and over both.
    """

    def nearest(circuits: Iterable[frozenset[Any]], others: Collection[frozenset[Any]]) -> float:
        return fmean(
            max(len(each & other) / len(each | other) if each | other else 1.0 for other in others)
            for each in circuits
        )

    return 1.0 - (nearest(one, other) + nearest(other, one)) / 2.0


def graph_distance(one: Circuits, other: Circuits) -> float:
    """`path_distance` of the graphs of reads: which rows read what, whatever layer and head do it."""
    graphs = (
        frozenset(frozenset(path[2:] for path in each) for each in circuits) for circuits in (one, other)
    )
    return path_distance(*graphs)


DISTANCES: dict[str, Callable[[Circuits, Circuits], float]] = {
    "": whole_distance, "_path": path_distance, "_graph": graph_distance,
}  # fmt: skip
"""What names of metrics have after their first word → distance of two sets of circuits: 0 is the same, 1 the most."""


def reading_of(context: Context, file: str, member: int, proof: Proof = "both", number: int = 0) -> "Reading":
    """A reading that was kept, from the file of the row `was_read`."""
    from hopscope.circuits.reader import Reading
    from hopscope.runs.checkpoint import load_checkpoint

    arrays, _ = load_checkpoint(context.run.path / file)
    return Reading.model_validate_json(arrays[f"reading-{member}.{proof}-{number}"].tobytes())


def _read_members(context: Context) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for row in context.rows("circuit"):
        if row["metric"] in ("was_read", "learned_all", "readings") and row["value"] is not None:
            found.setdefault(row["member"], {}).update({row["metric"]: row["value"], "file": row["file"]})
    return found


@measure(when="run", needs=("circuit",))
def compared(context: Context) -> Rows:
    """The circuits of members beside each other.

    Metrics: `circuit_class`, a number that two members share if and only if their circuits do the same reads; where
    members were read again, `circuit_distance`, `circuit_path_distance` and `circuit_graph_distance` to each other one,
    part `member N`, by both proofs.
    """
    members = _read_members(context)
    kinds: list[Hashable] = []
    for member, found in members.items():
        reads = reading_of(context, found["file"], member).circuit.reads
        if reads:
            kinds += [reads] * (reads not in kinds)
            yield {"metric": "circuit_class", "member": member, "value": float(kinds.index(reads))}
    for proof, prefix in PREFIX.items():
        sets = {
            member: circuits_of(reading_of(context, found["file"], member, proof))
            for member, found in members.items()
            if "readings" in found
        }
        for one, other in ((one, other) for one in sets for other in sets if one != other):
            for of, apart in DISTANCES.items():
                value, part = apart(sets[one], sets[other]), f"member {other}"
                yield {"metric": f"{prefix}circuit{of}_distance", "member": one, "part": part, "value": value}


@measure(when="run", needs=("circuit",))
def transfers(context: Context) -> Rows:
    """The circuit of every member run in every other one that learned the whole chain, layers and heads as numbered.

    Metrics, part `member N`, whose circuit it is: `transferred_loss_rules`, `transferred_loss_recomputed`, and
    `transferred_share`: how much of what the model gained over the plateau is kept by the rules.
    """
    members = {member: found for member, found in _read_members(context).items() if found["learned_all"]}
    read = [member for member, found in members.items() if found["was_read"]]
    circuits = [reading_of(context, members[member]["file"], member).circuit for member in read]
    plateau = context.options.plateau

    def reached(member: int, ensemble: "Transformer", place: int, at: Context) -> Rows:
        reader = plain_reader(at, ensemble.member(place))
        for owner, circuit in zip(read, circuits, strict=True):
            loss = reader.transferred(circuit)
            share = (plateau - loss["rules"]) / (plateau - reader.criterion.full)
            numbers = {f"loss_{mode}": each for mode, each in loss.items()}
            for name, value in {**numbers, "share": min(1.0, max(0.0, share))}.items():
                row = {"metric": f"transferred_{name}", "part": f"member {owner}", "value": value}
                yield {**row, "member": member}

    for unit in context.run.units:
        at = context.at(unit)
        for place, member in enumerate(at.members):
            if member in members:
                yield from context.part(f"member-{member}", partial(reached, member, at.ensemble, place, at))
