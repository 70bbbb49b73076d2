"""Figures: a Vega-Lite specification and its CSV become one value; page, SVG and PNG are drawn from it."""

import json
import re
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.report.drawing import VL_VERSION, Say, draw_once, png_of
from hopscope.report.theme import in_greyscale, with_theme
from hopscope.runs.files import read_bytes, read_json
from hopscope.strict_json import canonical_json

_REMEDY = "run the study again to write its figures anew"


def figure_names(figures_dir: Path) -> list[str]:
    """Names of the figures in a folder, in alphabetical order; a missing folder has none."""
    suffix = ".vl.json"
    return sorted(path.name.removesuffix(suffix) for path in figures_dir.glob(f"*{suffix}"))


def inline_figure(figures_dir: Path, name: str) -> dict[str, Any]:
    """The specification of a figure with its CSV's text where the url was, and the theme under its config.

    Column types are the specification's own (``data.format.parse``).

    Args:
        figures_dir: folder with ``<name>.vl.json`` and ``<name>.csv``.
        name: the figure's name, without suffix.

    Raises:
        UserError: a file is missing, unreadable or a link, or the specification asks for any data but its own CSV.
    """
    path = figures_dir / f"{name}.vl.json"
    spec = read_json(path, _REMEDY)
    data = spec.get("data") if isinstance(spec, dict) else None
    expected = f"{name}.csv"
    if not isinstance(data, dict) or data.get("url") != expected:
        raise UserError(
            f"{path}: expected top-level data with url '{expected}', found {json.dumps(data)[:80]}; {_REMEDY}"
        )
    if not isinstance(spec.get("config", {}), dict):
        raise UserError(f"{path}: expected an object as config, found another; {_REMEDY}")
    own = {"url": expected, "values": _read_text(figures_dir / expected)}
    # What a page may do is said by the page: `usermeta` could open an editor at any address, or bring its own markup.
    inlined: dict[str, Any] = _inline({key: spec[key] for key in spec if key != "usermeta"}, own, path)
    return with_theme(inlined)


def render_figure(figures_dir: Path, name: str, say: Say | None = None) -> tuple[Path, Path]:
    """Draw a figure as ``<name>.svg`` and ``<name>.png`` beside its specification, unless both are there already.

    The same files give the same drawings; nothing is fetched.  A drawing is kept only if its proof names this
    specification, these data and this renderer, and no byte of it was altered (`hopscope.report.drawing`).

    Args:
        figures_dir, name: as of `inline_figure`.
        say: hears, in one line, of a drawing that was altered.

    Returns:
        The paths of the SVG and of the PNG.

    Raises:
        UserError: as `inline_figure`, or the specification cannot be drawn.
    """
    spec = inline_figure(figures_dir, name)

    def draw() -> tuple[str, bytes]:
        # A heavy native library that `import hopscope.report` and the command line's help should not wait for.
        import vl_convert

        try:
            svg = in_greyscale(vl_convert.vegalite_to_svg(spec, vl_version=VL_VERSION, allowed_base_urls=[]))
            # From the SVG, not from the specification: the same bytes, and the figure is laid out once.
            png = png_of(svg)
        except ValueError as error:
            # The library's message spans lines; the second one names the cause.
            cause = " ".join(str(error).split())[:200]
            raise UserError(
                f"{figures_dir / name}.vl.json: expected a Vega-Lite {VL_VERSION} specification, "
                f"found one that cannot be drawn ({cause}); {_REMEDY}"
            ) from error
        return _renumber(svg), png

    return draw_once(figures_dir / name, canonical_json(spec), draw, say)


def _renumber(svg: str) -> str:
    """The SVG with its gradients and clips numbered from 0: the library counts through the whole process."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{numbers.setdefault(found[2] + found[3], len(numbers))}"

    return re.sub(r"""(\bid="|url\(#)(gradient_|clip)(\d+)""", number, svg)


def _read_text(path: Path) -> str:
    if path.is_symlink():  # to any file of this machine, which a page would show to whoever opens it
        raise UserError(f"{path}: expected a file of the run, found a link: {_REMEDY}")
    try:
        return read_bytes(path, _REMEDY).decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: expected UTF-8 text, found {error.reason} at byte {error.start}; {_REMEDY}"
        ) from None


def _inline(node: Any, own: dict[str, Any], path: Path) -> Any:
    """The node with every ``data`` of the figure's own CSV inlined, and with any other url refused.

    Layers may bring data of their own, but only inline: the page must never ask the network for any.

    Args:
        node: a part of the specification.
        own: the CSV's url and text, ``{"url": …, "values": …}``.
        path: the specification's file, for the error.
    """
    if isinstance(node, list):
        return [_inline(each, own, path) for each in node]
    if not isinstance(node, dict):
        return node
    inlined = {key: value if key == "data" else _inline(value, own, path) for key, value in node.items()}
    data = node.get("data")
    if isinstance(data, dict) and "url" in data:
        if data["url"] != own["url"]:
            raise UserError(
                f"{path}: expected data inline or from '{own['url']}', found url '{str(data['url'])[:80]}'; "
                "put the columns into the figure's CSV"
            )
        read_as = data.get("format", {})
        if not isinstance(read_as, dict):
            raise UserError(f"{path}: expected an object as the data's format, found another; {_REMEDY}")
        rest = {key: value for key, value in data.items() if key not in ("url", "format")}
        inlined["data"] = {
            **rest,
            "values": own["values"],
            "format": {**read_as, "type": "csv"},
        }
    return inlined
