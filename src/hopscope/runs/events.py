"""Events: when, on what, and what went wrong; one JSON object per line.

The log is a convenience that no number depends on.  So appending never ends a run (a full disk shows at the
next write that matters), and reading skips lines that a killed process left torn.
"""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hopscope.runs.files import is_file, read_bytes
from hopscope.runs.lines import append_line
from hopscope.strict_json import canonical_json, parse_json

EVENTS = "events.jsonl"
"""The log's name in a run's folder."""


def append_event(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Appends one line with the time (UTC), the kind and the fields, if the system lets it.

    Raises:
        ValueError: a field holds a NaN or an infinity.
    """
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = canonical_json({**fields, "kind": kind, "time": time})
    with contextlib.suppress(OSError):
        append_line(path, line.encode(), sync=False)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events in the order they were written, without torn lines; none where there is no file.

    Raises:
        UserError: the file cannot be read.
    """
    if not is_file(path):
        return []
    events = []
    for line in read_bytes(path, "check its permissions").splitlines():
        with contextlib.suppress(ValueError):
            event = parse_json(line)
            if isinstance(event, dict) and "kind" in event:
                events.append(event)
    return events
