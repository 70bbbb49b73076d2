"""The README's picture: what the first screen of a page shows of a run, drawn by headless Chromium.

`make demo`, then `python docs/picture.py runs/emergence/HASH` writes docs/circuit.png.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from hopscope.page.page import page
from hopscope.runs import RunFolder

TO = Path(__file__).resolve().parent / "circuit.png"
CHROMIUM = "/usr/bin/chromium"


def draw(run: Path) -> None:
    """Write the chart and the circuit at the top of the page of a run as a PNG."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(page(RunFolder.opened(run)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1280, "height": 1200})
        opened.goto(file.as_uri())
        opened.wait_for_selector("html[data-charts=ready]")
        opened.locator("div.lead").screenshot(path=TO)
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
