"""Worked sequences as story blocks: analysis entries in, bars out, the published numbers beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

Published = Sequence[Sequence[float | None] | None]
"""Published probabilities `[question][value]`; None where the source prints none."""


def worked_steps(
    entry: Mapping[str, Any],
    index: int,
    *,
    published: Published | None = None,
    notes: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The steps of a worked sequence for one member, as the page wants them.

    Args:
        entry: what `probes.worked.worked_sequence` gave.
        index: the member's place on the member axis of `entry["probabilities"]`.
        published: the source's own numbers, if it prints this sequence.
        notes: a remark for each step, empty where there is none.

    Raises:
        ValueError: `published` or `notes` are of another length than the sequence's questions or values.
    """
    questions, rows = entry["questions"], entry["probabilities"][index]
    columns = published if published is not None else [None] * len(questions)
    remarks = notes if notes is not None else [""] * len(questions)
    return [
        {
            **{name: question[name] for name in ("x", "seen", "used", "target", "recall", "elimination")},
            "bars": _bars(row, question["ideal"], column),
            "note": remark,
        }
        for question, row, column, remark in zip(questions, rows, columns, remarks, strict=True)
    ]


def worked_block(
    entry: Mapping[str, Any],
    index: int,
    *,
    file: str,
    key: str,
    title: str = "",
    caption: str = "",
    published: Published | None = None,
    notes: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A story block that draws a worked sequence for one member.

    Args:
        entry, index, published, notes: as for `worked_steps`.
        file: the file in the run that `entry` is from.
        key: where in that file this member's probabilities `[question][value]` are.
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
        "steps": worked_steps(entry, index, published=published, notes=notes),
        "caption": caption,
    }


def _bars(
    row: Sequence[float], ideal: Sequence[float], published: Sequence[float | None] | None
) -> list[dict[str, Any]]:
    column = published if published is not None else [None] * len(row)
    return [
        {"value": value, "probability": ours, "ideal": best, "published": theirs}
        for value, (ours, best, theirs) in enumerate(zip(row, ideal, column, strict=True), start=1)
    ]
