"""A small model of ours learns to retrieve, is written as a folder, and `hopscope heads` finds the heads it needs."""

import json

import pytest
import torch

from hopscope.claims.intervals import wilson
from hopscope.cli.main import main
from hopscope.language.gpt2_folder import write_folder
from hopscope.models.config import TransformerConfig
from hopscope.models.member import MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import ENGINES
from hopscope.training.optimizer import Optimizer

CHAINS, STEPS = 3, 800
HELD_OUT = 18
"""Questions of one mapping: 3! orders of the lines, 3 names to ask for."""
COUNT = 54
"""Half of all 3! · 3! · 3 questions find the heads, the other half is answered without them."""


def trained(task):
    """A member with three layers of four heads that has seen five of the six mappings of names to values."""
    config = TransformerConfig(
        layers=3, heads=4, width=32, mlp_ratio=0.0, norm="pre", positions="learned", length=task.positions,
        input_kind="tokens", input_size=task.input_size, output_size=task.output_size, readout=task.readout,
        init="mimetic",
    )  # fmt: skip
    seeds = torch.tensor([0])
    model = Transformer.initial(config, seeds)
    training = TrainingConfig(
        steps=STEPS, batch_size=64, optimizer="adamw", learning_rate=4e-3, warmup_steps=100, weight_decay=0.01,
        clip_norm=1.0,
    )  # fmt: skip
    optimizer = Optimizer(model.parameters, training)
    gradient = ENGINES["stacked"].gradient(model, task, training, seeds, optimizer.gradient)
    for step in range(STEPS):
        optimizer.step(step, gradient(step)["loss"])
    return MemberTransformer.from_weights(config, {name: w[0] for name, w in model.weights.items()})


def held_out_answers(task, module):
    """How many questions with the mapping that was never seen the model answers, among all its tokens."""
    asked = task.evaluation(256, 1)
    different = torch.unique(torch.cat((asked.inputs[0], asked.targets[0]), -1), dim=0)
    assert len(different) == HELD_OUT
    with torch.no_grad():
        inputs, targets = different.split((asked.inputs.shape[-1], asked.targets.shape[-1]), -1)
        found, answers = task.answered(
            module(inputs)[:, list(task.readout)][None], asked_again(inputs, targets)
        )
    return int((found.argmax(-1) == answers).sum())


def asked_again(inputs, targets):
    """A batch of one member, where only answers are asked (no answer is token 0)."""
    return Batch(inputs[None], targets[None], weights=(targets[None] > 0).float())


@pytest.mark.soak
def test_the_heads_of_a_model_that_we_trained(planted, tmp_path, capsys, record_property):
    task = EquationsTask(EquationsConfig(chains=CHAINS, depths=(1,), mixture="uniform"))
    module = trained(task)
    write_folder(module, task.vocabulary, tmp_path / "model", {"test": "heads"})
    right = held_out_answers(task, module)
    asked = ["--formulation", "equations", "--depth", "1", "--chains", str(CHAINS), "--count", str(COUNT)]
    assert main(["heads", "--model", str(tmp_path / "model"), *asked, "--top", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["ablation"]
    record_property("held_out", (right, HELD_OUT, wilson(right, HELD_OUT)))
    record_property("ablation", row)
    assert right >= 0.9 * HELD_OUT
    assert row["questions"] == COUNT
    assert row["accuracy"] >= 0.9
    assert row["cost"]["top"] >= 30
    assert row["cost"]["random"] <= 10
