"""What the page's circuit player is given of a member; its shape is that of the run folder's documentation."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from hopscope.circuits.emergence import spaced
from hopscope.studies.blocks import Block
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import FollowedPath, Member
from hopscope.studies.chains.names import maps_name
from hopscope.studies.words import symbol

MOST_CHECKPOINTS = 16
"""Steps of the slider: enough to see a head form, few enough for a page that is sent by mail."""


def player(config: ChainsConfig, members: Sequence[Member], title: str, caption: str) -> Block:
    """The block of a page that shows the circuits of some members."""
    return {
        "kind": "circuit",
        "title": title,
        "caption": caption,
        "circuits": [
            {"name": member.name, "file": member.formation_file, "key": "paths", "view": view(config, member)}
            for member in members
        ],
    }


def view(config: ChainsConfig, member: Member) -> dict[str, Any]:
    """One member: its circuit, and what became of its attention through training."""
    kept = member.unit.read_analysis(maps_name(member.member), config.training_steps)
    steps = spaced(np.asarray(kept["steps"]).tolist(), MOST_CHECKPOINTS)
    loss = member.reading["loss"]
    return {
        "member": member.member,
        "seed": member.seed,
        "checkpoint": member.reading["checkpoint"],
        "verdict": member.reading["verdict"],
        "layers": config.layers,
        "heads": config.heads,
        "rows": member.rows,
        "tokens": member.tokens,
        "checkpoints": steps,
        "partial": {symbol(step): _at(steps, *member.curves[step]) for step in member.curves},
        "plateau": config.task().plateau,
        "threshold": member.reading["threshold"],
        "loss": loss,
        "paths": [_path(member, path, steps) for path in member.paths],
        "maps": _maps(member, np.asarray(kept["maps"]), np.asarray(kept["steps"]).tolist(), steps),
    }


def _path(member: Member, path: FollowedPath, steps: Sequence[int]) -> dict[str, Any]:
    uses = next(
        found["composition"]
        for found in member.reading["paths"]
        if (found["layer"], found["head"], found["query_role"]) == (path.layer, path.head, path.query)
    )
    return {
        "layer": path.layer,
        "head": path.head,
        "query_role": path.query,
        "rule": path.rule,
        "target_role": path.target or None,
        "mean_attention": path.mean_attention,
        "carries": list(path.carries),
        "composition": uses,
        "loss_if_removed": path.removed,
        "attention": _at(steps, member.checkpoints, path.attention),
        "hop": path.needed_for,
    }


def _at(steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Values of a curve at steps that it was measured at."""
    of = {int(time): value for time, value in zip(times, values, strict=True)}
    return [round(of[step], 4) for step in steps]


def _maps(
    member: Member, maps: np.ndarray, measured: Sequence[int], steps: Sequence[int]
) -> list[dict[str, Any]]:
    """Attention maps of the circuit's heads at the slider's steps, as bytes."""
    places = [list(measured).index(step) for step in steps]
    return [
        {
            "layer": layer,
            "head": head,
            "shape": [len(steps), *maps.shape[-2:]],
            "data": base64.b64encode(np.ascontiguousarray(maps[places, layer, head]).tobytes()).decode(),
        }
        for layer, head in member.followed_heads
    ]
