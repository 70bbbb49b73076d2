"""layers_and_speed.py: a claim about a built-in task. Do more layers make x₁ of the retrieval task appear earlier?

Layers are added at the same width. The time is the training step at which the held-out loss of x₁ falls under 0.5: a
model that attends by position alone stays at 1 - 1/chains.
"""

import math

import hopscope as hs
from hopscope.claims import as_large_as

LEARNED = 0.5


def steps_until_learned(evidence):
    """Member → first evaluation with a loss of x₁ under 0.5; infinite where that never happened."""
    curve = evidence.curve("loss_step_1")  # steps × members
    return {
        member: next((float(step) for step, loss in values.items() if loss < LEARNED), math.inf)
        for member, values in curve.items()
        if values.notna().all()  # a diverged member says nothing
    }


def earlier_with_more_layers(evidence):
    """For each seed and pair of neighbouring depths: the share of the time that the deeper model saves."""
    times, end = steps_until_learned(evidence), float(evidence.curve("loss_step_1").index[-1])
    layers = evidence.to_pandas().groupby("member")["model.layers"].first()
    found, seeds = [], []
    for member, time in times.items():
        for other, earlier in times.items():
            same_seed = evidence.seeds[member] == evidence.seeds[other]
            if same_seed and layers[other] == layers[member] + 1:
                # A time that never came is longer than the training; where neither came nothing is known.
                both_never = math.isinf(time) and math.isinf(earlier)
                found.append(math.nan if both_never else 1 - earlier / min(time, end))
                seeds.append(evidence.seeds[member])
    return hs.Samples(found, unit="pair", cluster=seeds, note=f"{len(times)} members measured")


study = hs.Study(
    name="layers-and-speed",
    question="Do more layers at the same width make the first retrieval step appear earlier?",
    task=hs.tasks.Retrieval(steps=1, chains=3),
    model=hs.Model(heads=2, width=64, mlp_ratio=0.0),
    training=hs.Training(steps=400, batch_size=64, evaluate_every=5),
    vary={"model.layers": [2, 3, 4]},
    seeds=10,
    claims=[
        hs.Claim(
            id="L1",
            statement="With more layers of the same width x₁ is learned earlier.",
            source="this file",
            protocol="step at which the held-out loss of x₁ falls under 0.5; by seed, the share of the time that one "
            "more layer saves",
            value=earlier_with_more_layers,
            must=hs.at_least(0.0, unit="fraction"),
            rule="effect",
            at_scale=as_large_as({"training.steps": 400}),
        )
    ],
    figures=[hs.figures.curves("loss_step_1", by="model.layers"), hs.figures.bars("loss", by="model.layers")],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)
