"""Figures that a study declares: their rows are the evidence, and all of them can be drawn whatever came out."""

import csv
import json
import subprocess
import sys

import altair as alt
import pytest

from hopscope.errors import UserError
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies.chart_choice import choose
from hopscope.studies.charts import curve_rows
from hopscope.studies.figures import bars, chart, curves, heads, numbered, write_figures
from hopscope.studies.levels import Level, apart, levels_of
from hopscope.studies.selection import Group

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
        "import sys\nfrom hopscope.studies import figures\nfigures.curves('loss'), figures.chart('x', print)\n"
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


def test_long_curves_are_thinned_from_their_end(monkeypatch):
    from hopscope.studies import charts

    monkeypatch.setattr(charts, "MOST_POINTS", 12)
    rows = curve_rows(choose(curves("loss"), evidence(), None), "samples")
    assert {row["at"] for row in rows if row["kind"] == "seed"} == {7 * BATCH, 13 * BATCH}
    assert {row["at"] for row in rows if row["kind"] == "mean"} == {7 * BATCH, 13 * BATCH}


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
    assert caption.endswith("1 member diverged and is left out of the means (✕ marks where).")
    assert "floors" in caption
    assert alternative == (
        "Line chart of held-out loss. At the end, layers 1: 0.02 (3 seeds); "
        "layers 2: 0.05 (2 of 3 seeds, 1 diverged)."
    )
    caption, alternative = heads("attention_to_source").words(evidence(diverged=range(6)))
    assert "floors" not in caption and "6 members diverged and are left out" in caption
    assert "layers 2: no value (every member diverged)" in alternative


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
