"""Claims P1–P11 of the presentation: which number of which configuration is held to what.

Every value is read from the evidence table.  What the presentation leaves open is run in several readings: the batch
size, and for P5 from where the rise of recall is taken; the first is the default.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Criterion, Samples, at_least, at_most, between
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.theory.posteriors import elimination_floor

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

Value = Callable[["Evidence"], "Samples | Mapping[str, Samples]"]
Numbers = Callable[["Evidence"], "pd.Series[float] | None"]
"""One number for each member, or nothing where it was not measured."""

PLAIN, RECALLING = "d16/1 plain", "d32/2 repeats"
"""The two configurations that the presentation shows results of."""

FOUR_VALUES, FIVE_VALUES = "d32/2 plain V=4", "d32/2 plain"

P1 = at_least(0.999, "fraction")
P2 = {"recall": at_most(0.01, "fraction"), "mass_unused": at_least(0.99, "fraction")}
P3 = {
    "elimination": at_least(0.999, "fraction"),
    "recall": at_least(0.999, "fraction"),
    "mass_recalled": at_least(0.99, "fraction"),
}
P4_TOLERANCE = 0.003
P5 = at_most(0.25, "fraction")
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
P10A = {"recall_lost": at_least(0.5, "fraction"), "elimination_lost": at_most(0.15, "fraction")}
P10B = at_least(1e-6)
P11 = {"V = 4": at_least(0.5, "fraction"), "V = 5": at_most(0.1, "fraction")}

_MACHINERY = (
    "the split (held-out mappings never enter a training batch), the exhaustive evaluation sets, and the ensemble, "
    "each tested against a slow reference"
)
_INTERVENTIONS = (
    f"{_MACHINERY}; the interventions, tested against plain loops and on hand-built models whose answers are "
    "known"
)


def p4_thresholds(values: int) -> dict[str, Criterion]:
    """Around the floor of elimination."""
    floor = elimination_floor(values)
    within = between(floor - P4_TOLERANCE, floor + P4_TOLERANCE, "nats")
    return {PLAIN: within, RECALLING: within}


def claims(config: PermutationStudyConfig) -> tuple[Claim, ...]:
    """The ledger of the presentation."""

    def readings(ways: Value | Mapping[str, Value]) -> dict[str, Value]:
        named = ways if isinstance(ways, Mapping) else {"": ways}
        return {
            ", ".join(filter(None, [config.reading(size), way])): of_batch(value, size)
            for size in config.batch_sizes()
            for way, value in named.items()
        }

    claim = partial(Claim, trust=_MACHINERY)
    return (
        claim(
            id="P1",
            statement="A model with width 16 and one head, trained on plain data, answers step 5 of unseen mappings "
            "perfectly.",
            source="presentation §6",
            protocol="accuracy at step 5 over all held-out sequences, last checkpoint, every seed",
            readings=readings(p1),
            must=P1,
            rule="always",
        ),
        claim(
            id="P2",
            statement="That model fails every repeat probe: it picks the unused value instead of the one it has seen.",
            source="presentation §7",
            protocol="all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused "
            "value",
            readings=readings(p2),
            must=P2,
            rule="always",
        ),
        claim(
            id="P3",
            statement="Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.",
            source="presentation §8–9",
            protocol="accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of "
            "the recalled value",
            readings=readings(p3),
            must=P3,
            rule="always",
        ),
        claim(
            id="P4",
            statement="The training loss of both models settles at the floor of pure elimination, ln(V!)/V.",
            source="presentation §4, §8",
            protocol="mean training loss over the last epoch",
            readings=readings(p4),
            must=p4_thresholds(config.values),
            rule="mean",
        ),
        claim(
            id="P5",
            statement="Recall appears suddenly, as a phase transition.",
            source="presentation §8",
            protocol="time from 10 % to 90 % of the rise of held-out recall as a share of the time to 50 %, over "
            "seeds; the rise is taken from zero, and, as another reading, from 1/(V - 1), which noticing a repeat "
            "brings without recall",
            readings=readings({"rise from zero": p5_from_zero, "rise from chance": p5_from_chance}),
            must=P5,
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
            readings=readings(p7),
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
            readings=readings(p8),
            must=P8,
            rule={name: "mean" if criterion.between else "always" for name, criterion in P8.items()},
        ),
        claim(
            id="P9",
            statement="One head eliminates and the other recalls, in every seed.",
            source="presentation §10",
            protocol="mean-ablate each head at the last row: what recall and elimination lose with the head that comes "
            "closest to being the recall head, and with the one that comes closest to being the elimination head",
            readings=readings(p9),
            must=P9,
            rule="always",
            trust=_INTERVENTIONS,
        ),
        claim(
            id="P10a",
            statement="Recall needs the feed-forward network.",
            source="presentation §11",
            protocol="mean-ablate the feed-forward network at the last row: points of recall and of elimination lost",
            readings=readings(p10a),
            must=P10A,
            rule="mean",
            trust=_INTERVENTIONS,
        ),
        claim(
            id="P10b",
            statement="The local binding in the y rows is what recall uses.",
            source="presentation §11",
            protocol="replace the attention patterns of all rows before the last (uniform, identity, random): largest "
            "change of any logit at the last row, over all sequences",
            readings=readings(p10b),
            must=P10B,
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
            readings=readings(p11),
            must=P11,
            rule="mean",
        ),
    )


# Values, of members of one batch size.


def p1(evidence: "Evidence") -> Samples:
    """Elimination is perfect in every seed."""
    return measured(evidence, PLAIN, "elimination", "probes")


def p2(evidence: "Evidence") -> dict[str, Samples]:
    """The plain model never recalls."""
    return {metric: measured(evidence, PLAIN, metric, "probes") for metric in P2}


def p3(evidence: "Evidence") -> dict[str, Samples]:
    """The model with two heads and repeats has both skills in every seed."""
    return {metric: measured(evidence, RECALLING, metric, "probes") for metric in P3}


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


def p5_from_zero(evidence: "Evidence") -> Samples:
    """Recall appears suddenly, if its rise is taken from zero."""
    return _suddenness(evidence, "from_zero")


def p5_from_chance(evidence: "Evidence") -> Samples:
    """Recall appears suddenly, if its rise is taken from what noticing a repeat brings."""
    return _suddenness(evidence, "from_chance")


def _suddenness(evidence: "Evidence", level: str) -> Samples:
    widths = measured(evidence, RECALLING, "relative_width", "transition", part=level)
    known = [width for width in widths.values if width is not None]
    if known and all(width == math.inf for width in known):
        return Samples([], note="no seed learned recall")
    return widths


def p6(evidence: "Evidence") -> dict[str, Samples]:
    """Probabilities are those of the posterior: the worst step of each seed."""
    every_step = range(1, evidence.config["values"] + 1)
    parts = {}
    for name in (PLAIN, RECALLING):
        parts[f"mae {name}"] = samples_of(evidence, name, _at_worst("mae_uniform", every_step))
        parts[f"mass_on_used {name}"] = samples_of(evidence, name, _at_worst("used_mass_mean", (2, 3, 4)))
    return parts


def _at_worst(metric: str, steps: Iterable[int]) -> Numbers:
    return lambda found: largest(found, metric, "posteriors", [f"step_{step}" for step in steps])


def p7(evidence: "Evidence") -> dict[str, Samples]:
    """Sub-chance accuracy is only uncertainty: refuted if both signs of memorised counts are there."""
    return {metric: measured(evidence, PLAIN, metric, "posteriors") for metric in P7}


def p8(evidence: "Evidence") -> dict[str, Samples]:
    """Which model recalls."""
    return {name: measured(evidence, name, "recall", "probes") for name in P8}


def p9(evidence: "Evidence") -> dict[str, Samples]:
    """One head for each skill, in every seed."""
    return {metric: measured(evidence, RECALLING, metric, "roles", part="assignment") for metric in P9}


def p10a(evidence: "Evidence") -> dict[str, Samples]:
    """Recall needs the feed-forward network, elimination does not."""
    return {
        f"{skill}_lost": samples_of(evidence, RECALLING, _lost(skill)) for skill in ("recall", "elimination")
    }


def _lost(skill: str) -> Numbers:
    def lost(found: "Evidence") -> "pd.Series[float] | None":
        clean = last(found, skill, "battery", "clean")
        ablated = last(found, skill, "battery", "mlp_ablation.mean")
        return None if clean is None or ablated is None else clean - ablated

    return lost


REPLACEMENTS = ("uniform", "identity", "random")


def p10b(evidence: "Evidence") -> Samples:
    """Whether the patterns of the earlier rows matter at all: the largest change over all replacements."""
    parts = [f"earlier_rows.{by}.{kind}" for by in REPLACEMENTS for kind in ("repeats", "plain")]
    return samples_of(evidence, RECALLING, lambda found: largest(found, "last_row_change", "battery", parts))


def p11(evidence: "Evidence") -> dict[str, Samples]:
    """Four values can be memorised, five cannot: the number of values is no departure from the protocol here."""
    return {
        label: measured(evidence, name, "memorised_share", "posteriors", split="train", any_values=True)
        for label, name in (("V = 4", FOUR_VALUES), ("V = 5", FIVE_VALUES))
    }


# What values are made of.


def of_batch(value: Value, size: int) -> Value:
    """A value of those members alone that were trained with one batch size."""

    def of_size(evidence: "Evidence") -> Samples | Mapping[str, Samples]:
        default = evidence.config["batch_size"]
        labels = {
            label
            for label in evidence.configurations.values()
            if (Configuration.parse(label).batch_size or default) == size
        }
        return value(evidence.where(configuration=labels))

    return of_size


def measured(
    evidence: "Evidence",
    name: str,
    metric: str,
    measure: str,
    *,
    part: str | None = None,
    split: str = "held_out",
    note: Callable[["pd.Series[float]"], str] | None = None,
    any_values: bool = False,
) -> Samples:
    """A metric of a configuration at the end of training; `note` and `any_values` are those of `samples_of`."""
    return samples_of(
        evidence,
        name,
        lambda found: last(found, metric, measure, part, split),
        note=note,
        any_values=any_values,
    )


def samples_of(
    evidence: "Evidence",
    name: str,
    numbers: Numbers,
    *,
    note: Callable[["pd.Series[float]"], str] | None = None,
    any_values: bool = False,
) -> Samples:
    """Numbers of the members of a configuration, with what their training lacks of the source's protocol.

    Args:
        evidence: of members of one batch size.
        name: of the configuration, without its batch size.
        numbers: what was measured.
        note: words about the numbers that there are.
        any_values: whether another number of values than the source's is no departure.
    """
    trained = {Configuration.parse(label): label for label in evidence.configurations.values()}
    of_name = {each: label for each, label in trained.items() if each.of_batch(None).name == name}
    if not of_name:
        return Samples([], note="not trained in this run")
    configuration, label = of_name.popitem()
    found = evidence.where(configuration=label)
    values = numbers(found)
    if values is None:
        return Samples([], note="not measured")
    departures = PermutationStudyConfig.model_validate(evidence.config).departures(
        configuration.of_values(None) if any_values else configuration
    )
    departures += [] if exhaustive(found) else ["measured on a part of the held-out sequences"]
    known = values.dropna()
    return Samples(values, missing=", ".join(departures), note=note(known) if note and len(known) else "")


def exhaustive(found: "Evidence") -> bool:
    """Whether every held-out sequence was gone through."""
    sets = [last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    return all(each is not None and bool((each.dropna() == 1).all()) for each in sets)


def last(
    found: "Evidence", metric: str, measure: str, part: str | None = None, split: str = "held_out"
) -> "pd.Series[float] | None":
    """Each member's last value of a metric; nothing where no member has it."""
    if metric not in found or found.rows(metric, measure=measure, part=part, split=split).empty:
        return None
    return found.last(metric, measure=measure, part=part, split=split)


def largest(found: "Evidence", metric: str, measure: str, parts: Sequence[str]) -> "pd.Series[float] | None":
    """Each member's largest value of a metric over several parts; nothing where no member has it."""
    if metric not in found:
        return None
    rows = found.rows(metric, measure=measure, part=parts)
    if rows.empty:
        return None
    by_part = rows.pivot(index="member", columns="part", values="value")
    return by_part.reindex(found.members).max(axis=1, skipna=False)
