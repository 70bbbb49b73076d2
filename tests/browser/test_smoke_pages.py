"""Pages of smoke runs in a real browser: nothing keeps a reader out, nothing leaves the page, nothing foreign runs."""

import functools
import os
import re
from pathlib import Path

import filelock
import pytest

import hopscope as hs

pytestmark = [pytest.mark.browser, pytest.mark.long]

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
STUDIES = ("permutation", "depth", "circuits", "emergence")
SCREENS = [(1280, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A function that gives the page of a study's smoke run, made once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "smoke"
    root.mkdir(exist_ok=True)

    @functools.cache
    def page(study):
        with filelock.FileLock(root / f"{study}.lock"):
            return hs.run(study, "smoke", out=root).path / "report.html"

    return page


@pytest.fixture(scope="module")
def chromium():
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens a page; notes its requests that leave it, and what the console says."""
    contexts = []

    def open_one(path, width=1280, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.heard = []
        page.on("console", lambda said: page.heard.append(said.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("request", lambda asked: page.heard.append(asked.url) if asked.url[:4] == "http" else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=60_000)
        return page

    yield open_one
    for context in contexts:
        context.close()


def violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(each["id"], each["nodes"][0]["html"][:200], len(each["nodes"])) for each in found]


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("study", STUDIES)
def test_a_page_is_for_every_reader_and_stays_by_itself(study, width, scheme, pages, opened):
    path = pages(study)
    assert path.stat().st_size <= 2_000_000
    page = opened(path, width, scheme)
    assert page.heard == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.page") == "ready"
    # A second on a free machine; this one may be busy.
    assert page.evaluate("performance.getEntriesByName('page ready')[0].startTime") < 5_000
    words = page.evaluate("getComputedStyle(document.body).color")
    assert (sum(map(int, re.findall(r"\d+", words)[:3])) < 384) == (scheme == "light")
    assert violations(page) == []
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.wait_for_timeout(300)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


FOREIGN = [
    "<script>window.ran = 1</script>",
    "<svg onload='window.ran = 1'></svg>",
    "<script src='data:text/javascript,window.ran=1'></script>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<a id=bad href='javascript:window.ran=1'>words</a><button id=worse onclick='window.ran=1'>words</button>",
    "<img src='https://example.org/a.png'>",
    "<link rel=stylesheet href='https://example.org/a.css'>",
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_came_from_elsewhere_is_refused(foreign, pages, opened, tmp_path):
    """As if something had got past the escaping of words and data."""
    whole = pages("permutation").read_text(encoding="utf-8")
    assert re.search(r"<main[^>]*>", whole)
    path = tmp_path / "page.html"
    path.write_text(re.sub(r"(<main[^>]*>)", lambda at: at[1] + foreign, whole, count=1), encoding="utf-8")
    page = opened(path)
    for place in page.locator("#bad, #worse").all():
        place.dispatch_event("click")
    for _ in range(100):
        if any("Content Security Policy" in each for each in page.heard):
            break
        page.wait_for_timeout(50)
    assert any("Content Security Policy" in each for each in page.heard), page.heard
    assert page.evaluate("window.ran") is None


def test_a_script_that_is_put_in_later_is_refused(pages, opened):
    page = opened(pages("permutation"))
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = 1' }))"
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None and any("Content Security" in each for each in page.heard)
