"""Claim R8 of the paper: statement, protocol, threshold, and who judges."""

from collections.abc import Sequence

from hopscope.claims import Claim, Judgement
from hopscope.studies.chains.evidence import Member
from hopscope.studies.chains.ledger import Entry, judged_entries
from hopscope.studies.emergence import judges
from hopscope.studies.emergence.config import EmergenceConfig

ENTRIES = (
    Entry(
        "R8",
        "A model of 24 layers without MLPs reaches an error of 0.031, 0.045 by its circuit alone, and its heads form "
        "in the order of the chain, the induction head first.",
        "paper §9",
        "independent seeds: final held-out loss; of those that learned the whole chain and were read, loss with every "
        "attention matrix replaced by its rule, neighbouring steps of the chain of which the later one's reads (of "
        "single tokens, without which it is the first target lost) had reached a mean attention of 0.5 first, and "
        "such reads of later steps that had before those of the first step had; ties within one interval between "
        "checkpoints count for the claim",
        judges.R8,
        judge=judges.r8,
    ),
)
"""The ledger of the study of emergence."""


def judge(members: Sequence[Member], config: EmergenceConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement."""
    return judged_entries(ENTRIES, members, config)
