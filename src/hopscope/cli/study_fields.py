"""The command line of a study: a flag for every field of its task, model, training and options."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import tyro
from pydantic import BaseModel

from hopscope.cli.parsing import joined, parse
from hopscope.completion import COMPLETION_NAMES, CompletionName
from hopscope.errors import UserError
from hopscope.studies.program import Program
from hopscope.studies.study import SECTIONS, Study

Options = TypeVar("Options")

_PLAIN = {
    "seeds": (int, "Number of seeds of every configuration."),
    "held_out": (int, "Held-out samples of an evaluation."),
    "completion": (CompletionName, "Start and schedule in one word; fields that are given as well win."),
}

_SKIPPED = ("kind",)
"""Fields that tell the built-in tasks apart in a record."""


def study_fields(
    options: Options, program: Program, preset: str | None, arguments: Sequence[str], command: str
) -> tuple[Options, dict[str, Any]]:
    """Run options, and the dotted fields that the command line gives another value.

    Args:
        options: the run options with their defaults.
        program: the study.
        preset: the preset that the fields' defaults are of.
        arguments: what follows the study on the command line.
        command: for help and errors.

    Raises:
        UserError: an unknown field, or a value that does not fit.
    """
    # What a completion sets is the default of its fields, so that one that is given beside it can be told.
    chosen = _completion(program.chosen(preset, {}), arguments)
    study = program.chosen(preset, chosen)
    flat = tyro.conf.arg(name="")
    fields: list[Any] = [
        ("run", Annotated[type(options), flat], dataclasses.field(default_factory=lambda: options)),
    ]
    for name in study.plain_fields:
        kind, words = _PLAIN[name]
        fields.append((name, Annotated[kind, tyro.conf.arg(help=words)], getattr(study, name)))
    several = ["tracker"]
    for section in SECTIONS:
        value = getattr(study, section)
        if isinstance(value, BaseModel):
            flags = _section(section, value, study)
            several += [
                name for name, info in type(value).model_fields.items() if info.annotation == tuple[str, ...]
            ]
            kind = Annotated[flags, flat] if section == "options" else flags
            fields.append((section, kind, dataclasses.field(default_factory=flags)))
    every = dataclasses.make_dataclass("Run", [_with_default(*field) for field in fields])
    parsed: Any = parse(
        every, joined(arguments, several), command, description=f"{study.name}: {study.question}"
    )
    return parsed.run, {**chosen, **_changes(study, parsed)}


def _completion(study: Study, arguments: Sequence[str]) -> dict[str, str]:
    """The completion that the command line names, where the study has one.

    Raises:
        UserError: there is no such completion.
    """
    if "completion" not in study.fields():
        return {}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--completion", nargs="?")
    found: str | None = parser.parse_known_args(list(arguments))[0].completion
    if found is None:
        return {}
    if found not in COMPLETION_NAMES:
        raise UserError(f"completion: expected one of {', '.join(COMPLETION_NAMES)}, found {found!r}")
    return {"completion": found}


def _with_default(name: str, kind: Any, default: Any) -> tuple[str, Any, Any]:
    return (
        name,
        kind,
        default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default),
    )


def _section(section: str, value: BaseModel, study: Study) -> type:
    """A dataclass with the fields of one part of the study; a varied field takes several values."""
    helps = _helps(type(value))
    fields: list[Any] = []
    for name, info in type(value).model_fields.items():
        if name in _SKIPPED:
            continue
        annotation, default = info.annotation, getattr(value, name)
        dotted = _dotted(section, name)
        if dotted in study.vary:
            annotation, default = tuple[annotation, ...], tuple(study.vary[dotted])  # type: ignore[valid-type]
        described: Any = Annotated[annotation, tyro.conf.arg(help=helps.get(name))]
        for own in info.metadata:  # such as another name of the flag
            described = Annotated[described, own]
        fields.append((name, described, dataclasses.field(default_factory=partial(_same, default))))
    return dataclasses.make_dataclass(section.capitalize(), fields)


def _dotted(section: str, name: str) -> str:
    """Name of a field in `vary`: those of the options have no section in front."""
    return name if section == "options" else f"{section}.{name}"


def _same(value: Any) -> Any:
    return value


def _helps(kind: type) -> dict[str, str]:
    """Help texts of the fields, from the class's docstring."""
    import docstring_parser

    found: dict[str, str] = {}
    for each in docstring_parser.parse(kind.__doc__ or "").params:
        for name in each.arg_name.split(", "):
            found[name] = each.description or ""
    return found


def _changes(study: Study, parsed: Any) -> dict[str, Any]:
    """Dotted field → value, where the command line has another one than the study."""
    changes: dict[str, Any] = {name: getattr(parsed, name) for name in study.plain_fields
                               if getattr(parsed, name) != getattr(study, name)}  # fmt: skip
    for section in SECTIONS:
        value = getattr(study, section)
        if not isinstance(value, BaseModel):
            continue
        given: Mapping[str, Any] = vars(getattr(parsed, section))
        for name, found in given.items():
            dotted = _dotted(section, name)
            before = tuple(study.vary[dotted]) if dotted in study.vary else getattr(value, name)
            if found != before:
                changes[dotted] = found
    return changes
