"""The command `hopscope diagnose`: which known failure each member of a run shows."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.cli.terminal import console
from hopscope.runs import find_run
from hopscope.studies.diagnosis import Diagnosis, diagnoses
from hopscope.words import symbol, symbols

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 16


@dataclasses.dataclass
class Options:
    """Say of every member of a run on chains whether it learned, and if not, which known failure it shows.

    The failures are those that the summary of the paper lists: an early plateau (too few layers), only induction heads
    (missing depth), and long chains that fail (missing curriculum).
    """

    run: Positional[Path] = Path("runs")
    """Run folder, or a root with one run."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run `hopscope diagnose` with the arguments of the command line."""
    options = parse(Options, arguments, "diagnose")
    found = diagnoses(find_run(options.run))
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in found], indent=1, ensure_ascii=False))
        return 0
    screen = console()
    for each in found:
        screen.print(_head(each), markup=False, highlight=False)
        screen.print(f"    {_tail(each)}", markup=False, highlight=False)
    counts = Counter(each.signature for each in found)
    screen.print(
        "\n" + " · ".join(f"{count} {name}" for name, count in counts.most_common()), highlight=False
    )
    return 0


def _head(each: Diagnosis) -> str:
    return f"member {each.member}, {each.configuration}, seed {each.seed}: {each.signature}"


def _tail(each: Diagnosis) -> str:
    if not each.curves[each.failing]:
        return each.cause
    said = f"{' '.join(symbols(each.learned)) or 'nothing'} learned"
    losses = each.curves[each.failing]
    curve = f"loss of {symbol(each.failing)} {sparkline(losses)} {losses[-1]:.2f}"
    return "; ".join(filter(None, [f"{curve}, {said}", each.cause]))


def sparkline(losses: Sequence[float]) -> str:
    """A curve as a line of bars, from 0 to 1 (what a prediction of zero costs) or above."""
    count = min(_POINTS, len(losses))
    chosen = [losses[round(place * (len(losses) - 1) / max(1, count - 1))] for place in range(count)]
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(loss * len(_BARS))))] for loss in chosen)
