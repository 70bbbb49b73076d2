"""The dataset card of a collection: what is said of it follows from its index."""

from collections.abc import Collection, Iterable, Sequence
from importlib import resources

import jinja2

from hopscope.collection.index import (
    CIRCUITS,
    INDEX,
    LEARNED_AT,
    READING,
    SHOWN,
    TIMELINES,
    CollectedMember,
    by_configuration,
)


def card(rows: Sequence[CollectedMember], chosen: Sequence[Collection[int] | None], shown: int) -> str:
    """The card, Markdown behind YAML, as hubs of datasets read it.

    Args:
        rows: of the index.
        chosen: of each run, in the order of the rows, the members that were asked for; `None`: all.
        shown: samples of each configuration that the collection holds.
    """
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("hopscope.collection"),
        autoescape=False,  # it is Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    read = [row for row in rows if row.was_read]
    changes = [row.change for row in rows if not row.diverged]
    largest = max(rows, key=lambda row: -1.0 if row.diverged else row.change)
    runs = list({row.run: row for row in rows}.values())
    return templates.get_template("card.md.j2").render(
        rows=rows,
        groups=list(by_configuration(rows)),
        learned=sum(row.learned_all for row in rows),
        partly=sum(bool(row.learned) and not row.learned_all for row in rows),
        nothing=sum(not row.learned for row in rows),
        read=len(read),
        holds=sum(bool(row.holds_in_float16) for row in read),
        change=max(changes, default=0.0),
        changed=largest.name,
        counts=" or ".join(str(number) for number in sorted({row.samples for row in rows})),
        fewest=min(row.parameters for row in rows),
        most=max(row.parameters for row in rows),
        runs=runs,
        made=_command(runs, chosen),
        forward=(resources.files("hopscope.collection") / "templates" / "forward.py.txt").read_text("utf-8"),
        span=span,
        shown=shown,
        index=INDEX,
        circuits=CIRCUITS,
        timelines=TIMELINES,
        learned_at=LEARNED_AT,
        samples=SHOWN,
        reading=READING,
    )


def span(values: tuple[float, float] | None, how: str) -> str:
    """The lowest and the highest value as one cell, such as `3 to 5`."""
    if values is None:
        return "–"
    low, high = (how % value for value in values)
    return low if low == high else f"{low} to {high}"


def _command(runs: Sequence[CollectedMember], chosen: Sequence[Collection[int] | None]) -> str:
    """The command that makes a collection of runs that stand under `runs/`."""
    named = [
        f"runs/{row.study}/{row.run}" + ("" if numbers is None else f":{','.join(_ranges(numbers))}")
        for row, numbers in zip(runs, chosen, strict=True)
    ]
    told = [f"'{row.command}'" for row in runs if row.command]
    made_by = [f"  --made-by {' '.join(told)}"] if told else []
    return " \\\n".join([f"hopscope zoo build-members {' '.join(named)}", *made_by, "  --to FOLDER"])


def _ranges(numbers: Iterable[int]) -> list[str]:
    """Numbers as the command line has them: `0-3`, `8`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]
