"""Whole trainings by every engine: resumed at any checkpoint, among others, beside a member that diverges."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.transformer import Transformer
from hopscope.runs import load_checkpoint, save_checkpoint
from hopscope.tasks import Task, held_out, losses
from hopscope.training import engines
from hopscope.training.config import COMPLETION_NAMES, Training, completed
from hopscope.training.engines import autograd
from hopscope.training.train import TimeBudget, arithmetic, train

from .conftest import KEY_BIAS, LAYER, STACK, Grouped, Tokens, Vectors
from .test_engines import CASES, ENGINES, EVERY, PERMUTED, needs_numba

SEEDS = (5, 7, 11)


def evaluator(task):
    batch = held_out(task, 17)

    def evaluate(ensemble):
        found = losses(task, ensemble(batch.inputs), batch)
        return [{"split": "held-out", "metric": name, "value": value} for name, value in found.items()]

    return evaluate


def trained(name, training, seeds=SEEDS, **options):
    """The members, and what was kept."""
    task, model = CASES[name]
    kept = []
    options = {"engine": ENGINES[name], "evaluate": evaluator(task), **options}
    ensemble = train(
        task, model, training, seeds, keep=lambda rows, state: kept.append((rows, state)), **options
    )
    return ensemble, kept


def same(found, expected, members=slice(None)):
    return all(
        torch.equal(weight[members], expected.weights()[name][members])
        for name, weight in found.weights().items()
    )


def close(found, expected, rtol, atol):
    # A key bias has no gradient but rounding, which Adam makes full steps of.
    for name, weight in found.weights().items():
        if not name.endswith(KEY_BIAS):
            torch.testing.assert_close(weight, expected.weights()[name], rtol=rtol, atol=atol, msg=name)


@pytest.mark.parametrize("name", EVERY)
def test_resumed_at_any_checkpoint_it_ends_with_the_same_bits(name, training, tmp_path):
    """In the middle of the warm-up, and of the cosine after it; by way of a file."""
    whole, kept = trained(name, training)
    assert [state[1]["step"] for _, state in kept] == [0, 1, 2, 4, 5, 10, 13] == training.checkpoint_steps()
    for number, (_, state) in enumerate(kept):
        save_checkpoint(tmp_path / "state", *state)
        resumed, rest = trained(name, training, after=load_checkpoint(tmp_path / "state"))
        assert same(resumed, whole) and resumed.step == whole.step == 13
        assert [rows for rows, _ in rest] == [rows for rows, _ in kept[number + 1 :]]


@pytest.mark.parametrize("completion", COMPLETION_NAMES)
@pytest.mark.parametrize("name", EVERY)
def test_training_is_that_of_autograd(name, completion, monkeypatch):
    task, model = CASES[name]
    model, training = completed(completion, model, Training(steps=23, batch_size=11, learning_rate=0.003))
    monkeypatch.setitem(CASES, name, (task, model))
    found, expected = (trained(name, training, engine=engine) for engine in (ENGINES[name], "autograd"))
    for own, general in zip(found[1], expected[1], strict=True):
        for row, other in zip(own[0], general[0], strict=True):
            assert row["value"] == pytest.approx(other["value"], rel=1e-4, abs=1e-5, nan_ok=True), row
    close(found[0], expected[0], 1e-2, 1e-3)


@pytest.mark.parametrize("name", EVERY)
def test_company_changes_nothing_but_rounding(name, training):
    together, kept = trained(name, training)
    for index, seed in enumerate(SEEDS):
        alone, own = trained(name, training, (seed,))
        close(alone, together.select([index]), 1e-4, 1e-5)
        for key, array in kept[0][1][0].items():
            assert (array[index] == own[0][1][0][key][0]).all(), "first weights are the seed's, bit for bit"


@pytest.mark.parametrize("name", EVERY)
def test_a_diverging_member_spoils_no_other(name, training):
    task, model = CASES[name]
    whole, _ = trained(name, training)
    start = Transformer.initial(model.for_task(task.shape()), torch.tensor(SEEDS)).weights()
    start["readout.bias"][1, 2] = torch.inf
    heard = []
    spoilt, kept = trained(name, training, start=start, progress=heard.append)
    assert same(spoilt, whole, [0, 2])
    assert all(state[1]["diverged_at"] == [None, 1, None] for _, state in kept[1:])
    values = [row["value"] for rows, _ in kept[1:] for row in rows if row["metric"] == "loss"]
    assert all(value[1] is None and None not in value[::2] for value in values)
    assert [progress.diverged for progress in heard] == [[1]] * len(heard)
    resumed, _ = trained(name, training, start=start, after=kept[4][1])
    assert same(resumed, spoilt, [0, 2])


def test_weights_that_overflow_in_the_last_step_are_noticed():
    """Their loss was finite, and no later loss exists to tell."""
    _, kept = trained("autograd", Training(steps=1, batch_size=3, learning_rate=1e39, clip_norm=None))
    assert kept[-1][1][1]["diverged_at"] == [1, 1, 1]
    assert {value for row in kept[-1][0] for value in row["value"]} == {None}


def test_rows_are_means_since_the_last_ones(training):
    often, seldom = (
        [
            row
            for rows, _ in trained("autograd, tokens", training.model_copy(update={"evaluate_every": every}))[
                1
            ]
            for row in rows
        ]
        for every in (1, 5)
    )

    def values(rows, step, split, metric):
        (found,) = [
            row for row in rows if (row["step"], row["split"], row["metric"]) == (step, split, metric)
        ]
        assert found["samples"] == step * training.batch_size
        return torch.tensor(found["value"])

    mean = sum(values(often, step, "train", "loss") for step in range(6, 11)) / 5
    torch.testing.assert_close(values(seldom, 10, "train", "loss"), mean)
    assert values(seldom, 10, "train", "accuracy").equal(values(often, 10, "train", "accuracy"))
    assert values(seldom, 0, "held-out", "loss").equal(values(often, 0, "held-out", "loss"))


def test_groups_are_parts_and_seeds_may_differ(training):
    kept = []
    options = {"evaluate": evaluator(PERMUTED), "engine": "autograd", "init_seeds": [7, 7, 5]}
    found = train(PERMUTED, LAYER, training, [5, 7, 7], keep=lambda rows, _: kept.extend(rows), **options)
    assert {row.get("part") for row in kept if row["metric"] == "loss"} == {None, "plain", "repeat"}
    assert found.seeds == (5, 7, 7) and found.task == PERMUTED
    drawn = Transformer.initial(found.config, torch.tensor([7, 7, 5]))
    assert all(
        not torch.equal(weight[0], weight[1]) for name, weight in found.weights().items() if "weight" in name
    )
    assert all(torch.equal(weight[0], weight[1]) for weight in drawn.weights().values())


def test_every_call_makes_progress_whatever_the_budget(training):
    whole, _ = trained("autograd", training)
    kept, steps = [], []
    while not steps or steps[-1] < 13:
        options = {"after": kept[-1][1] if kept else None, "budget": TimeBudget(0.0), "engine": "autograd"}
        try:
            last = train(*CASES["autograd"], training, SEEDS, keep=lambda *own: kept.append(own), **options)
        except TimeBudgetReached as error:
            assert error.exit_status == 75
        steps.append(kept[-1][1][1]["step"])
    assert steps == [1, 2, 4, 5, 10, 13] and same(last, whole)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried 17 GiB"), MemoryError(), RuntimeError("circle")],
)
def test_memory_that_runs_out_is_one_line(error, training):
    class Short:
        @staticmethod
        def gradient(*arguments):
            def of_step(step):
                raise error

            return of_step

    words = "training.batch_size: expected a step of 3 members with 11 samples each to fit .* lower training.batch_size"
    kind, words = (RuntimeError, "circle") if "circle" in str(error) else (UserError, words)
    with pytest.raises(kind, match=words):
        trained("autograd", training, engine=Short)


def test_an_engine_of_ones_own_is_a_module_with_a_gradient(training):
    found, _ = trained("deep", training, engine=autograd)
    assert same(found, trained("deep", training, engine="autograd")[0])
    with pytest.raises(UserError, match="engine: expected one of"):
        trained("deep", training, engine="quick")


@pytest.mark.parametrize("engine", ["autograd", pytest.param("deep", marks=needs_numba)])
def test_losses_and_scores_read_groups_and_roles(engine, training, monkeypatch):
    monkeypatch.setitem(CASES, "deep", (Grouped(), STACK))
    _, kept = trained("deep", training, engine=engine)
    last = {row["metric"]: row["value"] for row in kept[-1][0] if row["split"] == "train"}
    shares = [part / whole for part, whole in zip(last["loss_large"], last["loss"], strict=True)]
    assert last["half"] == [3.0] * 3 and all(0.1 < share < 0.9 for share in shares)


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (lambda losses: {"los": losses}, "{'los': [3]}"),
        (lambda losses: {"loss": losses.mean()}, "{'loss': []}"),
    ],
)
def test_parts_that_are_no_losses_are_refused(parts, found, training, monkeypatch):
    monkeypatch.setattr(Vectors, "parts", lambda task, *of: parts(Task.parts(task, *of)["loss"]))
    with pytest.raises(
        UserError, match=re.escape(f"parts: expected 'loss' among losses [member], here [3], found {found}")
    ):
        trained("deep", training, engine="autograd", evaluate=lambda ensemble: ())


@pytest.mark.parametrize("made", [torch.mean, lambda share: share[:, None].expand(-1, 2), lambda share: 0.5])
def test_scores_that_are_not_one_for_each_member_are_refused(made, training, monkeypatch):
    def scores(task, predictions, batch):
        return {"share": made(predictions.flatten(1).mean(1))}

    monkeypatch.setattr(Vectors, "scores", scores)
    for more in ({}, {"evaluate": lambda ensemble: ()}):
        with pytest.raises(UserError, match=r"share: expected a number for each member, \[3\], found "):
            trained("deep", training, engine="autograd", **more)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (10**17, "at most 10,000 seeds"),
        ([1.5], "found 1.5"),
        (1.5, "found 1.5"),
        ([True], "found True"),
        ([-1], "found -1"),
        ([2**63], "found 9223372036"),
    ],
)
def test_seeds_that_are_none_are_refused_at_once(seeds, words, training):
    with pytest.raises(UserError, match=f"seeds: expected .*{words}"):
        train(*CASES["autograd"], training, seeds, engine="autograd")


@pytest.mark.parametrize(("seeds", "own"), [(0, None), ([], None), ([5], [7, 11]), ([5, 7], [11])])
def test_seeds_are_refused_where_none_or_another_number_starts(seeds, own, training):
    """One member's samples would have trained two."""
    with pytest.raises(UserError, match=r"seeds: expected at least one seed, .*, found \d and \d"):
        train(*CASES["autograd"], training, seeds, init_seeds=own, engine="autograd")


def test_members_that_do_not_fit_are_one_line(training, monkeypatch):
    def no_memory(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried 17 GiB")

    monkeypatch.setattr(Transformer, "initial", no_memory)
    with pytest.raises(UserError, match=r"model.width: expected 3 members to fit .* lower model.width"):
        trained("autograd", training)


def test_settings_are_put_back():
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    tiny = torch.tensor([1e-30])
    with arithmetic(threads=2, precision="tf32"):
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "high")
        assert torch.backends.mkldnn.matmul.fp32_precision == "ieee", "TF32 is for GPUs"
        assert float(tiny * 1e-10) == 0.0
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before and float(
        tiny * 1e-10
    ) > 0.0


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_what_a_notebook_turned_off_is_back_in_training(off, training):
    usual = trained("autograd", training)[0].weights()
    torch.set_default_dtype(torch.float64)
    try:
        with off():
            found = trained("autograd", training)[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(weight, usual[name]) for name, weight in found.weights().items())
    assert not any(each.is_inference() for each in found.parameters())
    sizes = {each.untyped_storage().size() // 4 - each.numel() for each in found.parameters()}
    assert sizes == {0}, "weights are no views of a training's buffer"


@pytest.mark.parametrize(("engine", "expected"), [("deep", 1), ("autograd", 2)])
def test_an_engine_of_one_thread_has_one(engine, expected, training):
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        keep = lambda rows, state: seen.append(torch.get_num_threads())  # noqa: E731
        train(*CASES["deep"], training, [3], engine=engine, keep=keep)
        assert set(seen) == {expected} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_every_thread_flushes_subnormals():
    """In a process of its own: the flag must be set before torch starts its threads, for the first weights."""
    code = """
import torch
from hopscope.models.config import Model
from hopscope.tasks import Permutation
from hopscope.training.config import Training
from hopscope.training.train import train
torch.set_num_threads(2)
def evaluate(ensemble):
    print(bool((torch.full((1 << 18,), 1e-30) * 1e-10 == 0.0).all()), torch.get_num_threads())
    return ()
train(Permutation(), Model(width=512), Training(steps=1, batch_size=3), 2, engine="autograd", evaluate=evaluate)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "2"] * 2


@pytest.mark.parametrize("name", EVERY)
def test_rounded_factors_change_a_training_less_than_another_seed(name):
    """Whatever CPU this is: torch computes it everywhere."""
    settings = {"steps": 60, "batch_size": 31, "learning_rate": 0.003, "evaluate_every": 6}
    curves = [
        torch.tensor([
            row["value"]
            for rows, _ in trained(name, Training(precision=precision, **settings), (5, 7))[1]
            for row in rows
            if (row["split"], row["metric"]) == ("held-out", "loss")
        ])
        for precision in ("float32", "bfloat16")
    ]  # fmt: skip
    rounding, seeds = (curves[1] - curves[0]).abs().mean(), (curves[0][:, 0] - curves[0][:, 1]).abs().mean()
    assert 0.0 < rounding < 0.5 * seeds


def test_the_engine_is_chosen_where_none_is_named(training, monkeypatch):
    asked = []
    monkeypatch.setattr(engines, "choose", lambda *arguments: asked.append(arguments[2]) or "autograd")
    trained("deep", training, engine=None)
    assert asked == ["cpu"]


def test_a_rare_sample_that_is_none_of_the_task_is_told_as_that(monkeypatch):
    class Rare(Tokens):
        """A target beyond the last class, after the samples by which a task is checked."""

        def sample(self, draws):
            found = super().sample(draws)
            return replace(found, targets=found.targets + 99 * (draws.uniform("rare")[..., None] > 0.98))

    with pytest.raises(UserError, match=r"Rare.sample: targets: expected numbers from 0 to .*, found 0 to "):
        train(Rare(), STACK, Training(steps=50, batch_size=13), 2, engine="autograd")
