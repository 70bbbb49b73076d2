"""The circuit of a run whose task stands in a user's file: from the library and from the command line."""

import json
from pathlib import Path

import pytest
import torch

import hopscope as hs
from hopscope.circuits import record
from hopscope.cli.main import main
from hopscope.errors import UserError
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash, save_checkpoint
from hopscope.studies import find_study
from hopscope.studies.record import note_origin

from .any_tasks import Sum, sum_model

HERE = Path(__file__).parent
STEPS, SEEDS = 11, 2

STUDY = '''
import hopscope as hs
from any_tasks import Sum as Planted


class Sum(Planted):
    """The same, in another file."""


study = hs.Study(
    name="sums",
    question="Which places does it read?",
    task={task},
    model=hs.Model(heads=2, head_dim=2, width=8, mlp_ratio=0.0, norm="none"),
    training=hs.Training(steps=11),
    seeds=2,
)
'''


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A run whose first member was built, beside one that never learned."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.chdir(tmp_path)

    def make(task="Sum()", built=None):
        file = tmp_path / "sums.py"
        file.write_text(STUDY.replace("{task}", task), encoding="utf-8")
        program = find_study(str(file))
        config = program.configured(None, {})
        job = program.jobs(config)[0]
        job = job.model_copy(
            update={"members": tuple(job.members[0].model_copy(update={"member": n}) for n in range(SEEDS))}
        )
        plan = job.model_dump(mode="json")
        name = content_hash(plan)
        entries = [{"member": n, "unit": name, "index": n, "seed": n, "overrides": {}} for n in range(SEEDS)]
        run = RunFolder.create(tmp_path / "runs", "sums", config.model_dump(mode="json"), entries, None)
        note_origin(run, program)
        unit = run.units[0].create({"label": "built", "plan": plan})
        both = Parameters(parameter_specs(job.model), SEEDS)
        both.flat.copy_(Transformer.initial(job.model, torch.tensor([3, 5])).parameters.flat)
        if built is not None:
            assert parameter_specs(built.config) == parameter_specs(job.model)
            both.flat[0] = built.parameters.flat[0]
        arrays = {f"weights/{name}": view.numpy() for name, view in both.views().items()}
        save_checkpoint(unit.checkpoint_path(STEPS), arrays, {"step": STEPS})
        return run, file

    return make


def test_the_circuit_of_a_member_and_one_that_never_learned(made):
    run, _ = made(built=sum_model(Sum()))
    found = hs.open_run(run.path).circuit(0)
    assert str(found).splitlines() == [
        "member 0, step 11: read",
        "layer 0, head 0: position 4 → position 0",
        "layer 0, head 1: position 4 → position 2",
    ]
    assert found.record["learned"] == ["first", "second", "first@third", "second@third"]
    assert [path["needed_for"] for path in found.record["paths"]] == ["first", "second"]
    assert str(hs.read_circuit(run.path, 1)) == "member 1, step 11: no circuit: above plateau"


def test_the_command_line_reads_it_too(made, capsys):
    run, _ = made(built=sum_model(Sum()))
    assert main(["circuit", str(run.path), "--member", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [path["target_role"] for path in found["paths"]] == ["position 0", "position 2"]
    assert main(["circuit", str(run.path), "--member", "0"]) == 0
    table = capsys.readouterr().out
    assert "Loss over first, second, first@third, second@third (threshold" in table
    assert "over_role" in table
    assert main(["circuit", str(run.path), "--member", "1"]) == 0
    assert capsys.readouterr().out == "member 1, step 11: no circuit: above plateau\n"


def test_a_circuit_on_record_needs_no_file(made, monkeypatch):
    run, file = made(built=sum_model(Sum()))
    first = hs.open_run(run.path).circuit(0)
    file.unlink()
    monkeypatch.setattr(record, "read_circuit", None)
    again = hs.open_run(run.path).circuit(0)
    assert (again.record, again.circuit) == (first.record, first.circuit)
    with pytest.raises(UserError, match=r"sums\.py"):
        hs.open_run(run.path).circuit(1)


def test_a_task_that_has_changed_is_refused(made):
    run, file = made(built=sum_model(Sum()))
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace('    """The same, in another file."""', "    scale: float = 3.0"), encoding="utf-8"
    )
    with pytest.raises(UserError, match=r"expected the task with which .* was made"):
        hs.open_run(run.path).circuit(0)


def test_a_study_can_be_given_to_a_run(made):
    run, file = made(built=sum_model(Sum()))
    run.write_json("study.json", {**json.loads((run.path / "study.json").read_text()), "reference": None})
    with pytest.raises(UserError, match=r"give it with hopscope\.open_run"):
        hs.open_run(run.path).circuit(0)
    assert hs.open_run(run.path, find_study(str(file)).study).circuit(0).verdict == "read"


def test_a_task_of_the_package_in_a_user_s_study_is_read_as_ever(made):
    run, file = made("hs.tasks.Retrieval(steps=1, chains=2)")
    file.unlink()
    assert hs.open_run(run.path).circuit(0).verdict == "no circuit: above plateau"
    assert record.read_member(run, 1)["verdict"] == "no circuit: above plateau"


def test_without_its_task_a_reading_is_refused(made):
    run, _ = made(built=sum_model(Sum()))
    with pytest.raises(UserError, match="task Sum: expected the task itself"):
        record.read_member(run, 0)
