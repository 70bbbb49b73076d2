"""How a model is read, and under what name a reading is on record.  Loads no torch."""

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from hopscope.config import Config
from hopscope.runs.hashing import content_hash

NOT_LEARNED, READ, UNEXPLAINED = "no circuit: above plateau", "read", "unexplained"
"""Verdicts on a model; the last with the reason behind it."""

LEARNED = 0.25
"""Loss of a part, as a share of its floor, under which it counts as learned; the floor of a step of a chain is 1."""

SEQUENCES = 32
"""Input sequences over which attention is averaged (paper, section 9.1)."""

FORMED = 0.5
"""Mean attention from which on a path counts as formed (paper, figure 7)."""

MOST_CIRCUITS = 12
"""See `ReaderConfig.most_circuits`."""

LEAST_EFFECT = 0.02
"""Rise of the loss from which on something counts as carried, or an input as used; a criterion may say otherwise."""

_REVISION = 6
"""Raised when the reader's results change: readings on record are then made anew."""


Proof = Literal["both", "rules"]
"""What a circuit must hold under: its rules and its own softmax recomputed, or its rules alone, as in the paper."""


class ReaderConfig(Config):
    """How a model is read.

    Attributes:
        threshold: τ; by default that of the task's criterion.
        proof: what a circuit must hold under: `both`, its rules and its own softmax recomputed; or `rules` alone, as in
            the paper (appendix E).  Rules alone keep no head that only shapes the keys of later ones.
        samples: sequences that the search uses (of each sort, where there are several); by default as many as suit
            the task.
        validation: fresh sequences for everything that is reported; likewise.
        orders: random orders of elimination.
        further_orders: at most so many more, one after another, as long as no circuit that was found is explained and
            holds on sequences drawn anew; the circuit is then chosen among those that do.
        most_circuits: searches, those of all orders among them, after which none is begun for a circuit without a path
            of the smallest one.
        random_circuits: of equal size, for comparison.
        searched: largest share of what may be lost that a search may use up, so that what it finds holds for fresh
            sequences too; less where the task's criterion says so.
        seed: of orders, random circuits and sequences.
    """

    threshold: float | None = None
    proof: Proof = "both"
    samples: int | None = None
    validation: int | None = None
    orders: int = 4
    further_orders: int = 0
    most_circuits: int = MOST_CIRCUITS
    random_circuits: int = 20
    searched: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = 0

    @property
    def modes(self) -> tuple[Literal["rules", "recomputed"], ...]:
        """The ways to run a circuit under which it must hold, by `proof`."""
        return ("rules",) if self.proof == "rules" else ("rules", "recomputed")

    def again(self, number: int) -> "ReaderConfig":
        """The same for a further reading, from 1: with other orders and other sequences, and without random circuits.

        Nothing but the minimal circuits of such a reading is compared.
        """
        return self.model_copy(update={"seed": self.seed + number, "random_circuits": 0})


def reads_one_token(target: str | None) -> bool:
    """Whether what a path reads, in words, is a single token: not all tokens of a role alike, and no mixture."""
    return target is not None and target != "" and not target.startswith("all ") and " + " not in target


def reading_name(member: int, config: ReaderConfig) -> str:
    """Name of the analysis that holds a member's reading."""
    # A reading in the usual way keeps the name that it had before there were these choices.
    usual = {"most_circuits": MOST_CIRCUITS, "further_orders": 0, "proof": "both", "searched": 1.0}
    asked = config.model_dump(mode="json")
    words = {name: value for name, value in asked.items() if name not in usual or value != usual[name]}
    return f"circuit-{member}-{content_hash([_REVISION, words])}"


def formation_name(member: int) -> str:
    """Name of the analysis that follows a member's paths through training."""
    return f"formation-{member}"


def maps_name(member: int) -> str:
    """Name of the analysis that holds a member's attention maps."""
    return f"maps-{member}"


def followed_names(members: Iterable[int], config: ReaderConfig) -> dict[str, str]:
    """Every analysis of the circuits of some members, with the kind of its file."""
    found: dict[str, str] = {}
    for member in members:
        found |= {
            reading_name(member, config): "json",
            formation_name(member): "json",
            maps_name(member): "npz",
        }
    return found


def spaced(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of some steps, evenly spaced, the first and the last among them."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
