"""The fields in which a run differs from a preset of its study: what makes it again, checked by its hash."""

from collections.abc import Mapping
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.studies.program import Program
from hopscope.studies.study import SECTIONS, Study


def differing_fields(program: Program, run: RunFolder) -> dict[str, Any] | None:
    """Dotted field → value, where a run's configuration has another one than its preset.

    Args:
        program: the run's study, as it is now.
        run: the run.

    Returns:
        Fields with which `program.configured(run.preset, fields)` is the run's configuration; `None` where there are
        none: the preset, the task or the study has changed since.
    """
    try:
        base = program.chosen(run.preset, {}) if run.preset else program.study
        wanted = program.as_run(program.recorded(run))
        fields = _changes(base, wanted)
        found = program.configured(run.preset, fields)
    except UserError:
        return None
    return fields if program.run_hash(found) == run.hash else None


def _changes(base: Study, wanted: Study) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in base.plain_fields:
        if getattr(base, name) != getattr(wanted, name):
            fields[name] = getattr(wanted, name)
    for section in SECTIONS:
        before, after = getattr(base, section), getattr(wanted, section)
        if before is None or after is None:
            continue
        for name in type(before).model_fields:
            dotted = name if section == "options" else f"{section}.{name}"
            if dotted not in base.vary and getattr(before, name) != getattr(after, name):
                fields[dotted] = getattr(after, name)
    for name, values in base.vary.items():
        if tuple(wanted.vary.get(name, values)) != tuple(values):
            fields[name] = list(wanted.vary[name])
    return fields


def as_call(reference: str, preset: str | None, fields: Mapping[str, Any]) -> str:
    """The call of `hopscope.run` that makes a run again."""
    given = [repr(reference), *([f"preset={preset!r}"] if preset else [])]
    if fields:
        given.append(f"fields={dict(fields)!r}")
    return f"import hopscope as hs\n\nrun = hs.run({', '.join(given)})"
