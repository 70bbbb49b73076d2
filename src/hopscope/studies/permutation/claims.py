"""Claims P1–P12 of the presentation: which number of which configuration is held to what.

Every value is read from the evidence table.  What the presentation leaves open is run in several readings: the batch
size, the length of training, the moment of a score, and others by claim; the first is the default.  P6, P7 and P11
hang on which mappings are held out: where a run has several splits, their intervals are over seeds and splits.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Samples, at_least, at_most, between
from hopscope.studies.permutation import controls
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.studies.permutation.readings import Value, each_metric, measured, moments, of_reading, untried
from hopscope.theory.posteriors import elimination_floor

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

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
P3_RECALL = {name: criterion for name, criterion in P3.items() if name != "elimination"}
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

P9B = {
    "x_rows_to_earlier_y": at_least(0.9, "fraction"),
    "y_rows_to_themselves": at_least(0.5, "fraction"),
    "x_rows_to_preceding_y": at_least(0.5, "fraction"),
}
P12_LARGEST = 0.06

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

    default = config.readings()[0]

    def readings(ways: Value | Mapping[str, Value], *names: str) -> dict[str, Value]:
        named = ways if isinstance(ways, Mapping) else {"": ways}
        found: dict[str, Value] = {}
        seen: list[list[list[Configuration]]] = []
        for reading in config.readings():
            trained = [config.trained(name, reading) for name in names]
            # A reading is another one if it has every configuration, and not just those of a reading before.
            if reading != default and (not all(trained) or trained in seen):
                continue
            seen.append(trained)
            for way, value in named.items():
                found[", ".join(filter(None, [reading.name, way]))] = partial(of_reading, reading, value)
        return found

    def control(value: Value) -> Value:
        return partial(of_reading, default, value)

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
            readings=readings(lambda evidence: measured(evidence, PLAIN, "elimination", "probes"), PLAIN),
            must=at_least(0.999, "fraction"),
            rule="always",
            controls={
                "step 4, where two values are left": control(partial(controls.undetermined, name=PLAIN))
            },
            must_not=at_least(0.999, "fraction"),
        ),
        claim(
            id="P2",
            statement="That model fails every repeat probe: it picks the unused value instead of the one it has seen.",
            source="presentation §7",
            protocol="all held-out sequences whose x₅ copies an earlier x: recall, and mean probability of the unused "
            "value",
            readings=readings(partial(each_metric, tuple(P2), PLAIN, "probes"), PLAIN),
            must=P2,
            rule="always",
            controls={
                "the model trained with repeats": control(
                    partial(each_metric, tuple(P2), RECALLING, "probes")
                )
            },
            must_not=P2,
        ),
        claim(
            id="P3",
            statement="Width 32 with two heads, trained with 30 % repeats, eliminates and recalls perfectly at step 5.",
            source="presentation §8–9",
            protocol="accuracy at step 5 over all held-out sequences without and with a repeat; mean probability of "
            "the recalled value",
            readings=readings(moments(lambda of: partial(each_metric, tuple(P3), RECALLING, of)), RECALLING),
            must=P3,
            rule="always",
            untried=partial(untried, names=[RECALLING], scores=["recall"]),
            controls={
                "the model trained without repeats": control(
                    partial(each_metric, tuple(P3_RECALL), PLAIN, "probes")
                )
            },
            must_not=P3_RECALL,
        ),
        claim(
            id="P4",
            statement="The training loss of both models settles at the floor of pure elimination, ln(V!)/V.",
            source="presentation §4, §8",
            protocol="mean training loss over the last epoch",
            readings=readings(p4, PLAIN, RECALLING),
            must={PLAIN: at_floor, RECALLING: at_floor},
            rule="mean",
            controls={
                "the first step of training": control(
                    lambda evidence: controls.first_loss(evidence, PLAIN, RECALLING)
                )
            },
            must_not={PLAIN: at_floor, RECALLING: at_floor},
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
                },
                RECALLING,
            ),
            must=at_most(0.25, "fraction"),
            rule="mean",
            untried=partial(untried, names=[RECALLING]),
            controls={
                "elimination, which nobody calls sudden": control(
                    partial(suddenness, part="elimination.from_zero")
                )
            },
            must_not=at_most(0.25, "fraction"),
        ),
        claim(
            id="P6",
            statement="The probabilities are those of the Bayesian posterior; used values get none.",
            source="presentation §6, §9",
            protocol="mean absolute error against the uniform posterior, at the worst step of each seed; mean mass on "
            "used values at the worst of steps 2–4; all held-out sequences without a repeat",
            readings=readings(p6, PLAIN, RECALLING),
            must=P6,
            rule="mean",
            controls={
                "repeats, asked of the model that has seen none": control(
                    partial(measured, name=PLAIN, metric="repeat_mae", measure="probes")
                )
            },
            must_not=at_most(0.025),
        ),
        claim(
            id="P7",
            statement="Accuracy below chance at steps 1–4 is only uncertainty.",
            source="presentation §6",
            protocol="refuted if both are above zero: the correlation, over held-out prefixes and free values, of the "
            "model's tilt away from the uniform posterior with that of the training mappings, and accuracy on training "
            "minus on held-out mappings, steps 1–4",
            readings=readings(partial(each_metric, tuple(P7), PLAIN, "posteriors", splits=True), PLAIN),
            must=P7,
            need="any",
            rule="mean",
            controls={
                "tilts of other sequences": control(
                    partial(measured, name=PLAIN, metric="tilt_control", measure="posteriors")
                )
            },
            must_not=at_least(0.05),
        ),
        claim(
            id="P8",
            statement="Trained with repeats, width 16 with one head never recalls, width 32 with one head partly, two "
            "fully.",
            source="presentation §5",
            protocol="recall over all held-out repeats, by configuration",
            readings=readings(
                {
                    **moments(lambda of: partial(p8, of)),
                    **moments(lambda of: partial(p8, of, narrow=PLAIN), f"{PLAIN} as the model of width 16"),
                },
                *P8,
            ),
            must=P8,
            rule={name: "mean" if criterion.between else "always" for name, criterion in P8.items()},
            untried=partial(untried, names=[*P8], scores=["recall"]),
            controls={
                "the larger model, trained without repeats": control(
                    partial(measured, name="d32/2 plain", metric="recall", measure="probes")
                )
            },
            must_not=at_least(0.1, "fraction"),
        ),
        claim(
            id="P9",
            statement="One head eliminates and the other recalls, in every seed.",
            source="presentation §10",
            protocol="mean-ablate each head at the last row: what recall and elimination lose with the head that comes "
            "closest to being the recall head, and with the one that comes closest to being the elimination head",
            readings=readings(
                partial(each_metric, tuple(P9), RECALLING, "roles", part="assignment"), RECALLING
            ),
            must=P9,
            rule="always",
            trust=_INTERVENTIONS,
            controls={
                "the heads of a model that never recalls, distance from all four": control(
                    partial(controls.heads_without_the_skill, name=MEMORISING["V = 5"], must=P9)
                )
            },
            must_not=at_most(0.0, "fraction"),
        ),
        claim(
            id="P9b",
            statement="On the heat maps of one head, x rows attend to earlier y's alone; on the other's, y rows attend "
            "to themselves and x rows to the y before.",
            source="presentation §10",
            protocol="mean attention on held-out sequences without a repeat, of the two heads in the order that comes "
            "closest",
            readings=readings(p9b, RECALLING),
            must=P9B,
            rule="always",
            controls={
                "the heads in the other order, distance from all three": control(
                    lambda evidence: controls.farthest(heat_maps(evidence)[1], [*P9B.values()])
                )
            },
            must_not=at_most(0.0, "fraction"),
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
                },
                RECALLING,
            ),
            must={"recall_lost": at_least(0.5, "fraction"), "elimination_lost": at_most(0.15, "fraction")},
            rule="mean",
            trust=_INTERVENTIONS,
            controls={
                "elimination of the model without recall": control(
                    lambda evidence: measured(
                        evidence, PLAIN, "elimination", "battery", part="clean", less="mlp_ablation.mean"
                    )
                )
            },
            must_not=at_least(0.5, "fraction"),
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
                ),
                RECALLING,
            ),
            must=at_least(1e-6),
            rule="always",
            structural=True,
            trust=_INTERVENTIONS,
            controls={
                "patterns replaced by themselves": control(
                    partial(
                        measured,
                        name=RECALLING,
                        metric="self_change",
                        measure="battery",
                        part="head_interchange",
                    )
                )
            },
            must_not=at_least(1e-6),
        ),
        claim(
            id="P11",
            statement="Four values can be memorised, five cannot.",
            source="presentation §2",
            protocol="width 32 with two heads on plain data, 20 epochs: share of the way from the uniform to the "
            "memorised floor that the loss on all training sequences has gone, at V = 4 and V = 5",
            readings=readings(moments(lambda of: partial(p11, of), end="posteriors"), *MEMORISING.values()),
            must={"V = 4": at_least(0.5, "fraction"), "V = 5": at_most(0.1, "fraction")},
            rule="mean",
            untried=partial(
                untried, names=[*MEMORISING.values()], lengths=(20, 200), scores=["memorised_share"]
            ),
            controls={
                "V = 4, held-out mappings": control(
                    partial(controls.memorised_held_out, name=MEMORISING["V = 4"])
                )
            },
            must_not=at_least(0.5, "fraction"),
        ),
        claim(
            id="P12",
            statement="Where recall is asked for, the largest error of any probability is below 0.06.",
            source="presentation §9 (published: 0.0557)",
            protocol="largest absolute error against certainty of the value seen before, among the repeats of 5,000 "
            "test sequences drawn at random, expected; and over all held-out repeats",
            readings=readings(
                {
                    way: partial(measured, name=RECALLING, metric=metric, measure="probes")
                    for way, metric in (
                        ("5,000 test sequences", "repeat_max_ae_of_sample"),
                        ("all held-out sequences", "repeat_max_ae"),
                    )
                },
                RECALLING,
            ),
            must=at_most(P12_LARGEST),
            rule="always",
            untried=lambda evidence: "" if "repeat_max_ae_of_sample" in evidence else "5,000 test sequences",
            controls={
                "the model that has seen no repeats": control(
                    partial(measured, name=PLAIN, metric="repeat_max_ae", measure="probes")
                )
            },
            must_not=at_most(P12_LARGEST),
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
        f"{part} {name}": measured(evidence, name, metric, "posteriors", part=parts, splits=True)
        for name in (PLAIN, RECALLING)
        for part, metric, parts in worst
    }


def p8(measure: str, evidence: "Evidence", narrow: str = "d16/1 repeats") -> dict[str, Samples]:
    """Recall by configuration; the model of width 16 may be the one that was trained on plain data."""
    return {
        name: measured(evidence, narrow if name == "d16/1 repeats" else name, "recall", measure)
        for name in P8
    }


def p9b(evidence: "Evidence") -> dict[str, Samples]:
    """The three shares that the heat maps are read by, with the heads in the order whose worst margin is largest."""
    return dict(zip(P9B, heat_maps(evidence)[0], strict=True))


def heat_maps(evidence: "Evidence") -> tuple[list[Samples], list[Samples]]:
    """The shares of P9b with the heads in the order that comes closest, and in the other one, member by member."""
    of_heads = [
        [measured(evidence, RECALLING, metric, "roles", part="heat_map", head=head) for metric in P9B]
        for head in (0, 1)
    ]
    orders = [(of_heads[first][0], *of_heads[other][1:]) for first, other in ((0, 1), (1, 0))]
    by_member = [zip(*(each.values for each in order), strict=True) for order in orders]
    ranked = [
        sorted(of_member, key=_worst_margin, reverse=True) for of_member in zip(*by_member, strict=True)
    ]
    found = []
    for place in (0, 1):
        columns = zip(*(each[place] for each in ranked), strict=True) if ranked else [()] * len(P9B)
        found.append([replace(orders[0][0], values=list(column)) for column in columns])
    return found[0], found[1]


def _worst_margin(shares: tuple[float | None, ...]) -> float:
    """How far the share that is closest to its threshold lies above it."""
    margins = zip(shares, P9B.values(), strict=True)
    return min(-math.inf if share is None else share - criterion.bounds[0] for share, criterion in margins)


def p11(measure: str, evidence: "Evidence") -> dict[str, Samples]:
    """How far each number of values was memorised."""
    return {
        label: measured(
            evidence, name, "memorised_share", measure, split="train", any_values=True, splits=True
        )
        for label, name in MEMORISING.items()
    }
