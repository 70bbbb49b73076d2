"""Small language models of ours in folders: one whose answers are known because it was built, and questions for it."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from hopscope.language.gpt2_folder import write_folder
from hopscope.language.inspect import evaluate
from hopscope.language.questions.sets import question_set
from hopscope.models.config import TransformerConfig
from hopscope.models.member import MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask

LOW = -60.0


def shape_of(task: EquationsTask, **changes) -> TransformerConfig:
    shape = {
        "layers": 2, "heads": 3, "width": 33, "mlp_ratio": 0.0, "positions": "learned", "length": task.positions,
        "input_size": task.input_size, "output_size": task.output_size, "readout": task.readout, "init": "encoder",
        **changes,
    }  # fmt: skip
    return TransformerConfig(**shape)


def random_member(task: EquationsTask, **changes) -> MemberTransformer:
    """A model that was never trained, with noise on every weight."""
    model = Transformer.initial(shape_of(task, **changes), torch.tensor([5]))
    noise = torch.randn(model.parameters.flat.shape, generator=torch.Generator().manual_seed(7))
    model.parameters.flat += 0.1 * noise
    return model.member(0)


def build(folder: Path, answers: Mapping[str, float], chains: int = 3) -> Path:
    """Write a model that says each word with its probability, whatever it has read.

    Asked for one token, its answers have this distribution; more of them go on until the end token is drawn.
    """
    task = EquationsTask(EquationsConfig(chains=chains, depths=(1, 2)))
    module = random_member(task, layers=1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.readout.weight[:] = torch.eye(*module.readout.weight.shape)
        module.final_norm.bias[: task.output_size] = LOW
        for word, probability in answers.items():
            module.final_norm.bias[task.vocabulary.index(word)] = math.log(probability)
    write_folder(module, task.vocabulary, folder, {"built": "by hand"})
    return folder


def ask(models, formulations, *, log_dir, **fields):
    """Evaluate one set of questions for each formulation."""
    own = {"attempts", "identical", "timeout", "temperature", "max_tokens", "max_connections", "base_url"}
    asked = {name: value for name, value in fields.items() if name not in own}
    sets = [question_set(formulations=(each,), **asked) for each in formulations]
    return evaluate(models, sets, log_dir=log_dir, **{name: fields[name] for name in own & set(fields)})
