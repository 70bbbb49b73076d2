"""at_the_start.py: can one see in a model that was never trained whether it will learn a chain?

Weights start with a standard deviation of fan_in^-γ, and which γ learn hangs on depth and heads.  Three signs are
measured before any step: how large the gradient of the first layer is beside that of the last, how large it is in all,
and how far attention logits differ.  A fourth is read in training: when the first symbol of the chain is learned.
"""

import math

import hopscope as hs
from hopscope.claims import as_large_as

GAMMAS, DEPTHS, HEADS = (0.3, 0.5, 0.7, 0.9, 1.1, 1.3), (3, 12), (1, 8)
STEPS, LEARNED = 3, 0.5
SIZE = {"model.heads": 8, "model.width": 128, "training.steps": 1000}
SIGNS = ("first layer's gradient beside the last's", "gradient", "attention logits")
EARLY = "first symbol learned early"
FORETELLS = hs.at_least(0.9, unit="fraction")


def label(gamma, layers, heads):
    return f"γ {gamma:g}, {layers} layers of {heads} head{'s' * (heads > 1)}"


GRID = {
    (gamma, layers, heads): label(gamma, layers, heads)
    for layers in DEPTHS
    for heads in HEADS
    for gamma in GAMMAS
}


def configurations(options):
    for (gamma, layers, heads), name in GRID.items():
        sizes = {"model.layers": layers, "model.heads": heads, "model.head_dim": 16 if heads > 1 else 32}
        yield hs.Configuration(label=name, overrides={"model.init": gamma, **sizes})


@hs.measure(when="checkpoints")
def signs(context):
    """Norms of the loss's gradient (of the first layer, the last, and all), and how far logits differ, at the start.

    Metrics `gradient_first`, `gradient_last`, `gradient` and `logits` (standard deviation of a row's logits over the
    keys that it may see; root of the mean square over layers, heads, rows and samples); natural logarithms.
    """
    if context.step:
        return {}
    import torch

    model, batch = context.ensemble, context.held_out
    names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(model.config.layers)]
    with torch.no_grad():
        scores = model.cache(batch.inputs[:, :64], names)
    seen = torch.ones(model.config.length, model.config.length, dtype=torch.bool).tril()[2:]
    spread = [each[..., 2:, :].masked_fill(~seen, math.nan) for each in scores.values()]
    spread = [((each - each.nanmean(-1, keepdim=True)) ** 2).nanmean((1, 2, 3, 4)) for each in spread]
    weights = {name: weight.requires_grad_() for name, weight in model.named_parameters()}
    with torch.enable_grad():
        loss = context.task.parts(model(batch.inputs), batch)["loss"].sum()
        gradients = dict(zip(weights, torch.autograd.grad(loss, [*weights.values()]), strict=True))

    def norm(begins):
        squares = [
            each.flatten(1).square().sum(1) for name, each in gradients.items() if name.startswith(begins)
        ]
        return sum(squares).log() / 2

    return {
        "gradient_first": norm("layers.0."),
        "gradient_last": norm(f"layers.{model.config.layers - 1}."),
        "gradient": norm(""),
        "logits": torch.stack(spread).mean(0).log() / 2,
    }


def first_time(evidence, name):
    """By member: minus the first step with a held-out loss of x₁ under one half; minus infinity where it never came."""
    curve = evidence.curve("loss_step_1", configuration=name)  # [step, member]
    return -curve.apply(lambda losses: losses.index[losses < LEARNED].min()).astype(float).fillna(math.inf)


def table(evidence):
    """A row a model that did not diverge: its place in the grid, its signs, and how many steps it learned."""
    import pandas as pd

    found = []
    for place, name in GRID.items():
        own = {each: evidence.last(each, configuration=name) for each in ("gradient_first", "gradient_last")}
        columns = {
            SIGNS[0]: own["gradient_first"] - own["gradient_last"],
            SIGNS[1]: evidence.last("gradient", configuration=name),
            SIGNS[2]: evidence.last("logits", configuration=name),
            EARLY: first_time(evidence, name),
        }
        losses = [evidence.last(f"loss_step_{step}", configuration=name) for step in range(1, STEPS + 1)]
        steps = sum((loss < LEARNED).astype(float).where(loss.notna()) for loss in losses)
        found.append(pd.DataFrame({**columns, "steps": steps}).assign(place=[place] * len(steps)))
    every = pd.concat(found).dropna(subset="steps")
    return every.assign(seed=[evidence.seeds[member] for member in every.index])


def area(sign, learned):
    """How often a model that learned has the larger sign of two, one that learned and one that did not; ties half."""
    learned = learned[sign.notna()]
    yes, no = sign.dropna()[learned].to_numpy()[:, None], sign.dropna()[~learned].to_numpy()
    return float(((yes > no) + 0.5 * (yes == no)).mean()) if yes.size and no.size else math.nan


def foretold(evidence):
    """By sign and seed: `area` over the models of that seed."""
    groups = [of for _, of in table(evidence).groupby("seed")]
    areas = {sign: [area(of[sign], of["steps"] == STEPS) for of in groups] for sign in SIGNS}
    return {sign: hs.Samples(values, unit="seed") for sign, values in areas.items()}


def early(evidence):
    """By seed: `area` of an early first symbol, among the models that learned it: the others cannot learn the rest."""
    begun = [of[of[EARLY] > -math.inf] for _, of in table(evidence).groupby("seed")]
    return hs.Samples([area(of[EARLY], of["steps"] == STEPS) for of in begun], unit="seed")


PAIRS = (
    "models of six starts (standard deviation fan_in^-γ), two depths and one head or eight, without those that "
    "diverged; by seed, the share of pairs of a model that learned all three steps (held-out losses under 0.5 at the "
    "end) and one that did not in which the first "
)


def border(sign):
    """A figure: a sign at each place of the grid, and how many steps are learned there; means over seeds."""

    def plotted(evidence):
        for (_, layers, heads), of in table(evidence).groupby("place"):
            model = f"{layers} layers of {heads} head{'s' * (heads > 1)}"
            yield {"model": model, sign: round(of[sign].mean(), 1), "value": of["steps"].mean()}

    return hs.figures.sweep(
        "steps",
        sign,
        by="model",
        rows=plotted,
        name=sign.replace(" ", "-").replace("'", ""),
        title="steps learned",
        ends=(0, 3),
        caption=f"Each point is a start of one shape: {sign} (natural logarithm), and how many steps are learned.",
    )


study = hs.Study(
    name="at-the-start",
    question="Can one see in a model that was never trained whether it will learn a chain?",
    task=hs.tasks.Retrieval(steps=STEPS, chains=4, position="pair"),
    model=hs.Model(layers=3, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=1000, batch_size=64, learning_rate=4e-3, evaluate_every=20, checkpoint_every=1000
    ),
    configurations=configurations,
    seeds=8,
    held_out=256,
    measures=[signs],
    claims=[
        hs.Claim(
            id="V3",
            statement="One of three signs at the start foretells whether a model learns three steps.",
            source="this file",
            protocol=PAIRS + "has the larger sign; ties count half",
            value=foretold,
            must=dict.fromkeys(SIGNS, FORETELLS),
            need="any",
            rule="mean",
            seeds_needed=8,
            at_scale=as_large_as(SIZE),
        ),
        hs.Claim(
            id="V4",
            statement="Of models that learn the first step, those that learn it early learn the others.",
            source="this file",
            protocol=PAIRS + "was the earlier with its first step; of models that learned it; ties count half",
            value=early,
            must=FORETELLS,
            rule="mean",
            seeds_needed=8,
            at_scale=as_large_as(SIZE),
        ),
    ],
    figures=[*map(border, SIGNS), hs.figures.curves("loss_step_3", title="held-out loss of x₃")],
    presets={"smoke": {"seeds": 2, "training.steps": 10, "training.batch_size": 8, "model.width": 16, "held_out": 64}},
    costs={"": "192 models"},
)  # fmt: skip
