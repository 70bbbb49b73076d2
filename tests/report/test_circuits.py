"""The circuit block: its shapes, its words, and what the page makes of it without any script."""

import base64
import json
import re
import xml.etree.ElementTree as ET

import pytest
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.report.circuit_player import chain_marks, role_groups, shown_circuit, target_cells
from hopscope.report.circuit_words import path_words, symbol, title_words, use_sign, use_words
from hopscope.report.circuits import CircuitBlock, CircuitPath, CircuitView
from hopscope.report.page import build_report
from hopscope.report.record import Story

NS = "{http://www.w3.org/2000/svg}"
KINDS = ("path", "tag")


@pytest.fixture
def view(circuit_cases):
    return CircuitView.model_validate(circuit_cases.view())


@pytest.fixture
def circuit_run(run_path, synthetic, circuit_cases):
    """A run whose story is a circuit block, without the figures that take long."""
    story = synthetic.story()
    story["sections"] = story["sections"][:1]
    story["sections"][0]["blocks"] = [circuit_cases.block()]
    (run_path / "story.json").write_text(json.dumps(story), encoding="utf-8")
    return run_path


def build(run):
    build_report([run], run / "report.html")
    return (run / "report.html").read_text(encoding="utf-8")


def words(page):
    """The page's words without scripts and styles."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


# Shapes.


def test_paths_are_accepted_as_the_record_writes_them(view):
    assert [path.brings for path in view.paths][:4] == [("x_1",), ("position",), ("x_1", "position"), ()]
    targets = [(target.role, target.every, target.rule, target.share) for target in view.paths[4].targets]
    assert targets == [("first 2", False, "previous", 0.6), ("second 2", True, "over_role", 0.4)]
    assert [target.role for target in view.paths[1].targets] == [""]
    assert view.shown == 6
    assert view.model_copy(update={"checkpoint": 110}).shown == 3
    assert view.model_copy(update={"checkpoint": 111}).shown == 6


def test_symbols_are_carried_in_their_order():
    carries = {"position": 0.9, "x_10": 0.1, "x_2": 0.3}
    removed = {"rules": 0.1, "clean": 0.1, "recomputed": 0.1}
    path = CircuitPath.model_validate(
        {"layer": 0, "head": 0, "query_role": "query", "rule": "hop_1", "target_role": "second 1",
         "mean_attention": 1.0, "carries": carries, "loss_if_removed": removed, "attention": [1.0]}
    )  # fmt: skip
    assert path.brings == ("x_2", "x_10", "position")


def change_path(number, **changes):
    return lambda view: view["paths"][number].update(changes)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda view: view.pop("threshold"), "threshold"),
        (lambda view: view.update(checkpoints=[0, 10, 50, 50, 130, 170, 190]), "ascending"),
        (lambda view: view.update(rows=[*view["rows"], "query"]), "rows that differ"),
        (lambda view: view["partial"]["x_2"].pop(), "partial x_2: 7 numbers"),
        (lambda view: view["paths"][2]["attention"].pop(), "attention of path 2: 7 numbers"),
        (change_path(3, layer=5), "layer 5, head 1"),
        (change_path(3, head=3), "layer 2, head 3"),
        (change_path(0, query_role="third 2"), "third 2"),
        (change_path(2, target_role="third 1"), "third 1"),
        (change_path(4, target_role="first 2 + all third 2"), "third 2"),
        (change_path(7, attention=[0.0] * 6 + [1.2]), "attention"),
        (lambda view: view["paths"][0]["composition"][0].update(part="X"), "part"),
        (lambda view: view["maps"].pop(), "missing [(4, 2)]"),
        (lambda view: view["maps"].append(view["maps"][0]), "one map for each head"),
        (lambda view: view["maps"][0].update(shape=[11, 7, 11]), "not [11, 7, 11]"),
        (lambda view: view["maps"][0].update(data="AAAA"), "847 bytes for the shape"),
    ],
)
def test_wrong_shapes_are_one_line(circuit_run, change, found):
    path = circuit_run / "story.json"
    story = json.loads(path.read_text(encoding="utf-8"))
    change(story["sections"][0]["blocks"][-1]["circuits"][0]["view"])
    path.write_text(json.dumps(story), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        build(circuit_run)
    message = str(caught.value)
    assert "story.json" in message and "circuits.0.view" in message
    assert found in message
    assert "\n" not in message
    assert not (circuit_run / "report.html").exists()


def test_a_block_has_a_circuit(circuit_cases):
    with pytest.raises(ValidationError):
        CircuitBlock.model_validate({**circuit_cases.block(), "circuits": []})


def test_a_sum_of_attention_may_be_rounded_up(circuit_cases):
    changed = circuit_cases.view()
    changed["paths"][0]["attention"][3] = 1.0000002
    assert CircuitView.model_validate(changed).paths[0].attention[3] > 1.0


# Words.


def test_paths_in_words(view):
    said = [path_words(path) for path in view.paths]
    assert said[0] == "Head 0.1: second 2 reads first 2 (the token just before); carries x₁."
    assert said[1].endswith("second 1 reads fixed positions (the head’s mean map); carries position.")
    assert said[2].endswith("query reads second 1 (one hop along its chain); carries x₁ and position.")
    assert (
        "60% first 2 (the token just before) and 40% all second 2 (all alike, by position alone)" in said[4]
    )
    assert said[3].endswith("carries nothing that could be measured alone.")
    assert "tokens that no rule names" in said[5]
    assert said[8].endswith("query reads second 2 (two hops along its chain); carries x₁ and x₂.")
    titles = [title_words(path) for path in view.paths]
    assert titles[4] == "Head 2.2: second 2 reads first 2 and all second 2"
    assert titles[1] == "Head 0.2: second 1 reads fixed positions (the head’s mean map)"


def test_uses_in_words(view):
    use, readout = view.paths[0].composition[0], view.paths[7].composition[0]
    assert (use_words(use), use_sign(use)) == ("keys of 4.0 (query)", "4.0 K")
    assert (use_words(readout), use_sign(readout)) == ("readout", "readout")
    spelled = use.model_copy(update={"part": "values"})
    assert (use_words(spelled), use_sign(spelled)) == ("values of 4.0 (query)", "4.0 V")


@pytest.mark.parametrize(
    ("name", "said"), [("x_2", "x₂"), ("x_10", "x₁₀"), ("position", "position"), ("z", "z")]
)
def test_symbols_get_their_index(name, said):
    assert symbol(name) == said


# The example sequence.


def test_rules_name_the_cells_that_one_would_name_by_hand(view, circuit_cases):
    found = {at: target_cells(view.tokens, path) for at, path in enumerate(view.paths)}
    assert found == circuit_cases.CELLS


def test_blocks_of_the_sequence_end_where_new_roles_begin(view):
    assert role_groups(view.tokens) == [
        ("first 2, second 2", 0, 3),
        ("first 1, second 1", 4, 7),
        ("query", 8, 10),
    ]
    single = [view.tokens[at] for at in (0, 1, 4, 5, 8)]
    assert role_groups(single) == [("first 2, second 2, first 1, second 1, query", 0, 4)]


def test_chains_have_letters_if_they_are_asked(view):
    assert "".join(chain_marks(view)) == "bbaaaabbbab"
    tokens = [*view.tokens[:-1], view.tokens[0].model_copy(update={"chain": 2})]
    assert "".join(chain_marks(view.model_copy(update={"tokens": tokens}))) == "bbaaaabbba·"


# The page.


def test_the_block_is_part_of_a_story(synthetic, circuit_cases):
    story = synthetic.story()
    story["sections"][0]["blocks"] = [circuit_cases.block()]
    (section, *_) = Story.model_validate(story).sections
    assert [block.kind for block in section.blocks] == ["circuit"]


def test_scripts_and_styles_come_only_with_the_block(run_path, circuit_run):
    with_block = build(circuit_run)
    assert "hopscopeMap" in with_block and ".circuit-board" in with_block
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    story["sections"][0]["blocks"].pop()
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    without = build(circuit_run)
    assert "hopscopeMap" not in without and "circuit-board" not in without


def test_table_and_pictures_need_no_script(circuit_run):
    page = build(circuit_run)
    assert page.count('<svg class="circuit-graph"') == page.count('<svg class="circuit-timeline"') == 2
    assert page.count('<tbody>\n<tr><th scope="row">0.1</th>') == 2
    said = words(page)
    assert "0.1 second 2 first 2 (the token just before) x₁ 1.00 4.0 K 0.110 0.050 0.300" in said
    assert "4.2 query second 2 (two hops along its chain) x₁, x₂ 0.88 readout 0.670 0.850 0.700" in said
    assert (
        "seed 3. Seed 3, read at step 190, 5 layers with 3 heads each. The circuit was read. "
        "Held-out loss of the model 0.030" in said
    )
    assert "Both circuits are made up; 4 seeds were trained." in said
    assert "units/7f/analysis/circuit-1.json" in said


def test_the_page_says_once_how_heads_are_counted(circuit_run):
    assert build(circuit_run).count("counted from 0") == 1


def test_a_verdict_writes_heads_as_the_page_does(view):
    changed = view.model_copy(update={"verdict": "unexplained: no rule for layer 0, head 11: x 5 → learned"})
    assert "no rule for head 0.11: x 5 → learned." in shown_circuit(changed)["found"]


def test_one_layer_is_one_layer(view):
    changed = view.model_copy(update={"layers": 1, "heads": 1})
    assert "one layer with one head. " in shown_circuit(changed)["found"]
    assert "one layer with 2 heads. " in shown_circuit(changed.model_copy(update={"heads": 2}))["found"]


def test_a_picture_that_is_not_the_whole_circuit_says_so(circuit_run):
    assert "The picture shows" not in words(build(circuit_run))
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    views = [
        circuit["view"]
        for section in story["sections"]
        for block in section["blocks"]
        if block["kind"] == "circuit"
        for circuit in block["circuits"]
    ]
    views[0] |= {"undrawn": 3, "undrawn_heads": 2}
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    heads = len({(path["layer"], path["head"]) for path in views[0]["paths"]})
    expected = f"The picture shows 9 of its 12 paths, in {heads} of {heads + 2} heads"
    assert words(build(circuit_run)).count("The picture shows") == 1
    assert expected in words(build(circuit_run))


def rows_of(page):
    """Heads and rows of each body of the page's first table of paths."""
    table = re.search(r'<table class="circuit-paths">(.*?)</table>', page, flags=re.DOTALL)[1]
    bodies = re.findall(r"<tbody[^>]*>(.*?)</tbody>", table, flags=re.DOTALL)
    return [re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', body) for body in bodies]


def drawn(page):
    """Head and rows of each path of the page's first graph, once by its edges and once by its tags."""
    graph = ET.fromstring(re.search(r'<svg class="circuit-graph".*?</svg>', page, flags=re.DOTALL)[0])
    groups = {kind: [each for each in graph.iter(f"{NS}g") if each.get("class") == kind] for kind in KINDS}
    assert [each.get("data-path") for each in groups["path"]] == [
        each.get("data-path") for each in groups["tag"]
    ]
    assert all(each.find(f"{NS}path") is not None for each in groups["path"])
    labels = [re.match(r"Head (\d+)\.(\d+): (.*?) reads", each.get("aria-label")) for each in groups["tag"]]
    heads = [next(each.iter(f"{NS}tspan")).text for each in groups["tag"]]
    assert heads == [f"{found[1]}.{found[2]}" for found in labels]
    return [(head, found[3]) for head, found in zip(heads, labels, strict=True)]


def test_drawing_and_table_agree_on_every_path(circuit_run, circuit_cases):
    view = circuit_cases.view()
    further = [
        {key: value for key, value in {**path, "rule": "learned", "target_role": None}.items()
         if key not in ("attention", "hop")}
        | {"layer": 1, "head": at}
        for at, path in enumerate(view["paths"][:2])
    ]  # fmt: skip
    for listed in ([], further):
        whole = {**view, "listed": listed, "undrawn": len(listed), "undrawn_heads": len(listed)}
        story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
        story["sections"][0]["blocks"][-1] = circuit_cases.block(whole)
        (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
        page = build(circuit_run)
        tables = rows_of(page)
        assert drawn(page) == tables[0] and len(tables[0]) == len(view["paths"])
        assert tables[1:] == ([[("1.0", "second 2"), ("1.1", "second 1")]] if listed else [])
        assert ("they stand at the end of the table" in words(page)) == bool(listed)


def test_every_undrawn_path_is_listed_or_none(circuit_cases):
    path = {
        key: value
        for key, value in circuit_cases.view()["paths"][0].items()
        if key not in ("attention", "hop")
    }
    with pytest.raises(ValidationError, match=r"as many listed paths as undrawn ones \(3\), not 1"):
        CircuitView.model_validate(circuit_cases.view(listed=[path], undrawn=3))


def test_without_attention_maps_there_is_the_graph_and_no_room_for_a_map(circuit_run):
    path = circuit_run / "story.json"
    story = json.loads(path.read_text(encoding="utf-8"))
    assert 'class="card path-map"' in build(circuit_run)
    for each in story["sections"][0]["blocks"][-1]["circuits"]:
        each["view"]["maps"] = None
    path.write_text(json.dumps(story), encoding="utf-8")
    page = build(circuit_run)
    assert 'class="card path-map"' not in page and "circuit-graph" in page
    assert "Choose a path to see what it costs to remove" in page


def test_the_circuit_with_most_to_learn_from_is_shown_first(view):
    def named(**changed):
        given = {**view.model_dump(mode="json"), **changed}
        return {"name": "", "file": "units/7", "view": given}

    one_step = {"x_1": view.partial["x_1"], "x_2": [1.0] * len(view.checkpoints)}
    loss = view.loss.model_dump(mode="json")
    fails = {**loss, "rules": 10 * view.threshold}

    def first(*circuits):
        return CircuitBlock.model_validate({"kind": "circuit", "circuits": list(circuits)}).first

    assert first(named(), named()) == 0
    assert first(named(verdict="not found"), named(partial=one_step), named()) == 2
    assert first(named(loss=fails), named(partial=one_step)) == 1
    assert first(named(verdict="unexplained"), named(partial=one_step)) == 1
    assert first(named(loss=fails), named(verdict="unexplained")) == 1
    assert first(named(paths=[view.paths[0].model_dump(mode="json")]), named()) == 1


def test_the_script_gets_the_numbers_of_the_story(circuit_run, circuit_cases):
    page = build(circuit_run)
    data = [
        json.loads(text) for text in re.findall(r'class="circuit-data">(.*?)</script>', page, flags=re.DOTALL)
    ]
    assert [len(each["paths"]) for each in data] == [9, 3]
    assert data[0]["maps"] == {
        f"{each['layer']}.{each['head']}": each["data"] for each in circuit_cases.view()["maps"]
    }
    assert [path["cells"] for path in data[0]["paths"]] == [
        [list(cell) for cell in circuit_cases.CELLS[at]] for at in range(9)
    ]
    assert data[0]["paths"][0]["users"] == [7]
    # What costs most if it is gone is shown first.
    assert data[0]["first"] == 8 and data[1]["first"] == 2


def test_same_story_gives_the_same_page(circuit_run):
    assert build(circuit_run) == build(circuit_run)


def test_a_model_without_a_circuit_has_a_page(circuit_run, circuit_cases):
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    story["sections"][0]["blocks"][-1] = circuit_cases.block(circuit_cases.never_learned())
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    page = build(circuit_run)
    assert "Verdict: no circuit: above plateau." in words(page)
    assert 'class="circuit-paths"' not in page and 'class="tag"' not in page
    assert '"first":null' in page


def test_markup_in_labels_is_escaped(circuit_run, circuit_cases):
    changed = json.dumps(circuit_cases.view(verdict="a <i>verdict</i> & more"))
    changed = json.loads(changed.replace("second 2", "<b>'&").replace("x₂", "</svg><u>"))
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    story["sections"][0]["blocks"][-1] = circuit_cases.block(changed)
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    page = build(circuit_run)
    assert not re.search(r"<(b|i|u)>('|verdict|<)", page)
    assert "&lt;b&gt;&#39;&amp;" in page and "a &lt;i&gt;verdict&lt;/i&gt; &amp; more" in page


def test_four_circuits_of_twenty_checkpoints_are_a_small_page(circuit_run, circuit_cases):
    steps = list(range(0, 2000, 100))
    one = circuit_cases.view(checkpoints=steps, checkpoint=1900)
    data = base64.b64encode(bytes(20 * 11 * 11)).decode()
    one["maps"] = [{**each, "shape": [20, 11, 11], "data": data} for each in one["maps"]]
    one["partial"] = {"x_1": [0.5] * 20, "x_2": [0.5] * 20}
    one["paths"] = [{**path, "attention": [0.123456789] * 20} for path in one["paths"]]
    block = circuit_cases.block(one, one, one, one)
    circuits = CircuitBlock.model_validate(block).circuits
    assert [len(shown_circuit(each.view)["data"]["checkpoints"]) for each in circuits] == [20] * 4
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    before = len(build(circuit_run))
    story["sections"][0]["blocks"].append(block)
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    assert len(build(circuit_run)) - before < 400_000


def test_a_wide_graph_has_the_page_for_itself(circuit_run, circuit_cases):
    assert "circuit-board is-wide" not in build(circuit_run)
    wide = circuit_cases.view()
    wide["rows"] = [*wide["rows"], *(f"further {number}" for number in range(5))]
    story = json.loads((circuit_run / "story.json").read_text(encoding="utf-8"))
    story["sections"][0]["blocks"].append(circuit_cases.block(wide))
    (circuit_run / "story.json").write_text(json.dumps(story), encoding="utf-8")
    assert build(circuit_run).count("circuit-board is-wide") == 1
