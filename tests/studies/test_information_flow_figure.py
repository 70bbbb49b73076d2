"""The figure of the information flow: its rows are what the theory says, and it is drawn within the page's width."""

import json
import re

import pytest

from hopscope.figures import chart, write_figure
from hopscope.figures.information_flow import information_flow_chart
from hopscope.report.figures import render_figure
from hopscope.runs.evidence import Evidence
from hopscope.theory.information_flow import held_pieces

NAME = "information_flow"
WIDEST = 720.0
CASES = [
    (5, "causal", "deepest-first"),
    (1, "causal", "shallowest-first"),
    (8, "none", (2, 8, 1, 5, 4, 7, 3, 6)),
]


def columns_covered(rows, layer, position, *states):
    """Pieces under the bars of a position."""
    return sorted(
        piece
        for row in rows
        if row["kind"] == "held" and row["layer"] == layer and row["position"] == position
        and row["state"] in states
        for piece in range(round(row["from"] + 0.5), round(row["to"] + 0.5))
    )  # fmt: skip


@pytest.mark.parametrize(("steps", "mask", "order"), CASES)
def test_bars_are_what_is_held(steps, mask, order):
    _, rows = information_flow_chart(steps, mask, order)
    layers = held_pieces(steps, mask, order)
    names = list(dict.fromkeys(row["position"] for row in rows if row["kind"] == "token"))
    assert len(names) == 2 * steps + 1
    for layer in range(1, len(layers)):
        for position, name in enumerate(names):
            before, after = (list(range(first, last + 1)) for first, last in
                             (layers[layer - 1][position], layers[layer][position]))  # fmt: skip
            assert columns_covered(rows, layer, name, "held before") == before
            assert columns_covered(rows, layer, name, "held before", "new from this layer") == after


def test_names_and_places_of_the_input():
    _, rows = information_flow_chart(2, "causal", "deepest-first")
    tokens = [(row["x"], row["label"], row["position"]) for row in rows if row["kind"] == "token"]
    assert tokens == [
        (-0.5, "x₀", "query x₀"),
        (0.5, "x₀", "pair 1, first x₀"),
        (1.5, "x₁", "pair 1, second x₁"),
        (2.5, "x₁", "pair 2, first x₁"),
        (3.5, "x₂", "pair 2, second x₂"),
    ]
    arcs = {edge: [row for row in rows if row.get("edge") == edge] for edge in range(4)}
    for edge, label in enumerate(["x₀", "p₁", "x₁", "p₂"]):
        points = arcs[edge]
        assert {point["label"] for point in points} == {label}
        assert (points[0]["x"], points[-1]["x"]) == (edge - 0.5, edge + 0.5)
        assert all((point["y"] > 0) == (edge % 2 == 0) for point in points)


def test_outlined_is_what_brings_the_query_further():
    """Carrying out the outlined readings gives the query's bar of the next layer."""
    for steps, mask, order in CASES:
        _, rows = information_flow_chart(steps, mask, order)
        layers = held_pieces(steps, mask, order)
        outlined = {row["layer"]: row for row in rows if row["kind"] == "read"}
        assert sorted(outlined) == list(range(1, len(layers) - 1))
        for layer, row in outlined.items():
            assert row["from"] < layers[layer][0][1] + 0.5 < row["to"] == layers[layer + 1][0][1] + 0.5


@pytest.mark.parametrize(("steps", "mask", "order"), CASES)
def test_drawn(tmp_path, steps, mask, order):
    figure = chart(NAME, lambda evidence: information_flow_chart(steps, mask, order))
    write_figure(tmp_path / "figures", NAME, *figure.draw(Evidence.of([], [])))
    svg, png = render_figure(tmp_path / "figures", NAME)
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    assert float(re.search(r'<svg[^>]* width="([\d.]+)"', text)[1]) < WIDEST
    spec = json.loads((tmp_path / "figures" / f"{NAME}.vl.json").read_text(encoding="utf-8"))
    layers = len(held_pieces(steps, mask, order)) - 1
    assert len(spec["vconcat"]) == 1 + layers
    assert f"After {layers} layers, the query can hold" in text
    # Every piece is named under every layer: the theme would thin the labels out.
    assert text.count(">p₁<") == 1 + layers
