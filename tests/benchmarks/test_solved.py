"""Cost to a result: who has learned, what a contestant is asked, and the clock."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from hopscope.models.transformer import Transformer
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.permutation.config import PRESETS as PERMUTATION
from hopscope.studies.permutation.probes.predictions import repeat_probe
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask

Load = Callable[[str], ModuleType]

# Says of every seed what is a formula of contestant, seed and round, and leaves a trace of its groups.
FAKE = """
import json, pathlib, sys, time
orders = json.loads(sys.argv[1])
name, here = orders["contestant"], pathlib.Path(__file__).parent
def traced(entry):
    with (here / "trace.txt").open("a") as trace:
        trace.write(entry + "\\n")
    return (here / "trace.txt").read_text().count(entry + "\\n")
for line in sys.stdin:
    first, count = map(int, line.split())
    turn = traced(name + " " + line.strip())
    print(json.dumps({{"facts": {{"engine": "fast"}}}}), flush=True)
    for seed in range(first, first + count):
        learned, steps, score, seconds = True, 250, 0.995, 0.0
        {body}
        time.sleep(seconds)
        told = {{"seed": seed, "learned": learned, "steps": steps, "score": score}}
        print(json.dumps(told), flush=True)
"""


def play(
    load: Load, folder: Path, body: str, *words: str, contestants: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any], str]:
    """A permutation problem whose processes only pretend to train."""
    solved, out, printed = load("solved"), folder / "result.json", io.StringIO()
    worker = folder / "fake.py"
    worker.write_text(FAKE.format(body=body), encoding="utf-8")
    problem = solved.PROBLEMS["permutation"]
    names = contestants or ("hopscope_ensemble", "plain_pytorch")
    grids = {name: {"processes": (2,), "threads": (1,)} for name in names}
    model = replace(problem.model, grids=grids)
    problem = replace(problem, model=model, ensembles=("hopscope_ensemble",), worker=worker)
    argv = ["--out", str(out), *words]
    status = solved.main(argv, {"permutation": problem}, Console(file=printed, width=220))
    return status, json.loads(out.read_text(encoding="utf-8")), printed.getvalue()


def trace(folder: Path) -> list[str]:
    return (folder / "trace.txt").read_text(encoding="utf-8").splitlines()


# The bar.


@pytest.mark.parametrize(("right", "learned"), [(1000, True), (990, True), (989, False), (0, False)])
def test_recall_is_the_share_of_right_answers(load: Load, right: int, learned: bool) -> None:
    held_out = load("_held_out")
    answers = np.arange(1000) % 5 + 1
    said = np.where(np.arange(1000) < right, answers, answers % 5 + 1)
    logits = np.stack([np.eye(6)[said], np.eye(6)[answers]])
    one, other = held_out.recalls(logits, answers)
    assert (one, other) == (right / 1000, 1.0)
    assert held_out.Bar(0.99).met(one) is learned


@pytest.mark.parametrize(
    ("first", "second", "learned"),
    [(0.0, 0.0, True), (0.2, 0.49, True), (0.5, 0.0, False), (0.1, 0.51, False), (0.0, float("nan"), False)],
)
def test_every_partial_loss_counts(load: Load, first: float, second: float, learned: bool) -> None:
    """Errors of x_1 and x_2 whose squares are the partial losses."""
    held_out = load("_held_out")
    targets = np.random.default_rng(0).normal(size=(7, 4, 8))
    wrong = np.repeat([first, second], 4) * np.where(np.arange(4) % 2, 1, -1)[:, None]
    (loss, perfect) = held_out.worst_losses(np.stack([targets + wrong, targets]), targets, 2)
    assert loss == pytest.approx(np.max([first**2, second**2]), nan_ok=True)
    assert perfect == 0.0
    assert held_out.Bar(0.25, losses=True).met(loss) is learned
    assert (held_out.finite(loss) is None) == np.isnan(second)


def test_held_out_repeats_are_all_those_of_mappings_that_training_leaves_out(load: Load) -> None:
    held_out, seed = load("_held_out"), 3
    inputs, answers = held_out.held_out_repeats(seed)
    assert inputs.shape == (held_out.REPEATS, 9) == (24 * 120 * 4, 9)
    assert len(np.unique(inputs, axis=0)) == len(inputs)
    x, y = inputs[:, ::2], inputs[:, 1::2]
    same = x[:, :4] == x[:, 4:]
    assert (same.sum(1) == 1).all() and (y[same] == answers).all()
    trained = set(load("_common").train_mappings(seed))
    for xs, ys in zip(x.tolist(), y.tolist(), strict=True):
        known = dict(zip(xs[:4], ys, strict=True))
        (left,), (unused,) = {1, 2, 3, 4, 5} - set(xs[:4]), {1, 2, 3, 4, 5} - set(ys)
        known[left] = unused
        assert tuple(known[value] for value in range(1, 6)) not in trained


# Training until the bar.


class FakeLoop:
    """Takes several steps a call; notes after how many steps it was asked."""

    def __init__(self, at_once: int, scores: Callable[[int], list[float]], batch: int = 3) -> None:
        self.at_once, self.batch, self.taken, self.asked = at_once, batch, 0, list[int]()
        self.members, self.of = len(scores(0)), scores

    def advance(self) -> int:
        self.taken += self.at_once
        return self.at_once * self.batch * self.members

    def loss(self) -> float:
        return 0.0

    def scores(self) -> list[float]:
        self.asked.append(self.taken)
        return self.of(self.taken)


def told(load: Load, loop: FakeLoop, limit: int = 100) -> list[tuple[int, bool, int, float | None]]:
    worker = load("until_learned")
    training = load("_learners").Training(loop.batch)
    orders = worker.Orders("any", training, load("_held_out").Bar(0.99), every=10, limit=limit)
    assert worker.Orders.read(orders.written()) == orders
    learner = load("_learners").Learner(loop, loop.batch, loop.members, loop.scores)
    found = worker.verdicts(learner, orders)
    return [(each.member, each.learned, each.steps, each.score) for each in found]


def test_members_are_told_of_once_and_go_on_until_all_have_learned(load: Load) -> None:
    loop = FakeLoop(1, lambda step: [0.999 if step == 20 else 0.0, step / 40, 1.0])
    assert told(load, loop) == [(2, True, 10, 1.0), (0, True, 20, 0.999), (1, True, 40, 1.0)]
    assert loop.asked == [10, 20, 30, 40]


def test_what_has_not_learned_at_the_limit_is_told_too(load: Load) -> None:
    loop = FakeLoop(1, lambda step: [0.75, float("nan"), step / 25])
    assert told(load, loop, limit=25) == [
        (0, False, 25, 0.75),
        (1, False, 25, None),
        (2, True, 25, 1.0),
    ]
    assert loop.asked == [10, 20, 25]


def test_a_loop_of_several_steps_is_asked_at_the_first_chance(load: Load) -> None:
    loop = FakeLoop(4, lambda step: [step / 32])
    assert told(load, loop) == [(0, True, 32, 1.0)]
    assert loop.asked == [12, 20, 32]


# The harness.


def test_ensembles_share_their_seeds_and_others_take_them_one_by_one(load: Load, tmp_path: Path) -> None:
    status, result, printed = play(load, tmp_path, "seconds = 0.02", "--seeds", "5")
    assert status == 0
    assert sorted(trace(tmp_path)[:2]) == ["hopscope_ensemble 0 2", "hopscope_ensemble 2 3"]
    assert sorted(trace(tmp_path)[2:]) == [f"plain_pytorch {seed} 1" for seed in range(5)]
    ours, plain = result["contestants"]
    assert ours["settings"] == {"processes": 2, "threads": 1, "members": 3, "engine": "fast"}
    assert plain["settings"]["members"] == 1
    for each in (ours, plain):
        (found,) = each["rounds"]
        assert [row["seed"] for row in found["seeds"]] == [0, 1, 2, 3, 4]
        assert found["wall_seconds"] == max(row["seconds"] for row in found["seeds"])
        assert (each["learned"], each["tried"], each["censored"]) == (5, 5, [False])
    assert (result["suite"], result["seeds"], result["limit_steps"]) == ("solved", 5, 39_250)
    assert result["bar"] == {"threshold": 0.99, "losses": False, "words": "recall of 0.99 or more"}
    assert result["held_out_samples"] == 11_520
    assert result["provenance"]["versions"]["torch"]
    assert "5 of 5" in printed and "Until 5 seeds have learned (recall of 0.99 or more)" in printed


def test_a_free_process_takes_the_next_seed(load: Load, tmp_path: Path) -> None:
    """The first seed is at work until the other process has taken all others."""
    body = (
        "seconds = 0.6 if seed == 0 else 0.0\n"
        "        while seed == 0 and len((here / 'trace.txt').read_text().splitlines()) < 4: time.sleep(0.02)"
    )
    _, result, _ = play(load, tmp_path, body, "--seeds", "4", "--contestants", "plain_pytorch")
    rows = result["contestants"][0]["rounds"][0]["seeds"]
    assert rows[0]["seconds"] > 0.6 and rows[0] == max(rows, key=lambda row: row["seconds"])
    assert result["ratios"] == {}


def test_ratios_are_of_times_within_a_round(load: Load, tmp_path: Path) -> None:
    body = "seconds = 0.1 * turn if 'plain' in name else 0.0"
    _, result, printed = play(load, tmp_path, body, "--seeds", "1", "--rounds", "2")
    assert trace(tmp_path) == ["hopscope_ensemble 0 1", "plain_pytorch 0 1"] * 2
    ours, plain = (each["wall_seconds"]["rounds"] for each in result["contestants"])
    ratio = result["ratios"]["plain_pytorch"]
    assert ratio["rounds"] == [plain[0] / ours[0], plain[1] / ours[1]]
    assert ratio["bounds"] == ["exact", "exact"]
    assert plain[0] > 0.1 and plain[1] > 0.2
    assert result["contestants"][0]["settings"]["processes"] == 1
    assert "Time of other ÷ hopscope_ensemble" in printed


@pytest.mark.parametrize(
    ("missed", "censored", "bound"),
    [("plain", (False, True), "at least"), ("ens", (True, False), "at most"), ("", (True, True), "unknown")],
)
def test_seeds_that_do_not_learn_censor_the_time(
    load: Load, tmp_path: Path, missed: str, censored: tuple[bool, bool], bound: str
) -> None:
    body = f"learned = seed != 1 or {missed!r} not in name; steps = 250 if learned else 39250"
    status, result, printed = play(load, tmp_path, body, "--seeds", "3")
    assert status == 0
    assert tuple(each["censored"][0] for each in result["contestants"]) == censored
    for each, over in zip(result["contestants"], censored, strict=True):
        (found,) = each["rounds"]
        assert [row["learned"] for row in found["seeds"]] == [True, not over, True]
        assert found["wall_seconds"] == max(row["seconds"] for row in found["seeds"])
        assert each["learned"] == 3 - over and each["steps"]["max"] == 250
    assert result["ratios"]["plain_pytorch"]["bounds"] == [bound]
    assert f" {bound} " in printed and "censored: 1 not learned within 39,250 steps" in printed
    assert "over " in printed and "> " in printed


def test_who_is_not_installed_is_told_and_the_rest_goes_on(load: Load, tmp_path: Path) -> None:
    body = "sys.exit('expected the package jax, which is not installed; do x') if 'jax' in name else None"
    names = ("hopscope_ensemble", "jax_vmap")
    status, result, printed = play(load, tmp_path, body, "--rounds", "2", "--seeds", "2", contestants=names)
    assert status == 0
    ours, absent = result["contestants"]
    assert (ours["status"], absent["status"]) == ("ok", "not installed")
    assert (absent["wall_seconds"], absent["rounds"], absent["tried"]) == (None, [None, None], 0)
    assert result["ratios"] == {"jax_vmap": None}
    assert "which is not installed; do x" in printed
    assert sum(line.startswith("jax") for line in trace(tmp_path)) <= 2


def test_a_failure_ends_the_other_process_and_is_told(load: Load, tmp_path: Path) -> None:
    body = (
        "seconds = 60 * (seed == 0 and turn == 2); seed == 1 and turn == 2 and sys.exit('out of memory [a]')"
    )
    words = ("--rounds", "3", "--seeds", "2", "--contestants", "plain_pytorch")
    status, result, printed = play(load, tmp_path, body, *words)
    assert status == 1
    (entry,) = result["contestants"]
    assert (entry["status"], entry["message"]) == ("failed", "round 2: out of memory [a]")
    assert [each is None for each in entry["rounds"]] == [False, True, True]
    assert "failed: round 2: out of memory [a]" in printed


def test_words_that_are_no_message_are_a_failure(load: Load, tmp_path: Path) -> None:
    words = ("--seeds", "1", "--contestants", "plain_pytorch")
    status, result, _ = play(load, tmp_path, "print('hello', flush=True)", *words)
    assert status == 1
    assert "expected a JSON line, found 'hello'" in result["contestants"][0]["message"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--seeds", "0"], "--seeds: expected at least 1, found 0"),
        (["--rounds", "0"], "--rounds: expected at least 1, found 0"),
        (["--out", "no/such/folder/out.json"], "no/such/folder"),
        (["--contestants", "jax_depth"], "expected names out of hopscope_ensemble, page_loop"),
        (["--model", "depth", "--contestants", "page_loop"], "found page_loop"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], words: list[str], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("solved").main(words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error


# What is really trained and asked.


def test_problems_are_those_of_the_studies(load: Load) -> None:
    problems = load("solved").PROBLEMS
    study = PERMUTATION["laptop"]
    (configuration,) = (each for each in study.grid() if each.name == "d32/2 repeats")
    task, model = study.task(configuration), study.model(configuration)
    job = load("hopscope_ensemble").job_of(problems["permutation"].model.batch, 1, 0)
    assert (job.task, job.model) == (task, model)
    assert problems["permutation"].limit == -(-2 * study.training(configuration).steps // 250) * 250
    recipe = {"completion": "gpt2-base", "beta2": 0.95, "training_steps": 3_000}
    circuits, deep = CircuitsConfig(layers=8, heads=1, steps=2, **recipe), problems["depth"]
    job = load("hopscope_depth").job_of(deep.model.shape, deep.model.batch, 1, 0)
    assert (job.task, job.model) == (circuits.task(), circuits.model())
    assert deep.limit == 2 * circuits.training().steps
    assert circuits.evaluation_samples == load("_held_out").SAMPLES
    wanted = circuits.training()
    for name in ("batch_size", "optimizer", "learning_rate", "betas", "epsilon", "weight_decay", "decay"):
        assert getattr(job.training, name) == getattr(wanted, name), name


@pytest.fixture
def general(load: Load, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ours by autograd, so that nothing is compiled here."""
    monkeypatch.setattr(load("hopscope_ensemble"), "chosen_engine", lambda job, device: "general")
    yield


@pytest.mark.usefixtures("general")
def test_recalls_of_ours_are_those_of_the_study(load: Load) -> None:
    learners = load("_learners")
    learner = learners.hopscope_ensemble(learners.Training(batch=64), 4, 2)
    learner.train_to(30)
    assert (learner.members, learner.steps, learner.facts) == (2, 30, {"engine": "general"})
    job = load("hopscope_ensemble").job_of(64, 2, 4)
    task = PermutationTask(job.task)
    batch = task.evaluation("repeats")
    assert batch.inputs.shape[1] == load("_held_out").REPEATS
    model: Transformer = learner._loop.steps.model
    with torch.no_grad():
        expected = repeat_probe(model(batch.inputs).softmax(-1), batch)["recall"]
    assert learner.scores() == pytest.approx(expected.tolist(), abs=1e-3)


@pytest.mark.usefixtures("general")
def test_losses_of_ours_are_those_of_the_study(load: Load) -> None:
    learners = load("_learners")
    shape = load("_depth").Shape(steps=2, layers=2, width=16, heads=1)
    learner = learners.hopscope_depth(learners.Training(8, shape), 0, 3)
    learner.train_to(2)
    job = load("hopscope_depth").job_of(shape, 8, 3, 0)
    task = RetrievalTask(job.task)
    batch = task.evaluation(512)
    with torch.no_grad():
        losses = task.losses(learner._loop.steps.model(batch.inputs), batch)
    parts = torch.stack([losses["loss_step_1"], losses["loss_step_2"]])
    assert learner.scores() == pytest.approx(parts.amax(0).tolist(), rel=1e-4)


@pytest.mark.parametrize("name", ["page_loop", "plain_pytorch"])
def test_one_model_is_asked_for_its_last_answer(load: Load, name: str) -> None:
    learners, held_out = load("_learners"), load("_held_out")
    learner = getattr(learners, name)(learners.Training(batch=32), 7, 1)
    learner.train_to(3)
    inputs, answers = held_out.held_out_repeats(7)
    model = learner._loop.model
    assert model.training
    with torch.no_grad():
        said = model(torch.from_numpy(inputs))[:, -1].argmax(-1).numpy()
    assert learner.scores() == pytest.approx([(said == answers).mean()], abs=1e-3)
    assert model.training and learner.steps == 3


def test_a_deep_plain_model_is_asked_on_samples_of_their_own(load: Load) -> None:
    learners, shape = load("_learners"), load("_depth").Shape(steps=2, layers=1, width=16, heads=1)
    learner = learners.plain_pytorch_depth(learners.Training(8, shape, "all", "sdpa"), 0, 1)
    (score,) = learner.scores()
    # Untrained, it predicts next to nothing: the squared error is the variance of a symbol.
    assert 0.9 < score < 1.1
    assert learner.scores() == [score]


def test_a_real_run_that_does_not_reach_the_bar(load: Load, tmp_path: Path) -> None:
    solved, out = load("solved"), tmp_path / "solved.json"
    problem = solved.PROBLEMS["permutation"]
    # Of one choice of settings nothing is probed.
    model = replace(problem.model, grids={"plain_pytorch": {"processes": (2,), "threads": (1,)}})
    bar = load("_held_out").Bar(1.01)
    problems = {"permutation": replace(problem, model=model, bar=bar, limit=20, every=10)}
    words = ["--seeds", "1", "--contestants", "plain_pytorch", "--out", str(out)]
    assert solved.main(words, problems, Console(file=io.StringIO())) == 0
    (entry,) = json.loads(out.read_text(encoding="utf-8"))["contestants"]
    ((row,),) = (found["seeds"] for found in entry["rounds"])
    assert (row["seed"], row["learned"], row["steps"]) == (0, False, 20)
    assert 0.0 <= row["score"] <= 1.0 and row["seconds"] > 0.1
    assert entry["censored"] == [True]


def test_a_real_run_of_ours(load: Load, tmp_path: Path) -> None:
    solved, out = load("solved"), tmp_path / "solved.json"
    problem = solved.PROBLEMS["depth"]
    small = replace(problem.model, batch=8, shape=load("_depth").Shape(steps=2, layers=1, width=16, heads=1))
    bar = replace(problem.bar, threshold=2.0)
    problems = {"depth": replace(problem, model=small, bar=bar, limit=8, every=2)}
    words = ["--model", "depth", "--seeds", "1", "--contestants", "hopscope_depth", "--out", str(out)]
    assert solved.main(words, problems, Console(file=io.StringIO())) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    (entry,) = result["contestants"]
    assert entry["settings"]["engine"] in ("stacked", "general")
    assert [(row["learned"], row["steps"]) for row in entry["rounds"][0]["seeds"]] == [(True, 2)]
    assert (result["model"], result["held_out_samples"], result["shape"]["layers"]) == ("depth", 512, 1)


@pytest.mark.parametrize("model", ["permutation", "depth"])
def test_a_real_run_of_jax(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    # XLA takes most of a minute to write its fastest code.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    solved, out = load("solved"), tmp_path / "solved.json"
    monkeypatch.setattr(solved, "PROCESSES", 1)
    name = {"permutation": "jax_vmap", "depth": "jax_depth"}[model]
    problem = solved.PROBLEMS[model]
    shape = problem.model.shape and load("_depth").Shape(steps=2, layers=1, width=16, heads=1)
    small = replace(problem.model, batch=8, shape=shape)
    bar = replace(problem.bar, threshold=2.0 if problem.bar.losses else 0.0)
    problems = {model: replace(problem, model=small, bar=bar, limit=50, every=6)}
    words = ["--model", model, "--seeds", "2", "--contestants", name, "--out", str(out)]
    assert solved.main(words, problems, Console(file=io.StringIO())) == 0
    (entry,) = json.loads(out.read_text(encoding="utf-8"))["contestants"]
    if find_spec("jax") is None:
        assert entry["status"] == "not installed"
        assert entry["message"].startswith(f"{name}: expected the package jax, which is not installed")
        return
    steps = {"permutation": 10, "depth": 8}[model]  # the first call that reaches the sixth step
    assert [(row["learned"], row["steps"]) for row in entry["rounds"][0]["seeds"]] == [(True, steps)] * 2
