"""A made-up circuit with every kind of path, and as many numbers of each thing as no other thing has."""

import base64
import math
from typing import Any

LAYERS, HEADS, CHECKPOINTS, POSITIONS = 5, 3, (0, 10, 50, 110, 130, 170, 190), 11
ROWS = ["query", "first 1", "second 1", "first 2", "second 2"]
SEQUENCE = [
    ("first 2", 1, "x₁"), ("second 2", 1, "x₂"), ("first 2", 0, "x₁"), ("second 2", 0, "x₂"),
    ("first 1", 0, "x₀"), ("second 1", 0, "x₁"), ("first 1", 1, "x₀"), ("second 1", 1, "x₁"),
    ("query", 1, "x₀"), ("query", 0, "x₀"), ("query", 1, "x₀"),
]  # fmt: skip
"""Role, chain and label of each token; the second chain is asked twice."""

PATHS: list[tuple[int, int, str, str, str | None, Any]] = [
    (0, 1, "second 2", "previous", "first 2", ["x_1"]),
    (0, 2, "second 1", "mean_map", None, ["position"]),
    (2, 0, "query", "hop_1", "second 1", {"x_1": 0.7, "position": 0.1}),
    (2, 1, "query", "over_role", "all first 2", []),
    (2, 2, "second 2", "previous 60% + over_role", "first 2 + all second 2", ["x_2"]),
    (3, 1, "first 1", "learned", None, []),
    (3, 1, "second 1", "previous", "any", ["x_0"]),
    (4, 0, "query", "hop_2", "second 2", ["x_2"]),
    (4, 2, "query", "hop_2", "second 2", ["x_1", "x_2"]),
]
"""Layer, head, rows, rule, target, and what is carried.  Layer 1 has none."""

CELLS = {
    0: [(1, 0), (3, 2)],
    1: [],
    2: [(8, 7), (9, 5), (10, 7)],
    3: [(row, key) for row in (8, 9, 10) for key in (0, 2)],
    4: [(1, 0), (1, 1), (1, 3), (3, 2), (3, 1), (3, 3)],
    5: [],
    6: [(5, 4), (7, 6)],
    7: [(8, 1), (9, 3), (10, 1)],
    8: [(8, 1), (9, 3), (10, 1)],
}
"""What each path's rule names in the sequence, told by hand: (row, key)."""


def attention(path: int, checkpoint: int) -> float:
    """Made-up attention: it rises, later for later paths."""
    return round(1 / (1 + math.exp(-(checkpoint - 0.5 * path))), 4)


def pattern(head: tuple[int, int], checkpoint: int, row: int, key: int) -> int:
    """Made-up attention of the example sequence, 0 … 255; nothing is seen of what comes later."""
    if key > row:
        return 0
    return (37 * head[0] + 61 * head[1] + 29 * checkpoint + 17 * row + 11 * key) % 256


def _maps() -> list[dict[str, Any]]:
    places = range(POSITIONS)
    return [
        {
            "layer": head[0],
            "head": head[1],
            "shape": [len(CHECKPOINTS), POSITIONS, POSITIONS],
            "data": base64.b64encode(
                bytes(
                    pattern(head, at, q, k) for at in range(len(CHECKPOINTS)) for q in places for k in places
                )
            ).decode(),
        }
        for head in sorted({path[:2] for path in PATHS})
    ]


def _path(at: int) -> dict[str, Any]:
    layer, head, query, rule, target, carries = PATHS[at]
    uses: dict[int, list[dict[str, Any]]] = {
        0: [{"reader": {"layer": 4, "head": 0, "query_role": "query"}, "part": "K", "rise": 0.41}],
        7: [{"reader": "readout", "part": None, "rise": 0.53}],
        8: [{"reader": "readout", "part": None, "rise": 0.19}],
    }
    return {
        "layer": layer,
        "head": head,
        "query_role": query,
        "rule": rule,
        "target_role": target,
        "mean_attention": attention(at, len(CHECKPOINTS) - 1),
        "carries": carries,
        "composition": uses.get(at, []),
        "loss_if_removed": {
            "rules": 0.11 + 0.07 * at,
            "clean": 0.05 + 0.1 * at,
            "recomputed": 0.3 + 0.05 * at,
        },
        "attention": [attention(at, checkpoint) for checkpoint in range(len(CHECKPOINTS))],
        "hop": int(rule[4:]) if rule in ("hop_1", "hop_2") else None,
    }


def view(**changes: Any) -> dict[str, Any]:
    """The circuit as the story has it."""
    return {
        "member": 17,
        "seed": 3,
        "checkpoint": 190,
        "verdict": "read",
        "layers": LAYERS,
        "heads": HEADS,
        "rows": ROWS,
        "tokens": [{"role": role, "chain": chain, "label": label} for role, chain, label in SEQUENCE],
        "checkpoints": list(CHECKPOINTS),
        "partial": {
            "x_1": [1.02, 0.9, 0.75, 0.31, 0.09, 0.04, 0.03],
            "x_2": [1.05, 0.97, 0.83, 0.76, 0.74, 0.29, 0.06],
        },
        "plateau": 0.75,
        "threshold": 0.05,
        "loss": {
            "full": 0.03,
            "rules": 0.04,
            "recomputed": 0.06,
            "complement": 0.91,
            "random_circuits": 0.95,
            "random_circuits_range": [0.61, 2.3],
        },
        "paths": [_path(at) for at in range(len(PATHS))],
        "maps": _maps(),
        **changes,
    }


def never_learned() -> dict[str, Any]:
    """The record of a model without a circuit."""
    return view(verdict="no circuit: above plateau", loss={}, paths=[], maps=[])


def block(*views: dict[str, Any]) -> dict[str, Any]:
    """A block of the story with these circuits, or with two that differ in which layer comes first."""
    views = views or (view(), view(seed=5, paths=[_path(at) for at in (0, 2, 7)]))
    return {
        "kind": "circuit",
        "title": "How the answer is found",
        "caption": "Both circuits are made up; {seeds} seeds were trained.",
        "circuits": [
            {
                "name": f"seed {each['seed']}",
                "file": f"units/7f/analysis/circuit-{at}.json",
                "key": "",
                "view": each,
            }
            for at, each in enumerate(views)
        ],
    }
