"""Figures of the studies that read circuits: what seeds read, what that is worth, and when it formed."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import Crossing
from hopscope.page import figures as charts
from hopscope.studies.chains.circuits import ChainOptions, Place, independent, of_places, times
from hopscope.studies.chains.evidence import symbol

if TYPE_CHECKING:
    from hopscope.runs import Evidence

Rows = Iterator[dict[str, Any]]

MODES = {"rules": "patterns given", "clean": "all else as it was", "recomputed": "the rest follows"}
"""How a path is taken away → in words."""

LOSSES = {
    "full": "model", "rules": "circuit by its rules", "recomputed": "circuit, own attention",
    "complement": "all but the circuit", "random_circuits": "random circuits",
}  # fmt: skip
"""Part of `circuit_loss` → in words."""


def seed_name(evidence: "Evidence", member: int) -> str:
    """What a member is called: by its seed, or by its configuration where it is a crossed one."""
    crossed = member not in independent(evidence)
    return evidence.configurations[member] if crossed else f"seed {evidence.seeds[member]}"


def read_rows(evidence: "Evidence") -> Rows:
    """Reads against seeds: the heads that do each, and the attention of the one with most."""
    together: dict[tuple[int, str], list[tuple[Place, float]]] = {}
    for place, values in of_places(evidence, ["mean_attention"]).items():
        together.setdefault((place.member, place.part), []).append((place, values["mean_attention"]))
    for (member, read), found in sorted(together.items()):
        heads = ", ".join(f"{place.layer}.{place.head}" for place, _ in sorted(found))
        most = max(attention for _, attention in found)
        yield {"read": read, "model": seed_name(evidence, member), "value": most, "note": heads}


def mode_rows(evidence: "Evidence") -> Rows:
    """Loss without each path of independent members, by mode."""
    own = independent(evidence)
    for mode, words in MODES.items():
        for place, values in of_places(evidence, [f"loss_without_{mode}"]).items():
            if place.member in own:
                path, seed = (
                    f"{seed_name(evidence, place.member)}: {place.name}",
                    evidence.seeds[place.member],
                )
                value = values[f"loss_without_{mode}"]
                yield {"path": path, "mode": words, "member": place.member, "seed": seed, "value": value}


def bound_rows(evidence: "Evidence") -> Rows:
    """Loss of a model where the rows of a path read uniformly: in its head, in others, in its whole layer."""
    words = {"": "its head", "_others": "heads outside (median)", "_layer": "its whole layer"}
    for of, what in words.items():
        metric = f"loss_if{of}_ablated"
        for place, values in of_places(evidence, [metric]).items():
            path, seed = f"{seed_name(evidence, place.member)}: {place.name}", evidence.seeds[place.member]
            yield {"path": path, "rows": what, "member": place.member, "seed": seed, "value": values[metric]}


def transfer_rows(evidence: "Evidence") -> Rows:
    """How much of what a seed learned the circuit of every seed keeps in it."""
    for place, values in of_places(evidence, ["transferred_share"]).items():
        owner = int(place.part.removeprefix("member "))
        share = values["transferred_share"]
        names = {"run in": seed_name(evidence, place.member), "circuit of": seed_name(evidence, owner)}
        yield {**names, "value": share, "note": f"{share:.2f}"}


def loss_rows(evidence: "Evidence") -> Rows:
    """Losses of each model, of its circuit, of all else, and of random circuits."""
    for part, words in LOSSES.items():
        for place, values in of_places(evidence, ["circuit_loss"], part=part).items():
            row = {"model": seed_name(evidence, place.member), "what": words, "member": place.member}
            yield {**row, "seed": evidence.seeds[place.member], "value": values["circuit_loss"]}


def crossing_rows(options: ChainOptions, evidence: "Evidence") -> Rows:
    """When the paths of independent members formed, and when their losses fell; no value for what never came."""
    own, needed = independent(evidence), of_places(evidence, ["needed_for"])
    formed, fell = times(evidence, "formed"), times(evidence, "fell")

    def row(event: str, kind: str, place: Place, time: Crossing) -> dict[str, Any]:
        who = {"member": place.member, "seed": evidence.seeds[place.member]}
        ends = {"value": time.time, "low": time.low, "high": time.high}
        return {"event": f"{seed_name(evidence, place.member)}: {event}", "of": kind, **who, **ends}

    for place, time in sorted(formed.items(), key=lambda pair: (pair[0].member, pair[1].time or 0.0)):
        if place.member in own and place.layer is not None:
            step = needed.get(place, {}).get("needed_for")
            kind = "a read for no step alone" if step is None else f"a read for {symbol(int(step))}"
            yield row(place.name, kind, place, time)
    for step in range(1, options.steps + 1):
        for place, time in fell.items():
            if place.member in own and place.part == f"step_{step}":
                yield row(f"loss of {symbol(step)}", "a loss", place, time)


def shared_figures(options: ChainOptions) -> dict[str, charts.Figure]:
    """Name → figure, of those that the studies of circuits and of emergence have."""
    plateau, losses = {"plateau": options.plateau}, [f"loss_step_{k}" for k in range(1, options.steps + 1)]
    levels, settled = {"learned": 0.5, **plateau}, {"configuration": options.label}
    found = [
        charts.curves(losses, by="metric", name="losses", where=settled, levels=levels,
                      ends=(0.0, 1.1), title="held-out loss of each symbol"),
        charts.curves(losses, by="metric", panel="seed", name="timeline", levels=levels,
                      ends=(0.0, 1.1), title="held-out partial loss"),
        charts.cells("mean_attention", "model", "read", rows=read_rows, name="reads", ends=(0.0, 1.0),
                     title="mean attention on it"),
        charts.dots("circuit_loss", "model", by="what", rows=loss_rows, name="controls", levels=plateau,
                    title="loss over the learned symbols"),
        charts.dots("loss_without", "path", by="mode", rows=mode_rows, name="modes", levels=plateau,
                    title="loss without the path"),
        charts.dots("crossing", "event", by="of", rows=partial(crossing_rows, options), name="crossings",
                    title="training step at which it crossed one half"),
        charts.dots("loss_if_ablated", "path", by="rows", rows=bound_rows, name="bounds", levels=plateau,
                    title="loss of the model"),
        charts.cells("transferred_share", "circuit of", "run in", rows=transfer_rows, name="transfers",
                     ends=(0.0, 1.0), title="kept of what was learned"),
    ]  # fmt: skip
    return {each.name: each for each in found}
