"""How many layers does retrieval take (paper, section 7)?  Its figures, and the study as a value."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, final_rows, symbol
from hopscope.studies.chains.measures import Rows, explorer, final, learned_at, least_layers, retrieval
from hopscope.studies.chains.recipe import chain_study
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.options import STATED, Cell, Options
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence


def configurations(options: Options, study: Study) -> Iterator[Configuration]:
    for each, seeds in options.cells(study.completion, study.seeds).items():
        yield Configuration(label=each.label, overrides=options.fields_of(each), seeds=seeds)


# What is drawn.


def figures(options: Options) -> list[charts.Figure]:
    plateau, ends = options.plateau, (0.0, 1.05)
    parts = {f"step_{step}": symbol(step) for step in range(1, options.steps + 1)}
    look: Any = {"levels": {"plateau": plateau, "learned": options.of_plateau(LEARNED)}, "ends": ends}
    rows = partial(by_layers, [*options.base("IC"), *options.base("non-IC")], {None: None})
    found = [
        charts.sweep("final_loss", "layers", by="asked", rows=rows, name="loss_by_depth", ends=ends,
                     levels={"plateau": plateau, "zero": 1.0}, title="final held-out loss (MSE)"),
    ]  # fmt: skip
    if chains := options.base("IC"):
        deepest = {"configuration": chains[-1].label}
        found += [
            charts.sweep("final_loss", "layers", by="part", rows=partial(by_layers, chains, parts),
                         name="partial_by_depth", title="final partial loss (MSE)", **look),
            charts.curves([f"loss_{part}" for part in parts], by="metric", where=deepest, name="partial_curves",
                          title="held-out partial loss", **look),
        ]  # fmt: skip
    if chains and options.sweeps:
        found.append(charts.dots("final_loss", "configuration", by="part", where={"part": ...}, name="specification",
                                 title="final partial loss", **{**look, "ends": (0.0, 1.0)}))  # fmt: skip
    return found


def by_layers(cells: Iterable[Cell], parts: Mapping[Any, str | None], evidence: "Evidence") -> Rows:
    """Final losses of some configurations by their layers: of parts, with their words, or of the whole (`None`)."""
    for cell, (part, words) in product(cells, parts.items()):
        told = {"asked": f"{cell.asked}, D = {cell.steps}", "layers": cell.layers, "part": words}
        yield from final_rows(evidence, "final_loss", cell.label, part, **told)


_QUICK: dict[str, Any] = {
    "steps_last": 3, "width": 128, "heads": 8, "head_size": 16, "position": "pair", "batch_size": 64,
    "learning_rate": 4e-3, "training_steps": 1_000, "checkpoint_every": 250, "evaluate_every": 20,
    "members_per_unit": 4,
}  # fmt: skip
_SWEPT = {"seeds": 4, "deepest_seeds": 4, "layers": (6,), "layers_last": (6,), "sweep_layers": (6,), "sweep_seeds": 4,
          "steps": 3, "sweeps": ("details",)}  # fmt: skip
_LARGE = {"seeds": 8, "deepest_seeds": 8, "layers": tuple(range(1, 9)), "layers_last": tuple(range(1, 9))}

study = chain_study(
    name="depth",
    question="models of many depths follow a chain: which steps they learn, in which order, and how deep it takes",
    options=Options(),
    configurations=configurations,
    seeds=3,
    measures=(final, retrieval, learned_at, least_layers, explorer),
    claims=claims,
    figures=figures,
    members_per_unit=3,
    presets={
        "smoke": {
            "seeds": 2, "deepest_seeds": 2, "layers": (1, 3), "layers_last": (1, 3), "steps": 2, "steps_last": 2,
            "width": 32, "heads": 2, "training_steps": 300, "batch_size": 32, "checkpoint_every": 100,
            "evaluation_samples": 256, "analysis_samples": 512,
        },
        "laptop": {**_QUICK, "seeds": 3, "deepest_seeds": 6, "steps": 3},
        "workstation": {**_QUICK, **_LARGE, "steps": 4},
        "completions": {**_QUICK, **_SWEPT, "details": ("completion",)},
        "details": {**_QUICK, **_SWEPT},
        "paper": {
            **{name: value for name, (_, value) in STATED.items()}, **_LARGE, "steps": 5, "steps_last": 3,
            "pool": 2**20, "training_steps": 10_000, "checkpoint_every": 1_000, "final_every": 1,
            "evaluation_samples": 1024, "members_per_unit": 8,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "15 to 30 min on two cores: 39 models",
        "workstation": "about 1 h 30 min on two cores: 128 models",
        "completions": "about 20 min on two cores: 32 models",
        "details": "about 1 h 15 min on two cores by estimate: 120 models",
        "paper": "128 models; made for a GPU",
    },
)  # fmt: skip
