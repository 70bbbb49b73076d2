"""Numbers of an analysis looked up by hand: what the rows of the evidence table are compared with."""

from collections.abc import Mapping


def looked_up(found, analysis, path):
    """Each member's value; None for a diverged one.

    Args:
        found: the analyses of a configuration.
        analysis: the name of one.
        path: keys and places, joined by dots, to a list over members; what follows `[m].` goes into each entry.
    """
    before, _, after = path.partition(".[m].")
    values = []
    for member, source in zip(found.members, found.sources[analysis], strict=True):
        of_all = _at(source.record, before)
        value = None if member in found.frozen or of_all is None else of_all[source.index]
        values.append(_at(value, after) if after and value is not None else value)
    return values


def _at(value, path):
    """What lies under a dotted path; None if some part of it is missing."""
    for part in path.split("."):
        if value is None:
            return None
        value = value.get(part) if isinstance(value, Mapping) else value[int(part)]
    return value
