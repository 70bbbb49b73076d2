"""The look that every chart shares, on the page and in the SVG and PNG files beside it.

Colours are the Okabe-Ito set (Okabe and Ito 2008, "Color Universal Design"), which stays apart under the
common forms of colour blindness.  A study's own ``config`` wins over what is set here.
"""

from typing import Any

INK = "#1f2933"
"""Text on the light card that carries every chart, in the light and in the dark page."""

QUIET_INK = "#52606d"

CATEGORY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b6b6b", "#000000")
"""Okabe-Ito, yellow left out: it does not carry on white."""

_FONT = "Arial, Helvetica, sans-serif"


def chart_config() -> dict[str, Any]:
    """Vega-Lite ``config``: fonts, quiet axes, colour-blind-safe ranges, white background."""
    text = {
        "labelColor": QUIET_INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12.5,
        "titleFontWeight": 600,
    }
    return {
        "background": "#ffffff",
        "font": _FONT,
        "padding": 6,
        "axis": {
            **text,
            "gridColor": "#dde1e6",
            "domainColor": "#9aa5b1",
            "tickColor": "#9aa5b1",
            "titlePadding": 8,
        },
        "axisQuantitative": {"tickCount": 8},
        "legend": {**text, "symbolStrokeWidth": 2.5},
        "header": {**text},
        "title": {"color": INK, "fontSize": 14, "anchor": "start", "subtitleColor": QUIET_INK},
        "view": {"stroke": "#cbd2d9"},
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


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
