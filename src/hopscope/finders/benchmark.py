"""The benchmark: finders on planted models, each circuit scored, as one file that can be gone on with.

Which models: in every family the smallest ones (by edges times positions, then by name), so many of each as is asked
for.  So a part of the zoo has every way to do the task, in and outside of the grammar of Hopscope's own reader.
"""

import runpy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from hopscope.claims.intervals import bootstrap_mean
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.finders.attention import attention_mass
from hopscope.finders.attribution import eap, eap_ig
from hopscope.finders.catalogue import ZooModel
from hopscope.finders.circuit_file import FoundCircuit
from hopscope.finders.contract import Finder
from hopscope.finders.edges import Budget, edges_of
from hopscope.finders.greedy import acdc
from hopscope.finders.reader import read
from hopscope.finders.scores import CONVENTIONS, Bench, Scores, summary
from hopscope.runs import read_json, write_json

FINDERS: dict[str, Finder] = {
    "reader": read,
    "acdc": acdc,
    "eap": eap,
    "eap-ig": eap_ig,
    "attention-mass": attention_mass,
}
"""Hopscope's reader, and the baselines."""

SAMPLES = {"permutation": 256, "equations": 64}
"""Sequences that every finder may look at, by task: right or wrong answers say less than vectors do."""

USUAL_SAMPLES = 32

GROUPS: dict[str, Callable[[Scores], bool]] = {
    "chains, rules describe them": lambda each: _own(each) and each.grammar,
    "chains, no rules do": lambda each: _own(each) and not each.grammar,
    "permutation lookup": lambda each: each.family.startswith("permutation"),
    "plants of other make, rules describe them": lambda each: _external(each) and each.grammar,
    "plants of other make, no rules do": lambda each: _external(each) and not each.grammar,
}
"""Groups of models that results are told of."""


def _external(each: Scores) -> bool:
    return each.family.startswith("external")


def _own(each: Scores) -> bool:
    return not _external(each) and not each.family.startswith("permutation")


def finder_of(name: str) -> Finder:
    """A finder by its name, or `FILE.py:FUNCTION`.

    Raises:
        UserError: there is no such finder.
    """
    if name in FINDERS:
        return FINDERS[name]
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file():
        raise UserError(
            f"finders: expected {', '.join(FINDERS)}, or FILE.py:FUNCTION of a file that is there, found {name!r}"
        )
    found: Any = runpy.run_path(file).get(function)
    if not callable(found):
        raise UserError(f"{file}: expected a function {function}(model, task, budget), found none")
    return found


def smallest(models: Iterable[ZooModel], count: int | None) -> list[ZooModel]:
    """So many models of every family, the smallest ones, the smallest of all families first."""

    def size(model: ZooModel) -> tuple[int, str]:
        config = model.build().config
        return len(edges_of(config)) * config.length, model.name

    by_family = sorted(models, key=lambda model: model.truth.family)
    ranked = [
        (place, model)
        for _, family in groupby(by_family, key=lambda model: model.truth.family)
        for place, model in enumerate(sorted(family, key=size))
    ]
    return [
        model for place, model in sorted(ranked, key=lambda each: each[0]) if count is None or place < count
    ]


def run(
    models: Sequence[ZooModel],
    finders: Mapping[str, Finder],
    to: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run finders on models, and write what came out after each model; what the file has already is not done again.

    Args:
        models: planted models, in the order in which they are done.
        finders: by name.
        to: file of the record.
        progress: told what is done.

    Returns:
        The record: `conventions`, `truth`, `scores` by finder, `summary` by group and finder.

    Raises:
        UserError: the file is no such record, or a finder names an edge that a model lacks.
    """
    torch.set_num_threads(1)
    truth, scores = _before(to)
    for name in finders:
        scores.setdefault(name, {})
    for model in models:
        missing = [name for name in finders if model.name not in scores[name]]
        if not missing:
            continue
        bench = Bench(model)
        truth[model.name] = _told(bench)
        budget = Budget(SAMPLES.get(model.truth.task.kind, USUAL_SAMPLES))
        for name in missing:
            began = time.process_time()
            edges = tuple(finders[name](bench.transformer, model.task, budget))
            seconds = round(time.process_time() - began, 3)
            found = FoundCircuit(model=model.name, edges=edges, seconds=seconds)
            scores[name][model.name] = _rounded(bench.score(found))
            progress(f"{model.name}: {name}, {seconds:.1f} s")
        write_json(to, _record(truth, scores))
    return _record(truth, scores)


def _told(bench: Bench) -> dict[str, Any]:
    """What is true of a model, with the proof."""
    return {
        "title": bench.model.truth.title,
        "edges": len(bench.patching.edges),
        "circuits": [
            {
                "edges": sorted(map(str, each.edges)),
                "least_true": _short(each.least_true),
                "most_false": _short(each.most_false),
                "faithfulness": _short(bench.faithfulness(each.edges)),
            }
            for each in bench.truth
        ],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _rounded(scores: Scores) -> Scores:
    def short(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(short, value))
        return round(value, 4) if isinstance(value, float) else value

    return Scores(**{name: short(value) for name, value in scores})


def _before(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Scores]]]:
    """Truth and scores that a file has."""
    if not path.is_file():
        return {}, {}
    record = read_json(path, "take another --to")
    try:
        scores = {
            name: {each["model"]: Scores.model_validate(each) for each in found}
            for name, found in record["scores"].items()
        }
        return dict(record["truth"]), scores
    except ValidationError as error:
        raise UserError(f"{path}: {validation_line(error)}; take another --to") from None
    except (KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path}: expected a record of hopscope zoo run, found another; take another --to"
        ) from None


def _record(truth: dict[str, Any], scores: dict[str, dict[str, Scores]]) -> dict[str, Any]:
    return {
        "format": "hopscope-zoo-scores",
        "schema_version": 1,
        "conventions": CONVENTIONS,
        "summary": {
            group: {name: summary(found, bootstrap_mean) for name, found in _grouped(scores, belongs).items()}
            for group, belongs in GROUPS.items()
        },
        "truth": truth,
        "scores": {
            name: [each.model_dump(mode="json") for each in found.values()] for name, found in scores.items()
        },
    }


def _grouped(
    scores: Mapping[str, Mapping[str, Scores]], belongs: Callable[[Scores], bool]
) -> dict[str, list[Scores]]:
    """Scores of the models of a group that every finder has been run on."""
    common = set.intersection(*(set(found) for found in scores.values())) if scores else set()
    grouped = {
        name: [each for model, each in found.items() if model in common and belongs(each)]
        for name, found in scores.items()
    }
    return {name: found for name, found in grouped.items() if found}
