"""below_the_minimum.py: can two layers learn a second step, for which the information-flow model takes three?

The exact minimum counts what attention can bring: a row attends to another only if both hold the same symbol or code.
An MLP can compare, too.  Pairs of one step stand at fixed places: heads could gather all of them by position alone.
"""

from functools import partial

import hopscope as hs
from hopscope.claims import as_large_as

STEP = 2
WITH, WITHOUT, THREE = "2 layers, with MLPs", "2 layers, without", "3 layers, without"
SHAPES = {WITH: (2, 4.0), WITHOUT: (2, 0.0), THREE: (3, 0.0)}
LEARNED, WAITS, SAME = hs.at_most(0.5), hs.at_least(0.7), hs.at_most(0.05)
NOT_LEARNED = hs.at_least(0.25)  # of N13b
GATHERED, NO_MLP = "rise with pairs gathered by position alone", "loss with the last MLP's mean"
SHARED = "rise with pairs gathered alike for all queries"
SIZE = {"model.heads": 8, "model.width": 128, "training.steps": 6000}
FRESH = 8  # the first seed that was not seen when W3 was written down
FOUND = "rise with the first step found by position alone"
FOUND_ALIKE = "rise with the first step found alike for all queries"


def configurations(options):
    for name, (layers, ratio) in SHAPES.items():
        yield hs.Configuration(label=name, overrides={"model.layers": layers, "model.mlp_ratio": ratio})


@hs.measure
def mechanism(context):
    """The loss of x₂ where parts of the last layer do the same in every sample, or for every query.

    Metrics `gathered` (heads whose queries attend chiefly to pairs of step 2 have their mean pattern over samples),
    `shared` (these have the mean pattern of their sample's queries), `found` (those that attend chiefly to pairs of
    step 1 have their mean pattern over samples), `found_alike` (the mean pattern of their sample's queries),
    `without_mlp` (the MLP gives its mean), `heads` (how many of the first kind), and `at_place`, the model's own loss
    of x₂ by the place of its pair (part `place K`).
    """
    import torch

    model, batch = context.ensemble, context.held_out
    if not model.config.mlp_size:
        return
    last, step = model.config.layers - 1, batch.roles["step"]
    site, asked = f"blocks.{last}.attn.hook_pattern", step[0, 0] == 0  # rows of queries
    pattern = model.cache(batch.inputs, [site])[site][..., asked, :]  # [member, batch, head, query, key]

    def loss(change):
        predictions = model.intervene(batch, change)
        return context.task.parts(predictions, batch)["loss_step_2"]

    def heads(of):  # that attend chiefly to pairs of this step, [member, head]
        return (pattern * (step == of)[:, :, None, None]).sum(-1).mean((1, 3)) > 0.5

    def changed(of, change):
        chosen = heads(of)[:, None, :, None, None]
        return loss({site: lambda own: torch.where(chosen, change(own), own)})

    def mean(own):
        return own.mean(1, keepdim=True).expand_as(own)

    def alike(own):
        return torch.where(asked[:, None], own[..., asked, :].mean(-2, keepdim=True), own)

    yield {"metric": "heads", "value": heads(2).double().sum(1)}
    yield {"metric": "gathered", "value": changed(2, mean)}
    yield {"metric": "shared", "value": changed(2, alike)}
    yield {"metric": "found", "value": changed(1, mean)}
    yield {"metric": "found_alike", "value": changed(1, alike)}
    yield {"metric": "without_mlp", "value": loss({f"blocks.{last}.hook_mlp_out": mean})}
    # The loss of x₂ by where the pair that holds it stands.
    squared = (model(batch.inputs) - batch.targets).square()[..., context.task.symbol_dim :].mean(-1)
    chain, place = batch.roles["chain"], batch.roles["place"]
    second = (step == STEP) & (batch.roles["kind"] == 1)
    own = (chain[..., asked, None] == chain[..., None, :]) & second[..., None, :]
    places = (own * place[..., None, :]).sum(-1)
    for each in range(context.task.chains):
        here = (places == each).expand_as(squared)
        value = (squared * here).sum((1, 2)) / here.sum((1, 2))
        yield {"metric": "at_place", "part": f"place {each}", "value": value}


def losses(evidence):
    return {name: evidence.last("loss_step_2", configuration=name) for name in (WITH, WITHOUT)}


def too_shallow(evidence):
    """Final losses of x₂ of all models of two layers."""
    import pandas as pd

    every = pd.concat([*losses(evidence).values()])
    return hs.Samples(every, "run", [evidence.seeds[member] for member in every.index])


def lacks_of_shallow(evidence):
    """What a run lacks to say that none learned it; that one did stands at any size."""
    learned = evidence.has("loss_step_2") and (too_shallow(evidence).values < NOT_LEARNED.low).any()
    return "" if learned else as_large_as(SIZE)(evidence)


def of_three(evidence):
    return {WITHOUT: evidence.last("loss_step_2", configuration=THREE)}


def rise(metric, first, evidence):
    """What a change costs models with MLPs that learned x₂, of seeds from `first` on."""
    loss = evidence.last("loss_step_2", configuration=WITH)
    kept = loss[(loss.index.map(evidence.seeds) >= first) & (loss < LEARNED.high)]
    note = "" if len(kept) else f"no seed from {first} on that learned x₂"
    rises = evidence.last(metric, configuration=WITH)[kept.index] - kept
    return hs.Samples(rises, unit="seed", note=note), hs.Samples(rises + kept, unit="seed", note=note)


def worth(name, metric, first):
    """A function of the evidence: the rise by a change of the pattern, and the loss without the last MLP."""
    return lambda evidence: {
        name: rise(metric, first, evidence)[0],
        NO_MLP: rise("without_mlp", first, evidence)[1],
    }


def control(words, metric, name, first):
    return {words: lambda evidence: {name: rise(metric, first, evidence)[0]}}


claim = partial(hs.Claim, source="this file", rule="mean", seeds_needed=8, at_scale=as_large_as(SIZE))

study = hs.Study(
    name="below-the-minimum",
    question="Can two layers learn a second step, for which the information-flow model takes three?",
    task=hs.tasks.Retrieval(steps=STEP, chains=4, position="pair"),
    model=hs.Model(layers=2, heads=8, width=128, head_dim=16),
    training=hs.Training(
        steps=6000, batch_size=128, learning_rate=1e-3, evaluate_every=100, checkpoint_every=6000
    ),
    configurations=configurations,
    seeds=8,
    held_out=1024,
    measures=[mechanism],
    claims=[
        hs.Claim(
            id="N13b",
            statement="No trained model learns a step with fewer layers than the exact minimum.",
            source="docs/protocols.md, Revision 3",
            protocol="of N13b, of models of two layers: final held-out loss of x₂, which takes three, at least 0.25",
            kind="general",
            value=too_shallow,
            must=NOT_LEARNED,
            rule="always",
            seeds_needed=8,
            at_scale=lacks_of_shallow,
            controls={"three layers without MLPs": lambda evidence: of_three(evidence)[WITHOUT]},
        ),
        claim(
            id="W1",
            statement="With MLPs two layers learn a second step (theory: three layers); without MLPs they do not.",
            protocol="asked for the whole chain, D = 2, pairs of one step at fixed places: final held-out loss of x₂, "
            "mean over seeds: at most 0.5 with MLPs, at least 0.7 without; the control is three layers without MLPs",
            value=losses,
            must={WITH: LEARNED, WITHOUT: WAITS},
            controls={"three layers without MLPs": of_three},
            must_not={WITHOUT: WAITS},
        ),
        claim(
            id="W2",
            statement="Two layers gather pairs of step 2 by position alone, and the last MLP finds the right one.",
            protocol="models of two layers with MLPs that learned x₂ (a loss under 0.5), in the last layer: the loss "
            "rises by 0.05 at most where heads whose queries attend chiefly to pairs of step 2 have their mean pattern "
            "over samples, and is at least 0.7 where the MLP gives its mean; the control takes heads whose queries "
            "attend chiefly to pairs of step 1",
            value=worth(GATHERED, "gathered", 0),
            must={GATHERED: SAME, NO_MLP: WAITS},
            controls=control(FOUND, "found", GATHERED, 0),
            must_not={GATHERED: SAME},
        ),
        claim(
            id="W3",
            statement="Two layers gather the same pairs of step 2 for all queries; the last MLP finds the right one.",
            protocol="as W2, but these heads, and those of the control, have the mean pattern of the four queries of "
            "their sample; it was written down after seeds 0 to 7 had been seen, so only those from 8 on count",
            value=worth(SHARED, "shared", FRESH),
            must={SHARED: SAME, NO_MLP: WAITS},
            controls=control(FOUND_ALIKE, "found_alike", SHARED, FRESH),
            must_not={SHARED: SAME},
        ),
    ],
    figures=[
        hs.figures.curves("loss_step_2", by="configuration", title="held-out loss of x₂"),
        hs.figures.dots(
            "at_place",
            "part",
            where={"part": ...},
            name="places",
            title="loss of x₂ by the place of its pair",
        ),
    ],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "model.width": 32, "held_out": 64}},
    costs={"": "24 models, about an hour of a core; with 16 seeds twice that"},
)
