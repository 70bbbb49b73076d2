"""The command `hopscope zoo`: planted models with known circuits, scores of circuits that anybody found in them, and
collections of trained members."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from hopscope.cli.parsing import joined, parse
from hopscope.errors import UserError

if TYPE_CHECKING:
    from hopscope.finders.catalogue import ZooModel
    from hopscope.finders.scores import Scores


@dataclasses.dataclass
class List:
    """List the planted models: name, layers, heads, number of minimal circuits, whether rules describe them, title."""

    models: Path | None = None
    """Folder of further models, as hopscope zoo export writes them."""


@dataclasses.dataclass
class Export:
    """Write planted models as folders: weights that hopscope.load_module reads, and circuit.json with the truth."""

    to: Path
    """Folder to write into; each model gets a folder of its own."""
    names: tuple[str, ...] = ()
    """Which models (default: all)."""


@dataclasses.dataclass
class Score:
    """Score circuits: precision, recall and AUROC of edges and heads, faithfulness, CPR and CMD (docs/benchmark.md)."""

    file: Positional[Path]
    """Circuits, as docs/benchmark.md says."""
    models: Path | None = None
    """Folder of further models."""
    json: bool = False
    """Print JSON: conventions, scores of each model, and their means."""


@dataclasses.dataclass
class Run:
    """Run finders on the planted models and write their scores; the same command goes on where it stopped."""

    to: Path
    """File to write."""
    finders: tuple[str, ...] = ()
    """Which finders: reader, acdc, eap, eap-ig, attention-mass, or FILE.py:FUNCTION (default: the five)."""
    each: int | None = None
    """How many models of every family, the smallest ones (default: all)."""
    names: tuple[str, ...] = ()
    """Which models, in place of that."""
    models: Path | None = None
    """Folder of further models."""


@dataclasses.dataclass
class Members:
    """List the trained members of a collection; hopscope.load("FOLDER/NAME") opens one (docs/members.md)."""

    folder: Positional[Path] = Path("docs/results/zoo/members")
    """The collection."""
    json: bool = False
    """Print JSON: the index as a list."""


@dataclasses.dataclass
class BuildMembers:
    """Make a collection of the trained members of some runs: weights, circuits, timelines, index and card."""

    runs: Positional[tuple[str, ...]]
    """Run folders; RUN:0-3,8 takes some of a run's members."""
    to: Path
    """Folder to write into."""
    made_by: tuple[str, ...] = ()
    """The command that trained each run, in their order, for the card."""


COMMANDS: dict[str, type[Any]] = {
    "list": List, "export": Export, "score": Score, "run": Run, "members": Members, "build-members": BuildMembers,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: hopscope zoo COMMAND [OPTIONS]\n")
        for name, options in COMMANDS.items():
            print(f"  {name:<13} {options.__doc__}")
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        raise UserError(
            f"zoo: expected one of {', '.join(COMMANDS)}, found {command!r}; see hopscope zoo --help"
        )
    options = parse(COMMANDS[command], joined(rest, ("names", "finders", "made-by")), f"zoo {command}")
    _DONE_BY[command](options)
    return 0


def _list(options: List) -> None:
    for model in _models(options.models):
        config, truth = model.build().config, model.truth
        size = f"{config.layers} x {config.heads}"
        by_rules = "rules" if truth.grammar else "no rules"
        print(f"{truth.name:<16} {size:<6} {len(truth.circuits)}  {by_rules:<8}  {truth.title}")


def _export(options: Export) -> None:
    from hopscope.finders.catalogue import chosen, export_model

    for model in chosen(options.names, _models(None)):
        print(export_model(model, options.to))


def _score(options: Score) -> None:
    from hopscope.claims.intervals import bootstrap_mean
    from hopscope.finders.circuit_file import read_circuits
    from hopscope.finders.scores import CONVENTIONS, Bench, summary

    models = _models(options.models)
    circuits = read_circuits(options.file, models)
    known = {model.name: model for model in models}
    scores = [Bench(known[found.model]).score(found) for found in circuits.circuits]
    means = summary(scores, bootstrap_mean)
    if options.json:
        record = {
            "finder": circuits.finder,
            "conventions": CONVENTIONS,
            "scores": [each.model_dump(mode="json") for each in scores],
            "mean": means,
        }
        print(json.dumps(record, indent=1, ensure_ascii=False))
        return
    _print(scores, means)
    for name, words in CONVENTIONS.items():
        print(f"{name}: {words}")


_COLUMNS = {
    "precision": "precision", "recall": "recall", "auroc": "AUROC", "head_precision": "heads: precision",
    "head_recall": "recall", "row_precision": "rows: precision", "row_recall": "recall",
    "faithfulness": "faithfulness", "cpr": "CPR", "cmd": "CMD",
}  # fmt: skip


def _print(scores: "list[Scores]", means: dict[str, Any]) -> None:
    print("  ".join(["model".ljust(16), *_COLUMNS.values()]))
    for each in scores:
        print("  ".join([each.model.ljust(16), *_cells({name: getattr(each, name) for name in _COLUMNS})]))
    print(
        "  ".join(["mean".ljust(16), *_cells({name: means.get(name, {}).get("mean") for name in _COLUMNS})])
    )
    print(f"{len(scores)} models")


def _cells(values: dict[str, float | None]) -> list[str]:
    return [
        ("–" if value is None else f"{value:.3f}").rjust(len(_COLUMNS[name]))
        for name, value in values.items()
    ]


def _run(options: Run) -> None:
    from hopscope.finders.benchmark import FINDERS, finder_of, run, smallest
    from hopscope.finders.catalogue import chosen

    finders = {name: finder_of(name) for name in options.finders or FINDERS}
    models = _models(options.models)
    wanted = chosen(options.names, models) if options.names else smallest(models, options.each)
    run(wanted, finders, options.to, lambda words: print(words, flush=True))
    print(options.to)


def _members(options: Members) -> None:
    from hopscope.collection.index import read_index
    from hopscope.words import counted

    rows = read_index(options.folder)
    if options.json:
        print(json.dumps([row.model_dump(mode="json") for row in rows], indent=1, ensure_ascii=False))
        return
    width = max((len(row.name) for row in rows), default=4)
    print("  ".join(["name".ljust(width), "size  ", "loss  ", "learned".ljust(20), "circuit"]))
    for row in rows:
        loss = row.held_out_float16["loss"]
        learned = f"{', '.join(row.learned) or 'nothing'} of {len(row.asked)}"
        circuit = counted(row.heads, "head") if row.was_read else row.verdict.partition(":")[0]
        size = f"{row.model.layers} x {row.model.heads}"
        shown = "–" if loss is None else f"{loss:.3f}"
        print("  ".join([row.name.ljust(width), size.ljust(6), shown.ljust(6), learned.ljust(20), circuit]))


def _build_members(options: BuildMembers) -> None:
    from hopscope.collection.building import Source, build
    from hopscope.training.threads import prepare

    if options.made_by and len(options.made_by) != len(options.runs):
        raise UserError(
            f"made-by: expected one command for each of {len(options.runs)} runs, found {len(options.made_by)}"
        )
    prepare(threads=1)  # passes are many and small: more threads mostly wait for each other
    commands = options.made_by or ("",) * len(options.runs)
    sources = [Source.of(run, command) for run, command in zip(options.runs, commands, strict=True)]
    build(sources, options.to, lambda name: print(name, flush=True))
    print(options.to)


def _models(folder: Path | None) -> "list[ZooModel]":
    from hopscope.finders.catalogue import zoo_models

    return list(zoo_models(folder))


_DONE_BY: dict[str, Callable[[Any], None]] = {
    "list": _list, "export": _export, "score": _score, "run": _run, "members": _members,
    "build-members": _build_members,
}  # fmt: skip
