"""Benchmarks: timing in turn is right, contestants do the same work, records are whole, and refusals are one line."""

import importlib
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from hopscope.cli import main
from hopscope.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def module(name):
    """A module of benchmarks/, which lies beside the package; the search path is left as it was."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"benchmarks.{name}")
    finally:
        sys.path.remove(str(ROOT))


timing, shapes, plain = module("_timing"), module("_shapes"), module("_plain")
TINY = shapes.SHAPES["tiny"]
# Shapes of every kind that a benchmark trains, few samples: tokens and vectors, norms before and after, MLPs or none.
SMALL = {
    "tiny": TINY,
    "permutation": shapes.SHAPES["permutation"]._replace(batch=7, members=2),
    "depth-mlp": shapes.SHAPES["depth-mlp"]._replace(batch=5, members=3),
    "narrow": shapes.SHAPES["transformer-d"]._replace(
        model=shapes.SHAPES["transformer-d"].model.model_copy(update={"layers": 3, "width": 96, "head_dim": 2}),
        batch=5, members=2,
    ),
}  # fmt: skip


# Timing.


def test_a_ratio_is_that_of_the_times():
    sleeps = {"ours": 0.05, "other": 0.15}
    turns = timing.in_turn({name: partial(time.sleep, each) for name, each in sleeps.items()}, 3, 0.0)
    found = timing.compared({}, turns, {"ours": 1.0, "other": 2.0}, "naps a second")
    ours, other = found["contestants"]
    assert ours["ours_over_this"] is None and len(ours["rate"]["rounds"]) == 3
    # Twice the work in three times the time; sleeping is never shorter than asked, on a busy machine longer.
    assert 2.0 < ours["rate"]["median"] <= 20.0 and other["rate"]["median"] <= 2.0 / 0.15
    assert 0.75 < other["ours_over_this"]["median"] < 2.2
    assert turns["ours"].share < 0.5


def test_turns_are_in_both_orders_and_last_as_long_as_asked():
    calls = []
    works = {name: (lambda name=name: (calls.append(name), time.sleep(0.004))) for name in "abc"}
    timing.in_turn(works, 2, 0.0)
    assert calls == [*"abc", *"abc", *"cba"]  # the first are not timed
    calls.clear()
    turns = timing.in_turn({"a": works["a"]}, 1, 0.2)
    assert 2 <= len(calls) - 1 <= 51 and turns["a"].seconds[0] >= 0.004


def test_an_interval_is_by_order_statistics():
    eleven = timing.spread([3, 1, 4, 10, 5, 9, 2, 6, 8, 7, 11])
    assert [eleven[end] for end in ("low", "median", "high")] == [2, 6, 10]
    few = timing.spread([5.0, 2.0])
    assert [few[end] for end in ("low", "median", "high")] == [2.0, 3.5, 5.0]


def test_an_interval_of_the_median_holds_it_in_95_of_100():
    draws = np.random.default_rng(0).exponential(size=(2000, 11))
    found = [timing.spread(each.tolist()) for each in draws]
    assert np.mean([each["low"] <= np.log(2) <= each["high"] for each in found]) > 0.94


# Contestants.


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("attention", ["sdpa", "softmax"])
def test_plain_pytorch_has_our_losses(name, attention):
    shape = SMALL[name]
    ours, theirs = (
        shapes.Ours(shape, range(shape.members)),
        plain.Plain(shape, range(shape.members), attention),
    )
    for _ in range(2):
        losses = ours.advance()
        assert losses.shape == (shapes.STEPS, shape.members)
        np.testing.assert_allclose(theirs.advance(), losses, rtol=1e-4)
    inputs = torch.cat([shape.task.sample(_draws(shape)).inputs])
    torch.testing.assert_close(theirs.predictions(inputs), ours.predictions(inputs), rtol=1e-3, atol=1e-4)


def _draws(shape):
    from hopscope.tasks import Draws

    return Draws(torch.tensor([11]), "probe", 0, 3)


def test_the_narrow_shape_is_for_the_low_rank_engine():
    engines = {name: shapes.Ours(shape, [0]).engine for name, shape in SMALL.items()}
    assert engines == {"tiny": "deep", "permutation": "shallow", "depth-mlp": "deep", "narrow": "low-rank"}


@pytest.mark.parametrize("name", SMALL)
def test_jax_has_our_losses(name):
    pytest.importorskip("jax", reason="JAX is not installed")
    shape = SMALL[name]
    ours, theirs = shapes.Ours(shape, range(shape.members)), module("_jax").Jax(shape, range(shape.members))
    for _ in range(2):
        np.testing.assert_allclose(theirs.advance(), ours.advance(), rtol=1e-4)


def test_a_contestant_that_does_other_work_is_refused():
    programs = {"ours": partial(shapes.Ours, TINY, [0, 1, 2]), "other": partial(plain.Plain, TINY, [0, 1, 3])}
    with pytest.raises(UserError, match="other: expected our losses of the first 16 steps"):
        shapes.contest(TINY, programs, timing.Asked("tiny", 1, 0.0))


# Suites.


@pytest.mark.parametrize("suite", ["speed", "engines"])
def test_a_suite_compares_every_contestant(suite, monkeypatch):
    monkeypatch.setattr(module("_jax"), "installed", lambda: False)
    monkeypatch.setattr(module("speed"), "installed", lambda: False)
    (found,) = module(suite).measure(timing.Asked("tiny", 2, 0.0))
    ours, *others = found["contestants"]
    assert others and all(each["ours_over_this"]["median"] > 0.0 for each in others)
    assert all(
        each["rate"]["median"] > 0.0 and each["loss_difference"] < 0.03 for each in found["contestants"]
    )
    if suite == "engines":
        assert ours["name"] == "deep, float32" and "shallow, float32" in found["refused"]


def test_growth_makes_the_work_larger_along_one_axis():
    growth = module("growth")
    assert growth.sized(TINY, "layers", 5).config.layers == 5
    assert growth.sized(TINY, "steps", 4).config.length == 27  # 4 tables of 3 pairs, 3 queries
    assert growth.sized(TINY, "members", 7).members == 7
    with pytest.raises(UserError, match="model: expected one on chains"):
        next(growth.measure(timing.Asked("permutation", 1)))


def test_a_gpu_comparison_is_whole_on_a_cpu_too(monkeypatch):
    monkeypatch.setattr(
        shapes.engines, "choose", lambda *shape: "autograd"
    )  # any CPU rounds to bfloat16 with it
    found = module("gpu").on(TINY, timing.Asked(None, 1, 0.0), "cpu")
    rates = {each["name"]: each["rate"]["median"] for each in found["contestants"]}
    assert len(rates) == 4 and found["members"] == 8 and min(rates.values()) > 0.0
    assert [each.config.layers for each in module("gpu").shapes()] == [24, 12, 8, 6, 4, 2, 1]


def test_solved_counts_seconds_until_a_model_has_learned():
    solved = module("solved")
    batch = solved.held_out(TINY.task, 31)

    class Learner:
        calls = 0

        def advance(self):
            self.calls += 1
            time.sleep(0.0002)

        def predictions(self, inputs):
            return batch.targets if self.calls * shapes.STEPS > 300 else torch.zeros_like(batch.targets)

    steps, seconds, cpu, learned = solved.until_learned(Learner(), TINY.task, batch, 2000)
    assert (steps, learned) == (504, True) and seconds > 0.02 and cpu < seconds
    assert solved.until_learned(Learner(), TINY.task, batch, 200)[::3] == (252, False)


def test_recall_is_what_permutation_lookup_is_judged_by():
    solved, task = module("solved"), shapes.SHAPES["permutation"].task
    batch = solved.held_out(task, 211)
    right = torch.nn.functional.one_hot(batch.targets, 6).float()
    assert solved.score(task, right, batch) == 1.0
    wrong = right.roll(1, -1).where(task.skills(batch)["recall"][..., None], right)
    assert solved.score(task, wrong, batch) == 0.0


def test_the_plants_of_the_reading_suite_have_one_circuit_each():
    plants = module("reading").chosen()
    assert [each.task.steps for each in plants] == [1, 2, 3, 4]
    assert all(each.explained and each.model.config.heads == 3 for each in plants)


def test_finders_are_scored_by_group(monkeypatch):
    finders = module("finders")
    assert [len(each) for each in finders.groups(1).values()] == [4, 3, 7]
    monkeypatch.setattr(finders, "FINDERS", {"attention": finders.FINDERS["attention"]})
    monkeypatch.setattr(finders, "groups", lambda each: {"chains": [next(finders.chain_plants())] * each})
    (found,) = finders.measure(timing.Asked(None, 2))
    (only,) = found["contestants"]
    assert (only["name"], only["recall"], len(found["rows"])) == ("attention", 1.0, 2) and only["cpr"] > 0.0


# The command.


def test_the_command_writes_its_record_and_draws_a_table(tmp_path, capsys, monkeypatch):
    def two(asked):
        for number in (1, 2):
            written.append(out.exists())
            turns = {"ours": timing.Turns([0.5], [0.1]), "other": timing.Turns([1.0], [0.9])}
            yield timing.compared({"title": f"[{number}]"}, turns, dict.fromkeys(turns, 1.0), "x a second")

    out, written = tmp_path / "found.json", []
    monkeypatch.setattr(module("speed"), "measure", two)
    assert main(["bench", "--rounds", "1", "--out", str(out)]) == 0
    said, record = capsys.readouterr().out, json.loads(out.read_text(encoding="utf-8"))
    assert written == [False, True] and [each["title"] for each in record["comparisons"]] == ["[1]", "[2]"]
    assert record["asked"]["rounds"] == 1 and {"python", "hopscope", "torch"} <= record["versions"].keys()
    assert (
        record["machine"]["cores"] and "2.00 [2.00, 2.00]" in said and "held up 1 of the contestants" in said
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--suite", "none"], "suite: expected one of engines, finders, gpu, growth, reading"),
        (["--rounds", "0"], "rounds: expected at least 1, found 0"),
        (["--model", "none"], "model: expected one of tiny, permutation"),
        (["--suite", "reading", "--model", "tiny"], "model: expected none with suite reading"),
        (["--out", "no/such/folder/x.json"], "out: expected a file in an existing folder"),
        (["--seconds", "3"], "--seconds"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(capsys, words, line):
    assert main(["bench", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and line in said


def test_the_gpu_suite_needs_one(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "--suite", "gpu"]) == 2
    assert "suite gpu: expected a CUDA device, found none" in capsys.readouterr().err
