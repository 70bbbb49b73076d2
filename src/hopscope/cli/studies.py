"""The command `hopscope studies`: list studies and presets, and what they cost."""

import dataclasses
import json
from typing import Annotated, Any

import tyro

from hopscope.cli.parsing import parse
from hopscope.cli.terminal import say
from hopscope.errors import UserError
from hopscope.executors.costs import Cost, Costs, in_words
from hopscope.studies import find_study, study_names
from hopscope.studies.loading import naming, studies_in
from hopscope.studies.program import DEFAULT_PRESET, Program


@dataclasses.dataclass
class Options:
    """List the studies, their presets and what they cost.

    With --probe, every preset is trained for a few seconds first, to tell what its training costs on this machine.
    The figures are kept in the folder of your caches (hopscope/costs.json) and shown from then on.
    """

    place: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """List the studies of a file (study.py) or of a package's module instead."""
    study: str | None = None
    """List this study alone."""
    probe: bool = False
    """Time a few steps of every preset on this machine: seconds for one study, several minutes for all."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a study that cannot be loaded is said after all others are listed."""
    options = parse(Options, arguments, "studies")
    studies, fault = _studies(options.place, options.study)
    costs = Costs()
    if costs.damage:
        say(f"hopscope: {costs.damage}")
    if options.probe:
        for study in studies:
            _probe(study, costs)
    if options.json:
        print(json.dumps([_record(study, costs) for study in studies], indent=1))
    else:
        for study in studies:
            _print(study, costs)
    if fault is not None:
        raise fault
    return 0


def _studies(place: str | None, name: str | None) -> tuple[list[Program], UserError | None]:
    """The studies that were asked for, and why another could not be loaded.

    Raises:
        UserError: there is no such study, or the file cannot be loaded.
    """
    if place is not None:
        every = studies_in(place)
        if name is not None and name not in every:
            raise UserError(f"study: expected one of {', '.join(every)}, found {name!r}")
        return [study for study in every.values() if name in (None, study.name)], None
    if name is not None:
        return [find_study(name)], None
    found: list[Program] = []
    fault: UserError | None = None
    for each in study_names():
        try:
            found.append(find_study(each))
        except UserError as error:
            fault = fault or error
    return found, fault


def _probe(study: Program, costs: Costs) -> None:
    """Time the presets of a study that train something, and keep what that tells.

    Raises:
        UserError: its task has a fault, or the figures cannot be kept.
    """
    from hopscope.executors.probing import Probe
    from hopscope.executors.timing import NotMeasured

    probe = Probe(study)
    for name, config in study.presets.items():
        if not study.jobs(config):
            continue
        say(f"probing {study.name} --preset {name}")
        try:
            with naming(study):
                costs.keep(study, name, config, probe.seconds(config))
        except NotMeasured as reason:
            costs.keep(study, name, config, None, str(reason))


def _record(study: Program, costs: Costs) -> dict[str, Any]:
    return {
        "study": study.name,
        "summary": study.study.question,
        "presets": [
            {
                "preset": name,
                "cost": study.study.costs.get(name, ""),
                "probed": _probed(costs.of(study, config), costs),
                "config": config.model_dump(mode="json"),
            }
            for name, config in study.presets.items()
        ],
    }


def _probed(cost: Cost | None, costs: Costs) -> dict[str, Any] | None:
    """What is known of a preset on this machine, for JSON."""
    if cost is None:
        return None
    return {
        "seconds": cost.seconds,
        "reason": cost.reason,
        "date": cost.date,
        "cores": costs.machine.cores,
        "training_only": cost.training_only,
    }


def _print(study: Program, costs: Costs) -> None:
    print(f"{study.name}: {study.study.question}")
    for name in study.study.presets:
        default = " (default)" if name == DEFAULT_PRESET else ""
        words = _words(study, name, costs)
        print(f"  --preset {name}{default}" + (f": {words}" if words else ""))


def _trains(study: Program, preset: str) -> bool:
    """Whether a preset trains something; told without a plan where the study has a task."""
    if study.study.task is not None:
        return True
    return study.study.units is not None and bool(study.jobs(study.configured(preset, {})))


def _words(study: Program, preset: str, costs: Costs) -> str:
    """What a preset costs: the figure of this machine if there is one, else what its author wrote."""
    typed = study.study.costs.get(preset, "")
    # A preset is planned only where that may tell something: one study counts whole texts for its plan.
    cost = costs.of(study, study.configured(preset, {})) if costs.know(study.name, preset) else None
    if cost is None or cost.seconds is None:
        if not _trains(study, preset):
            return typed  # so nothing can be timed
        why = f"not probed here: {cost.reason}" if cost is not None else "not probed here"
        return f"{typed} ({why})".lstrip()
    found = in_words(cost, costs.machine.cores)
    if not cost.training_only:
        return found
    # A few steps do not tell what is measured afterwards; the author's sentence is of the whole.
    return (
        f"{found}; in all, as written: {typed}"
        if typed
        else f"{found}; what is measured afterwards comes on top"
    )
