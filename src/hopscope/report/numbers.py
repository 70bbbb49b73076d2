"""How numbers are written: digits follow the uncertainty, and rounding never claims perfection."""

import math
import re

_LEAST_DECIMALS = 2
_LEAST_SHARE_DECIMALS = 1
_MOST_DECIMALS = 6
_UNTIED = re.compile(r"(?<=[≤≥<>=±|−]) (?=\d)|(?<=\d) (?=%)|(?<=\b[A-Za-z]) (?=[≤≥<>=] \d)")
_PLAIN_NAMES = ("loss", "kl", "mse", "mae", "nats", "bits", "entropy", "correlation", "step", "time", "count")


def format_number(value: float, *, share: bool = False, decimals: int | None = None) -> str:
    """Write a number: ``0.9575``, ``12,000``, ``3.1e−06``, or as a share ``99.9 %``.

    A share that is not exactly 0 or 1 is never rounded to 0 % or 100 %: decimals are added until it shows.

    Args:
        value: the number; a share is given as a fraction.
        share: write it in percent.
        decimals: decimal places of what is printed; chosen from the value where it is None.
    """
    if share:
        return f"{_share(value, decimals)} %"
    return _plain(value, decimals)


def format_estimate(value: float | None, interval: tuple[float, float] | None, *, share: bool = False) -> str:
    """Write a value with its interval, ``0.9571 [0.9566, 0.9575]`` or ``99.91 % [99.8, 100]``, or ``–``.

    The last digit printed is the first significant one of the interval's half-width.
    """
    if value is None:
        return "–"
    if interval is None:
        return format_number(value, share=share)
    low, high = interval
    half_width = (high - low) / 2
    if share:
        decimals = _decimals(100 * half_width, _LEAST_SHARE_DECIMALS)
        return f"{_share(value, decimals)} % [{_share(low, decimals)}, {_share(high, decimals)}]"
    decimals = _decimals(half_width, _LEAST_DECIMALS)
    return f"{_plain(value, decimals)} [{_plain(low, decimals)}, {_plain(high, decimals)}]"


def tie(text: str) -> str:
    """The text with signs, units and single letters tied to their numbers: no line breaks in ``D = 2`` or ``≥ 9 %``."""
    return _UNTIED.sub("\N{NO-BREAK SPACE}", text)


def _decimals(half_width: float, least: int) -> int | None:
    if half_width <= 0:
        return None
    return min(max(-math.floor(math.log10(half_width)), least), _MOST_DECIMALS)


def _plain(value: float, decimals: int | None) -> str:
    group = "," if abs(value) >= 10_000 else ""
    if decimals is not None:
        return _minus(f"{value:{group}.{decimals}f}")
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
