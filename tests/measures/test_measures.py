"""Measures: how they are written, what every task can be measured by, and how their numbers become rows."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import hopscope as hs
from hopscope import measures
from hopscope.errors import UserError
from hopscope.measures import as_measure, measure, run_file, stored_name
from hopscope.measures.context import Context
from hopscope.measures.rows import keep, measured, recorded, rows_of
from hopscope.models.ensemble import Ensemble
from hopscope.models.transformer import Transformer
from hopscope.runs import Evidence, Row, RunFolder, UnitFolder, write_json
from hopscope.tasks.device import TaskOnDevice
from hopscope.training.budget import TimeBudget

MEMBERS, SAMPLES, POSITIONS, LAYERS, HEADS, VALUES = (7, 11, 13), 17, 5, 2, 3, 19
READOUT = (2, 4)


class Classes(hs.Task):
    """Tokens; relation `back` leads two places back, `nowhere` nowhere, `ahead` to a later place."""

    def shape(self) -> hs.Shape:
        return hs.Shape(
            inputs="tokens", input_size=VALUES, positions=POSITIONS, readout=READOUT, output_size=VALUES
        )

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", VALUES, (POSITIONS,))
        back = torch.arange(POSITIONS) - 2
        back[2] = -1
        back = back.expand_as(tokens).clone()
        back[:, ::2, 2] = 1
        return hs.Batch(
            inputs=tokens,
            targets=tokens[..., list(READOUT)],
            relations={
                "back": back,
                "nowhere": draws.constant(-1, (POSITIONS,)),
                "ahead": draws.constant(4, (POSITIONS,)),
            },
            groups={"even": tokens[..., 0] % 2 == 0, "none": tokens[..., 0] < 0},
        )


class Vectors(hs.Task):
    """Vectors that are to be doubled."""

    def shape(self) -> hs.Shape:
        return hs.Shape(inputs="vectors", input_size=2, positions=POSITIONS, readout=READOUT, output_size=2)

    def sample(self, draws: hs.Draws) -> hs.Batch:
        vectors = draws.normal("vectors", (POSITIONS, 2))
        return hs.Batch(inputs=vectors, targets=2.0 * vectors[..., list(READOUT), :])


@pytest.fixture
def run(tmp_path):
    members = [
        {"member": n, "unit": "aaa" if n in MEMBERS else "bbb", "index": n, "seed": n, "overrides": {}}
        for n in range(14)
    ]
    run = RunFolder.create(tmp_path, "copying", {}, members, None)
    run.unit("aaa").create({"label": "copy"})
    return run


@pytest.fixture
def context(run):
    """Makes the context of a measure, for a task and a way to change the held-out samples."""

    def make(measure, task=None, change=lambda batch: batch, causal=True, **more):
        task = task or Classes()
        config = hs.Model(layers=LAYERS, heads=HEADS, width=4 * HEADS, causal=causal).for_task(task.shape())
        transformer = Transformer.initial(config, torch.tensor(MEMBERS))
        with torch.no_grad():  # so that attention is far from uniform
            transformer.parameters.flat.mul_(3.0)
        transformer.parameters.flat.requires_grad_(False)
        on_device = TaskOnDevice(task)
        fields = {
            "members": MEMBERS,
            "seeds": MEMBERS,
            "ensemble": Ensemble(transformer, on_device, members=MEMBERS, seeds=MEMBERS),
            "unit": run.unit("aaa"),
            "step": 23,
            "samples": 29,
            "held_out": change(on_device.evaluation(SAMPLES)),
        }
        return Context(measure, run, TimeBudget(), **{**fields, **more})

    return make


@measure(when="end")
def made_up(context):
    """Stands for any measure."""
    return {}


def found(measure, context):
    return Evidence.of(
        [{"member": member} for member in context.members], rows_of(measure, measure(context), context)
    )


def patterns(context):
    """Attention of each member by each layer, from the slow model: `[batch, head, query, key]`."""
    caches = [context.ensemble.member(n).cache(context.held_out.inputs[0]) for n in range(len(MEMBERS))]
    return [[cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(LAYERS)] for cache in caches]


# Measures of any task.


@pytest.mark.parametrize(("relation", "partners"), [("back", {2: 1, 4: 2}), ("ahead", {2: 4, 4: 4})])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_to_a_partner(context, relation, partners, causal):
    attention = measures.attention_to(relation)
    here = context(attention, causal=causal)
    evidence = found(attention, here)
    evens, attended = (here.held_out.inputs[0, :, 0] % 2 == 0).tolist(), patterns(here)
    for group, samples in ((None, range(SAMPLES)), ("even", [n for n in range(SAMPLES) if evens[n]])):
        assert samples
        for layer in range(LAYERS):
            for head in range(HEADS):
                values = evidence.last(f"attention_to_{relation}", part=group, layer=layer, head=head)
                for index, member in enumerate(MEMBERS):
                    seen = [
                        attended[index][layer][sample, head, row, key]
                        for sample in samples
                        for row, key in partners.items()
                        if not (causal and key > row) and not (relation == "back" and row == 2 and sample % 2)
                    ]
                    assert values[member] == pytest.approx(float(torch.stack(seen).mean()), abs=1e-6)
    row = evidence.rows(layer=1, head=2, member=11, part=None).iloc[0]
    assert (row["step"], row["samples"], row["measure"]) == (23, 29, f"attention_to_{relation}")


def test_a_member_without_any_partner_has_none(context):
    nowhere = measures.attention_to("nowhere")
    assert found(nowhere, context(nowhere)).to_pandas()["value"].isna().all()

    def own_relations(batch):
        back = batch.relations["back"].repeat(len(MEMBERS), 1, 1)
        back[1] = -1
        return hs.Batch(batch.inputs, batch.targets, relations={"back": back})

    back = measures.attention_to("back")
    values = found(back, context(back, change=own_relations)).last("attention_to_back", layer=0, head=1)
    assert values.isna().to_dict() == {7: False, 11: True, 13: False}
    empty = found(back, context(back)).last("attention_to_back", part="none", layer=0, head=1)
    assert empty.isna().all(), "a group without samples"


def test_an_unknown_relation_is_one_clear_line(context):
    attention = measures.attention_to("forth")
    with pytest.raises(UserError, match=r"a relation of the task \(back, nowhere, ahead\), found 'forth'"):
        attention(context(attention))
    assert measures.attention_to("mate of x").name == "attention_to_mate_of_x"


def test_the_entropy_of_attention(context):
    here = context(measures.attention_entropy)
    values = found(measures.attention_entropy, here).last("attention_entropy", layer=1, head=2)
    attended = patterns(here)
    for index, member in enumerate(MEMBERS):
        rows = [attended[index][1][sample, 2, row] for sample in range(SAMPLES) for row in READOUT]
        expected = [sum(-p * math.log(p) for p in row.tolist() if p > 0) for row in rows]
        assert values[member] == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("task", [Classes(), Vectors()])
def test_ablation_of_every_head(context, task):
    here = context(measures.head_ablation, task)
    evidence = found(measures.head_ablation, here)
    before = here.task.losses(here.ensemble(here.held_out.inputs), here.held_out)
    for layer in range(LAYERS):
        for head in range(HEADS):
            edit = [hs.AblateHead(layer=layer, heads=(head,), by="mean")]
            expected = here.task.losses(here.ensemble.intervene(here.held_out, edit), here.held_out)
            for name, values in expected.items():
                metric, _, part = name.partition("@")
                last = evidence.last(f"{metric}_without_head", part=part or None, layer=layer, head=head)
                np.testing.assert_allclose(last, values, rtol=1e-5)
            assert not torch.allclose(expected["loss"], before["loss"], rtol=1e-3)
    assert ("accuracy_without_head" in evidence) == isinstance(task, Classes)


@pytest.mark.parametrize("task", [Classes(), Vectors()])
def test_every_readout_alone(context, task):
    def weighed(batch):
        weights = torch.ones(1, SAMPLES, len(READOUT))
        weights[:, :3, 1] = 0.0
        return hs.Batch(batch.inputs, batch.targets, weights=weights)

    here = context(measures.by_readout, task, weighed)
    evidence = found(measures.by_readout, here)
    predictions, targets = here.ensemble(here.held_out.inputs), here.held_out.targets[0]
    for place, position in enumerate(READOUT):
        for index, member in enumerate(MEMBERS):
            losses, right = [], []
            for sample in range(3 if place else 0, SAMPLES):
                guess, target = predictions[index, sample, place], targets[sample, place]
                if isinstance(task, Vectors):
                    losses.append(float((guess - target).square().mean()))
                else:
                    losses.append(-float(guess.log_softmax(0)[target]))
                    right.append(bool(guess.argmax() == target))
            assert evidence.last("loss_at", part=str(position))[member] == pytest.approx(
                np.mean(losses), rel=1e-5
            )
            if right:
                assert evidence.last("accuracy_at", part=str(position))[member] == pytest.approx(
                    np.mean(right)
                )


@pytest.mark.parametrize(
    "each",
    [measures.attention_to("back"), measures.attention_entropy, measures.head_ablation, measures.by_readout],
    ids=lambda each: each.name,
)
def test_chunks_change_nothing(context, each):
    """As many samples as one pass takes, and each of them twice."""
    size = measures.CHUNK // len(MEMBERS)
    once = TaskOnDevice(Classes()).evaluation(size)
    twice = once.take(torch.arange(2 * size) // 2)
    one, two = (found(each, context(each, held_out=batch)).to_pandas()["value"] for batch in (once, twice))
    np.testing.assert_allclose(two, one, rtol=1e-4)


def test_accuracy_leaves_nothing_to_do_for_classes_and_does_not_fit_vectors(context):
    assert (
        rows_of(measures.accuracy, measures.accuracy(context(measures.accuracy)), context(measures.accuracy))
        == []
    )
    measures.accuracy.check("classes")
    with pytest.raises(UserError, match="accuracy: expected a task whose outputs are classes, found vectors"):
        measures.accuracy.check("vectors")
    made_up.check("vectors")


# How a measure is written.


def test_a_measure_is_a_function_with_a_name(context):
    @hs.measure
    def plain(context):
        return {"x": context.members}

    @hs.measure(when="run", needs=(plain, "other"), name="named")
    def function(context):
        """Its words."""

    assert (plain.name, plain.when, plain.needs) == ("plain", "end", ())
    assert (function.name, function.when, function.needs) == ("named", "run", ("plain", "other"))
    assert as_measure(plain) is plain
    assert plain(context(plain)) == {"x": MEMBERS}
    with pytest.raises(AttributeError):
        plain.name = "other"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: measure(lambda context: {}),
            "expected a name of letters, digits, '_', '.' and '-', found '<lambda>'",
        ),
        (lambda: measure(lambda context: {}, name="a/b"), "found 'a/b'"),
        (
            lambda: measure(made_up.function, when="later"),
            "one of end, checkpoints, training, run, found 'later'",
        ),
        (lambda: measure(measures.attention_to.__call__, name="x", when=3), "found 3"),
        (
            lambda: measure(lambda a, b: {}, name="two"),
            r"a function of one argument, the context, found two\(a, b\)",
        ),
        (lambda: measure("loss"), "expected a function of the context, found 'loss'"),
        (
            lambda: as_measure(measures.attention_to),
            r"found attention_to; write .* or call it .*: attention_to\(…\)",
        ),
        (lambda: as_measure("loss"), "expected measures, found 'loss'"),
    ],
)
def test_what_is_no_measure_is_refused(make, words):
    with pytest.raises(UserError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


# From what a measure returns to rows.


def values_of(evidence, **where):
    return evidence.rows(**where)["value"].tolist()


def test_a_mapping_becomes_rows(context):
    here = context(made_up)
    returned = {
        "one": torch.tensor([0.5, math.nan, math.inf]),
        "two": np.arange(6).reshape(3, 2),
        "three@part": torch.arange(18).reshape(3, 2, 3),
        "four": [True, None, 2],
    }
    rows = rows_of(made_up, returned, here)
    assert rows[:3] == [
        Row(7, "made_up", "one", 0.5, step=23, samples=29),
        Row(11, "made_up", "one", None, step=23, samples=29),
        Row(13, "made_up", "one", math.inf, step=23, samples=29),
    ]
    assert rows[4] == Row(7, "made_up", "two", 1.0, step=23, samples=29, layer=1)
    assert rows[-4] == Row(13, "made_up", "three", 17.0, step=23, samples=29, layer=1, head=2, part="part")
    assert [row.value for row in rows[-3:]] == [1.0, None, 2.0]
    assert len(rows) == 3 + 6 + 18 + 3


def test_rows_become_rows(context):
    here = context(made_up)

    def returned():
        yield {
            "metric": "one",
            "value": torch.tensor([1, 2, 3]),
            "layer": np.int64(1),
            "part": "a",
            "split": "train",
        }
        yield {"metric": "two", "value": 5, "member": 11, "step": 7, "head": 0}
        yield {"metric": "three", "file": "analysis/x.npz"}
        yield Row(13, "whatever", "four", 0.25)

    rows = rows_of(made_up, returned(), here)
    assert rows[1] == Row(11, "made_up", "one", 2.0, "train", 23, 29, layer=1, part="a")
    assert rows[3] == Row(11, "made_up", "two", 5.0, step=7, head=0)
    assert rows[4:7] == [
        Row(n, "made_up", "three", None, step=23, samples=29, file="analysis/x.npz") for n in MEMBERS
    ]
    assert rows[7].measure == "made_up" and rows[7].value == 0.25 and len(rows) == 8
    assert rows_of(made_up, None, here) == []


def test_numbers_of_the_whole_run(context, run):
    whole = measure(made_up.function, when="run", name="whole")
    here = context(
        whole, members=range(14), seeds=range(14), ensemble=None, unit=None, step=None, samples=None
    )
    rows = rows_of(whole, {"asked": 3, "each": np.arange(14)}, here)
    assert rows[0] == Row(None, "whole", "asked", 3.0) and rows[14].member == 13 and len(rows) == 15
    assert rows_of(
        whole, [{"metric": "x", "value": 2.5, "part": "a"}, {"metric": "y", "file": "z"}], here
    ) == [
        Row(None, "whole", "x", 2.5, part="a"),
        Row(None, "whole", "y", None, file="z"),
    ]
    with pytest.raises(UserError, match=r"measure whole: .* \[member\] = \[14\].*found \[3\]"):
        rows_of(whole, {"each": [1, 2, 3]}, here)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            {"x": torch.zeros(2)},
            r"values of x of shape \[member\] = \[3\] or \[member, layer\] = \[3, 2\] or .*found \[2\]",
        ),
        ({"x": torch.zeros(3, 3)}, r"found \[3, 3\]"),
        ({"x": torch.zeros(3, 2, 2)}, r"\[member, layer, head\] = \[3, 2, 3\], found \[3, 2, 2\]"),
        ({"x": torch.zeros(3, 2, 3, 1)}, r"found \[3, 2, 3, 1\]"),
        ({"x": 0.5}, r"found \[\]"),
        ({"x": ["a", "b", "c"]}, "expected numbers as values of x, found list"),
        ({"x": [[1], [2, 3], [4]]}, "expected numbers as values of x"),
        ({3: torch.zeros(3)}, "expected the name of a metric, found 3"),
        ({"metric": "x", "value": torch.zeros(3)}, "expected numbers as values of metric, found str"),
        (torch.zeros(3), "a mapping from metric to values, or rows, found Tensor"),
        ("x", "or rows, found str"),
        (3.5, "or rows, found float"),
        ([3.5], "rows as dicts with metric and value, found float"),
        ([{"value": torch.zeros(3)}], "metric among them, found value"),
        (
            [{"metric": "x", "value": torch.zeros(3), "heads": 1}],
            "rows with some of metric, value.*found metric, value, heads",
        ),
        (
            [{"metric": "x", "value": 0.5}],
            "a value of x for each of the 3 members, or a member, found one number",
        ),
        (
            [{"metric": "x", "value": torch.zeros(5)}],
            r"each of the 3 members, or a member, found shape \[5\]",
        ),
        (
            [{"metric": "x", "value": torch.zeros(3), "member": 7}],
            r"one number as x of a member, found shape \[3\]",
        ),
    ],
)
def test_what_cannot_be_rows_is_one_clear_line(context, returned, words):
    with pytest.raises(UserError, match=words) as caught:
        rows_of(made_up, returned, context(made_up))
    assert "measure made_up: expected" in str(caught.value) and "\n" not in str(caught.value)


# What a measure is given.


def test_held_out_samples_and_others(context):
    here = context(made_up)
    again = TaskOnDevice(Classes()).evaluation(SAMPLES)
    assert torch.equal(here.held_out.inputs, again.inputs)
    assert here.batch(5).inputs.shape == (1, 5, POSITIONS)
    assert here.batch(5, "train").inputs.shape == (len(MEMBERS), 5, POSITIONS)
    assert here.task.output_size == VALUES and here.members == here.seeds == MEMBERS
    assert [unit.hash for unit in here.units] == ["bbb", "aaa"]


def test_rows_of_measures_that_are_needed(context):
    needy = measure(made_up.function, name="needy", needs=("first",))
    rows = [Row(7, "first", "x", 1.0)]
    assert context(needy, needed={"first": rows}).rows("first") == rows
    assert context(needy).rows("first") == []
    with pytest.raises(
        UserError, match=r"measures that it needs \(first\), found 'other'; name it: needs=\('other',\)"
    ):
        context(needy).rows("other")


def test_arrays_are_kept_in_the_run(context, run):
    here = context(made_up)
    name = here.save("maps", torch.arange(6).reshape(2, 3))
    assert name == "units/aaa/analysis/made_up+maps-step-000000023.npz"
    with np.load(run.path / name) as arrays:
        np.testing.assert_array_equal(arrays["array"], [[0, 1, 2], [3, 4, 5]])
    whole = context(made_up, ensemble=None, unit=None, step=None)
    name = whole.save("maps", {"a": [1, 2], "b": torch.tensor(0.5)})
    assert name == "analysis/made_up+maps.npz"
    with np.load(run.path / name) as arrays:
        assert sorted(arrays) == ["a", "b"] and arrays["b"] == 0.5
    for bad, words in (
        (lambda: here.save("a/b", [1]), "expected a name of letters"),
        (lambda: here.save("a", [object()]), "expected arrays of numbers"),
        (lambda: here.save("a", [[1], [2, 3]]), "expected arrays of numbers"),
        (lambda: context(made_up, step=None).save("a", [1]), "numbers alone during training"),
    ):
        with pytest.raises(UserError, match=words):
            bad()


def test_the_whole_run_opens_its_checkpoints(context):
    here = context(made_up)
    whole = context(
        made_up, ensemble=None, unit=None, step=None, at=lambda unit, step: (unit.hash, step, here)
    )
    assert whole.at(whole.units[1], 5) == ("aaa", 5, here) and whole.at(whole.units[0])[1] is None
    with pytest.raises(UserError, match=r"use context.at\(unit\).ensemble"):
        _ = whole.ensemble
    with pytest.raises(UserError, match=r'write @hopscope.measure\(when="run"\)'):
        here.at(here.units[0])


# Files to go on from.


@pytest.mark.parametrize("whole", [False, True])
def test_rows_are_kept_and_found_again(run, whole):
    where, step = (run, None) if whole else (run.unit("aaa"), 23)
    assert measured(where, made_up, step) is None
    rows = [
        Row(7, "made_up", "x", 0.1 + 0.2, "train", 23, 29, 1, 2, "part", "file.npz"),
        Row(None, "made_up", "x", math.inf),
        Row(0, "made_up", "x", -math.inf, step=5),
        Row(11, "made_up", "x", None),
    ]
    keep(where, made_up, rows, step)
    assert measured(where, made_up, step) == rows
    path = run.path / run_file(made_up) if whole else where.analysis_path(stored_name(made_up), 23)
    assert path.is_file()
    changed = measure(lambda context: {"y": 3}, name="made_up")
    assert measured(where, changed, step) is None, "a measure that was changed is done again"
    write_json(path, [])
    with pytest.raises(UserError, match="expected the rows of a measure"):
        measured(where, made_up, step)


def test_another_step_is_another_file(run):
    unit = UnitFolder(run.unit("aaa").path)
    keep(unit, made_up, [Row(7, "made_up", "x", 1.0, step=2)], 2)
    assert measured(unit, made_up, 3) is None and len(measured(unit, made_up, 2)) == 1


# During training.


def test_what_is_measured_during_training_is_recorded_with_its_place(context):
    watching = measure(made_up.function, when="training", name="watching")
    here = context(watching, step=None)
    rows = rows_of(watching, {"x@even": torch.tensor([1.0, math.nan, 3.0]), "y": torch.ones(3, 2, 3)}, here)
    keys = recorded(rows, MEMBERS)
    assert keys["held_out", "x", "watching", "even", None, None].tolist()[::2] == [1.0, 3.0]
    assert keys["held_out", "y", "watching", None, 1, 2].tolist() == [1.0, 1.0, 1.0]
    assert len(keys) == 1 + 6
    with pytest.raises(UserError, match="found a file; measure it at the checkpoints"):
        recorded([Row(7, "watching", "x", None, file="a.npz")], MEMBERS)


def test_files_of_studies_import_no_torch():
    code = "import hopscope as hs, sys; hs.measures.attention_to('x'); hs.Context; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"torch", "pandas"} & set(done.stdout.split())
