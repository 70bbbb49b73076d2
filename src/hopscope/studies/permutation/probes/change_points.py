"""When a part of a mechanism forms: crossings of its curve through training, their order, and how sudden recall was.

Plain arithmetic on curves, known at evaluations only.  Times are training samples that one member has seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, linear_regression
from typing import Any, NamedTuple

from hopscope.claims.crossings import Crossing, Rise, first_crossing, order, rise

FINAL_EVALUATIONS = 3
"""The final level of a curve is its mean over so many last evaluations."""

SMOOTHING = 9
"""Successive evaluations through which a line is laid for the slope of the training loss; fewer are mostly noise."""

FALL = ("rate", "time", "low", "high")
"""What is said of the steepest fall of the loss."""

LEAST_RECALL = 0.25
"""How far above chance recall must end for the member to have learned it."""

# What formed first.


class Formed(NamedTuple):
    """How a curve came to its final level.

    Attributes:
        before: the level it left: its lowest before the end, or the floor if that is higher.
        final: its mean over the last evaluations.
        rise: crossings of 10 %, 50 % and 90 % of the way, looked for from the time on when the curve was lowest (the
            last time that it was); all censored if the way is too short to be one.
    """

    before: float
    final: float
    rise: Rise

    @property
    def happened(self) -> bool:
        """Whether the curve rose far enough."""
        return self.rise.half.time is not None


def formed(
    times: Sequence[float],
    values: Sequence[float],
    *,
    least: float,
    floor: float = -math.inf,
    start: float | None = None,
) -> Formed:
    """When a curve rose from its lowest level to its final one.

    The level before is the lowest and not the first one, because untrained members hold traces of everything, which
    learning to eliminate wipes out; a bump before that is not yet what forms later.

    Args:
        times, values: the curve; times increase.
        least: least way from the level before to the final one, more than 0.
        floor: level that means nothing, such as chance; the level before is not taken to be lower.
        start: the level before, where it is to be another one than the lowest.

    Raises:
        ValueError: as in `first_crossing`.
    """
    first_crossing(times, values, 0.0)  # refuses what is no curve
    final = fmean(values[-FINAL_EVALUATIONS:])
    earlier = values[:-FINAL_EVALUATIONS] or values[:1]
    place = max(place for place, value in enumerate(earlier) if value == min(earlier))
    before = start if start is not None else max(earlier[place], floor)
    if final - before < least:
        never = Crossing(None, None, None, float(times[-1]))
        crossings = Rise(never, never, never)
    else:
        crossings = rise(times[place:], values[place:], start=before, end=final)
    return Formed(before, final, crossings)


def formation_order(
    times: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    least: Mapping[str, float],
    floors: Mapping[str, float],
    ranked: Sequence[str],
) -> dict[str, Any]:
    """Which of several curves formed first, by their crossings of half their way.

    A part that forms in two stages may have its half-way point in either: so the starts are ordered as well, and
    `reached` tells how much of each part was there when recall began.

    Args:
        times: of all curves.
        curves: by name; `"recall"` is among them.
        least, floors: by name, as in `formed`; a curve without a floor has none.
        ranked: the curves among which the first is named.

    Returns:
        JSON values.

        * `parts`: for each curve `before`, `final`, and the crossings `start`, `half`, `end` (10 %, 50 %, 90 % of
          the way) with `time`, `low`, `high`, `censored_at` as in `Crossing`.
        * `orders.half`, `orders.start`: name → other name → "before", "after", "tie" (within one interval) or
          "unknown" (neither formed).
        * `first.half`, `first.start`: names of the formed parts that no other came before; several for a tie, none
          if nothing formed.
        * `reached`: how much of its way each part had gone when recall had gone a tenth of its own; None for what
          never formed.

    Raises:
        ValueError: as in `formed`.
    """
    parts = {
        name: formed(times, values, least=least[name], floor=floors.get(name, -math.inf))
        for name, values in curves.items()
    }
    there = [name for name in ranked if parts[name].happened]
    orders = {point: _orders(parts, point) for point in ("half", "start")}
    begun = parts["recall"].rise.start.time
    return {
        "parts": {
            name: {"before": part.before, "final": part.final, **_crossings(part.rise)}
            for name, part in parts.items()
        },
        "orders": orders,
        "first": {
            point: [
                name
                for name in there
                if not any(found[name][other] == "after" for other in there if other != name)
            ]
            for point, found in orders.items()
        },
        "reached": {
            name: None if begun is None else _reached(part, times, curves[name], begun)
            for name, part in parts.items()
        },
    }


def _orders(parts: Mapping[str, Formed], point: str) -> dict[str, dict[str, str]]:
    crossed = {name: getattr(part.rise, point) for name, part in parts.items()}
    return {
        name: {other: order(crossed[name], crossed[other]).value for other in parts if other != name}
        for name in parts
    }


def _reached(part: Formed, times: Sequence[float], values: Sequence[float], time: float) -> float | None:
    """How much of its way a part had gone at a time."""
    if not part.happened:
        return None
    return (_value_at(times, values, time) - part.before) / (part.final - part.before)


def _crossings(crossed: Rise) -> dict[str, Any]:
    return {name: asdict(getattr(crossed, name)) for name in ("start", "half", "end")}


def _value_at(times: Sequence[float], values: Sequence[float], time: float) -> float:
    """A curve between two evaluations."""
    place = next(place for place, later in enumerate(times) if later >= time)
    if place == 0:
        return values[0]
    share = (time - times[place - 1]) / (times[place] - times[place - 1])
    return values[place - 1] + share * (values[place] - values[place - 1])


# The transition.


def transition(
    samples: Sequence[float],
    recall_curve: Sequence[float],
    loss_curve: Sequence[float | None],
    *,
    chance: float,
    least: float = LEAST_RECALL,
) -> dict[str, Any]:
    """How sudden recall was, and where the training loss fell with it (claim P5).

    Two readings of "10–90 %", because recall rises in two stages: noticing that x came back lifts it towards
    `chance`, knowing which value stood beside it lifts it to the end.

    Args:
        samples: training samples at each evaluation, increasing.
        recall_curve: held-out recall at each evaluation.
        loss_curve: mean training loss of the interval that ends there; None where there is none (at the start).
        chance: recall by guessing among the values shown, 1/(V - 1).
        least: how far above chance recall must end; otherwise there was no transition.

    Returns:
        JSON values, in samples.

        * `final`, `chance`: levels of recall; the final one is its mean over the last `FINAL_EVALUATIONS`.
        * `from_zero`, `from_chance`: crossings of 10 %, 50 % and 90 % of the way from 0 or from chance to the final
          level (`start`, `half`, `end`; looked for after recall was lowest, since the untrained member also guesses
          right at times), `width` (10 % to 90 %), `widest` (the longest the evaluations allow) and
          `relative_width` (of the time to 50 %).  Without a transition the crossings have `time` None and
          `censored_at` the last evaluation, and the widths are None.
        * `steepest_fall`: of all least-squares lines through `SMOOTHING` successive evaluations of the training loss
          the one that falls fastest, among those whose mean time lies in the rise from chance: `rate` (nats per
          million samples), `time` (its mean time), `low` and `high` (its first and last evaluation).  All are None
          without a transition, and where no line lies there.

    Raises:
        ValueError: as in `formed`.
    """
    zero = formed(samples, recall_curve, least=chance + least, start=0.0)
    above = formed(samples, recall_curve, least=least, start=chance)
    losses = [(time, loss) for time, loss in zip(samples, loss_curve, strict=True) if loss is not None]
    return {
        "final": above.final,
        "chance": chance,
        "from_zero": _widths(zero.rise),
        "from_chance": _widths(above.rise),
        "steepest_fall": _steepest_fall(losses, above.rise) or dict.fromkeys(FALL),
    }


def _widths(crossed: Rise) -> dict[str, Any]:
    return {
        **_crossings(crossed),
        "width": crossed.width,
        "widest": crossed.widest,
        "relative_width": crossed.relative_width,
    }


def _steepest_fall(curve: Sequence[tuple[float, float]], during: Rise) -> dict[str, float] | None:
    begin, end = during.start.low, during.end.high
    if begin is None or end is None:
        return None
    falls: list[tuple[float, float, float, float]] = []
    for place in range(len(curve) - SMOOTHING + 1):
        times, values = zip(*curve[place : place + SMOOTHING], strict=True)
        if begin <= fmean(times) <= end:
            rate = -1e6 * linear_regression(times, values).slope
            falls.append((rate, fmean(times), float(times[0]), float(times[-1])))
    steepest = max(falls, key=lambda fall: fall[0], default=None)
    return steepest and dict(zip(FALL, steepest, strict=True))
