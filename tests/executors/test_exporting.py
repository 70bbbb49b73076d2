"""A member as a folder: the same logits and attention on every path, and a card that says what the run says."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import hopscope as hs
from hopscope.claims.numbers import format_number
from hopscope.cli.main import main
from hopscope.errors import UserError
from hopscope.language.gpt2_folder import ORIGIN, read_folder
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash, find_run, save_checkpoint
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob

pytestmark = pytest.mark.long

STUDY = '''
"""Repeat the first token."""
import math

import hopscope as hs


class Echo(hs.Task):
    """Repeat the <first> token | of three.

    A second paragraph.
    """

    length: int = 3
    values: int = 5

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=self.values, positions=self.length,
                        readout=(self.length - 1,), output_size=self.values)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1], relations={"first": draws.constant(0, (self.length,))},
                        roles={"kind": draws.constant(0, (self.length,))})

    def floors(self):
        return {"guess": math.log(self.values), "accuracy": {"guess": 1 / self.values}}


study = hs.Study(
    name="echo",
    question="Does it repeat?",
    task=Echo(),
    model=hs.Model(layers=2, heads=2, width=12),
    training=hs.Training(steps=300, batch_size=37, checkpoint_every=150, evaluate_every=100),
    vary={"training.learning_rate": [1e-2, 1e-9, 1e30], "model.norm": ["pre", "post"]},
    seeds=1,
    held_out=61,
    claims=[hs.Claim(id="E", statement="It repeats.", source="here", protocol="accuracy",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.5, unit="fraction"))],
    presets={"smoke": {"training.steps": 3}},
)
'''
LEARNED, LEARNED_POST, NOTHING, NOTHING_POST, DIVERGED, DIVERGED_POST = range(6)


@pytest.fixture(scope="module")
def run(tmp_path_factory, training_here) -> hs.Run:
    """Six members, trained once: two that learn, two that learn nothing, two that diverge."""
    place = tmp_path_factory.mktemp("exported")
    (place / "echo_study.py").write_text(STUDY, encoding="utf-8")
    with training_here():
        return hs.run(f"{place / 'echo_study.py'}:study", out=place / "runs", threads=1)


def card(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def said(text: str, heading: str) -> str:
    return re.search(rf"^## {heading}\n\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1].strip()


def tokens(run) -> torch.Tensor:
    return run.member(0).batch(17).inputs


@pytest.mark.parametrize("member", range(6))
@torch.no_grad()
def test_logits_and_attention_are_those_of_the_member(run, tmp_path, member):
    run.export(member, tmp_path / "m")
    found, own = hs.load(tmp_path / "m"), run.member(member)
    if member < DIVERGED:
        assert (tmp_path / "m" / ORIGIN).is_file() == (member in (LEARNED, NOTHING))
    given, exactly = tokens(run), {"rtol": 0.0, "atol": 0.0, "equal_nan": True}
    assert not found.training
    torch.testing.assert_close(found(given), own(given), **exactly)
    for name, tensor in own.cache(given).items():
        torch.testing.assert_close(found.cache(given)[name], tensor, **exactly)
    torch.testing.assert_close(hs.load_module(tmp_path / "m")(given), own(given), **exactly)


@pytest.mark.extras
def test_transformers_has_the_same_logits_and_attention_and_the_hub_reads_the_card(run, tmp_path):
    if find_spec("transformers") is None:
        missing = "transformers is not installed: `pip install -e .[hf]`"
        if os.environ.get("HOPSCOPE_REQUIRE_LLM") == "1":
            pytest.fail(f"{missing}, and HOPSCOPE_REQUIRE_LLM=1 asks for it")
        pytest.skip(missing)
    folders = {member: tmp_path / str(member) for member in (LEARNED, NOTHING)}
    given = tokens(run)
    for member, folder in folders.items():
        run.export(member, folder)
        np.savez(folder / "in.npz", tokens=given.numpy())
    worker = Path(__file__).with_name("exported_worker.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(worker), *map(str, folders.values())],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    for member, folder in folders.items():
        own, found = run.member(member), np.load(folder / "out.npz")
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found["logits"]), own(given), rtol=0, atol=1e-4)
        for layer, pattern in enumerate(own.cache(given).patterns):
            torch.testing.assert_close(
                torch.from_numpy(found[f"pattern_{layer}"]), pattern, rtol=0, atol=1e-5
            )
        told = json.loads((folder / "card.json").read_text())
        assert told["library"] == "transformers" and {"hopscope", "gpt2", "echo"} <= set(told["tags"])
        values = {name: value for name, _, value in told["results"]}
        assert values["loss"] == run.evidence.last("loss")[member]
        assert values["accuracy"] == run.evidence.last("accuracy")[member]


def test_the_card_says_what_the_run_says(run, tmp_path):
    run.export(LEARNED, tmp_path / "m")
    text = card(tmp_path / "m")
    assert (
        text.startswith("---\nlibrary_name: transformers\n") and "# echo, member 0 (seed 0), step 300" in text
    )
    loss, accuracy = run.evidence.last("loss")[LEARNED], run.evidence.last("accuracy")[LEARNED]
    assert loss < 0.25 * np.log(5)
    learned = said(text, "What it learned")
    assert learned.startswith("It counts as learned: its held-out loss of ")
    assert (
        "the lowest floor, `guess` (1.609)" in learned
        and f"| {format_number(accuracy, 'fraction')} (step 300)" in learned
    )
    assert "guess: 20" in learned
    assert "`Echo`: Repeat the &lt;first> token \\| of three." in said(text, "Task")
    assert "second paragraph" not in text
    assert "| E | It repeats. | " + run.claims["E"].verdict.value in said(text, "Claims of the run")
    assert "all 6 models" in said(text, "Claims of the run")
    assert run.hash in text and hs.__version__ in text
    assert str(run.path.parents[2]) not in text  # nothing of this machine
    assert json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])["model"]["norm"] == "pre"


@pytest.mark.parametrize("member", [NOTHING, NOTHING_POST])
def test_a_member_that_learned_nothing_is_said_to_have_learned_nothing(run, tmp_path, member):
    run.export(member, tmp_path / "m")
    learned = said(card(tmp_path / "m"), "What it learned")
    assert learned.startswith("It has learned nothing: its held-out loss of ")
    assert "counts as learned" not in learned
    share = run.evidence.last("loss")[member] / np.log(5)
    assert f"is {share:.0%} of the lowest floor, `guess`" in learned


@pytest.mark.parametrize("member", [DIVERGED, DIVERGED_POST])
def test_a_member_that_diverged_is_said_to_have_diverged(run, tmp_path, member):
    run.export(member, tmp_path / "m")
    learned = said(card(tmp_path / "m"), "What it learned")
    assert learned.startswith("Its training diverged by step ") and "counts as learned" not in learned


def test_another_layout_says_why_and_how_it_is_opened(run, tmp_path):
    run.export(LEARNED_POST, tmp_path / "m")
    text = card(tmp_path / "m")
    assert text.startswith("---\nlibrary_name: hopscope\n") and "transformers import" not in text
    opening = said(text, "How to open it")
    assert "causal pre-norm model" in opening and 'hopscope.load("FOLDER")' in opening
    code = re.search(r"```python\n(.*?)```", opening, re.DOTALL)[1].replace("FOLDER", str(tmp_path / "m"))
    place = {}
    exec(code, place)
    assert place["pattern"].shape == (1, 2, 3, 3) and place["predictions"].shape == (1, 3, 5)


def test_an_earlier_step_has_the_values_of_that_step(run, tmp_path):
    run.export(LEARNED, tmp_path / "m", step=0)
    learned = said(card(tmp_path / "m"), "What it learned")
    assert learned.startswith("These are its weights before any training") and "(step 300)" not in learned
    run.export(LEARNED, tmp_path / "m", step=150)
    learned = said(card(tmp_path / "m"), "What it learned")
    assert "(step 300)" not in learned and "(step 150)" in learned


def test_a_circuit_that_was_read_is_in_the_card(run, tmp_path):
    run.export(LEARNED, tmp_path / "m")
    assert said(card(tmp_path / "m"), "Circuit").startswith("No circuit of it is on record")
    circuit = run.circuit(LEARNED)
    run.export(LEARNED, tmp_path / "m")
    told = said(card(tmp_path / "m"), "Circuit")
    assert f"**{circuit.verdict}**" in told
    assert told.count("\n- Head ") == len(circuit.circuit.paths)
    run.export(LEARNED, tmp_path / "m", step=150)
    assert said(card(tmp_path / "m"), "Circuit").startswith("No circuit of it is on record")


@pytest.mark.usefixtures("units_here")
def test_the_command_of_the_card_makes_the_run_again(run, tmp_path, capsys, monkeypatch):
    assert main(["export", str(run.path), "--member", "0", "--to", str(tmp_path / "m")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'm'}\n"
    again = said(card(tmp_path / "m"), "How to make it again")
    assert "hopscope run echo_study.py\nhopscope export RUN --member 0 --step 300 --to FOLDER" in again
    file = run.path.parents[2] / "echo_study.py"
    small = hs.run(
        f"{file}:study", preset="smoke", out=tmp_path / "runs", threads=1,
        fields={"training.learning_rate": 0.5, "model.norm": "pre", "model.width": 14, "training.betas": (0.8, 0.9)},
    )  # fmt: skip
    assert main(["export", str(small.path), "--member", "0", "--to", str(tmp_path / "s")]) == 0
    again = said(card(tmp_path / "s"), "How to make it again")
    (line,) = [each for each in again.splitlines() if each.startswith("hopscope run ")]
    assert "--preset smoke" in line and "--model.width 14" in line and "--training.betas 0.8 0.9" in line
    monkeypatch.chdir(file.parent)
    assert main([*line.split()[1:], "--out", str(tmp_path / "runs")]) == 0
    assert find_run(tmp_path / "runs").hash == small.hash  # found, not another one
    small.export(0, tmp_path / "s")
    again = said(card(tmp_path / "s"), "How to make it again")
    call = re.search(r"```python\n(.*?)```", again, re.DOTALL)[1]
    assert "hs.run('echo_study.py', preset='smoke', fields={" in call
    place = {}
    exec(call.replace("fields=", f"out={str(tmp_path / 'runs')!r}, fields="), place)
    assert place["run"].hash == small.hash


def test_without_the_studys_file_the_card_says_less_and_nothing_wrong(run, tmp_path):
    file = run.path.parents[2] / "echo_study.py"
    content = file.read_text()
    file.unlink()
    try:
        hs.open_run(run.path).export(LEARNED, tmp_path / "m")
    finally:
        file.write_text(content)
    text = card(tmp_path / "m")
    assert "could not be asked for its floors, so this card cannot say whether it learned" in text
    assert "No command is known" in said(text, "How to make it again") and "`Echo`." in said(text, "Task")


def test_an_export_of_another_layout_is_replaced_whole(run, tmp_path):
    run.export(LEARNED, tmp_path)
    assert {"hopscope.json", "README.md"} <= {path.name for path in tmp_path.iterdir()}
    run.export(LEARNED, tmp_path, layout="hopscope")
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    assert "It is not in a layout" not in card(tmp_path)
    run.export(LEARNED, tmp_path)
    (tmp_path / "thesis.txt").write_text("chapter 1")
    run.export(LEARNED, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "chapter 1"
    with pytest.raises(UserError, match=r"which has another layout, found thesis\.txt too"):
        run.export(LEARNED, tmp_path, layout="hopscope")
    assert {"hopscope.json", "README.md", "thesis.txt"} <= {path.name for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="expected an empty folder or an earlier export"):
        run.export(LEARNED, tmp_path / "..")


def test_weights_that_were_changed_elsewhere_are_the_ones_that_are_meant(run, tmp_path):
    run.export(LEARNED, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["transformer.ln_f.bias"] += 0.5
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        assert (hs.load(tmp_path)(tokens(run)) - run.member(LEARNED)(tokens(run))).abs().max() > 0.01


def test_a_model_of_text_has_its_words_and_an_unjudged_run_no_verdict(tmp_path):
    """A run of the study tiny-lm, as it is before anything is measured."""
    config = EquationsConfig(chains=3, depths=(1, 2))
    task = EquationsTask(config)
    job = TrainJob(
        label="small", task=config, training=TrainingConfig(steps=11),
        model=TransformerConfig(layers=2, heads=3, width=33, length=task.positions, input_size=task.input_size,
                                output_size=task.output_size, readout=task.readout),
        members=(MemberPlan(member=0, seed=5),),
    )  # fmt: skip
    plan = job.model_dump(mode="json")
    members = [{"member": 0, "unit": content_hash(plan), "index": 0, "seed": 5, "overrides": {}}]
    folder = RunFolder.create(tmp_path / "runs", "tiny-lm", {}, members, None)
    unit = folder.units[0].create({"label": job.label, "plan": plan})
    weights = Transformer.initial(job.model, torch.tensor([5])).parameters.views()
    arrays = {f"weights/{name}": weight.detach().numpy() for name, weight in weights.items()}
    save_checkpoint(unit.checkpoint_path(11), arrays, {"step": 11, "frozen_at": [-1]})
    hs.open_run(folder.path).export(0, tmp_path / "m")
    assert {"tokenizer.json", "tokenizer_config.json"} <= {path.name for path in (tmp_path / "m").iterdir()}
    assert read_folder(tmp_path / "m")[1] == task.vocabulary
    text = card(tmp_path / "m")
    assert "pipeline_tag: text-generation" in text and "AutoTokenizer" in text and "model-index" not in text
    assert said(text, "What it learned").startswith("No held-out loss is on record")
    assert said(text, "Claims of the run") == "The run is not judged yet."
    inputs = task.sample(torch.tensor([1]), "train", 0, 7).inputs[0]
    with torch.no_grad():
        assert torch.equal(hs.load(tmp_path / "m")(inputs), hs.load_member(folder, 0)(inputs))


def test_a_layout_that_does_not_fit_is_refused(run, tmp_path):
    with pytest.raises(
        UserError, match=r"layout: expected a causal pre-norm model .* export it with the layout hopscope"
    ):
        run.export(LEARNED_POST, tmp_path / "m", layout="gpt2")
    with pytest.raises(UserError, match="layout: expected one of auto, gpt2, hopscope, found 'onnx'"):
        run.export(LEARNED, tmp_path / "m", layout="onnx")
    assert not (tmp_path / "m").exists()
