"""The numbers of a page, each with the file and the key it came from."""

from collections.abc import Sequence
from typing import Any

from hopscope.claims.intervals import bootstrap_mean, mean

DASH = "–"


class PageNumbers:
    """Registers numbers and hands out the placeholders that stand for them in the words.

    Attributes:
        entries: placeholder's name → value, text, file and key; a key is readable and can be followed in the file.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def add(self, value: float, text: str, file: str, key: str) -> str:
        """Register a number; returns the placeholder to write in the text."""
        name = f"n{len(self.entries)}"
        self.entries[name] = {"value": value, "text": text, "file": file, "key": key}
        return "{" + name + "}"

    def estimated(self, values: Sequence[float], what: str, file: str, style: str = ".3f") -> str:
        """A mean over seeds with its 95 % bootstrap interval, in words; a dash where there is no value."""
        if not values:
            return DASH
        shown = self.add(mean(values), format(mean(values), style), file, f"mean of {what}")
        interval = bootstrap_mean(values)
        if interval is None:
            return shown
        low, high = (
            self.add(end, format(end, style), file, f"95 % interval of mean of {what}: {side}")
            for end, side in zip(interval, ("low", "high"), strict=True)
        )
        return f"{shown} [{low}, {high}]"


def written(value: float, percent: bool) -> str:
    """A number as the page shows it: a share in percent, anything else with four decimals."""
    if not percent:
        return f"{value:.4f}".replace("-", "−") if value else "0"  # an exact zero says so
    shown = f"{100 * value:.2f}".rstrip("0").rstrip(".")
    if shown in ("0", "100", "-0") and value not in (0.0, 1.0):
        shown = (
            "< 0.01" if value < 0.5 else "> 99.99"
        )  # rounding must not turn a near miss into a perfect score
    return f"{shown}\u00a0%".replace("-", "−")
