"""The page of a real, if short, training run."""

import pytest


@pytest.fixture(scope="module")
def page(whole_run):
    return whole_run / "report.html"


def test_study_page_is_sound(page, assert_page_is_sound):
    assert_page_is_sound(page)


def test_attention_maps_change_with_the_chosen_sequences(page, chromium):
    view = chromium.new_page()
    view.goto(page.as_uri())
    view.wait_for_selector("html[data-charts=ready]", state="attached")
    view.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    choice = view.locator("select[name=sequences_shown]")
    choice.wait_for()
    maps = view.locator(".vega-embed", has=choice).locator("svg g.mark-rect.role-mark path")

    def fills():
        return maps.evaluate_all("marks => marks.map(mark => mark.getAttribute('fill'))")

    before = fills()
    assert len(before) > 45
    choice.select_option("a later x repeats x2")
    view.wait_for_timeout(500)
    after = fills()
    assert len(after) == len(before)
    assert after != before
    view.close()
