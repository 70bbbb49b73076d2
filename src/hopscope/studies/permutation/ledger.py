"""Claims P1–P11 of the presentation, judged from the evidence by the rules of `hopscope.claims`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hopscope.claims import (
    Claim,
    Criterion,
    Judgement,
    combine_parts,
    combine_readings,
    judge_always,
    judge_mean,
    not_run,
)
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.theory.posteriors import elimination_floor

Evidences = Mapping[str, Evidence]

_MACHINERY = (
    "the split (held-out mappings never enter a training batch), the exhaustive evaluation sets, and the ensemble, "
    "each tested against a slow reference"
)
_LATER = "no protocol for it has been run"


def _fraction(**bound: float | tuple[float, float]) -> Criterion:
    return Criterion.model_validate({**bound, "unit": "fraction"})


@dataclass(frozen=True)
class Entry:
    """A claim before it is judged.

    Attributes:
        id, statement, source, protocol, trust: as in `Claim`.
        thresholds: one criterion, or several named ones.
        judge: from evidence, config and thresholds to a judgement; `None` where nothing is measured for it.
    """

    id: str
    statement: str
    source: str
    protocol: str
    thresholds: Criterion | dict[str, Criterion]
    trust: str = _MACHINERY
    judge: Callable[[Evidences, PermutationStudyConfig], Judgement] | None = None


def judge(evidence: Evidences, config: PermutationStudyConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim of the study with its judgement, in the order of the ledger."""
    judged = []
    for entry in entries(config):
        judgement = not_run(_LATER)
        if entry.judge is not None:
            # The source does not state the batch size: a refutation holds for the readings that were tried.
            judgement = combine_readings({config.reading(config.batch_size): entry.judge(evidence, config)})
        claim = Claim.judged(
            judgement,
            id=entry.id,
            statement=entry.statement,
            source=entry.source,
            protocol=entry.protocol,
            threshold=entry.thresholds,
            trust=entry.trust,
        )
        judged.append((claim, judgement))
    return judged


def _always(evidence: Evidences, name: str, probe: str, criterion: Criterion) -> Judgement:
    """Every seed of a configuration must meet the criterion; frozen seeds stop the claim from being decided."""
    found = evidence.get(name)
    if found is None:
        return not_run("not trained in this run")
    values = found.healthy(probe)
    if not values:
        return not_run("every seed diverged")
    return judge_always(
        values,
        criterion,
        source_n=1,
        at_scale=not _missing(found),
        missing=_missing(found),
    )


def _mean(evidence: Evidences, name: str, values: list[float], criterion: Criterion) -> Judgement:
    found = evidence[name]
    return judge_mean(values, criterion, at_scale=not _missing(found), missing=_missing(found))


def _missing(found: Evidence) -> str:
    frozen = [f"{len(found.frozen)} diverged seeds left out"] if found.frozen else []
    sampled = [] if found.exhaustive else ["measured on a part of the held-out sequences"]
    return ", ".join([*found.departures, *frozen, *sampled])


P1 = _fraction(at_least=0.999)
P2 = {"recall": _fraction(at_most=0.01), "mass_unused": _fraction(at_least=0.99)}
P3 = {
    "elimination": _fraction(at_least=0.999),
    "recall": _fraction(at_least=0.999),
    "mass_recalled": _fraction(at_least=0.99),
}
P4_TOLERANCE = 0.003
P8 = {
    "d16/1 repeats": _fraction(at_most=0.05),
    "d32/1 repeats": _fraction(between=(0.1, 0.9)),
    "d32/2 repeats": _fraction(at_least=0.99),
}


def _judge_p1(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    return _always(evidence, "d16/1 plain", "elimination", P1)


def _judge_p2(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    return combine_parts(
        {name: _always(evidence, "d16/1 plain", name, criterion) for name, criterion in P2.items()}
    )


def _judge_p3(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    return combine_parts(
        {name: _always(evidence, "d32/2 repeats", name, criterion) for name, criterion in P3.items()}
    )


def _p4_thresholds(config: PermutationStudyConfig) -> dict[str, Criterion]:
    floor = elimination_floor(config.values)
    within = Criterion(between=(floor - P4_TOLERANCE, floor + P4_TOLERANCE), unit="nats")
    return {"d16/1 plain": within, "d32/2 repeats": within}


def _judge_p4(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    floor = elimination_floor(config.values)
    parts = {}
    for name, criterion in _p4_thresholds(config).items():
        if name not in evidence:
            parts[name] = not_run("not trained in this run")
            continue
        losses = evidence[name].healthy_losses()
        if not losses:
            parts[name] = not_run("every seed diverged")
            continue
        judgement = _mean(evidence, name, losses, criterion)
        distance = sum(losses) / len(losses) - floor
        side = "below" if distance < 0 else "above"
        words = f"{judgement.words}; {abs(distance):.4f} nats {side} the floor"
        parts[name] = judgement.model_copy(update={"words": words})
    return combine_parts(parts)


def _judge_p8(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    parts = {}
    for name, criterion in P8.items():
        if name == "d32/1 repeats" and name in evidence:
            parts[name] = _mean(evidence, name, evidence[name].healthy("recall"), criterion)
        else:
            parts[name] = _always(evidence, name, "recall", criterion)
    return combine_parts(parts)


def entries(config: PermutationStudyConfig) -> list[Entry]:
    """The ledger of the presentation."""
    return [
        Entry(
            "P1",
            "A model with width 16 and one head, trained on plain data, answers step 5 of unseen mappings perfectly.",
            "presentation §6",
            "accuracy at step 5 over all held-out sequences, last checkpoint, every seed",
            P1,
            judge=_judge_p1,
        ),
        Entry(
            "P2",
            "That model fails every repeat probe: it picks the unused value instead of the one it has seen.",
            "presentation §7",
            "all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused value",
            P2,
            judge=_judge_p2,
        ),
        Entry(
            "P3",
            "Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.",
            "presentation §8–9",
            "accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of the "
            "recalled value",
            P3,
            judge=_judge_p3,
        ),
        Entry(
            "P4",
            "The training loss of both models settles at the floor of pure elimination, ln(V!)/V.",
            "presentation §4, §8",
            "mean training loss over the last epoch",
            _p4_thresholds(config),
            judge=_judge_p4,
        ),
        Entry(
            "P5",
            "Recall appears suddenly, as a phase transition.",
            "presentation §8",
            "10–90 % rise of recall as a share of the time to 50 %, over seeds",
            Criterion(at_most=0.25),
        ),
        Entry(
            "P6",
            "The probabilities are those of the Bayesian posterior; used values get none.",
            "presentation §6, §9",
            "mean absolute error by step against the uniform posterior; mass on used values at steps 2–4",
            {"mae": Criterion(at_most=0.025), "mass_on_used": _fraction(at_most=0.005)},
        ),
        Entry(
            "P7",
            "Accuracy below chance at steps 1–4 is only uncertainty.",
            "presentation §6",
            "refuted if the tilt of the probabilities correlates with training counts and training accuracy exceeds "
            "held-out accuracy",
            {"tilt_correlation": Criterion(at_most=0.0), "train_minus_held_out": Criterion(at_most=0.0)},
        ),
        Entry(
            "P8",
            "Trained with repeats, width 16 with one head never recalls, width 32 with one head partly, two fully.",
            "presentation §5",
            "recall over all held-out repeats, by configuration",
            P8,
            judge=_judge_p8,
        ),
        Entry(
            "P9",
            "One head eliminates and the other recalls, in every seed.",
            "presentation §10",
            "mean-ablate each head: points of recall and of elimination lost",
            {"recall_lost": _fraction(at_least=0.5), "elimination_lost": _fraction(at_most=0.1)},
        ),
        Entry(
            "P10a",
            "Recall needs the feed-forward network.",
            "presentation §11",
            "mean-ablate the feed-forward network: points of recall and of elimination lost",
            {"recall_lost": _fraction(at_least=0.5), "elimination_lost": _fraction(at_most=0.15)},
        ),
        Entry(
            "P10b",
            "The local binding in the y rows is what recall uses.",
            "presentation §11",
            "change the attention patterns of rows 0–7 and see whether the answer at row 8 changes at all",
            Criterion(at_least=1e-6),
        ),
        Entry(
            "P11",
            "Four values can be memorised, five cannot.",
            "presentation §2",
            "share of the way from the uniform to the memorised floor, at V = 4 and V = 5",
            {"V = 4": Criterion(at_least=0.5), "V = 5": Criterion(at_most=0.1)},
        ),
    ]
