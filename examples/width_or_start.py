"""width_or_start.py: do wide streams learn sooner, or does a fixed size of the weights only suit them better?

Weights of 0.02 are those of `torch.nn.Linear`, 1/√(3·fan_in), at a width of 833; for narrow streams they are smaller
than that.  So width and start are mixed up: here both starts are tried at two widths.

One rate for all decides the contest: at 4e-3 wide streams learn nothing, at 1e-3 narrow ones.  So the preset
`own-rates` gives each the rate of these two at which more of its seeds had learned x₃ in 1,000 steps; where none had,
the one with the lower final loss.
"""

from pydantic import BaseModel

import hopscope as hs
from hopscope.claims import as_large_as

NARROW, WIDE = 64, 512
SCALED, FIXED = "1/√(3·fan_in)", "0.02"
STARTS = {SCALED: "linear", FIXED: "gpt2"}
MUST = {SCALED: hs.at_most(1.5), FIXED: hs.at_least(3.0)}
OWN_RATES = {(SCALED, NARROW): 4e-3, (SCALED, WIDE): 1e-3, (FIXED, NARROW): 4e-3, (FIXED, WIDE): 1e-3}
LEARNED = 0.5


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
    """First step with a held-out loss of x₃ under one half, by seed; what never came took at least all steps."""
    curve = evidence.curve("loss_step_3", configuration=label(start, width))  # [step, member]
    steps = evidence.config["identity"]["training"]["steps"]
    under = {member: losses.index[losses < LEARNED] for member, losses in curve.items()}
    return [float(found[0]) if len(found) else float(steps) for found in under.values()]


def ratios(evidence):
    """By start: median time of narrow streams over that of wide ones; seeds are resampled, both widths alike.

    Where half of the seeds of a width never learned x₃, the ratio is a bound, which may say nothing.
    """
    import numpy as np

    found, generator = {}, np.random.Generator(np.random.Philox(key=0))
    steps = evidence.config["identity"]["training"]["steps"]
    for start, must in MUST.items():
        narrow, wide = (np.array(time(evidence, start, width)) for width in (NARROW, WIDE))
        drawn = generator.integers(len(narrow), size=(2000, len(narrow)))
        several = np.median(narrow[drawn], 1) / np.median(wide[drawn], 1)
        ratio = float(np.median(narrow) / np.median(wide))
        # Which bound the ratio is: of an even number of seeds the median is the mean of the two in the middle.
        least, most = (np.sort(times)[len(times) // 2] >= steps for times in (narrow, wide))
        bound = must.low if must is MUST[FIXED] else must.high
        open_ = (least and most) or (least and ratio < bound) or (most and ratio > bound)
        interval = tuple(map(float, np.quantile(several, [0.025, 0.975])))
        found[start] = hs.Samples([ratio] * len(narrow), unit="seed", interval=interval)
        if open_:
            found[start] = hs.Samples([], unit="seed", note=f"most learn no x₃ in {steps:,} steps")
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
        "smoke": {"seeds": 2, "training.steps": 20, "training.checkpoint_every": 20},
        "own-rates": {"own_rates": True, "training.steps": 2000, "training.checkpoint_every": 2000},
    },
    costs={"": "32 models, 15 min on two cores", "own-rates": "32 models, 30 min on two cores"},
)
