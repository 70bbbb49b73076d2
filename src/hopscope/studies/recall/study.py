"""Multi-query associative recall: does attention need a wider stream to recall more pairs?

After Arora, Eyuboglu, Timalsina, Johnson, Poli, Zou, Rudra and Ré, *Zoology* (arXiv 2312.04927).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.recall.task import MultiQueryRecall
from hopscope.words import counted

STEPS = 2_000
RECALLED = 0.99
"""Accuracy from which a model recalls its pairs."""

SOURCE = "Arora et al., arXiv 2312.04927, figure 2"


class Options(Config):
    """What is trained.

    Attributes:
        widths: of models with two layers; those with one have the largest.
        pairs: numbers of pairs.
    """

    widths: tuple[int, ...] = (32, 64)
    pairs: tuple[int, ...] = (4, 8, 16)


def label(layers: int, width: int, pairs: int) -> str:
    """What a configuration is called."""
    return f"{counted(layers, 'layer')}, width {width}, {pairs} pairs"


def cells(options: Options) -> list[tuple[int, int, int]]:
    """Layers, width and pairs of every configuration: two layers of each width, then one layer of the largest."""
    two = [(2, width, pairs) for width in options.widths for pairs in options.pairs]
    return two + [(1, max(options.widths), pairs) for pairs in options.pairs]


def configurations(options: Options) -> list[hs.Configuration]:
    """One configuration for each of `cells`."""
    return [
        hs.Configuration(
            label=label(*cell),
            overrides=dict(zip(("model.layers", "model.width", "task.pairs"), cell, strict=True)),
        )
        for cell in cells(options)
    ]


@hs.measure
def key_attention(context: hs.Context) -> Iterator[dict[str, Any]]:
    """Attention of each head from values to the keys before them, `[member]` a head; metric `attention_to_key`."""
    keys = context.held_out.relations["key"][0, 0]
    rows = (keys >= 0).nonzero()[:, 0]
    cache = context.ensemble.cache(context.batch(64).inputs)
    for layer in range(context.ensemble.config.layers):
        found = cache[f"blocks.{layer}.attn.hook_pattern"][..., rows, keys[rows]].mean((1, 3))
        for head in range(found.shape[1]):
            yield {"metric": "attention_to_key", "layer": layer, "head": head, "value": found[:, head]}


# What is claimed.


def last(layers: int, width: int, pairs: int) -> Any:
    """A function of the evidence: the accuracy at the end, `[member]`."""
    return lambda evidence: evidence.last("accuracy", configuration=label(layers, width, pairs))


def by_place(evidence: Any, pairs: int) -> float:
    """Accuracy of the best answer by place alone."""
    return MultiQueryRecall(**{**evidence.config["task"]["fields"], "pairs": pairs}).by_place()


def of_pairs(options: Options, layers: int) -> dict[str, Any]:
    """Number of pairs, in words → function of the evidence: the accuracy of the widest models."""
    return {f"{pairs} pairs": last(layers, max(options.widths), pairs) for pairs in options.pairs}


def by_part(functions: "dict[str, Any]") -> Any:
    """A function of the evidence: part → what its function says."""
    return lambda evidence: {name: function(evidence) for name, function in functions.items()}


def lost(options: Options, layers: int, width: int) -> Any:
    """A function of the evidence: by seed, the accuracy with the most pairs less that with the fewest."""

    def found(evidence: Any) -> hs.Samples:
        most, fewest = (last(layers, width, pick(options.pairs))(evidence) for pick in (max, min))
        return hs.Samples((most.to_numpy() - fewest.to_numpy()).tolist(), unit="seed")

    return found


def beyond_place(options: Options, layers: int) -> dict[str, Any]:
    """Number of pairs, in words → function of the evidence: accuracy beyond that by place alone."""

    def of(pairs: int) -> Any:
        found = last(layers, max(options.widths), pairs)
        return lambda evidence: found(evidence) - by_place(evidence, pairs)

    return {f"{pairs} pairs": of(pairs) for pairs in options.pairs}


def heads(options: Options, layers: int) -> Any:
    """A function of the evidence: attention of the first layer to keys, and of the last one to values, most pairs."""
    where = {"configuration": label(layers, max(options.widths), max(options.pairs)), "head": 0}
    return lambda evidence: {
        "first layer to keys": evidence.last("attention_to_key", layer=0, **where),
        "last layer to values": evidence.last("attention_to_value", layer=layers - 1, **where),
    }


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these widths and numbers of pairs."""
    given: dict[str, Any] = {"seeds_needed": 8, "source": SOURCE, "at_scale": smaller_scale}
    widest, most = max(options.widths), max(options.pairs)
    recalls, chance = hs.at_least(RECALLED, unit="fraction"), hs.at_most(0.05, unit="fraction")
    one, two = (of_pairs(options, layers) for layers in (1, 2))
    found = [
        hs.Claim(
            id="N2a",
            statement=f"Two layers of attention with a width of {widest} recall, however many pairs there are.",
            protocol="held-out accuracy at the end, mean over seeds, for each number of pairs; the controls have one "
            "layer",
            value=by_part(two),
            must=dict.fromkeys(two, recalls),
            rule="mean",
            controls={f"one layer, {name}": function for name, function in one.items()},
            must_not=recalls,
            **given,
        ),
        hs.Claim(
            id="N2c",
            statement="One layer recalls nothing: it knows no more than the place of a query tells.",
            protocol="held-out accuracy at the end with one layer, less that of the best answer by place alone, every "
            "seed, for each number of pairs; the controls have two layers",
            value=by_part(beyond_place(options, 1)),
            must=dict.fromkeys(one, chance),
            controls={f"two layers, {name}": function for name, function in beyond_place(options, 2).items()},
            must_not=chance,
            **given,
        ),
        hs.Claim(
            id="N2d",
            statement="Two heads in a row recall: values read their keys, then queries read the values.",
            protocol=f"two layers, {most} pairs: mean attention from values to the keys before them in the first "
            "layer, and from queries to their values in the last one, mean over seeds; the control: the same attention "
            "to values of models with one layer",
            value=heads(options, 2),
            must=dict.fromkeys(
                ("first layer to keys", "last layer to values"), hs.at_least(0.9, unit="fraction")
            ),
            rule="mean",
            controls={
                "one layer to values": lambda evidence: heads(options, 1)(evidence)["last layer to values"]
            },
            must_not=hs.at_least(0.9, unit="fraction"),
            **given,
        ),
    ]
    if len(options.pairs) > 1:
        same = hs.at_least(-0.01, unit="fraction")
        widths = {f"width {width}": lost(options, 2, width) for width in options.widths}
        found.insert(
            1,
            hs.Claim(
                id="N2b",
                statement="The width that is needed does not grow with the number of pairs.",
                protocol=f"by seed: accuracy with {most} pairs less that with {min(options.pairs)}, two layers, mean "
                "over seeds, at every width; the control has one layer, which cannot recall",
                value=by_part(widths),
                must=dict.fromkeys(widths, same),
                rule="mean",
                controls={"one layer": lost(options, 1, widest)},
                must_not=same,
                **given,
            ),
        )
    return found


def smaller_scale(evidence: Any) -> str:
    """What a run lacks of the published experiment, and of the study as it is written."""
    config = evidence.config
    steps, fields, options = config["training"]["steps"], config["task"]["fields"], config["options"]
    words = [f"{steps:,} of {STEPS:,} steps"] * (steps < STEPS)
    words += ["places of queries uniform, not by a power law"] * (fields["power"] == 1)
    words += [f"{fields['vocabulary']} tokens, not 8,192"] * (fields["vocabulary"] < 8_192)
    words += [f"widths to {max(options['widths'])}, not 512"] * (max(options["widths"]) < 512)
    words += [f"{max(options['pairs'])} pairs, not 64"] * (max(options["pairs"]) < 64)
    return ", ".join([*words, "4 positions for a pair, not 16"])


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Accuracy by width and pairs, as a table and during training."""
    where = [(cell, {"configuration": label(*cell)}) for cell in cells(options)]
    rows = {cell: f"{counted(cell[0], 'layer')}, width {cell[1]}" for cell, _ in where}
    table = [Series("accuracy", x=cell[2], y=rows[cell], where=place) for cell, place in where]
    curves = [Series("accuracy", rows[cell], panel=f"{cell[2]} pairs", where=place) for cell, place in where]

    def marks(evidence: Any) -> list[Mark]:
        return [
            Mark(by_place(evidence, pairs), "by place alone", panel=f"{pairs} pairs")
            for pairs in options.pairs
        ]

    return (
        hs.figures.cells(
            "grid", table, Axis("accuracy", (0.0, 1.0), "%"), across=Axis("pairs"), down="model"
        ).answers("fig-2"),
        hs.figures.lines("learning", curves, Axis("held-out accuracy", (0.0, 1.0), "%"), marks=marks),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "recalled": RECALLED, "rows": list(dict.fromkeys(cell[:2] for cell in cells(options))),
        "widest": max(options.widths), "most": max(options.pairs),
        "by_place": {pairs: by_place(page.evidence, pairs) for pairs in options.pairs},
    }  # fmt: skip


study = hs.Study(
    name="recall",
    question="does attention need a wider stream to recall more pairs?",
    task=MultiQueryRecall(vocabulary=64, power=1.0),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=1, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=STEPS,
        batch_size=64,
        optimizer="adamw",
        learning_rate=1e-3,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        evaluate_every=100,
        checkpoint_every=2_000,
    ),
    options=Options(),
    configurations=configurations,
    seeds=4,
    measures=[key_attention, hs.measures.attention_to("value")],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {"seeds": 2, "training.steps": 60, "options.widths": (8, 16), "options.pairs": (2, 4)},
        "laptop": {},
    },
    costs={"smoke": "under a minute on two cores", "laptop": "about 6 min on two cores"},
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
