"""Claims P1–P11 of the presentation: statement, protocol, threshold, and who judges."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopscope.claims import Claim, Judgement, combine_readings
from hopscope.studies.ledger import Statement
from hopscope.studies.permutation import judges
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.judges import Evidences, Judge

_MACHINERY = (
    "the split (held-out mappings never enter a training batch), the exhaustive evaluation sets, and the ensemble, "
    "each tested against a slow reference"
)
_INTERVENTIONS = (
    f"{_MACHINERY}; the interventions, tested against plain loops and on hand-built models whose answers are "
    "known"
)


@dataclass(frozen=True)
class Entry(Statement):
    """A claim of the presentation before it is judged.

    Attributes:
        judge: from evidence and configuration to a judgement.
        readings: further ways to read what the source leaves open, beside the batch size; the first is the default.
    """

    judge: Judge | None = None
    readings: Mapping[str, Judge] = field(default_factory=dict)
    trust: str = _MACHINERY


def judge(evidence: Evidences, config: PermutationStudyConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim of the study with its judgement, in the order of the ledger."""
    by_batch = {size: of_batch(evidence, config, size) for size in config.batch_sizes()}
    judged = []
    for entry in entries(config):
        judgement = combine_readings(
            {
                ", ".join(filter(None, [config.reading(size), name])): judge(found, config)
                for size, found in by_batch.items()
                for name, judge in _ways(entry).items()
            }
        )
        claim = entry.judged(judgement)
        judged.append((claim, judgement))
    return judged


def _ways(entry: Entry) -> Mapping[str, Judge]:
    return entry.readings if entry.judge is None else {"": entry.judge}


def of_batch(evidence: Evidences, config: PermutationStudyConfig, size: int) -> Evidences:
    """What was trained with one batch size, under the names of the same configurations without it."""
    chosen = {}
    for found in evidence.values():
        if (found.configuration.batch_size or config.batch_size) == size:
            chosen[found.configuration.of_batch(None).name] = found
    return chosen


def entries(config: PermutationStudyConfig) -> list[Entry]:
    """The ledger of the presentation."""
    return [
        Entry(
            "P1",
            "A model with width 16 and one head, trained on plain data, answers step 5 of unseen mappings perfectly.",
            "presentation §6",
            "accuracy at step 5 over all held-out sequences, last checkpoint, every seed",
            judges.P1,
            judge=judges.p1,
        ),
        Entry(
            "P2",
            "That model fails every repeat probe: it picks the unused value instead of the one it has seen.",
            "presentation §7",
            "all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused value",
            judges.P2,
            judge=judges.p2,
        ),
        Entry(
            "P3",
            "Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.",
            "presentation §8–9",
            "accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of the "
            "recalled value",
            judges.P3,
            judge=judges.p3,
        ),
        Entry(
            "P4",
            "The training loss of both models settles at the floor of pure elimination, ln(V!)/V.",
            "presentation §4, §8",
            "mean training loss over the last epoch",
            judges.p4_thresholds(config),
            judge=judges.p4,
        ),
        Entry(
            "P5",
            "Recall appears suddenly, as a phase transition.",
            "presentation §8",
            "time from 10 % to 90 % of the rise of held-out recall as a share of the time to 50 %, over seeds; the "
            "rise is taken from zero, and, as another reading, from 1/(V - 1), which noticing a repeat "
            "brings without recall",
            judges.P5,
            readings={"rise from zero": judges.p5("from_zero"), "rise from chance": judges.p5("from_chance")},
        ),
        Entry(
            "P6",
            "The probabilities are those of the Bayesian posterior; used values get none.",
            "presentation §6, §9",
            "mean absolute error against the uniform posterior, at the worst step of each seed; mean mass on used "
            "values at the worst of steps 2–4; all held-out sequences without a repeat",
            judges.P6,
            judge=judges.p6,
        ),
        Entry(
            "P7",
            "Accuracy below chance at steps 1–4 is only uncertainty.",
            "presentation §6",
            "refuted if both are above zero: the correlation, over held-out prefixes and free values, of the model's "
            "tilt away from the uniform posterior with that of the training mappings, and accuracy on training minus "
            "on held-out mappings, steps 1–4",
            judges.P7,
            judge=judges.p7,
        ),
        Entry(
            "P8",
            "Trained with repeats, width 16 with one head never recalls, width 32 with one head partly, two fully.",
            "presentation §5",
            "recall over all held-out repeats, by configuration",
            judges.P8,
            judge=judges.p8,
        ),
        Entry(
            "P9",
            "One head eliminates and the other recalls, in every seed.",
            "presentation §10",
            "mean-ablate each head at the last row: what recall and elimination lose with the head that comes closest "
            "to being the recall head, and with the one that comes closest to being the elimination head",
            judges.P9,
            judge=judges.p9,
            trust=_INTERVENTIONS,
        ),
        Entry(
            "P10a",
            "Recall needs the feed-forward network.",
            "presentation §11",
            "mean-ablate the feed-forward network at the last row: points of recall and of elimination lost",
            judges.P10A,
            judge=judges.p10a,
            trust=_INTERVENTIONS,
        ),
        Entry(
            "P10b",
            "The local binding in the y rows is what recall uses.",
            "presentation §11",
            "replace the attention patterns of all rows before the last (uniform, identity, random): largest change of "
            "any logit at the last row, over all sequences",
            judges.P10B,
            judge=judges.p10b,
            trust=_INTERVENTIONS,
        ),
        Entry(
            "P11",
            "Four values can be memorised, five cannot.",
            "presentation §2",
            "width 32 with two heads on plain data, 20 epochs: share of the way from the uniform to the memorised "
            "floor that the loss on all training sequences has gone, at V = 4 and V = 5",
            judges.P11,
            judge=judges.p11,
        ),
    ]
