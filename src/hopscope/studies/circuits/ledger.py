"""Claims R4 to R7 of the paper: statement, protocol, threshold, and who judges."""

from collections.abc import Sequence

from hopscope.claims import Claim, Judgement
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.chains.ledger import Entry, judged_entries
from hopscope.studies.circuits import judges

ENTRIES = (
    Entry(
        "R4",
        "Models of 12 layers with one head each follow a chain of three steps with a squared error under 0.01.",
        "paper §8.2",
        "final held-out loss (mean over the last 100 steps) of every member",
        judges.R4,
        judge=judges.r4,
    ),
    Entry(
        "R5",
        "Only a few heads do anything useful, and the first of them links the two tokens of a pair.",
        "paper §8.2",
        "of members that learned the whole chain and were read: heads with a path in the smallest circuit, also one "
        "that only a mean map describes (of 12 in the paper), and whether the first of them that reads a single "
        "token joins the tokens of a pair",
        judges.R5,
        judge=judges.r5,
    ),
    Entry(
        "R6",
        "Seeds learn different circuits, and none uses the least number of heads.",
        "paper §8.2",
        "of the same members: share of pairs whose smallest circuits do different reads (members resampled), and the "
        "heads of its circuit minus the exact minimum (3 for D = 3), two heads that could be merged counted as one",
        judges.R6,
        judge=judges.r6,
    ),
    Entry(
        "R7",
        "The circuit alone keeps the error under 0.05; without one of its paths it is 0.17 to 0.89, or 0.05 to 0.1 "
        "without the first head.",
        "paper, appendix E",
        "of the same members, on 256 fresh sequences, every attention matrix replaced by its rule (the paper's mode): "
        "loss of the whole circuit, and with one read of a single token made uniform; of the first head that does "
        "such a read, the costliest",
        judges.R7,
        judge=judges.r7,
    ),
)
"""The ledger of the study of circuits."""


def judge(members: Sequence[Member], config: ChainsConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement."""
    return judged_entries(ENTRIES, members, config)
