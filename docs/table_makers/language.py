"""Tables of pretrained language models."""

from pathlib import Path
from statistics import fmean
from typing import Any

from table_makers.common import RESULTS, markdown, read_json


def heads(file: str) -> str:
    """What ablating a model's heads costs, as `hopscope heads --json` printed it."""
    rows = [
        [
            str(row["depth"]),
            ", ".join(f"{layer}.{head}" for layer, head in row["heads"]),
            f"{row['accuracy']:.0%} (guess {row['guess']:.0%})",
            *(_points(row["cost"][which], row["cost"][f"{which}_interval"]) for which in ("top", "random")),
        ]
        for row in read_json(RESULTS / "heads" / f"{file}.json")["ablation"]
    ]
    return markdown(["D", "layer.head", "accuracy with all", "cost of these", "of random ones"], rows)


def pretrained_heads(*files: str) -> str:
    """What ablating the heads of several models costs, beside as many others and all heads of their layers."""
    rows = []
    for file in files:
        found = read_json(RESULTS / "heads" / f"{file}.json")
        for row in found["ablation"]:
            costs = (
                "–"
                if row["cost"][f"{which}_interval"] is None
                else _points(row["cost"][which], row["cost"][f"{which}_interval"])
                for which in ("top", "random", "layers")
            )
            rows.append(
                [
                    found["model"],
                    _way(found),
                    ", ".join(f"{layer}.{head}" for layer, head in row["heads"]),
                    f"{row['accuracy']:.0%} (guess {row['guess']:.0%})",
                    *costs,
                    found["claims"][0]["verdict"],
                ]
            )
    columns = ["model", "questions", "layer.head", "accuracy with all", "cost of these", "of random ones",
               "of all heads of their layers", "S2"]  # fmt: skip
    return markdown(columns, rows)


def _way(found: dict[str, Any]) -> str:
    """How a question is put, in a few words."""
    words = [f"{found['formulation'].replace('_', ' ')} D = {found['depth']}"]
    words += ["completion"] if found.get("complete") else ["chat"] if found.get("chat") else []
    words += [f"told {found['repeats']} times"] if found.get("repeats", 1) > 1 else []
    words += [f"{found['few_shot']} examples"] if found.get("few_shot") else []
    return ", ".join(words)


def head_targets(*files: str) -> str:
    """Of each target the head that pays it the most attention, of several models side by side."""
    models = [read_json(RESULTS / "heads" / f"{file}.json") for file in files]
    names = list(dict.fromkeys(name for model in models for name in model["targets"]))
    rows = [
        [name.replace(":", " → "), *(_best_head(model["targets"].get(name)) for model in models)]
        for name in names
    ]
    return markdown(["row → target", *(Path(model["model"]).name for model in models)], rows)


def _best_head(target: dict[str, Any] | None) -> str:
    if target is None:
        return "–"
    heads = [
        (value, layer, head) for layer, row in enumerate(target["scores"]) for head, value in enumerate(row)
    ]
    value, layer, head = max(heads, key=lambda each: (each[0], -each[1], -each[2]))
    ends = target["interval"] and target["interval"][layer][head]
    within = f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else ""
    return f"{layer}.{head}: {value:.2f}{within}, uniform {target['floor']:.2f}"


def ways_to_ask(*files: str) -> str:
    """How often models are right in each of the ways to ask of which `--formulation best` takes one."""
    models = [read_json(RESULTS / "heads" / f"{file}.json") for file in files]
    told: dict[str, dict[str, str]] = {}
    for model in models:
        for way in model["settings"]:
            low, high = way["interval"]
            told.setdefault(_way(way), {})[model["model"]] = f"{way['accuracy']:.2f} [{low:.2f}, {high:.2f}]"
    names = [model["model"] for model in models]
    rows = [[way, *(found.get(name, "–") for name in names)] for way, found in told.items()]
    return markdown(["way to ask", *names], rows)


def _points(cost: float, interval: list[float]) -> str:
    return f"{cost:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"


def language_models(*runs: str) -> str:
    """What language models answered or chose, by kind of question, and which symbol came first."""
    rows = []
    for run in runs:
        config, cells = _answered(run)
        for cell in cells:
            right = cell.accuracy
            said = sorted(cell.said.items(), key=lambda each: -each[1])
            share = (
                "–"
                if right.value is None
                else f"{right.value:.2f} [{right.low:.2f}, {right.high:.2f}] of {right.of}"
            )
            rows.append(
                [
                    cell.model,
                    "forced choice" if config.measure == "choice" else f"answers, {_sampling(config)}",
                    _kind(cell),
                    share,
                    f"{cell.guess:.2f}",
                    "; ".join(f"{symbol}: {count}" for symbol, count in said),
                ]
            )
    columns = ["model", "measure", "questions", "accuracy [95 % interval]", "by guessing", "likeliest symbol"]
    return markdown(columns, rows)


def language_answers(*runs: str) -> str:
    """How models that were asked for answers failed."""
    rows = []
    for run in runs:
        config, cells = _answered(run)
        for cell in cells:
            rejected = sorted(cell.rejected.items(), key=lambda each: -each[1])
            rows.append(
                [
                    _sampling(config),
                    _kind(cell),
                    f"{cell.acceptance.count} of {cell.questions}",
                    f"{cell.answered.count} of {cell.questions}",
                    f"{cell.accuracy.count} of {cell.accuracy.of}",
                    f"{cell.attempts:.1f}",
                    "; ".join(f"{kind}: {count}" for kind, count in rejected),
                ]
            )
    columns = ["sampling", "questions", "acceptable at once", "in the end", "of these right", "answers asked for",
               "rejected answers"]  # fmt: skip
    return markdown(columns, rows)


def language_changes(*runs: str) -> str:
    """What another way to put the same questions changes: differences over questions, in points, with a bootstrap.

    Runs whose questions are put as they are come first: the others are compared with them.
    """
    from hopscope.claims.intervals import bootstrap_mean

    before: dict[tuple[str, str], list[float]] = {}
    rows = []
    for run in runs:
        (config, cells), now = _answered(run), _correct(run)
        way = [f"told {config.repeats} times"] if config.repeats > 1 else []
        way += [f"{config.few_shot} solved examples"] if config.few_shot else []
        way += [f"{config.filler} dots"] if config.filler else []
        if not way:
            before |= now
            continue
        for cell in cells:
            key, right = (cell.model, _kind(cell)), cell.accuracy
            change = [100 * (b - a) for a, b in zip(before[key], now[key], strict=True)]
            low, high = bootstrap_mean(change) or (0.0, 0.0)
            rows.append(
                [
                    cell.model,
                    ", ".join(way),
                    _kind(cell),
                    f"{fmean(before[key]):.2f}",
                    f"{right.value:.2f} [{right.low:.2f}, {right.high:.2f}]",
                    f"{fmean(change):+.0f} [{low:+.0f}, {high:+.0f}]",
                    f"{cell.said.get('asked chain, hop 1', 0)} of {cell.questions}",
                ]
            )
    columns = ["model", "change", "questions", "as they are", "changed [95 % interval]", "difference in points",
               "likeliest symbol: the asked chain's hop 1"]  # fmt: skip
    return markdown(columns, rows)


def _answered(run: str) -> tuple[Any, list[Any]]:
    """What was asked in a run of language models, and the counts."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.llm.config import LanguageModelConfig
    from hopscope.studies.llm.measurements import cells

    evidence = Evidence.read(RunFolder.open(RESULTS / "llm" / run))
    config = LanguageModelConfig.model_validate(dict(evidence.config))
    return config, cells(evidence, config)


def _correct(run: str) -> dict[tuple[str, str], list[float]]:
    """By model and kind, whether each question was answered rightly, in the order of the questions."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.llm.measurements import part_of

    evidence, (_, cells) = Evidence.read(RunFolder.open(RESULTS / "llm" / run)), _answered(run)
    return {
        (cell.model, _kind(cell)): evidence.rows(
            "correct", part=part_of(cell.model, cell.formulation, cell.depth)
        )["value"].tolist()
        for cell in cells
    }


def _kind(cell: Any) -> str:
    from hopscope.studies.llm.config import Kind

    return Kind(cell.formulation, cell.depth).words


def _sampling(config: Any) -> str:
    return "greedy" if config.temperature == 0 else f"temperature {config.temperature or 1:g}"
