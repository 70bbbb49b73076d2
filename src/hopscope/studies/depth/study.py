"""How many layers does retrieval take (paper, section 7)?  Its figures, and the study as a value."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import symbol
from hopscope.studies.chains.measures import explorer, final, learned_at, least_layers, retrieval
from hopscope.studies.chains.recipe import chains_of
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.options import Cell, Options
from hopscope.studies.depth.values import crossings_of, of_reading, panel
from hopscope.study.study import Configuration, Study
from hopscope.theory.information_flow import held_pieces
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence


def configurations(options: Options, study: Study) -> list[Configuration]:
    """Both panels, and then the sweeps, with their seeds."""
    cells = options.cells(study.completion, study.seeds)
    return [
        Configuration(label=each.label, overrides=options.fields_of(each), seeds=seeds)
        for each, seeds in cells.items()
    ]


# What is drawn.


def figures(options: Options) -> list[charts.Figure]:
    """Both panels of the paper's Figure 4, how models learn, what information flow allows, and the sweeps."""
    plateau, ends = 1 - 1 / options.chains, (0.0, 1.05)
    panels = {each.label: f"{each.asked}, D = {each.steps}" for each in options.base}
    found = [
        charts.sweep("final_loss", "layers", by="asked", rows=partial(final_rows, panels, (None,)),
                     name="loss_by_depth", levels={"plateau": plateau, "zero": 1.0}, ends=ends,
                     title="final held-out loss (MSE)"),
    ]  # fmt: skip
    if not options.layers:
        return found
    parts = tuple(f"step_{step}" for step in range(1, options.steps + 1))
    deepest, look = options.base[len(options.layers) - 1].label, {"plateau": plateau, "learned": 0.5}
    chains = {label: words for label, words in panels.items() if words.startswith("IC")}
    found += [
        charts.sweep("final_loss", "layers", by="part", rows=partial(final_rows, chains, parts),
                     name="partial_by_depth", levels=look, ends=ends, title="final partial loss (MSE)"),
        charts.curves([f"loss_{part}" for part in parts], by="metric", where={"configuration": deepest},
                      name="partial_curves", levels=look, ends=ends, title="held-out partial loss"),
        charts.dots("learned_at", "configuration", by="part", rows=partial(crossing_rows, options),
                    name="crossings", title="training step at which the partial loss fell under 0.5"),
    ]  # fmt: skip
    if options.steps <= 8:
        rows = partial(flow_rows, options)
        found.append(
            charts.cells(
                "pieces", "position", "layer", rows=rows, name="information_flow", title="pieces held"
            )
        )
    if "steps" in options.sweeps:
        swept = {Cell("IC", steps, layers).label: f"D = {steps}" for steps in range(options.most_steps, 0, -1)
                 for layers in options.layers}  # fmt: skip
        found.append(charts.cells("final_loss", "layers", "asked", rows=partial(final_rows, swept, ()), ends=(0.0, 0.8),
                                  name="steps_by_depth", title="loss of x_D"))  # fmt: skip
    if {"specification", "details"} & {*options.sweeps}:
        found.append(charts.dots("final_loss", "configuration", by="part", where={"part": ...}, name="specification",
                                 levels=look, ends=(0.0, 1.0), title="final partial loss"))  # fmt: skip
    return found


def final_rows(
    labels: dict[str, str], parts: tuple[str | None, ...], evidence: "Evidence"
) -> list[dict[str, Any]]:
    """Final losses of the parts of some configurations, by their layers; without parts, of x_D alone."""
    return [
        {"asked": words, "part": part and symbol(int(part[5:])), "layers": int(label.split(", ")[1].split()[0]),
         "member": member, "seed": evidence.seeds[member], "value": loss}
        for label, words in labels.items()
        for part in parts or (f"step_{label.split(',')[0].split('=')[1]}",)
        for member, loss in evidence.last("final_loss", part=part, configuration=label).items()
    ]  # fmt: skip


def crossing_rows(options: Options, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """When each IC model as configured learned each step; no value for what it never learned."""
    models = panel(options, of_reading(options, evidence), "IC")
    found = crossings_of(options, evidence, models)
    for each, of in models.items():
        for seed, member in of.items():
            for place, step in enumerate(each.asked_steps):
                crossing = own[place] if (own := found[member]) else None
                times = {"value": crossing and crossing.time, "low": crossing and crossing.low,
                         "high": crossing and crossing.high}  # fmt: skip
                yield {
                    "configuration": each.label,
                    "part": symbol(step),
                    "member": member,
                    "seed": seed,
                    **times,
                }


def flow_rows(options: Options, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """How many pieces of information each position of a chain can hold after each layer (`hopscope theory`)."""
    order: Any = "deepest-first" if options.order == "random" else options.order
    names = [
        "query",
        *(f"{place} of {k}" for k in range(1, options.steps + 1) for place in ("first", "second")),
    ]
    for layer, spans in enumerate(held_pieces(options.steps, "causal" if options.causal else "none", order)):
        for name, (first, last) in zip(names, spans, strict=True):
            yield {"position": name, "layer": layer, "value": float(last - first + 1)}


_QUICK: dict[str, Any] = {
    "steps_last": 3, "width": 128, "heads": 8, "head_size": 16, "position": "pair", "batch_size": 64,
    "learning_rate": 4e-3, "training_steps": 1_000, "checkpoint_every": 250, "evaluate_every": 20,
    "members_per_unit": 4,
}  # fmt: skip
_SWEPT = {"seeds": 4, "deepest_seeds": 4, "layers": (6,), "layers_last": (6,), "sweep_layers": (6,), "sweep_seeds": 4,
          "steps": 3, "sweeps": ("details",)}  # fmt: skip
_EIGHT = tuple(range(1, 9))

study = Study(
    name="depth",
    question="models of many depths follow a chain: which steps they learn, in which order, and how deep it takes",
    task=chains_of(2),
    model=Model(),
    training=Training(steps=1),
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
        "workstation": {
            **_QUICK, "seeds": 8, "deepest_seeds": 8, "layers": _EIGHT, "layers_last": _EIGHT, "steps": 4,
        },
        "completions": {**_QUICK, **_SWEPT, "details": ("completion",)},
        "details": {**_QUICK, **_SWEPT},
        "paper": {
            "seeds": 8, "deepest_seeds": 8, "layers": _EIGHT, "layers_last": _EIGHT, "steps": 5, "steps_last": 3,
            "pool": 2**20, "heads": 8, "width": 128, "mlp_ratio": 4.0, "training_steps": 10_000, "batch_size": 512,
            "checkpoint_every": 1_000, "final_every": 1, "evaluation_samples": 1024, "members_per_unit": 8,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "15 to 30 min on two cores: 39 models",
        "workstation": "about 1 h 30 min on two cores: 128 models",
        "completions": "about 20 min on two cores: 32 models",
        "details": "about 1 h on two cores: 96 models",
        "paper": "128 models; made for a GPU",
    },
    page="page.md.j2",
)  # fmt: skip
