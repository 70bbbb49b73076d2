import csv
import io
import json
import struct

from hopscope.report.figures import figure_names
from hopscope.report.page import render_all


def test_drawing_is_deterministic_and_png_is_twice_as_large(run_path):
    figures = run_path / "figures"
    names = sorted(path.name.removesuffix(".vl.json") for path in figures.glob("*.vl.json"))
    paths = render_all(run_path)
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
    first = [path.read_bytes() for path in paths]
    render_all(run_path)
    assert [path.read_bytes() for path in paths] == first
    svg, png = first[2].decode(), first[3]
    width = int(svg.split('width="')[1].split('"')[0])
    assert struct.unpack(">I", png[16:20])[0] == 2 * width
    assert svg.count("role-mark") >= 3
    assert figure_names(figures) == names


def test_circuits_of_the_page_are_pictures_too(run_path, circuit_cases):
    story = json.loads((run_path / "story.json").read_text())
    story["sections"][0]["blocks"].append(circuit_cases.block())
    (run_path / "story.json").write_text(json.dumps(story))
    views = [named["view"]["member"] for named in circuit_cases.block()["circuits"]]
    paths = render_all(run_path)
    for member in views:
        assert run_path / "figures" / f"circuit-{member}.png" in paths
        svg = (run_path / "figures" / f"circuit-{member}.svg").read_text()
        assert svg.startswith("<svg")
        assert "var(" not in svg and "#1f2933" in svg  # a file has colours, not the page's variables


def test_the_data_of_a_circuit_lie_beside_its_picture(run_path, circuit_cases):
    story = json.loads((run_path / "story.json").read_text())
    block = circuit_cases.block()
    story["sections"][0]["blocks"].append(block)
    (run_path / "story.json").write_text(json.dumps(story))
    render_all(run_path)
    view = block["circuits"][-1]["view"]  # of one member's circuits the last
    path = run_path / "figures" / f"circuit-{view['member']}.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [row["head"] for row in rows] == [f"{each['layer']}.{each['head']}" for each in view["paths"]]
    removed = [float(row["loss without it: clean"]) for row in rows]
    assert removed == [each["loss_if_removed"]["clean"] for each in view["paths"]]
    assert {row["drawn"] for row in rows} == {"yes"}
    path.write_text("head\n")
    render_all(run_path)
    assert list(csv.DictReader(io.StringIO(path.read_text()))) == rows
