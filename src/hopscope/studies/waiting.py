"""Who has not learned yet: Kaplan and Meier's estimate over training, where some seeds never learn."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hopscope.figures import chart

if TYPE_CHECKING:
    from hopscope.figures import Figure
    from hopscope.runs.evidence import Evidence

CAPTION = """Share of seeds that have not yet learned {what}, by training step (Kaplan and Meier's estimate: a seed that
never learned it counts as waiting to the end)."""


def waiting(
    times: "Callable[[Evidence], Mapping[str, Mapping[str, Mapping[int, float]]]]", what: str
) -> "Figure":
    """A figure `waiting` of the share of seeds that still wait, a chart for each panel and a line for each name.

    Args:
        times: function of the evidence: panel → name → seed → training step; infinite: never; NaN: not known.
        what: has been learned by then, in words.
    """

    def drawn(evidence: "Evidence") -> tuple[Any, list[dict[str, Any]]]:
        import altair as alt

        from hopscope.figures.marks import apart, facet, table
        from hopscope.figures.rows import WIDTH

        end = evidence.config["training"]["steps"]
        rows: list[dict[str, Any]] = [
            {"panel": panel, "way": name, "step": step, "share": share}
            for panel, lines in times(evidence).items()
            for name, found in lines.items()
            for step, share in survival(found.values(), end)
        ]
        picture = (
            alt.Chart(table("waiting", "panel way", "step share"))
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, end])),
                y=alt.Y("share:Q", title="seeds that still wait", scale=alt.Scale(domain=[0, 1])),
                **apart("way", list(dict.fromkeys(row["way"] for row in rows)), "strokeDash"),
            )
            .properties(width=WIDTH, height=180)
        )
        panels = list(dict.fromkeys(row["panel"] for row in rows))
        return (picture.facet(facet("panel", panels), columns=1) if len(panels) > 1 else picture), rows

    return chart("waiting", drawn, CAPTION.format(what=what), "Steps down from one, a line for each name.")


def survival(learned_at: Iterable[float], end: int) -> list[tuple[float, float]]:
    """Kaplan and Meier's estimate of the share that still waits: (step, share), from step 0 to the end.

    Args:
        learned_at: a time for each seed; infinite where it was not learned by the end, NaN where it is not known.
        end: last step of training.
    """
    from scipy.stats import CensoredData, ecdf

    known = [time for time in learned_at if not math.isnan(time)]
    if not known:
        return []
    seen = [time for time in known if not math.isinf(time)]
    if not seen:
        return [(0.0, 1.0), (float(end), 1.0)]
    censored = [float(end)] * (len(known) - len(seen))
    found = ecdf(CensoredData(uncensored=seen, right=censored)).sf
    points = list(zip(found.quantiles.tolist(), found.probabilities.tolist(), strict=True))
    return [(0.0, 1.0), *points, *([(float(end), points[-1][1])] if points[-1][0] < end else [])]
