"""Tables of how models learn chains: by detail and recipe, and of models of the paper's size."""

from itertools import combinations

import numpy as np
import pandas as pd

from hopscope.claims.intervals import estimate
from hopscope.page.facts import symbol
from hopscope.studies.depth.values import LEARNED
from hopscope.studies.recipes.study import OFF, SHAPES, recipe
from table_makers.common import RESULTS, estimates, evidence_of, markdown, read_json


def recipes(run: str) -> str:
    """Of each recipe and shape: how many steps were learned, and by when, as the grid on the run's page says it."""
    grid = pd.read_csv(RESULTS / run / "figures" / "recipes.csv")
    shapes = list(grid["shape"].unique())
    cells = grid.pivot(index="recipe", columns="shape", values="words").loc[grid["recipe"].unique(), shapes]
    return markdown(["recipe", *shapes], cells.reset_index().to_numpy().tolist())


def recipe_effects(run: str) -> str:
    """Of each detail and shape: steps that are learned with it less those without, over all pairs, by seed."""
    table = evidence_of(run).to_pandas()
    table = table[(table["metric"] == "learned_at") & np.isfinite(table["value"])]
    learned = table.groupby(["configuration", "seed"]).size()
    every = [on for size in range(len(OFF) + 1) for on in combinations(OFF, size)]
    seeds = range(4)  # of every recipe

    def steps(shape: str, on: tuple[str, ...], seed: int) -> int:
        return int(learned.get((recipe(shape, on).label, seed), 0))

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


def quick_shapes(run: str) -> str:
    """Of each shape of a search: seeds that learned the last step, and the mean work until its loss was under 0.5."""
    evidence, rows = evidence_of(run), list[tuple[float, list[str]]]()
    for label in dict.fromkeys(evidence.configurations.values()):
        losses, work = (evidence.last(each, configuration=label) for each in ("final_loss", "work"))
        whole = (losses < 0.25).all() and np.isfinite(work).all()
        words = f"{work.mean():.2f} ({work.min():.2f} to {work.max():.2f})" if whole else "–"
        learned = f"{(losses < 0.25).sum()} of {len(losses)}"
        rows.append((work.mean() if whole else np.inf, [label, learned, f"{losses.max():.3f}", words]))
    rows.sort(key=lambda row: row[0])
    columns = ["shape", "seeds that learned", "largest final loss", "work: mean (range)"]
    return markdown(columns, [row for _, row in rows])


def learned(run: str) -> str:
    """Of each configuration: seeds that ended with every symbol asked for under 0.5, and the last one's final loss."""
    table = evidence_of(run).to_pandas()
    wanted = (table["split"] == "held_out") & table["metric"].str.fullmatch(r"loss_step_\d")
    table = table[wanted & (table["measure"] == "training")].dropna(subset="value").sort_values("step")
    ends = table.groupby(["configuration", "member", "metric"])["value"].last().unstack()
    rows = []
    for label in dict.fromkeys(evidence_of(run).configurations.values()):
        losses = ends.loc[label].dropna(axis="columns", how="all")
        last, know = losses.iloc[:, -1], (losses.max(axis="columns") < LEARNED).sum()
        mean = estimates(*estimate(last.to_numpy(), [*losses.index]))
        rows.append([label, f"{know} of {len(losses)}", mean, f"{last.min():.2f} to {last.max():.2f}"])
    columns = ["models", "seeds that learned", "final loss of the last symbol [95 % interval]", "range"]
    return markdown(columns, rows)


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
    table = evidence_of(run).to_pandas()
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


def campaign(reading: str, what: str = "training") -> str:
    """Of each model of the paper's size: losses and times, or its circuits by both proofs, counted when it was read."""
    models = read_json("campaign/models.json")[reading]
    symbols = f"x₁ … {symbol(models[0]['steps'])}"
    columns = {
        "training": [
            "seed", "loss at the end", "mean loss of the last 100 steps", f"{symbols} first under 0.5 at step",
            "all last back under 0.5 at step", "jumps (longest)",
        ],
        "circuits": [
            "seed", "loss of the model", "heads, paper's proof", "loss under its rules", "recomputed",
            "heads, stricter proof", "loss under its rules", "recomputed",
        ],
    }[what]  # fmt: skip
    cells = {each["seed"]: each[what] or ["not read"] + ["–"] * 6 for each in models}
    return markdown(
        columns, [[str(seed), *(of.values() if isinstance(of, dict) else of)] for seed, of in cells.items()]
    )
