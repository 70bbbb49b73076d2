"""The report in a real browser: on wide screens and phones, in light and dark, by keyboard, on paper."""

import importlib.util
import json
from itertools import groupby
from pathlib import Path

import pytest

from hopscope.report.index import IndexRow, build_index
from hopscope.report.page import build_report

pytestmark = pytest.mark.browser

DOCS_RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
RESULTS = sorted(path.parent for path in DOCS_RESULTS.rglob("story.json"))
SYNTHETIC = Path(__file__).parent.parent / "report" / "synthetic_run.py"


@pytest.fixture(scope="module")
def synthetic():
    spec = importlib.util.spec_from_file_location(SYNTHETIC.stem, SYNTHETIC)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run_path(tmp_path_factory, synthetic):
    run = synthetic.write_synthetic_run(tmp_path_factory.mktemp("one") / "runs")
    build_report([run], run / "report.html")
    return run


@pytest.fixture
def open_page(chromium):
    contexts = []

    def open_one(path, ready=True, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.goto(path.as_uri())
        if ready:
            page.wait_for_selector("html[data-charts=ready]", state="attached")
        return page

    yield open_one
    for context in contexts:
        context.close()


def test_report_is_sound(run_path, assert_page_is_sound):
    assert_page_is_sound(run_path / "report.html")


def test_report_of_two_runs_is_sound(run_path, tmp_path, synthetic, assert_page_is_sound, open_page):
    other = synthetic.write_synthetic_run(tmp_path / "runs", digest="7" * 64)
    target = tmp_path / "two.html"
    build_report([run_path, other], target)
    assert_page_is_sound(target)
    page = open_page(target)
    assert page.locator("article.run").count() == 2
    assert page.locator(".chart svg.marks").count() == 6
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)


SCREENS = [
    (1280, "light"),
    (390, "dark"),
    *(pytest.param(*each, marks=pytest.mark.soak) for each in [(1280, "dark"), (390, "light")]),
]


@pytest.mark.extras
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_axe_finds_nothing_serious_on_the_pages_of_several_runs(
    tmp_path, run_path, synthetic, open_page, serious_faults, width, scheme
):
    other = synthetic.write_synthetic_run(tmp_path / "runs", digest="7" * 64)
    build_report([run_path, other], tmp_path / "two.html")
    rows = [IndexRow("permutation", "laptop", run_path, "1 reproduced · 1 refuted · 2 agree so far"),
            IndexRow("", "", other, "", "config.json is missing")]  # fmt: skip
    build_index(rows, tmp_path / "index.html")
    for name in ("two.html", "index.html"):
        page = open_page(
            tmp_path / name,
            ready=name == "two.html",
            viewport={"width": width, "height": 844},
            color_scheme=scheme,
        )
        assert serious_faults(page) == []
        page.evaluate("document.querySelectorAll('main details').forEach(each => { each.open = true; })")
        page.wait_for_timeout(300)
        assert serious_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_report_with_an_emptied_figure_is_not_sound(tmp_path, synthetic, assert_page_is_sound):
    run = synthetic.write_synthetic_run(tmp_path / "runs")
    (run / "figures" / "attention.csv").write_text("head,query,key,weight\n", encoding="utf-8")
    build_report([run], run / "report.html")
    with pytest.raises(AssertionError, match="chart 3 of the page is empty"):
        assert_page_is_sound(run / "report.html")


def test_markup_in_words_and_data_stays_text(tmp_path, synthetic, assert_page_is_sound, open_page):
    run = synthetic.write_synthetic_run(tmp_path / "runs")
    attack = "</script><script>window.broken=1; console.error('ran')</script><!--<script>"
    story = synthetic.story()
    story["title"] = story["sections"][1]["blocks"][1]["alt"] = attack
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    figure = run / "figures" / "attention.csv"
    figure.write_text(
        figure.read_text(encoding="utf-8").replace("layer 1 · head 1", attack), encoding="utf-8"
    )
    build_report([run], run / "report.html")
    assert_page_is_sound(run / "report.html")
    page = open_page(run / "report.html")
    assert page.evaluate("window.broken") is None
    assert page.locator("h1").inner_text() == attack
    assert attack in page.locator(".chart").nth(2).locator("svg.marks text").all_text_contents()


ATTACK = '</script><script>window.broken=1</script><img src=x onerror="window.broken=1"><!--'

# Keys of a run's records whose values are words of a study, a model or a person.
_WORDS = {
    "title", "subtitle", "text", "caption", "heading", "alt", "note", "token", "label", "statement", "source", "words",
    "protocol", "configuration", "measured", "study", "preset", "columns", "rows", "tokens", "name",
}  # fmt: skip


def _planted(value, key=""):
    """The value with an attack at the end of every free text; names of files and of roles stay what they are."""
    if isinstance(value, dict):
        kept = {"name"} if value.get("kind") == "figure" else set()
        return {name: each if name in kept else _planted(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_planted(each, key) for each in value]
    return value + ATTACK if isinstance(value, str) and key in _WORDS else value


def test_a_script_in_any_free_text_runs_nowhere(tmp_path, synthetic, open_page):
    run = synthetic.write_synthetic_run(tmp_path / "runs")
    for name in ("story.json", "claims.json", "config.json"):
        record = json.loads((run / name).read_text(encoding="utf-8"))
        (run / name).write_text(json.dumps(_planted(record)), encoding="utf-8")
    build_report([run], run / "report.html")
    row = IndexRow(ATTACK, ATTACK, run, ATTACK, ATTACK)
    build_index([row], tmp_path / "index.html")
    said = []
    for path in (run / "report.html", tmp_path / "index.html"):
        text = path.read_text(encoding="utf-8")
        assert "onerror" in text and 'onerror="' not in text
        page = open_page(path) if path.stem == "report" else open_page(path, ready=False)
        page.on("console", lambda message: said.append(message.text))
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        page.wait_for_timeout(300)
        assert page.evaluate("window.broken") is None
        assert page.evaluate("document.querySelectorAll('main img').length") == 0
        assert "onerror" in page.locator("main").inner_text()
    assert said == []


def test_contents_lead_to_every_section(run_path, open_page):
    page = open_page(run_path / "report.html")
    targets = page.evaluate("[...document.querySelectorAll('.contents a')].map(a => a.getAttribute('href'))")
    assert len(targets) == 5
    assert all(page.locator(target).count() == 1 for target in targets)


def test_number_tells_its_file_and_key_by_keyboard(run_path, open_page):
    page = open_page(run_path / "report.html")
    number = page.locator("section p .number").first
    assert number.get_attribute("title") == "units/7f/analysis/floors-step-5100.json · elimination"
    number.focus()
    shown = number.evaluate("e => getComputedStyle(e, '::after').content")
    assert "floors-step-5100.json" in shown


def test_charts_are_described_and_can_be_saved_but_not_edited(run_path, open_page):
    page = open_page(run_path / "report.html")
    chart = page.locator(".chart").first
    chart.locator("svg").first.wait_for()
    assert chart.get_attribute("role") == "graphics-document"
    assert "Four loss curves" in chart.get_attribute("aria-label")
    assert chart.locator("[aria-label*='Four loss curves']").count() == 0  # twice would be read out twice
    actions = page.locator(".plot").first.locator(".save button").all_text_contents()
    assert actions == ["SVG", "PNG", "CSV"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_verdicts_keep_contrast(scheme, run_path, open_page):
    page = open_page(run_path / "report.html", color_scheme=scheme)
    verdicts = [f".verdict.verdict-{slug}" for slug in ("reproduced", "refuted", "inconclusive", "not-run")]
    marks = [f".mark-{kind}" for kind in ("target", "used", "recall", "elimination")]
    worked = [".chip-x", ".chip-y", ".chip-asked", ".known", ".theirs", ".legend", ".origin", ".summary"]
    words = ["section > p", "figcaption", ".role-x .role", ".role-y .role", ".source"]
    for selector in [*words, *worked, *marks, *verdicts]:
        ratio = page.locator(selector).first.evaluate(_CONTRAST)
        assert ratio >= 4.5, (selector, ratio)


def test_phone_charts_follow_the_screen(run_path, open_page):
    page = open_page(run_path / "report.html", viewport={"width": 390, "height": 844})
    widths = page.evaluate("[...document.querySelectorAll('svg.marks')].map(e => e.clientWidth)")
    assert len(widths) == 3
    assert all(200 < width <= 350 for width in widths)


@pytest.fixture
def charts_of(tmp_path, synthetic):
    """Builds a page whose attention chart is changed; gives its path."""

    def build(change):
        run = synthetic.write_synthetic_run(tmp_path / "runs")
        path = run / "figures" / "attention.vl.json"
        spec = json.loads(path.read_text(encoding="utf-8"))
        change(spec)
        path.write_text(json.dumps(spec), encoding="utf-8")
        build_report([run], run / "report.html")
        return run / "report.html"

    return build


PHONE = {"viewport": {"width": 390, "height": 844}}


def test_a_chart_much_wider_than_a_phone_is_scrolled_by_keyboard_too(charts_of, open_page, serious_faults):
    def widen(spec):
        spec["encoding"]["column"] = spec["encoding"].pop("facet")
        del spec["encoding"]["column"]["columns"]

    path = charts_of(widen)
    page = open_page(path, **PHONE)
    chart = page.locator(".chart[data-name=attention]")
    natural = chart.evaluate("e => e.querySelector('svg.marks').viewBox.baseVal.width")
    drawn = chart.evaluate("e => e.querySelector('svg.marks').clientWidth")
    assert natural > 500 and drawn >= 0.79 * natural
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    chart.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(50):  # the page's policy lets no test wait by a script of its own
        if chart.evaluate("e => e.scrollLeft") > 0:
            break
        page.wait_for_timeout(100)
    assert chart.evaluate("e => e.scrollLeft") > 0
    assert serious_faults(page) == []
    wide = open_page(path, viewport={"width": 1600, "height": 900}).locator(".chart[data-name=attention]")
    assert wide.get_attribute("tabindex") is None


def test_on_a_phone_long_titles_and_labels_are_whole(charts_of, open_page):
    names = ["a row of a chart whose name is long", "and another"]

    def lengthen(spec):
        del spec["encoding"]["facet"]
        x, y = spec["encoding"]["x"], spec["encoding"]["y"]
        x.update(title="the position that is read, counted from 0, in each of the heads")
        x["axis"] = {"orient": "top", "labelAngle": -30, "labelLimit": 0, "labelExpr": f"'{names[1]}'"}
        y["axis"] = {"labelLimit": 0, "labelExpr": f"'{names[0]}'"}

    page = open_page(charts_of(lengthen), **PHONE)
    chart = page.locator(".chart[data-name=attention]")
    edges = chart.evaluate("e => { const {left, right} = e.getBoundingClientRect(); return [left, right]; }")
    for text in ("in each of the heads", *names):
        inside = chart.locator("text", has_text=text).evaluate_all(
            "all => all.map(e => { const {left, right} = e.getBoundingClientRect(); return [left, right]; })"
        )
        assert inside, text
        assert all(edges[0] - 1 <= left and right <= edges[1] + 1 for left, right in inside), (text, inside)


def test_on_a_phone_long_labels_of_rows_leave_room_for_what_is_drawn(charts_of, open_page):
    def lengthen(spec):
        del spec["encoding"]["facet"]
        spec["encoding"]["y"]["axis"] = {
            "labelLimit": 0,
            "labelExpr": "'seed 0: 5.0 second 4 → first 4 + all second 4'",
        }

    page = open_page(charts_of(lengthen), **PHONE)
    chart = page.locator(".chart[data-name=attention]")
    plot = chart.locator("svg.marks .mark-group.root .background").first
    assert plot.evaluate("e => e.getBoundingClientRect().width") > 0.79 * 180
    assert "scroll" in chart.get_attribute("class")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_paper_shows_what_is_folded(run_path, open_page):
    page = open_page(run_path / "report.html")
    assert page.locator("main details[open]").count() == 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("main details[open]").count() == 5


def test_paper_is_light_in_the_dark(run_path, open_page):
    page = open_page(run_path / "report.html", color_scheme="dark")
    page.emulate_media(media="print")
    for selector in (".role-x .token", ".verdict.verdict-refuted", "section > p", "details summary"):
        assert page.locator(selector).first.evaluate(_CONTRAST) >= 4.5, selector
    assert _luminance(page.evaluate("getComputedStyle(document.documentElement).backgroundColor")) == 1


def _luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# Contrast ratio of WCAG 2.1 between an element's text and the nearest background behind it.
_CONTRAST = """
element => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = channels(colour).slice(0, 3)
      .map(c => c / 255).map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = element;
  while (channels(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const colours = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
  const pair = colours.map(luminance).sort((a, b) => b - a);
  return (pair[0] + 0.05) / (pair[1] + 0.05);
}
"""


LONGEST = {
    max(group, key=lambda run: (run / "story.json").stat().st_size)
    for _, group in groupby(RESULTS, key=lambda run: run.relative_to(DOCS_RESULTS).parts[0])
}
"""Of each study the run with the longest story; the others are looked at by `make soak`."""


@pytest.mark.extras
@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=() if run in LONGEST else pytest.mark.soak) for run in RESULTS],
    ids=lambda run: "-".join(run.parts[-2:]),
)
def test_pages_of_the_committed_results_are_sound(tmp_path, run, assert_page_is_sound):
    build_report([run], tmp_path / "report.html")
    assert_page_is_sound(tmp_path / "report.html")
