"""The explorer in a real browser: what it shows is what PyTorch computes, and every control changes what it should."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import AblateHead, ReplacePattern
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.report.page import build_report
from hopscope.tasks.batch import Batch

pytestmark = pytest.mark.browser

REPORT_TESTS = Path(__file__).parent.parent / "report"
PLAIN = [2, 3, 1, 5, 4, 4, 3, 2, 5]
PROBE = [2, 4, 5, 3, 4, 5, 3, 2, 2]
SIZES = {3: 1.0, 4: 3.0, 5: 2.0}
"""Of the weights of each member."""


def load(name):
    spec = importlib.util.spec_from_file_location(name, REPORT_TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def forward_cases():
    return load("forward_cases")


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """A page whose explorer has three made-up models of two configurations, at three checkpoints."""
    run = load("synthetic_run").write_synthetic_run(tmp_path_factory.mktemp("explorer") / "runs")
    build_report([run], run / "report.html")
    return run / "report.html"


@pytest.fixture
def open_page(chromium):
    contexts = []

    def open_one(path, address=None, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        page.goto(address or path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-charts=ready]", state="attached")
        return page

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page, page_path):
    page = open_page(page_path)
    yield page
    assert page.complaints == []


def member(number, step=5100):
    """One of the page's models in PyTorch, with the weights that the page has."""
    synthetic = load("synthetic_run")
    shape = synthetic.explorer()["shapes"][0]["config"]
    config = TransformerConfig(
        layers=1, heads=1, width=3, mlp_ratio=0.0, norm="none", length=9, input_size=6, output_size=6,
        readout=tuple(shape["readout"]),
    )  # fmt: skip
    weights = synthetic.weights(SIZES[number], step)
    parameters = Parameters(parameter_specs(config), 1)
    parameters.load(
        {
            name: torch.from_numpy(array.astype(np.float16).astype(np.float32))[None]
            for name, array in weights.items()
        }
    )
    return Transformer(config, parameters).member(0)


def probabilities(model, tokens, edits=()):
    """Of each value 1 … 5, by readout."""
    inputs = torch.tensor([tokens + [1] * (9 - len(tokens))])
    places = torch.arange(9)[None]
    batch = Batch(inputs=inputs, targets=torch.zeros(1, 5, dtype=torch.int64), roles={"place": places})
    return model.intervene(batch, list(edits))[0].softmax(-1)[:, 1:]


def shown(panel, column="ours"):
    texts = panel.locator(f".{column}").all_text_contents()
    return [0.0 if text.startswith("<") else float(text.lstrip(">")) for text in texts]


def explorer(page):
    return page.locator("figure.explorer")


def panel(page, number=0):
    return explorer(page).locator(".panel").nth(number)


def test_the_page_computes_what_pytorch_computes(page, forward_cases):
    found = page.evaluate(
        """cases => JSON.parse(JSON.stringify(cases.map(each => hopscopeForward.run(
          hopscopeForward.load(each.config, each.layout, hopscopeForward.unpack(each.weights, "float32")),
          each.inputs, each.edits)), (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value))""",
        forward_cases.cases(),
    )
    forward_cases.compare(found)


def test_the_page_is_sound(page_path, assert_page_is_sound):
    assert_page_is_sound(page_path)


def test_the_answer_is_that_of_model_checkpoint_sequence_and_row(page):
    here = panel(page)
    assert shown(here) == pytest.approx(probabilities(member(4), PLAIN)[4].tolist(), abs=6e-4)
    here.locator("[name=model]").select_option("1")
    assert shown(here) == pytest.approx(probabilities(member(3), PLAIN)[4].tolist(), abs=6e-4)
    here.locator("[name=checkpoint]").fill("1")
    assert shown(here) == pytest.approx(probabilities(member(3, 700), PLAIN)[4].tolist(), abs=6e-4)
    assert here.locator(".now").inner_text() == "step 700"
    explorer(page).locator("[name=example]").select_option("1")
    assert shown(here) == pytest.approx(probabilities(member(3, 700), PROBE)[4].tolist(), abs=6e-4)
    here.locator(".matrix").focus()
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert here.locator(".answer-title").inner_text() == "Answer at row x 3 (4)"
    assert shown(here) == pytest.approx(probabilities(member(3, 700), PROBE)[2].tolist(), abs=6e-4)


def test_pointing_at_a_cell_says_its_weight(page):
    here, canvas = panel(page), panel(page).locator(".matrix")
    inputs = torch.tensor([PLAIN])
    pattern = member(4).cache(inputs)["blocks.0.attn.hook_pattern"][0, 0]
    canvas.focus()
    for back in range(1, 9):
        page.keyboard.press("ArrowLeft")
        said = here.locator(".cell-value").inner_text()
        assert said.startswith(
            f"x 5 (5) reads {'xy'[(8 - back) % 2]} {(8 - back) // 2 + 1} ({PLAIN[8 - back]})"
        )
        assert float(said.rpartition(" ")[2]) == pytest.approx(float(pattern[8, 8 - back]), abs=1e-3)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert "comes later" in here.locator(".cell-value").inner_text()
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] - 8, "y": box["height"] - 8})
    assert here.locator(".cell-value").inner_text().startswith("x 5 (5) reads x 5 (5): ")


@pytest.mark.parametrize(
    ("how", "rows", "edit"),
    [
        ("zero", "all", AblateHead(layer=0, heads=(0,), by="zero")),
        ("uniform", "all", ReplacePattern(layer=0, heads=(0,), by="uniform")),
        ("uniform", "row", ReplacePattern(layer=0, heads=(0,), by="uniform", rows={"place": 8})),
        ("zero", "x", AblateHead(layer=0, heads=(0,), by="zero")),
    ],
)
def test_an_edit_changes_the_answer_as_it_does_in_pytorch(page, how, rows, edit):
    here, model = panel(page), member(4)
    here.locator("[name=rows]").select_option(rows)
    here.locator("[name=how]").select_option(how)
    clean, edited = (probabilities(model, PLAIN, edits)[4].tolist() for edits in ((), (edit,)))
    assert max(abs(a - b) for a, b in zip(clean, edited, strict=True)) > 0.01
    assert shown(here) == pytest.approx(edited, abs=6e-4)
    assert shown(here, "theirs") == pytest.approx(clean, abs=6e-4)
    here.locator(".edits button").click()
    assert shown(here) == pytest.approx(clean, abs=6e-4)
    assert here.locator("[name=how]").input_value() == ""


def test_two_models_stand_side_by_side(page):
    explorer(page).locator("[name=compare]").check()
    assert explorer(page).locator(".panel").count() == 2
    panel(page, 1).locator("[name=model]").select_option("2")
    panel(page, 1).locator("[name=checkpoint]").fill("0")
    for number, model in ((0, member(4)), (1, member(5, 0))):
        assert shown(panel(page, number)) == pytest.approx(probabilities(model, PLAIN)[4].tolist(), abs=6e-4)
    explorer(page).locator("[name=compare]").uncheck()
    assert explorer(page).locator(".panel").count() == 1


def test_a_link_restores_the_view(page, page_path, open_page):
    explorer(page).locator("[name=example]").select_option("1")
    explorer(page).locator("[name=compare]").check()
    panel(page, 1).locator("[name=model]").select_option("2")
    panel(page, 1).locator("[name=checkpoint]").fill("1")
    panel(page, 0).locator("[name=how]").select_option("uniform")
    explorer(page).locator("[name=tokens]").fill("24 53 4")
    again = open_page(page_path, address=page.evaluate("location.href"))
    read = "e => [...e.querySelectorAll('.summary, .now, .edits, .bars')].map(each => each.innerText)"
    assert explorer(again).evaluate(read) == explorer(page).evaluate(read)
    assert explorer(again).locator("[name=tokens]").input_value() == "24 53 4"
    assert again.complaints == []


@pytest.mark.parametrize(
    "view",
    ["e=99&r=99&v=77.1.0.0", "v=4.x.0.0", "v=4.700.9.9", "v=4.700.0.0~0.0.q.all~9.0.z.all~~", "p=9.9_", "t=%3Cb%3E"],
)  # fmt: skip
def test_an_address_that_does_not_fit_breaks_nothing(open_page, page_path, view):
    page = open_page(page_path, address=f"{page_path.as_uri()}#run-1-explorer?{view}")
    assert explorer(page).locator(".panel").count() == 1
    assert page.complaints == []
    assert explorer(page).locator("b").count() == 0


def test_play_goes_through_the_checkpoints_and_stops(page):
    here = panel(page)
    page.clock.install()  # of the page: it moves when the test says so
    here.locator(".play").click()
    assert here.locator(".now").inner_text() == "step 0"
    page.clock.run_for(5_000)
    here.locator(".play:has-text('Play')").wait_for()
    assert here.locator(".now").inner_text() == "step 5,100"


def test_any_sequence_may_be_typed(page):
    explorer(page).locator("[name=tokens]").fill("31 42 5")
    assert explorer(page).locator("[name=example]").input_value() == "own"
    assert shown(panel(page)) == pytest.approx(
        probabilities(member(4), [3, 1, 4, 2, 5])[2].tolist(), abs=6e-4
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("23 17", ("0 1 2 3 4 5", "“7” at place 4")),
        ("23 24", ("2→3", "2→4")),
        ("23 13", ("2→3", "1→3")),
        ("", ("Type 1 to 10",)),
        ("23 15 44 32 51 1", ("at most 10", "found 11")),
    ],
)
def test_bad_input_is_one_clear_line_and_breaks_nothing(page, text, parts):
    typed = explorer(page).locator("[name=tokens]")
    typed.fill(text)
    said = explorer(page).locator("[role=alert]").inner_text()
    assert all(part in said for part in parts) and "\n" not in said
    typed.fill("23 1")
    assert explorer(page).locator("[role=alert]").inner_text() == ""
    assert shown(panel(page)) == pytest.approx(probabilities(member(4), [2, 3, 1])[1].tolist(), abs=6e-4)


def test_marks_are_those_of_the_task(page):
    explorer(page).locator("[name=example]").select_option("1")
    marks = (
        panel(page)
        .locator("tr.bar")
        .evaluate_all("rows => rows.map(row => row.querySelector('.marks').innerText)")
    )
    assert [" ".join(text.split()) for text in marks] == [
        "← elimination", "✕ used", "✕ used", "✓ target ✕ used ← recall", "✕ used",
    ]  # fmt: skip


def test_without_scripts_the_explorer_says_why_it_does_not_run(open_page, page_path):
    page = open_page(page_path, java_script_enabled=False)
    assert explorer(page).locator("noscript p").inner_text().startswith("The explorer computes the models")
    assert not explorer(page).locator("form").is_visible()


def test_weights_that_do_not_load_are_one_line(tmp_path, open_page):
    run = load("synthetic_run").write_synthetic_run(tmp_path / "runs")
    story = json.loads((run / "story.json").read_text(encoding="utf-8"))
    for section in story["sections"]:
        for block in section["blocks"]:
            if block["kind"] == "explorer":
                block["shapes"][0]["config"]["width"] = 2
    (run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run], run / "report.html")
    page = open_page(run / "report.html")
    said = explorer(page).locator("[role=alert]").inner_text()
    assert "embed.token.weight: expected shape 6,2, found 6,3" in said
    assert explorer(page).locator("form:visible").count() == 0
    page.wait_for_selector("html[data-charts=ready]", state="attached")


def test_numbers_tell_where_they_are_from(open_page, page_path):
    page = open_page(page_path)
    worked = page.locator("figure.worked").first
    origin = "units/7f/analysis/worked-step-5100.json · sequences.3.probabilities.1"
    assert origin in worked.locator(".origin").inner_text()
    assert worked.locator(".ours").nth(6).get_attribute("title") == f"{origin}.1.1"
    assert worked.locator(".theirs").all_text_contents() == [""] * 6 + ["0.9991", "0.000", "", ""]
    assert "--explore" in explorer(page).locator(".origin").inner_text()


def test_bars_are_as_long_as_their_probabilities(page):
    shares = (
        panel(page)
        .locator(".fill")
        .evaluate_all("all => all.map(e => e.clientWidth / e.parentElement.clientWidth)")
    )
    assert shares == pytest.approx(shown(panel(page)), abs=0.02)
