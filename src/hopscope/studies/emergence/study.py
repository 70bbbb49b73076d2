"""In which order do heads form, and what needs what (paper, section 9)?  The study as a value."""

from itertools import permutations
from typing import ClassVar, Literal

from pydantic import Field

from hopscope.errors import UserError
from hopscope.studies.chains.circuits import QUICK, SMOKE, ChainOptions, shared_figures
from hopscope.studies.chains.measures import explorer, final, retrieval
from hopscope.studies.chains.readings import circuits, compared
from hopscope.studies.chains.recipe import chain_study
from hopscope.studies.emergence import needs
from hopscope.studies.emergence.claims import claims
from hopscope.studies.emergence.clamps import clamps
from hopscope.studies.emergence.events import event_figures, orders
from hopscope.study.study import Configuration, Study


class Options(ChainOptions):
    """What the study has beside the shared options.

    Attributes:
        crossed: of so many seeds, the initial weights of each are also trained on the samples of each other one.
        clamped: number of first members that are trained again with paths clamped, if they were read.
        clamp_steps: optimiser steps of these runs.
        clamp_from: where they begin: at the last checkpoint before the clamped paths formed; or at the start, and then
            the read for x₁ alone is clamped.
    """

    # Not among them is the batch: the paper's epochs and its batch size disagree, and both readings are presets.
    paper: ClassVar[dict[str, float | None]] = {
        "steps": 4, "chains": 4, "symbol_dim": 4, "layers": 24, "heads": 1, "width": 512, "head_size": 16,
        "mlp_ratio": 0.0, "training_steps": 6_400, "pool": 2**18, "learning_rate": 1e-3, "weight_decay": 0.1,
        "final_window": 100,
    }  # fmt: skip

    read_again: int = Field(0, ge=0)
    crossed: int = Field(3, ge=0)
    clamped: int = Field(2, ge=0)
    clamp_steps: int = Field(800, ge=1)
    clamp_from: Literal["formation", "start"] = Field("formation", exclude_if=lambda at: at == "formation")


def configurations(options: Options, study: Study) -> list[Configuration]:
    """Seeds as they are, then the initial weights of some on the samples of the others."""
    if options.crossed == 1 or options.crossed > study.seeds:
        wanted = f"expected 0, or 2 to {study.seeds} (the number of seeds)"
        raise UserError(f"crossed: {wanted}, found {options.crossed}")
    found = [options.configuration()]
    for init, data in permutations(range(options.crossed), 2):
        label = f"{options.label}, init {init}, data {data}"
        crossed = options.configuration(label, init_seed=init, data_seed=data)
        found.append(crossed.model_copy(update={"seeds": (init,)}))
    return found


_D = {
    **Options.paper, "seeds": 8, "batch_size": 256, "checkpoint_every": 80, "evaluate_every": 8, "final_every": 8,
    "evaluation_samples": 1024, "members_per_unit": 4, "crossed": 4, "clamped": 2, "clamp_steps": 2_400,
}  # fmt: skip
_ALONE = {"crossed": 0, "clamped": 0}
_FOUR = {**QUICK, "steps": 4, "layers": 6, "training_steps": 1_500, "checkpoint_every": 25}
_TWO = {**QUICK, "steps": 2, "training_steps": 400}

study = chain_study(
    name="emergence",
    question="the heads of a circuit as they form: in which order, with which losses, and what needs what",
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=(final, retrieval, circuits, compared, clamps, orders, explorer),
    claims=lambda options: [*claims(options), *(needs.claims(options) if options.clamp_from == "start" else ())],
    figures=lambda options: [*shared_figures(options), *event_figures(options, options.clamped > 0)],
    members_per_unit=4,
    presets={
        "smoke": {
            **SMOKE, "checkpoint_every": 50, "evaluate_every": 25, "members_per_unit": 2, "crossed": 2, "clamped": 1,
        },
        "laptop": {**QUICK, **_ALONE, "seeds": 4},
        "workstation": {**_FOUR, **_ALONE, "seeds": 8},
        "two-steps": {**_TWO, "seeds": 10, "crossed": 3, "clamped": 2, "clamp_steps": 400, "read_again": 1},
        # 16 seeds that were read and have a control decide: some never learn, or cannot be read.
        "needs": {**_TWO, "seeds": 24, "training_steps": 600, "crossed": 0, "clamped": 24, "clamp_from": "start"},
        "paper": _D,
        "paper-batch-32768": {**_D, "batch_size": 32_768, "crossed": 0, "members_per_unit": 1},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "two to three min on two quiet cores",
        "workstation": "about 1 h on two quiet cores",
        "two-steps": "about 10 min on two cores",
        "needs": "about 25 min on two cores by estimate",
        "paper": "20 models of 24 layers; made for a GPU",
        "paper-batch-32768": "8 models of 24 layers at 128 times the batch; made for a GPU",
    },
)  # fmt: skip
