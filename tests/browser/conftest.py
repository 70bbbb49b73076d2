"""A real browser for the page's tests, and one check that every page of Hopscope must pass."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
]
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
"""Pictures of every page that the check of pages opened, where HOPSCOPE_PICTURES=1 asks for them; ignored by git."""

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

# Marks that show data, one entry per chart: a path must go somewhere, a text must say something.
_DRAWN_MARKS = """
() => [...document.querySelectorAll(".vega-embed")].map(chart => {
  const drawn = mark => {
    if (mark.tagName === "text") return mark.textContent.trim() !== "";
    const way = (mark.getAttribute("d") || "").replace(/NaN/g, "");
    if (mark.tagName === "path") return /[lhvcsqtaz]/i.test(way);
    const box = mark.getBBox();
    return box.width > 0 || box.height > 0;
  };
  const canvas = chart.querySelector("canvas");
  if (canvas) {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size > 1 ? 1 : 0;
  }
  return [...chart.querySelectorAll("svg g.role-mark:not(.mark-group) > *")].filter(drawn).length;
})
"""


def _require(path: Path, environment: Mapping[str, str]) -> None:
    """Skip where there is no browser, or fail where the environment says that there must be one."""
    if path.exists():
        return
    if environment.get("HOPSCOPE_REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"no Chromium at {path}, and HOPSCOPE_REQUIRE_CHROMIUM=1 asks for it")
    pytest.skip(f"no Chromium at {path}")


@pytest.fixture(scope="session")
def require() -> Callable[[Path, Mapping[str, str]], None]:
    """The rule by which browser tests are skipped, for its own test."""
    return _require


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium for the whole session."""
    _require(CHROMIUM, os.environ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def assert_page_is_sound(chromium: Browser) -> Callable[[Path], None]:
    """A function that opens a page from disk and fails on what no page of Hopscope may do.

    That is: ask for anything but itself, raise or log an error, show an empty chart, leave a ``{key}`` in its
    words, or be wider than a phone of 390 pixels.
    """

    def check(path: Path) -> None:
        complaints = _complaints(chromium, path)
        assert not complaints, f"{path.name}: " + "; ".join(complaints)

    return check


@pytest.fixture(scope="session")
def serious_faults() -> Callable[[Page], list[Any]]:
    """A function that gives what axe-core finds on an open page and calls serious or critical."""
    package = pytest.importorskip("axe_playwright_python", reason="the development extra has it")
    script = resources.files(package).joinpath("axe.min.js").read_text(encoding="utf-8")

    def check(page: Page) -> list[Any]:
        page.evaluate(script)
        found = page.evaluate(
            "() => axe.run(document, { resultTypes: ['violations'] }).then(result => result.violations.map("
            "each => [each.id, each.impact, each.nodes.map(node => node.html.slice(0, 160))]))"
        )
        return [each for each in found if each[1] in ("serious", "critical")]

    return check


def _complaints(browser: Browser, path: Path) -> list[str]:
    context = browser.new_context(viewport=WIDE)
    try:
        page = context.new_page()
        found: list[str] = []
        own = path.as_uri()
        page.on("request", lambda request: _note_request(found, own, request.url))
        page.on("pageerror", lambda error: found.append(f"page error: {error}"))
        page.on("console", lambda message: _note_console(found, message.type, message.text))
        page.goto(own, wait_until="load")
        _await_charts(page, found)
        _keep_picture(page, path, "wide")
        found += _contents_complaints(page)
        page.set_viewport_size(PHONE)
        page.reload(wait_until="load")
        _await_charts(page, found)
        _keep_picture(page, path, "phone")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            found.append(f"{width} pixels wide on a screen of {PHONE['width']}")
        return list(dict.fromkeys(found))
    finally:
        context.close()


def _note_request(found: list[str], own: str, url: str) -> None:
    if url.split("#")[0] != own and not url.startswith(("data:", "blob:")):
        found.append(f"request for {url}")


def _note_console(found: list[str], kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        found.append(f"console {kind}: {text}")


def _keep_picture(page: Page, path: Path, screen: str) -> None:
    """Keep a picture of the whole page for whoever wants to see what a test saw; none of the checker's own pages."""
    if os.environ.get("HOPSCOPE_PICTURES") != "1" or page.locator(".page").count() == 0:
        return
    test = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split(" (")[0])
    page.screenshot(path=SCREENSHOTS / f"{test}-{path.stem}-{screen}.png", full_page=True)


def _await_charts(page: Page, found: list[str]) -> None:
    """Charts are drawn, and explorers begin, after loading; a page that has some says when they are done."""
    if page.locator(".chart[data-spec], figure.explorer").count() == 0 or found:
        return
    page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=120_000)


def _contents_complaints(page: Page) -> list[str]:
    found = [
        f"chart {at} of the page is empty"
        for at, marks in enumerate(page.evaluate(_DRAWN_MARKS), start=1)
        if marks == 0
    ]
    undrawn = page.locator(".chart[data-spec]:not(.vega-embed)").count()
    if undrawn:
        found.append(f"{undrawn} charts were not drawn")
    words = page.evaluate("document.body.innerText") + page.evaluate(
        "[...document.querySelectorAll('[title], [aria-label]')]"
        ".map(e => (e.title || '') + ' ' + (e.ariaLabel || '')).join(' ')"
    )
    unresolved = re.findall(r"\{[A-Za-z_][\w.-]*\}", words)
    if unresolved:
        found.append(f"unresolved {', '.join(sorted(set(unresolved)))}")
    return found
