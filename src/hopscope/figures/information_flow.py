"""The paper's figure 3, continued through the layers: which pieces every position can hold."""

import math

import altair as alt

from hopscope.figures import Drawing
from hopscope.figures.marks import INK, QUIET_INK, of_kind
from hopscope.figures.rows import WIDTH, Row
from hopscope.theory.information_flow import Mask, Order, Run, held_pieces, pair_order, two_target_plan
from hopscope.words import counted, symbol

ROW_HEIGHT = 12
"""Pixels of a position's row."""

_HAD, _NEW, _READ = "held before", "new from this layer", "read by the query in the next layer"
_QUERY, _OTHERS = "the query", "the pairs' tokens"
_ARC_POINTS = 13


def information_flow_chart(steps: int, mask: Mask, order: Order) -> Drawing:
    """Draw pieces that each position can hold after each layer, until the query holds the last symbol of the chain.

    Positions stand in the order of the chain, not of time, so that what is shared lies between neighbours: a column
    is a piece, and its arc joins the two positions that have it from the beginning.

    Args:
        steps: D; the figure is made for up to about 8.
        mask: which positions a position sees.
        order: of the pairs in time.

    Returns:
        The chart, without its data, and the rows of these.

    Raises:
        UserError: as `held_pieces`.
    """
    layers = held_pieces(steps, mask, order)
    rows = [*_input_rows(steps), *_held_rows(layers), *_read_rows(steps, mask, order)]
    panels = [_input_panel(steps), *(_layer_panel(layer, layers[layer]) for layer in range(1, len(layers)))]
    pairs = "  ".join(f"{symbol(pair - 1)}{symbol(pair)}" for pair in pair_order(steps, order))
    sees = "sees itself and what came before" if mask == "causal" else "sees everything"
    title = alt.Title(
        f"Following a chain of {steps} takes at least {len(layers) - 1} layers",
        subtitle=[
            f"In time: {pairs}  {symbol(0)} (query)",
            f"In each layer, a position {sees} and may read whoever holds a piece that it holds too.",
            "Dark: new from this layer. Pale: held before. Outlined: what the query reads in the next layer.",
        ],
    )
    chart = alt.vconcat(*panels, spacing=10, title=title)
    return chart.resolve_scale(color="independent"), rows


# Rows.


def _input_rows(steps: int) -> list[Row]:
    """The positions, and arcs between those that share a piece."""
    positions = [
        {
            "kind": "token",
            "x": position - 0.5,
            "y": 0,
            "label": symbol(position // 2),
            "position": _position(position),
        }
        for position in range(2 * steps + 1)
    ]
    arcs = [
        {
            "kind": "arc",
            "edge": piece,
            "x": round(piece - 0.5 * math.cos(angle), 3),
            "y": round((-1 if piece % 2 else 1) * (0.35 + math.sin(angle)), 3),
            "label": _piece(piece),
            "state": "position code" if piece % 2 else "symbol",
        }
        for piece in range(2 * steps)
        for angle in (math.pi * point / (_ARC_POINTS - 1) for point in range(_ARC_POINTS))
    ]
    return [*positions, *arcs]


def _held_rows(layers: list[list[Run]]) -> list[Row]:
    """For each layer and position: what it held before, and what is new on its left and right."""
    rows: list[Row] = []
    for layer in range(1, len(layers)):
        for position, (before, after) in enumerate(zip(layers[layer - 1], layers[layer], strict=True)):
            parts = [
                (_HAD, before[0], before[1]),
                (_NEW, after[0], before[0] - 1),
                (_NEW, before[1] + 1, after[1]),
            ]
            rows += [
                {
                    "kind": "held",
                    "layer": layer,
                    "position": _position(position),
                    "who": _OTHERS if position else _QUERY,
                    "from": first - 0.5,
                    "to": last + 0.5,
                    "state": state,
                    "holds": _words(after),
                }
                for state, first, last in parts
                if first <= last
            ]
    return rows


def _read_rows(steps: int, mask: Mask, order: Order) -> list[Row]:
    """Return the positions that the query reads in the next layer, with the pieces that they hold."""
    layers, plan = held_pieces(steps, mask, order), two_target_plan(steps, mask, order)
    return [
        {
            "kind": "read",
            "layer": layer,
            "position": _position(target),
            "from": layers[layer][target][0] - 0.5,
            "to": layers[layer][target][1] + 0.5,
            "state": _READ,
            "holds": _words(layers[layer][target]),
        }
        for layer in range(1, len(plan))
        for target in plan[layer][0]
    ]


# Panels.


def _input_panel(steps: int) -> alt.LayerChart | alt.FacetChart:
    arcs = of_kind("arc")
    tokens = of_kind("token")
    x = _x_axis(steps, axis=None)
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-2.1, 2.1]))
    layered = alt.layer(
        arcs.mark_line(strokeWidth=1.6, color=QUIET_INK).encode(x=x, y=y, detail="edge:N"),
        arcs.transform_filter("datum.x == datum.edge")
        .transform_calculate(y="datum.y + (datum.y > 0 ? 0.38 : -0.38)")
        .mark_text(fontSize=12, color=QUIET_INK)
        .encode(x=x, y=y, text="label:N", tooltip="state:N"),
        tokens.mark_text(fontSize=13, fontWeight=600, color=INK).encode(
            x=x, y=y, text="label:N", tooltip="position:N"
        ),
    )
    title = _title("The input: neighbours share a symbol (above) or the position code of their pair (below)")
    return layered.properties(width=WIDTH, height=92, title=title)


def _layer_panel(layer: int, held: list[Run]) -> alt.LayerChart | alt.FacetChart:
    positions = [_position(position) for position in range(len(held))]
    rows = alt.Axis(labelFontSize=10, ticks=False, domain=False, grid=False, labelLimit=0)
    place = {
        "x": _x_axis(len(held) // 2, _pieces_axis(len(held)), field="from"),
        "x2": "to:Q",
        "y": alt.Y("position:N", sort=positions, title=None, scale=alt.Scale(domain=positions), axis=rows),
    }
    who = alt.Scale(domain=[_OTHERS, _QUERY])
    states = alt.Scale(domain=[_NEW, _HAD], range=[1.0, 0.3])
    of_layer = alt.Chart().transform_filter(f"datum.layer == {layer}")
    layered = alt.layer(
        of_layer.transform_filter("datum.kind == 'held'")
        .mark_bar(height=ROW_HEIGHT - 3)
        .encode(
            **place,
            color=alt.Color("who:N", scale=who, legend=None),
            fillOpacity=alt.FillOpacity("state:O", scale=states, legend=None),
            tooltip=["position:N", "holds:N", "state:N"],
        ),
        of_layer.transform_filter("datum.kind == 'read'")
        .mark_bar(height=ROW_HEIGHT - 2, fillOpacity=0, stroke=INK, strokeWidth=1.6)
        .encode(**place, tooltip=["position:N", "holds:N", "state:N"]),
    )
    title = _title(f"After {counted(layer, 'layer')}, the query can hold {_reach(held[0][1])}")
    return layered.properties(width=WIDTH, height=ROW_HEIGHT * len(positions), title=title)


def _title(words: str) -> alt.Title:
    return alt.Title(words, fontSize=12, frame="group", anchor="start")


def _x_axis(steps: int, axis: alt.Axis | None, field: str = "x") -> alt.X:
    scale = alt.Scale(domain=[-0.75, 2 * steps + 0.75], nice=False)
    return alt.X(f"{field}:Q", title=None, scale=scale, axis=axis)


def _pieces_axis(pieces: int) -> alt.Axis:
    return alt.Axis(
        values=list(range(pieces)),
        # The theme asks for few ticks, and would thin these out.
        tickCount=pieces,
        labelExpr=f"{[_piece(piece) for piece in range(pieces)]}[datum.value]",
        labelFontSize=11,
        labelOverlap=False,
        ticks=False,
        domain=False,
    )


def _position(position: int) -> str:
    if position == 0:
        return f"query {symbol(0)}"
    token = "second" if position % 2 == 0 else "first"
    return f"pair {(position + 1) // 2}, {token} {symbol(position // 2)}"


def _reach(last: int) -> str:
    """x₀ and all that follows, to piece e_last."""
    deepest = last // 2
    symbols = symbol(0) if deepest == 0 else f"{symbol(0)} … {symbol(deepest)}"
    return f"{symbols} and {_piece(last)}" if last % 2 else symbols


def _words(run: Run) -> str:
    return f"{_piece(run[0])} … {_piece(run[1])}"


def _piece(piece: int) -> str:
    return symbol((piece + 1) // 2).replace("x", "p") if piece % 2 else symbol(piece // 2)
