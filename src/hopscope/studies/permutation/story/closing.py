"""The end of the page: what was confirmed, what was not, and why, claim by claim."""

from collections.abc import Sequence

from hopscope.claims import JudgedClaim, Verdict
from hopscope.studies.blocks import Block, section, table, text

WHY: dict[str, tuple[Verdict, str]] = {
    "P1": (Verdict.REPRODUCED, "Elimination is easy: one head that weighs all y alike is enough."),
    "P2": (Verdict.REPRODUCED, "Plain data never reward recall, so nothing of it is learned."),
    "P3": (
        Verdict.REFUTED,
        "Recall is learned, but under a constant learning rate it does not stay perfect at every moment.",
    ),
    "P4": (
        Verdict.REPRODUCED,
        "An ideal observer pays as much with repeats as without: the loss cannot tell the two models apart.",
    ),
    "P5": (
        Verdict.REPRODUCED,
        "Recall comes in two steps, noticing a repeat and telling the pairs apart; seeds differ in how long they take.",
    ),
    "P6": (
        Verdict.REPRODUCED,
        "The models rule out used values; what they make of the others leans towards the training mappings.",
    ),
    "P7": (
        Verdict.REFUTED,
        "The models lean towards the counts of their training mappings; the held-out ones are what those leave out.",
    ),
    "P8": (
        Verdict.REFUTED,
        "Noticing a repeat is not recalling: at chance, recall is not zero. Width decides more than heads do.",
    ),
    "P9": (
        Verdict.REFUTED,
        "Recall needs both what the match brings and what the history brings; a head may serve both skills.",
    ),
    "P10a": (Verdict.REPRODUCED, "The feed-forward network selects the y that the pointer names."),
    "P10b": (
        Verdict.REFUTED,
        "In one layer the last position reads embeddings, never what other positions computed.",
    ),
    "P11": (
        Verdict.REFUTED,
        "What counts is how much the few pairs shown tell about which training mapping it is.",
    ),
}
"""What lies behind each claim, and the verdict that it explains: a run with another verdict says nothing of it."""


def _why(claim: JudgedClaim) -> str:
    verdict, words = WHY.get(claim.id, (None, ""))
    return words if claim.verdict is verdict else ""


def closing_section(ledger: Sequence[JudgedClaim]) -> Block:
    """One line for each claim that was run."""
    order = (Verdict.REPRODUCED, Verdict.REFUTED, Verdict.INCONCLUSIVE)
    rows = [
        [claim.verdict.value, claim.id, claim.statement, _why(claim)]
        for verdict in order
        for claim in ledger
        if claim.verdict is verdict
    ]
    return (
        section(
            "closing",
            "What was confirmed, what was not, and why",
            text(
                "The same claims once more, in the order of their verdicts. The last column is our reading of what "
                "lies behind a verdict; it stays empty where this run came to another one."
            ),
            table(["verdict", "claim", "what the source says", "what lies behind it"], rows, ""),
        )
        if rows
        else section(
            "closing", "What was confirmed, what was not, and why", text("This run is too small to say.")
        )
    )
