"""When do induction heads form?  Two published laws point opposite ways, and a finding of our own stands beside them.

Aoyama, Wilcox and Schneider (arXiv 2511.16893): after tokens ∝ √(batch · context).  Musat et al. (arXiv 2511.01033):
after a time ∝ context².
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import hopscope as hs
from hopscope.figures import Axis, Series
from hopscope.studies.formation.claims import claims, laws
from hopscope.studies.formation.measures import SIGNS, formed, to_answers
from hopscope.studies.formation.options import (
    BASES,
    LAYERS,
    REPEATS,
    WIDTH,
    Options,
    differences,
    judged,
    label,
    special,
)
from hopscope.studies.formation.task import Induction


def configurations(options: Options) -> list[hs.Configuration]:
    """The grid of each variant, then what differs in one thing."""
    found = []
    for variant, base in BASES.items():
        cells: dict[str, tuple[tuple[int, int], Mapping[str, Any]]] = {
            label(variant, *cell): (cell, {}) for cell in options.cells(variant)
        }
        if base in options.cells(variant):
            cells |= {special(variant, what): (base, more) for what, more in differences(options).items()}
        for name, ((context, batch), more) in cells.items():
            steps = options.steps(variant, batch)
            overrides = {
                "task.repeats": variant == REPEATS, "task.context": context, "training.batch_size": batch,
                "training.steps": steps, "training.evaluate_every": options.every[options.batches.index(batch)],
                "training.checkpoint_every": steps,
            }  # fmt: skip
            found.append(hs.Configuration(label=name, overrides={**overrides, **more}))
    return found


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Times by context, and accuracy and attention during training of the standard models."""
    there = [
        Series("formed_at", f"batch {batch}", x=context, panel=variant,
               where={"configuration": label(variant, context, batch), "part": SIGNS[0]})
        for variant in BASES for batch in options.batches for context in options.contexts(variant)
    ]  # fmt: skip
    curves = [
        Series(metric, name, panel=f"{variant}, context {context}",
               where={"configuration": label(variant, context, options.batches[len(options.batches) // 2])})
        for variant in BASES for context in options.contexts(variant)
        for metric, name in (("accuracy", "accuracy"), ("to_answers", "attention"))
    ]  # fmt: skip
    return (
        hs.figures.sweep(
            "times", there, Axis("training step of formation", log=True), across=Axis("context", log=True)
        ),
        hs.figures.lines("curves", curves, Axis("share", (0.0, 1.0))),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "special": special, "bases": BASES, "differences": differences(options), "signs": SIGNS,
        "never": math.inf, "judged": judged(options),
        "exponent": lambda variant, sign, at: page.mean(
            [law[at] for law in laws(page.evidence, options, variant, sign) if not math.isnan(law[at])],
            f"exponent of steps by {('context', 'batch')[at]}, {variant}, {sign}", decimals=2,
        ),
    }  # fmt: skip


study = hs.Study(
    name="formation",
    question="how does the time until an induction head forms depend on context, batch, depth and width?",
    task=Induction(),
    completion="gpt2-base",
    model=hs.Model(layers=LAYERS, heads=1, width=WIDTH, mlp_ratio=0.0, init="encoder"),
    training=hs.Training(
        steps=1500,
        batch_size=64,
        optimizer="adam",
        learning_rate=3e-3,
        weight_decay=0.0,
        evaluate_every=20,
        checkpoint_every=1500,
    ),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[to_answers, formed],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {
            "seeds": 2, "model.width": 16, "options.batches": (32, 64), "options.one_steps": (20, 20),
            "options.repeats_steps": (20, 20), "options.every": (10, 10), "options.one_contexts": (8, 16),
            "options.repeats_contexts": (12, 24), "options.layers": (1,), "options.widths": (),
        },
        "laptop": {},
        "workstation": {
            "options.one_contexts": (8, 12, 16, 24, 32), "options.repeats_contexts": (12, 24, 48, 96),
            "options.batches": (16, 32, 64, 128, 256), "options.one_steps": (6000, 3000, 1600, 900, 600),
            "options.repeats_steps": (3000, 1600, 800, 500, 400), "options.every": (40, 20, 10, 5, 5),
            "options.widths": (32, 128),
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores",
        "workstation": "about two hours on two cores by estimate; not run yet",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=128,
)  # fmt: skip
