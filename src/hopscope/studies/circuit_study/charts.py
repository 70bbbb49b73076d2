"""The charts of chains that no shared shape draws; each takes the configuration and the evidence."""

from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from hopscope.circuits.places import FELL, FORMED, Place, carried, followed_paths, of_places, times
from hopscope.claims.crossings import Crossing
from hopscope.figures import Drawing
from hopscope.figures.marks import (
    QUIET_INK,
    blues,
    broken_labels,
    colour,
    crossing_columns,
    facet,
    given,
    matrix,
    points,
    shape,
    table,
)
from hopscope.figures.rows import WIDTH, Row, short
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.figures import (
    MODE_WORDS,
    NO_STEP,
    PARTIAL,
    PATH,
    SHOWN_FROM,
    step_of_path,
)
from hopscope.words import symbol, symbols

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SEEN, NEVER = "crossed", "not within training"

BOUNDS = ("of its head", "of heads outside (range)", "of its whole layer")
"""Whose rows read uniformly, as legends call it."""

CONTROL_WORDS = {
    "full": "model",
    "rules": "circuit by its rules",
    "recomputed": "circuit, own attention",
    "complement": "everything but the circuit",
    "random_circuits": "random circuits (range)",
}
"""Part of `circuit_loss` → what legends call it."""


# What a circuit reads, and what that is worth.


def reads(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """Reads against members: which heads do it, the attention of the one with most, and what it brings."""
    paths, things = followed_paths(evidence), carried(evidence)

    def brought(path: Place) -> list[str]:
        return things.get((path.member, *path.where, path.part.partition(" → ")[0]), [])

    together: dict[tuple[int, str], list[Place]] = {}
    for place in paths:
        together.setdefault((place.member, place.part), []).append(place)
    rows: list[Row] = [
        {
            "seed": config.names[member],
            "read": read,
            "heads": ", ".join(place.head_name for place in places),
            "attention": short(max(paths[place]["mean_attention"] for place in places)),
            "carries": ", ".join(sorted({thing for place in places for thing in brought(place)})),
        }
        for (member, read), places in together.items()
    ]
    seeds, every = ([row[name] for row in rows] for name in ("seed", "read"))
    down = sorted(set(every), key=lambda read: (-every.count(read), read))
    across = list(dict.fromkeys(seeds))
    in_lines = "split(datum.label, ', ')"
    top = alt.Axis(orient="top", labelAngle=0, labelExpr=in_lines, grid=False)
    x = alt.X("seed:N", title=None, sort=across, axis=top)
    y = alt.Y("read:N", title=None, sort=down, axis=alt.Axis(labelLimit=0, grid=False))
    data = table("reads", "seed read heads carries", "attention")
    chart = matrix(data, x, y, "attention", "heads", "mean attention on it")
    return chart.properties(width=max(WIDTH - 140, 62 * len(across)), height=alt.Step(20)), rows


def modes(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """Loss without each path of independent members: a row for each path, a point for each mode."""
    seeds, full = independent(evidence), losses(evidence, "full")
    rows: list[Row] = [
        {"seed": config.names[place.member], "path": place.name, "mode": words,
         "loss": short(values[f"loss_without_{mode}"]), "full": short(full[place.member])}
        for place, values in followed_paths(evidence).items()
        if place.member in seeds
        for mode, words in MODE_WORDS.items()
    ]  # fmt: skip
    every = list(MODE_WORDS.values())
    level = given([{"at": config.task().plateau}]).mark_rule(strokeDash=[4, 4], color=QUIET_INK)
    data = table("modes", "seed path mode", "loss full")
    x = alt.X(title="loss without the path", scale=alt.Scale(zero=True))
    y = alt.Y("path:N", title=None, axis=broken_labels())
    shown = points(data, x, "loss", y, colour("mode", every), shape=shape("mode", every))
    chart = alt.layer(level.encode(x="at:Q"), *shown, data=data).properties(
        width=WIDTH - 160, height=alt.Step(15)
    )
    panels = list(dict.fromkeys(row["seed"] for row in rows))
    return chart.facet(facet("seed", panels), columns=1).resolve_scale(y="independent"), rows


def bounds(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """Loss of independent members without the rows of a path: in its head, in heads outside, and in its whole layer."""
    others = [f"loss_if_others_ablated{end}" for end in ("", "_low", "_high")]
    found = of_places(evidence, "bounds", ["loss_if_ablated", "loss_if_layer_ablated", *others])
    rows: list[Row] = []
    for place in sorted(found):
        known = {name: short(value) for name, value in found[place].items()}
        middle, low, high = (known.get(name) for name in others)
        for what, loss, ends in zip(
            BOUNDS,
            (known["loss_if_ablated"], middle, known["loss_if_layer_ablated"]),
            ((None, None), (low, high), (None, None)),
            strict=True,
        ):
            if loss is not None:
                rows.append(
                    {"seed": config.names[place.member], "path": place.name, "rows": what, "loss": loss,
                     "low": ends[0], "high": ends[1]}
                )  # fmt: skip
    data = table("bounds", "seed path rows", "loss low high")
    x = alt.X(title="loss of the model", scale=alt.Scale(zero=True))
    y = alt.Y("path:N", title=None, axis=broken_labels())
    shown = points(data, x, "loss", y, colour("rows", [*BOUNDS]), ranged=True, shape=shape("rows", [*BOUNDS]))
    chart = alt.layer(*shown, data=data).properties(width=WIDTH - 160, height=alt.Step(15))
    panels = list(dict.fromkeys(row["seed"] for row in rows))
    return chart.facet(facet("seed", panels), columns=1).resolve_scale(y="independent"), rows


def transfers(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """How much of what a seed learned the circuit of every seed keeps in it: models against circuits."""
    found = evidence.rows("transferred_share") if "transferred_share" in evidence else None
    rows: list[Row] = []
    for member, part, share in (
        [] if found is None else zip(found["member"], found["part"], found["value"], strict=True)
    ):
        owner = int(part.removeprefix("member "))
        rows.append(
            {"model": config.names[int(member)], "circuit": config.names[owner], "share": f"{share:.2f}",
             "kept": short(share)}
        )  # fmt: skip
    across, down = (list(dict.fromkeys(row[name] for row in rows)) for name in ("circuit", "model"))
    top = alt.Axis(orient="top", labelAngle=0, grid=False)
    x = alt.X("circuit:N", title="circuit of", sort=across, axis=top)
    y = alt.Y("model:N", title="run in the model of", sort=down, axis=alt.Axis(grid=False))
    chart = matrix(
        table("transfers", "model circuit share", "kept"), x, y, "kept", "share", "kept of what was learned"
    )
    return chart.properties(width=62 * len(across), height=alt.Step(24)), rows


def controls(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """Loss of each model, its circuit, all else, and random circuits of the same size: a row for each member."""
    ends = ("random_circuits_low", "random_circuits_high")
    found = {part: losses(evidence, part) for part in (*CONTROL_WORDS, *ends)}
    members = sorted({place.member for place in followed_paths(evidence)})
    rows: list[Row] = []
    for member in members:
        of = {part: short(values[member]) for part, values in found.items()}
        for part, words in CONTROL_WORDS.items():
            low, high = (of[end] for end in ends) if part == "random_circuits" else (None, None)
            rows.append(
                {"seed": config.names[member], "what": words, "loss": of[part], "low": low, "high": high}
            )
    every = list(CONTROL_WORDS.values())
    data = table("controls", "seed what", "loss low high")
    x = alt.X(title="loss over the learned targets")
    y = alt.Y("seed:N", title=None, sort=[config.names[member] for member in members])
    shown = points(data, x, "loss", y, colour("what", every), ranged=True, shape=shape("what", every))
    return alt.layer(*shown, data=data).properties(width=WIDTH - 60, height=alt.Step(18)), rows


def losses(evidence: "Evidence", part: str) -> dict[int, float]:
    """Member → a loss of its circuit; see the measure `reading`."""
    if "circuit_loss" not in evidence:
        return {}
    return dict(evidence.last("circuit_loss", part=part).dropna().items())


# When it formed.


def crossings(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """When paths formed and partial losses fell, of independent members: a row for each event."""
    paths, formed, fell = followed_paths(evidence), times(evidence, FORMED), times(evidence, FELL)
    rows: list[Row] = []
    for member in independent(evidence):
        name = config.names[member]
        for place, values in paths.items():
            if place.member == member and place in formed:
                rows.append(_crossing(f"{name}: {place.name}", PATH, step_of_path(values), formed[place]))
        for step in config.task().asked:
            time = fell.get(Place(member, None, None, f"step_{step}"))
            if time is not None:
                words = f"{name}: partial loss of {symbol(step)}"
                rows.append(_crossing(words, PARTIAL, symbol(step), time))
    data = table("crossings", "event kind symbol seen", "step low high")
    x = alt.X(title="training step at which it crossed one half", axis=alt.Axis(format="~s"))
    y = alt.Y("event:N", title=None, sort=[row["event"] for row in rows], axis=broken_labels())
    pale = alt.Opacity("seen:O", scale=alt.Scale(domain=[SEEN, NEVER], range=[1.0, 0.35]), legend=None)
    by = colour("symbol", [*symbols(config.task().asked), NO_STEP])
    shown = points(data, x, "step", y, by, ranged=True, shape=shape("kind", [PATH, PARTIAL]), opacity=pale)
    return alt.layer(*shown, data=data).properties(width=WIDTH - 160, height=alt.Step(13)), rows


def _crossing(event: str, kind: str, name: str, found: Crossing) -> Row:
    return {"event": event, "kind": kind, "symbol": name, **crossing_columns(found, SEEN, NEVER)}


# Attention maps.


def gallery(config: ChainsConfig, evidence: "Evidence") -> Drawing:
    """Attention of every head at the end of training, on one sequence (paper, appendix C), of the first members."""
    rows: list[Row] = []
    found = evidence.rows("maps") if "maps" in evidence else None
    for member, file in [] if found is None else zip(found["member"], found["file"], strict=True):
        if member >= config.galleries:
            continue
        last = np.asarray(evidence.arrays(file)["maps"])[-1]
        rows += [
            {"seed": config.names[int(member)], "head": f"{layer}.{head}", "query": int(query), "key": int(key),
             "attention": round(int(last[layer, head, query, key]) / 255.0, 2)}
            for layer, head, query, key in zip(*np.nonzero(last >= SHOWN_FROM), strict=True)
        ]  # fmt: skip
    heads = [f"{layer}.{head}" for layer in range(config.layers) for head in range(config.heads)]
    size = max(46, WIDTH // len(heads) - 12)
    scale = alt.Scale(domain=list(range(config.task().positions)), padding=0)
    cells = (
        alt.Chart(table("gallery", "seed head", "query key attention"))
        .mark_rect()
        .encode(
            x=alt.X("key:O", title=None, axis=None, scale=scale),
            y=alt.Y("query:O", title=None, axis=None, scale=scale),
            color=blues("attention", "attention"),
            tooltip=["seed:N", "head:N", "query:O", "key:O", "attention:Q"],
        )
        .properties(width=size, height=size)
    )
    by_seed = alt.Header(labelAngle=0, labelAlign="left")
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    down = alt.Row("seed:N", title=None, sort=seeds, header=by_seed)
    return cells.facet(row=down, column=alt.Column("head:N", title=None, sort=heads), spacing=6), rows
