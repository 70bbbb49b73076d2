"""What the page of language models shows beside plain numbers: example questions, counts of wrong answers, and hops."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from hopscope.claims.intervals import mean
from hopscope.language.questions.answers import Tally, by_chance
from hopscope.language.questions.prompts import putter
from hopscope.language.questions.survival import survivals
from hopscope.story.functions import PageFunctions
from hopscope.studies.llm.config import Kind, LanguageModelConfig, short_names
from hopscope.studies.llm.measurements import FOLLOWED, cells, part_of
from hopscope.tasks.text import FORMULATIONS, TextConfig, question


def names(page: PageFunctions, config: LanguageModelConfig) -> Mapping[str, Any]:
    """Names that the template may use: `example`, `leaders`, `formulations`, `cells`, `hops` and `rejections`."""
    example = question(TextConfig(formulation="equations", depth=2, chains=2), 0, config.seed)
    *lines, asked = example.prompt.split("\n")
    found, short = cells(page.evidence, config), short_names(config.model)
    kinds = {kind for cell in found for kind in cell.rejected}
    equations = (cell for cell in found if cell.formulation == "equations")
    of_models = groupby(equations, key=lambda cell: cell.model)
    completion = putter(TextConfig(formulation="equations", depth=2, chains=2), config.seed, complete=True)
    return {
        "example": {
            "lines": lines,
            "question": asked,
            "answer": example.answer,
            "completion": completion(example).split("\n")[-1],
        },
        "leaders": _leaders(found, short),
        "formulations": [
            {
                "name": name,
                "depths": config.depths_of(name),
                "acceptable": len(question(TextConfig(formulation=name), 0, config.seed).acceptable),
            }
            for name in FORMULATIONS
        ],
        "cells": [
            {
                **dict(cell),
                "wrong": cell.wrong,
                "model": short[cell.model],
                "kind": Kind(cell.formulation, cell.depth).words,
                "part": part_of(cell.model, cell.formulation, cell.depth),
                # Wrong answers of a chain whose line is the next one, or the one before.
                "near": {name: sum(getattr(cell, name).get(key, 0) for key in ("-1", "1")) for name in FOLLOWED},
                "near_by_chance": 2 * by_chance(1, cell.chains),
            }
            for cell in found
        ],
        "hops": [(short[model], each) for model, group in of_models for each in survivals(list(group))],
        "rejections": sorted(kinds, key=lambda kind: (not kind.startswith("stopped"), kind)),
    }  # fmt: skip


def _leaders(found: Sequence[Tally], short: Mapping[str, str]) -> list[dict[str, Any]]:
    """The models by their mean accuracy over kinds of questions, best first."""
    by_model = groupby(found, key=lambda cell: cell.model)
    leaders = []
    for model, group in by_model:
        of = list(group)
        right = [cell.accuracy.count / cell.questions for cell in of]
        leaders.append(
            {
                "model": short[model],
                "accuracy": mean(right),
                "guess": mean([c.guess for c in of]),
                "kinds": len(of),
            }
        )
    return sorted(leaders, key=lambda each: -each["accuracy"])
