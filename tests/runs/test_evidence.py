"""Questions to the evidence table, on a made-up one."""

import re

import numpy as np
import pandas as pd
import pytest

from hopscope.errors import UserError
from hopscope.runs import Evidence, MemberRecord, Row
from hopscope.runs.arrays import npz_bytes

CONFIG = {"model": {"layers": 3, "width": 5}, "task": {"back": 2}}
MEMBERS = [
    {"member": 0, "seed": 11, "configuration": "one", "overrides": {"model.layers": 1, "slots": [2, 3]}},
    {"member": 1, "seed": 13, "configuration": "one", "overrides": {"model.layers": 1, "slots": [2, 3]}},
    {"member": 2, "seed": 11, "configuration": "three", "overrides": {"ratio": 0.5}},
    {"member": 3, "seed": 13, "configuration": "three", "overrides": {"ratio": 1, "causal": True}},
    {"member": 4, "seed": 17, "configuration": "three", "overrides": {"ratio": 1, "causal": False}},
]


def rows():
    for member in range(5):
        for step in (0, 7, 13):
            if not (member == 4 and step == 13):
                yield Row(member, "training", "loss", member + step / 100, "train", step, step * 3)
                yield Row(member, "training", "loss", member + step / 10, step=step, samples=step * 3)
                yield Row(member, "training", "loss", member - step / 10, step=step, part="repeat")
        for layer in range(2):
            for head in range(3):
                value = None if member == 4 else 100 * member + 10 * layer + head
                yield Row(member, "attention", "to_source", value, step=13, layer=layer, head=head)
    yield Row(4, "training", "loss", None, step=13)
    yield Row(None, "questions", "asked", 23.0, part="yes")
    yield Row(None, "questions", "asked", 29.0, part="no", file="analysis/asked.npz")


@pytest.fixture
def evidence():
    return Evidence.of(MEMBERS, rows(), CONFIG)


def test_what_there_is(evidence):
    assert evidence.members == [0, 1, 2, 3, 4]
    assert evidence.seeds == {0: 11, 1: 13, 2: 11, 3: 13, 4: 17}
    assert evidence.configurations[2] == "three"
    assert evidence.metrics == ["asked", "loss", "to_source"]
    assert evidence.columns == ["causal", "model.layers", "ratio", "slots"]
    assert evidence.config == CONFIG
    assert "loss" in evidence and "accuracy" not in evidence
    assert len(evidence) == len(list(rows()))


def test_arrays_of_the_files_that_rows_point_to(tmp_path):
    maps = {"plain": np.arange(6.0).reshape(2, 3)}
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "asked.npz").write_bytes(npz_bytes(maps))
    evidence = Evidence.of(MEMBERS, rows(), CONFIG, tmp_path)
    (file,) = evidence.rows("asked", part="no")["file"]
    for each in (evidence, evidence.where(seed=11)):
        found = each.arrays(file)
        assert list(found) == ["plain"]
        np.testing.assert_array_equal(found["plain"], maps["plain"], strict=True)


def test_arrays_that_are_not_there_or_damaged(tmp_path, evidence):
    with pytest.raises(UserError, match=r"asked\.npz: expected evidence of a run's folder"):
        evidence.arrays("asked.npz")
    in_folder = Evidence.of(MEMBERS, rows(), CONFIG, tmp_path)
    with pytest.raises(UserError, match=r"asked\.npz: expected a file, found none: delete it"):
        in_folder.arrays("asked.npz")
    (tmp_path / "asked.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"asked\.npz: expected whole arrays"):
        in_folder.arrays("asked.npz")


@pytest.mark.parametrize("file", ["../outside.npz", "/etc/hosts", "a/../../outside.npz"])
def test_no_arrays_from_outside_the_run(tmp_path, file):
    (tmp_path / "outside.npz").write_bytes(npz_bytes({"plain": np.zeros(2)}))
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match="found one outside"):
        Evidence.of(MEMBERS, rows(), CONFIG, tmp_path / "run").arrays(file)


def test_columns_stand_in_their_order(evidence):
    fixed = "member seed configuration split step samples measure metric layer head part value file"
    assert evidence.to_arrow().schema.names == [*fixed.split(), "causal", "model.layers", "ratio", "slots"]
    assert list(evidence.to_pandas().columns) == evidence.to_arrow().schema.names


def test_a_field_that_is_not_overridden_is_that_of_the_run_or_null(evidence):
    frame = evidence.to_pandas().drop_duplicates("member").dropna(subset="member").set_index("member")
    assert frame["model.layers"].to_dict() == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3}
    assert frame["ratio"].isna().to_dict() == {0: True, 1: True, 2: False, 3: False, 4: False}
    assert frame["ratio"].dropna().to_dict() == {2: 0.5, 3: 1.0, 4: 1.0}
    assert frame["slots"].dropna().to_dict() == {0: "[2,3]", 1: "[2,3]"}
    assert frame["causal"].dropna().to_dict() == {3: True, 4: False}


def test_a_frame_keeps_whole_numbers_whole(evidence):
    kinds = evidence.to_pandas().dtypes
    assert {
        name: str(kinds[name]) for name in ("member", "layer", "step", "value", "model.layers", "causal")
    } == {
        "member": "Int32",
        "layer": "Int32",
        "step": "Int64",
        "value": "float64",
        "model.layers": "Int64",
        "causal": "boolean",
    }


def test_the_last_value_of_every_member(evidence):
    found = evidence.last("loss")
    assert found.name == "loss" and found.index.name == "member" and found.index.dtype == np.int64
    assert found[:4].round(9).to_dict() == {0: 1.3, 1: 2.3, 2: 3.3, 3: 4.3}
    assert np.isnan(found[4])
    assert evidence.last("loss", split="train").round(9)[4] == 4.07
    assert evidence.last("loss", part="repeat").round(9).to_dict() == {
        0: -1.3,
        1: -0.3,
        2: 0.7,
        3: 1.7,
        4: 3.3,
    }
    assert evidence.last("to_source", layer=1, head=2)[:4].to_dict() == {0: 12, 1: 112, 2: 212, 3: 312}


def test_a_step_may_be_asked_for(evidence):
    assert evidence.last("loss", step=7).round(9).to_dict() == {0: 0.7, 1: 1.7, 2: 2.7, 3: 3.7, 4: 4.7}
    assert evidence.last("loss", step=[0, 7])[4] == pytest.approx(4.7)
    assert evidence.last("loss", step=5).isna().all()


@pytest.mark.parametrize(
    ("where", "members"),
    [
        ({"model.layers": 1}, [0, 1]),
        ({"model.layers": 1.0}, [0, 1]),
        ({"model.layers": np.int64(3)}, [2, 3, 4]),
        ({"model.layers": 1.5}, []),
        ({"model.layers": (1, 3), "seed": 13}, [1, 3]),
        ({"seed": {11, 17}}, [0, 2, 4]),
        ({"member": range(1, 3)}, [1, 2]),
        ({"member": np.array([4, 0])}, [0, 4]),
        ({"member": pd.Series([4, 0])}, [0, 4]),
        ({"configuration": "three"}, [2, 3, 4]),
        ({"configuration": "five"}, []),
        ({"ratio": 1}, [3, 4]),
        ({"ratio": None}, [0, 1]),
        ({"ratio": [None, 0.5]}, [0, 1, 2]),
        ({"causal": False}, [4]),
        ({"slots": [2, 3]}, [0, 1]),
        ({"slots": "[2,3]"}, [0, 1]),
        ({"slots": None}, [2, 3, 4]),
        ({"slots": [[2, 3], None]}, [0, 1, 2, 3, 4]),
        ({"slots": [2]}, []),
    ],
)
def test_members_are_chosen_by_their_fields(evidence, where, members):
    assert evidence.where(**where).members == members
    assert list(evidence.last("loss", **where).index) == members
    assert list(evidence.curve("loss", **where).columns) == members
    assert sorted(set(evidence.rows("loss", **where)["member"])) == members
    assert sorted(set(evidence.where(**where).rows("loss")["member"])) == members


def test_a_chosen_table_is_a_table(evidence):
    few = evidence.where(**{"model.layers": 3}).where(seed=[11, 13])
    assert few.members == [2, 3] and few.seeds == {2: 11, 3: 13}
    assert few.config == CONFIG and few.columns == evidence.columns and few.metrics == evidence.metrics
    assert set(few.to_pandas()["member"].dropna()) == {2, 3}
    assert len(few.rows("asked")) == 2, "rows of the whole run stay"
    assert len(few) == len(few.to_pandas()) < len(evidence)
    assert "2 members in 1 configurations" in repr(few)


def test_a_curve_has_a_row_for_every_step(evidence):
    curve = evidence.curve("loss", **{"model.layers": 3})
    assert curve.index.name == "step" and curve.columns.name == "member"
    assert curve.index.tolist() == [0, 7, 13]
    np.testing.assert_allclose(curve[3], [3, 3.7, 4.3])
    np.testing.assert_allclose(curve[4], [4, 4.7, np.nan])
    assert evidence.curve("loss", split="train").shape == (3, 5)
    assert evidence.curve("to_source", layer=0, head=1).index.tolist() == [13]


def test_rows_are_tidy(evidence):
    heads = evidence.rows("to_source", member=2)
    assert len(heads) == 6 and heads["value"].sum() == 6 * 200 + 3 * 10 + 2 * 3
    assert len(evidence.rows("loss")) == 2 * 14 + 1 and len(evidence.rows("loss", split=None)) == 3 * 14 + 1
    assert len(evidence.rows("loss", part=None, split="held-out")) == 15
    assert len(evidence.rows(measure="attention")) == 30
    assert evidence.rows("asked", part="no")["file"].tolist() == ["analysis/asked.npz"]
    assert len(evidence.rows(split=None)) == len(evidence)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda e: e.last("los"), r"found 'los'; did you mean loss\? it has asked, loss, to_source"),
        (lambda e: e.rows("accuracy"), "it has asked, loss, to_source"),
        (
            lambda e: e.curve("loss", layers=1),
            "found 'layers'; members of this run differ in causal, model.layers",
        ),
        (lambda e: e.where(step=7), "expected one of member, seed, configuration, causal"),
        (lambda e: e.last("to_source"), "expected layer to be given, as in layer=0.*for layer 0, 1"),
        (lambda e: e.last("to_source", layer=1), "expected head to be given"),
        (lambda e: e.last("asked"), "expected part to be given, as in part='no'"),
        (
            lambda e: e.curve("asked", part="no"),
            r"a metric of members, found one of the whole run; use .rows\('asked'\)",
        ),
        (
            lambda e: e.last("loss", measure="attention"),
            r"a measure that has it \(training\), found 'attention'",
        ),
        (lambda e: e.curve("to_source", split="train", layer=0, head=0), r"a split that has it \(held_out\)"),
        (lambda e: e.rows("loss", step="7"), "step: expected a number, as the column holds, found '7'"),
        (lambda e: e.where(causal=1), "causal: expected True or False"),
        (lambda e: e.where(configuration=3), "configuration: expected a text"),
    ],
)
def test_a_question_that_nothing_answers_is_one_clear_line(evidence, ask, words):
    with pytest.raises(UserError, match=words) as caught:
        ask(evidence)
    assert "\n" not in str(caught.value)


def test_two_measures_of_one_metric_are_told_apart():
    twice = [Row(n, measure, "loss", n / 7, step=5) for n in range(3) for measure in ("training", "own")]
    evidence = Evidence.of([{"member": n} for n in range(3)], twice)
    for ask in (evidence.last, evidence.curve):
        with pytest.raises(
            UserError,
            match="expected rows of one measure, found own, training; name one, as in measure='own'",
        ):
            ask("loss")
        assert ask("loss", measure="own").shape[-1] == 3
    earlier = Evidence.of(
        [{"member": 0}], [Row(0, "training", "loss", 0.5, step=3), Row(0, "own", "loss", 0.7, step=5)]
    )
    assert earlier.last("loss").to_dict() == {0: 0.7}
    with pytest.raises(UserError, match="one measure"):
        earlier.curve("loss")


def test_nan_is_null_and_infinity_stays():
    evidence = Evidence.of(
        [{"member": n} for n in range(3)],
        [Row(n, "m", "x", v) for n, v in enumerate((np.nan, np.inf, np.float32(3)))],
    )
    assert evidence.to_arrow()["value"].to_pylist() == [None, np.inf, 3.0]
    assert np.isnan(evidence.last("x")[0]) and evidence.last("x")[1] == np.inf


def test_the_order_of_rows_leaves_no_trace():
    listed = list(rows())
    backwards = Evidence.of(MEMBERS, reversed(listed), CONFIG)
    assert backwards.to_arrow().equals(Evidence.of(MEMBERS, listed, CONFIG).to_arrow())


def test_a_number_that_stands_twice_is_refused():
    with pytest.raises(
        UserError, match=r"two for member 3 at step 7 \(measure training, metric loss, split held_out\)"
    ):
        Evidence.of(MEMBERS, [*rows(), Row(3, "training", "loss", 5.0, step=7)])
    Evidence.of(MEMBERS, [*rows(), Row(3, "training", "loss", 5.0, step=7, part="other")])
    Evidence.of(MEMBERS, [*rows(), Row(None, "questions", "asked", 23.0, part="yes")])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Row(7, "m", "x", 1.0), "expected rows of the run's 5 members, found one of member 7"),
        (Row(0, "m", "x", 1.0, split="test"), "expected the split train or held_out, found test"),
        (Row(0, "m", "x", 1.0, part=3), "rows: expected values of string as part, found others"),
        (Row(0, "m", "x", 1.0, layer="one"), "rows: expected values of int32 as layer, found others"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row, words):
    with pytest.raises(UserError, match=words):
        Evidence.of(MEMBERS, [row])


def test_records_and_fields_of_several_kinds():
    members = [
        MemberRecord(member=0, unit="a", index=0, seed=3, overrides={"x": 1, "y": True, "z": 1, "same": 5}),
        MemberRecord(member=1, unit="b", index=0, seed=5, overrides={"x": "1", "y": 0, "z": 2.5, "same": 5}),
    ]
    evidence = Evidence.of(members, [Row(n, "m", "x", n) for n in range(2)])
    table = evidence.to_arrow().select(["configuration", "x", "y", "z"]).to_pydict()
    assert table == {"configuration": ["a", "b"], "x": ["1", '"1"'], "y": ["true", "0"], "z": [1.0, 2.5]}
    assert evidence.where(x=1).members == [0] and evidence.where(y=True).members == [0]


def test_an_empty_table():
    evidence = Evidence.of([], [])
    assert evidence.members == [] and evidence.metrics == [] and len(evidence) == 0
    assert evidence.to_pandas().empty and "<table" in evidence._repr_html_()
    with pytest.raises(UserError, match="it has none"):
        evidence.last("loss")


def test_it_prints_and_shows_what_there_is(evidence):
    assert repr(evidence).startswith(
        "Evidence: 75 rows of 5 members in 2 configurations; metrics asked, loss, to_source;"
    )
    shown = Evidence.of([{"member": 0}], [Row(0, "m", "<b>", 1.0, step=7, part="p")])._repr_html_()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown)
    assert cells == ["&lt;b&gt;", "m", "held_out", "7", "1", "1"]
