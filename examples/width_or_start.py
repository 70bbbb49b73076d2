"""width_or_start.py: do wide streams learn sooner, or does a fixed size of the weights only suit them better?

Weights of 0.02 are those of `torch.nn.Linear`, 1/√(3·fan_in), at a width of 833; for narrow streams they are smaller
than that.  So width and start are mixed up: here both starts are tried at two widths.

One rate for all decides the contest: at 4e-3 wide streams learn nothing, at 1e-3 narrow ones.  So the preset
`own-rates` gives each the rate of these two at which more of its seeds had learned x₃ in 1,000 steps; where none had,
the one with the lower final loss.
"""

import math

from pydantic import BaseModel

import hopscope as hs
from hopscope.claims import as_large_as

NARROW, WIDE = 64, 512
SCALED, FIXED = "1/√(3·fan_in)", "0.02"
STARTS = {SCALED: "linear", FIXED: "gpt2"}
MUST = {SCALED: hs.at_most(1.5), FIXED: hs.at_least(3.0)}
OWN_RATES = {(SCALED, NARROW): 4e-3, (SCALED, WIDE): 1e-3, (FIXED, NARROW): 4e-3, (FIXED, WIDE): 1e-3}
LEARNED = 0.5
NEVER = 1e9  # training steps


class Options(BaseModel, frozen=True):
    """What differs.

    Attributes:
        own_rates: whether each start and width has a learning rate of its own.
    """

    own_rates: bool = False


def label(start, width):
    return f"width {width}, weights of {start}"


def configurations(options):
    found = []
    for start, init in STARTS.items():
        for width in (NARROW, WIDE):
            fields = {"model.init": init, "model.width": width}
            if options.own_rates:
                fields["training.learning_rate"] = OWN_RATES[start, width]
            found.append(hs.Configuration(label=label(start, width), overrides=fields))
    return found


def time(evidence, start, width):
    """First step with a held-out loss of x₃ under one half, by seed; infinite where it never came, NaN if diverged."""
    curve = evidence.curve("loss_step_3", configuration=label(start, width))  # [step, member]
    times = (min(losses.index[losses < LEARNED], default=math.inf) for _, losses in curve.items())
    return [math.nan if gone else time for time, gone in zip(times, curve.isna().any(), strict=True)]


def ratios(evidence):
    """By start: median time of narrow streams over that of wide ones; seeds are resampled, both widths alike.

    What never came took all steps or more: the interval goes from the least ratio to the greatest that this allows.
    """
    import numpy as np

    found, generator = {}, np.random.Generator(np.random.Philox(key=0))
    steps = evidence.config["identity"]["training"]["steps"]
    for start in MUST:
        both = np.array([time(evidence, start, width) for width in (NARROW, WIDE)])
        known = ~np.isnan(both).any(0)
        narrow, wide = both[:, known]
        if not known.any():
            found[start] = hs.Samples([math.nan] * len(known), unit="seed")
            continue
        drawn = generator.integers(len(narrow), size=(2000, len(narrow)))
        ends = [
            np.median(np.minimum(narrow, most)[drawn], 1) / np.median(np.minimum(wide, other)[drawn], 1)
            for most, other in ((steps, NEVER), (NEVER, steps))
        ]
        ratio = np.median(np.minimum(narrow, steps)) / np.median(np.minimum(wide, steps))
        interval = float(np.quantile(ends[0], 0.025)), float(np.quantile(ends[1], 0.975))
        found[start] = hs.Samples(np.where(known, ratio, math.nan), unit="seed", interval=interval)
    return found


study = hs.Study(
    name="width-or-start",
    question="Do wide streams learn sooner, or does a fixed size of the weights only suit them better?",
    task=hs.tasks.Retrieval(steps=3, chains=4, position="pair"),
    model=hs.Model(layers=4, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=1000, batch_size=64, learning_rate=4e-3, evaluate_every=20, checkpoint_every=1000
    ),
    options=Options(),
    configurations=configurations,
    seeds=8,
    held_out=256,
    claims=[
        hs.Claim(
            id="N19",
            statement="“Wide streams learn sooner” is the start in disguise.",
            source="docs/protocols.md, Revision 3",
            protocol="median step at which the loss of x₃ is first under 0.5, width 64 over width 512: at most 1.5 "
            "with weights of 1/√(3·fan_in), at least 3 with weights of 0.02; what was never learned took at least "
            "all steps; seeds resampled",
            value=ratios,
            must=MUST,
            rule="mean",
            seeds_needed=8,
            at_scale=as_large_as({"model.layers": 4, "model.heads": 8, "training.steps": 1000}),
        )
    ],
    figures=[
        hs.figures.curves("loss_step_3", title="held-out loss of x₃"),
        hs.figures.bars("loss_step_3", title="final held-out loss of x₃"),
    ],
    presets={
        "smoke": {"seeds": 2, "training.steps": 20, "held_out": 64},
        "own-rates": {"own_rates": True, "training.steps": 2000, "training.checkpoint_every": 2000},
    },
    costs={"": "32 models, 15 min on two cores", "own-rates": "32 models, 30 min on two cores"},
)
