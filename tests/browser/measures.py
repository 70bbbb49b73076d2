"""What a page costs its reader: its height, its stops of the Tab key, its size, and when it is ready.

As a script it measures pages: `python tests/browser/measures.py RUN/report.html …`.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

# What the Tab key stops at: what can be focused, is drawn, and is not inside something folded.
_TAB_STOPS = """
() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter(each => {
  if (each.tabIndex < 0 || each.disabled || !each.getClientRects().length) return false;
  const outer = each.matches('summary') ? each.parentElement.parentElement : each;
  return !outer.closest('details:not([open])');
}).length
"""

# The page notes itself when its first screen is there, and when nothing is left to be drawn.
_READY, _DRAWN = "page ready", "charts ready"
_MARKS = "performance.getEntriesByType('mark').map(mark => [mark.name, mark.startTime])"
_CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline", "blink.user_timing"]
ROUNDS = 3


def measure(page: Any, path: Path) -> dict[str, float]:
    """Open a page from disk and measure it.

    Args:
        page: a page of Playwright, at the width to measure at.
        path: the file.

    Returns:
        Height in pixels, stops of the Tab key, bytes; and in milliseconds when the first screen is ready and when
        all is drawn: by the clock, which other work on the machine delays, and by the processor time of the page's
        main thread.
    """
    browser = page.context.browser
    browser.start_tracing(page=page, categories=_CATEGORIES)
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=120_000)
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    at = dict(page.evaluate(_MARKS))
    return {
        "height": page.evaluate("document.documentElement.scrollHeight"),
        "tab stops": page.evaluate(_TAB_STOPS),
        "bytes": path.stat().st_size,
        "ready ms": round(at[_READY]),
        "drawn ms": round(at[_DRAWN]),
        "ready cpu ms": round(_processor_time(trace, _READY)),
        "drawn cpu ms": round(_processor_time(trace, _DRAWN)),
    }


def _processor_time(trace: list[dict[str, Any]], name: str) -> float:
    """Milliseconds that the page's main thread worked until it set a mark."""
    mark = next(event for event in trace if event["name"] == name and event["cat"] == "blink.user_timing")
    thread = mark["pid"], mark["tid"]
    total = 0.0
    for event in trace:
        if (event["pid"], event["tid"]) != thread or event["name"] != "RunTask" or "tdur" not in event:
            continue
        # Of the task in which the mark was set counts what was done by then.
        share = min(1.0, max(0.0, (mark["ts"] - event["ts"]) / max(1, event["dur"])))
        total += share * event["tdur"]
    return total / 1000


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        for name in sys.argv[1:]:
            rounds = []
            for _ in range(ROUNDS):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                rounds.append(measure(context.new_page(), Path(name)))
                context.close()
            print(name, {what: median(each[what] for each in rounds) for what in rounds[0]})
        browser.close()
