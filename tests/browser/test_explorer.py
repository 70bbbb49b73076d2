"""Worked sequences and the explorer in a real browser: the page computes what PyTorch computes, and draws it alike."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from hopscope.models.packing import explorer_model
from hopscope.report.page import build_report
from hopscope.story.worked import worked_block
from hopscope.studies.permutation.probes.worked import worked_sequence

pytestmark = pytest.mark.browser

REPORT_TESTS = Path(__file__).parent.parent / "report"
PLAIN = [2, 3, 1, 5, 4, 4, 3, 2, 5, 1]
PROBE = [2, 4, 5, 3, 4, 5, 3, 2, 2, 4]
NAMES = ("post, relu, 2 heads", "pre, gelu, 3 heads, pair")


def load(name):
    spec = importlib.util.spec_from_file_location(name, REPORT_TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def forward_cases():
    return load("forward_cases")


@pytest.fixture(scope="module")
def page_path(tmp_path_factory, forward_cases):
    """A page with two models in its explorer, and each of them worked on two sequences above it."""
    synthetic = load("synthetic_run")
    run = synthetic.write_synthetic_run(tmp_path_factory.mktemp("explorer") / "runs")
    models = [forward_cases.member(name) for name in NAMES]
    entries = [worked_sequence(model.double(), tokens) for model in models for tokens in (PLAIN, PROBE)]
    block = {
        **synthetic.explorer(),
        "models": [
            explorer_model(model, name, "weights.safetensors")
            for model, name in zip(models, NAMES, strict=True)
        ],
        "sequences": [{"name": "plain", "tokens": PLAIN}, {"name": "probe", "tokens": PROBE}],
    }
    story = synthetic.story()
    worked = [worked_block(entry, file="worked.json", key=f"{at}") for at, entry in enumerate(entries)]
    story["sections"][0]["blocks"] = [*worked, block]
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run], run / "report.html")
    return run / "report.html"


@pytest.fixture
def open_page(chromium):
    contexts = []

    def open_one(path, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        page.goto(path.as_uri())
        return page

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page, page_path):
    page = open_page(page_path)
    yield page
    assert page.complaints == []


def steps(page, figure):
    """The drawn steps without what only a recorded number has: its origin, and the template's line ends."""
    html = page.locator("figure.worked").nth(figure).locator(".steps").inner_html()
    return re.sub(r"\s*\n\s*", "", re.sub(r' title="[^"]*"', "", html))


def test_the_page_computes_what_pytorch_computes(page, forward_cases):
    found = page.evaluate(
        "cases => cases.map(each => hopscopeForward.run(hopscopeForward.load(each.model), each.tokens))",
        forward_cases.cases(),
    )
    forward_cases.compare(found)


def test_page_with_worked_sequences_is_sound(page_path, assert_page_is_sound):
    assert_page_is_sound(page_path)


def test_explorer_draws_as_the_worked_sequences_are_drawn(page):
    explorer = page.locator("figure.explorer")
    for model in (0, 1):
        explorer.locator("[name=model]").select_option(str(model))
        for sequence in (0, 1):
            explorer.locator("[name=preset]").select_option(str(sequence))
            recorded = steps(page, 2 * model + sequence)
            assert recorded.count("<li") == 5
            assert steps(page, 4) == recorded
    assert steps(page, 0) != steps(page, 1) != steps(page, 2) != steps(page, 3)


def test_any_sequence_may_be_typed(page, forward_cases):
    explorer = page.locator("figure.explorer")
    typed = explorer.locator("[name=tokens]")
    typed.fill("31 42 5")
    assert explorer.locator("[name=preset]").input_value() == "own"
    assert explorer.locator(".step").count() == 3
    expected = worked_sequence(forward_cases.member(NAMES[0]).double(), [3, 1, 4, 2, 5, 3, 1, 4, 2])
    for at in range(3):
        shown = explorer.locator(".step").nth(at).locator(".ours").all_text_contents()
        assert [float(text) for text in shown] == pytest.approx(expected["probabilities"][0][at], abs=5e-4)
    summary = explorer.locator(".summary").inner_text()
    assert summary.startswith(f"{NAMES[0]}, 3→1 4→2 5→?: the most probable value is ")
    assert summary.endswith("Several mappings fit.")


def test_attention_of_the_last_x_is_shown_head_by_head(page, forward_cases):
    explorer = page.locator("figure.explorer")
    explorer.locator("[name=preset]").select_option("1")
    rows = explorer.locator(".attention tbody tr")
    assert rows.locator("th").all_text_contents() == ["head 1", "head 2"]
    tokens = explorer.locator(".attention thead .chip").all_text_contents()
    assert [int(token) for token in tokens] == PROBE[:-1]
    names = explorer.locator(".attention thead .role").all_text_contents()
    assert names == ["x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4", "x5"]
    repeat = list(forward_cases.SEQUENCES).index("repeat")
    patterns = forward_cases.expected()[repeat]["patterns"]
    for head in (0, 1):
        cells = rows.nth(head).locator("td")
        shown = [float(text) for text in cells.all_text_contents()]
        assert shown == pytest.approx(patterns[head, -1].tolist(), abs=0.00501)
        heights = cells.locator(".fill").evaluate_all(
            "all => all.map(e => e.clientHeight / e.parentElement.clientHeight)"
        )
        assert heights == pytest.approx(patterns[head, -1].tolist(), abs=0.02)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("23 16", ("1 to 5", "“6” at place 4")),
        ("23 24", ("2→3", "2→4")),
        ("23 13", ("2→3", "1→3")),
        ("", ("Type tokens", "1 to 5")),
        ("23 15 44 32 51 1", ("at most 10", "found 11")),
    ],
)
def test_bad_input_is_one_clear_line_and_breaks_nothing(page, text, parts):
    explorer = page.locator("figure.explorer")
    typed = explorer.locator("[name=tokens]")
    typed.fill(text)
    said = explorer.locator("[role=alert]").inner_text()
    assert all(part in said for part in parts) and "\n" not in said
    assert not explorer.locator(".drawing").is_visible()
    assert explorer.locator(".summary").inner_text() == ""
    typed.fill("23 1")
    assert explorer.locator("[role=alert]").inner_text() == ""
    assert explorer.locator(".step:visible").count() == 2


def test_sides_of_the_split_are_told(page):
    explorer = page.locator("figure.explorer")
    explorer.locator("[name=preset]").select_option("0")
    assert "The mapping is held out" in explorer.locator(".summary").inner_text()
    explorer.locator("[name=preset]").select_option("1")
    assert "one of the training mappings" in explorer.locator(".summary").inner_text()


def test_explorer_works_by_keyboard(page, page_path):
    page.locator("figure.explorer [name=model]").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("figure.explorer .summary").inner_text().startswith(NAMES[1])
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert "2→4 5→3" in page.locator("figure.explorer .summary").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("14")
    page.keyboard.press("Enter")
    assert page.locator("figure.explorer .step").count() == 1
    assert page.url == page_path.as_uri()


def test_without_scripts_the_bars_stay_and_the_explorer_says_why_it_does_not(open_page, page_path):
    page = open_page(page_path, java_script_enabled=False)
    assert page.locator("figure.worked .step:visible").count() == 20
    assert (
        page.locator("figure.explorer noscript p").inner_text().startswith("The explorer computes the model")
    )
    assert not page.locator("figure.explorer form").is_visible()


def test_bars_are_as_long_as_their_probabilities(page):
    step = page.locator("figure.worked").nth(1).locator(".step").nth(4)
    shares = step.locator(".fill").evaluate_all(
        "all => all.map(e => e.clientWidth / e.parentElement.clientWidth)"
    )
    shown = [float(text.lstrip("<>")) for text in step.locator(".ours").all_text_contents()]
    assert shares == pytest.approx(shown, abs=0.01)
    place = step.locator(".tick").nth(3).evaluate("e => e.offsetLeft / e.parentElement.clientWidth")
    assert place == pytest.approx(1.0, abs=0.02)


def test_models_that_do_not_load_are_one_line(tmp_path, open_page):
    synthetic = load("synthetic_run")
    run = synthetic.write_synthetic_run(tmp_path / "runs")
    story = synthetic.story()
    explorers = [
        block for section in story["sections"] for block in section["blocks"] if block["kind"] == "explorer"
    ]
    del explorers[0]["models"][1]["weights"]["readout.bias"]
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run], run / "report.html")
    page = open_page(run / "report.html")
    said = page.locator("figure.explorer [role=alert]").inner_text()
    assert all(part in said for part in ("readout.bias", "shape 6", "null"))
    assert page.locator("figure.explorer form:visible").count() == 0
    assert len(page.complaints) == 1
    page.wait_for_selector("html[data-charts=ready]", state="attached")


def test_numbers_tell_where_they_are_from(tmp_path, open_page):
    synthetic = load("synthetic_run")
    run = synthetic.write_synthetic_run(tmp_path / "runs")
    build_report([run], run / "report.html")
    page = open_page(run / "report.html")
    worked = page.locator("figure.worked").first
    origin = "units/7f/analysis/worked-step-5100.json · sequences.3.probabilities.1"
    assert origin in worked.locator(".origin").inner_text()
    assert worked.locator(".ours").nth(6).get_attribute("title") == f"{origin}.1.1"
    assert worked.locator(".theirs").all_text_contents() == [""] * 6 + ["0.9991", "0.000", "", ""]
    weights = page.locator("figure.explorer .origin").inner_text()
    assert "units/7f/checkpoints/step-000005100.safetensors · member 3" in weights
