"""The page's policy in a real browser: what the page was built with runs, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

from hopscope.report.page import build_report
from hopscope.report.policy import content_security_policy

pytestmark = pytest.mark.browser

SYNTHETIC = Path(__file__).parent.parent / "report" / "synthetic_run.py"


@pytest.fixture
def run_path(tmp_path):
    spec = importlib.util.spec_from_file_location(SYNTHETIC.stem, SYNTHETIC)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.write_synthetic_run(tmp_path / "runs")
    build_report([run], run / "report.html")
    return run


@pytest.fixture
def opened(chromium):
    """Opens a page, and notes in `refused` what its policy kept from running."""
    context = chromium.new_context()

    def open_one(path):
        page = context.new_page()
        page.refused = []
        page.on("console", lambda said: _note(page.refused, said.text))
        page.goto(path.as_uri())
        return page

    yield open_one
    context.close()


def _note(refused, words):
    if "Content Security Policy" in words:
        refused.append(words)


def await_refusal(page):
    """Not by `wait_for_function`, which makes scripts of words, as the policy forbids."""
    for _ in range(200):
        if page.refused:
            return
        page.wait_for_timeout(50)
    raise AssertionError("expected a refusal, found none")


def test_every_chart_is_drawn_and_nothing_is_refused(run_path, opened):
    page = opened(run_path / "report.html")
    page.wait_for_selector("html[data-charts=ready]", state="attached")
    assert page.locator(".chart svg.marks").count() == page.locator(".chart").count() == 3
    assert page.refused == []


@pytest.mark.parametrize(
    "foreign",
    [
        "<script>window.ran = 1</script>",
        "<svg onload='window.ran = 1'></svg>",
        "<script src='data:text/javascript,window.ran=1'></script>",
        "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
        "<a id=bad href='javascript:window.ran=1'>words</a><button id=worse onclick='window.ran=1'>words</button>",
    ],
)
def test_a_script_that_came_from_elsewhere_is_refused(run_path, opened, foreign):
    """As if something had got past the escaping of words and data."""
    path = run_path / "report.html"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace('<main id="content">', f'<main id="content">{foreign}'), encoding="utf-8")
    page = opened(path)
    page.wait_for_selector("html[data-charts=ready]", state="attached")
    for place in page.locator("#bad, #worse").all():
        place.dispatch_event("click")
    await_refusal(page)
    assert page.evaluate("window.ran") is None


def test_a_script_that_is_put_in_later_is_refused(run_path, opened):
    page = opened(run_path / "report.html")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = 1' }))"
    )
    await_refusal(page)
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("attempt", ["eval('window.ran = 1')", "new Function('window.ran = 1')()"])
def test_a_script_of_the_page_can_make_none_of_words(tmp_path, opened, attempt):
    script = f"try {{ {attempt}; }} catch (error) {{ window.caught = error.name; }}"
    policy = content_security_policy([script])
    path = tmp_path / "page.html"
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>t</title><script>{script}</script>",
        encoding="utf-8",
    )
    page = opened(path)
    assert page.evaluate("window.caught") == "EvalError"
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("name", ['a "b", c', "two\nlines", "'; = ; '", "</script>"])
def test_a_csv_is_read_as_it_was_written(run_path, opened, name):
    path = run_path / "figures" / "attention.csv"
    written = '"' + name.replace('"', '""') + '"'
    text = path.read_text(encoding="utf-8")
    assert "layer 1 · head 1" in text
    path.write_text(
        text.replace("layer 1 · head 1", written).replace("\n", "\r\n").rstrip(), encoding="utf-8", newline=""
    )
    build_report([run_path], run_path / "report.html")
    page = opened(run_path / "report.html")
    page.wait_for_selector("html[data-charts=ready]", state="attached")
    shown = page.locator(".chart").nth(2).locator("svg.marks text").all_text_contents()
    assert name.partition("\n")[0] in " ".join(shown)
