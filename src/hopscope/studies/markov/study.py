"""In-context Markov chains: do models become counters of pairs, and do they count single states first?

After Edelman, Edelman, Goel, Malach and Tsilivis, *The Evolution of Statistical Induction Heads* (arXiv 2402.11004).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Series
from hopscope.studies.markov.task import MarkovChains
from hopscope.words import counted

STEPS = 3_000
NEAR = 0.025
"""Divergence in nats under which a model counts as a predictor."""

PREDICTORS = ("uniform", "unigram", "bigram")
SOURCE = "Edelman et al., arXiv 2402.11004, section 3"


class Options(Config):
    """What is trained.

    Attributes:
        layers: numbers of layers.
    """

    layers: tuple[int, ...] = (1, 2)


def label(layers: int) -> str:
    """What a configuration is called."""
    return counted(layers, "layer")


def configurations(options: Options) -> list[hs.Configuration]:
    """One configuration for each chosen depth."""
    return [
        hs.Configuration(label=label(layers), overrides={"model.layers": layers}) for layers in options.layers
    ]


@hs.measure
def successors(context: hs.Context) -> Iterator[dict[str, Any]]:
    """Attention of each head to positions that follow an earlier occurrence of the current state, `[member]` a head.

    Metric `to_successors`, and `to_successors_uniform` of attention that is even over all positions so far.  Rows
    without such a position are left out.
    """
    import torch

    states = context.held_out.inputs
    size = states.shape[-1]
    follows = torch.zeros(*states.shape, size, dtype=torch.bool)
    follows[..., 1:] = states[..., :, None] == states[..., None, :-1]
    follows &= torch.ones(size, size, dtype=torch.bool).tril()
    rows = follows.any(-1)
    even = (follows.sum(-1) / torch.arange(1, size + 1))[rows].mean()
    cache = context.ensemble.cache(states)
    for layer in range(context.ensemble.config.layers):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        mass = (pattern * follows[:, :, None]).sum(-1)
        shares = (mass * rows[:, :, None]).sum((1, 3)) / rows.sum((1, 2))[:, None]
        for head in range(shares.shape[1]):
            yield {"metric": "to_successors", "layer": layer, "head": head, "value": shares[:, head]}
    yield {"metric": "to_successors_uniform", "value": even.expand(len(context.members))}


# What is claimed.


def last(metric: str, layers: int) -> Any:
    """A function of the evidence: the last value of a metric, `[member]`."""
    return lambda evidence: evidence.last(metric, configuration=label(layers))


def phases(evidence: Any, layers: int = 2) -> dict[int, dict[str, float]]:
    """Member → `least`: the least divergence from unigrams; `lead`: evaluations from there to within `NEAR` of bigrams.

    Where a model never comes near bigrams, the lead is not known.
    """
    unigram, bigram = (
        evidence.curve(f"from_{name}", configuration=label(layers)) for name in ("unigram", "bigram")
    )
    found = {}
    for member in unigram.columns:
        near = bigram.index[bigram[member] < NEAR]
        before = unigram[member] if near.empty else unigram[member].loc[: near[0]]
        known = before.notna().any()
        found[int(member)] = {
            "least": float(before.min()) if known else math.nan,
            "lead": float(near[0] - before.idxmin()) if known and len(near) else math.nan,
        }
    return found


def phase(name: str) -> Any:
    """A function of the evidence: a number of `phases`, by seed."""
    return lambda evidence: hs.Samples([each[name] for each in phases(evidence).values()], unit="seed")


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of models with one and with two layers."""
    given: dict[str, Any] = {"seeds_needed": 8, "source": SOURCE, "at_scale": lacks}
    if not {1, 2} <= set(options.layers):
        return []
    return [
        hs.Claim(
            id="N3a",
            statement="Two layers become the best predictor, which counts pairs of states.",
            protocol="final divergence of the model from the bigram predictor on held-out samples, in nats, mean over "
            "seeds; the control has one layer",
            value=last("from_bigram", 2),
            must=hs.at_most(NEAR),
            rule="mean",
            controls={"one layer": last("from_bigram", 1)},
            must_not=hs.at_most(NEAR),
            **given,
        ),
        hs.Claim(
            id="N3b",
            statement="Before that, models predict by counts of single states.",
            protocol="two layers: least divergence from the unigram predictor before the model is near the bigram "
            f"predictor ({NEAR} nats), and training steps from there to it; the control is the divergence from the "
            "uniform predictor at the end",
            value=lambda evidence: {"divergence": phase("least")(evidence), "lead": phase("lead")(evidence)},
            must={"divergence": hs.at_most(0.05), "lead": hs.at_least(1.0)},
            rule="mean",
            controls={"uniform": last("from_uniform", 2)},
            must_not=hs.at_most(0.05),
            **given,
        ),
        hs.Claim(
            id="N3c",
            statement="One layer stays a counter of single states.",
            protocol="final divergence of models with one layer from the unigram predictor, mean over seeds; the "
            "control has two layers",
            value=last("from_unigram", 1),
            must=hs.at_most(NEAR),
            rule="mean",
            controls={"two layers": last("from_unigram", 2)},
            must_not=hs.at_most(NEAR),
            **given,
        ),
    ]


def lacks(evidence: Any) -> str:
    """What a run lacks of the published experiment, and of the study as it is written."""
    steps = evidence.config["training"]["steps"]
    words = [f"{steps:,} of {STEPS:,} steps"] * (steps < STEPS)
    return ", ".join(["learned positions, not relative ones", *words])


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Divergence from each predictor during training."""
    curves = [
        Series(f"from_{name}", name, panel=label(layers), where={"configuration": label(layers)})
        for layers in options.layers
        for name in PREDICTORS
    ]
    return (hs.figures.lines("phases", curves, Axis("divergence from a predictor, nats", (0.0, 0.3))),)


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {"label": label, "predictors": PREDICTORS, "near": NEAR}


study = hs.Study(
    name="markov",
    question="do models become counters of pairs in context, and do they count single states first?",
    task=MarkovChains(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=1, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=STEPS, batch_size=64, optimizer="adam", learning_rate=3e-3, weight_decay=0.0, evaluate_every=50
    ),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[successors, hs.measures.attention_to("previous")],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {"seeds": 2, "training.steps": 200},
        "laptop": {},
    },
    costs={"smoke": "under a minute on two cores", "laptop": "about 8 min on two cores"},
    page="page.md.j2",
    page_names=page_names,
)
