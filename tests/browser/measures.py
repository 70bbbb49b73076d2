"""What a page costs its reader: its height, its stops of the Tab key, its size, and when it is ready.

As a script it measures pages: `python tests/browser/measures.py RUN/report.html …`.
"""

import sys
from pathlib import Path
from typing import Any

# What the Tab key stops at: what can be focused, is drawn, and is not inside something folded.
_TAB_STOPS = """
() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter(each => {
  if (each.tabIndex < 0 || each.disabled || !each.getClientRects().length) return false;
  const outer = each.matches('summary') ? each.parentElement.parentElement : each;
  return !outer.closest('details:not([open])');
}).length
"""


def measure(page: Any, path: Path) -> dict[str, float]:
    """Open a page from disk and measure it.

    Args:
        page: a page of Playwright, at the width to measure at.
        path: the file.
    """
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-page=ready]", state="attached", timeout=60_000)
    ready = page.evaluate("performance.now()")
    page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=60_000)
    return {
        "height": page.evaluate("document.documentElement.scrollHeight"),
        "tab stops": page.evaluate(_TAB_STOPS),
        "ready ms": round(ready),
        "bytes": path.stat().st_size,
    }


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        for name in sys.argv[1:]:
            print(name, measure(browser.new_page(viewport={"width": 1280, "height": 900}), Path(name)))
        browser.close()
