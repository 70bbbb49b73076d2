"""Questions to the evidence table, on a made-up one."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs import Evidence, Member, RunFolder, save_checkpoint

from .conftest import told

CONFIG = {"identity": {"model": {"layers": 3, "width": 5}, "task": {"name": "Copy", "fields": {"back": 2}}}}
MEMBERS = [
    {"member": 0, "seed": 11, "configuration": "one", "overrides": {"model.layers": 1, "slots": [2, 3]}},
    {"member": 1, "seed": 13, "configuration": "one", "overrides": {"model.layers": 1, "slots": [2, 3]}},
    {"member": 2, "seed": 11, "configuration": "three", "overrides": {"ratio": 0.5, "task.back": 7}},
    {"member": 3, "seed": 13, "configuration": "three", "overrides": {"ratio": 1, "causal": True}},
    {"member": 4, "seed": 17, "configuration": "three", "overrides": {"ratio": 1, "causal": False}},
]
FIELDS = {
    "causal": [None, None, None, True, False],
    "model.layers": [1, 1, 3, 3, 3],
    "ratio": [None, None, 0.5, 1.0, 1.0],
    "slots": ["[2,3]", "[2,3]", None, None, None],
    "task.back": [2, 2, 7, 2, 2],
}


def rows():
    for step in (0, 7, 13):
        late = [None if member == 4 and step == 13 else 1.0 for member in range(5)]
        for split, part, slope in [
            ("train", None, 0.01),
            ("held-out", None, 0.1),
            ("held_out", "repeat", -0.1),
        ]:
            values = [one and member + step * slope for member, one in enumerate(late)]
            row = {"metric": "loss", "split": split, "part": part, "value": values}
            yield {**row, "step": step, "samples": step * 3}
    for layer in range(2):
        for head in range(3):
            values = np.array([100.0 * member + 10 * layer + head for member in range(4)] + [np.nan])
            row = {"metric": "to_source", "layer": layer, "head": head, "step": 13, "value": values}
            yield {**row, "measure": "attention", "member": [0, 1, 2, 3, 4]}
    asked = {"metric": "asked", "measure": "questions"}
    yield {**asked, "value": 23.0, "part": "yes"}
    yield {**asked, "value": 29, "part": "no", "file": "measures/asked.safetensors"}


@pytest.fixture(params=["made", "read"])
def evidence(request, tmp_path):
    made = Evidence.of(rows(), MEMBERS, CONFIG, tmp_path)
    if request.param == "made":
        return made
    made.write(tmp_path / "evidence.parquet")
    found = Evidence.read(tmp_path)
    assert found.to_arrow().equals(made.to_arrow()) and found.members == made.members
    return found


def test_what_there_is(evidence):
    assert evidence.members == [0, 1, 2, 3, 4] and len(evidence) == 9 * 5 + 6 * 5 + 2
    assert evidence.seeds == {0: 11, 1: 13, 2: 11, 3: 13, 4: 17} and evidence.configurations[2] == "three"
    assert evidence.metrics == ["asked", "loss", "to_source"] and evidence.columns == [*FIELDS]
    assert "loss" in evidence and "accuracy" not in evidence
    fixed = "member seed configuration split step samples measure metric layer head part value file"
    assert evidence.to_arrow().schema.names == [*fixed.split(), *FIELDS] == list(evidence.to_pandas().columns)
    kinds = evidence.to_pandas().dtypes.astype(str)
    assert [kinds[name] for name in ("member", "step", "value", *FIELDS)] == [
        "Int32", "Int64", "float64", "boolean", "Int64", "float64", "str", "Int64",
    ]  # fmt: skip
    start = "Evidence: 77 rows of 5 members in 2 configurations; metrics asked, loss, to_source;"
    assert repr(evidence).startswith(start)


def test_a_field_that_is_not_set_is_that_of_the_run_or_null(evidence):
    frame = evidence.to_pandas().drop_duplicates("member").dropna(subset="member").sort_values("member")
    for name, values in FIELDS.items():
        assert frame[name].astype(object).where(frame[name].notna(), None).tolist() == values, name


def test_what_follows_from_a_field_is_that_of_the_member():
    """A completion decides the start, and the number of steps that of the warm-up."""
    units = [
        {"name": "a", "task": {"name": "Copy", "fields": {"back": 2}}, "model": {"init": "linear"},
         "training": {"steps": 20, "warmup_steps": 2}},
        {"name": "b", "task": {"name": "Copy", "fields": {"back": 2}}, "model": {"init": "gpt2"},
         "training": {"steps": 40, "warmup_steps": 4}},
    ]  # fmt: skip
    own = {
        "training": {"steps": 20, "warmup_steps": 2},
        "options": {"depth": 5},
        "completion": "torch-schedule",
    }
    members = [
        {"member": 0, "unit": "a", "overrides": {"options.depth": 7}},
        {"member": 1, "unit": "b", "overrides": {"training.steps": 40, "completion": "gpt2-base"}},
    ]
    made = Evidence.of([{"metric": "loss", "value": [0.1, 0.3]}], members, {"identity": own, "units": units})
    table = made.rows("loss").set_index("member")[made.columns]
    assert {name: [*table[name]] for name in made.columns} == {
        "completion": ["torch-schedule", "gpt2-base"], "model.init": ["linear", "gpt2"], "options.depth": [7, 5],
        "training.steps": [20, 40], "training.warmup_steps": [2, 4],
    }  # fmt: skip


def test_the_last_value_of_every_member(evidence):
    found = evidence.last("loss")
    assert found.name == "loss" and found.index.name == "member" and found.dtype == np.float64
    assert found[:4].round(9).to_dict() == {0: 1.3, 1: 2.3, 2: 3.3, 3: 4.3} and np.isnan(found[4])
    assert evidence.last("loss", split="train").round(9)[3] == 3.13
    assert evidence.last("loss", part="repeat", measure="training").round(9)[2] == 0.7
    assert evidence.last("to_source", layer=1, head=2)[:4].to_dict() == {0: 12, 1: 112, 2: 212, 3: 312}
    assert evidence.last("loss", step=7).round(9).to_dict() == {0: 0.7, 1: 1.7, 2: 2.7, 3: 3.7, 4: 4.7}
    assert evidence.last("loss", step=[0, 7])[4] == pytest.approx(4.7)
    few = Evidence.of([{"metric": "x", "member": 1, "value": 3.0}], MEMBERS).last("x")
    assert few.index.tolist() == [0, 1, 2, 3, 4] and few.dropna().to_dict() == {1: 3.0}


CHOSEN = [
    ({"model.layers": 1}, [0, 1]),
    ({"model.layers": 1.0}, [0, 1]),
    ({"model.layers": np.int64(3)}, [2, 3, 4]),
    ({"model.layers": (1, 3), "seed": 13}, [1, 3]),
    ({"seed": {11, 17}}, [0, 2, 4]),
    ({"member": range(1, 3)}, [1, 2]),
    ({"member": np.array([4, 0])}, [0, 4]),
    ({"member": pd.Series([4, 0])}, [0, 4]),
    ({"configuration": "three"}, [2, 3, 4]),
    ({"ratio": 1}, [3, 4]),
    ({"ratio": None}, [0, 1]),
    ({"ratio": [None, 0.5]}, [0, 1, 2]),
    ({"causal": False}, [4]),
    ({"slots": [2, 3]}, [0, 1]),
    ({"slots": "[2,3]"}, [0, 1]),
    ({"slots": None}, [2, 3, 4]),
    ({"slots": [[2, 3], None]}, [0, 1, 2, 3, 4]),
    ({"model.layers": 1.5}, []),
    ({"configuration": "five"}, []),
    ({"slots": [2]}, []),
    ({"seed": 11, "causal": False}, []),
]  # fmt: skip


@pytest.mark.parametrize(("where", "members"), CHOSEN)
def test_members_are_chosen_by_their_fields(evidence, where, members):
    few = evidence.where(**where)
    assert few.members == members and few.columns == evidence.columns and few.metrics == evidence.metrics
    assert sorted(set(evidence.rows("loss", **where)["member"])) == members
    assert sorted(set(few.to_pandas()["member"].dropna())) == members and len(few.rows("asked")) == 2
    assert f"rows of {len(members)} members" in repr(few) and len(few) == len(few.to_pandas())
    if members:
        assert list(evidence.last("loss", **where).index) == members == list(few.last("loss").index)
        assert list(evidence.curve("loss", **where).columns) == members
        return
    for ask in (evidence.last, evidence.curve):
        with told(r"members: expected .*found "):
            ask("loss", **where)
    with told("members: expected some, found none that are left"):
        few.last("loss")


def test_a_curve_has_a_row_for_every_step(evidence):
    curve = evidence.curve("loss", **{"model.layers": 3})
    assert (curve.index.name, curve.columns.name) == ("step", "member") and curve.index.tolist() == [0, 7, 13]
    np.testing.assert_allclose(curve[3], [3, 3.7, 4.3])
    np.testing.assert_allclose(curve[4], [4, 4.7, np.nan])
    assert evidence.curve("loss", split="train").shape == (3, 5)
    assert evidence.curve("to_source", layer=0, head=1).index.tolist() == [13]


def test_rows_are_tidy(evidence):
    heads = evidence.rows("to_source", member=2)
    assert len(heads) == 6 and heads["value"].sum() == 6 * 200 + 3 * 10 + 2 * 3
    assert len(evidence.rows("loss")) == 30 and len(evidence.rows("loss", split=None)) == 45
    assert len(evidence.rows("loss", part=None, split="held-out")) == 15
    assert len(evidence.rows(measure="attention")) == 30 == len(evidence.rows("to_source", measure=None))
    assert evidence.rows("loss", step=5).empty and evidence.rows("loss", part="other").empty
    assert evidence.has("loss", part="repeat")
    assert not evidence.has("loss", part="other") and not evidence.has("x")
    assert not evidence.has("to_source", member=4) and evidence.has("to_source", member=[3, 4])


UNANSWERED = [
    (lambda e: e.last("los"), r"found 'los'; did you mean loss\? it has asked, loss, to_source"),
    (lambda e: e.rows("accuracy"), "it has asked, loss, to_source"),
    (lambda e: e.curve("loss", layers=1), r"found 'layers'; did you mean .*layer.*differ in causal, model.layers"),
    (lambda e: e.where(step=7), "column: expected one of member, seed, configuration, causal"),
    (lambda e: e.last("to_source"), "expected one layer of 0, 1, found none; name it: layer=0"),
    (lambda e: e.last("to_source", layer=1), "expected one head of 0, 1, 2, found none"),
    (lambda e: e.last("asked"), "expected one part of no, yes, found none; name it: part='no'"),
    (lambda e: e.curve("asked", part="no"), r"metric of members, found one of the whole run; use .rows\('asked'\)"),
    (lambda e: e.last("loss", measure="attention"), r"expected a measure that is there \(training\), found 'att"),
    (lambda e: e.curve("to_source", split="train", layer=0, head=0), r"a split that is there \(held_out\)"),
    (lambda e: e.last("loss", part="repeats"), r"part that is there \(repeat, None\).*did you mean repeat\?"),
    (lambda e: e.last("loss", step=5), r"a step that is there \(0, 7, 13\), found 5"),
    (lambda e: e.last("loss", configuration="thre"), r"\(one, three\), found 'thre'; did you mean three\?"),
    (lambda e: e.last("to_source", layer=[0, 1], head=0), "several at its last step"),
    (lambda e: e.curve("to_source", layer=[0, 1], head=0), "several at its last step"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "words"), UNANSWERED)
def test_a_question_that_nothing_answers_is_one_clear_line(evidence, ask, words):
    with told(words):
        ask(evidence)


def test_two_measures_of_one_metric_are_told_apart():
    members = [{"member": n} for n in range(3)]
    twice = [{"metric": "x", "measure": m, "value": [1, 2, 3], "step": 5} for m in ("training", "own")]
    evidence, earlier = Evidence.of(twice, members), Evidence.of([{**twice[0], "step": 3}, twice[1]], members)
    for ask in (evidence.last, evidence.curve, earlier.curve):
        with told("one measure, found own, training; name one, as in measure='own'"):
            ask("x")
        assert ask("x", measure="own").shape[-1] == 3
    assert earlier.last("x").tolist() == [1, 2, 3]


VALUES = st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5)), min_size=3, max_size=3)


@settings(max_examples=23)
@given(values=st.dictionaries(st.integers(0, 10**6), VALUES, min_size=1), shuffled=st.randoms())
def test_nan_is_null_infinity_stays_and_order_leaves_no_trace(values, shuffled):
    members = [{"member": member, "seed": member} for member in (5, 7, 11)]
    listed = [{"metric": "x", "step": step, "value": several} for step, several in values.items()]
    single = [
        {**row, "member": number, "value": value}
        for row in listed
        for number, value in zip((5, 7, 11), row["value"], strict=True)
    ]
    shuffled.shuffle(single)
    evidence = Evidence.of(single, members)
    assert evidence.to_arrow().equals(Evidence.of(listed, members).to_arrow())
    expected = [np.nan if each is None else each for each in values[max(values)]]
    np.testing.assert_array_equal(evidence.last("x"), expected)


def test_equal_rows_give_equal_files(tmp_path):
    for name, several in (("a", list(rows())), ("b", list(rows())[::-1])):
        Evidence.of(several, [Member(**each) for each in MEMBERS], CONFIG).write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


UNFIT = [
    ({"member": 7}, r"training, x: expected as member one of .*, found 7"),
    ({"split": "test"}, r"training, x: expected as split one of train, held_out, found test"),
    ({"part": 3}, "rows: expected values as their columns hold them, found others: .*column part"),
    ({"layer": "one"}, "column layer"),
    ({"layer": 1.7}, "row, layer: expected a whole number, found 1.7"),
    ({"value": (1.0, 2.0)}, r"x: expected a value for each member, found 2 for \[0, 1, 2, 3, 4\]"),
    ({"value": "much"}, "column value"),
    ({"lyer": 1}, r"row: expected the keys .*, found 'lyer'; did you mean layer\? leave it out"),
    ({"value": [1.0, 2.0]}, r"x: expected a value for each member, found 2 for \[0, 1, 2, 3, 4\]"),
    ({"metric": "loss", "step": 7, "member": 3}, "two of member 3, step 7, metric loss, .*give them other metrics"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "words"), UNFIT)
def test_rows_that_do_not_fit_are_refused(row, words):
    with told(words):
        Evidence.of([*rows(), {"metric": "x", "value": 1.0, **row}], MEMBERS)


@pytest.mark.parametrize("row", [{"metric": "x"}, {"value": 1.0}])
def test_a_row_has_a_metric_and_a_value(row):
    with told("row: expected a metric and its value, found no (value|metric)"):
        Evidence.of([row], MEMBERS)


def test_several_values_may_come_from_any_collection(evidence):
    seeds = evidence.seeds
    for several in (seeds.keys(), (each for each in seeds), {*seeds}):
        assert evidence.where(member=several).members == [*seeds]


def test_a_field_that_no_column_holds_is_refused():
    with told("expected values as their columns hold them, found others: .*too"):
        Evidence.of([], [{"member": number, "overrides": {"big": 2 ** (64 * number)}} for number in range(2)])


def test_fields_of_several_kinds_and_none_at_all():
    fields = [{"x": 1, "y": True, "z": 1, "w": None}, {"x": "1", "y": 0, "z": 2.5, "w": None}]
    members = [Member(member=n, overrides=each) for n, each in enumerate(fields)]
    evidence = Evidence.of([{"metric": "<b>", "value": [2.0, 3.0]}], members)
    table = evidence.to_arrow().select(["w", "x", "y", "z"]).to_pydict()
    assert table == {"w": [None, None], "x": ["1", '"1"'], "y": ["true", "0"], "z": [1.0, 2.5]}
    assert evidence.where(x=1).members == [0] and evidence.where(y=True).members == [0]
    empty = Evidence.of([], [])
    assert empty.members == [] and empty.to_pandas().empty
    with told("it has none"):
        empty.last("loss")


def test_arrays_of_the_files_that_rows_point_to(evidence, tmp_path):
    (file,) = evidence.rows("asked", part="no")["file"]
    with told(r"asked\.safetensors: expected a readable file"):
        evidence.arrays(file)
    save_checkpoint(tmp_path / file, {"maps": np.arange(6.0).reshape(2, 3)}, {})
    np.testing.assert_array_equal(evidence.where(seed=11).arrays(file)["maps"], [[0, 1, 2], [3, 4, 5]])
    (tmp_path / file).write_bytes(b"none")
    with told(r"asked\.safetensors: expected a whole checkpoint"):
        evidence.arrays(file)
    for outside in ("../a.safetensors", "/etc/hosts", "a/../../a"):
        with told("found one outside"):
            evidence.arrays(outside)
    with told("evidence of a run's folder, found none"):
        Evidence.of([], MEMBERS).arrays(file)


def test_a_damaged_table_is_told_wherever_the_byte_is(tmp_path):
    """Also in a run that is not finished, whose manifest is not there yet."""
    path = tmp_path / "evidence.parquet"
    Evidence.of(rows(), MEMBERS, CONFIG).write(path)
    content = path.read_bytes()
    places = range(0, len(content), 13)
    flipped = (content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in places)
    for damaged in (*flipped, b"", content[:100], content[:-1], b"PAR1" * 100):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="expected a whole evidence table, found ") as caught:
            Evidence.read(tmp_path)
        assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    pd.DataFrame({"member": [1]}).to_parquet(path)
    with told(r"expected the columns member, seed, .*found member"):
        Evidence.read(path)


def test_a_table_of_a_finished_run_is_checked_as_a_whole(run):
    evidence = Evidence.read(run)
    assert evidence.last("norm", **{"model.width": 1}).index.tolist() == [3, 4]
    file = evidence.rows("largest", member=3)["file"].unique()[0]
    assert evidence.arrays(file)["maps"].shape == (2,) and evidence.config == run.config
    evidence.where(member=[0, 1]).write(run.path / "evidence.parquet")
    assert run.is_done and Evidence.read(run.path).members == [0, 1], "the manifest follows"
    with told(r"evidence\.parquet: expected a readable file"):
        Evidence.read(RunFolder(run.path / "units"))


def test_a_million_rows_answer_at_once():
    places = [(step, metric, layer) for step in range(500) for metric in "abcde" for layer in range(25)]
    made = ({"step": s, "metric": m, "layer": layer, "value": [float(s)] * 16} for s, m, layer in places)
    evidence = Evidence.of(made, [{"member": member, "seed": member} for member in range(16)])
    assert len(evidence) == 10**6 and evidence.has("a", layer=0)
    began = time.process_time()
    for number in range(300):
        assert evidence.where(seed=[2, 3, 5]).last("a", layer=number % 25).tolist() == [499.0] * 3
    assert time.process_time() - began < 6.0


def test_a_part_may_be_asked_for_as_a_number():
    rows = [{"metric": "x", "part": str(part), "value": [float(part)], "member": [0]} for part in (3, 5)]
    table = Evidence.of(rows, [Member(member=0, seed=7, unit="a")], {})
    assert table.last("x", part=5).tolist() == [5.0] and len(table.rows("x", part=[3, 5])) == 2
