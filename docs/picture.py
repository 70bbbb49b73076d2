"""The README's picture: a circuit on the page of a run, with a path chosen, drawn by headless Chromium.

`hopscope run emergence`, then `python docs/picture.py runs/emergence/3a8e0ee12b07 --circuit "seed 3"` writes
docs/circuit.png.  The run must be whole: a slim run folder has no attention maps.
"""

import argparse
import tempfile
from pathlib import Path

from hopscope.report.page import build_report

TO = Path(__file__).resolve().parent / "circuit.png"
CHROMIUM = "/usr/bin/chromium"


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run folder of a study whose page shows circuits")
    parser.add_argument("--circuit", help="name of the circuit on the page; by default the first")
    parser.add_argument("--path", type=int, help="number of the chosen path; by default the most needed one")
    parser.add_argument("--to", type=Path, default=TO)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        build_report([options.run], page)
        draw(page, options.circuit, options.path, options.to)


def draw(page_file: Path, circuit: str | None, path: int | None, to: Path) -> None:
    """Write the visible circuit of a page as a PNG."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 1200})
        page.goto(page_file.as_uri())
        figure = page.locator("figure.circuit")
        if circuit is not None:
            figure.locator("[name=circuit]").select_option(circuit)
        view = figure.locator(".circuit-view:visible")
        if path is not None:
            view.locator(f".tag[data-path='{path}']").click()
        view.locator(".circuit-board").screenshot(path=to)
        browser.close()


if __name__ == "__main__":
    main()
