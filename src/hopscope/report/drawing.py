"""Drawings are kept: one is made again only where its data, the renderer or a byte of it has changed.

To lay out a chart takes a tenth of a second or more, and a report of many runs shows hundreds of them.  The SVG of a
drawing carries its proof (`hopscope.runs.proofs`): a digest of what it was drawn from and by what, and those of its own
bytes and of the PNG beside it.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from hopscope.runs import proofs
from hopscope.runs.files import write_atomic

VL_VERSION = "6.4"
"""Vega-Lite release that specifications are written for (Altair 6.3) and drawn with."""

PNG_SCALE = 2
"""Pixels per unit of the specification in PNG files."""

_FORMAT = 1
"""Raised when the same specification is drawn in another way by code of ours."""

Say = Callable[[str], None]


def draw_once(
    stem: Path, source: str, draw: Callable[[], tuple[str, bytes]], say: Say | None
) -> tuple[Path, Path]:
    """Write `<stem>.svg` and `<stem>.png`, unless they are there and proven.

    Args:
        stem: path of both files without their suffix.
        source: text of everything that the drawing shows.
        draw: gives the SVG and the PNG.
        say: hears, in one line, of a drawing that was altered.

    Returns:
        The paths of the SVG and of the PNG.

    Raises:
        UserError: a file cannot be written.
    """
    svg_path, png_path = (stem.with_name(stem.name + kind) for kind in (".svg", ".png"))
    digest = hashlib.sha256(f"{_renderer()}\n{source}".encode()).hexdigest()
    found = proofs.state(svg_path, digest, png_path)
    if found != "stands":
        svg, png = draw()
        # The proof comes last: whoever is killed in between leaves none for the new PNG.
        write_atomic(png_path, png)
        write_atomic(svg_path, proofs.proven(svg, digest, png))
        if found == "altered" and say is not None:
            say(
                f"hopscope: warning: {svg_path}: expected the drawing that was made, and its PNG, found another: "
                "it is drawn again"
            )
    return svg_path, png_path


def png_of(svg: str) -> bytes:
    """The picture of an SVG text.

    Raises:
        ValueError: it cannot be drawn.
    """
    # A heavy native library that `import hopscope.report` and the command line's help should not wait for.
    import vl_convert

    png: bytes = vl_convert.svg_to_png(svg, scale=PNG_SCALE)
    return png


@cache
def _renderer() -> str:
    """What draws, with everything of it that changes a drawing of the same specification."""
    return f"{_FORMAT} vl-convert {version('vl-convert-python')} vega-lite {VL_VERSION} scale {PNG_SCALE}"
