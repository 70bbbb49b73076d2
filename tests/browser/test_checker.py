"""The check of a page must itself fail on bad pages: one bad page per thing it looks for, and a good one."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

CHART = '<div class="vega-embed"><svg><g class="mark-line role-mark">{mark}</g></svg></div>'
BAD_PAGES = {
    "request": (
        '<img src="http://localhost:9/pixel.png" alt="">',
        "request for http://localhost:9/pixel.png",
    ),
    "neighbouring file": ('<link rel="stylesheet" href="other.css">', "request for file:"),
    "script error": ("<script>undefinedName.call()</script>", "page error: undefinedName is not defined"),
    "console error": ('<script>console.error("went wrong")</script>', "console error: went wrong"),
    "empty path": (CHART.format(mark='<path d=""></path>'), "chart 1 of the page is empty"),
    "lone point": (CHART.format(mark='<path d="M3,5"></path>'), "chart 1 of the page is empty"),
    "no marks": (CHART.format(mark=""), "chart 1 of the page is empty"),
    "axes only": (
        CHART.replace("role-mark", "role-axis-grid").format(mark='<line x2="7"></line>'),
        "chart 1 of the page is empty",
    ),
    "unresolved key": ("<p>The loss is {final_loss}.</p>", "unresolved {final_loss}"),
    "unresolved label": ('<p aria-label="at {floor}">words</p>', "unresolved {floor}"),
    "too wide": ('<div style="width: 701px">wide</div>', "pixels wide on a screen of 390"),
}


def _write(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>t</title></head>'
        f"<body>{body}</body></html>",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("name", BAD_PAGES)
def test_bad_page_fails(name, tmp_path, assert_page_is_sound):
    body, complaint = BAD_PAGES[name]
    with pytest.raises(AssertionError) as caught:
        assert_page_is_sound(_write(tmp_path, body))
    assert complaint in str(caught.value)


def test_chart_that_is_never_drawn_fails(tmp_path, assert_page_is_sound):
    ready = '<script>document.documentElement.dataset.charts = "ready"</script>'
    with pytest.raises(AssertionError, match="1 charts were not drawn"):
        assert_page_is_sound(_write(tmp_path, '<div class="chart" data-spec="loss"></div>' + ready))


def test_good_page_passes(tmp_path, assert_page_is_sound):
    assert_page_is_sound(_write(tmp_path, "<p>words</p>" + CHART.format(mark='<path d="M0,0L5,7"></path>')))


def test_missing_browser_skips_unless_it_is_asked_for(tmp_path, require):
    absent = tmp_path / "chromium"
    with pytest.raises(pytest.skip.Exception, match="no Chromium at"):
        require(absent, {})
    with pytest.raises(pytest.fail.Exception, match="asks for it"):
        require(absent, {"HOPSCOPE_REQUIRE_CHROMIUM": "1"})
    absent.touch()
    require(absent, {"HOPSCOPE_REQUIRE_CHROMIUM": "1"})
