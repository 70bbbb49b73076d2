"""Claims R1–R3, R9a, R9b and R11 of the paper: statement, protocol, threshold, and who judges."""

from dataclasses import dataclass

from hopscope.claims import Claim, Judgement, combine_readings
from hopscope.studies.depth import judges
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Reading
from hopscope.studies.depth.evidence import Evidences, of_reading
from hopscope.studies.depth.judges import Judge
from hopscope.studies.ledger import Statement

_MACHINERY = (
    "the task (held-out samples have a stream of their own, and every sample equals a plain reference), and the "
    "ensemble, tested against plain modules"
)


@dataclass(frozen=True)
class Entry(Statement):
    """A claim of the paper before it is judged.

    Attributes:
        judge: from evidence and configuration to a judgement.
        by_reading: whether it is judged under each reading of what the paper leaves open, or once.
    """

    judge: Judge = judges.r9a
    by_reading: bool = True
    trust: str = _MACHINERY


def judge(evidence: Evidences, config: DepthStudyConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim of the study with its judgement, in the order of the ledger."""
    judged = []
    for entry in ENTRIES:
        if entry.by_reading and len(config.readings()) > 1:
            judgement = combine_readings(by_reading(entry, evidence, config))
        else:
            judgement = entry.judge(evidence, config)
        judged.append((entry.judged(judgement), judgement))
    return judged


def by_reading(entry: Entry, evidence: Evidences, config: DepthStudyConfig) -> dict[str, Judgement]:
    """The judgement of one claim under each reading, the study's own first."""
    return {
        reading_name(reading): entry.judge(of_reading(evidence, reading), config)
        for reading in config.readings()
    }


def reading_name(reading: Reading) -> str:
    """What a reading is called in the ledger."""
    return reading.words or "as configured"


ENTRIES = (
    Entry(
        "R1",
        "Without the implicit curriculum no depth learns to retrieve over three steps.",
        "paper §7.2",
        "final held-out loss (mean over the last 100 steps) of every model that is asked for x_D alone, all depths",
        judges.R1,
        judge=judges.r1,
    ),
    Entry(
        "R2",
        "Later positions of the chain need more layers.",
        "paper §7.2",
        "by seed: the smallest number of layers with a final partial loss of x_k under 0.5, and how it changes from "
        "k to k + 1 and from 1 to D; a step that no depth learns counts one layer more than the deepest model",
        judges.R2,
        judge=judges.r2,
    ),
    Entry(
        "R3",
        "In every run the partial losses fall under 0.5 in the order of the chain.",
        "paper §7.2",
        "first crossing of 0.5 of each held-out partial loss: number of neighbours k, k + 1 of which the later one "
        "came first; ties within one evaluation interval count for the claim, steps never learned as later than all "
        "others",
        judges.R3,
        judge=judges.r3,
    ),
    Entry(
        "R9a",
        "At least log₃(2D) layers are needed.",
        "paper §5, theorem 1",
        "exact minimum of layers in the same information-flow model minus log₃(2D), for D up to "
        f"{judges.THEORY_STEPS}, with and without a causal mask, pairs deepest first and shallowest first",
        judges.R9A,
        judge=judges.r9a,
        by_reading=False,
        trust="the exact minimum, tested against brute force over all orders of the pairs",
    ),
    Entry(
        "R9b",
        "No trained model with fewer layers than log₃(2D) learns the last symbol, x_D.",
        "paper §5, §7",
        "final partial loss of x_D in every IC run with fewer layers than the bound, over all D",
        judges.R9B,
        judge=judges.r9b,
    ),
    Entry(
        "R11",
        "Emergence is no mirage: with depth, skill jumps on a continuous metric too.",
        "paper §10.1",
        "by seed: largest gain of 1 minus the partial loss from one depth to the next, as a share of its range over "
        "all depths, mean over the steps that are learned at some depth",
        judges.R11,
        judge=judges.r11,
    ),
)
"""The ledger of the depth study."""
