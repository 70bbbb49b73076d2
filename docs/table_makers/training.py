"""Tables of how models learn: of the depth study, of the search for quick shapes, and of the paper's own models."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from table_makers.common import RESULTS, markdown, read_json

if TYPE_CHECKING:
    import pandas as pd


def quick_shapes(run: str) -> str:
    """Of each shape and seed: the evaluation from which on a loss is under 0.5, and the final loss of the last step."""
    rows = []
    for shape, of_shape in _partial_losses(run).groupby("configuration", sort=False):
        cells, last = _crossings(of_shape)
        rows.append([str(shape), *cells, last])
    return markdown(["shape", "x₁ under 0.5", "x₂", "x₃", "final loss of x₃"], rows)


def details(run: str) -> str:
    """Of each open detail of the depth study and each seed: when its models learned each symbol, and final losses."""
    from hopscope.words import symbol

    table = _partial_losses(run)
    steps = table["metric"].nunique()
    words = table["configuration"].str.split(", ", n=2).str
    table = table.assign(asked=words[0], reading=words[2].fillna("as configured"))
    rows = []
    for reading, of_reading in table.groupby("reading", sort=False):
        whole, alone = (of_reading[of_reading["asked"] == f"{asked} D={steps}"] for asked in ("IC", "non-IC"))
        cells, last = _crossings(whole)
        rows.append([str(reading), *cells, last, _crossings(alone)[1]])
    symbols = [symbol(step) for step in range(1, steps + 1)]
    columns = [
        f"{symbols[0]} under 0.5",
        *symbols[1:],
        f"final loss of {symbols[-1]}",
        f"asked for {symbols[-1]} alone",
    ]
    return markdown(["detail", *columns], rows)


def recipes(run: str) -> str:
    """Of each recipe and shape: how many steps were learned, and by when, as the grid on the run's page says it."""
    import pandas as pd

    grid = pd.read_csv(RESULTS / run / "figures" / "recipes.csv")
    shapes = list(grid["shape"].unique())
    cells = grid.pivot(index="recipe", columns="shape", values="words").loc[grid["recipe"].unique(), shapes]
    return markdown(["recipe", *shapes], cells.reset_index().to_numpy().tolist())


def recipe_effects(run: str) -> str:
    """Of each detail and shape: steps that are learned with it less those without, over all pairs, by seed."""
    import numpy as np
    import pandas as pd

    from hopscope.studies.recipes.grid import OFF, SHAPES, Recipe, recipes

    table = pd.read_parquet(RESULTS / run / "evidence.parquet")
    table = table[(table["metric"] == "learned_at") & np.isfinite(table["value"])]
    learned = table.groupby(["configuration", "seed"]).size()
    every = list(recipes(["factorial"]))
    seeds = range(4)  # of every recipe

    def steps(shape: str, on: tuple[str, ...], seed: int) -> int:
        return int(learned.get((Recipe(shape, on).label, seed), 0))

    rows = []
    for detail in OFF:
        cells = []
        for shape in SHAPES:
            pairs = [(on, tuple(name for name in on if name != detail)) for on in every if detail in on]
            by_seed = [
                np.mean([steps(shape, on, seed) - steps(shape, off, seed) for on, off in pairs])
                for seed in seeds
            ]
            cells.append(
                f"{np.mean(by_seed):+.2f} ({min(by_seed):+.2f} to {max(by_seed):+.2f})".replace("-", "−")
            )
        rows.append([detail, *cells])
    return markdown(["detail", *SHAPES], rows)


def _partial_losses(run: str) -> "pd.DataFrame":
    """Rows of the held-out loss of each symbol of a chain."""
    import pandas as pd

    table = pd.read_parquet(RESULTS / run / "evidence.parquet")
    wanted = (table["split"] == "held_out") & table["metric"].str.fullmatch(r"loss_step_\d")
    return table[wanted & (table["measure"] == "training")]


def _crossings(curves: "pd.DataFrame") -> tuple[list[str], str]:
    """Of each symbol the first evaluation with a loss under 0.5, seed by seed; and final losses of the last symbol."""
    import pandas as pd

    from hopscope.studies.depth.values import LEARNED

    cells = []
    for _, of_step in curves.groupby("metric"):
        seeds = [each.sort_values("step") for _, each in of_step.groupby("member")]
        under = [each.loc[each["value"] < LEARNED, "step"].min() for each in seeds]
        cells.append(" / ".join("–" if pd.isna(step) else f"{step:,.0f}" for step in under))
    return cells, " / ".join(f"{each['value'].iloc[-1]:.2f}" for each in seeds)


def campaign(reading: str, what: str = "training") -> str:
    """Of each model of the paper's size that was trained and read: losses and times, or its circuits by both proofs."""
    from hopscope.words import symbol

    rows = _trained if what == "training" else _read_by_both
    collected = _collected(reading)
    depth = read_json(collected[0][1] / "unit.json")["plan"]["task"]["steps"]
    columns = {
        "training": [
            "seed", "loss at the end", "mean loss of the last 100 steps",
            f"{symbol(1)} … {symbol(depth)} first under 0.5 at step",
            "all last back under 0.5 at step", "jumps (longest)",
        ],
        "circuits": [
            "seed", "loss of the model", "heads, paper's proof", "loss under its rules", "recomputed",
            "heads, stricter proof", "loss under its rules", "recomputed",
        ],
    }[what]  # fmt: skip
    return markdown(columns, [[str(seed), *rows(unit)] for seed, unit in collected])


def campaign_late(after: str, *readings: str) -> str:
    """Of each model of the paper's size: how its loss moves after a step."""
    rows = []
    for reading in readings:
        named = (
            reading.removeprefix("d-").replace("beta2-", "β₂ ").replace("geometric", "geometric frequencies")
        )
        for seed, unit in _collected(reading):
            curves = _held_out(unit)
            late = curves["loss"][curves.index > int(after)]
            spread = f"{late.median():.3f} ({late.min():.3f} to {late.max():.3f})"
            rows.append([named, str(seed), spread, f"{(late >= 0.5).mean():.1%}"])
    return markdown(["models", "seed", "median loss (lowest to highest)", "0.5 or more in"], rows)


def _collected(reading: str) -> list[tuple[int, Path]]:
    """Seeds of a reading, and the folders of their models."""
    found = (RESULTS / "campaign" / reading / "units").glob("*/collected.json")
    return sorted((read_json(path)["member"], path.parent) for path in found)


def _held_out(unit: Path) -> "pd.DataFrame":
    """Held-out losses: a row for each step, a column for each metric."""
    import pandas as pd

    table = pd.concat(map(pd.read_parquet, sorted(unit.glob("metrics/*.parquet"))))
    return table[table["split"] == "held_out"].pivot(index="step", columns="metric", values="value")


def _trained(unit: Path) -> list[str]:
    from hopscope.claims.crossings import first_crossing, last_crossing

    steps, curves = read_json(unit / "unit.json")["plan"]["training"]["steps"], _held_out(unit)
    late, symbols = curves["loss"][curves.index > steps - 100].mean(), curves.filter(like="loss_step_")
    fell, stayed = (
        [crossing(list(curve.index), list(curve), 0.5, rising=False).time for _, curve in symbols.items()]
        for crossing in (first_crossing, last_crossing)
    )
    ((end,),) = (read_json(path)["loss"] for path in unit.glob("analysis/retrieval-*.json"))
    last = None if None in stayed else max(time for time in stayed if time is not None)
    return [f"{end:.3f}", f"{late:.3f}", ", ".join(map(_at, fell)), _at(last), _jumps(symbols.max(axis=1))]


def _jumps(worst: "pd.Series[float]") -> str:
    """How often the worst symbol's loss is at 0.5 or above again, once it was below, and for how many steps at most."""
    if (worst >= 0.5).all():
        return "–"
    over = (worst >= 0.5).loc[(worst < 0.5).idxmax() :]
    spans = [list(steps) for is_over, steps in groupby(over.index, over.get) if is_over]
    longest = max(spans, key=lambda span: span[-1] - span[0], default=None)
    if longest is None:
        return "0"
    back = over.index[over.index > longest[-1]]
    length = f"{back[0] - longest[0]:,}" if len(back) else f"{longest[-1] - longest[0]:,}, to the end"
    return f"{len(spans)} ({length})"


def _read_by_both(unit: Path) -> list[str]:
    from hopscope.circuits.config import reads_one_token

    (proofs,) = unit.glob("analysis/proofs-*.json")
    read = [read_json(path)["circuit"] for path in unit.glob("analysis/circuit-*.json")]
    whole, cells = "–", []
    for proof in ("rules", "both"):
        found = read_json(proofs)["unseen"][proof]
        circuit = found.get("circuit")
        if circuit is None:  # of a model that learned nothing that lasted
            cells += ["–"] * 3
            continue
        heads = {
            (path["layer"], path["head"])
            for path in circuit["paths"]
            if proof == "both" or reads_one_token(path["target"])
        }
        whole, loss = f"{found['loss']['full']:.3f}", found["loss"]
        accepted = "" if circuit in read else " (not accepted)"
        cells += [f"{len(heads)}{accepted}", f"{loss['rules']:.3f}", f"{loss['recomputed']:.3f}"]
    return [whole, *cells]


def _at(step: float | None) -> str:
    return "never" if step is None else f"{step:,.0f}"


def _joined(part: str) -> str:
    """What a read of a single token joins, such as `second 2 → first 2`."""
    query, target = (side.split() for side in part.split(" → "))
    hops = int(target[1]) - (0 if query == ["query"] else int(query[1]))
    if target[0] == "first":
        return {0: "a pair", 1: "equal symbols"}.get(hops, part)
    return f"{hops} hops" if hops > 1 else {1: "one hop"}.get(hops, part)


def formation_order(run: str) -> str:
    """Of each model and proof: when the first and the last head for each symbol formed, and what the lowest reads."""
    import pandas as pd

    from hopscope.words import symbol

    table = pd.read_parquet(RESULTS / run / "evidence.parquet")
    steps, rows = table[table["metric"] == "fell"]["part"].nunique(), []
    for member in sorted(set(table["member"].dropna())):
        of_member = table[table["member"] == member]
        for proof, prefix in (("the paper's", "rules_"), ("the stricter", "")):
            values = {
                name: of_member[of_member["metric"] == prefix + name] for name in ("needed_for", "formed_at")
            }
            if values["needed_for"].empty:
                continue
            places = ["layer", "head", "part"]
            paths = values["needed_for"].merge(values["formed_at"], on=places, suffixes=("", "_at"))
            single = of_member[(of_member["metric"] == f"{prefix}to_one_token") & (of_member["value"] == 1)]
            times = paths.merge(single[places], on=places).groupby("value")["value_at"]
            cells = [
                ", ".join(_at(found.get(step)) if step in found else "–" for step in range(1, steps + 1))
                for found in (times.min(), times.max())
            ]
            lowest = single[single["layer"] == single["layer"].min()]
            joined = ", ".join(sorted({_joined(part) for part in lowest["part"]}))
            rows.append([f"{member:.0f}", proof, f"{lowest['layer'].iloc[0]:.0f}", joined, *cells])
    symbols = f"x₁ … {symbol(steps)}"
    columns = [
        "seed", "proof", "lowest layer that reads", "what it joins", f"first head for {symbols} at step",
        f"all heads for {symbols} at step",
    ]  # fmt: skip
    return markdown(columns, rows)
