"""The figures of the study of emergence, beside those of all studies of chains; loads no chart library."""

from functools import partial
from typing import TYPE_CHECKING

from hopscope.figures import Axis, Figure, Series, lines
from hopscope.studies.circuit_study.figures import charts, timeline
from hopscope.studies.emergence.config import EmergenceConfig, clamped_runs
from hopscope.words import symbol

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def figures(config: EmergenceConfig) -> tuple[Figure, ...]:
    """Timelines, orders, circuits; members trained again and crossed seeds where the configuration has them."""
    own = partial(charts, config, module=f"{__package__}.charts")
    loss = Axis("held-out partial loss", (0.0, 1.05))
    clamps = lines("clamps", partial(_clamps, config), loss, columns=config.steps)
    return (
        timeline(config),
        *(each.answers("fig-7-right") for each in charts(config, "crossings")),
        *own("precedence", "alignment"),
        *charts(config, "reads", "controls", "modes"),
        *([clamps] if config.clamped else []),
        *(own("variance") if config.crossed else []),
        *charts(config, "gallery"),
    )


def _clamps(config: EmergenceConfig, evidence: "Evidence") -> list[Series]:
    """Partial losses of members that were trained again: a panel for each member and symbol, a line for each run."""
    if "clamped_from" not in evidence:
        return []
    rows = evidence.rows("clamped_loss_step_1")
    there = set(zip(rows["member"], rows["part"], strict=True))
    return [
        Series(
            f"clamped_loss_step_{step}",
            words,
            panel=f"{config.names[int(member)]}, {symbol(step)}",
            where={"member": int(member), "part": run},
            line=", ".join(clamped_rows(evidence, int(member), run)),
        )
        for member in sorted({member for member, _ in there})
        for step in config.task().asked
        for run, words in clamped_runs(config).items()
        if (member, run) in there
    ]


def clamped_rows(evidence: "Evidence", member: int, run: str) -> list[str]:
    """What was clamped in a run of a member, in words: each head, and its rows."""
    rows = evidence.rows("clamped_rows", member=member) if "clamped_rows" in evidence else None
    return [] if rows is None else [
        f"{row.layer}.{row.head} {row.part.removeprefix(f'{run}: ')}"
        for row in rows.itertuples()
        if row.part.startswith(f"{run}: ")
    ]  # fmt: skip
