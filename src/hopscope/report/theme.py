"""The look that every chart shares, on the page and in the SVG and PNG files beside it.

Colours are the Okabe-Ito set (Okabe and Ito 2008, "Color Universal Design"), which stays apart under the
common forms of colour blindness.  A study's own ``config`` wins over what is set here.

Files are drawn in the light colours.  The page draws the same charts in CSS variables, one for each role of a colour:
so a chart follows the reader's theme, and paper, without being drawn again.
"""

import re
from typing import Any

CATEGORY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b6b6b", "#000000")
"""Okabe-Ito, yellow left out: it does not carry on white."""

CATEGORY_DARK = ("#4ba3e3", "#ff8a4c", "#2fc79c", "#e8a0cb", "#a9dcff", "#f5c451", "#9aa5b1", "#f4f6f8")
"""The same hues for a dark ground, in the same order."""

INK = "#1f2933"
"""Text on light ground."""

QUIET_INK = "#52606d"

LIGHT = {
    "ink": INK,
    "quiet": QUIET_INK,
    "paper": "#ffffff",
    "grid": "#dde1e6",
    "axis": "#9aa5b1",
    "frame": "#cbd2d9",
    "wash": "#eceff2",
    "idle": "#8a94a0",
    "stream": "#d5dae0",
    "ramp": "#08306b",
    **{f"series-{place}": colour for place, colour in enumerate(CATEGORY, start=1)},
}
"""Colour of each role in a chart, on light ground and in files."""

DARK = {
    "ink": "#e6e9ed",
    "quiet": "#a3aeba",
    "paper": "#1b2027",
    "grid": "#2d353f",
    "axis": "#5b6672",
    "frame": "#3a434e",
    "wash": "#2a313a",
    "idle": "#7b8794",
    "stream": "#3d4753",
    "ramp": "#a9dcff",
    **{f"series-{place}": colour for place, colour in enumerate(CATEGORY_DARK, start=1)},
}
"""The same on dark ground."""

_MARKS = {"#333333": "ink", "#333": "ink", "#666666": "quiet", "#e4e7eb": "wash"}
"""Colours that figures give to their own marks, and the roles that they have."""

_FONT = "Arial, Helvetica, sans-serif"


def chart_config() -> dict[str, Any]:
    """Vega-Lite ``config``: fonts, quiet axes, colour-blind-safe ranges, white background."""
    text = {
        "labelColor": LIGHT["quiet"],
        "titleColor": LIGHT["ink"],
        "labelFontSize": 12,
        "titleFontSize": 12.5,
        "titleFontWeight": 600,
    }
    return {
        "background": LIGHT["paper"],
        "font": _FONT,
        "padding": 6,
        "axis": {
            **text,
            "gridColor": LIGHT["grid"],
            "domainColor": LIGHT["axis"],
            "tickColor": LIGHT["axis"],
            "titlePadding": 8,
        },
        "axisQuantitative": {"tickCount": 8},
        "legend": {**text, "symbolStrokeWidth": 2.5, "symbolBaseFillColor": LIGHT["quiet"]},
        "header": {**text},
        "title": {
            "color": LIGHT["ink"],
            "fontSize": 14,
            "anchor": "start",
            "subtitleColor": LIGHT["quiet"],
        },
        "view": {"stroke": LIGHT["frame"]},
        "line": {"strokeWidth": 2},
        "range": {
            "category": list(CATEGORY),
            "ramp": {"scheme": "viridis"},
            "heatmap": {"scheme": "viridis"},
        },
    }


def with_theme(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with this theme under its own ``config``."""
    return {**spec, "config": _merge(chart_config(), spec.get("config", {}))}


def style_sheet() -> str:
    """CSS that gives every role its colour (light, dark where the theme is, light on paper), and lines their dash."""
    light, dark = (
        " ".join(f"--chart-{role}: {colour};" for role, colour in colours.items())
        for colours in (LIGHT, DARK)
    )
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{_GREYSCALE}"


def variables() -> dict[str, str]:
    """Colour of a specification → the CSS variable that the page puts in its place."""
    roles = {colour: role for role, colour in LIGHT.items()} | _MARKS
    return {colour: f"var(--chart-{role})" for colour, role in roles.items()}


def themed_svg(svg: str) -> str:
    """A drawing of ours as the page shows it: every colour that is a role is the CSS variable of that role."""
    known = variables()
    return re.sub(
        r'\b(fill|stroke)="(#[0-9a-f]{6})"',
        lambda found: f'{found[1]}="{known.get(found[2], found[2])}"',
        svg,
    )


# Not every reader, screen or paper has colours.  So lines of a colour have a dash of their own; where dashes tell
# something else, they have a width of their own.  Shapes, whose paths have arcs or are closed, keep their outline.
_DASHES = ("7 3", "2 2", "9 3 2 3", "5 2 1 2 1 2", "12 4", "4 4")
_WIDTHS = (1.1, 2.0, 3.0, 4.0, 1.5, 2.5, 3.5)
_LINE = (
    ':is(.mark-line, .role-legend-symbol) path[stroke="var(--chart-series-{place})"]:not([d*=A]):not([d*=Z])'
)
_OWN_DASHES = ":has(.mark-line path[stroke-dasharray])"
_GREYSCALE = "\n".join(
    [
        f".chart:not({_OWN_DASHES}) {_LINE.format(place=place)} {{ stroke-dasharray: {dash}; }}"
        for place, dash in enumerate(_DASHES, start=2)
    ]
    + [
        f".chart{_OWN_DASHES} {_LINE.format(place=place)} {{ stroke-width: {width}; }}"
        for place, width in enumerate(_WIDTHS, start=1)
    ]
)


_GROUP = re.compile(r'<g class="(?:mark-line|mark-symbol role-legend-symbol)\b.*?</g>', re.DOTALL)
_PATH = re.compile(r'<path(?: [\w-]+="[^"]*")*')


def in_greyscale(svg: str) -> str:
    """A drawing of vega's with the dashes and widths that the page's style sheet gives to lines.

    Args:
        svg: as vega writes it, in the light colours.
    """
    lines = [path for group in _GROUP.findall(svg) if "mark-line" in group for path in _PATH.findall(group)]
    own = any("stroke-dasharray=" in path for path in lines)

    def drawn(found: re.Match[str]) -> str:
        path = found[0]
        colour, course = re.search(r' stroke="([^"]*)"', path), re.search(r' d="([^"]*)"', path)
        if colour is None or course is None or colour[1] not in CATEGORY or re.search("[AZ]", course[1]):
            return path
        place = CATEGORY.index(colour[1])
        if not own:
            dashed = 1 <= place <= len(_DASHES)
            return f'{path} stroke-dasharray="{_DASHES[place - 1]}"' if dashed else path
        return re.sub(r' stroke-width="[^"]*"', f' stroke-width="{(*_WIDTHS, 2.0)[place]}"', path)

    return _GROUP.sub(lambda group: _PATH.sub(drawn, group[0]), svg)


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
