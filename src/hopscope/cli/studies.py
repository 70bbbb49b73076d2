"""The command `hopscope studies`: list studies and presets."""

import dataclasses
import json
from typing import Annotated, Any

import tyro

from hopscope.cli.parsing import parse
from hopscope.errors import UserError
from hopscope.studies import find_study, study_names
from hopscope.studies.loading import studies_in
from hopscope.studies.program import DEFAULT_PRESET, Program


@dataclasses.dataclass
class Options:
    """List the studies, their presets and what they cost."""

    place: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """List the studies of a file (study.py) or of a package's module instead."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a study that cannot be loaded is said after all others are listed."""
    options = parse(Options, arguments, "studies")
    studies, fault = _studies(options.place)
    if options.json:
        print(json.dumps([_record(study) for study in studies], indent=1))
    else:
        for study in studies:
            _print(study)
    if fault is not None:
        raise fault
    return 0


def _studies(place: str | None) -> tuple[list[Program], UserError | None]:
    if place is not None:
        return list(studies_in(place).values()), None
    found: list[Program] = []
    fault: UserError | None = None
    for name in study_names():
        try:
            found.append(find_study(name))
        except UserError as error:
            fault = fault or error
    return found, fault


def _record(study: Program) -> dict[str, Any]:
    return {
        "study": study.name,
        "summary": study.study.question,
        "presets": [
            {
                "preset": name,
                "cost": study.study.costs.get(name, ""),
                "config": config.model_dump(mode="json"),
            }
            for name, config in study.presets.items()
        ],
    }


def _print(study: Program) -> None:
    print(f"{study.name}: {study.study.question}")
    for name in study.presets:
        default = " (default)" if name == DEFAULT_PRESET else ""
        cost = study.study.costs.get(name, "")
        print(f"  --preset {name}{default}" + (f": {cost}" if cost else ""))
