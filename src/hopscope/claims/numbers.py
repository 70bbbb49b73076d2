"""Numbers as text: digits follow the uncertainty, and rounding never claims perfection."""

import math

_LEAST_DECIMALS = 2
_LEAST_SHARE_DECIMALS = 1
_MOST_DECIMALS = 6


def format_number(value: float, unit: str = "number", *, decimals: int | None = None) -> str:
    """Write a number: ``0.9575``, ``12,000``, ``3.1e−06``, a fraction as ``99.9 %``, any other unit as ``300 steps``.

    A fraction that is not exactly 0 or 1 is never rounded to 0 % or 100 %: decimals are added until it shows.  An
    infinite number is one that was watched for and never came.

    Args:
        value: the number.
        unit: as in `Criterion`.
        decimals: decimal places of what is printed; chosen from the value where it is None.
    """
    if math.isinf(value):
        return "never"
    if unit == "fraction":
        return f"{_share(value, decimals)} %"
    suffix = "" if unit == "number" else f" {unit}"
    return f"{_plain(value, decimals)}{suffix}"


def format_estimate(value: float | None, interval: tuple[float, float] | None, unit: str = "number") -> str:
    """Write a value with its interval, ``0.9571 [0.9566, 0.9575]`` or ``99.91 % [99.8, 100]``, or ``–``.

    The last digit printed is the first significant one of the interval's half-width.
    """
    number = format_value(value, interval, unit)
    if value is None or interval is None:
        return number
    low, high = interval
    decimals = _decimals_of(interval, unit)
    write = _share if unit == "fraction" else _plain
    return f"{number} [{write(low, decimals)}, {write(high, decimals)}]"


def format_value(value: float | None, interval: tuple[float, float] | None, unit: str = "number") -> str:
    """Write a value alone, with the digits that it has beside its interval; ``–`` for a missing one."""
    if value is None:
        return "–"
    return format_number(value, unit, decimals=None if interval is None else _decimals_of(interval, unit))


def _decimals_of(interval: tuple[float, float], unit: str) -> int | None:
    """Decimal places to the first significant digit of the half-width; None for an interval without width."""
    half_width, least = (interval[1] - interval[0]) / 2, _LEAST_DECIMALS
    if unit == "fraction":
        half_width, least = 100 * (interval[1] - interval[0]) / 2, _LEAST_SHARE_DECIMALS
    if half_width <= 0:
        return None
    return min(max(-math.floor(math.log10(half_width)), least), _MOST_DECIMALS)


def _plain(value: float, decimals: int | None) -> str:
    group = "," if abs(value) >= 1_000 else ""
    if decimals is not None:
        text = f"{value:{group}.{decimals}f}"
        while (
            decimals < _MOST_DECIMALS
            and abs(value) <= 1
            and float(text) in (-1.0, 0.0, 1.0)
            and float(text) != value
        ):
            decimals += 1
            text = f"{value:.{decimals}f}"
        return _minus(text)
    if float(value).is_integer() and abs(value) < 1e15:
        return _minus(f"{int(value):{group}}")
    return _minus(f"{value:{group}.0f}" if group else f"{value:.4g}")


def _share(value: float, decimals: int | None) -> str:
    percent = 100 * value
    if percent.is_integer():
        return _minus(str(int(percent)))
    places = max(_LEAST_SHARE_DECIMALS, decimals or 0)
    while places < _MOST_DECIMALS and float(f"{percent:.{places}f}") in (0.0, 100.0, -100.0):
        places += 1
    return _minus(f"{percent:.{places}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
