"""Figures: every shape of them is a chart that can be drawn, and says what it shows; files hold all of it."""

import csv
import io
import json
import math
import re

import altair
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.page.conftest import FLOORS, LAYERS, config, rows

from hopscope.errors import UserError
from hopscope.page import figures
from hopscope.page.facts import Facts, different, format_estimate, format_number, symbol
from hopscope.page.figures import Figure, bars, cells, curves, dots, heads, named, sweep
from hopscope.page.files import read_figures, shown, write_figures
from hopscope.page.theme import CATEGORY, colours
from hopscope.runs import Evidence

ALL = {
    "curves": curves("loss", by="model.layers"),
    "parts": curves(["loss_step_1", "loss_step_2"], by="metric", panel="configuration"),
    "bars": bars("accuracy"),
    "dots": dots("loss", y="seed", by="model.layers"),
    "panels": dots("loss", y="seed", panel="model.layers"),
    "sweep": sweep("loss", x="model.layers"),
    "words": sweep("loss", x="configuration", by="seed"),
    "cells": cells("loss", x="seed", y="model.layers"),
    "heads": heads("rise"),
    "own rows": cells([], x="a", y="b", name="own", rows=lambda table: [{"a": 1, "b": 2, "value": 0.3, "note": "1|2"}]),
    "absent": curves("loss", where={"seed": 12345}),
}  # fmt: skip


def data(spec):
    return list(csv.DictReader(io.StringIO(spec["data"]["values"])))


@pytest.mark.parametrize("name", ALL)
def test_every_shape_is_an_altair_chart_and_is_drawn_with_words_and_data(name, evidence, make):
    if name == "absent":
        evidence = evidence.where(seed=11)
    chart = ALL[name](evidence)
    assert isinstance(chart, altair.TopLevelMixin)
    chart.to_dict()  # as the schema says
    found = shown(ALL[name], evidence)
    assert found.caption and found.alt and data(found.spec)
    run = make(figures=[ALL[name]])
    (kept,) = read_figures(run)
    assert kept.name == ALL[name].name
    for kind in ("svg", "png", "csv", "vl.json"):
        assert (run.path / f"figures/{kept.name}.{kind}").stat().st_size > 20
    svg = (run.path / f"figures/{kept.name}.svg").read_text()
    points = re.findall(r'<path[^>]*aria-roledescription="point"[^>]*>', svg)
    assert all('fill="#' in point for point in points), points  # a point without a colour is not seen
    assert bool(points) == (name in ("dots", "panels", "sweep", "words", "bars")), name


def test_a_group_in_which_something_never_came_has_no_mean(evidence):
    told = [("quick", 0, 3.0), ("quick", 1, 5.0), ("lucky", 0, 1.0), ("lucky", 1, math.inf)]
    values = [{"shape": name, "member": at, "seed": at, "value": value} for name, at, value in told]
    found = shown(bars([], by="shape", name="work", title="work", rows=lambda _: values), evidence)
    means = {row["group"]: row["value"] for row in data(found.spec) if row["kind"] == "mean"}
    assert means == {"quick": "4.0"} and "1 never came" in found.caption and "lucky" not in found.alt


def test_thin_lines_are_seeds_and_thick_ones_their_mean_without_what_diverged(evidence):
    found = data(shown(ALL["curves"], evidence).spec)
    ends = [row for row in found if row["at"] == str(128 * 7) and row["kind"] == "mean"]
    assert {row["group"]: float(row["value"]) for row in ends} == {"layers 2": 0.17, "layers 3": 0.245}
    assert all(row["low"] and row["high"] for row in ends)
    assert {row["seed"] for row in found if row["kind"] == "end"} == {"17"}
    assert {row["member"] for row in found if row["kind"] == "seed"} == {str(member) for member in range(6)}


def test_floors_stand_beside_a_curve_where_all_that_is_shown_has_them(evidence):
    spec = json.dumps(shown(ALL["curves"], evidence).spec)
    assert all(f"floor: {name} {value:g}" in spec for name, value in FLOORS.items())
    evidence.config["floors"] = {"2 layers": FLOORS, "3 layers": {"zero": 0.5}}
    assert "floor:" not in json.dumps(shown(ALL["curves"], evidence).spec)
    assert "floor:" in json.dumps(shown(curves("accuracy", levels={"floor: guess": 0.5}), evidence).spec)


def test_a_name_has_one_colour_on_all_charts_and_a_symbol_everywhere(make):
    specs = [each.spec for each in read_figures(make(figures=[ALL["curves"], ALL["parts"], ALL["dots"]]))]
    found = {}
    for spec in map(json.dumps, specs):
        for scale in [node for node in walk(json.loads(spec)) if {"domain", "range"} <= {*node}]:
            for name, colour in zip(scale["domain"], scale["range"], strict=True):
                assert found.setdefault(name, colour) == colour or colour not in CATEGORY
    assert found["x₁"] == CATEGORY[1] and found["x₂"] == CATEGORY[2]
    assert colours(["a", "loss_2"]) == {"a": CATEGORY[0], "loss_2": CATEGORY[2]}


def walk(node):
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(each)


def test_a_study_may_give_any_function_of_the_evidence(evidence, make):
    def own(table):
        """The losses,
        as points."""
        return altair.Chart(table.rows("loss")).mark_point().encode(x="step", y="value")

    (found,) = read_figures(make(figures=[own]))
    assert (found.name, found.caption) == ("own", "The losses, as points.")
    assert [each.name for each in named([ALL["curves"], curves("loss"), curves("loss"), own])] == [
        "loss-by-model.layers", "loss", "loss-2", "own"
    ]  # fmt: skip


def test_every_layer_has_its_tick_and_a_share_is_one_only_where_all_are(evidence):
    spec = ALL["sweep"](evidence).to_dict()
    axes = [
        each["axis"] for each in walk(spec) if isinstance(each.get("axis"), dict) and "values" in each["axis"]
    ]
    assert axes and all(each["values"] == [*LAYERS] for each in axes)
    assert not any("tickCount" in each for each in walk(spec.get("config", {})))
    both = shown(bars(["loss", "accuracy"], by="metric"), evidence)
    assert "%" not in both.alt and "held-out value" in both.alt.lower()


def test_numbers_of_no_member_have_the_colour_of_their_series():
    def both(table):
        return [{"of": of, "at": "a", "value": 0.5, "low": 0.4, "high": 0.6} for of in ("model", "a guess")]

    table = Evidence.of(rows(), config()["members"], config())
    assert "%" not in shown(dots([], y="at", by="of", name="own", rows=both), table).alt
    found = dots([], y="at", by="of", name="own", rows=both)(table).to_dict()
    assert {row["kind"] for each in found["datasets"].values() for row in each if "kind" in row} == {"seed"}


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (curves("lose"), "expected one of accuracy, loss"),
        (curves("loss", by="width"), "expected by to be one of the columns configuration, model.layers"),
        (curves("loss", where={"width": 3}), "expected one of the columns"),
        (curves("rise"), "figure curves of 'rise': expected a number of the whole, found it by layer, head; name one"),
        (cells([], x="a", y="b", rows=lambda table: [{"a": 1, "value": 2.0}]), "expected rows with 'b'"),
        (Figure("broken", lambda table: 1 / 0), "found ZeroDivisionError: division by zero (test_figures.py"),
        (Figure("words", lambda table: "a chart"), "expected a function that returns an Altair chart, found str"),
        (Figure("far", lambda table: altair.Chart("https://example.org/x.csv").mark_point()), "a chart with its rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_line_that_names_the_figure(figure, words, evidence, tmp_path, make):
    with pytest.raises(UserError) as caught:
        write_figures(make(figures=[]), [figure], evidence)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert "figure" in str(caught.value)


@pytest.mark.parametrize("given", [3, lambda table: None], ids=["number", "lambda"])
def test_what_has_no_name_is_no_figure(given, evidence):
    with pytest.raises(UserError, match=r"write hs\.figures\.Figure"):
        named([given])
    with pytest.raises(UserError, match="expected a name of letters"):
        Figure("../up", lambda table: None)
    with pytest.raises(UserError, match="no field 'titel'; did you mean 'title'"):
        curves("loss", titel="Loss")
    with pytest.raises(UserError, match='told apart, found one mean of all; say by="metric"'):
        bars(["loss", "accuracy"])
    with pytest.raises(UserError, match="expected by or panel"):
        heads("rise", by="model.layers", panel="seed")
    with pytest.raises(UserError, match="split: expected held-out or train, found 'traning'"):
        curves("loss", split="traning")(evidence)


def test_files_that_stand_are_left_alone_and_altered_ones_are_refused(make, evidence):
    run = make(figures=[ALL["curves"]])
    files = sorted((run.path / "figures").iterdir())
    before = [file.stat().st_mtime_ns for file in files]
    write_figures(run, [ALL["curves"]], evidence)
    assert [file.stat().st_mtime_ns for file in files] == before
    write_figures(run, [ALL["curves"], ALL["bars"]], evidence)
    assert len(read_figures(run)) == 2
    write_figures(run, [ALL["curves"]], evidence)  # one that the study names no more is gone
    assert sorted((run.path / "figures").iterdir()) == files and len(read_figures(run)) == 1
    spec = run.path / "figures/loss-by-model.layers.vl.json"
    for own in ({"data": {"url": "https://example.org/x.csv"}}, {"layer": [{"data": {"url": "other.csv"}}]}):
        spec.write_text(json.dumps({**json.loads(spec.read_text()), **own}))
        with pytest.raises(UserError, match=r"expected a chart of loss-by-model\.layers\.csv alone"):
            read_figures(run)


@pytest.mark.parametrize("diverged", [(), (2,), (0, 1, 2, 3, 4, 5)], ids=str)
def test_estimates_count_what_there_is(diverged):
    facts = Facts(Evidence.of(rows(diverged), config()["members"], config()))
    found = facts.estimate(facts.last("loss", "here"))
    assert len(found.values) == 6 - len(diverged) and found.diverged == len(diverged)
    assert facts.diverged == list(diverged)
    assert math.isnan(found.mean) == (len(diverged) == 6)
    assert ("training diverged" in found.over) == (len(diverged) == 6)
    assert {label: len(members) for label, members in facts.groups("model.layers", "here").items()} == {
        f"layers {layers}": 3 for layers in LAYERS
    }


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(["number", "fraction", "steps"]))
def test_a_number_is_never_rounded_to_a_perfect_share(value, unit):
    text = format_number(value, unit)
    assert text
    if unit == "fraction" and text in ("0 %", "100 %"):
        assert value in (0.0, 1.0)


@given(st.floats(0.001, 100.0), st.floats(0.0, 1.0))
def test_an_interval_is_written_around_its_mean(value, half):
    texts = format_estimate(value, (value - half, value + half))
    middle, low, high = (float(text.replace("−", "-").replace(",", "")) for text in texts)
    assert low <= middle <= high


def test_symbols_are_written_with_their_index_and_numbers_of_a_part_ascend():
    names = ("x_2", "step_13", "loss_step_1", 7, "7", "recall", None)
    assert [*map(symbol, names)] == ["x₂", "x₁₃", "x₁", "x₇", "7", "recall", "None"]
    assert different(["9", "10", "1", None, "9"]) == ["1", "9", "10", None]
    assert different(["b", "10", "a", 3.0]) == [3.0, "b", "10", "a"]
    assert figures.Shown.__optional_keys__ >= {"split", "part", "panel", "where", "levels", "rows"}


def test_an_axis_has_room_for_every_bar_and_a_curve_that_ends_far_away_stays_on_it(evidence, make):
    far = [{"shape": "near", "value": 0.01}, {"shape": "far", "value": 5.0}]
    for made in (bars([], by="shape", rows=lambda _: far, name="a", ends=(0.0, 1.0)),
                 dots([], y="shape", rows=lambda _: far, name="b")):  # fmt: skip
        spec = shown(made, evidence).spec
        domains = re.findall(r'"domain": \[([-0-9.]+), ([-0-9.]+)\]', json.dumps(spec))
        assert domains and all(float(high) >= 5.0 for _, high in domains), domains
    lost = [{**row, "value": 1e7} if (row["metric"], row["member"]) == ("loss", 5) and not row["step"] else row
            for row in rows()]  # fmt: skip
    run = make(rows=lost, figures=[curves("loss", by="model.layers", ends=(0.0, 1.0))])
    svg = (run.path / "figures/loss-by-model.layers.svg").read_text()
    assert float(re.search(r'height="([0-9.]+)"', svg)[1]) < 700


def test_truths_and_dates_of_a_users_chart_are_read_as_such(make):
    def own(table):
        frame = pandas.DataFrame({"n": [3, 5], "kept": [True, False], "when": ["2026-01-02", "2026-03-05"]})
        return altair.Chart(frame).mark_point().encode(x="when:T", y="n:Q", color="kept:N")

    (found,) = read_figures(make(figures=[own]))
    assert [row["kept"] for row in data(found.spec)] == ["true", "false"]
    assert found.spec["data"]["format"]["parse"] == {"n": "number", "kept": "boolean", "when": "date"}


def test_a_name_stands_at_the_end_of_its_line_in_whatever_order_values_came(evidence):
    told = [
        {"x": x, "shape": name, "value": x + at, "member": at, "seed": at}
        for x in (16, 4)
        for at, name in enumerate("ab")
    ]
    for order in (told, told[::-1]):
        spec = shown(sweep([], x="x", by="shape", rows=lambda _, order=order: order, name="s"), evidence).spec
        (names,) = (layer["data"]["values"] for layer in spec["layer"] if "data" in layer)
        assert {each["group"]: round(each["place"]) for each in names} == {"a": 16, "b": 17}


def test_an_option_has_its_groups_under_either_name_and_nothing_is_a_group():
    members = [{"member": n, "overrides": {"depth": 1 + n, "model.head_dim": [None, 4][n]}} for n in (0, 1)]
    table = Evidence.of([{"metric": "loss", "value": [0.25, 0.75]}], members)
    assert Facts(table).groups("model.head_dim", "here") == {"head_dim 4": [1], "no head_dim": [0]}
    for name in ("depth", "options.depth"):
        means = {row["y"]: float(row["value"]) for row in data(shown(bars("loss", by=name), table).spec)}
        assert means == {"depth 1": 0.25, "depth 2": 0.75}


def test_names_are_found_by_value(evidence):
    told = [{"rate": value, "value": 0.5, "member": at, "seed": at, "at": 3}
            for value in (0.0, None, '"gpt2"') for at in (0, 1)]  # fmt: skip
    names = {0: "no MLP", None: "nothing", "gpt2": "GPT-2"}
    found = data(shown(dots([], y="rate", rows=lambda _: told, names=names, name="a"), evidence).spec)
    assert {row["y"] for row in found} == {*names.values()}
