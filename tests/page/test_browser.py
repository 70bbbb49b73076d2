"""Pages in a real browser: they are whole on every screen, fetch nothing, and do what a reader asks of them."""

import pytest
from tests.page.conftest import claims
from tests.page.test_explorer import make_live

from hopscope.page.page import page

SOUND = """() => ({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    charts: document.querySelectorAll(".chart[data-spec]").length,
    drawn: [...document.querySelectorAll(".chart svg")]
        .filter(each => !/NaN/.test(each.innerHTML) && each.querySelectorAll("path, rect, text").length > 3).length,
    ids: [...document.querySelectorAll("[id]")].map(each => each.id).filter((id, at, all) => all.indexOf(id) !== at),
    lost: [...document.querySelectorAll("a[href^='#']")].map(each => decodeURIComponent(each.hash.slice(1)))
        .filter(id => !document.getElementById(id)),
    nameless: [...document.querySelectorAll("button, input, select, [role=img], [role=button]")]
        .filter(each => !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).length,
    levels: [...document.querySelectorAll("h1, h2, h3, h4")].map(each => Number(each.tagName[1])),
    code: window.attacked,
})"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("kind", ["run", "several"])
def test_a_page_is_sound(width, scheme, kind, make, visit):
    first = make_live(make) if kind == "run" else make("a" * 12, claims=claims())
    text = page(first) if kind == "run" else page(first, make("b" * 12, preset="full", claims=claims()))
    opened = visit(text, width, scheme)
    found = opened.evaluate(SOUND)
    assert found["wide"] <= 0 and found["charts"] == found["drawn"] > 0
    assert not found["ids"] and not found["lost"] and not found["nameless"]
    assert found["levels"][0] == 1 and found["levels"].count(1) == 1
    assert all(
        after - before <= 1 for before, after in zip(found["levels"], found["levels"][1:], strict=False)
    )
    assert opened.evaluate("document.documentElement.dataset.page") == "ready"
    assert opened.evaluate("performance.getEntriesByName('page ready')[0].startTime") < 10_000


def test_the_first_screen_says_what_came_out(make, visit):
    opened = visit(page(make(claims=claims())))
    for words in (
        "holds here in 5 of 6 members",
        "fails here",
        "Of the source (Musat 2024, Figure 3): inconclusive",
    ):
        place = opened.get_by_text(words).first.bounding_box()
        assert place["y"] + place["height"] < 900


def test_it_can_be_read_with_the_keyboard(make, visit):
    opened = visit(page(make_live(make)))
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    for _ in range(120):
        opened.keyboard.press("Tab")
        if opened.evaluate("document.activeElement.matches('.number')"):
            break
    title = opened.evaluate("document.activeElement.title")
    assert title.startswith("evidence.parquet · ")
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate("document.activeElement.title") != title
    canvas = opened.locator("figure.explorer canvas")
    canvas.focus()
    opened.keyboard.press("ArrowDown")
    assert "reads" in opened.locator("figure.explorer .cell-value").inner_text()


def test_an_arrow_goes_to_the_next_number_of_its_part(make, visit):
    template = (
        "# A\n\nWhy?\n\n# The numbers\n\n## One\n\n{{ table(['loss']) }}\n\n## Two\n\n{{ table(['loss']) }}"
    )
    opened = visit(page(make(template=template)))
    opened.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    parts = opened.locator("section .part").all()
    assert len(parts) == 2
    for part in parts:
        numbers = part.locator(".number")
        assert numbers.count() > 2 and part.locator(".number[tabindex='0']").count() == 1
        numbers.first.focus()
        for place in (1, 2):
            opened.keyboard.press("ArrowRight")
            assert numbers.nth(place).evaluate("each => each === document.activeElement")


def test_a_circuit_stands_beside_the_answer(make, visit):
    asked = "{% call answer(figure_names[:1], circuit=True) %}So it is.{% endcall %}"
    template = f"# Chains\n\nWhy?\n\n{asked}\n\n{{{{ circuits() }}}}"
    lead = visit(page(make_live(make, template=template))).locator(".lead")
    assert lead.locator(".chart svg").count() == lead.locator(".circuit-graph").count() == 1
    assert "2 layers, seed 11" in lead.inner_text() and not lead.locator("[data-path], [role=button]").count()
    assert 'class="lead"' not in page(make("c" * 12, template=template))


def test_the_circuit_is_walked_read_by_read_and_saved(make, visit):
    opened = visit(page(make_live(make)))
    player = opened.locator("figure.circuits")
    assert "Read 1 of 3. Layer 1, head 1.0" in player.locator(".walked").inner_text()
    player.locator(".next").click()
    player.locator(".next").click()
    assert (
        "Read 3 of 3. Layer 4, head 4.0: query (here A) reads second 1 (here <B>)."
        in player.locator(".walked").inner_text()
    )
    player.locator('.tag[data-path="0"]').focus()
    opened.keyboard.press("Enter")
    assert player.locator(".tag.is-chosen").get_attribute("data-path") == "0"
    assert player.locator(".tag.is-user").get_attribute("data-path") == "1"
    wide = [player.locator(".path[data-path='0'] .lane").first.get_attribute("stroke-width") for _ in [0]]
    player.locator("input[name=checkpoint]").fill("0")
    assert player.locator("output").inner_text() == "step 0: loss x₁ 1.00"
    assert float(player.locator(".path[data-path='0'] .lane").first.get_attribute("stroke-width")) < float(
        wide[0]
    )
    player.locator(".save summary").click()
    with opened.expect_download() as saved:
        player.get_by_role("button", name="SVG").click()
    text = saved.value.path().read_text()
    assert text.startswith("<svg") and "var(" not in text


def test_the_explorer_moves_through_training_and_its_address_keeps_the_view(make, visit):
    text = page(make_live(make))
    opened = visit(text)
    figure = opened.locator("figure.explorer")
    figure.locator("select[name=head]").select_option("0.1")
    figure.locator("input[name=checkpoint]").fill("0")
    figure.locator("select[name=example]").select_option("1")
    figure.locator("input[name=compare]").check()
    words = figure.locator(".summary").all_inner_texts()
    assert len(words) == 2 and all("step 0. In head 0.1" in each for each in words)
    again = visit(text, at=opened.url[opened.url.index("#") :])
    assert again.locator("figure.explorer .summary").all_inner_texts() == words
    assert again.locator("figure.explorer select[name=example]").input_value() == "1"
    for wrong in (
        "#run-1-explorer?%7B",
        "#run-1-explorer?5",
        '#run-1-explorer?{"views":[{"member":0,"layer":99,"head":0}],"row":-1}',
    ):
        assert visit(text, at=wrong).locator("figure.explorer .summary").count() == 1
