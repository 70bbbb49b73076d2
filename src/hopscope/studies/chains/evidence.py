"""Who learned what, and when, from the evidence of a study of chains; and what a run lacks of its study."""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

LEARNED = 0.5
"""Partial loss under which a step of a chain counts as learned: half of the loss of a zero prediction."""

SHARE_SEEDS = 16
"""Seeds that a claim takes on a share of three quarters of them, whose exact interval is wide with fewer."""


FOUR = 4
"""Chains of the paper, for which it names losses."""


def of_plateau(loss: float, chains: int) -> float:
    """A loss that the paper names for four chains, at the same share of the plateau 1 - 1/N of another number.

    One chain has no plateau: there the loss stays as it is.
    """
    return loss if chains in (1, FOUR) else round(loss * (1 - 1 / chains) / (1 - 1 / FOUR), 6)


def symbol(step: int) -> str:
    """The name of a chain's symbol, such as x₃."""
    return "x" + str(step).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def asked_for(evidence: "Evidence", name: str) -> Any:
    """A dotted field of a run, such as `training.steps`, from its record."""
    value: Any = evidence.config["identity"]
    for part in name.split("."):
        value = value[part]
    return value


def few(found: int, wanted: int, what: str) -> list[str]:
    """Where there are fewer than wanted, that this is lacking, such as `40 of 400 steps`; else nothing."""
    return [f"{found:,} of {wanted:,} {what}"] if found < wanted else []


def has(evidence: "Evidence", label: str) -> bool:
    return label in {*evidence.configurations.values()}


def learned(evidence: "Evidence", label: str, symbol: int | str) -> Any:
    """1 for each member of a configuration that learned a symbol (its step or name), else 0; diverged: none."""
    if not has(evidence, label):
        return Samples([], note=f"no models of {label}")
    metric = f"loss_step_{symbol}" if isinstance(symbol, int) else f"loss_{symbol}"
    losses = evidence.last(metric, configuration=label)
    return (losses < LEARNED).astype(float).where(losses.notna())


def learned_in(cells: Mapping[str, tuple[str, int | str]]) -> Callable[["Evidence"], dict[str, Any]]:
    """A function of the evidence: part → who learned, of part → configuration and symbol; see `learned`."""
    return lambda evidence: {part: learned(evidence, *cell) for part, cell in cells.items()}


def steps_learned(evidence: "Evidence", label: str, steps: int) -> "pd.Series[float]":
    """By seed: how many of the steps 1 … `steps` a configuration learned; NaN where it diverged, empty without it."""
    import pandas as pd

    each = (learned(evidence, label, step) for step in range(1, steps + 1))
    return sum(each).rename(evidence.seeds) if has(evidence, label) else pd.Series(dtype=float)


def final_rows(
    evidence: "Evidence", metric: str, label: str, part: str | None = None, /, **told: Any
) -> Iterator[dict[str, Any]]:
    """Rows of a figure: the last value of a metric of each member of a configuration, with what tells them apart."""
    for member, value in evidence.last(metric, configuration=label, part=part).items():
        yield {**told, "member": member, "seed": evidence.seeds[member], "value": value}


def times_learned(evidence: "Evidence", label: str, part: str) -> dict[int, float]:
    """Seed → training step at which a symbol was learned by a configuration; infinite where it was not."""
    found = evidence.last("learned_at", configuration=label, part=part)
    return {evidence.seeds[member]: float(time) for member, time in found.items()}


def smallest_depths(evidence: "Evidence", labels: Mapping[int, str], step: int) -> dict[int, float]:
    """Seed → the smallest number of layers that learned x_step, of number of layers → configuration.

    Infinite where none did; NaN where a model with fewer layers diverged.
    """
    found: dict[int, float] = {}
    for layers in sorted(labels):
        for member, loss in evidence.last(f"loss_step_{step}", configuration=labels[layers]).items():
            seed = evidence.seeds[member]
            if math.isinf(found.setdefault(seed, math.inf)) and not loss >= LEARNED:
                found[seed] = math.nan if math.isnan(loss) else float(layers)
    return found


def between_seeds(values: Mapping[int, float]) -> Samples:
    """By seed: how far its value is from that of the next one; not known where one of them is not finite."""
    around = [*values.values(), *list(values.values())[:1]]
    apart = [
        abs(one - other) if math.isfinite(one) and math.isfinite(other) else math.nan
        for one, other in pairwise(around)
    ]
    known = any(math.isfinite(each) for each in apart)
    return Samples(apart, unit="seed", note="" if known else "no two seeds have a value")
