"""Numbers of an analysis looked up by hand: what the rows of the evidence table are compared with."""

import json
from collections.abc import Mapping


def records(run, configuration, analysis):
    """What one analysis wrote of each unit of a configuration."""
    for unit in run.units:
        if unit.record["label"] == configuration:
            (path,) = unit.path.glob(f"analysis/{analysis}-step-*.json")
            yield json.loads(path.read_text(encoding="utf-8"))


def looked_up(run, configuration, analysis, path):
    """Member → value, of all members of a configuration.

    Args:
        run: its folder.
        configuration: its name.
        analysis: the name of one.
        path: keys and places, joined by dots, to a list over members; what follows `[m].` goes into each entry.
    """
    before, _, after = path.partition(".[m].")
    values = {}
    for record in records(run, configuration, analysis):
        of_all = _at(record, before)
        for place, member in enumerate(record["members"]):
            value = None if of_all is None else of_all[place]
            values[member] = _at(value, after) if after and value is not None else value
    return values


def _at(value, path):
    """What lies under a dotted path; None if some part of it is missing."""
    for part in path.split("."):
        if value is None:
            return None
        value = value.get(part) if isinstance(value, Mapping) else value[int(part)]
    return value
