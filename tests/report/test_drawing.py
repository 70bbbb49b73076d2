"""Drawings are kept, and never shown for what they are not."""

import json
import shutil

import pytest
import vl_convert

from hopscope.report import drawing
from hopscope.report.page import build_report, mend_drawings, render_all
from hopscope.runs import seals


@pytest.fixture
def drawn(run_path, monkeypatch, circuit_cases):
    """A run whose figures and circuits are drawn, and what is drawn from then on."""
    story = json.loads((run_path / "story.json").read_text())
    story["sections"][0]["blocks"].append(circuit_cases.block())
    (run_path / "story.json").write_text(json.dumps(story))
    render_all(run_path)
    build_report([run_path], run_path / "report.html")
    calls = []
    for name in ("vegalite_to_svg", "svg_to_png"):
        original = getattr(vl_convert, name)

        def counted(*given, _name=name, _original=original, **more):
            calls.append(_name)
            return _original(*given, **more)

        monkeypatch.setattr(vl_convert, name, counted)
    return run_path, calls


def content(run_path):
    kinds = (".svg", ".png", ".html")
    return {path: path.read_bytes() for path in sorted(run_path.rglob("*")) if path.suffix in kinds}


def turn_a_bit(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


def test_what_has_not_changed_is_not_drawn_again(drawn):
    run_path, calls = drawn
    before, said = content(run_path), []
    assert len(render_all(run_path, said.append)) == len(before) - 1
    mend_drawings(run_path, said.append)
    assert (calls, said) == ([], [])
    assert content(run_path) == before


def test_a_drawing_goes_with_its_run(drawn, tmp_path):
    run_path, calls = drawn
    shutil.copytree(run_path, tmp_path / "moved")
    render_all(tmp_path / "moved")
    assert calls == []


@pytest.mark.parametrize("change", ["data", "specification"])
def test_a_figure_that_changed_is_drawn_again_and_no_other(drawn, change):
    run_path, calls = drawn
    before = content(run_path)
    path = run_path / "figures" / ("loss.csv" if change == "data" else "loss.vl.json")
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("0.", "3.", 1) if change == "data" else text.replace("{", '{"title": "7",', 1)
    )
    said = []
    render_all(run_path, said.append)
    assert (calls, said) == (["vegalite_to_svg", "svg_to_png"], [])
    changed = {path.name for path, found in content(run_path).items() if found != before[path]}
    assert changed == {"loss.svg", "loss.png"}


def test_another_renderer_draws_everything_again(drawn, monkeypatch):
    run_path, calls = drawn
    monkeypatch.setattr(drawing, "_renderer", lambda: "another")
    drawings = len(render_all(run_path))
    assert calls.count("svg_to_png") == drawings // 2 > 2


@pytest.mark.parametrize(
    "name", ["figures/loss.svg", "figures/loss.png", "figures/circuit-17.png", "report.html"]
)
@pytest.mark.parametrize("damage", [turn_a_bit, lambda path: path.unlink()], ids=["altered", "gone"])
def test_an_altered_drawing_is_made_again_with_a_word(drawn, name, damage):
    run_path, _ = drawn
    before, said = content(run_path), []
    damage(run_path / name)
    mend_drawings(run_path, said.append)
    assert content(run_path) == before
    if damage is turn_a_bit:
        (line,) = said
        assert (
            line.startswith("hopscope: warning: ") and name.removesuffix(".png").removesuffix(".svg") in line
        )
    else:
        assert said == []


def test_a_drawing_without_a_proof_is_made_again(drawn):
    """As an earlier version left it: it may show anything."""
    run_path, calls = drawn
    before = content(run_path)
    (run_path / "figures" / "loss.svg").write_text("<svg>accuracy 1.0</svg>")
    render_all(run_path)
    assert content(run_path) == before
    assert calls == ["vegalite_to_svg", "svg_to_png"]


def test_drawing_leaves_the_record_as_it_is(run_path):
    seals.begin(run_path)
    before = [path.read_bytes() for path in sorted(run_path.rglob("*")) if path.is_file()]
    for path in run_path.rglob("*"):
        if path.is_file():
            seals.note(path, path.read_bytes())
    noted = (run_path / seals.SEALS).read_bytes()
    assert len(before) > 3 and b"figures/loss.csv" in noted
    for _ in range(2):
        mend_drawings(run_path)
        assert (run_path / seals.SEALS).read_bytes() == noted
    assert seals.altered(run_path) == []
