"""By which programs units were trained: another torch, NumPy or Hopscope rounds differently, or computes otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopscope.executors.healing import tell
from hopscope.runs import RunFolder, UnitFolder


def tell_other_programs(
    run: RunFolder, units: Sequence[UnitFolder], here: Mapping[str, Any], say: Callable[[str], None] | None
) -> None:
    """Say, in one line and one event for all units, that they go on with other programs than they began with.

    Args:
        run: the run.
        units: that are about to be trained or measured; those without a checkpoint begin here.
        here: `versions` and `source_hash`, as in a unit's record.
        say: told in one line; by default a `RecordWarning` is issued.

    Raises:
        UserError: a unit's record cannot be read.
    """
    began: dict[str, set[str]] = {}
    found, others = _programs(here), []
    for unit in units:
        if unit.checkpoints():
            known = _programs(unit.record)
            changed = [name for name in known if known[name] != found.get(name)]
            for name in changed:
                began.setdefault(name, set()).add(known[name])
            others += [unit.hash] if changed else []
    if not others:
        return
    before = {name: sorted(versions) for name, versions in began.items()}
    now = {name: found.get(name, "none") for name in began}
    run.event("other_programs", units=others, before=before, now=now)
    expected = ", ".join(f"{name} {' and '.join(versions)}" for name, versions in before.items())
    tell(
        f"{run.path}: expected the programs with which {len(others)} of its units began ({expected}), found "
        f"{', '.join(f'{name} {version}' for name, version in now.items())}: it goes on, with numbers that may differ "
        "from those of a run in one go; to have the same, go on where those are installed",
        say,
    )


def _programs(record: Mapping[str, Any]) -> dict[str, str]:
    """Name → version of the programs that a record names."""
    versions = record.get("versions")
    named = versions if isinstance(versions, dict) else {}
    found = {
        "torch": named.get("torch"),
        "NumPy": named.get("numpy"),
        "Hopscope's source": record.get("source_hash"),
    }
    return {name: version for name, version in found.items() if isinstance(version, str)}
