"""The graph of a circuit from its record alone: at the checkpoint that was read, without its way through training."""

from collections.abc import Mapping
from typing import Any

from hopscope.report.circuit_graph import circuit_svg
from hopscope.report.circuits import UNNAMED, CircuitView, ListedPath
from hopscope.report.theme import LIGHT


def graph_of(record: Mapping[str, Any]) -> str:
    """An SVG element, or nothing where no path of the circuit names what it reads.

    Args:
        record: as `hopscope circuit --json` prints it.
    """
    names = ListedPath.model_fields
    paths = [ListedPath(**{name: path[name] for name in names}) for path in record["paths"]]
    drawn = [path for path in paths if any(target.role for target in path.targets)]
    if not drawn:
        return ""
    roles = dict.fromkeys(role for path in drawn for role in (*_named(path), path.query_role))
    view = CircuitView.model_validate(
        {
            "member": record["member"],
            "seed": record["member"],
            "checkpoint": record["checkpoint"],
            "verdict": record["verdict"],
            "layers": 1 + max(path.layer for path in paths),
            "heads": 1 + max(path.head for path in paths),
            "rows": list(roles),
            "tokens": [{"role": role, "chain": -1, "label": ""} for role in roles],
            "checkpoints": [record["checkpoint"]],
            "partial": {},
            "threshold": record["threshold"],
            "loss": record["loss"],
            "paths": [path.model_dump() | {"attention": [path.mean_attention]} for path in drawn],
            "listed": [path.model_dump() for path in paths if path not in drawn],
            "undrawn": len(paths) - len(drawn),
            "maps": None,
        }
    )
    return circuit_svg(view, paper=LIGHT["paper"])


def _named(path: ListedPath) -> list[str]:
    return [target.role for target in path.targets if target.role and target.role not in UNNAMED]
