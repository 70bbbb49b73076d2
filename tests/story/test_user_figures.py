"""Figures that a study declares: their rows are the evidence, and all of them can be drawn whatever came out."""

import csv
import json
import subprocess
import sys

import altair as alt
import pytest

from hopscope.errors import UserError
from hopscope.figures import (
    Axis,
    Given,
    Mark,
    Series,
    bars,
    cells,
    chart,
    curves,
    dots,
    heads,
    lines,
    numbered,
    sweep,
    write_figures,
)
from hopscope.figures.choice import Level, apart, choose, levels_of
from hopscope.figures.drawing import curve_rows
from hopscope.figures.selection import Group
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row

from .user_run import (
    BATCH,
    CASES,
    CONFIG,
    DEPTH,
    FIGURES,
    FLOORS,
    STEPS,
    accuracy,
    attention,
    evidence,
    loss,
    members,
)

EVERY = (
    curves("loss", by=DEPTH), curves("accuracy", split="train"), bars("accuracy", by=DEPTH), bars("loss"),
    heads("attention_to_source", by=DEPTH), heads("attention_to_source"),
)  # fmt: skip


def drawn(figure, **case):
    return figure.draw(evidence(**case), FLOORS)[1]


def test_names_of_figures():
    assert [figure.name for figure in EVERY] == [
        "loss-by-model.layers", "train-accuracy", "final-accuracy-by-model.layers", "final-loss",
        "heads-attention_to_source-by-model.layers", "heads-attention_to_source",
    ]  # fmt: skip
    assert curves("loss of {x}/y", part="a b").name == "loss-of-x-y-a-b"
    assert curves("точность").name == "curves"


def test_repeated_names_are_numbered():
    again = (curves("loss"), bars("loss"), curves("loss"), curves("loss"))
    assert [figure.name for figure in numbered(again)] == ["loss", "final-loss", "loss-2", "loss-3"]
    assert [figure.kind for figure in numbered(again)] == ["curves", "bars", "curves", "curves"]


def test_naming_figures_loads_no_chart_library():
    code = (
        "import sys\nfrom hopscope import figures\nfigures.curves('loss'), figures.chart('x', print)\n"
        "print([name for name in ('altair', 'pandas', 'torch') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# Rows.


def test_curves_show_every_seed_and_the_mean_of_each_group():
    rows = drawn(curves("loss", by=DEPTH))
    seeds = [row for row in rows if row["kind"] == "seed"]
    assert len(seeds) == 6 * len(STEPS)
    for row in seeds:
        assert row["value"] == pytest.approx(loss(row["member"], row["at"] / BATCH), rel=1e-4)
    means = {(row["group"], row["at"]): row for row in rows if row["kind"] == "mean"}
    assert set(means) == {(f"layers {layers}", step * BATCH) for layers in (1, 2) for step in STEPS}
    last = means["layers 2", STEPS[-1] * BATCH]
    assert last["value"] == pytest.approx(0.05)  # of 0.04, 0.05 and 0.06
    assert 0.04 <= last["low"] < 0.05 < last["high"] <= 0.06


def test_a_diverged_member_ends_in_a_mark_and_is_in_no_mean():
    rows = drawn(curves("loss", by=DEPTH), diverged=(4,))
    assert [(row["member"], row["at"]) for row in rows if row["kind"] == "end"] == [(4, 7 * BATCH)]
    assert max(row["at"] for row in rows if row.get("member") == 4) == 7 * BATCH
    means = {(row["group"], row["at"]): row["value"] for row in rows if row["kind"] == "mean"}
    assert means["layers 2", 13 * BATCH] == pytest.approx(0.05)  # of 0.04 and 0.06
    assert means["layers 2", 0] == pytest.approx(2.0)


def test_bars_show_every_seed_and_an_interval():
    rows = drawn(bars("accuracy", by=DEPTH), diverged=(4,))
    values = [row["value"] for row in rows if row["kind"] == "seed"]
    assert values == pytest.approx([accuracy(member, 13) for member in (0, 1, 2, 3, 5)])
    first, second = (row for row in rows if row["kind"] == "mean")
    assert (first["value"], first["low"], first["high"]) == pytest.approx((0.974, 0.961, 0.987))
    assert (second["value"], second["note"]) == (pytest.approx(0.935), "93.5 %")
    assert {row["at"] for row in rows if row["kind"] == "mean"} == {1, 2}


def test_a_group_without_values_has_an_empty_place():
    rows = drawn(bars("accuracy", by=DEPTH), diverged=(3, 4, 5))
    assert [(row["group"], row["note"]) for row in rows if row["kind"] == "none"] == [
        ("layers 2", "no value")
    ]
    assert [row["group"] for row in rows if row["kind"] == "mean"] == ["layers 1"]


def test_maps_of_heads_are_means_over_seeds():
    rows = drawn(heads("attention_to_source", by=DEPTH), diverged=(4,))
    cells = {(row["group"], row["layer"], row["head"]): row for row in rows}
    assert set(cells) == {
        ("layers 1", 0, 0),
        ("layers 1", 0, 1),
        *(("layers 2", a, b) for a in (0, 1) for b in (0, 1)),
    }
    cell = cells["layers 2", 1, 0]
    assert (cell["value"], cell["seeds"]) == (pytest.approx((attention(3, 1, 0) + attention(5, 1, 0)) / 2), 2)


def test_a_map_without_any_value_keeps_its_cells():
    rows = drawn(heads("attention_to_source"), diverged=range(6))
    assert len(rows) == 2 + 4
    assert {(row["value"], row["note"]) for row in rows} == {(None, "–")}


def test_a_seed_of_several_configurations_is_resampled_as_one():
    """All members of a seed are alike here: pooled, the interval is that of three seeds, not of six members."""
    twins = Evidence.of(
        members(),
        [Row(each["member"], "training", "loss", float(each["seed"]), step=1) for each in members()],
        CONFIG,
    )
    pooled = bars("loss", by="task.back").draw(twins)[1]
    alone = bars("loss", by="configuration").draw(twins)[1]
    ends = [(row["low"], row["high"]) for row in (*pooled, *alone) if row["kind"] == "mean"]
    assert ends == [(2.0, 5.0)] * 3


def test_a_field_that_is_the_same_for_all_makes_one_group():
    rows = drawn(bars("loss", by="task.back"))
    assert {row["group"] for row in rows} == {"back 3"}
    caption, _ = bars("loss", by="task.back").words(evidence())
    assert "All 2 configurations are taken together." in caption


def test_numbers_are_grouped_in_ascending_order():
    found = evidence(config=(11, 2))
    assert [row["group"] for row in bars("loss", by=DEPTH).draw(found)[1] if row["kind"] == "mean"] == [
        "layers 2",
        "layers 11",
    ]


def test_long_curves_are_thinned_from_their_end():
    """5,202 points are more than a figure shows."""
    of_both = [Row(n, "training", "loss", 1.0, step=at, samples=at) for n in (0, 1) for at in range(1, 2602)]
    found = Evidence.of([{"member": 0}, {"member": 1}], of_both)
    rows = curve_rows(choose(curves("loss"), found, None), "samples")
    for kind in ("seed", "mean"):
        assert {row["at"] for row in rows if row["kind"] == kind} == set(range(1, 2602, 2))


def test_a_rare_spike_is_left_out_of_the_axis():
    steps = range(1, 402)
    spiky = [
        Row(0, "training", "loss", 5000.0 if step == 5 else 1.0, step=step, samples=step) for step in steps
    ]
    spec = curves("loss").draw(Evidence.of([{"member": 0}], spiky))[0].to_dict()
    (_, high) = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert high == pytest.approx(1.03)


def test_what_never_happened_is_in_no_picture(tmp_path):
    rows = [Row(n, "mine", "onset", value, step=7) for n, value in enumerate((3.0, float("inf"), 5.0))]
    found = Evidence.of([{"member": n} for n in range(3)], rows)
    drawn_rows = bars("onset").draw(found)[1]
    assert [row["value"] for row in drawn_rows if row["kind"] == "seed"] == [3.0, 5.0]
    write_figures(RunFolder(tmp_path), [bars("onset"), curves("onset")], found)
    render_figure(tmp_path / "figures", "final-onset")


# Floors.


def test_floors_are_drawn_where_the_curve_is():
    spec = json.dumps(curves("loss").draw(evidence(), FLOORS)[0].to_dict())
    assert "uniform guess 1.946" in spec and "copying 1" in spec and "chance" not in spec
    spec = json.dumps(bars("accuracy").draw(evidence(), FLOORS)[0].to_dict())
    assert "chance 14.3 %" in spec and "uniform" not in spec


GROUPS = [Group("layers 1", (0,), ("a", "b")), Group("layers 2", (1,), ("c", "d"))]


@pytest.mark.parametrize(
    ("by_configuration", "levels"),
    [
        ({"a": 3.0, "b": 3.0, "c": 3.0, "d": 3.0}, [Level(3.0, "guess")]),
        (
            {"a": 3.0, "b": 3.0, "c": 5.0, "d": 5.0},
            [Level(3.0, "guess, layers 1", "layers 1"), Level(5.0, "guess, layers 2", "layers 2")],
        ),
        (
            {"a": 3.0, "b": 5.0, "c": 3.0, "d": 5.0},
            [Level(3.0, "guess, a and c"), Level(5.0, "guess, b and d")],
        ),
        ({"a": 3.0}, [Level(3.0, "guess")]),
        ({}, []),
    ],
)
def test_floors_that_differ_between_configurations(by_configuration, levels):
    def floors(label):
        return {"guess": by_configuration[label]} if label in by_configuration else {}

    assert levels_of(floors, "loss", None, GROUPS) == levels


def test_labels_of_floors_are_moved_apart():
    assert apart([10.0, 50.0], [16.0, 16.0], 100.0) == [10.0, 50.0]
    assert apart([10.0, 12.0], [16.0, 16.0], 100.0) == [10.0, 26.0]
    assert apart([97.0, 99.0], [16.0, 16.0], 100.0) == [84.0, 100.0]


# Drawing.


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn(tmp_path, case):
    write_figures(RunFolder(tmp_path), FIGURES, evidence(**CASES[case]), FLOORS)
    assert figure_names(tmp_path / "figures") == sorted(figure.name for figure in FIGURES)
    for name in figure_names(tmp_path / "figures"):
        svg, png = render_figure(tmp_path / "figures", name)
        assert "<svg" in svg.read_text(encoding="utf-8")
        assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("figure", "labels"), [(bars("loss"), 12), (curves("loss"), 12)])
def test_many_groups_keep_all_their_names(tmp_path, figure, labels):
    """More of them than ticks of the theme, and than it has colours."""
    found = evidence(config=range(1, 13))
    write_figures(RunFolder(tmp_path), [figure], found, FLOORS)
    svg = render_figure(tmp_path / "figures", figure.name)[0].read_text(encoding="utf-8")
    assert sum(f">layers {layers}<" in svg for layers in range(1, 13)) == labels


def test_a_metric_of_one_evaluation_is_a_point():
    once = [Row(0, "mine", "score", 0.5, step=3, samples=51)]
    spec = curves("score").draw(Evidence.of([{"member": 0}], once))[0].to_dict()
    assert [layer["mark"]["point"] for layer in spec["layer"] if layer["mark"]["type"] == "line"] == [
        {"size": 22},
        {"size": 40},
    ]


def test_without_samples_the_axis_counts_steps():
    rows = [Row(0, "mine", "score", 0.5, step=step) for step in (0, 3)]
    spec = curves("score").draw(Evidence.of([{"member": 0}], rows))[0].to_dict()
    assert spec["layer"][0]["encoding"]["x"]["title"] == "training step"


def test_captions_say_what_is_left_out():
    caption, alternative = curves("loss", by=DEPTH).words(evidence(diverged=(4,)), FLOORS)
    assert "floors" in caption and "1 member diverged and is left out" in caption
    parts = ("held-out loss", "layers 1: 0.02 (3 seeds)", "layers 2: 0.05 (2 of 3 seeds, 1 diverged)")
    assert all(part in alternative for part in parts)
    caption, alternative = heads("attention_to_source").words(evidence(diverged=range(6)))
    assert "floors" not in caption and "6 members diverged and are left out" in caption
    assert "layers 2: no value (every member diverged)" in alternative


# Figures of series.

SHARE = Axis("held-out accuracy", (0.0, 1.0), "%")
SHAPES = {"lines": lines, "dots": dots, "sweep": sweep, "cells": cells}


def by_layers(metric="accuracy", **shown):
    return [
        Series(metric, label, x=layers, y=label, where={"configuration": label}, **shown)
        for layers in (1, 2)
        for label in [f"layers {layers}"]
    ]


def test_lines_show_every_member():
    rows = drawn(lines("mine", [Series("accuracy", "a", panel="{configuration}, seed {seed}")], SHARE))
    assert len(rows) == 6 * len(STEPS)
    for row in rows:
        assert row["value"] == pytest.approx(accuracy(row["member"], row["at"]), rel=1e-4)
    assert [row["panel"] for row in rows[:: len(STEPS)]] == [
        f"layers {layers}, seed {seed}" for layers in (1, 2) for seed in (2, 3, 5)
    ]
    rows = drawn(lines("mine", by_layers(less=0.125), SHARE, time="samples"), diverged=(4,))
    assert {row["at"] for row in rows if row["member"] == 0} == {step * BATCH for step in STEPS}
    assert max(row["at"] for row in rows if row["member"] == 4) == 7 * BATCH
    assert rows[0]["value"] == -0.125


@pytest.mark.parametrize("shape", ["dots", "sweep"])
def test_dots_and_sweeps_show_seeds_and_means(shape):
    rows = drawn(SHAPES[shape]("mine", by_layers(), SHARE), diverged=(4,))
    seeds = {(row["name"], row["seed"]): row["value"] for row in rows if row["kind"] == "seed"}
    assert seeds == {
        (f"layers {layers}", seed): pytest.approx(accuracy(member, 13))
        for member, layers, seed in ((0, 1, 2), (1, 1, 3), (2, 1, 5), (3, 2, 2), (5, 2, 5))
    }
    first, second = (row for row in rows if row["kind"] == "mean")
    assert (first["value"], first["low"], first["high"]) == pytest.approx((0.974, 0.961, 0.987))
    assert second["value"] == pytest.approx(0.935) and second["x"] == 2


def test_cells_show_means_alone():
    rows = drawn(cells("mine", by_layers(), SHARE), diverged=(3, 4, 5))
    assert [(row["kind"], row["y"], row["value"]) for row in rows] == [
        ("mean", "layers 1", pytest.approx(0.974))
    ]


def test_a_seed_may_have_its_own_interval():
    rows = [Row(n, "exam", f"score{end}", 0.5 + by, step=7) for n in (0, 1)
            for end, by in (("", 0.0), ("_low", -0.2 - n / 10), ("_high", 0.3))]  # fmt: skip
    found = Evidence.of([{"member": n, "seed": n} for n in (0, 1)], rows)
    series = [Series("score", "a", x="1", ends=("score_low", "score_high"))]
    _, shown = sweep("mine", series, SHARE).draw(found)
    assert [(row["low"], row["high"]) for row in shown if row["kind"] == "seed"] == [(0.3, 0.8), (0.2, 0.8)]


def test_a_number_may_be_given():
    series = [
        Series(name="a", x="1", given=Given(0.123456, 0.1, 0.2)),
        Series(name="b", x="1", given=Given(0.5)),
        Series(name="c", x="1", given=Given(None)),
    ]
    _, rows = sweep("mine", series, SHARE).draw(evidence())
    assert [(row["name"], row["kind"], row["value"]) for row in rows] == [
        ("a", "seed", 0.12346), ("a", "mean", 0.12346), ("b", "seed", 0.5), ("b", "mean", 0.5),
    ]  # fmt: skip
    assert [(row["low"], row["high"]) for row in rows if row["kind"] == "mean"] == [(0.1, 0.2), (None, None)]


def test_series_and_marks_may_be_functions_of_what_was_measured():
    figure = sweep(
        "mine",
        lambda found: [Series("accuracy", name, x=name, where={"configuration": name})
                       for name in dict.fromkeys(found.configurations.values())],
        SHARE,
        marks=lambda found: [Mark(len(found.members) / 12, "half")],
    )  # fmt: skip
    chart, rows = figure.draw(evidence())
    assert {row["x"] for row in rows} == {"layers 1", "layers 2"}
    assert '"at": 0.5, "name": "", "label": "half"' in json.dumps(chart.to_dict())


MARKS = (Mark(0.5, "everywhere"), Mark(0.25, "only here", panel="two"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_figure_of_series_is_drawn(tmp_path, case, shape):
    """Also where no member has a value; a mark of one small chart stands in that one alone."""
    series = [*by_layers(panel="one"), *by_layers(panel="two"), *by_layers(panel="two", hollow=True)]
    figures = [SHAPES[shape]("mine", series, SHARE, marks=MARKS, columns=3),
               SHAPES[shape]("bare", [Series("accuracy", "a", x=2.0, y="a")], Axis("accuracy"))]  # fmt: skip
    write_figures(RunFolder(tmp_path), figures, evidence(**CASES[case]), FLOORS)
    svg, _ = (render_figure(tmp_path / "figures", name) for name in ("mine", "bare"))
    text = svg[0].read_text(encoding="utf-8")
    panels = 0 if case == "all diverged" and shape != "lines" else 2
    if shape != "cells":
        # A label is drawn twice: once as the white edge that keeps it readable over lines.
        assert (text.count(">everywhere<"), text.count(">only here<")) == (2 * panels, panels)


def test_the_legend_of_dots_is_there(tmp_path):
    write_figures(RunFolder(tmp_path), [dots("mine", by_layers(), SHARE)], evidence())
    svg = render_figure(tmp_path / "figures", "mine")[0].read_text(encoding="utf-8")
    assert svg.count(">layers 1<") == 2  # its row, and the legend


def test_a_flag_has_the_colour_of_its_series(tmp_path):
    marks = [Mark(1.5, "threshold", "x", "layers 1"), Mark(1.5, "threshold", "x", "layers 2")]
    write_figures(RunFolder(tmp_path), [sweep("mine", by_layers(), SHARE, marks=marks)], evidence())
    render_figure(tmp_path / "figures", "mine")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_series_of_what_there_is_not_is_one_line(shape):
    with pytest.raises(
        UserError, match="figure 'mine': metric: expected one that the run has, found 'recall'"
    ):
        SHAPES[shape]("mine", [Series("recall", "a", x=1, y="a")], SHARE).draw(evidence())
    with pytest.raises(UserError, match="figure 'mine': column: expected one of"):
        SHAPES[shape]("mine", [Series("loss", "a", x=1, y="a", where={"size": 1})], SHARE).draw(evidence())


# A chart of one's own.


def own(found):
    frame = found.rows("loss")[["step", "value", "configuration"]]
    return alt.Chart(frame).mark_point().encode(x="step:Q", y="value:Q", color="configuration:N"), frame


def test_a_chart_of_ones_own_is_drawn_from_its_rows(tmp_path):
    found = evidence(diverged=(4,))
    write_figures(RunFolder(tmp_path), [chart("mine", own, "Mine."), chart("mine", own)], found)
    assert figure_names(tmp_path / "figures") == ["mine", "mine-2"]
    spec = json.loads((tmp_path / "figures" / "mine-2.vl.json").read_text(encoding="utf-8"))
    assert spec["data"]["url"] == "mine-2.csv"
    assert spec["data"]["format"]["parse"] == {"step": "number", "value": "number", "configuration": "string"}
    with (tmp_path / "figures" / "mine.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 6 * len(STEPS)
    assert [row["value"] for row in table].count("") == 2
    render_figure(tmp_path / "figures", "mine")


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda found: own(found)[0], "found Chart; return both"),
        (lambda found: ("no chart", []), "found str as the chart"),
        (lambda found: (own(found)[0], [1, 2]), "expected rows that are mappings"),
        (lambda found: (own(found)[0], {"a": 1}), "found dict as the rows"),
        (lambda found: (own(found)[0], []), "found no rows"),
        (lambda found: {}["x"], "found KeyError: 'x' (test_user_figures.py, line "),
    ],
)
def test_what_is_no_chart_of_ones_own_is_one_line(function, found):
    with pytest.raises(UserError, match=r"^figure chart 'mine': expected") as caught:
        chart("mine", function).draw(evidence())
    assert found in str(caught.value) and "\n" not in str(caught.value)


# What there is not.


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (bars("accuraccy"), "one of the metrics accuracy, attention_to_source, loss, found 'accuraccy'"),
        (
            curves("loss", by="layers"),
            "by to be one of the columns configuration, model.layers, found 'layers'",
        ),
        (bars("loss", split="test"), "split to be one of held_out, train, found 'test'"),
        (bars("loss", part="first"), "part to be one of none, found 'first'"),
        (
            bars("attention_to_source"),
            "a metric of the whole model, found one of layers or heads; hs.figures.heads",
        ),
        (heads("loss"), "a metric of heads, found one of the whole model; hs.figures.curves or bars"),
    ],
)
def test_what_there_is_not_is_named_with_the_figure(figure, message):
    for ask in (figure.draw, figure.words):
        with pytest.raises(UserError) as caught:
            ask(evidence(), FLOORS)
        assert str(caught.value).startswith(f"figure {figure.kind} of '{figure.metric}': expected {message}")
        assert "\n" not in str(caught.value)


def test_a_name_that_cannot_be_a_file_is_one_line():
    with pytest.raises(UserError, match="expected a name of letters"):
        chart("../mine", own)
    with pytest.raises(UserError, match="expected a name of letters"):
        lines("a/b", [], SHARE)
