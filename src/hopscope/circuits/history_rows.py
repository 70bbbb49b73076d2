"""Circuits that were read and followed through training, as rows of the evidence table: what several studies share.

All rows are held-out and stand at the member's last training step, except attention, which stands at its checkpoint.
A *target* is what the reader says was learned: a step of the chain (part `step_k`) or a depth (part `depth_k`).

Measure `reading`: what the reader says of the member.
    `learned`: 1 where a target was learned by the reader's measure; part as above.  `learned_all`: 1 if all were.
    `was_read`: 1 if a circuit by rules accounts for what was learned.
    `circuit_loss`: over the learned targets, on the reader's validation samples; part `full` (the model), `rules`,
        `recomputed` (the circuit), `complement` (all else), `random_circuits` (the mean of those of its size),
        `random_circuits_low`, `random_circuits_high` (their range).  `threshold`: the largest loss over the learned
        targets that a circuit by its rules may have.
    `heads`, `paths`: how many the smallest circuit has, also those that only a mean map describes.
    `heads_needed`: the heads, less one if two of them could be merged.  `minimal_circuits`: how many were found.
    `circuit_class`: a number that two members share if and only if their circuits do the same reads.

Measure `circuit`: each path of the smallest circuit, at its layer and head, part `query → what it reads`.
    `mean_attention`: on what it reads, on the reader's validation samples.
    `loss_without_rules`, `loss_without_clean`, `loss_without_recomputed`: the loss without the path, by mode.
    `to_one_token`: 1 if it reads a single token.  `needed_for`: the first step or depth that is lost without it, if
        one is.
    `rise_if_exchanged`: rise of the loss if what the path's rows read is taken from another sample; one row for each
        thing exchanged, part `query: thing`.  `kept_if_exchanged`, `follow_if_exchanged`: share of answers that stay
        right then, and that follow the other sample; only where answers are choices that the thing decides.

Measure `formation`: when things happened in training.
    `attention`: mean attention on a path at a checkpoint; layer, head and part as above.
    `formed`: whether it reached one half; layer, head and part as above.  Missing where the member's first checkpoints
        were deleted before its paths were followed.

A time (such as `formed`) is four metrics.  `formed` itself is 1 if it happened within training and 0 if not.
`formed_at`: the step, interpolated between the evaluations around it; `formed_at_low`, `formed_at_high`: these
evaluations, equal if the first evaluation was across already.  What never happened has no `formed_at` and no
`formed_at_high`, and `formed_at_low` is the last evaluation: it is censored there.
`times` in `hopscope.circuits.places` turns the rows back into crossings.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hopscope.circuits.path_history import MemberHistory
from hopscope.claims.crossings import Crossing
from hopscope.runs.evidence import Row

Member = TypeVar("Member", bound=MemberHistory)

LOSSES = ("full", "rules", "recomputed", "complement", "random_circuits")

_ANSWERS = {"answers_kept": "kept_if_exchanged", "answers_follow": "follow_if_exchanged"}


Add = Callable[..., Row]
"""Makes a row of one member at one step: from measure, metric and value, and where it stands."""


def adding(member: int, step: int) -> Add:
    """Makes rows of a member at a step."""
    return partial(Row, member, step=step)


def time_rows(add: Add, measure: str, event: str, found: Crossing, **where: Any) -> Iterator[Row]:
    """A time as rows, at a place (`layer`, `head`, `part`, `file`): see the head of this file."""
    place = partial(add, measure, **where)
    yield place(metric=event, value=float(found.time is not None))
    if found.time is None:
        yield place(metric=f"{event}_at_low", value=found.censored_at)
        return
    ends = {f"{event}_at": found.time, f"{event}_at_low": found.low, f"{event}_at_high": found.high}
    for metric, value in ends.items():
        yield place(metric=metric, value=value)


def learned_rows(add: Add, member: MemberHistory, targets: Mapping[str, str]) -> Iterator[Row]:
    """What every member has: what it learned, and whether it was read; null for one that diverged.

    Args:
        add: makes the rows.
        member: the member.
        targets: name of each target in the reading → its part.
    """

    def flag(value: bool) -> float | None:
        return None if member.diverged else float(value)

    file, learned = member.reading_file, member.reading["learned"]
    for target, part in targets.items():
        yield add("reading", "learned", flag(target in learned), part=part, file=file)
    yield add("reading", "learned_all", flag(set(targets) <= set(learned)), file=file)
    yield add("reading", "was_read", flag(member.was_read), file=file)


def reading_rows(add: Add, member: MemberHistory) -> Iterator[Row]:
    """What the reader says of a member as a whole; only losses and counts of members that have a circuit."""
    reading, file = member.reading, member.reading_file
    yield add("reading", "threshold", reading["threshold"], file=file)
    if not reading["paths"]:
        return
    loss = reading["loss"]
    low, high = loss["random_circuits_range"]
    losses = {name: loss[name] for name in LOSSES}
    losses |= {"random_circuits_low": low, "random_circuits_high": high}
    for part, value in losses.items():
        yield add("reading", "circuit_loss", value, part=part, file=file)
    counts = {
        "heads": len(member.heads),
        "heads_needed": member.heads_needed,
        "paths": len(reading["paths"]),
        "minimal_circuits": len(reading["minimal_circuits"]),
    }
    for metric, count in counts.items():
        yield add("reading", metric, float(count), file=file)


def classes_of(circuits: Mapping[int, Hashable]) -> dict[int, int]:
    """Member → a number for its circuit, counted from 0 in the order of the members.

    Args:
        circuits: member → its circuit, or the reads that it does.
    """
    kinds = list(dict.fromkeys(circuits.values()))
    return {member: kinds.index(circuit) for member, circuit in circuits.items()}


def circuit_rows(add: Add, member: MemberHistory) -> Iterator[Row]:
    """Each path of a member's smallest circuit, as it is at the end of training."""
    for path in member.every_path:
        at = partial(
            add, "circuit", layer=path.layer, head=path.head, part=path.read, file=member.reading_file
        )
        yield at(metric="mean_attention", value=path.mean_attention)
        for mode, value in path.removed.items():
            yield at(metric=f"loss_without_{mode}", value=value)
        yield at(metric="to_one_token", value=float(path.to_one_token))
        if path.needed_for is not None:
            yield at(metric="needed_for", value=float(path.needed_for))
    for found in member.reading["exchanges"]:
        part = f"{found['query_role']}: {found['exchanged']}"
        at = partial(
            add, "circuit", layer=found["layer"], head=found["head"], part=part, file=member.reading_file
        )
        yield at(metric="rise_if_exchanged", value=found["rise"])
        for key, metric in _ANSWERS.items():
            if found.get(key) is not None:
                yield at(metric=metric, value=found[key])


def formation_rows(
    add: Add, member: MemberHistory, measure: str = "formation", prefix: str = ""
) -> Iterator[Row]:
    """Attention on the paths of a member at each checkpoint, and when each path formed.

    Args:
        add: makes rows at the last step of training, where times stand.
        member: the member.
        measure: of the rows.
        prefix: of the names of their metrics.
    """
    for path in member.paths:
        place = {"layer": path.layer, "head": path.head, "part": path.read, "file": member.formation_file}
        for checkpoint, value in zip(member.checkpoints, path.attention, strict=True):
            yield add(measure, f"{prefix}attention", value, step=checkpoint, **place)
        formed = member.formed(path)
        if formed is not None:
            yield from time_rows(add, measure, f"{prefix}formed", formed, **place)


def member_rows(
    members: Sequence[Member], step: int, targets: Mapping[str, str], worst: str
) -> Iterator[tuple[Member, Add, list[Row]]]:
    """The members one by one, with what makes their rows, and the rows that every study has of them.

    Args:
        members: of a run.
        step: at which rows stand: the last of training.
        targets: name of each target in the reading → its part.
        worst: metric of what mode recomputed costs the target that loses most.
    """
    read = [member for member in members if not member.diverged and member.reading["paths"]]
    classes = classes_of({member.member: member.reads for member in read})
    for member in members:
        add = adding(member.member, step)
        rows = list(learned_rows(add, member, targets))
        if not member.diverged:
            rows += reading_rows(add, member)
            if member.member in classes:
                lost, file = member.reading["worst_recomputed"], member.reading_file
                rows.append(add("reading", worst, lost, part="worst_recomputed", file=file))
                rows.append(add("reading", "circuit_class", float(classes[member.member]), file=file))
            rows += [*circuit_rows(add, member), *formation_rows(add, member)]
        yield member, add, rows
