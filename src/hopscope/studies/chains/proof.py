"""By what a circuit is proven, and under what names that is on record.  Loads no torch."""

from typing import Literal

from hopscope.circuits.config import ReaderConfig
from hopscope.studies.chains.config import ChainsConfig

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
