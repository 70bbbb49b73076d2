"""Worked sequences as blocks: what a model answers at every question, bar by bar, beside published numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

Published = Sequence[Sequence[float | None] | None]
"""Published probabilities `[question][value]`; None where the source prints none."""


def worked_steps(entry: Mapping[str, Any], published: Published | None = None) -> list[dict[str, Any]]:
    """The steps of a worked sequence for the first member, as the page wants them.

    Args:
        entry: what `probes.worked.worked_sequence` gave.
        published: the source's own numbers, if it prints this sequence.

    Raises:
        ValueError: `published` is of another length than the sequence's questions or values.
    """
    steps = []
    columns = published if published is not None else [None] * len(entry["questions"])
    for question, row, column in zip(entry["questions"], entry["probabilities"][0], columns, strict=True):
        printed = column if column is not None else [None] * len(row)
        numbers = zip(row, question["ideal"], printed, strict=True)
        steps.append({
            **{name: question[name] for name in ("x", "seen", "used", "target", "recall", "elimination")},
            "bars": [
                {"value": value, "probability": ours, "ideal": best, "published": theirs}
                for value, (ours, best, theirs) in enumerate(numbers, start=1)
            ],
            "note": "",
        })  # fmt: skip
    return steps


def worked_block(
    entry: Mapping[str, Any],
    *,
    file: str,
    key: str,
    title: str = "",
    caption: str = "",
    published: Published | None = None,
) -> dict[str, Any]:
    """A block that draws a worked sequence for the first member.

    Args:
        entry, published: as for `worked_steps`.
        file: the file in the run that `entry` is from.
        key: where in that file the member's probabilities `[question][value]` are.
        title: what the block is called.
        caption: words beneath it.

    Raises:
        ValueError: as `worked_steps`.
    """
    return {
        "kind": "worked",
        "title": title,
        "file": file,
        "key": key,
        "sequence": entry["tokens"],
        "steps": worked_steps(entry, published),
        "caption": caption,
    }
