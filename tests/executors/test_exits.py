"""Code of a study that ends its process, or prints: the run says so, and nothing half-trained is judged."""

import pytest

from hopscope.errors import UserError
from hopscope.executors.finish import finish
from hopscope.runs import RunFolder
from hopscope.studies import find_study

STUDY = '''"""ends.py: a study whose code does what a test says."""
import os
import sys

import hopscope as hs


class Copy(hs.Task):
    """Repeat the first token."""

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (3,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


calls = []


@hs.measure(when="training")
def watched(context):
    """Ends the process in the midst of training, as a library of a user may."""
    calls.append(context.step)
    if len(calls) == 3:
        DURING
    return {"watched": context.ensemble.transformer.parameters.flat.square().mean(1)}


@hs.measure(when="end")
def size(context):
    """Mean square of all weights."""
    AFTER
    return {"size": context.ensemble.transformer.parameters.flat.square().mean(1)}


study = hs.Study(
    name="ends", task=Copy(), model=hs.Model(width=8), seeds=2, held_out=23, measures=[watched, size],
    training=hs.Training(steps=11, batch_size=13, evaluate_every=3, checkpoint_every=3),
)
'''


@pytest.fixture
def trained(here, tmp_path):
    """Trains the study with other code in its measures, each unit by a worker; how the command ended."""

    def run(during="pass", after="pass"):
        file = tmp_path / "ends.py"
        file.write_text(STUDY.replace("DURING", during).replace("AFTER", after), encoding="utf-8")
        return here("run", file, "--device", "cpu", "--threads", 1, "--out", tmp_path / "runs")

    return run


def of(tmp_path):
    (path,) = (tmp_path / "runs" / "ends").iterdir()
    return RunFolder(path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ({"during": "sys.exit(0)"}, ["ends.py:study", "SystemExit: 0", "(line 27)"]),
        ({"during": "os._exit(0)"}, ["unit ", "ended with status 0 after step 1", "call of exit"]),
        ({"after": "os._exit(0)"}, ["unit ", "ended with status 0 while analysing", "call of exit"]),
    ],
)
def test_a_study_that_ends_its_worker_ends_the_run(trained, tmp_path, code, words):
    ended = trained(**code)
    assert (ended.status, ended.stdout) == (2, "")
    assert all(word in ended.complaint for word in words), ended.complaint
    run = of(tmp_path)
    assert not run.is_done and not any(unit.is_done for unit in run.units)
    assert not (run.path / "claims.json").exists()
    assert any(unit.checkpoints() for unit in run.units)


@pytest.mark.extras
@pytest.mark.parametrize("printed", ["print('.', end='')", "os.write(1, b'.')", "os.system('printf .')"])
def test_what_a_study_prints_does_not_hide_its_error(trained, printed):
    ended = trained(after=f"{printed}; raise ValueError('too cold')")
    assert (ended.status, ended.stdout) == (2, "")
    assert "measure size: expected numbers, found ValueError: too cold" in ended.complaint


def test_a_log_in_json_does_not_pass_for_messages(trained, tmp_path):
    lines = [
        '{"kind": "progress", "epoch": 3}',
        '{"kind": "error", "message": "none"}',
        '{"kind": "finished"}',
    ]
    ended = trained(after="; ".join(f"print({line!r})" for line in lines))
    assert ended.status == 0, ended.stderr
    assert "epoch" not in ended.stdout and of(tmp_path).is_done


def test_a_file_that_ends_the_process_when_it_is_loaded(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "STUDY", f"import sys\nsys.exit(0)\n{STUDY}")
    ended = trained()
    assert (ended.status, ended.stdout) == (2, "")
    assert "ends.py: expected a file that can be loaded, found SystemExit: 0" in ended.complaint
    assert not (tmp_path / "runs").exists()


def test_a_run_with_an_unfinished_unit_is_not_judged(copy, processes_module):
    run = RunFolder(copy)
    (run.units[0].path / "DONE").unlink()
    before = processes_module.record(copy)
    study = find_study("permutation")
    with pytest.raises(
        UserError, match=f"expected every unit to be done.*found {run.units[0].hash} unfinished"
    ):
        finish(run, study, study.recorded(run))
    assert processes_module.record(copy) == before
