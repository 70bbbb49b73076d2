"""The paths of a circuit as rows, for the page's table and for the file beside its picture."""

import csv
import io
from typing import Any

from hopscope.report.circuit_words import carries_signs, head_name, reads_words, use_sign
from hopscope.report.circuits import CircuitView, ListedPath

_COLUMNS = (
    "head", "rows", "read", "carries", "attention", "used by",
    "loss without it: rules", "loss without it: clean", "loss without it: recomputed", "drawn",
)  # fmt: skip


def path_row(path: ListedPath) -> dict[str, Any]:
    """A path in words and numbers; `uses` are all of them, the strongest first."""
    return {
        "head": head_name(path),
        "query": path.query_role,
        "reads": reads_words(path),
        "carries": carries_signs(path),
        "attention": path.mean_attention,
        "uses": list(dict.fromkeys(map(use_sign, path.composition))),
        "removed": path.loss_if_removed,
    }


def circuit_csv(view: CircuitView) -> str:
    """The data of a circuit's picture: a line for each path, those that are drawn first.

    Heads are written `layer.head`.  Attention is the mean on what a path's rule names at the checkpoint that was read;
    losses are those of the circuit without the path, in three modes.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for paths, drawn in ((view.paths, "yes"), (view.listed, "no")):
        for row in map(path_row, paths):
            removed = row["removed"]
            writer.writerow([
                row["head"], row["query"], row["reads"], row["carries"], row["attention"], "; ".join(row["uses"]),
                removed.rules, removed.clean, removed.recomputed, drawn,
            ])  # fmt: skip
    return text.getvalue()
