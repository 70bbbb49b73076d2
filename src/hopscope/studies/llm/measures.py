"""What language models answer, as rows of the evidence table, and these rows by model and kind of question."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.runs import Evidence


@measure(when="run")
def answers(context: Context) -> Iterator[dict[str, Any]]:
    """What every model answers; see `hopscope.language.answers.rows`."""
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask

    options = context.options
    how = {name: getattr(options, name) for name in ("temperature", "max_tokens", "max_connections")}
    given = {
        name: getattr(options, name) for name in ("attempts", "identical", "timeout", "precision", "base_url")
    }
    how = {name: value for name, value in how.items() if value is not None}
    folder = context.run.path / "logs"
    found = ask(
        options.model, options.kinds(), folder, budget=context.budget, say=context.say, **given, **how
    )
    return rows(found)


def told(evidence: "Evidence") -> dict[tuple[str, str], dict[str, float]]:
    """Model and kind of question → metric → its number, of everything that was asked and said."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    frame = evidence.rows()
    for metric, part, value in zip(frame["metric"], frame["part"], frame["value"], strict=True):
        name, _, what = part.partition(": ")
        model, _, kind = name.rpartition(", ")
        if metric != "correct":
            found.setdefault((model, kind), {})[what if metric == "count" else metric] = float(value)
    return {at: numbers for at, numbers in found.items() if "questions" in numbers}
