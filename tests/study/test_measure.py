"""How a measure is written, what becomes of what it returns, and measures of any task beside slow ones."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.runs import Evidence, Member, RunFolder
from hopscope.study import measures
from hopscope.study.measure import CHUNK, Context, in_order, measure, rows_of
from hopscope.tasks import Batch, Shape, Task, held_out, losses
from hopscope.training.train import TimeBudget

MEMBERS, SAMPLES, POSITIONS, LAYERS, HEADS, VALUES = (7, 11, 13), 17, 5, 2, 3, 19
READOUT, FEATURES = (2, 4), 23
JOB = SimpleNamespace(training=SimpleNamespace(batch_size=29))


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


class Classes(Task):
    """Tokens; relation `back` leads two places back, `nowhere` nowhere, `ahead` to a later place."""

    def shape(self):
        return Shape(
            inputs="tokens", input_size=VALUES, positions=POSITIONS, readout=READOUT, output_size=VALUES
        )

    def sample(self, draws):
        tokens = draws.integers("tokens", VALUES, (POSITIONS,))
        back = torch.arange(POSITIONS).expand_as(tokens) - 2
        back = torch.where((back == 0) & (tokens[..., :1] % 2 == 0), -1, back.clamp(min=-1))
        relations = {name: draws.constant(key, (POSITIONS,)) for name, key in (("nowhere", -1), ("ahead", 4))}
        groups = {"even": tokens[..., 0] % 2 == 0, "none": tokens[..., 0] < 0}
        return Batch(tokens, tokens[..., list(READOUT)], relations={"back": back, **relations}, groups=groups)


class Vectors(Task):
    """Vectors that are to be doubled; the second readout counts in some samples only."""

    def shape(self):
        sizes = {"input_size": FEATURES, "output_size": FEATURES}
        return Shape(inputs="vectors", positions=POSITIONS, readout=READOUT, **sizes)

    def sample(self, draws):
        vectors = draws.normal("vectors", (POSITIONS, FEATURES))
        weights = torch.ones(*vectors.shape[:2], 2)
        weights[..., 1] = (vectors[..., 0, 0] > 0).float()
        return Batch(vectors, 2.0 * vectors[..., list(READOUT), :], weights=weights)


class Partly(Vectors):
    """Vectors of which the first five numbers are asked for."""

    def sample(self, draws):
        batch = super().sample(draws)
        return replace(batch, weights=torch.ones_like(batch.targets) * (torch.arange(FEATURES) < 5))


@pytest.fixture
def context(tmp_path):
    """Makes the context of a measure; of the whole run it has no members at hand."""
    members = [Member(member=n, seed=n, unit="a" if n in MEMBERS else "b") for n in range(14)]
    config = {"study": "s", "identity": {}, "units": [{"name": "a"}, {"name": "b"}]}
    run = RunFolder(tmp_path / "s" / "0123456789ab")
    run.create({**config, "members": [member.model_dump() for member in members]})

    def make(measure, task=None, causal=True, samples=SAMPLES, **more):
        task = task or Classes()
        model = Model(layers=LAYERS, heads=HEADS, width=4 * HEADS, causal=causal).for_task(task.shape())
        ensemble = Transformer.initial(model, torch.tensor(MEMBERS)).knowing(task, MEMBERS, 23)
        for weight in ensemble.weights().values():
            weight *= 3.0  # so that attention is far from uniform
        batch = held_out(task, samples)
        usual = {"unit": run.units[0], "step": 23, "job": JOB, "of_members": (ensemble, lambda: batch)}
        return Context(measure, "0" * 64, run, options=None, budget=TimeBudget(), **{**usual, **more})

    return make


@pytest.fixture
def whole(context):
    return lambda measure, **more: context(
        measure, step=None, of_members=None, **{"unit": context(measure).run.whole, **more}
    )


@measure
def made_up(context):
    """Stands for any measure."""
    return {}


def found(measure, context):
    rows = [{"measure": measure.name, **row} for row in rows_of(measure(context), context)]
    return Evidence.of(({**row, "member": [*MEMBERS]} for row in rows), context.unit.members)


def patterns(context):
    """Attention of each member by each layer, one member at a time: `[batch, head, query, key]`."""
    caches = [context.ensemble.member(n).cache(context.held_out.inputs[0]) for n in range(len(MEMBERS))]
    return [[cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(LAYERS)] for cache in caches]


# Measures of any task.


@pytest.mark.parametrize(("relation", "partners"), [("back", {2: 0, 4: 2}), ("ahead", {2: 4, 4: 4})])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_to_a_partner(context, relation, partners, causal):
    attention = measures.attention_to(relation)
    here = context(attention, causal=causal)
    evidence, attended = found(attention, here), patterns(here)
    evens = (here.held_out.inputs[0, :, 0] % 2 == 0).tolist()
    for part, samples in ((None, range(SAMPLES)), ("even", [n for n in range(SAMPLES) if evens[n]])):
        for layer, head in np.ndindex(LAYERS, HEADS):
            values = evidence.last(f"attention_to_{relation}", part=part, layer=layer, head=head)
            for index, member in enumerate(MEMBERS):
                seen = [
                    attended[index][layer][sample, head, row, key]
                    for sample in samples
                    for row, key in partners.items()
                    if not (causal and key > row) and not (relation == "back" and row == 2 and evens[sample])
                ]
                assert values[member] == pytest.approx(float(torch.stack(seen).mean()), abs=1e-6)
    row = evidence.rows(layer=1, head=2, member=11, part=None).iloc[0]
    assert (row["step"], row["samples"], row["measure"]) == (23, 23 * 29, f"attention_to_{relation}")


def test_rows_without_a_partner_and_unknown_relations(context):
    nowhere, back = measures.attention_to("nowhere"), measures.attention_to("back")
    assert found(nowhere, context(nowhere)).to_pandas()["value"].isna().all()
    assert found(back, context(back)).last("attention_to_back", part="none", layer=0, head=1).isna().all()
    with pytest.raises(UserError, match=r"a relation of the task \(back, nowhere, ahead\), found 'forth'"):
        measures.attention_to("forth")(context(nowhere))
    assert measures.attention_to("mate of x").name == "attention_to_mate_of_x"
    assert measures.attention_to("a→b").name != measures.attention_to("a←b").name


def test_numbers_that_are_longer_than_a_file_holds_are_doubles(context):
    here = context(measures.attention_entropy)
    here.of_part = lambda *_: []
    here.save("x", np.ones(3, np.longdouble))
    assert here.arrays["x"].dtype == np.float64


def test_the_entropy_of_attention(context):
    here = context(measures.attention_entropy)
    values, attended = (
        found(measures.attention_entropy, here).last("attention_entropy", layer=1, head=2),
        patterns(here),
    )
    for index, member in enumerate(MEMBERS):
        rows = [attended[index][1][sample, 2, row] for sample in range(SAMPLES) for row in READOUT]
        expected = [sum(-p * math.log(p) for p in row.tolist() if p > 0) for row in rows]
        assert values[member] == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("task", [Classes(), Vectors()])
def test_ablation_of_every_head(context, task):
    here = context(measures.head_ablation, task)
    evidence = found(measures.head_ablation, here)
    before = losses(task, here.ensemble(here.held_out.inputs), here.held_out)
    for layer, head in np.ndindex(LAYERS, HEADS):
        site = f"blocks.{layer}.attn.hook_z"

        def without(z, head=head):
            z[..., head, :] = z[..., head, :].mean(1, keepdim=True)
            return z

        expected = losses(task, here.ensemble.intervene(here.held_out, {site: without}), here.held_out)
        for name, values in expected.items():
            metric, _, part = name.partition("@")
            last = evidence.last(f"{metric}_without_head", part=part or None, layer=layer, head=head)
            np.testing.assert_allclose(last, values, rtol=1e-5)
        assert not torch.allclose(expected["loss"], before["loss"], rtol=1e-3)
    assert ("accuracy_without_head" in evidence) == isinstance(task, Classes)


@pytest.mark.parametrize("task", [Classes(), Vectors(), Partly()])
def test_every_readout_alone(context, task):
    here = context(measures.by_readout, task)
    evidence, batch = found(measures.by_readout, here), here.held_out
    predictions, targets = here.ensemble(batch.inputs), batch.targets[0]
    for place, position in enumerate(READOUT):
        counts = [n for n in range(SAMPLES) if batch.weights is None or batch.weights[0, n, place].any()]
        asked = 5 if isinstance(task, Partly) else FEATURES
        for index, member in enumerate(MEMBERS):
            pairs = [(predictions[index, n, place], targets[n, place]) for n in counts]
            if isinstance(task, Vectors):
                expected = [float((guess - target).square()[:asked].mean()) for guess, target in pairs]
            else:
                expected = [-float(guess.log_softmax(0)[target]) for guess, target in pairs]
                right = np.mean([int(guess.argmax() == target) for guess, target in pairs])
                assert evidence.last("accuracy_at", part=str(position))[member] == pytest.approx(right)
            assert evidence.last("loss_at", part=str(position))[member] == pytest.approx(
                np.mean(expected), rel=1e-5
            )


@pytest.mark.parametrize(
    "each", [measures.attention_to("back"), measures.attention_entropy, measures.head_ablation, measures.by_readout],
    ids=lambda each: each.name,
)  # fmt: skip
def test_chunks_change_nothing(context, each, monkeypatch):
    usual = found(each, context(each)).to_pandas()["value"]
    monkeypatch.setattr(measures, "CHUNK", 5 * len(MEMBERS))
    assert SAMPLES * len(MEMBERS) < CHUNK
    np.testing.assert_allclose(found(each, context(each)).to_pandas()["value"], usual, rtol=1e-4)


def test_accuracy_leaves_nothing_to_do_for_classes_and_does_not_fit_vectors(context):
    assert rows_of(measures.accuracy(context(measures.accuracy)), context(measures.accuracy)) == []
    with pytest.raises(
        UserError, match="accuracy: expected a task with class ids, found one with vectors; leave it"
    ):
        measures.accuracy(context(measures.accuracy, Vectors()))


# How a measure is written.


def test_a_measure_is_a_function_with_a_name(context):
    @measure(when="run", needs=(made_up, "other"), name="named")
    def function(context):
        return context.members

    assert (made_up.name, made_up.when, made_up.needs) == ("made_up", "end", ())
    assert (function.name, function.when, function.needs) == ("named", "run", ("made_up", "other"))
    assert function(context(function)) == MEMBERS
    with pytest.raises(AttributeError):
        made_up.name = "other"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: measure(lambda context: {}), "found '<lambda>'; give name=…"),
        (lambda: measure(lambda context: {}, name="a/b"), "a name of letters, digits, '_', '.' and '-', found 'a/b'"),
        (lambda: measure(lambda context: {}, name="x", when="later"), "one of end, checkpoints, training, run, found"),
        (lambda: measure(lambda a, b: {}, name="two"), "a function of one argument, the context, found two(a, b); let"),
        (lambda: measure("loss"), "expected a function of the context, found 'loss'"),
        (lambda: in_order([measures.attention_to]), "found attention_to; write @hs.measure"),
        (lambda: in_order([measures.attention_to]), "or call it if it returns a measure: attention_to(…)"),
        (lambda: in_order([made_up, made_up]), "different names, found 'made_up' twice"),
        (lambda: in_order([needing("a", "b")]), "expected 'b', which it needs, among the study's measures, found a"),
        (lambda: in_order([needing("a", "b"), needing("b", "a")]), "needs without a circle, found a → b → a"),
        (lambda: in_order([needing("a", "b"), needing("b", when="run")]), "before it (end), found b (run)"),
        (lambda: in_order([needing("a", "b", when="run"), needing("b", when="training")]), "found b (training)"),
        (lambda: in_order([needing("a", "b", when="training"), needing("b")]), "before it (training), found b (end)"),
    ],
)  # fmt: skip
def test_what_is_no_measure_is_refused(make, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        make()
    assert "\n" not in str(caught.value)


def needing(name, *needs, when="end"):
    return measure(lambda context: {}, name=name, needs=needs, when=when)


def test_measures_stand_behind_those_that_they_need():
    given = [needing("a", "c", when="run"), needing("b"), needing("c", "d", "b"), needing("d", "b")]
    assert [each.name for each in in_order(given)] == ["b", "d", "c", "a"]


# From what a measure returns to rows.


def test_a_mapping_becomes_rows(context):
    returned = {
        "one": torch.tensor([0.5, math.nan, math.inf]),
        "two": np.arange(6).reshape(3, 2),
        "three@part": torch.arange(18).reshape(3, 2, 3),
        "four": [True, None, 2],
    }
    rows = rows_of(returned, context(made_up))
    own = {"split": "held_out", "step": 23, "samples": 23 * 29}
    assert rows[0] == {**own, "metric": "one", "value": [0.5, None, math.inf]}
    assert rows[2] == {**own, "metric": "two", "value": [1.0, 3.0, 5.0], "layer": 1}
    assert rows[-2] == {
        **own,
        "metric": "three",
        "part": "part",
        "layer": 1,
        "head": 2,
        "value": [5.0, 11.0, 17.0],
    }
    assert rows[-1] == {**own, "metric": "four", "value": [1.0, None, 2.0]} and len(rows) == 1 + 2 + 6 + 1


def test_rows_become_rows(context):
    def returned():
        yield {
            "metric": "one",
            "value": torch.tensor([1, 2, 3]),
            "layer": np.int64(1),
            "part": "a",
            "split": "train",
        }
        yield {"metric": "two", "value": 5, "member": 11, "step": 7, "head": 0}
        yield {"metric": "three", "file": "maps"}
        yield {"metric": "four", "value": [0.25, None], "member": (11, 13)}

    assert rows_of(returned(), context(made_up)) == [
        {"metric": "one", "split": "train", "step": 23, "samples": 667, "layer": 1, "part": "a", "value": [1, 2, 3]},
        {"metric": "two", "split": "held_out", "step": 7, "samples": 203, "head": 0, "member": 11, "value": 5.0},
        {"metric": "three", "split": "held_out", "step": 23, "samples": 667, "file": "maps", "value": [None] * 3},
        {"metric": "four", "split": "held_out", "step": 23, "samples": 667, "member": [11, 13], "value": [0.25, None]},
    ]  # fmt: skip
    assert rows_of(None, context(made_up)) == []


def test_numbers_of_the_whole_run(whole):
    here = whole(made_up)
    assert [row["value"] for row in rows_of({"asked": 3, "each": np.arange(14)}, here)] == [3.0, [*range(14)]]
    rows = rows_of([{"metric": "x", "value": 2.5, "part": "a"}, {"metric": "y", "file": "z"}], here)
    assert rows[0] == {"metric": "x", "split": "held_out", "step": 0, "part": "a", "value": 2.5}
    assert rows[1]["value"] is None
    for wrong in ({"each": [1, 2, 3]}, [{"metric": "each", "value": [1, 2], "member": 3}]):
        with pytest.raises(UserError, match=r"measure made_up: .* found shape \[\d\]"):
            rows_of(wrong, here)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            {"x": torch.zeros(2)},
            "a value of x for each of 3 members, or one number of a member, found shape [2]",
        ),
        (
            {"x": torch.zeros(3, 3)},
            "[member] = [3] or [member, layer] = [3, 2] or [member, layer, head] = [3, 2, 3], fo",
        ),
        ({"x": torch.zeros(3, 2, 2)}, "found [3, 2, 2]"),
        ({"x": torch.zeros(3, 2, 3, 1)}, "found [3, 2, 3, 1]"),
        ({"x": 0.5}, "found one number"),
        ({"x": ["a", "b", "c"]}, "expected numbers as values of x, found list"),
        ({"x": [[1], [2, 3], [4]]}, "expected numbers as values of x"),
        ({"x": torch.tensor([1j, 2, 3])}, "expected numbers as values of x"),
        ({3: torch.zeros(3)}, "expected the name of a metric, found 3"),
        ({"metric": "x", "value": torch.zeros(3)}, "expected numbers as values of metric, found str"),
        (torch.zeros(3), "a mapping from metric to values, or rows, found Tensor"),
        ("x", "or rows, found str"),
        (3.5, "or rows, found float"),
        ([3.5], "metric among them, found float"),
        ([{"value": torch.zeros(3)}], "metric among them, found value"),
        ([{"metric": "x", "value": torch.zeros(3), "heads": 1}], "found metric, value, heads"),
        (
            [{"metric": "x", "value": 0.5}],
            "for each of 3 members, or one number of a member, found one number",
        ),
        ([{"metric": "x", "value": torch.zeros(5)}], "found shape [5]"),
        ([{"metric": "x", "value": torch.zeros(3), "member": 7}], "found shape [3]"),
        ([{"metric": "x", "value": 0.5, "member": [7, 11]}], "for each of 2 members"),
        ([{"metric": "x", "value": torch.zeros(3), "layer": 0.9}], "a whole number as step, layer, head or"),
    ],
)
def test_what_cannot_be_rows_is_one_clear_line(context, returned, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        rows_of(returned, context(made_up))
    assert "measure made_up: expected" in str(caught.value) and "\n" not in str(caught.value)


# What a measure is given.


def test_what_a_context_has_and_has_not(context, whole):
    needy = needing("needy", "first")
    listed = [{"metric": "x", "member": [7, 11], "value": [1.0, None]}, {"metric": "y", "value": 2.0}]
    here = context(needy, of_measure=lambda name: listed)
    assert here.rows("first")[1:] == [
        {"metric": "x", "member": 11, "value": None},
        {"metric": "y", "value": 2.0, "member": None},
    ]
    assert (here.samples_at(23), here.members, here.seeds) == (667, MEMBERS, MEMBERS)
    assert here.batch(5, "train").inputs.shape == (3, 5, POSITIONS) and here.task == Classes()
    curve = context(needy, of_measure=lambda name: [{"metric": "loss", "member": 7, "value": 3.0}]).evidence
    assert curve.last("loss", member=7).tolist() == [3.0]
    run = needing("run", when="run")
    early, others = (
        needing("early", when="training"),
        "a measure of checkpoints or of the run to ask for others",
    )
    for ask, words in (
        (lambda: here.rows("other"), "needs (first), found 'other'; name it: needs=('other',)"),
        (lambda: whole(run).ensemble, "expected a measure of members, or context.at(unit).…"),
        (lambda: whole(run).held_out, "found when='run'"),
        (lambda: here.at(here.unit), f"{others}, found when='end'"),
        (lambda: context(early).save("a", [1]), "found when='training'"),
        (lambda: context(early).part("a", dict), "to have parts, found when='training'"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            ask()
