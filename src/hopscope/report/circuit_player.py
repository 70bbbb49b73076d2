"""What the page shows of a circuit: drawings, the table of its paths, and what its script needs to know.

Everything that is computed or put into words is made here; the script shows, hides, and changes widths and marks.
"""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hopscope.report.circuit_graph import CASING, THICKEST, THINNEST, circuit_svg
from hopscope.report.circuit_layout import graph_width
from hopscope.report.circuit_table import circuit_csv, path_row
from hopscope.report.circuit_timeline import timeline_places, timeline_svg
from hopscope.report.circuit_words import (
    carries_words,
    head_name,
    reads_words,
    symbol,
    title_words,
    use_words,
)
from hopscope.report.circuits import (
    CircuitPath,
    CircuitView,
    ListedPath,
    Target,
    Token,
)
from hopscope.report.theme import themed_svg
from hopscope.words import heads_in_short

_MOST_USES = 4
_LEAST_SCALE = 0.69
"""Least scale of the graph's letters: a graph of five narrow columns just fits a phone, wider ones are scrolled."""

_WIDE = 740.0
"""A graph that is wider has the page's width for itself: beside the chosen path its letters would be too small."""

_ON_CHAIN = ("pair_mate", "same_symbol", "own_chain")


def shown_circuit(view: CircuitView) -> dict[str, Any]:
    """Everything that the template and its script need of a circuit.

    Returns:
        `found`: verdict and losses in words; `graph`, `timeline`: SVG elements; `least_width`: of the graph in pixels,
        below which its words could not be read; `is_wide`: whether the graph leaves no room beside it; `rows`,
        `further`: of the table of paths, those that are drawn and those that are not; `data`: for the script.
    """
    width = graph_width(view)
    return {
        "found": _found(view),
        # Both drawings escape the words in them; that is what makes them markup.
        "graph": Markup(themed_svg(circuit_svg(view))),
        "timeline": Markup(themed_svg(timeline_svg(view))),
        "least_width": round(_LEAST_SCALE * width),
        "is_wide": width > _WIDE,
        "rows": list(map(_row, view.paths)),
        "further": list(map(_row, view.listed)),
        "data": _data(view),
    }


def _row(path: ListedPath) -> dict[str, Any]:
    row = path_row(path)
    return {**row, "uses": ", ".join(row["uses"][:_MOST_USES]) or "–"}


def _found(view: CircuitView) -> str:
    """The circuit that was read and its losses, in words."""
    heads = "one head" if view.heads == 1 else f"{view.heads} heads"
    size = f"one layer with {heads}" if view.layers == 1 else f"{view.layers} layers with {heads} each"
    where = f"Seed {view.seed}, read at step {view.checkpoint:,}, {size}. "
    verdict = (
        "The circuit was read." if view.verdict == "read" else f"Verdict: {heads_in_short(view.verdict)}."
    )
    verdict += _undrawn(view)
    loss = view.loss
    if loss.full is None or loss.rules is None:
        return where + verdict
    words = f"Held-out loss of the model {loss.full:.3f}, under the circuit’s rules alone {loss.rules:.3f}"
    words += f" (the circuit holds up to {view.threshold:.3f})"
    if loss.recomputed is not None:
        words += f", of the circuit with its own attention {loss.recomputed:.3f}"
    if loss.complement is not None:
        words += f"; of everything but the circuit {loss.complement:.3f}"
    return f"{where}{verdict} {words}."


def _undrawn(view: CircuitView) -> str:
    """A sentence about the paths that the picture leaves out; empty where it shows all."""
    if not view.undrawn:
        return ""
    drawn, heads = len(view.paths), len({path.place for path in view.paths})
    below = ", and they stand at the end of the table" if view.listed else ""
    return (
        f" The picture shows {drawn} of its {drawn + view.undrawn} paths, in {heads} of {heads + view.undrawn_heads} "
        f"heads: those whose read has a name. No rule names what the others read; the circuit needs them too{below}."
    )


# For the script.


def _data(view: CircuitView) -> dict[str, Any]:
    return {
        "file": f"circuit-{view.member}",
        "csv": circuit_csv(view),
        "checkpoints": view.checkpoints,
        "shown": view.shown,
        "places": [round(place, 2) for place in timeline_places(view)],
        "width": {"thinnest": THINNEST, "thickest": THICKEST, "casing": CASING},
        "partial": [{"name": symbol(name), "loss": losses} for name, losses in view.partial.items()],
        "measured": view.measured,
        "threshold": view.threshold,
        "loss": view.loss.model_dump(mode="json"),
        "tokens": [
            {"label": token.label, "chain": mark}
            for token, mark in zip(view.tokens, chain_marks(view), strict=True)
        ],
        "groups": [
            {"words": words, "start": start, "end": end} for words, start, end in role_groups(view.tokens)
        ],
        "paths": [_path(view, at) for at in range(len(view.paths))],
        "maps": None
        if view.maps is None
        else {f"{found.layer}.{found.head}": found.data for found in view.maps},
        "first": _most_needed(view.paths),
    }


def _path(view: CircuitView, at: int) -> dict[str, Any]:
    path = view.paths[at]
    hop = "" if path.hop is None else f" This makes hop {path.hop}."
    return {
        "head": head_name(path),
        "title": title_words(path),
        "query": path.query_role,
        "reads": reads_words(path) + ".",
        "carries": carries_words(path) + "." + hop,
        "uses": [f"{use_words(use)} (+{use.rise:.2f})" for use in path.composition],
        "users": _users(view, path),
        "attention": path.attention,
        "removed": path.loss_if_removed.model_dump(),
        "rows": [row for row, token in enumerate(view.tokens) if token.role == path.query_role],
        "cells": [[row, key] for row, key in target_cells(view.tokens, path)],
    }


def _users(view: CircuitView, path: CircuitPath) -> list[int]:
    """Numbers of the paths that use a path."""
    readers = [use.reader for use in path.composition if use.reader != "readout"]
    known = {(reader.layer, reader.head, reader.query_role) for reader in readers}
    return [at for at, other in enumerate(view.paths) if (*other.place, other.query_role) in known]


def _most_needed(paths: Sequence[CircuitPath]) -> int | None:
    """The path whose removal costs most: the one to look at first."""
    if not paths:
        return None
    return max(range(len(paths)), key=lambda at: (paths[at].loss_if_removed.clean, -at))


# The example sequence.


def chain_marks(view: CircuitView) -> list[str]:
    """A letter for the chain of each token; a dot for tokens on no chain that anybody asks about."""
    asked = sorted({token.chain for token in view.tokens if token.role == view.rows[0]} - {-1})
    letters = {chain: chr(ord("a") + at) for at, chain in enumerate(asked[:26])}
    return [letters.get(token.chain, "·") for token in view.tokens]


def role_groups(tokens: Sequence[Token]) -> list[tuple[str, int, int]]:
    """Blocks of the sequence: (their roles in words, first position, last position).

    A block ends where a new role follows roles that have come again: first 2, second 2, first 2, second 2 | first 1 ….
    """
    groups: list[tuple[str, int, int]] = []
    start = 0
    for at in range(1, len(tokens) + 1):
        roles = [token.role for token in tokens[start:at]]
        ends = at == len(tokens) or (tokens[at].role not in roles and len(set(roles)) < len(roles))
        if ends:
            groups.append((", ".join(dict.fromkeys(roles)), start, at - 1))
            start = at
    return groups


def target_cells(tokens: Sequence[Token], path: CircuitPath) -> list[tuple[int, int]]:
    """Cells (row, key) of the attention map that a path's rule names, as far as roles and chains tell."""
    return [
        (row, key)
        for row, token in enumerate(tokens)
        if token.role == path.query_role
        for target in path.targets
        for key in _keys(tokens, row, target)
    ]


def _keys(tokens: Sequence[Token], row: int, target: Target) -> list[int]:
    if target.rule == "previous":
        return [row - 1] if row > 0 and target.role in (tokens[row - 1].role, "any") else []
    if target.role == "itself":
        return [row]
    # A kind, such as all y, stands for every role that begins with it.
    kind = f"{target.role} " if target.every and " " not in target.role else None
    found = [
        key
        for key, token in enumerate(tokens)
        if token.role == target.role or (kind is not None and token.role.startswith(kind) and key <= row)
    ]
    if target.every:
        return found
    if target.rule in _ON_CHAIN or target.rule.startswith("hop_"):
        own = [key for key in found if tokens[key].chain == tokens[row].chain]
        return own if len(own) == 1 else []
    return []
