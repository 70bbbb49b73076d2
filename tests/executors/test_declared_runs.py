"""Runs of declared studies in this process: measures of every kind, resume, starting weights, diverged members."""

from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import hopscope as hs
from hopscope.config import Config
from hopscope.errors import TimeBudgetReached
from hopscope.executors.healing import RecordWarning
from hopscope.runs import RunFolder, frozen_members, note_thinned, save_rounded


class Echo(hs.Task):
    """Repeat the first token."""

    length: int = 3
    values: int = 5

    def shape(self) -> hs.Shape:
        return hs.Shape(
            inputs="tokens",
            input_size=self.values,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=self.values,
        )

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", self.values, (self.length,))
        return hs.Batch(
            inputs=tokens,
            targets=tokens[..., :1],
            groups={"zero": tokens[..., 0] == 0},
            relations={"first": lambda: draws.constant(0, (self.length,))},
        )

    def floors(self) -> dict[str, float]:
        return {"guess": float(np.log(self.values))}


@hs.measure(when="training")
def logit_norm(context: hs.Context) -> dict[str, torch.Tensor]:
    """Mean square of the logits."""
    return {"logit_norm": context.ensemble(context.held_out.inputs).square().mean((1, 2, 3))}


@hs.measure(when="checkpoints")
def weight_norm(context: hs.Context) -> dict[str, torch.Tensor]:
    """Mean square of all weights."""
    return {"weight_norm": context.ensemble.transformer.parameters.flat.square().mean(1)}


@hs.measure(when="end", needs=[weight_norm])
def growth(context: hs.Context) -> list[dict[str, object]]:
    """How much the weights grew, and the streams that show it."""
    rows = context.rows("weight_norm")
    assert {row.step for row in rows} == {context.step}  # of the same checkpoint
    file = context.save(
        "streams", context.ensemble.cache(context.batch(7).inputs)["blocks.0.hook_resid_post"]
    )
    values = [row.value for row in rows]
    return [{"metric": "weight_norm_again", "value": values, "file": file}]


@hs.measure(when="run", needs=["growth"])
def spread(context: hs.Context) -> dict[str, float]:
    """Spread over all members of the run."""
    values = [row.value for row in context.rows("growth")]
    assert len(values) == len(context.members)
    again = context.at(context.units[0]).ensemble
    assert len(again) == 2
    return {"spread": max(values) - min(values)}


MEASURES = (logit_norm, weight_norm, growth, spread)


def study(**fields: object) -> hs.Study:
    usual = {
        "name": "echo",
        "task": Echo(),
        "model": hs.Model(width=8),
        "training": hs.Training(steps=12, batch_size=11, checkpoint_every=6, evaluate_every=3),
        "seeds": 2,
        "held_out": 23,
    }
    return hs.Study(**{**usual, **fields})


def test_measures_of_every_kind_reach_the_table(tmp_path: Path) -> None:
    run = hs.run(study(vary={"model.layers": [1, 2]}, measures=MEASURES), out=tmp_path)
    evidence = run.evidence
    assert evidence.curve("logit_norm").index.tolist() == evidence.curve("loss").index.tolist()
    assert evidence.curve("weight_norm").index.tolist() == [0, 1, 2, 4, 6, 12]
    last = evidence.last("weight_norm")
    assert evidence.last("weight_norm_again").tolist() == last.tolist() and last.notna().all()
    (row,) = evidence.rows("spread").to_dict("records")
    assert row["value"] == pytest.approx(last.max() - last.min())
    file = evidence.rows("weight_norm_again")["file"].iloc[0]
    assert np.load(run.path / file)["array"].shape == (2, 7, 3, 8)
    for metric in ("loss", "accuracy"):
        assert evidence.last(metric, part="zero").notna().all()
        assert evidence.last(metric, split="train").notna().all()
    assert evidence.last("loss", **{"model.layers": 2}).index.tolist() == [2, 3]


def test_members_alone_are_members_among_others(tmp_path: Path) -> None:
    both = hs.run(study(vary={"task.length": [3, 5]}), out=tmp_path / "both")
    alone = hs.run(study(vary={"task.length": [5]}), out=tmp_path / "alone")
    ours = both.evidence.last("loss", **{"task.length": 5}).to_numpy()
    np.testing.assert_allclose(ours, alone.evidence.last("loss").to_numpy(), rtol=1e-5)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    made = study(measures=MEASURES[:3], seeds=3)
    whole = hs.run(made, out=tmp_path / "whole")
    with pytest.raises(TimeBudgetReached):
        hs.run(made, out=tmp_path / "cut", time_budget=1e-9)
    (cut,) = (tmp_path / "cut" / "echo").iterdir()
    assert not (cut / "DONE").exists()
    again = hs.run(made, out=tmp_path / "cut")
    files = ["evidence.parquet", "metrics.parquet", "claims.json"]
    files += [str(path.relative_to(whole.path)) for path in whole.path.glob("units/*/checkpoints/*")]
    assert len(files) > 9
    for name in files:
        assert (again.path / name).read_bytes() == (whole.path / name).read_bytes(), name


@pytest.mark.parametrize("altered", [True, False], ids=["altered", "deleted"])
@pytest.mark.parametrize("name", ["measured-weight_norm-*-step-000000001.json", "growth+streams-*.npz"])
@pytest.mark.parametrize("concluded", [True, False])
def test_a_lost_analysis_of_any_checkpoint_is_made_again(
    tmp_path: Path, processes_module: ModuleType, name: str, altered: bool, concluded: bool
) -> None:
    made = study(measures=MEASURES[1:3], seeds=1)
    run = hs.run(made, out=tmp_path)
    whole = processes_module.record(run.path)
    (path,) = run.path.glob(f"units/*/analysis/{name}")
    if not concluded:
        for each in ("DONE", "evidence.parquet", "claims.json"):
            (run.path / each).unlink()
    if altered:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        path.unlink()
    with pytest.warns(RecordWarning, match="made again") if altered else nullcontext():
        hs.run(made, out=tmp_path)
    assert processes_module.record(run.path) == whole


def test_another_measure_measures_again_and_trains_nothing(tmp_path: Path) -> None:
    first = hs.run(study(), out=tmp_path)
    weights = {path: path.stat().st_mtime_ns for path in first.path.glob("units/*/checkpoints/*")}
    second = hs.run(study(measures=[weight_norm]), out=tmp_path)
    assert second.path == first.path and second.evidence.last("weight_norm").notna().all()
    assert weights == {path: path.stat().st_mtime_ns for path in first.path.glob("units/*/checkpoints/*")}


def test_training_starts_from_given_weights(tmp_path: Path) -> None:
    first = hs.run(study(), out=tmp_path / "first")

    def trained(job: object) -> dict[str, torch.Tensor]:
        members = [first.member(member.member).state_dict() for member in job.members]
        ensemble = first.ensemble(member=[member.member for member in job.members])
        assert len(members) == len(ensemble)
        return dict(ensemble.transformer.weights)

    second = hs.run(study(start=trained), out=tmp_path / "second")
    start = second.evidence.curve("loss").iloc[0].to_numpy()
    np.testing.assert_allclose(start, first.evidence.last("loss").to_numpy(), rtol=1e-5)
    with pytest.raises(hs.UserError, match="start: expected the weights of 1 members"):
        hs.run(study(start=lambda job: {"wrong": torch.zeros(1)}), out=tmp_path / "third")


def test_configurations_of_a_function_cross_the_seeds(tmp_path: Path) -> None:
    class Wishes(Config):
        """Options."""

        crossed: int = 2

    def cells(options: Wishes) -> list[hs.Configuration]:
        pairs = [(one, other) for one in range(options.crossed) for other in range(options.crossed)]
        return [
            hs.Configuration(
                label=f"{one}, {other}", overrides={"init_seed": one, "data_seed": other}, seeds=1
            )
            for one, other in pairs
        ]

    run = hs.run(study(options=Wishes, configurations=cells), out=tmp_path)
    start = run.evidence.curve("loss").iloc[0]
    assert start[0] == start[1] and start[2] == start[3] and start[0] != start[2]  # by initial weights alone
    assert run.evidence.last("loss", init_seed=1, data_seed=0).index.tolist() == [2]
    assert run.config["options"] == {"crossed": 2}
    more = hs.run(study(options=Wishes, configurations=cells), out=tmp_path, crossed=1)
    assert more.path != run.path and len(more.members) == 1


def test_a_diverged_member_has_nulls_and_the_page_says_so(tmp_path: Path) -> None:
    claim = hs.Claim(
        id="A",
        statement="It learns.",
        source="here",
        protocol="accuracy",
        value=lambda evidence: evidence.last("accuracy"),
        must=hs.at_least(0.0, unit="fraction"),
    )
    training = hs.Training(steps=12, batch_size=11, checkpoint_every=6, evaluate_every=3, learning_rate=1e38)
    made = study(
        training=training, measures=MEASURES[:1], claims=[claim], figures=[hs.figures.curves("loss")]
    )
    run = hs.run(made, out=tmp_path)
    assert run.evidence.last("loss").isna().all() and run.evidence.last("logit_norm").isna().all()
    assert run.claims["A"].verdict == "not run" or run.claims["A"].verdict == "inconclusive"
    assert "diverged" in (run.path / "report.html").read_text(encoding="utf-8")


def test_a_study_of_a_finite_pool(tmp_path: Path) -> None:
    training = hs.Training(steps=8, batch_size=5, checkpoint_every=8, evaluate_every=4, examples=2)
    run = hs.run(study(training=training, seeds=1), out=tmp_path)
    assert run.config["training"]["examples"] == 2
    batch = run.member(0).batch(50, use="train")
    assert len({tuple(row) for row in batch.inputs.tolist()}) <= 2
    assert len({tuple(row) for row in run.member(0).batch(50).inputs.tolist()}) > 2


def test_a_study_without_a_task_measures_once(tmp_path: Path) -> None:
    @hs.measure(when="run")
    def asked(context: hs.Context) -> dict[str, float]:
        return {"answer": 42.0}

    run = hs.run(hs.Study(name="only-asks", measures=[asked]), out=tmp_path)
    assert run.members == [] and run.evidence.rows("answer")["value"].tolist() == [42.0]


def test_training_without_a_run_folder() -> None:
    training = hs.Training(steps=200, batch_size=64, learning_rate=3e-3)
    ensemble = hs.train(Echo(), hs.Model(width=16), training, seeds=2)
    batch = ensemble.batch(128)
    assert float((ensemble(batch.inputs).argmax(-1) == batch.targets).float().mean()) > 0.9
    assert (len(ensemble), ensemble.seeds, ensemble.step) == (2, (0, 1), 200)
    alone = hs.train(Echo(), hs.Model(width=16), training, seeds=[1])
    torch.testing.assert_close(alone(batch.inputs)[0], ensemble(batch.inputs)[1], rtol=1e-3, atol=1e-3)


def test_a_changed_measure_is_measured_again_with_those_that_need_it(tmp_path: Path) -> None:
    def measures(factor: float) -> tuple[hs.Context, ...]:
        @hs.measure(when="end")
        def one(context: hs.Context) -> dict[str, torch.Tensor]:
            return {"one": torch.full((len(context.members),), factor)}

        @hs.measure(when="end", needs=["one"])
        def two(context: hs.Context) -> dict[str, list[float]]:
            return {"two": [2 * row.value for row in context.rows("one")]}

        @hs.measure(when="run", needs=["two"])
        def four(context: hs.Context) -> dict[str, float]:
            return {"four": sum(row.value for row in context.rows("two"))}

        return one, two, four

    for factor in (1.0, 3.0):
        evidence = hs.run(study(measures=measures(factor)), out=tmp_path).evidence
        assert evidence.last("one").tolist() == [factor, factor]
        assert evidence.last("two").tolist() == [2 * factor, 2 * factor]
        assert evidence.rows("four")["value"].tolist() == [4 * factor]


def test_measures_that_cannot_be_had_are_refused(tmp_path: Path) -> None:
    @hs.measure(when="end", needs=["spread"])
    def early(context: hs.Context) -> None:
        """Needs what comes later."""

    for measures, words in (
        ((early, spread, growth, weight_norm), "need measures of checkpoints"),
        ((early,), "among"),
    ):
        with pytest.raises(hs.UserError, match=words):
            hs.run(study(measures=measures), out=tmp_path)


def test_another_measure_of_training_is_another_run(tmp_path: Path) -> None:
    assert hs.run(study(), out=tmp_path).path != hs.run(study(measures=[logit_norm]), out=tmp_path).path


def test_the_order_of_varied_fields_is_part_of_the_run(tmp_path: Path) -> None:
    one = {"model.layers": [1], "task.length": [3]}
    other = dict(reversed(one.items()))
    paths = {hs.run(study(vary=vary, seeds=1), out=tmp_path).path for vary in (one, other)}
    assert len(paths) == 2


def test_fields_that_only_some_configurations_set(tmp_path: Path) -> None:
    cells = [
        hs.Configuration(label="as it is"),
        hs.Configuration(label="longer", overrides={"task.length": 5}),
    ]
    run = hs.run(study(configurations=lambda options: cells, seeds=1), out=tmp_path)
    assert run.evidence.last("loss", **{"task.length": 3}).index.tolist() == [0]
    assert run.ensemble(**{"task.length": 3}).members == (0,)


def test_claims_of_a_study_that_trains_nothing_are_registered_once(tmp_path: Path) -> None:
    @hs.measure(when="run")
    def asked(context: hs.Context) -> dict[str, float]:
        return {"answer": 42.0}

    def made(bound: float) -> hs.Study:
        claim = hs.Claim(
            id="A",
            statement="s",
            source="x",
            protocol="p",
            value=lambda evidence: hs.Samples(evidence.rows("answer")["value"].tolist(), unit="case"),
            must=hs.at_least(bound),
        )
        return hs.Study(name="only-asks", measures=[asked], claims=[claim])

    run = hs.run(made(10.0), out=tmp_path)
    assert run.claims["A"].registration.state == "registered"
    (run.path / "registration.json").unlink()
    for _ in range(2):  # and it is not forgotten when the run is judged once more
        found = hs.run(made(50.0), out=tmp_path).claims["A"]
        assert found.registration.state == "none"
        assert found.registration.words.startswith("registration.json was deleted after this run had been")
        (run.path / "DONE").unlink()


# What cannot be made again.


@hs.measure(when="checkpoints")
def silent(context: hs.Context) -> None:
    """Finds nothing."""


@pytest.fixture
def thinned(tmp_path: Path) -> hs.Run:
    """A run as a campaign packs it: the last checkpoint rounded, the others left out."""
    run = hs.run(study(measures=(silent, *MEASURES[1:3]), seeds=1), out=tmp_path)
    (unit,) = RunFolder(run.path).units
    *others, (last, path) = unit.checkpoints()
    save_rounded(path, path)
    for _, other in others:
        other.unlink()
    note_thinned(unit.path, [last], [step for step, _ in others], frozen_members(unit, last))
    return run


def again(run: hs.Run) -> hs.Run:
    return hs.run(study(measures=(silent, *MEASURES[1:3]), seeds=1), out=run.path.parents[1])


@pytest.mark.parametrize("altered", [True, False], ids=["altered", "deleted"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("measured-weight_norm-*-step-000000001.json", "step 1 is gone"),
        ("measured-growth-*-step-000000012.json", "step 12 has only rounded weights"),
    ],
)
def test_an_analysis_whose_checkpoint_is_gone_is_missed(
    thinned: hs.Run, processes_module: ModuleType, name: str, words: str, altered: bool
) -> None:
    (path,) = thinned.path.glob(f"units/*/analysis/{name}")
    (thinned.path / "evidence.parquet").unlink()
    if altered:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        path.unlink()
    before = processes_module.record(thinned.path)
    with pytest.raises(hs.UserError, match="restore it from a copy of the run, or move") as caught:
        again(thinned)
    assert str(caught.value).startswith(f"{path}: expected") and "\n" not in str(caught.value)
    if altered or "rounded" in words:
        assert words in str(caught.value)
    after = processes_module.record(thinned.path)
    assert {file: digest for file, digest in before.items() if file.startswith("units/")} == {
        file: digest for file, digest in after.items() if file.startswith("units/")
    }
    assert not (thinned.path / "evidence.parquet").exists()


def test_what_is_left_of_a_thinned_run_is_concluded_as_before(thinned: hs.Run) -> None:
    path = thinned.path / "evidence.parquet"
    before = path.read_bytes()
    for name in ("evidence.parquet", "DONE"):
        (thinned.path / name).unlink()
    assert not again(thinned).evidence.rows("weight_norm").empty
    assert path.read_bytes() == before


def test_a_note_of_what_was_left_out_is_not_taken_away(thinned: hs.Run) -> None:
    (path,) = thinned.path.glob("units/*/thinned.json")
    path.write_bytes(path.read_bytes() + b" ")
    (analysis,) = thinned.path.glob("units/*/analysis/measured-weight_norm-*-step-000000001.json")
    analysis.write_bytes(b"?")
    with pytest.raises(hs.UserError, match=r"thinned\.json: expected the content that was written"):
        again(thinned)
    assert path.is_file() and analysis.is_file()


def test_a_lost_analysis_beyond_the_last_checkpoint_is_made_again(
    tmp_path: Path, processes_module: ModuleType
) -> None:
    run = hs.run(study(measures=MEASURES[1:3], seeds=1), out=tmp_path)
    whole = processes_module.record(run.path)
    (path,) = run.path.glob("units/*/analysis/measured-growth-*-step-000000012.json")
    path.write_bytes(b"?")
    (checkpoint,) = run.path.glob("units/*/checkpoints/step-000000012.safetensors")
    checkpoint.unlink()
    with pytest.warns(RecordWarning, match="made again"):
        hs.run(study(measures=MEASURES[1:3], seeds=1), out=tmp_path)
    assert processes_module.record(run.path) == whole
