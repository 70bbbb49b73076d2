"""A study from its file to a verdict, in this process: trained, measured, gone on with, measured anew, judged."""

import math
from pathlib import Path

import pytest
import torch

from hopscope.claims import Claim, at_most
from hopscope.claims.judge import judge
from hopscope.config import Config
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.config import Model
from hopscope.runs import Evidence, RunFolder
from hopscope.study import measures, measuring
from hopscope.study.jobs import fitted, identity, job_of, of_run, plan, record
from hopscope.study.load import Loaded, load
from hopscope.study.measure import measure
from hopscope.study.measuring import is_measured, measure_run, measure_unit, rows_of_run, training_of
from hopscope.study.study import Configuration, Study
from hopscope.tasks import Shape, Task
from hopscope.training.config import Training
from hopscope.training.train import TimeBudget, train

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DONE = TimeBudget(-1.0)


@pytest.fixture
def begun(tmp_path):
    """The folder of a run that has just begun."""

    def begun(study, loaded=None):
        loaded = Loaded(study, *((loaded.reference, loaded.file, loaded.text) if loaded else ()))
        run = RunFolder.named(tmp_path, study.name, identity(study))
        return run.create(record(loaded, plan(study)))

    return begun


def trained(run, study, budget=None):
    for unit in run.units:
        train(**training_of(unit, study, budget or TimeBudget()))
        measure_unit(unit, study, budget or TimeBudget())
        unit.seal()
    measure_run(run, study, budget or TimeBudget())
    return evidence_of(run, study)


def evidence_of(run, study):
    return Evidence.of(rows_of_run(run, study), run.members, run.config, run.path)


@pytest.mark.parametrize("name", ["copying.py", "nearest_key.py", "layers_and_speed.py"])
def test_studies_of_the_examples_keep_the_contract(name, begun):
    loaded = load(str(EXAMPLES / name))
    study = loaded.study.chosen(
        "smoke", {"training.steps": 4, "training.batch_size": 5, "held_out": 7, "seeds": 1}
    )
    run = begun(study, loaded)
    again = of_run(run)
    assert identity(again.study) == identity(study) and [*map(str, again.study.all_claims())]
    assert all(map(callable, again.study.all_figures()))
    evidence = trained(run, again.study)
    assert (
        evidence.columns == sorted(study.vary)
        and evidence.has("loss")
        and evidence.has("loss", split="train")
    )
    steps = study.training.evaluation_steps()
    assert (
        evidence.curve("loss").index.tolist() == steps
        and evidence.curve("loss", split="train").index[0] == steps[1]
    )
    for each in study.measures:
        assert each.name == "accuracy" or not evidence.rows(measure=each.name).empty
    with again.naming():
        assert judge(again.study.all_claims()[0], evidence, registered=run.config["registration"]).id


def test_what_is_recorded_of_classes_and_how_a_claim_is_judged(begun, study):
    learned = Claim(
        id="E1", statement="The first token is echoed.", source="here", protocol="held-out loss", rule="always",
        value=lambda evidence: evidence.last("loss", **{"model.heads": 2}), must=at_most(0.3), seeds_needed=2,
    )  # fmt: skip
    made = study(
        vary={"model.heads": [1, 2]},
        claims=[learned],
        held_out=47,
        measures=[measures.accuracy, measures.attention_to("first")],
    )
    fields = {"steps": 150, "learning_rate": 0.03, "checkpoint_every": 150, "evaluate_every": 50}
    made = made.changed(
        {"members_per_unit": 2, **{f"training.{name}": value for name, value in fields.items()}}
    )
    run = begun(made)
    evidence = trained(run, fitted(Loaded(made), run).study)
    assert evidence.last("accuracy").min() > 0.9 and evidence.has("accuracy", split="train")
    assert evidence.last("loss", part="zero").notna().all()
    attention = evidence.last("attention_to_first", layer=0, head=0, **{"model.heads": 1})
    assert attention.index.tolist() == [0, 1] and (attention > 0.6).all()
    verdict = judge(learned, evidence, registered=run.config["registration"])
    assert (verdict.registration.state, verdict.here.verdict) == ("registered", "reproduced")
    evidence.write(run.path / "evidence.parquet")
    run.finish()
    assert run.is_done and Evidence.read(run).last("accuracy").equals(evidence.last("accuracy"))


def counting(name, calls, when="end", **more):
    """A measure that notes its calls."""

    def function(context):
        calls.append((name, context.step, context.members))
        assert context.step is None or context.evidence.curve("loss").index[-1] == context.step
        return {f"{name}_metric": torch.arange(len(context.members)) + 0.5}

    return measure(function, name=name, when=when, **more)


def test_measures_are_taken_once_and_anew_when_they_change(begun, study):
    calls = []
    first = counting("first", calls, "checkpoints")

    @measure(needs=(first, "second"))
    def last(context):
        assert (
            context.at(context.unit, 2).ensemble.step == 2 and context.evidence.curve("loss").index[-1] == 7
        )
        calls.append(("last", context.step, len(context.rows("first"))))
        return [
            {"metric": "seen", "member": row["member"], "value": row["value"]}
            for row in context.rows("second")
        ]

    made = study(measures=[last, first, counting("second", calls)], members_per_unit=2)
    run = begun(made)
    (unit,) = run.units
    train(**training_of(unit, made, TimeBudget()))
    assert not is_measured(unit, made)
    with pytest.raises(
        UserError, match="expected the rows of measure first, found none; the same hopscope run measures it"
    ):
        evidence_of(run, made)
    with pytest.raises(TimeBudgetReached):
        measure_unit(unit, made, DONE)
    measure_unit(unit, made, TimeBudget())
    checkpoints = [0, 1, 2, 4, 7]
    assert calls == [
        *(("first", step, (0, 1)) for step in checkpoints),
        ("second", 7, (0, 1)),
        ("last", 7, 2),
    ]
    assert is_measured(unit, made) and evidence_of(run, made).last("seen").tolist() == [0.5, 1.5]
    calls.clear()
    measure_unit(unit, made, DONE)
    changed = study(measures=[last, first, counting("second", calls, needs=("first",))], members_per_unit=2)
    assert is_measured(unit, changed) is False
    before = unit.steps
    measure_unit(unit, changed, TimeBudget())
    assert [name for name, *_ in calls] == ["second", "last"] and unit.steps == before


def test_members_are_measured_on_the_cpu_wherever_they_were_trained(begun, study, monkeypatch):
    @measure
    def place(context):
        found = context.ensemble(context.held_out.inputs)
        return {"on_cpu": [float(found.device.type == "cpu")] * len(context.members)}

    made = study(measures=[place], members_per_unit=2)
    run = begun(made)
    (unit,) = run.units
    train(**training_of(unit, made, TimeBudget()))
    monkeypatch.setattr(measuring, "job_of", lambda unit: job_of(unit).model_copy(update={"device": "cuda"}))
    measure_unit(unit, made, TimeBudget())
    assert evidence_of(run, made).last("on_cpu").tolist() == [1.0] * len(unit.members)


def test_a_measure_in_training_stands_in_the_record(begun, study):
    @measure(when="training")
    def watched(context):
        share = context.ensemble(context.held_out.inputs).softmax(-1)[..., 0].mean((1, 2))
        return {"first_class": share, "of@zero": torch.full((len(context.members), 1, 1), context.step)}

    made = study(measures=[watched])
    run = begun(made)
    evidence = trained(run, made)
    assert evidence.curve("first_class").index.tolist() == made.training.evaluation_steps()
    assert evidence.last("of", part="zero", layer=0, head=0).tolist() == [7.0, 7.0]
    assert set(evidence.rows("first_class")["measure"]) == {"watched"}
    wrong = study(
        measures=[measure(lambda context: [{"metric": "x", "file": "y"}], name="wrong", when="training")]
    )
    with pytest.raises(UserError, match="measure wrong: expected a value for each member in training, found"):
        trained(begun(wrong), wrong)


def test_training_goes_on_where_it_stopped_with_the_same_rows(begun, study, tmp_path):
    made = study(training={"steps": 6, "batch_size": 5, "checkpoint_every": 2, "evaluate_every": 1})
    whole = trained(begun(made), made).to_pandas()
    other = RunFolder(tmp_path / "other" / "0123456789ab").create(record(Loaded(made), plan(made)))
    for unit in other.units:
        with pytest.raises(TimeBudgetReached):
            train(**training_of(unit, made, DONE))
        assert unit.steps == [0, 1, 2] or unit.steps == [0, 1]
    assert trained(other, made).to_pandas().equals(whole)


def test_parts_and_arrays_are_kept(begun, study):
    done, stops = [], [0.0]

    @measure(when="run")
    def long(context):
        for unit in context.run.units:

            def one(unit=unit):
                done.append(unit.name)
                here = context.at(unit)
                assert torch.is_grad_enabled() and here.step == 7
                loss = float(here.held_out.inputs.float().mean())
                maps = {"one": torch.arange(3) * len(done), "two": [1.0, math.nan]}
                file = context.save("map", maps)
                return [{"metric": "mean", "member": here.members[0], "value": loss, "file": file}]

            yield from context.part(unit.name, one)
            context.budget.seconds = stops.pop() if stops else None
        yield {"metric": "units", "value": len(context.run.units)}
        yield {"metric": "all", "value": [math.inf, math.nan], "file": context.save("own", [2.0])}

    made = study(measures=[long])
    run = begun(made)
    for unit in run.units:
        train(**training_of(unit, made, TimeBudget()))
    with pytest.raises(TimeBudgetReached):
        measure_run(run, made, TimeBudget(1e6))
    assert len(done) == 1 and run.whole.measured("long", "", None) is None
    measure_run(run, made, TimeBudget())
    evidence = evidence_of(run, made)
    assert done == [unit.name for unit in run.units]
    assert evidence.last("mean").notna().all() and evidence.rows("units")["value"].tolist() == [2.0]
    assert evidence.last("all")[0] == math.inf and math.isnan(evidence.last("all")[1])
    files = evidence.rows("mean")["file"].tolist()
    assert [evidence.arrays(file)["map.one"].tolist() for file in files] == [[0, 1, 2], [0, 2, 4]]
    assert {*evidence.arrays(evidence.rows("all")["file"].iloc[0])} == {"own"}


def test_a_fault_in_a_measure_is_a_line_and_training_is_kept(begun, study):
    broken = measure(lambda context: {"x": 1 / 0}, name="broken")
    made = study(measures=[broken])
    run = begun(made)
    with pytest.raises(
        UserError, match=r"measure broken: expected numbers, found ZeroDivisionError: .*; mend the mea"
    ):
        trained(run, made)
    assert run.units[0].steps[-1] == 7 and torch.is_grad_enabled()


class Diverging(Task):
    """Targets of one member are out of all bounds."""

    def shape(self):
        return Shape(inputs="vectors", input_size=3, positions=2, readout=(1,), output_size=3)

    def sample(self, draws):
        from hopscope.tasks import Batch

        vectors = draws.normal("vectors", (2, 3))
        wild = (draws.seeds == 1).float()[:, None, None, None]
        return Batch(vectors, vectors[..., 1:, :] * (1.0 + 1e30 * wild) ** 2)


def test_a_diverged_member_spoils_no_other_and_has_no_numbers(begun, study):
    calls = []
    made = study(
        task=Diverging(), model=Model(width=8, positions="none"), seeds=3, members_per_unit=3,
        measures=[counting("at_end", calls), counting("each", calls, "checkpoints"), counting("all", calls, "run")],
    )  # fmt: skip
    evidence = trained(begun(made), made)
    for metric in ("loss", "at_end_metric", "each_metric", "all_metric"):
        assert evidence.last(metric).isna().tolist() == [False, True, False], metric
    assert evidence.curve("each_metric")[1].notna().tolist()[0]


class Wishes(Config):
    """Options of a study."""

    count: int = 3


def test_a_study_that_trains_nothing_measures_the_run(begun):
    @measure(when="run")
    def asked(context):
        assert context.members == () and context.run.units == []
        for number in range(context.options.count):
            yield from context.part(
                str(number), lambda number=number: [{"metric": "right", "part": f"q{number}", "value": 1}]
            )

    made = Study(name="asks", options=Wishes(count=5), measures=[asked])
    run = begun(made)
    assert (plan(made), run.units) == ([], [])
    assert (
        len(trained(run, fitted(Loaded(Study(name="asks", options=Wishes, measures=[asked])), run).study))
        == 5
    )


def test_members_may_begin_from_given_weights(begun, study):
    def start(job):
        from hopscope.models.transformer import Transformer

        if job.label != "begun":
            return None
        weights = Transformer.initial(
            job.config, torch.tensor([each.init_seed for each in job.members])
        ).weights()
        return {name: torch.zeros_like(weight) for name, weight in weights.items()}

    made = study(
        start=start, configurations=lambda options: [Configuration(label=each) for each in ("begun", "drawn")]
    )
    run = begun(made)
    evidence = trained(run, made)
    assert evidence.curve("loss").loc[0, :1].tolist() == pytest.approx([math.log(5)] * 2)
    assert all(run.units[n].weights(0)["readout.weight"].any() == (n > 1) for n in range(4))
    with pytest.raises(UserError, match="start: expected a function of one argument, the job"):
        study(start=lambda: None)
    wrong = study(start=lambda job: {"readout.weight": torch.zeros(3)})
    with pytest.raises(UserError, match="start: expected the weights of 1 members by name, found"):
        trained(begun(wrong), wrong)


def test_options_of_a_cell_reach_its_measures(begun, study):
    @measure
    def told(context):
        if context.unit.name != context.run.units[0].name:
            with pytest.raises(UserError, match="expected its own unit, found another"):
                context.at(context.run.units[0])
        return {"count": [context.options.count] * len(context.members)}

    made = study(options=Wishes, vary={"count": [3, 5]}, measures=[told])
    run = begun(made)
    assert trained(run, fitted(Loaded(made), run).study).last("count").tolist() == [3.0, 3.0, 5.0, 5.0]


def test_a_field_that_is_given_its_default_does_not_harm(begun, study):
    made = study(training=Training(steps=4, schedule="cosine", final_rate=0.1, examples=None, batch_size=3))
    run = begun(made)
    assert trained(run, made).last("loss").notna().all()
    assert fitted(Loaded(made), run).study.training == made.training
