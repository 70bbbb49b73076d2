"""Claims P1–P11 of the presentation: which number of which configuration is held to what.

Every value is read from the evidence table.  What the presentation leaves open is run in several readings: the batch
size, and for P5 from where the rise of recall is taken; the first is the default.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least, at_most, between
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.theory.posteriors import elimination_floor

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

Value = Callable[["Evidence"], "Samples | Mapping[str, Samples]"]

PLAIN, RECALLING = "d16/1 plain", "d32/2 repeats"
"""The two configurations that the presentation shows results of."""

MEMORISING = {"V = 4": "d32/2 plain V=4", "V = 5": "d32/2 plain"}
"""The configurations of P11: the number of values is no departure from the protocol there."""

REPLACED_PATTERNS = [
    f"earlier_rows.{by}.{kind}" for by in ("uniform", "identity", "random") for kind in ("repeats", "plain")
]
"""Parts of P10b, of which the largest counts: what replaces the patterns, and on which sequences."""

P2 = {"recall": at_most(0.01, "fraction"), "mass_unused": at_least(0.99, "fraction")}
P3 = {
    "elimination": at_least(0.999, "fraction"),
    "recall": at_least(0.999, "fraction"),
    "mass_recalled": at_least(0.99, "fraction"),
}
P4_TOLERANCE = 0.003
P6 = {
    f"{measure} {name}": criterion
    for name in (PLAIN, RECALLING)
    for measure, criterion in (("mae", at_most(0.025)), ("mass_on_used", at_most(0.005, "fraction")))
}
P7 = {"tilt_correlation": at_most(0.0), "train_minus_held_out": at_most(0.0, "fraction")}
P8 = {
    "d16/1 repeats": at_most(0.05, "fraction"),
    "d32/1 repeats": between(0.1, 0.9, "fraction"),
    "d32/2 repeats": at_least(0.99, "fraction"),
}
P9 = {
    "recall_lost_with_recall_head": at_least(0.5, "fraction"),
    "elimination_lost_with_recall_head": at_most(0.1, "fraction"),
    "elimination_lost_with_elimination_head": at_least(0.5, "fraction"),
    "recall_lost_with_elimination_head": at_most(0.1, "fraction"),
}

_MACHINERY = (
    "the split (held-out mappings never enter a training batch), the exhaustive evaluation sets, and the ensemble, "
    "each tested against a slow reference"
)
_INTERVENTIONS = (
    f"{_MACHINERY}; the interventions, tested against plain loops and on hand-built models whose answers are "
    "known"
)


def claims(config: PermutationStudyConfig) -> tuple[Claim, ...]:
    """The ledger of the presentation."""

    def readings(ways: Value | Mapping[str, Value]) -> dict[str, Value]:
        named = ways if isinstance(ways, Mapping) else {"": ways}
        return {
            ", ".join(filter(None, [config.reading(size), way])): partial(of_batch, size, value)
            for size in config.batch_sizes()
            for way, value in named.items()
        }

    floor = elimination_floor(config.values)
    at_floor = between(floor - P4_TOLERANCE, floor + P4_TOLERANCE, "nats")
    claim = partial(Claim, trust=_MACHINERY)
    return (
        claim(
            id="P1",
            statement="A model with width 16 and one head, trained on plain data, answers step 5 of unseen mappings "
            "perfectly.",
            source="presentation §6",
            protocol="accuracy at step 5 over all held-out sequences, last checkpoint, every seed",
            readings=readings(lambda evidence: measured(evidence, PLAIN, "elimination", "probes")),
            must=at_least(0.999, "fraction"),
            rule="always",
        ),
        claim(
            id="P2",
            statement="That model fails every repeat probe: it picks the unused value instead of the one it has seen.",
            source="presentation §7",
            protocol="all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused "
            "value",
            readings=readings(partial(each_metric, tuple(P2), PLAIN, "probes")),
            must=P2,
            rule="always",
        ),
        claim(
            id="P3",
            statement="Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.",
            source="presentation §8–9",
            protocol="accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of "
            "the recalled value",
            readings=readings(partial(each_metric, tuple(P3), RECALLING, "probes")),
            must=P3,
            rule="always",
        ),
        claim(
            id="P4",
            statement="The training loss of both models settles at the floor of pure elimination, ln(V!)/V.",
            source="presentation §4, §8",
            protocol="mean training loss over the last epoch",
            readings=readings(p4),
            must={PLAIN: at_floor, RECALLING: at_floor},
            rule="mean",
        ),
        claim(
            id="P5",
            statement="Recall appears suddenly, as a phase transition.",
            source="presentation §8",
            protocol="time from 10 % to 90 % of the rise of held-out recall as a share of the time to 50 %, over "
            "seeds; the rise is taken from zero, and, as another reading, from 1/(V - 1), which noticing a repeat "
            "brings without recall",
            readings=readings(
                {
                    f"rise from {level}": partial(suddenness, part=f"from_{level}")
                    for level in ("zero", "chance")
                }
            ),
            must=at_most(0.25, "fraction"),
            rule="mean",
        ),
        claim(
            id="P6",
            statement="The probabilities are those of the Bayesian posterior; used values get none.",
            source="presentation §6, §9",
            protocol="mean absolute error against the uniform posterior, at the worst step of each seed; mean mass on "
            "used values at the worst of steps 2–4; all held-out sequences without a repeat",
            readings=readings(p6),
            must=P6,
            rule="mean",
        ),
        claim(
            id="P7",
            statement="Accuracy below chance at steps 1–4 is only uncertainty.",
            source="presentation §6",
            protocol="refuted if both are above zero: the correlation, over held-out prefixes and free values, of the "
            "model's tilt away from the uniform posterior with that of the training mappings, and accuracy on training "
            "minus on held-out mappings, steps 1–4",
            readings=readings(partial(each_metric, tuple(P7), PLAIN, "posteriors")),
            must=P7,
            need="any",
            rule="mean",
        ),
        claim(
            id="P8",
            statement="Trained with repeats, width 16 with one head never recalls, width 32 with one head partly, two "
            "fully.",
            source="presentation §5",
            protocol="recall over all held-out repeats, by configuration",
            readings=readings(
                lambda evidence: {name: measured(evidence, name, "recall", "probes") for name in P8}
            ),
            must=P8,
            rule={name: "mean" if criterion.between else "always" for name, criterion in P8.items()},
        ),
        claim(
            id="P9",
            statement="One head eliminates and the other recalls, in every seed.",
            source="presentation §10",
            protocol="mean-ablate each head at the last row: what recall and elimination lose with the head that comes "
            "closest to being the recall head, and with the one that comes closest to being the elimination head",
            readings=readings(partial(each_metric, tuple(P9), RECALLING, "roles", part="assignment")),
            must=P9,
            rule="always",
            trust=_INTERVENTIONS,
        ),
        claim(
            id="P10a",
            statement="Recall needs the feed-forward network.",
            source="presentation §11",
            protocol="mean-ablate the feed-forward network at the last row: points of recall and of elimination lost",
            readings=readings(
                lambda evidence: {
                    f"{skill}_lost": measured(
                        evidence, RECALLING, skill, "battery", part="clean", less="mlp_ablation.mean"
                    )
                    for skill in ("recall", "elimination")
                }
            ),
            must={"recall_lost": at_least(0.5, "fraction"), "elimination_lost": at_most(0.15, "fraction")},
            rule="mean",
            trust=_INTERVENTIONS,
        ),
        claim(
            id="P10b",
            statement="The local binding in the y rows is what recall uses.",
            source="presentation §11",
            protocol="replace the attention patterns of all rows before the last (uniform, identity, random): largest "
            "change of any logit at the last row, over all sequences",
            readings=readings(
                lambda evidence: measured(
                    evidence, RECALLING, "last_row_change", "battery", part=REPLACED_PATTERNS
                )
            ),
            must=at_least(1e-6),
            rule="always",
            structural=True,
            trust=_INTERVENTIONS,
        ),
        claim(
            id="P11",
            statement="Four values can be memorised, five cannot.",
            source="presentation §2",
            protocol="width 32 with two heads on plain data, 20 epochs: share of the way from the uniform to the "
            "memorised floor that the loss on all training sequences has gone, at V = 4 and V = 5",
            readings=readings(
                lambda evidence: {
                    label: measured(
                        evidence, name, "memorised_share", "posteriors", split="train", any_values=True
                    )
                    for label, name in MEMORISING.items()
                }
            ),
            must={"V = 4": at_least(0.5, "fraction"), "V = 5": at_most(0.1, "fraction")},
            rule="mean",
        ),
    )


# Values, of members of one batch size.


def p4(evidence: "Evidence") -> dict[str, Samples]:
    """Training loss settles at the floor of elimination; the words say how far from it."""
    floor = elimination_floor(evidence.config["values"])

    def distance(losses: "pd.Series[float]") -> str:
        above = float(losses.mean()) - floor
        return f"{abs(above):.4f} nats {'below' if above < 0 else 'above'} the floor"

    return {
        name: measured(evidence, name, "last_epoch_loss", "last_epoch", split="train", note=distance)
        for name in (PLAIN, RECALLING)
    }


def suddenness(evidence: "Evidence", part: str) -> Samples:
    """Recall appears suddenly, if its rise is taken from zero, or from what noticing a repeat brings."""
    widths = measured(evidence, RECALLING, "relative_width", "transition", part=part)
    known = [width for width in widths.values if width is not None]
    if known and all(width == math.inf for width in known):
        return Samples([], note="no seed learned recall")
    return widths


def p6(evidence: "Evidence") -> dict[str, Samples]:
    """Probabilities are those of the posterior: the worst step of each seed."""
    steps = [f"step_{step}" for step in range(1, evidence.config["values"] + 1)]
    worst = (("mae", "mae_uniform", steps), ("mass_on_used", "used_mass_mean", steps[1:4]))
    return {
        f"{part} {name}": measured(evidence, name, metric, "posteriors", part=parts)
        for name in (PLAIN, RECALLING)
        for part, metric, parts in worst
    }


# What values are made of.


def of_batch(size: int, value: Value, evidence: "Evidence") -> Samples | Mapping[str, Samples]:
    """A value of those members alone that were trained with one batch size."""
    default = evidence.config["batch_size"]
    labels = {
        label
        for label in evidence.configurations.values()
        if (Configuration.parse(label).batch_size or default) == size
    }
    return value(evidence.where(configuration=labels))


def each_metric(
    metrics: Iterable[str], name: str, measure: str, evidence: "Evidence", **where: Any
) -> dict[str, Samples]:
    """Several metrics of a configuration."""
    return {metric: measured(evidence, name, metric, measure, **where) for metric in metrics}


def measured(
    evidence: "Evidence",
    name: str,
    metric: str,
    measure: str,
    *,
    part: str | Sequence[str] | None = None,
    split: str = "held_out",
    less: str | None = None,
    note: "Callable[[pd.Series[float]], str] | None" = None,
    any_values: bool = False,
) -> Samples:
    """A metric of a configuration at the end of training, with what the training lacks of the source's protocol.

    Args:
        evidence: of members of one batch size.
        name: of the configuration, without its batch size.
        metric, measure, part, split: which number; of several parts each member's largest.
        less: the part that is taken off.
        note: words about the numbers that there are.
        any_values: whether another number of values than the source's is no departure.
    """
    trained = {Configuration.parse(label): label for label in evidence.configurations.values()}
    of_name = {each: label for each, label in trained.items() if replace(each, batch_size=None).name == name}
    if not of_name:
        return Samples([], note="not trained in this run")
    configuration, label = of_name.popitem()
    found = evidence.where(configuration=label)
    values = last(found, metric, measure, part, split)
    taken_off = 0.0 if less is None else last(found, metric, measure, less, split)
    if values is None or taken_off is None:
        return Samples([], note="not measured")
    values = values - taken_off
    changed = replace(configuration, values=None) if any_values else configuration
    lacking = PermutationStudyConfig.model_validate(evidence.config).departures(changed)
    sets = [last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    if any(each is None or bool((each.dropna() != 1).any()) for each in sets):
        lacking.append("measured on a part of the held-out sequences")
    known = values.dropna()
    return Samples(values, missing=", ".join(lacking), note=note(known) if note and len(known) else "")


def last(
    found: "Evidence",
    metric: str,
    measure: str,
    part: str | Sequence[str] | None = None,
    split: str = "held_out",
) -> "pd.Series[float] | None":
    """Each member's last value of a metric, of several parts the largest; nothing where no member has it."""
    import pandas as pd

    if metric not in found:
        return None
    known = [
        found.last(metric, measure=measure, split=split, part=each)
        for each in ([part] if part is None or isinstance(part, str) else part)
        if not found.rows(metric, measure=measure, split=split, part=each).empty
    ]
    return pd.concat(known, axis=1).max(axis=1, skipna=False) if known else None
