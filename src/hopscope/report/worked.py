"""Worked sequences for the eye: marks and numbers of the bars, text for a terminal, HTML for a notebook."""

import textwrap

from hopscope.report.record import Bar, WorkedSequence, WorkedStep

WIDTH = 100
"""Columns of a terminal that the text keeps to."""

_BAR = 36
_DECIMALS, _MOST_DECIMALS = 3, 6


SIGNS = {"target": "✓", "used": "✕", "recall": "←", "elimination": "←"}
"""What can be said about one value, each with a sign, so that nothing is told by colour alone."""


def marks(step: WorkedStep, value: int) -> dict[str, str]:
    """Marks of a value at a step, with their signs: the target, used before, the answer of recall or elimination."""
    found = {
        "target": value == step.target,
        "used": value in step.used,
        "recall": value == step.recall,
        "elimination": value == step.elimination,
    }
    return {kind: SIGNS[kind] for kind, holds in found.items() if holds}


def format_probability(value: float) -> str:
    """Write a probability in three decimals, ``0.214``; it never reads as 0 or 1 where it is neither.

    From 0.99 on there are four decimals, and more until the distance from one shows (``0.9991``, ``0.99998``), at
    most six; below 0.0005 it is ``<0.001``.
    """
    if value in (0.0, 1.0):
        return f"{value:.{_DECIMALS}f}"
    if value < 0.0005:
        return "<0.001"
    if value < 0.99:
        return f"{value:.{_DECIMALS}f}"
    written = (f"{value:.{decimals}f}" for decimals in range(_DECIMALS + 1, _MOST_DECIMALS + 1))
    return next((text for text in written if float(text) < 1.0), ">0.999999")


def format_published(value: float) -> str:
    """Write a number as its source prints it: all its decimals, three at least."""
    digits = repr(value).partition(".")[2]
    return f"{value:.{max(_DECIMALS, len(digits))}f}"


def pairs(tokens: list[int]) -> list[tuple[int, ...]]:
    """Tokens in pairs (x, y), the last alone where it has no partner."""
    return [tuple(tokens[at : at + 2]) for at in range(0, len(tokens), 2)]


def in_words(tokens: list[int]) -> str:
    """Tokens as pairs: ``2→3 1→5 4→?``."""
    return " ".join(f"{pair[0]}→{pair[1] if len(pair) > 1 else '?'}" for pair in pairs(tokens))


def as_text(worked: WorkedSequence) -> str:
    """The sequence as plain text of at most `WIDTH` columns: one bar for each value, ``|`` is the ideal observer."""
    lines = textwrap.wrap(worked.title, WIDTH) if worked.title else []
    for number, step in enumerate(worked.steps, start=1):
        lines += ["", *_step_head(number, step), *(_bar_line(step, bar) for bar in step.bars)]
        lines += textwrap.wrap(step.note, WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines += ["", "Bar: the model's probability.  |: the ideal observer, all mappings equally likely."]
    if worked.caption:
        lines += textwrap.wrap(worked.caption, WIDTH)
    return "\n".join(lines).lstrip("\n")


def _step_head(number: int, step: WorkedStep) -> list[str]:
    used = ", ".join(map(str, step.used)) or "none"
    target = "not known" if step.target is None else str(step.target)
    words = f"Step {number}.  Seen {in_words(step.seen)}  Used {used}.  Target {target}."
    return textwrap.wrap(words, WIDTH, subsequent_indent="         ", break_on_hyphens=False)


def _bar_line(step: WorkedStep, bar: Bar) -> str:
    drawn = ["█" if (at + 0.5) / _BAR <= bar.probability else " " for at in range(_BAR)]
    if bar.ideal is not None:
        drawn[min(round(bar.ideal * _BAR), _BAR - 1)] = "|"
    said = "  ".join(f"{sign} {kind}" for kind, sign in marks(step, bar.value).items())
    published = "" if bar.published is None else f"(published {format_published(bar.published)})  "
    name = f"y={bar.value}"
    line = f"  {name:<5}{format_probability(bar.probability):<9} {''.join(drawn)}  {published}{said}"
    return line.rstrip()
