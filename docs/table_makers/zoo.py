"""Tables of head finders, and of models whose circuits are known."""

from typing import Any

from table_makers.common import RESULTS, four_places, markdown, read_json


def external_plants(file: str = "external_plants") -> str:
    """What the reader says of models that other code has set."""
    rows = []
    for each in read_json(RESULTS / f"{file}.json"):
        cells = [four_places(each[name]) if not each["outside"] else "–" for name in ("precision", "recall")]
        said = each["verdict"].partition(":")[0]
        right = "yes" if each["right"] else "no"
        truth = "no rule" if each["outside"] else "rules"
        size = f"{each['layers']} × {each['heads']}"
        rows.append([each["plant"], each["task"], size, truth, said, right, *cells, f"{each['seconds']:.0f}"])
    columns = ["plant", "task", "layers × heads", "truth", "verdict", "right"]
    return markdown([*columns, "precision", "recall", "seconds"], rows)


_FINDER_COLUMNS = {
    "precision": "precision", "recall": "recall", "auroc": "AUROC", "head_precision": "precision of heads",
    "head_recall": "recall of heads", "faithfulness": "faithfulness", "cpr": "CPR ↑", "cmd": "CMD ↓",
    "seconds": "CPU s",
}  # fmt: skip


def finders(file: str = "zoo/scores") -> str:
    """Every finder of circuits on every group of planted models: means with their intervals."""
    record, rows = read_json(RESULTS / f"{file}.json"), []
    for group, found in record["summary"].items():
        for name, measures in found.items():
            cells = [_mean(measures.get(measure)) for measure in _FINDER_COLUMNS]
            rows.append([group, name, str(measures["faithfulness"]["n"]), *cells])
    return markdown(["models", "finder", "n", *_FINDER_COLUMNS.values()], rows)


def _mean(measure: dict[str, Any] | None) -> str:
    if measure is None:
        return "–"
    shown = f"{measure['mean']:.2f}"
    interval = measure["interval"]
    return f"{shown} [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else shown


def finder_truth(file: str = "zoo/scores") -> str:
    """How far true edges are from others, over all circuits: of models set by hand, and of trained ones."""
    models, rows = read_json(RESULTS / f"{file}.json")["truth"], []
    for words, trained in (("set by hand", False), ("trained under clamps", True)):
        circuits = [
            circuit
            for model in models.values()
            for circuit in model["circuits"]
            if model["title"].startswith("trained") == trained
        ]
        least = min(each["least_true"] for each in circuits)
        most = max(each["most_false"] for each in circuits if each["most_false"] is not None)
        faithful = min(each["faithfulness"] for each in circuits)
        rows.append([words, str(len(circuits)), f"{least:.4f}", f"{most:.4f}", f"{faithful:.3f}"])
    columns = [
        "models",
        "circuits",
        "smallest rise of a true edge",
        "largest rise of another",
        "least faithful circuit",
    ]
    return markdown(columns, rows)


def members(folder: str = "zoo/members") -> str:
    """Every configuration of the collection of trained members."""
    from hopscope.collection.card import span
    from hopscope.collection.index import by_configuration, read_index

    rows = []
    for row, of in by_configuration(read_index(RESULTS / folder)):
        counts = [str(of[name]) for name in ("members", "learned", "partly", "read", "holds")]
        spans = [span(of["heads"], "%d"), span(of["loss"], "%.3f"), f"{of['parameters']:,}"]
        rows.append([row.study, row.configuration, *counts, *spans])
    columns = [
        "study",
        "configuration",
        "members",
        "learned all",
        "a part",
        "circuit read",
        "holds in float16",
    ]
    return markdown([*columns, "heads of a circuit", "held-out loss", "weights"], rows)


def members_rounded(folder: str = "zoo/members") -> str:
    """What rounding to float16 changes, over all members of the collection."""
    from statistics import median

    from hopscope.collection.index import read_index

    rows = read_index(RESULTS / folder)
    changes, read = [row.change for row in rows], [row for row in rows if row.was_read]
    cells = [
        str(len(rows)), f"{median(changes):.1e}", f"{max(changes):.1e}", str(len(read)),
        str(sum(bool(row.holds_in_float16) for row in read)),
    ]  # fmt: skip
    columns = ["members", "median change of the loss", "largest", "circuits read", "hold in float16"]
    return markdown(columns, [cells])
