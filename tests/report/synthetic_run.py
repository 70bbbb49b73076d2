"""A made-up run folder with every kind of block, figure and verdict; its numbers are made up too."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from hopscope.runs import UnitFolder, save_checkpoint

HASH = "5b0c9d7e31f24a68b7c5e2a90d134f6ab82c7710f3d94e5566a1b0c9d8e7f601"
FLOORS = {"uniform floor": 1.0986, "elimination floor": 0.9575}
SEEDS = (3, 5, 7, 11)
TOKENS = [2, 3, 4, 1, 1, 4, 5, 5, 2, 3]
"""A probe: the last x repeats the first."""
HEADS = ("layer 1 · head 1", "layer 1 · head 2")


def write_synthetic_run(root: Path, study: str = "permutation", digest: str = HASH) -> Path:
    """Write the run under ``root/study/digest`` and return that folder."""
    run = root / study / digest
    figures = run / "figures"
    figures.mkdir(parents=True)
    _write_json(run / "config.json", _config(study, digest))
    _write_json(run / "story.json", story())
    _write_json(run / "claims.json", claims())
    _write_figure(figures, "loss", _curve_spec("loss", "training loss (nats)"), _curve_rows(_loss))
    _write_figure(figures, "recall", _curve_spec("recall", "accuracy of recall", "%"), _curve_rows(_recall))
    _write_figure(figures, "attention", _attention_spec(), _attention_rows())
    write_checkpoints(run)
    return run


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _write_figure(figures: Path, name: str, spec: dict[str, Any], rows: Iterable[Sequence[Any]]) -> None:
    _write_json(figures / f"{name}.vl.json", spec)
    text = "".join(",".join(str(cell) for cell in row) + "\n" for row in rows)
    (figures / f"{name}.csv").write_text(text, encoding="utf-8")


def _config(study: str, digest: str) -> dict[str, Any]:
    config = {
        "task": {"symbols": 5, "repeats": 0.3, "chains": 1},
        "model": {"width": 32, "heads": 2, "layers": 1, "positions": "learned"},
        "training": {"steps": 5100, "batch": 512, "learning_rate": 0.003, "betas": [0.9, 0.999]},
        "seeds": 4,
    }
    return {
        "schema_version": 1,
        "results_version": 1,
        "study": study,
        "preset": "laptop",
        "hash": digest,
        "config": config,
    }


def _loss(step: int, seed: int) -> float:
    first = 0.52 * math.exp(-step / 260)
    second = 0.141 / (1 + math.exp((step - 1900 - 61 * seed) / 130))
    return 0.9575 + first + second + 0.004 * math.sin(step / 37 + seed)


def _recall(step: int, seed: int) -> float:
    return 0.2 + 0.8 / (1 + math.exp(-(step - 1900 - 61 * seed) / 130))


def _curve_rows(value: Any) -> Iterable[Sequence[Any]]:
    yield "step", "seed", "value"
    for seed in SEEDS:
        for step in range(0, 5101, 51):
            yield step, seed, round(value(step, seed), 5)


def _curve_spec(name: str, title: str, unit: str = "") -> dict[str, Any]:
    types = {"step": "number", "seed": "number", "value": "number"}
    data = alt.UrlData(f"{name}.csv", format=alt.CsvDataFormat(type="csv", parse=types))
    axis = alt.Axis(format=".0%") if unit else alt.Axis()
    lines = (
        alt.Chart(data)
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="optimiser step"),
            y=alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(zero=bool(unit))),
            color=alt.Color("seed:N", title="seed"),
            tooltip=["seed:N", "step:Q", "value:Q"],
        )
    )
    floors = {"chance": 0.2} if unit else FLOORS
    rules = alt.Chart(alt.InlineData([{"floor": y, "name": name} for name, y in floors.items()]))
    rule = rules.mark_rule(strokeDash=[6, 4], color="#52606d").encode(y="floor:Q")
    label = rules.mark_text(align="right", dy=-7, x="width", color="#52606d").encode(
        y="floor:Q", text="name:N"
    )
    return alt.layer(lines, rule, label, data=data).properties(width=560, height=300).to_dict()


def _attention_rows() -> Iterable[Sequence[Any]]:
    yield "head", "query", "key", "weight"
    for at, head in enumerate(HEADS):
        for query in range(9):
            scores = [math.exp(3 * ((query - key) == at + 1) + 0.4 * (key % 2)) for key in range(query + 1)]
            for key, score in enumerate(scores):
                yield head, query, key, round(score / sum(scores), 4)


def _attention_spec() -> dict[str, Any]:
    types = {"head": "string", "query": "number", "key": "number", "weight": "number"}
    data = alt.UrlData("attention.csv", format=alt.CsvDataFormat(type="csv", parse=types))
    chart = (
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=alt.X("key:O", title="key position"),
            y=alt.Y("query:O", title="query position"),
            color=alt.Color("weight:Q", title="attention", scale=alt.Scale(domain=[0, 1])),
            facet=alt.Facet("head:N", columns=2, title=None),
            tooltip=["head:N", "query:O", "key:O", "weight:Q"],
        )
    )
    return chart.properties(width=250, height=250).to_dict()


def _claim(identifier: str, verdict: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "statement": fields["statement"],
        "source": fields["source"],
        "protocol": fields.get("protocol", "All seeds, last checkpoint, all 1,440 held-out sequences."),
        "threshold": fields["threshold"],
        "value": fields.get("value"),
        "interval": fields.get("interval"),
        "n": fields.get("n", 0),
        "verdict": verdict,
        "trust": fields.get(
            "trust", ["the held-out split: no mapping of it is ever trained on", "float32 evaluation"]
        ),
        **({"unit": fields["unit"]} if "unit" in fields else {}),
    }


def claims() -> list[dict[str, Any]]:
    """One claim per verdict and one more with several numbers."""
    return [
        _claim(
            "P4",
            "reproduced",
            statement="The training loss settles at the elimination floor.",
            source="003 §4, §8",
            threshold="|training loss − 0.9575| ≤ 0.003",
            value=0.95712,
            interval=[0.95664, 0.95753],
            n=13,
        ),
        _claim(
            "P3",
            "inconclusive",
            statement="On data with 30 % repeats, width 32 and two heads, both step-5 subgroups reach 100 %.",
            source="003 §8–9",
            threshold={
                "elimination accuracy": {"at_least": 0.999},
                "recall accuracy": {"at_least": 0.999},
                "recalled mass": {"at_least": 0.99},
            },
            value={"elimination accuracy": 1.0, "recall accuracy": 0.9996, "recalled mass": 0.9981},
            interval={
                "elimination accuracy": [0.9993, 1.0],
                "recall accuracy": [0.9991, 1.0],
                "recalled mass": None,
            },
            n=4,
            unit={
                "elimination accuracy": "fraction",
                "recall accuracy": "fraction",
                "recalled mass": "fraction",
            },
        ),
        _claim(
            "P10b",
            "refuted",
            statement="The y rows' local binding is what recall uses.",
            source="003 §11",
            threshold="changing patterns of rows 0–7 changes the answer at row 8 at all",
            value=0.0,
            interval=[0.0, 0.0],
            n=11,
            trust="The model has one layer, so rows 0–7 cannot reach row 8 by any other way.",
        ),
        _claim(
            "P11",
            "not run",
            statement="V = 4 can be memorised, V = 5 cannot.",
            source="003 §2",
            threshold="share of the way to the memorised floor: ≥ 0.5 at V = 4, ≤ 0.1 at V = 5",
            protocol="Needs the preset `paper`.",
            trust=[],
        ),
    ]


def story() -> dict[str, Any]:
    """A story with every kind of block."""
    return {
        "schema_version": 1,
        "title": "Permutation lookup: recall by attention, elimination by arithmetic",
        "subtitle": "{seeds} small transformers look a symbol up in their context; one head does most of it.",
        "numbers": {
            "seeds": _number(4, "4", "config.json", "config.seeds"),
            "floor": _number(0.9575, "0.9575", "units/7f/analysis/floors-step-5100.json", "elimination"),
            "final_loss": _number(0.95712, "0.9571", "units/7f/analysis/loss-step-5100.json", "mean"),
            "rise": _number(2400, "2,400", "units/7f/analysis/crossings.json", "recall.half"),
        },
        "claims": {
            "P4": {
                "words": "13 of 13 seeds end within {floor} ± 0.003.",
                "per_seed": {"final loss": _losses()},
            },
            "P3": {
                "words": "4 of 4 seeds agree; needs 10",
                "per_seed": {
                    "recall accuracy": [1.0, 0.9996, 1.0, None],
                    "elimination accuracy": [1.0, 1.0, 1.0, 1.0],
                },
            },
            "P10b": {"words": "No pattern of rows 0–7 changes any answer in 11 of 11 seeds."},
        },
        "sections": [_task_section(), _learning_section(), _heads_section(), _verdict_section()],
    }


def _number(value: float, text: str, file: str, key: str) -> dict[str, Any]:
    return {"value": value, "text": text, "file": file, "key": key}


def _losses() -> list[float]:
    return [round(0.9571 + 0.0004 * math.sin(seed), 5) for seed in range(13)]


def _task_section() -> dict[str, Any]:
    tokens = ["3", "C", "1", "A", "5", "B", "1", "A", "2", "?"]
    cells = [
        {
            "token": token,
            "role": "y" if at % 2 else "x",
            "note": f"{'y' if at % 2 else 'x'}{'₁₂₃₄₅'[at // 2]}",
        }
        for at, token in enumerate(tokens)
    ]
    cells[-1] = {"token": "?", "role": "query", "note": "to be answered"}
    words = (
        "Each sequence hides a permutation: every number stands for one letter, and the pairs are shown one "
        "after another. A number that was seen before can be looked up; one that was not can only be "
        "narrowed down, because letters already used are out.\n\nA model that does both perfectly, "
        "and nothing more, reaches a training loss of {floor} nats. That is the elimination floor."
    )
    return {
        "id": "task",
        "heading": "The task",
        "blocks": [
            {"kind": "text", "text": words},
            {
                "kind": "sequence",
                "cells": cells,
                "caption": "x tokens are numbers, y tokens their letters.",
            },
            worked(),
            explorer(),
        ],
    }


def worked() -> dict[str, Any]:
    """The last two steps of a probe in which recall and elimination disagree."""
    before = _bars({}, [0.004, 0.49, 0.003, 0.003, 0.5], [0.0, 0.5, 0.0, 0.0, 0.5])
    last = _bars({3: 0.0, 2: 0.9991}, [1e-5, 0.9987, 0.0002, 0.0009, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0])
    return {
        "kind": "worked",
        "title": "width 16, plain data: a repeat after {seeds} pairs",
        "file": "units/7f/analysis/worked-step-5100.json",
        "key": "sequences.3.probabilities.1",
        "sequence": TOKENS,
        "steps": [
            {"x": 5, "seen": TOKENS[:7], "used": [3, 1, 4], "target": 5, "bars": before},
            {"x": 2, "seen": TOKENS[:9], "used": [3, 1, 4, 5], "target": 3, "recall": 3, "elimination": 2,
             "bars": last, "note": "Of {seeds} seeds, none recalls."},
        ],
        "caption": "The model answers by elimination.",
    }  # fmt: skip


def _bars(published: dict[int, float], ours: list[float], ideal: list[float]) -> list[dict[str, Any]]:
    return [
        {"value": value, "probability": p, "ideal": best, "published": published.get(value)}
        for value, (p, best) in enumerate(zip(ours, ideal, strict=True), start=1)
    ]


EXPLORED = (("7f", 3, 1.0), ("7f", 4, 3.0), ("8c", 5, 2.0))
"""Unit, member and size of the weights of each model of the explorer."""


def explorer() -> dict[str, Any]:
    """Three made-up models of five values, two of them in one unit."""
    shapes: list[tuple[str, list[int]]] = [("embed.token.weight", [6, 3]), ("embed.position.weight", [9, 3])]
    for part in ("query", "key", "value", "output"):
        shapes += [
            (f"layers.0.attention.{part}.weight", [3, 3]),
            (f"layers.0.attention.{part}.bias", [3]),
        ]
    shapes += [("readout.weight", [3, 6]), ("readout.bias", [6])]
    tokens = {"no repeat": [2, 3, 1, 5, 4, 4, 3, 2, 5], "x5 repeats x1": [2, 4, 5, 3, 4, 5, 3, 2, 2]}
    return {
        "kind": "explorer",
        "title": "Take a model apart",
        "shapes": [{
            "config": {
                "inputs": "tokens", "input_size": 6, "output_size": 6, "length": 9, "readout": [0, 2, 4, 6, 8],
                "codes": list(range(9)), "layers": 1, "heads": 1, "head_size": 3, "width": 3, "mlp_size": 0,
                "activation": "relu", "norm": "none", "causal": True,
            },
            "layout": shapes,
        }],
        "tasks": [{
            "inputs": "tokens", "outputs": "classes", "tokens": list("012345"), "kind": "permutation",
            "examples": [
                {"name": name, "size": 9, "inputs": ids, "targets": [-1] * 5,
                 "roles": [f"{'xy'[at % 2]} {at // 2 + 1}" for at in range(9)]}
                for name, ids in tokens.items()
            ],
            "held_out": [[5, 3, 2, 4, 1]],
        }],
        "models": [
            {"name": f"width 3, seed {member}", "configuration": "width 3" if unit == "7f" else "other",
             "member": member, "unit": unit, "index": member - 3 if unit == "7f" else 0, "shape": 0, "task": 0}
            for unit, member, _ in EXPLORED
        ],
        "start": {"model": 1, "example": 0, "row": 8, "layer": 0, "head": 0},
        "caption": "Computed in the browser, {seeds} models in the run.",
    }  # fmt: skip


def weights(size: float, step: int) -> dict[str, np.ndarray]:
    """Made-up weights of one member by name."""
    return {
        name: np.array(
            [size * math.sin(at + len(name) + step) for at in range(math.prod(shape))], dtype=np.float32
        ).reshape(shape)
        for name, shape in explorer()["shapes"][0]["layout"]
    }


def write_checkpoints(run: Path, steps: tuple[int, ...] = (0, 700, 5100)) -> None:
    """The checkpoints of the explorer's units."""
    for unit in ("7f", "8c"):
        own = [size for name, _, size in EXPLORED if name == unit]
        for step in steps:
            members = [weights(size, step) for size in own]
            arrays = {f"weights/{name}": np.stack([each[name] for each in members]) for name in members[0]}
            save_checkpoint(UnitFolder(run / "units" / unit).checkpoint_path(step), arrays, {"step": step})


def _learning_section() -> dict[str, Any]:
    rows = [["d16 / 1 head", "plain", 0.9983, "no"], ["d32 / 2 heads", "30 % repeats", "{final_loss}", "yes"]]
    return {
        "id": "learning",
        "heading": "How it learns",
        "blocks": [
            {
                "kind": "text",
                "text": "The mean loss ends at {final_loss}. Recall rises at step {rise}, late and fast.",
            },
            {
                "kind": "figure",
                "name": "loss",
                "caption": "Training loss of each seed against the two floors: {floor} is the lower one.",
                "alt": "Four loss curves wait at the uniform floor, then drop to the elimination floor.",
            },
            {
                "kind": "figure",
                "name": "recall",
                "caption": "Accuracy on repeated numbers.",
                "alt": "Recall stays at chance until about step {rise}, then rises to 100 %.",
            },
            {
                "kind": "table",
                "columns": ["model", "data", "final loss", "recalls"],
                "rows": rows,
                "caption": "Models after 5,100 steps.",
            },
        ],
    }


def _heads_section() -> dict[str, Any]:
    return {
        "id": "heads",
        "heading": "What the heads do",
        "blocks": [
            {"kind": "text", "text": "One head looks one token back, the other two tokens back."},
            {
                "kind": "figure",
                "name": "attention",
                "caption": "Attention patterns of both heads, averaged over held-out sequences.",
                "alt": "Two triangular heat maps with one bright diagonal each.",
            },
        ],
    }


def _verdict_section() -> dict[str, Any]:
    words = "A refuted claim is a result; an inconclusive one needs more seeds than this run had."
    return {
        "id": "verdicts",
        "heading": "Verdicts",
        "blocks": [{"kind": "text", "text": words}, {"kind": "verdicts"}],
    }
