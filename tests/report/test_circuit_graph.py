"""The circuit's picture: where things stand, what they look like, and that the same circuit is the same bytes."""

import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.report.circuit_graph import (
    THICKEST,
    THINNEST,
    circuit_svg,
    edge_width,
    path_colour,
    symbol_colour,
    write_circuit_picture,
)
from hopscope.report.circuit_layout import COLUMN, GUTTER, LANE, TAG_HEIGHT, graph_width, layout, tag_width
from hopscope.report.circuit_timeline import timeline_places, timeline_svg
from hopscope.report.circuit_words import head_name
from hopscope.report.circuits import CircuitView
from hopscope.report.svg import text_width
from hopscope.report.theme import CATEGORY

NS = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def view(circuit_cases):
    return CircuitView.model_validate(circuit_cases.view())


def groups(svg, kind):
    """The groups of one class by number of their path."""
    return {
        int(each.get("data-path")): each
        for each in ET.fromstring(svg).iter(f"{NS}g")
        if each.get("class") == kind
    }


def lanes(group):
    return [each for each in group.iter(f"{NS}path") if each.get("class") == "lane"]


def said(element):
    return "".join(element.itertext()).replace("\N{WORD JOINER}", "")


# Layout.


def test_edges_go_up_from_what_is_read_to_who_reads(view):
    graph = layout(view)
    assert list(graph.columns.values()) == [GUTTER + COLUMN * (at + 0.5) for at in range(5)]
    assert [band.layer for band in graph.bands] == [0, 1, 2, 3, 4]
    assert all(below.top == above.bottom for below, above in zip(graph.bands, graph.bands[1:], strict=False))
    for edge in graph.edges:
        path, band = view.paths[edge.path], graph.bands[view.paths[edge.path].layer]
        assert edge.end[1] == band.top < edge.lane < band.bottom
        assert abs(edge.end[0] - graph.columns[path.query_role]) < COLUMN / 2
        if not edge.loose:
            assert edge.start[1] == band.bottom
            assert abs(edge.start[0] - graph.columns[path.targets[edge.target].role]) < COLUMN / 2
        else:
            assert band.top < edge.start[1] < band.bottom


def test_long_names_have_wide_columns(circuit_cases):
    name = "word 2 “directly” and on"
    told = json.dumps(circuit_cases.view(), ensure_ascii=False).replace(
        '"query"', json.dumps(name, ensure_ascii=False)
    )
    renamed = CircuitView.model_validate_json(told)
    at = renamed.rows.index(name)
    middles = list(layout(renamed).columns.values())
    assert middles[:at] == [GUTTER + COLUMN * (number + 0.5) for number in range(at)]
    wide = 2 * (middles[at] - GUTTER - COLUMN * at)
    assert wide > text_width(name) > COLUMN
    assert graph_width(renamed) - layout(renamed).columns[name] > wide / 2
    usual = CircuitView.model_validate(circuit_cases.view())
    assert graph_width(renamed) == pytest.approx(graph_width(usual) + wide - COLUMN)


def test_every_target_has_an_edge_and_every_path_a_tag(view):
    graph = layout(view)
    assert [(edge.path, edge.target) for edge in graph.edges] == [
        (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0), (6, 0), (7, 0), (8, 0)
    ]  # fmt: skip
    assert [edge.path for edge in graph.edges if edge.loose] == [1, 5, 6]
    assert [(edge.path, edge.target) for edge in graph.edges if edge.read.every] == [(3, 0), (4, 1)]
    assert [head_name(tag.shown) for tag in graph.tags] == [
        "0.1",
        "0.2",
        "2.0",
        "2.1",
        "2.2",
        "3.1",
        "3.1",
        "4.0",
        "4.2",
    ]
    assert graph.readouts == ("query",)


def test_layers_without_a_path_are_low(view):
    heights = [band.bottom - band.top for band in layout(view).bands]
    assert [band.used for band in layout(view).bands] == [True, False, True, True, True]
    assert heights[1] < 0.4 * min(heights[:1] + heights[2:])


def test_two_heads_that_do_the_same_are_two_edges(view):
    one, other = (edge for edge in layout(view).edges if edge.path in (7, 8))
    assert abs(one.start[0] - other.start[0]) > 5.0 and abs(one.end[0] - other.end[0]) > 5.0
    assert abs(one.lane - other.lane) >= LANE


def test_two_heads_that_do_the_same_do_not_cross(view):
    """They go left: the one that begins further right is higher, and ends further right."""
    one, other = sorted((edge for edge in layout(view).edges if edge.path in (7, 8)), key=lambda e: e.start)
    assert one.lane > other.lane and one.end[0] < other.end[0]


def assert_tags_are_apart(graph):
    for at, one in enumerate(graph.tags):
        width = tag_width(one.shown)
        assert one.tag - width / 2 > 0.0 and one.tag + width / 2 < graph.width
        for other in graph.tags[at + 1 :]:
            apart = abs(one.tag - other.tag) - (width + tag_width(other.shown)) / 2
            assert apart > 0 or abs(one.lane - other.lane) > TAG_HEIGHT


def assert_lanes_are_free(graph):
    """No two edges lie on each other along a lane, and no tag stands on the lane of another edge."""
    stretches = []
    for edge in graph.edges:
        ends = [edge.start[0], edge.end[0]]
        if edge.target == 0:
            width = tag_width(edge.shown)
            ends += [edge.tag - width / 2, edge.tag + width / 2]
        stretches.append((edge.lane, min(ends), max(ends)))
    for at, (lane, left, right) in enumerate(stretches):
        for other, from_, to in stretches[at + 1 :]:
            assert lane != other or right <= from_ or to <= left


def random_path(circuit_cases):
    roles = st.sampled_from(circuit_cases.ROWS)
    targets = st.one_of(
        st.tuples(st.just("hop_1"), roles),
        st.tuples(st.just("over_role"), roles.map(lambda role: f"all {role}")),
        st.tuples(st.just("mean_map"), st.none()),
        st.tuples(
            st.just("previous 30% + over_role"),
            st.tuples(roles, roles).map(lambda two: f"{two[0]} + all {two[1]}"),
        ),
        st.tuples(st.just("previous 50% + identity"), roles.map(lambda role: f"any + {role}")),
    )
    carried = st.lists(st.sampled_from(["x_0", "x_1", "x_2", "position"]), unique=True)
    return st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 1, 2]), roles, targets, carried)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_tags_never_cover_each_other(circuit_cases, data):
    drawn = data.draw(
        st.lists(random_path(circuit_cases), max_size=13, unique_by=lambda path: path[:3]), label="paths"
    )
    base = circuit_cases.view()
    head = base["maps"][0]
    changed = {
        **base,
        "paths": [
            {**base["paths"][0], "layer": layer, "head": at, "query_role": query, "rule": rule, "target_role": target,
             "carries": carries}
            for layer, at, query, (rule, target), carries in drawn
        ],
        "maps": [{**head, "layer": layer, "head": at} for layer in (0, 1, 3) for at in (0, 1, 2)],
    }  # fmt: skip
    view = CircuitView.model_validate(changed)
    graph = layout(view)
    assert len(graph.tags) == len(view.paths)
    assert_tags_are_apart(graph)
    assert_lanes_are_free(graph)
    ET.fromstring(circuit_svg(view))


def test_tags_of_the_made_up_circuit_are_apart(view):
    assert_tags_are_apart(layout(view))


# The graph.


def test_width_is_attention_at_the_checkpoint_that_was_read(view, circuit_cases):
    for checkpoint in (0, 190):
        edges = groups(circuit_svg(view.model_copy(update={"checkpoint": checkpoint})), "path")
        at = circuit_cases.CHECKPOINTS.index(checkpoint)
        for number in (0, 2, 7):
            (lane, *_) = lanes(edges[number])
            expected = THINNEST + (THICKEST - THINNEST) * circuit_cases.attention(number, at)
            assert float(lane.get("stroke-width")) == pytest.approx(expected, abs=0.006)
    assert edge_width(0.0, 1.0) == THINNEST and edge_width(1.0, 1.0) == THICKEST


def test_two_targets_share_the_width(view, circuit_cases):
    drawn = lanes(groups(circuit_svg(view), "path")[4])
    assert [lane.get("data-share") for lane in drawn] == ["0.6", "0.4"]
    widths = [float(lane.get("stroke-width")) - THINNEST for lane in drawn]
    assert widths[0] / widths[1] == pytest.approx(1.5, abs=0.01)


def test_colours_tell_what_is_carried_and_dashes_tell_it_too(view):
    edges = groups(circuit_svg(view), "path")
    looks = {
        number: [(lane.get("stroke"), lane.get("stroke-dasharray")) for lane in lanes(edge)]
        for number, edge in edges.items()
    }
    assert looks[0] == [(CATEGORY[1], None)]
    assert looks[7] == [(CATEGORY[2], None)]
    assert looks[8] == [(CATEGORY[1], "9 9"), (CATEGORY[2], "9 9")]
    assert [dash for _, dash in looks[2]] == ["9 9", "9 9"] and looks[2][0][0] == CATEGORY[1]
    assert looks[1][0][1] == "2 3" and looks[3][0][1] == "6 4"
    assert looks[1][0][0] not in CATEGORY and looks[3][0][0] not in CATEGORY
    assert symbol_colour("x_2") == symbol_colour("z_2") == symbol_colour("x₂") != symbol_colour("x_1")
    assert symbol_colour("x₁₀") == symbol_colour("x_10") != symbol_colour("x₁")
    assert path_colour(view.paths[8]) == CATEGORY[2]
    assert [symbol_colour(name) for name in ("value", "name 1", "D = 2")] == list(CATEGORY[:3])


def test_tags_name_head_and_load(view):
    tags = groups(circuit_svg(view), "tag")
    assert {number: said(tag) for number, tag in tags.items()} == {
        0: "0.1x1", 1: "0.2p", 2: "2.0x1 p", 3: "2.1", 4: "2.2x2", 5: "?3.1", 6: "∗3.1x0", 7: "4.0x2", 8: "4.2x1 x2"
    }  # fmt: skip
    assert "two hops" in tags[7].get("aria-label")


def test_mean_maps_come_from_no_column(view):
    svg = circuit_svg(view)
    tag, edge = groups(svg, "tag")[1], groups(svg, "path")[1]
    diamonds = [each for each in tag.iter(f"{NS}path") if each.get("d").endswith("z")]
    assert len(diamonds) == 1
    assert "reads fixed positions, no role" in said(ET.fromstring(svg))
    box = tag.find(f"{NS}rect")
    start = [float(part) for part in lanes(edge)[0].get("d")[1:].split("V")[0].split()]
    assert start[1] == pytest.approx(float(box.get("y")))
    assert float(box.get("x")) < start[0] < float(box.get("x")) + float(box.get("width"))


def test_legend_has_what_the_graph_has_and_no_more(view):
    whole = said(ET.fromstring(circuit_svg(view)))
    few = view.model_copy(update={"paths": [view.paths[0]]})
    bare = said(ET.fromstring(circuit_svg(few)))
    for words in (
        "several of them",
        "nothing alone",
        "no rule fits",
        "tokens of several roles",
        "all tokens of the role",
    ):
        assert words in whole and words not in bare
    assert "carries x1" in bare and "carries x2" not in bare


def test_words_in_the_picture_are_escaped(circuit_cases):
    rows = ["<query>", *circuit_cases.ROWS[1:]]
    changed = circuit_cases.view(rows=rows)
    for each in [*changed["tokens"], *changed["paths"]]:
        for key in ("role", "query_role"):
            if each.get(key) == "query":
                each[key] = "<query>"
    changed["paths"][0]["composition"] = []
    view = CircuitView.model_validate(changed)
    root = ET.fromstring(circuit_svg(view, heading="a <b> & 'c'"))
    texts = [said(each) for each in root.iter(f"{NS}text")]
    assert "<query>" in texts and "a <b> & 'c'" in texts
    assert "<query> reads" in groups(circuit_svg(view), "tag")[7].get("aria-label")


def test_tokens_say_what_they_hold_if_all_of_a_role_hold_the_same(view):
    texts = [said(each) for each in ET.fromstring(circuit_svg(view)).iter(f"{NS}text")]
    assert texts.count("x2") == 1 and texts.count("x1") == 2 and texts.count("x0") == 2
    tokens = [token.model_copy(update={"label": f"t{at}"}) for at, token in enumerate(view.tokens)]
    other = view.model_copy(update={"tokens": tokens})
    texts = [said(each) for each in ET.fromstring(circuit_svg(other)).iter(f"{NS}text")]
    assert not {"x2", "t3", "holds"} & set(texts)


def test_a_circuit_without_paths_is_drawn(circuit_cases):
    view = CircuitView.model_validate(circuit_cases.never_learned())
    assert layout(view).edges == []
    assert not groups(circuit_svg(view), "tag")
    ET.fromstring(timeline_svg(view))


def test_many_paths_in_one_column_are_one_below_the_other(circuit_cases):
    base = circuit_cases.view(rows=["query"], layers=1, heads=1029, tokens=[])
    base["tokens"] = [{"role": "query", "chain": 0, "label": "x₀"}]
    path = {**base["paths"][1], "layer": 0, "query_role": "query", "carries": ["x_0", "x_1", "x_2"]}
    base["paths"] = [{**path, "head": 1000 + at} for at in range(29)]
    data = {"layer": 0, "shape": [7, 1, 1], "data": "AAAAAAAAAA=="}
    base["maps"] = [{**data, "head": 1000 + at} for at in range(29)]
    graph = layout(CircuitView.model_validate(base))
    assert len(graph.tags) == 29
    assert_tags_are_apart(graph)


# Files.


def test_same_circuit_gives_the_same_files(view, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert write_circuit_picture(view, tmp_path / name, "circuit-3") == (
            tmp_path / name / "circuit-3.svg",
            tmp_path / name / "circuit-3.png",
        )
    for suffix in ("svg", "png"):
        first, second = (tmp_path / name / f"circuit-3.{suffix}" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
    root = ET.parse(tmp_path / "one/circuit-3.svg").getroot()
    assert "member 17, seed 3, step 190" in [said(each) for each in root.iter(f"{NS}text")]
    png = (tmp_path / "one/circuit-3.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    assert abs(width - 2 * float(root.get("width"))) <= 1 and abs(height - 2 * float(root.get("height"))) <= 1
    assert "http" not in circuit_svg(view).replace("http://www.w3.org/2000/svg", "")


# The timeline.


def test_timeline_marks_the_checkpoint_on_a_scale_of_steps(view):
    places = timeline_places(view)
    share = (places[3] - places[0]) / (places[-1] - places[0])
    assert share == pytest.approx(110 / 190)
    root = ET.fromstring(timeline_svg(view.model_copy(update={"checkpoint": 110})))
    (now,) = (each for each in root.iter(f"{NS}line") if each.get("class") == "now")
    assert float(now.get("x1")) == float(now.get("x2")) == pytest.approx(places[3], abs=0.006)
    texts = [said(each) for each in root.iter(f"{NS}text")]
    assert {"held-out loss", "training step", "x1", "x2", "0", "100"} <= set(texts)


def test_timeline_draws_each_path_and_the_plateau_if_there_is_one(view):
    root = ET.fromstring(timeline_svg(view))
    lines = [each for each in root.iter(f"{NS}path") if each.get("class") == "path"]
    assert [int(each.get("data-path")) for each in lines] == list(range(9))
    points = [[float(part) for part in pair.split()] for pair in lines[4].get("d")[1:].split("L")]
    heights = [y for _, y in points]
    assert len(points) == 7 and heights == sorted(heights, reverse=True)
    assert any("plateau 0.75" in said(each) for each in root.iter(f"{NS}text"))
    bare = ET.fromstring(timeline_svg(view.model_copy(update={"plateau": None})))
    assert not any("plateau" in said(each) for each in bare.iter(f"{NS}text"))


def test_one_checkpoint_is_enough(circuit_cases):
    base = circuit_cases.view(checkpoints=[50], checkpoint=50, partial={"x_1": [0.1]}, paths=[], maps=[])
    view = CircuitView.model_validate(base)
    assert len(timeline_places(view)) == 1
    ET.fromstring(timeline_svg(view))
