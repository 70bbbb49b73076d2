"""Every member by both proofs of a circuit: which files hold that, and its rows of the evidence table.  Loads no torch.

A circuit is proven by its rules alone, as in the paper (appendix E), or also where its patterns are recomputed.  What
`hopscope.studies.circuit_study.members` says is of the second; here a metric of the first begins with `rules_`.  All
rows are held-out and stand at the member's last training step, except attention, which stands at its checkpoint.

Measure `proof`:
    `rules_was_read`: 1 if a circuit by rules accounts for what was learned; null for a member that diverged.
    `rules_circuit_loss`: over the learned targets; parts as of `circuit_loss`.
    `rules_reading_heads`: heads with a row that reads single tokens.
    `rules_heads_needed`: these, less one if two of them could be merged.
    `rules_first_read_links_pair`: 1 if the first of them joins the two tokens of a pair.
    `rules_to_one_token`, `rules_needed_for`: of each path, at its layer and head, as in the measure `circuit`; a path
        is needed for what is lost without it where all else follows its rules.
    `rules_attention`, `rules_formed`: as in the measure `formation`.
    `fell_for_good`, part `step_k`: when the held-out loss of a step fell under one half and stayed there.

Measure `unseen`: on sequences that played no part in admitting the circuit.
    `unseen_loss`, `rules_unseen_loss`: of every member that learned something, read or not; part `full` (the model),
        `rules`, `recomputed`.
    `unseen_loss_without`, `rules_unseen_loss_without`: without one read of a single token; layer and head of the read,
        part `mode: query → what it reads`; without layer and head, part `mode: first head`: without all reads of the
        first head that does any.

Measure `reread`, only where members are read again, of the independent members that learned everything:
    `reread_distance`, `rules_reread_distance`: between the minimal circuits of two readings of a member, the mean over
        all pairs of its readings.
    `circuit_distance`, `rules_circuit_distance`: from those of another one's first reading; part `member m`.
    `reread_path_distance`, `circuit_path_distance` and both with `rules_`: the same by paths (`path_distance`).
    `reread_graph_distance`, `circuit_graph_distance` and both with `rules_`: the same by reads, whatever layer and head
    do them (`graph_distance`).
    `readings`: how many times it was read.

Measure `bounds`, of the same members: the loss of the model itself where the rows of a path read uniformly and all
other attention follows; at the path's layer and head.
    `loss_if_ablated`: in its head.
    `loss_if_layer_ablated`: in all heads of its layer.
    `loss_if_others_ablated`: in heads that the circuit does not name, the median; `_low` and `_high`: the range.

The distance of two sets of circuits is 1 minus the mean of the two shares that are in the other set.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.circuits.config import Proof, ReaderConfig, reading_name
from hopscope.circuits.history_rows import LOSSES, Add, adding, formation_rows, time_rows
from hopscope.circuits.path_history import path_histories
from hopscope.circuits.rereading import (
    Circuits,
    circuits_of,
    distance,
    graph_distance,
    mean_distance,
    path_distance,
)
from hopscope.claims.crossings import last_crossing
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.circuit_study.config import FALLEN, ChainsConfig
from hopscope.studies.circuit_study.members import Member, gather, links_a_pair, step_rows

if TYPE_CHECKING:
    from hopscope.training.config import TrainJob

PROOFS: tuple[Proof, ...] = ("both", "rules")
"""What a circuit must hold under (`ReaderConfig.proof`): every member is read by each."""

PREFIX: dict[Proof, str] = {"both": "", "rules": "rules_"}
"""Begins the names of metrics of a circuit that was found under each proof."""


def reader_of(config: ChainsConfig, proof: Proof, *, again: int = 0) -> ReaderConfig:
    """How members are read.

    Args:
        config: of the study.
        proof: what a circuit must hold under.
        again: number of a further reading, from 1, so that differences between seeds can stand beside those between
            readings of one member; 0: the first.
    """
    reader = config.reader().model_copy(update={"proof": proof})
    return reader.again(again) if again else reader


def proofs_name(member: int, again: int) -> str:
    """Name of the analysis that holds what both proofs say of a member that is read so many times again."""
    return f"proofs-{member}-read-{1 + again}-times" if again else f"proofs-{member}"


def proof_files(options: ChainsConfig, job: "TrainJob") -> dict[str, str]:
    """Files of the analysis: readings under the rules alone, then what says that all of a member is there."""
    members = [member.member for member in job.members if member.init_seed == member.data_seed]
    readings = [reading_name(member, reader_of(options, "rules")) for member in members]
    return dict.fromkeys(
        [*readings, *(proofs_name(member, options.read_again) for member in members)], "json"
    )


# Rows of the evidence.


DISTANCES = {distance: "", path_distance: "_path", graph_distance: "_graph"}
"""Distances of two sets of circuits, and what the names of their metrics have after the first word."""


class Compared(NamedTuple):
    """A member whose circuits are compared: what makes its rows, its file, and the sets of its readings, in order."""

    add: Add
    file: str
    readings: Mapping[Proof, Sequence[Circuits]]


def measurements(run: RunFolder, config: ChainsConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Args:
        run: the run.
        config: of the study.

    Raises:
        UserError: a file is missing or damaged.
    """
    compared: dict[int, Compared] = {}
    for member in gather(run, config):
        unit, step = member.unit, config.training_steps
        name = proofs_name(member.member, config.read_again)
        add, file = adding(member.member, step), unit.file_of(name, step)
        if member.crossed or not unit.analysis_path(name, step).is_file():
            continue  # not measured: such a run is from before there were two proofs
        if member.diverged:
            yield add("proof", "rules_was_read", None, file=file)
            continue
        found = unit.read_analysis(name, step)
        by_rules = _by_rules(member, found, config, file)
        yield from proof_rows(add, member, by_rules)
        yield from unseen_rows(add, found["unseen"], file)
        yield from bounds_rows(add, found.get("bounds", []), file)
        if found["read_again"] and member.learned_all:
            readings: dict[Proof, Member] = {"both": member, "rules": by_rules}
            sets = {
                proof: [
                    circuits_of(each["circuit"] for each in readings[proof].reading["minimal_circuits"]),
                    *map(circuits_of, found["read_again"][proof]),
                ]
                for proof in PROOFS
            }
            compared[member.member] = Compared(add, file, sets)
    yield from reread_rows(compared)


def reread_rows(compared: Mapping[int, Compared]) -> Iterator[Row]:
    """How far the circuits of members are apart, and those of each one's readings.

    Args:
        compared: member → what is compared of it.
    """
    for number, (add, file, readings) in compared.items():
        row = partial(add, "reread", file=file)
        yield row(metric="readings", value=float(len(readings["both"])))
        for proof, (apart, of) in product(PROOFS, DISTANCES.items()):
            own = mean_distance(readings[proof], apart)
            yield row(metric=f"{PREFIX[proof]}reread{of}_distance", value=own)
            for other, each in compared.items():
                if other != number:
                    value = apart(readings[proof][0], each.readings[proof][0])
                    yield row(
                        metric=f"{PREFIX[proof]}circuit{of}_distance", value=value, part=f"member {other}"
                    )


def _by_rules(member: Member, found: Mapping[str, Any], config: ChainsConfig, file: str) -> Member:
    """The member with the circuit that was found under the rules alone."""
    name = reading_name(member.member, reader_of(config, "rules"))
    reading = member.unit.read_analysis(name, config.training_steps)
    return replace(
        member,
        reading=reading,
        paths=path_histories(reading, found["formation"]),
        checkpoints=tuple(found["formation"]["checkpoints"]),
        reading_file=member.unit.file_of(name, config.training_steps),
        formation_file=file,
    )


def proof_rows(add: Add, member: Member, by_rules: Member) -> Iterator[Row]:
    """What both proofs say of a member.

    Args:
        add: makes rows.
        member: with the circuit that also holds recomputed.
        by_rules: with the one that was found under the rules alone.
    """
    row = partial(add, "proof", file=by_rules.reading_file)
    yield row(metric="rules_was_read", value=float(by_rules.was_read))
    for step, curve in member.curves.items():
        fell = last_crossing(*curve, FALLEN, rising=False)
        yield from time_rows(add, "proof", "fell_for_good", fell, part=f"step_{step}", file=GATHERED)
    if not by_rules.reading["paths"]:
        return
    for part in LOSSES:
        yield row(metric="rules_circuit_loss", value=by_rules.reading["loss"][part], part=part)
    heads = len({path.place for path in by_rules.every_path if path.to_one_token})
    yield row(metric="rules_reading_heads", value=float(heads))
    yield row(metric="rules_heads_needed", value=float(heads - min(1, len(by_rules.reading["merges"]))))
    links = any(map(links_a_pair, by_rules.first_reads))
    yield row(metric="rules_first_read_links_pair", value=float(links))
    yield from _path_rows(add, by_rules)


def _path_rows(add: Add, member: Member) -> Iterator[Row]:
    """The paths of a circuit that was found under the rules alone, and how they formed."""
    for path in member.every_path:
        at = partial(add, "proof", layer=path.layer, head=path.head, part=path.read, file=member.reading_file)
        yield at(metric="rules_to_one_token", value=float(path.to_one_token))
        if path.needed_for is not None:
            yield at(metric="rules_needed_for", value=float(path.needed_for))
    yield from formation_rows(add, member, "proof", PREFIX["rules"])
    yield from step_rows(add, member, "proof", PREFIX["rules"])


def unseen_rows(add: Add, unseen: Mapping[Proof, Mapping[str, Any]], file: str) -> Iterator[Row]:
    """What a member's circuits reach on unseen sequences; see `hopscope.studies.circuit_study.proofs.unseen_losses`."""
    row = partial(add, "unseen", file=file)
    for proof, found in unseen.items():
        if not found:
            continue
        name = f"{PREFIX[proof]}unseen_loss"
        for part, value in found["loss"].items():
            yield row(metric=name, value=value, part=part)
        for path in found["paths"]:
            read = f"{path['query_role']} → {path['target_role']}"
            for mode, value in path["without"].items():
                yield row(
                    metric=f"{name}_without",
                    value=value,
                    part=f"{mode}: {read}",
                    layer=path["layer"],
                    head=path["head"],
                )
        for mode, value in (found["without_first_head"] or {}).items():
            yield row(metric=f"{name}_without", value=value, part=f"{mode}: first head")


def bounds_rows(add: Add, bounds: Sequence[Mapping[str, Any]], file: str) -> Iterator[Row]:
    """What each path costs between two bounds; see `hopscope.studies.circuit_study.proofs.bounds`."""
    for path in bounds:
        read = f"{path['query_role']} → {path['target_role'] or path['rule']}"
        at = partial(add, "bounds", layer=path["layer"], head=path["head"], part=read, file=file)
        yield at(metric="loss_if_ablated", value=path["removed"])
        yield at(metric="loss_if_layer_ablated", value=path["whole_layer"])
        if path["others"]:
            ends = {"": median(path["others"]), "_low": min(path["others"]), "_high": max(path["others"])}
            for end, value in ends.items():
                yield at(metric=f"loss_if_others_ablated{end}", value=value)


proofs_of_members = UnitAnalysis(
    proof_files, deferred("hopscope.studies.circuit_study.proofs:analyse"), measurements
)
"""Every independent member read by the paper's proof too, and both circuits on sequences that neither has seen."""
