"""by_place.py: how do models find the pairs of a chain where no code says which tokens are a pair?

Codes of tokens are drawn anew in every sample, so that nothing in a token says where it stands.  Still six of eight
models of six layers learned to go from one token of a pair to the other (the study `sharing`, 1,600 steps).  A causal
mask treats rows differently: row i can attend to i + 1 keys.  Without a mask all orders of the tokens look the same,
and the best answers are means: over 7 symbols for x₁ (a loss of 6/7), over 4 for x₂ (3/4).

W4 to W6 were written after these six layers had been looked at, and before any model here was trained; W7 and W8 after
seeds 0 to 7, so that only later ones count for them (`--seeds 16`).
"""

from functools import partial

import hopscope as hs
from hopscope.claims import as_large_as
from hopscope.studies.sharing.study import Sharing

DEPTHS = (3, 4, 5, 7)
NO_MASK, CODES = "5 layers, no mask", "3 layers, codes of pairs"
MASKED = {depth: f"{depth} layers" for depth in DEPTHS}
BY_PLACE = 3  # the first layers, which attend by place alone
LEARNED, WAITS, FLOOR = hs.at_most(0.5), hs.at_least(0.7), hs.at_least(0.8)
SAME, LOST = hs.at_most(0.05), hs.at_least(0.3)
FIRST, NEXT = f"the first {BY_PLACE} layers", f"the first {BY_PLACE + 1} layers"
SIZE = {"model.width": 512, "training.steps": 2000}
TWO = "2 layers"  # for W7; not among `MASKED`, by which the rule of W6 was registered
FRESH = 8  # the first seed that was not seen when W7 and W8 were written down


def configurations(options):
    for depth, name in MASKED.items():
        yield hs.Configuration(label=name, overrides={"model.layers": depth})
    yield hs.Configuration(label=NO_MASK, overrides={"model.layers": 5, "model.causal": False})
    yield hs.Configuration(label=CODES, overrides={"model.layers": 3, "task.codes": "pair"})
    yield hs.Configuration(label=TWO, overrides={"model.layers": 2})


@hs.measure
def places(context):
    """What each layer knows of the place of a row, and what attention is worth that looks at places alone.

    Metrics, by layer: `place` (share of the variance of a row's number that a linear map of the stream after this
    layer explains, in samples to which the map was not fitted), `links` (the largest mean attention of a head from
    second tokens to the first of their pair), and `loss_by_place` (part `x₁` or `x₂`): the loss where every head up to
    this layer has its mean pattern over the samples.
    """
    import torch

    model, batch = context.ensemble, context.held_out
    second = (batch.roles["kind"] == 1)[0, 0]  # [position], alike in all samples
    mate = batch.relations["pair_mate"][0, :, second].clamp(min=0)  # [batch, second token]
    number = torch.arange(len(second)).double().expand(batch.inputs.shape[1], -1)
    half, frozen = len(number) // 2, {}
    for layer in range(model.config.layers):
        stream, site = f"blocks.{layer}.hook_resid_post", f"blocks.{layer}.attn.hook_pattern"
        cache = model.cache(batch.inputs, [stream, site])
        pattern = cache[site][..., second, :]  # [member, batch, head, second token, key]
        keys = mate[None, :, None, :, None].expand(*pattern.shape[:-1], 1)
        yield {"metric": "links", "layer": layer, "value": pattern.gather(-1, keys).mean((1, 3, 4)).amax(1)}
        rows = cache[stream].double()
        explained = [_explained(own[:half], number[:half], own[half:], number[half:]) for own in rows]
        yield {"metric": "place", "layer": layer, "value": torch.stack(explained)}
        frozen[site] = lambda own: own.mean(1, keepdim=True).expand_as(own)
        parts = context.task.parts(model.intervene(batch, dict(frozen)), batch)
        for step, name in enumerate(("x₁", "x₂"), 1):
            value = parts[f"loss_step_{step}"]
            yield {"metric": "loss_by_place", "layer": layer, "part": name, "value": value}


def _explained(seen, number, fresh, number_fresh):
    """Share of the variance in fresh samples; streams `[sample, position, width]`, numbers `[sample, position]`."""
    import torch

    def with_one(stream):
        return torch.nn.functional.pad(stream.flatten(0, 1), (0, 1), value=1.0)

    rows = with_one(seen)
    ridge = 1e-3 * torch.eye(rows.shape[1], dtype=rows.dtype)
    weights = torch.linalg.solve(rows.T @ rows + ridge, rows.T @ number.flatten())
    error = with_one(fresh) @ weights - number_fresh.flatten()
    return 1 - error.square().mean() / number_fresh.var(correction=0)


def loss(evidence, step, name):
    return evidence.last(f"loss_step_{step}", configuration=name)


def of_mask(evidence):
    return {"causal mask": loss(evidence, 1, MASKED[5]), "no mask": loss(evidence, 1, NO_MASK)}


LAYERS = {
    "x₁, 3 layers": (1, MASKED[3], WAITS),
    "x₁, 4 layers": (1, MASKED[4], LEARNED),
    "x₂, 4 layers": (2, MASKED[4], WAITS),
    "x₂, 5 layers": (2, MASKED[5], LEARNED),
}
"""Part of W5 → step, configuration, and what its loss must be."""


def of_layers(evidence):
    return {part: loss(evidence, step, name) for part, (step, name, _) in LAYERS.items()}


def rises(evidence, names):
    """By part of W6: what models that learned x₁ lose of it where their first layers attend by place alone."""
    import pandas as pd

    found = {FIRST: [pd.Series(dtype=float)], NEXT: [pd.Series(dtype=float)]}
    for name in names:
        own = loss(evidence, 1, name)
        kept = own[~(own > LEARNED.high)]  # a model that diverged is a missing number
        for layer, part in enumerate(found, BY_PLACE - 1):
            if evidence.has("loss_by_place", configuration=name, layer=layer):
                changed = evidence.last("loss_by_place", configuration=name, layer=layer, part="x₁")
                found[part].append(changed.reindex(kept.index) - kept)
    joined = {part: pd.concat(each) for part, each in found.items()}
    return {
        part: hs.Samples(each, "run", [evidence.seeds[i] for i in each.index])
        for part, each in joined.items()
    }


BY_DEPTH = {
    "4 layers, the first 2": (MASKED[4], 2, hs.at_most(0.1)),
    "4 layers, the first 3": (MASKED[4], 3, hs.at_least(0.2)),
    "7 layers, the first 3": (MASKED[7], 3, hs.at_most(0.1)),
    "7 layers, the first 4": (MASKED[7], 4, hs.at_least(0.2)),
}
"""Part of W8 → configuration, how many layers attend by place, and what that may cost."""


def fresh(evidence, values):
    kept = values[values.index.map(evidence.seeds) >= FRESH]
    return hs.Samples(kept, unit="seed", note="" if len(kept) else f"no seed from {FRESH} on")


def of_two_and_three(evidence):
    return {f"x₁, {name}": fresh(evidence, loss(evidence, 1, name)) for name in (TWO, MASKED[3])}


def by_depth(evidence, name=None):
    """By part of W8: how much the loss of x₁ rises where the first layers attend by place alone, of a configuration."""
    found = {}
    for part, (own, layers, _) in BY_DEPTH.items():
        where = {"configuration": name or own, "layer": layers - 1}
        if evidence.has("loss_by_place", **where):
            changed = evidence.last("loss_by_place", part="x₁", **where)
            found[part] = fresh(evidence, changed - loss(evidence, 1, name or own))
        else:
            found[part] = hs.Samples([], unit="seed", note="not measured")
    return found


claim = partial(hs.Claim, source="this file", rule="mean", seeds_needed=8, at_scale=as_large_as(SIZE))
by_layer = partial(hs.figures.sweep, x="layer", by="configuration")

study = hs.Study(
    name="by-place",
    question="How do models find the pairs of a chain where no code says which tokens are a pair?",
    task=Sharing(codes="drawn for tokens"),
    model=hs.Model(layers=5, heads=4, head_dim=8, width=512, mlp_ratio=0.0),
    training=hs.Training(
        steps=2000, batch_size=128, weight_decay=0.1, evaluate_every=50, checkpoint_every=2000
    ),
    configurations=configurations,
    seeds=8,
    held_out=512,
    measures=[places],
    claims=[
        claim(
            id="W4",
            statement="Where no code says which tokens are a pair, the causal mask does.",
            protocol="five layers: final held-out loss of x₁, mean over seeds: at most 0.5 with a causal mask, at "
            "least 0.8 without (what can be known there: 6/7)",
            value=of_mask,
            must={"causal mask": LEARNED, "no mask": FLOOR},
        ),
        claim(
            id="W5",
            statement="Each step takes two layers more than with codes: x₁ four, x₂ five.",
            protocol="final held-out losses, mean over seeds: of x₁ at least 0.7 with three layers and at most 0.5 "
            "with four, of x₂ at least 0.7 with four and at most 0.5 with five; the control has codes of pairs, and "
            "three layers for x₂",
            value=of_layers,
            must={part: must for part, (_, _, must) in LAYERS.items()},
            controls={CODES: lambda evidence: {"x₁, 3 layers": loss(evidence, 1, CODES)}},
            must_not={"x₁, 3 layers": WAITS},
        ),
        claim(
            id="W6",
            statement="The first three layers attend by place alone; the fourth is the first to compare tokens.",
            protocol="models with a mask that learned x₁ (a loss under 0.5): the loss of x₁ rises by 0.05 at most "
            "where all heads of the first three layers have their mean pattern over the samples, and by 0.3 at least "
            "where those of the fourth have it, too; the control has codes of pairs, and three layers",
            value=lambda evidence: rises(evidence, MASKED.values()),
            must={FIRST: SAME, NEXT: LOST},
            controls={CODES: lambda evidence: {FIRST: rises(evidence, [CODES])[FIRST]}},
            must_not={FIRST: SAME},
        ),
        claim(
            id="W7",
            statement="Without codes x₁ takes three layers, one more than with them.",
            protocol="final held-out loss of x₁, mean over the seeds from 8 on: at least 0.7 with two layers, at most "
            "0.5 with three",
            value=of_two_and_three,
            must={f"x₁, {TWO}": WAITS, f"x₁, {MASKED[3]}": LEARNED},
        ),
        claim(
            id="W8",
            statement="Four layers attend by place alone in their first two, seven in their first three.",
            protocol="mean over the seeds from 8 on: the loss of x₁ rises by 0.1 at most where all heads of these "
            "layers have their mean pattern over the samples, and by 0.2 at least where those of one layer more have "
            "it, too; the control has codes of pairs, and three layers",
            value=by_depth,
            must={part: must for part, (_, _, must) in BY_DEPTH.items()},
            controls={
                CODES: lambda evidence: {
                    "7 layers, the first 3": by_depth(evidence, CODES)["7 layers, the first 3"]
                }
            },
            must_not={"7 layers, the first 3": hs.at_most(0.1)},
        ),
    ],
    figures=[
        hs.figures.bars("loss_step_2", title="final held-out loss of x₂"),
        by_layer(
            "place",
            title="share explained",
            ends=(0, 1),
            caption="How well the place of a row can be read from its stream after each layer, by a linear map.",
        ),
        by_layer(
            "links",
            title="mean attention",
            ends=(0, 1),
            caption="The largest mean attention of a head from second tokens to the first of their pair.",
        ),
        by_layer(
            "loss_by_place",
            part="x₁",
            title="loss of x₁",
            caption="The loss of x₁ where every head up to a layer has its mean pattern over the samples.",
        ),
    ],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "model.width": 32, "held_out": 64}},
    costs={"": "56 models, about 45 min on two cores; with 16 seeds twice that"},
)
