"""The look that every chart and drawing shares, on the page and in the files beside it.

Colours are the Okabe-Ito set (Okabe and Ito 2008, "Color Universal Design"), which stays apart under the common forms
of colour blindness.  Files are drawn in the light colours.  The page draws the same charts in CSS variables, one for
each role of a colour: so a chart follows the reader's theme, and paper, without being drawn again.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

CATEGORY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b6b6b", "#000000")
"""Okabe-Ito; yellow is left out, because it does not carry on white."""

CATEGORY_DARK = ("#4ba3e3", "#ff8a4c", "#2fc79c", "#e8a0cb", "#a9dcff", "#f5c451", "#9aa5b1", "#f4f6f8")

LIGHT = {
    "ink": "#1f2933", "quiet": "#52606d", "paper": "#ffffff", "grid": "#dde1e6", "axis": "#9aa5b1", "frame": "#cbd2d9",
    "wash": "#eceff2", "idle": "#8a94a0", "stream": "#d5dae0",
    **{f"series-{at}": each for at, each in enumerate(CATEGORY, 1)},
}  # fmt: skip
"""Colour of each role in a chart, on light ground and in files."""

DARK = {
    "ink": "#e6e9ed", "quiet": "#a3aeba", "paper": "#1b2027", "grid": "#2d353f", "axis": "#5b6672", "frame": "#3a434e",
    "wash": "#2a313a", "idle": "#7b8794", "stream": "#3d4753",
    **{f"series-{at}": each for at, each in enumerate(CATEGORY_DARK, 1)},
}  # fmt: skip


def style_sheet() -> str:
    """CSS that gives every role its colour: light, dark where the reader's theme is, light on paper."""
    named = ([f"--chart-{role}: {colour};" for role, colour in each.items()] for each in (LIGHT, DARK))
    light, dark = map(" ".join, named)
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def variables() -> dict[str, str]:
    """Colour of a chart → the CSS variable that the page puts in its place."""
    return {colour: f"var(--chart-{role})" for role, colour in LIGHT.items()}


# One meaning for each colour.


def colours(names: Iterable[str]) -> dict[str, str]:
    """Colour of each name, the same on every chart: k of x_k, x₂ or `loss_2` has its own, other names what is left."""
    symbol = re.compile(r"(?:\b|_)(?:x|loss|step|hop)[ _]?(?:step_)?(\d+)$")
    known = {name: symbol.search(unicodedata.normalize("NFKC", name)) for name in names}
    places = {name: int(found[1]) for name, found in known.items() if found}
    taken = {place % len(CATEGORY) for place in places.values()}
    free = [place for place in range(len(CATEGORY)) if place not in taken] or [*range(len(CATEGORY))]
    others = [name for name, found in known.items() if not found]
    places |= {name: free[at % len(free)] for at, name in enumerate(others)}
    return {name: CATEGORY[places[name] % len(CATEGORY)] for name in known}


# Files beside this one.


def packaged(name: str) -> str | None:
    """The text of a file among the templates; `None` if there is none of that name."""
    path = resources.files("hopscope.page") / "templates" / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def chart(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A specification among the templates, filled in.

    `"$name"` is a value, and left out where that is `...`; in a list, `"$*name"` are the items of one.  An object with
    `base` extends others, and one with `if` is there if that value is true.  `let` and `parts.json` name more values.
    """
    known = {**LIGHT, **values}

    def filled(node: Any) -> Any:
        if isinstance(node, str):
            return known.get(node[1:], ...) if node.startswith("$") else node
        if isinstance(node, list):
            made = [known.get(each[2:], []) if str(each)[:2] == "$*" else [filled(each)] for each in node]
            return [each for some in made for each in some if each is not ...]
        if not isinstance(node, dict) or filled(node.get("if", True)) in (False, None, ..., []):
            return ... if isinstance(node, dict) else node
        own = {key: made for key, each in node.items() if key != "if" and (made := filled(each)) is not ...}
        for base in [own.pop("base", {})] if isinstance(own.get("base", {}), dict) else own.pop("base"):
            own = {**base, **own}
        return own

    found: dict[str, Any] = json.loads(packaged(f"charts/{name}.json") or "{}")
    for key, each in {**json.loads(packaged("charts/parts.json") or "{}"), **found.pop("let", {})}.items():
        known[key] = filled(each)
    return dict(filled(found))
