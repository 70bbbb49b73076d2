"""By what a circuit is proven, and under what names that is on record.  Loads no torch."""

from typing import TYPE_CHECKING, Any, Literal

from hopscope.circuits.config import ReaderConfig, reading_name
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.circuit_study.config import ChainsConfig

if TYPE_CHECKING:
    from hopscope.training.config import UnitPlan

Proof = Literal["both", "rules"]
PROOFS: tuple[Proof, ...] = ("both", "rules")
"""What a circuit must hold under (`ReaderConfig.proof`): every member is read by each."""

PREFIX: dict[Proof, str] = {"both": "", "rules": "rules_"}
"""Begins the names of metrics of a circuit that was found under each proof."""


def reader_of(config: ChainsConfig, proof: Proof, *, again: bool = False) -> ReaderConfig:
    """How members are read.

    Args:
        config: of the study.
        proof: what a circuit must hold under.
        again: with other orders and other sequences, so that differences between seeds can stand beside those between
            two readings of one member.
    """
    return config.reader().model_copy(update={"proof": proof, "seed": int(again)})


def proofs_name(member: int) -> str:
    """Name of the analysis that holds what both proofs say of a member."""
    return f"proofs-{member}"


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

    def work(*given: Any) -> None:
        from hopscope.studies.circuit_study.proofs import analyse

        analyse(*given, read_again=read_again)

    return UnitAnalysis(files, work, deferred("hopscope.studies.circuit_study.proof_rows:measurements"))
