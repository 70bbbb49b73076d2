"""What was read of the members and how it formed, as rows of the evidence table.

Every row is held-out and stands at the member's last training step, except attention, which stands at its checkpoint.
A member that diverged has null for what every member has (the final losses, what it learned, whether it was read) and
no other row.

Measures `final` and `retrieval`: see `hopscope.studies.retrieval_rows`.

Measures `reading`, `circuit` and `formation`: see `hopscope.circuits.history_rows`, which also says how a time is told.
The targets are the steps of the chain, parts `step_k`.  Besides, `reading` has
    `circuit_loss`, part `worst_recomputed`: of the learned step with the largest loss in mode recomputed;
    `first_read_links_pair`: 1 if the first head that reads a single token joins the two tokens of a pair;
    `others_differ`: share of the other independent members that learned everything and were read whose circuits
        differ; only of such members;
and `formation` has
    `formed`, part `step_k` (no layer or head): when the last read of a step had formed; missing where the step has no
        read of its own, or no circuit was read;
    `fell`, part `step_k`: when the held-out loss of a step fell under one half;
    `maps`: 1; its file has the attention of every head on one sequence, in 255ths, as `maps` (checkpoint, layer, head,
        query, key), and the `steps` of these checkpoints.
"""

from collections.abc import Iterator, Sequence

from hopscope.circuits.history_rows import Add, member_rows, time_rows
from hopscope.circuits.path_history import FollowedPath
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member, gather


def measurements(run: RunFolder, config: ChainsConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    yield from of_members(gather(run, config), config)


def of_members(members: Sequence[Member], config: ChainsConfig) -> Iterator[Row]:
    """The rows of some members: their circuits and formation."""
    compared = [member for member in members if not member.crossed and member.learned_all and member.was_read]
    targets = {f"step_{step}": f"step_{step}" for member in members[:1] for step in member.curves}
    for member, add, rows in member_rows(members, config.training_steps, targets, "circuit_loss"):
        yield from rows
        if member.frozen:
            continue
        if member.reading["paths"]:
            links = any(map(links_a_pair, member.first_reads))
            yield add("reading", "first_read_links_pair", float(links), file=member.reading_file)
        if member in compared and len(compared) > 1:
            others = [other for other in compared if other is not member]
            differ = sum(member.reads != other.reads for other in others) / len(others)
            yield add("reading", "others_differ", differ, file=member.reading_file)
        yield from _formation(add, member)


def links_a_pair(path: FollowedPath) -> bool:
    """Whether a path joins the two tokens of a pair: the second reads the first, or the other way round."""
    query, target = path.query.split(), path.target.split()
    return (
        len(query) == len(target) == 2
        and {query[0], target[0]} == {"first", "second"}
        and query[1] == target[1]
    )


def _formation(add: Add, member: Member) -> Iterator[Row]:
    """When the steps of the chain had their reads, when their losses fell, and where the attention maps are."""
    yield add("formation", "maps", 1.0, file=member.maps_file)
    for step in member.curves:
        part = f"step_{step}"
        hop = member.hop_formed(step)
        if hop is not None:
            yield from time_rows(add, "formation", "formed", hop, part=part, file=member.formation_file)
        yield from time_rows(add, "formation", "fell", member.fallen(step), part=part, file=GATHERED)
