"""What is claimed of the two laws, and of what makes formation quick."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import hopscope as hs
from hopscope.studies.formation.fit import Seen, exponents
from hopscope.studies.formation.measures import SIGNS
from hopscope.studies.formation.options import (
    BASES,
    LAYERS,
    ONE,
    REPEATS,
    WIDTH,
    Options,
    differences,
    judged,
    label,
    special,
)
from hopscope.words import counted

TOKENS_LAW, STEPS_LAW = (0.25, 0.75), (1.5, 2.5)
"""Bands of the published exponents, 0.5 and 2."""

SOURCES = {
    "tokens": "Aoyama, Wilcox and Schneider, arXiv 2511.16893, abstract and the equation N = T √(B C)",
    "steps": "Musat et al., arXiv 2511.01033, abstract",
    "own": "docs/emergence.md, What makes it quick; docs/open_questions.md, S4",
    "here": "this study",
}


def times(evidence: Any, name: str, sign: str = SIGNS[0], metric: str = "formed_at") -> dict[int, float]:
    """Seed → training step at which a configuration formed its head; infinite: never; NaN: diverged."""
    found = evidence.last(metric, part=sign, configuration=name)
    return {evidence.seeds[member]: float(time) for member, time in found.items()}


def laws(evidence: Any, options: Options, variant: str, sign: str = SIGNS[0]) -> list[tuple[float, float]]:
    """For each seed, the exponents of steps by context and by batch over the cells of a variant."""
    by_seed: dict[int, list[Seen]] = {}
    for cell in options.cells(variant):
        last, first = (
            times(evidence, label(variant, *cell), sign, name) for name in ("not_before", "formed_at")
        )
        for seed, time in first.items():
            by_seed.setdefault(seed, []).append(Seen(*cell, last[seed], time))
    return [exponents(cells) for cells in by_seed.values()]


def of_steps(options: Options, sign: str) -> Callable[[Any], dict[str, hs.Samples]]:
    """A function of the evidence: variant → exponent of steps by context, by seed."""
    return lambda evidence: {
        variant: hs.Samples([law[0] for law in laws(evidence, options, variant, sign)], unit="seed")
        for variant in (ONE, REPEATS)
    }


def of_tokens(options: Options, sign: str) -> Callable[[Any], dict[str, hs.Samples]]:
    """A function of the evidence: variant and size → exponent of tokens = steps · batch · context, by seed."""
    return lambda evidence: {
        f"{variant}, {size}": hs.Samples(
            [law[at] + 1.0 for law in laws(evidence, options, variant, sign)], unit="seed"
        )
        for variant in (ONE, REPEATS)
        for at, size in enumerate(("context", "batch"))
    }


def apart(options: Options, sign: str) -> Callable[[Any], hs.Samples]:
    """A function of the evidence: by seed, exponent of steps by context of one answer, less that of repeats."""

    def found(evidence: Any) -> hs.Samples:
        pairs = zip(*(laws(evidence, options, variant, sign) for variant in (ONE, REPEATS)), strict=True)
        return hs.Samples([one[0] - repeats[0] for one, repeats in pairs], unit="seed")

    return found


def doublings(model: Mapping[int, float], other: Mapping[int, float], end: float) -> hs.Samples:
    """By seed: log₂ of a model's time over another's.

    Where the other never formed its head, its time is at least the end, and counts as that: this speaks against the
    model.  Where the model never did, the number is infinite.
    """
    return hs.Samples(
        [
            math.log2(time / min(other[seed], end)) if seed in other else math.nan
            for seed, time in model.items()
        ],
        unit="seed",
    )


def shapes(options: Options) -> dict[str, tuple[str, str]]:
    """Part of the claim → what the larger model, and what the smaller one differs in; empty: the standard model."""
    found = {
        counted(layers, "layer"): (counted(layers, "layer"), "")
        for layers in options.layers
        if layers > LAYERS
    }
    for width in options.widths:
        name = f"width {width}"
        found[f"width {max(width, WIDTH)}"] = (name, "") if width > WIDTH else ("", name)
    return found


def quicker(options: Options, sign: str) -> Callable[[Any], dict[str, hs.Samples]]:
    """A function of the evidence: variant and shape → doublings of the time against the smaller shape, by seed."""

    def found(evidence: Any) -> dict[str, hs.Samples]:
        samples = {}
        for variant, base in BASES.items():
            end = float(options.steps(variant, base[1]))
            for part, cells in shapes(options).items():
                names = [special(variant, what) if what else label(variant, *base) for what in cells]
                model, other = (times(evidence, name, sign) for name in names)
                samples[special(variant, part)] = doublings(model, other, end)
        return samples

    return found


def neighbours(variant: str) -> Callable[[Any], hs.Samples]:
    """A function of the evidence: log₂ of the time of a standard model over that of another seed, by pair of seeds.

    Each seed is in one pair: around the circle of all seeds the mean would be 0 whatever the times are.  Every other
    pair is turned round, so that it does not matter whether times rise with the seed's number.
    """

    def found(evidence: Any) -> hs.Samples:
        values = list(times(evidence, label(variant, *BASES[variant])).values())
        pairs = enumerate(zip(values[::2], values[1::2], strict=False))
        return hs.Samples(
            [
                (-1) ** place * math.log2(one / other)
                if math.isfinite(one) and math.isfinite(other)
                else math.nan
                for place, (one, other) in pairs
            ],
            unit="pair",
        )

    return found


def share(name: str, sign: str = SIGNS[0]) -> Callable[[Any], hs.Samples]:
    """A function of the evidence: 1 for each seed of a configuration that formed its head, 0 for the others."""
    return lambda evidence: hs.Samples(
        [
            math.nan if math.isnan(time) else float(math.isfinite(time))
            for time in times(evidence, name, sign).values()
        ],
        unit="seed",
    )


def unable(options: Options) -> dict[str, str]:
    """Control → configuration: models with one layer, and values that cannot be known."""
    return {
        special(variant, what): special(variant, what)
        for variant in BASES
        for what in differences(options)
        if what in ("1 layer", "shuffled values")
    }


def readings(of: Callable[[Options, str], Any], options: Options) -> dict[str, Any]:
    """A way to read the claim for each sign of a head."""
    return {sign: of(options, sign) for sign in SIGNS}


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of the laws, and of what makes formation quick."""
    if not judged(options):
        return []
    given: dict[str, Any] = {"seeds_needed": 8, "at_scale": lacks}
    nothing: dict[str, Any] = {
        "controls": {name: share(name) for name in unable(options)},
        "must_not": hs.at_least(0.5, unit="fraction"),
    }
    fitted = (
        "by seed, a censored log-normal fit of the first evaluation past half of the way from the plateau to 1, over "
        "all contexts and batches of a variant; a head that never formed counts as later than the end; mean over seeds"
    )
    sizes = [f"{variant}, {size}" for variant in BASES for size in ("context", "batch")]
    shaped = [special(variant, part) for variant in BASES for part in shapes(options)]
    found = [
        hs.Claim(
            id="I1",
            statement="In small models with short contexts, induction heads form after tokens in proportion to "
            "√(batch · context).",
            source=SOURCES["tokens"],
            protocol=f"exponents of tokens by context and by batch: {fitted}",
            readings=readings(of_tokens, options),
            must=dict.fromkeys(sizes, hs.between(*TOKENS_LAW)),
            rule="mean",
            **given,
            **nothing,
        ),
        hs.Claim(
            id="I2",
            statement="In small models with short contexts, the time until an induction head forms is quadratic in the "
            "context.",
            source=SOURCES["steps"],
            protocol=f"exponent of training steps by context: {fitted}",
            readings=readings(of_steps, options),
            must=dict.fromkeys(BASES, hs.between(*STEPS_LAW)),
            rule="mean",
            **given,
            **nothing,
        ),
        hs.Claim(
            id="I3",
            statement="What a longer context brings decides its exponent: with one answer it is larger than where "
            "questions repeat.",
            source=SOURCES["here"],
            protocol=f"exponent of steps by context of one answer, less that of repeats: {fitted}",
            readings=readings(apart, options),
            must=hs.at_least(0.5),
            rule="effect",
            **given,
            **nothing,
        ),
        hs.Claim(
            id="I5",
            statement="One layer forms no induction head, and where values are shuffled none forms.",
            source=SOURCES["here"],
            protocol="share of seeds past half of the way in answers; the control is the standard model",
            value=lambda evidence: {name: share(cell)(evidence) for name, cell in unable(options).items()},
            must=dict.fromkeys(unable(options), hs.at_most(0.0, unit="fraction")),
            controls={
                f"{variant}, two layers": share(label(variant, *base)) for variant, base in BASES.items()
            },
            must_not=hs.at_most(0.0, unit="fraction"),
            **given,
        ),
    ]
    if shaped:
        found.append(
            hs.Claim(
                id="I4",
                statement="More layers than the two that are needed, and a wider stream, form the head sooner.",
                source=SOURCES["own"],
                protocol="by seed, log₂ of the step at which the larger model formed its head over that of the "
                "smaller; a smaller model that never did counts as the last step, a larger one as never",
                readings=readings(quicker, options),
                must=dict.fromkeys(shaped, hs.at_most(0.0, unit="doublings")),
                rule="effect",
                controls={f"{variant}, from one seed to the next": neighbours(variant) for variant in BASES},
                must_not=hs.at_most(0.0, unit="doublings"),
                **given,
            )
        )
    return found


def lacks(evidence: Any) -> str:
    """What a run lacks of the study as it is written."""
    written, found = Options(), evidence.config["options"]
    names = ("one_steps", "repeats_steps", "one_contexts", "repeats_contexts", "batches")
    less = [name.replace("_", " ") for name in names if sum(found[name]) < sum(getattr(written, name))]
    width = evidence.config["model"]["width"]
    return ", ".join([*(f"smaller {name}" for name in less), *[f"width {width}"] * (width < WIDTH)])
