"""How a circuit formed, as a small chart: held-out partial losses above, attention of its paths below."""

import math
from collections.abc import Iterable, Sequence

from hopscope.report.circuit_graph import path_colour, symbol_colour
from hopscope.report.circuit_words import head_name, symbol
from hopscope.report.circuits import CircuitView
from hopscope.report.svg import FONT, escaped, line, number, stroke, text, text_width
from hopscope.report.theme import INK, LIGHT, QUIET_INK

_WIDTH, _LEFT, _RIGHT = 500.0, 38.0, 12.0
_LOSS = (30.0, 128.0)
_ATTENTION = (166.0, 250.0)
_HEIGHT = 288.0
_ROOT = {
    "class": "circuit-timeline",
    "xmlns": "http://www.w3.org/2000/svg",
    "role": "img",
    "font-family": FONT,
    "font-size": "11",
}
_GRID, _AXIS, _PAPER = LIGHT["grid"], LIGHT["axis"], LIGHT["paper"]
_DASHES = ("", "7 3", "2 3", "9 3 2 3")


def timeline_places(view: CircuitView) -> list[float]:
    """x of each checkpoint in the chart; its scale is the training step."""
    first, last = view.checkpoints[0], view.checkpoints[-1]
    room = _WIDTH - _LEFT - _RIGHT
    return [_LEFT + room * (step - first) / max(1, last - first) for step in view.checkpoints]


def timeline_svg(view: CircuitView) -> str:
    """The chart.

    Returns:
        An SVG element; the same view gives the same text.  The line `now` stands at the checkpoint that was read, lines
        of a path have `data-path`, its number.
    """
    places = timeline_places(view)
    most = max([1.0, view.plateau or 0.0, *(loss for losses in view.partial.values() for loss in losses)])
    named = " ".join(f'{name}="{value}"' for name, value in _ROOT.items())
    parts = [
        f'<svg {named} viewBox="0 0 {number(_WIDTH)} {number(_HEIGHT)}">',
        f"<title>{escaped(_summary(view))}</title>",
        *_panel(_LOSS, most, f"held-out {view.measured}"),
        *_panel(_ATTENTION, 1.0, "attention of each path on what its rule names"),
        *_steps(view, places),
    ]
    for (name, losses), dash in zip(view.partial.items(), _cycled(len(view.partial)), strict=True):
        parts.append(_curve(places, losses, _LOSS, most, symbol_colour(name), 2.2, dash))
    parts += [*_plateau(view, most), *_names(view)]
    for at, path in enumerate(view.paths):
        more = f' class="path" data-path="{at}" stroke-opacity="0.75"'
        parts.append(_curve(places, path.attention, _ATTENTION, 1.0, path_colour(path), 1.4, "", more))
    now = places[view.shown]
    mark = line((now, _LOSS[0] - 6.0), (now, _ATTENTION[1]), stroke=INK, width=1.5)
    return "".join([*parts, mark.replace("<line", '<line class="now"', 1), "</svg>"])


def _summary(view: CircuitView) -> str:
    losses = ", ".join(
        f"{symbol(name)} from {values[0]:.2f} to {values[-1]:.2f}" for name, values in view.partial.items()
    )
    attention = ", ".join(
        f"{head_name(path)} from {path.attention[0]:.2f} to {path.attention[-1]:.2f}" for path in view.paths
    )
    return (
        f"Training steps {view.checkpoints[0]:,} to {view.checkpoints[-1]:,}.  Held-out {view.measured}: {losses}.  "
        f"Attention: {attention or 'no path'}."
    )


def _panel(panel: tuple[float, float], most: float, title: str) -> Iterable[str]:
    yield text(_LEFT, panel[0] - 10.0, title, weight=600, size=11)
    for value in _ticks(most):
        y = _height(value, panel, most)
        yield line((_LEFT, y), (_WIDTH - _RIGHT, y), stroke=_AXIS if value == 0.0 else _GRID)
        yield text(_LEFT - 6.0, y + 4.0, f"{value:g}", fill=QUIET_INK, size=11, anchor="end")


def _steps(view: CircuitView, places: Sequence[float]) -> Iterable[str]:
    first, last = view.checkpoints[0], view.checkpoints[-1]
    bottom = _ATTENTION[1]
    for place in places:
        yield line((place, bottom), (place, bottom + 3.0), stroke=_AXIS)
    for step in (step for step in _ticks(float(last)) if step >= first):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (step - first) / max(1, last - first)
        anchor = "end" if x > _WIDTH - _RIGHT - 14.0 else "middle"
        yield text(x, bottom + 17.0, f"{int(step):,}", fill=QUIET_INK, size=11, anchor=anchor)
    yield text((_LEFT + _WIDTH) / 2, bottom + 34.0, "training step", fill=QUIET_INK, size=11, anchor="middle")


def _plateau(view: CircuitView, most: float) -> Iterable[str]:
    if view.plateau is None:
        return
    y = _height(view.plateau, _LOSS, most)
    yield line((_LEFT, y), (_WIDTH - _RIGHT, y), stroke=QUIET_INK, dash="4 4")
    words = f"plateau {view.plateau:.4g}: attention by position alone"
    # A rim of paper keeps the words readable where a curve passes behind them.
    yield f'<g paint-order="stroke" stroke="{_PAPER}" stroke-width="3" stroke-linejoin="round">'
    yield text(_WIDTH - _RIGHT - 6.0, y - 4.0, words, fill=QUIET_INK, size=10, anchor="end")
    yield "</g>"


def _names(view: CircuitView) -> Iterable[str]:
    """Line samples with their names, from the right edge."""
    x = _WIDTH - _RIGHT
    for name, dash in reversed(list(zip(view.partial, _cycled(len(view.partial)), strict=True))):
        x -= text_width(symbol(name), 11.0)
        yield text(x, _LOSS[0] - 10.0, symbol(name), size=11, weight=600)
        yield line(
            (x - 27.0, _LOSS[0] - 14.0),
            (x - 5.0, _LOSS[0] - 14.0),
            stroke=symbol_colour(name),
            width=2.2,
            dash=dash,
        )
        x -= 42.0


def _cycled(count: int) -> list[str]:
    return [_DASHES[at % len(_DASHES)] for at in range(count)]


def _curve(
    places: Sequence[float],
    values: Sequence[float],
    panel: tuple[float, float],
    most: float,
    colour: str,
    width: float,
    dash: str,
    more: str = "",
) -> str:
    points = [(x, _height(value, panel, most)) for x, value in zip(places, values, strict=True)]
    way = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return stroke(way, colour, width, more + (f' stroke-dasharray="{dash}"' if dash else ""))


def _height(value: float, panel: tuple[float, float], most: float) -> float:
    top, bottom = panel
    return bottom - (bottom - top) * min(value, most) / most


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to the largest, two to six of them."""
    if most <= 0.0:
        return [0.0]
    rough = most / 4
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * power for unit in (1.0, 2.0, 5.0, 10.0) if unit * power >= rough)
    return [step * at for at in range(int(most / step + 1e-9) + 1)]
