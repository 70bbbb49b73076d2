"""The circuit player in a real browser: time, choice, attention maps and ablation bars, by pointer and by keyboard."""

import importlib.util
import json
from datetime import datetime
from pathlib import Path

import pytest

from hopscope.report.circuit_graph import edge_width
from hopscope.report.page import build_report

pytestmark = pytest.mark.browser

REPORT_TESTS = Path(__file__).parent.parent / "report"


def load(name):
    spec = importlib.util.spec_from_file_location(name, REPORT_TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cases():
    return load("circuit_cases")


@pytest.fixture(scope="module")
def page_path(tmp_path_factory, cases):
    """A page with one circuit block of two circuits, and one of a single circuit that was never learned."""
    synthetic = load("synthetic_run")
    run = synthetic.write_synthetic_run(tmp_path_factory.mktemp("circuit") / "runs")
    story = synthetic.story()
    story["sections"] = story["sections"][:1]
    story["sections"][0]["blocks"] = [cases.block(), cases.block(cases.never_learned())]
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run], run / "report.html")
    return run / "report.html"


@pytest.fixture
def open_page(chromium, page_path):
    contexts, complaints = [], []

    def open_one(**options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.clock.install(time=datetime(2030, 1, 1))
        page.goto(page_path.as_uri())
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(open_page):
    return open_page()


@pytest.fixture
def player(page):
    return page.locator("figure.circuit").first


def move_to(player, checkpoint):
    player.locator("[name=checkpoint]").fill(str(checkpoint))


def view_of(player):
    return player.locator(".circuit-view:visible")


def lane(player, path):
    return view_of(player).locator(f".circuit-graph .path[data-path='{path}'] .lane").first


def tag(player, path):
    return view_of(player).locator(f".circuit-graph .tag[data-path='{path}']")


def test_page_with_circuits_is_sound(page_path, assert_page_is_sound):
    assert_page_is_sound(page_path)


# Time.


def test_slider_changes_widths_map_marker_and_words(player, cases):
    def drawn():
        svg = view_of(player)
        return svg.locator(".path-map image").get_attribute("href"), svg.locator(".now").get_attribute("x1")

    seen = []
    for checkpoint in (0, 4, 6):
        move_to(player, checkpoint)
        for path in (0, 7):
            width = float(lane(player, path).get_attribute("stroke-width"))
            assert width == pytest.approx(edge_width(cases.attention(path, checkpoint), 1.0), abs=0.006)
        seen.append(drawn())
    assert len({href for href, _ in seen}) == len({place for _, place in seen}) == 3
    move_to(player, 4)
    assert player.locator(".circuit-now").inner_text() == "step 130 · loss x₁ 0.090, x₂ 0.740"
    said = player.locator("[name=checkpoint]").get_attribute("aria-valuetext")
    assert said == "step 130 · loss x₁ 0.090, x₂ 0.740"


def test_player_starts_at_the_checkpoint_that_was_read(player):
    assert player.locator("[name=checkpoint]").input_value() == "6"
    before = float(lane(player, 7).get_attribute("stroke-width"))
    move_to(player, 0)
    move_to(player, 6)
    assert float(lane(player, 7).get_attribute("stroke-width")) == before


def test_play_goes_through_all_checkpoints_and_stops(page, player):
    slider, play = player.locator("[name=checkpoint]"), player.locator(".play")
    # From here on time passes only where the test lets it.
    page.clock.pause_at(datetime(2031, 1, 1))
    play.click()
    assert slider.input_value() == "0"
    assert "Pause" in play.inner_text()
    page.clock.run_for(2000)
    assert slider.input_value() == "2"
    play.click()
    page.clock.run_for(5000)
    assert slider.input_value() == "2" and "Play" in play.inner_text()
    play.click()
    page.clock.run_for(20000)
    assert slider.input_value() == "6" and "Play" in play.inner_text()


# Choice.


def test_edge_shows_its_map_rule_and_bars(page, player):
    view_of(player).locator(".circuit-graph").scroll_into_view_if_needed()
    # Where the edge is and no tag covers it.
    where = lane(player, 2).evaluate(
        """way => {
          const point = way.getPointAtLength(0.2 * way.getTotalLength()), matrix = way.getScreenCTM();
          return [matrix.a * point.x + matrix.e, matrix.d * point.y + matrix.f];
        }"""
    )
    page.mouse.click(*where)
    panel = view_of(player).locator(".circuit-path")
    assert panel.locator(".path-title").inner_text() == "Head 2.0: query reads second 1"
    facts = panel.locator(".path-facts dd").all_inner_texts()
    assert facts[0] == "second 1 (one hop along its chain)."
    assert facts[1] == "x₁ and position. This makes hop 1."
    label = panel.locator(".path-map svg").get_attribute("aria-label")
    assert label.startswith("Attention of head 2.0 on the example sequence. Rows of query read second 1")
    chosen = view_of(player).locator("[data-path='2'].is-chosen")
    assert chosen.count() == 3  # edge, tag, line of the chart
    assert tag(player, 2).get_attribute("aria-pressed") == "true"
    assert tag(player, 8).get_attribute("aria-pressed") == "false"


def test_map_is_the_attention_of_the_sequence(player, cases):
    move_to(player, 3)
    tag(player, 4).click()
    shades = (
        view_of(player)
        .locator(".path-map image")
        .evaluate(
            """async image => {
          const source = new Image();
          source.src = image.getAttribute("href");
          await source.decode();
          const canvas = document.createElement("canvas");
          canvas.width = source.width; canvas.height = source.height;
          const context = canvas.getContext("2d");
          context.drawImage(source, 0, 0);
          return [...context.getImageData(0, 0, source.width, source.height).data].filter((_, at) => at % 4 === 3);
        }"""
        )
    )
    assert len(shades) == cases.POSITIONS**2
    expected = [
        cases.pattern((2, 2), 3, row, key) for row in range(cases.POSITIONS) for key in range(cases.POSITIONS)
    ]
    # The more attention, the less of the paper shows through.
    ordered = [shade for _, shade in sorted(zip(expected, shades, strict=True), key=lambda both: both[0])]
    assert ordered == sorted(ordered)
    assert shades[expected.index(0)] == 0 and max(shades) > 195


def test_map_outlines_what_the_rule_names_and_veils_other_rows(player, cases):
    tag(player, 2).click()
    svg = view_of(player).locator(".path-map svg")
    frame = svg.locator("image").bounding_box()
    cell = frame["width"] / cases.POSITIONS
    found = []
    for box in svg.locator(".named").evaluate_all("all => all.map(e => e.getBoundingClientRect().toJSON())"):
        middle = box["x"] + box["width"] / 2 - frame["x"], box["y"] + box["height"] / 2 - frame["y"]
        found.append((int(middle[1] / cell), int(middle[0] / cell)))
    assert found == cases.CELLS[2]
    assert svg.locator(".veil").count() == 8  # all rows but three queries
    tag(player, 1).click()
    assert svg.locator(".named").count() == 0 and svg.locator(".veil").count() == 9


def test_pointing_at_a_cell_says_its_value(page, player, cases):
    tag(player, 2).click()
    view_of(player).locator(".path-map").scroll_into_view_if_needed()
    frame = view_of(player).locator(".path-map image").bounding_box()
    cell = frame["width"] / cases.POSITIONS
    page.mouse.move(frame["x"] + 5.5 * cell, frame["y"] + 9.5 * cell)
    share = cases.pattern((2, 0), 6, 9, 5) / 255
    said = view_of(player).locator(".path-cell").inner_text()
    assert all(part in said for part in ("place 10", "place 6", f"{share:.2f}"))


def test_bars_stand_beside_what_is_left_and_random_circuits(player, cases):
    tag(player, 7).click()
    rows = view_of(player).locator(".path-losses tbody tr")
    texts = [" ".join(text.split()) for text in rows.all_inner_texts()]
    assert texts == [
        "rules 0.600 0.040",
        "clean 0.750 0.030",
        "recomputed 0.650 0.060",
        "random circuits 0.95 (0.61–2.30)",
    ]
    shares = rows.locator(".fill").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width / e.parentElement.clientWidth)"
    )
    assert shares == pytest.approx([loss / 1.05 for loss in (0.6, 0.75, 0.65)], abs=0.01)
    ticks = rows.locator(".tick").evaluate_all("all => all.map(e => parseFloat(e.style.left))")
    assert ticks == pytest.approx([100 * loss / 1.05 for loss in (0.04, 0.03, 0.06)], abs=0.01)


def test_path_that_costs_most_is_shown_first_and_its_users_are_marked(player):
    assert tag(player, 8).get_attribute("aria-pressed") == "true"
    tag(player, 0).click()
    users = view_of(player).locator(".tag.is-user")
    assert users.evaluate_all("all => all.map(e => e.dataset.path)") == ["7"]
    assert view_of(player).locator(".path-facts dd").nth(2).inner_text() == "keys of 4.0 (query) (+0.41)"


def test_two_heads_of_a_layer_show_their_own_maps(player):
    images = []
    for path in (7, 8):
        tag(player, path).click()
        images.append(view_of(player).locator(".path-map image").get_attribute("href"))
    assert images[0] != images[1]
    titles = view_of(player).locator(".path-title")
    assert titles.inner_text() == "Head 4.2: query reads second 2"


def test_a_player_without_maps_shows_what_a_path_costs(chromium, tmp_path, cases):
    run = load("synthetic_run").write_synthetic_run(tmp_path / "runs")
    story, block = load("synthetic_run").story(), cases.block()
    for each in block["circuits"]:
        each["view"]["maps"] = None
    story["sections"] = story["sections"][:1]
    story["sections"][0]["blocks"] = [block]
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run], run / "report.html")
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page, complaints = context.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((run / "report.html").as_uri())
    player = page.locator("figure.circuit")
    tag(player, 8).click()
    assert view_of(player).locator(".path-losses tbody tr").count() == 4
    assert view_of(player).locator(".path-map").count() == 0
    player.locator("[name=checkpoint]").focus()
    page.keyboard.press("Home")
    assert player.locator(".circuit-now").inner_text().startswith("step 0 ")
    context.close()
    assert complaints == []


def test_player_works_by_keyboard(page, player):
    player.locator("[name=checkpoint]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert player.locator(".circuit-now").inner_text().startswith("step 10 ")
    tag(player, 3).focus()
    page.keyboard.press("Enter")
    assert view_of(player).locator(".path-title").inner_text() == "Head 2.1: query reads all first 2"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert view_of(player).locator(".path-title").inner_text().startswith("Head 2.2: second 2 ")
    view_of(player).locator(".circuit-paths button").nth(6).focus()
    page.keyboard.press("Enter")
    assert view_of(player).locator(".path-title").inner_text() == "Head 3.1: second 1 reads any"
    assert view_of(player).locator(".circuit-paths tr.is-chosen").count() == 1


def test_another_circuit_can_be_chosen(player):
    assert view_of(player).count() == 1
    assert view_of(player).locator(".tag").count() == 9
    move_to(player, 2)
    player.locator("[name=circuit]").select_option("1")
    assert view_of(player).locator(".tag").count() == 3
    assert player.locator(".circuit-now").inner_text().startswith("step 190 ")
    assert view_of(player).locator(".path-title").inner_text() == "Head 4.0: query reads second 2"
    player.locator("[name=circuit]").select_option("0")
    assert player.locator(".circuit-now").inner_text().startswith("step 50 ")


def test_a_model_without_a_circuit_is_shown_without_a_path(page):
    player = page.locator("figure.circuit").nth(1)
    assert player.locator(".circuit-controls").is_visible()
    assert player.locator("[name=circuit]").count() == 0
    assert not player.locator(".circuit-path").is_visible()
    assert "no circuit: above plateau" in player.locator(".circuit-found").inner_text()


# Everywhere.


def test_without_scripts_graph_and_table_stay(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".circuit-graph:visible").count() == 3
    assert page.locator(".circuit-timeline:visible").count() == 3
    assert page.locator(".circuit-paths tbody tr:visible").count() == 12
    assert (
        page.locator(".circuit-controls:visible, .circuit-path:visible, .needs-script:visible").count() == 0
    )


def test_phone_shows_the_whole_graph(open_page):
    page = open_page(viewport={"width": 390, "height": 844})
    graph = page.locator(".circuit-graph").first
    box, card = graph.bounding_box(), graph.locator("xpath=../..").bounding_box()
    assert card["x"] <= box["x"] and box["x"] + box["width"] <= card["x"] + card["width"]
    # Letters of 11.5 units stay letters.
    size = graph.evaluate("e => 11.5 * e.getBoundingClientRect().width / e.viewBox.baseVal.width")
    assert size > 7.7


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_keep_contrast(scheme, open_page):
    contrast = load_contrast()
    page = open_page(color_scheme=scheme)
    for selector in (".circuit-help", ".circuit-found", ".circuit-now", ".play", ".path-title", ".path-facts dt",
                     ".path-cell", ".path-modes", ".table-note", ".circuit-paths button"):  # fmt: skip
        assert page.locator(f"figure.circuit >> {selector}").first.evaluate(contrast) >= 4.5, selector


@pytest.mark.parametrize(("scheme", "media", "dark"), [
    ("light", "screen", False), ("dark", "screen", True), ("dark", "print", False),
])  # fmt: skip
def test_drawings_follow_the_theme_and_paper_without_being_drawn_again(open_page, scheme, media, dark):
    page = open_page()
    page.emulate_media(color_scheme=scheme, media=media)
    luminance = """e => {
      const [r, g, b] = getComputedStyle(e).fill.match(/[\\d.]+/g).map(Number);
      return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
    }"""
    for ink in (".circuit-graph text", ".circuit-timeline text", ".path-map text"):
        found = page.locator(f"figure.circuit >> {ink}").first.evaluate(luminance)
        assert found > 0.7 if dark else found < 0.3, ink
    for paper in (".circuit-graph .tag:not(.is-chosen) rect",):
        found = page.locator(f"figure.circuit >> {paper}").first.evaluate(luminance)
        assert found < 0.3 if dark else found > 0.9, paper
    # Much attention is dark on light paper, and light on dark.
    ramp = page.locator("figure.circuit >> .path-map [mask]").first.evaluate(luminance)
    assert ramp > 0.6 if dark else ramp < 0.3


def test_a_circuit_is_saved_in_light_colours_with_its_data(open_page, cases):
    page = open_page(color_scheme="dark")
    box = page.locator("figure.circuit .circuit-view").first
    box.locator(".save summary").click()
    saved = {}
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as download:
            box.get_by_role("button", name=kind).click()
        saved[kind] = Path(download.value.path()).read_bytes()
    assert (
        download.value.suggested_filename == f"circuit-{cases.block()['circuits'][0]['view']['member']}.csv"
    )
    assert b"var(" not in saved["SVG"] and b"#1f2933" in saved["SVG"]
    assert saved["PNG"].startswith(b"\x89PNG")
    assert saved["CSV"].decode().splitlines()[0].startswith("head,rows,read,carries,attention")
    assert len(saved["CSV"].decode().splitlines()) == 1 + len(cases.PATHS)


def load_contrast():
    spec = importlib.util.spec_from_file_location("test_report", Path(__file__).with_name("test_report.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._CONTRAST


def test_a_short_block_names_its_roles_one_below_the_other(page):
    tokens = [{"label": "f", "chain": "a"}] * 40
    blocks = [
        "given 1, found 1",
        "given 2, equals 2, found 2",
        "query 2, word 2 “?”, word 2 “Say”, word 2 “.”",
    ]
    said = page.evaluate(
        """([tokens, blocks]) => {
            const path = { rows: [], cells: [], head: "0.0", query: "", reads: "" };
            const groups = blocks.map((words, at) => ({ words, start: 6 * at, end: 6 * at + 5 }));
            const svg = hopscopeMap.map(tokens, groups, path, new Uint8Array(1600));
            return [...svg.querySelectorAll("text")].map(each => each.textContent);
        }""",
        [tokens, blocks],
    )
    # Below the map there is room for three lines, beside it for two.
    assert said[:4] == ["given 1", "found 1", "given 1", "found 1"]
    assert said[4:9] == ["given 2", "equals 2", "found 2", "given 2 …", "found 2"]
    assert said[9:13] == ["query 2 …", "word 2 “.”"] * 2
