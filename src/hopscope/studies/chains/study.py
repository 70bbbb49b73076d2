"""What the studies of circuits and of emergence do alike: one model, many seeds, every member read and followed."""

from typing import TYPE_CHECKING

from hopscope.circuits.config import followed_names, reading_name
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.measures import measurements
from hopscope.studies.chains.proof import PROOFS, proofs_name, reader_of

if TYPE_CHECKING:
    from hopscope.training.config import UnitPlan


def files(options: ChainsConfig, plan: "UnitPlan") -> dict[str, str]:
    """Circuits, and how their paths formed."""
    members = [member.member for member in plan.members]
    return followed_names(members, options.reader())


circuits_of_members = UnitAnalysis(files, deferred("hopscope.studies.chains.analysis:analyse"), measurements)
"""Every member read and followed through training."""


def proofs_of_members(*, read_again: bool) -> UnitAnalysis:
    """Every independent member read by the paper's proof too, and both circuits on sequences that neither has seen.

    It is done for models of the paper's size: claims about smaller ones do not ask for it.

    Args:
        read_again: whether members are read twice by each proof.
    """

    def files(options: ChainsConfig, plan: "UnitPlan") -> dict[str, str]:
        if options.departures:
            return {}
        members = [member.member for member in plan.members if member.init_seed == member.data_seed]
        readings = [reader_of(options, "rules")]
        if read_again:
            readings += [reader_of(options, proof, again=True) for proof in PROOFS]
        names = [reading_name(member, reader) for member in members for reader in readings]
        return dict.fromkeys([*names, *map(proofs_name, members)], "json")

    work = deferred(f"hopscope.studies.chains.proofs:analyse{'_twice' if read_again else ''}")
    rows = deferred("hopscope.studies.chains.proof_rows:measurements")
    return UnitAnalysis(files, work, rows)


def member_name(options: ChainsConfig, member: int) -> str:
    """A member by its seed, or by the seeds of its weights and its data."""
    return options.names[member]
