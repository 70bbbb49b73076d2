"""Compiled steps beside plain ones, in a process of its own: what torch traces must not be wrapped by shape checks.

`python torch_compile_checks.py BACKEND` prints one JSON object of what `test_torch_compile` asserts.  The backend
`aot_eager` does everything but to write and compile kernels; `cuda` compares a GPU's steps with a CPU's.
"""

import json
import sys

import torch

from hopscope.errors import UserError
from hopscope.executors.timing import Steps
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.studies import find_study
from hopscope.studies.circuits.config import PRESETS
from hopscope.tasks.config import PermutationConfig, RetrievalConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import ENGINES, Engine, torch_compile
from hopscope.training.optimizer import Optimizer
from hopscope.training.steps import TrainingSteps

SEEDS = torch.tensor([5, 7, 11])


def retrieval(layers, **training):
    task = RetrievalTask(RetrievalConfig(chains=3, steps=1, symbol_dim=4))
    shape = {"layers": layers, "heads": 2, "width": 10, "mlp_ratio": 1.7, "positions": "carried"}
    return task, shape | {"input_kind": "vectors", "position_size": 4}, training


def permutation(**training):
    task = PermutationTask(PermutationConfig(values=3, repeat_ratio=0.5))
    return task, {"heads": 2, "width": 10, "norm": "post", "init": "encoder"}, training


class Trained:
    """Members of a task, fresh."""

    def __init__(self, task, shape, training):
        sizes = {"length": task.positions, "input_size": task.input_size, "output_size": task.output_size}
        self.task = task
        self.config = TransformerConfig.model_validate({**shape, **sizes, "readout": task.readout})
        self.training = TrainingConfig.model_validate({"steps": 19, "batch_size": 13, **training})
        self.model = Transformer.initial(self.config, SEEDS)
        self.optimizer = Optimizer(self.model.parameters, self.training)

    def gradient(self, backend):
        """The gradient by torch.compile with this backend, or the plain one."""
        buffer = self.optimizer.gradient
        if backend is None:
            return ENGINES["general"].gradient(self.model, self.task, self.training, SEEDS, buffer)
        model = self.model.at(self.training.precision)
        return torch_compile.gradient(model, self.task, self.training, SEEDS, buffer, backend)

    def state(self):
        optimizer = self.optimizer
        return [self.model.parameters.flat, optimizer.first_moment, optimizer.second_moment]


def apart(found, expected):
    """Largest difference, in units of the largest number."""
    return float((found - expected).abs().max() / expected.abs().max())


def gradients(backend):
    """How far losses and gradients are apart at several steps, and whether the losses are called alike."""
    ours, plain = (Trained(*retrieval(3)) for _ in range(2))
    compiled, general = ours.gradient(backend), plain.gradient(None)
    found = {"losses": 0.0, "gradient": 0.0, "alike": True}
    for step in (0, 1, 17):
        losses, expected = compiled(step), general(step)
        found["alike"] &= list(losses) == list(expected) and not any(x.requires_grad for x in losses.values())
        for name in expected:
            found["losses"] = max(found["losses"], apart(losses[name], expected[name]))
        found["gradient"] = max(found["gradient"], apart(ours.optimizer.gradient, plain.optimizer.gradient))
    return found, ours, compiled


def losses_are_kept(compiled):
    """Whether the losses of one step are still there after the next."""
    first = compiled(3)["loss"]
    kept = first.clone()
    compiled(4)
    return torch.equal(first, kept)


def updates(backend):
    """How far weights are apart after steps by both optimisers, of which one freezes a member at step 3."""
    settings = {"optimizer": "adamw", "weight_decay": 0.1, "warmup_steps": 3, "clip_norm": 0.3}
    ours, plain = (Trained(*permutation(**settings)) for _ in range(2))
    update = torch_compile.update(ours.optimizer, backend)
    for step in range(6):
        before = ours.model.parameters.flat.clone()
        generator = torch.Generator().manual_seed(step)
        gradient = torch.randn(plain.optimizer.gradient.shape, generator=generator)
        losses = torch.full((3,), torch.nan if step == 3 else 1.0).where(SEEDS == 7, 1.0)
        for each in (ours, plain):
            each.optimizer.gradient.copy_(gradient)
        update(step, losses)
        plain.optimizer.step(step, losses)
    pairs = zip(ours.state(), plain.state(), strict=True)
    return {
        "apart": max(apart(found, expected) for found, expected in pairs),
        "alive": ours.optimizer.alive.tolist(),
        "moved": (ours.model.parameters.flat != before).any(1).tolist(),
    }


def resumed(trained, compiled):
    """Whether steps 3 to 5 end in the same bits when they are taken again from the state before them."""
    ends = []
    for step in range(6):
        if step == 3:
            before = [tensor.clone() for tensor in trained.state()]
        trained.optimizer.step(step, compiled(step)["loss"])
    ends.append([tensor.clone() for tensor in trained.state()])
    with torch.no_grad():
        for tensor, old in zip(trained.state(), before, strict=True):
            tensor.copy_(old)
    for step in range(3, 6):
        trained.optimizer.step(step, compiled(step)["loss"])
    return all(torch.equal(*pair) for pair in zip(trained.state(), ends[0], strict=True))


def broken(trained, compiled):
    """A member's weights overflow: it is frozen, the others' losses are what they were."""
    before = compiled(7)["loss"]
    trained.model.weights["readout.bias"].detach()[1] = torch.inf
    losses = compiled(7)["loss"]
    trained.optimizer.step(7, losses)
    return {
        "others": torch.equal(losses[[0, 2]], before[[0, 2]]),
        "alive": trained.optimizer.alive.tolist(),
        "finite": bool(trained.model.parameters.flat[[0, 2]].isfinite().all()),
    }


def in_parts(backend):
    """How far a rounded step of members one by one is from a plain one of all; how many were computed at a time."""
    ours, plain = (Trained(*permutation(precision="bfloat16")) for _ in range(2))

    class OneByOne(Engine):
        """With the plain optimiser: what is compiled here is the gradient."""

        def gradient(self, model, task, training, seeds, buffer):
            rounded = model.at(training.precision)
            compiled = torch_compile.gradient(rounded, task, training, seeds, buffer, backend)

            def gradient(step):
                if model.members > 1:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                return compiled(step)

            return gradient

    steps = TrainingSteps(
        OneByOne(**vars(ENGINES["general"])), ours.model, ours.task, ours.training, SEEDS, ours.optimizer
    )
    general, found = plain.gradient(None), {"losses": 0.0, "gradient": 0.0}
    for step in (0, 1):
        losses, expected = steps.take(step)["loss"], general(step)["loss"]
        plain.optimizer.step(step, expected)
        found["losses"] = max(found["losses"], apart(losses, expected))
        found["gradient"] = max(found["gradient"], apart(ours.optimizer.gradient, plain.optimizer.gradient))
    return found | {"at_a_time": steps.fitting.at_a_time}


def refused():
    """What a user reads when the backend fails."""

    def failing(graph, examples):
        raise OSError("no space left on device\nand more")

    try:
        Trained(*permutation()).gradient(failing)(0)
    except UserError as error:
        return str(error)
    return "nothing"


def programs(layers):
    """How many programs a gradient of so many layers is made of."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    Trained(*retrieval(layers)).gradient(counter)(0)
    return counter.frame_count


def on_a_gpu():
    """How far the losses of a GPU's first steps are from those of a CPU, and its first weights."""
    job = find_study("circuits").jobs(PRESETS["smoke"])[0]
    task = {device: find_study("circuits").task(job, device) for device in ("cuda", "cpu")}
    ours, plain = Steps(job, task["cuda"], "compiled", "cuda"), Steps(job, task["cpu"], "general")
    initial = apart(ours.model.parameters.flat.cpu(), plain.model.parameters.flat)
    return {"losses": max(apart(ours.take().cpu(), plain.take()) for _ in range(6)), "initial": initial}


def main(backend):
    torch.set_num_threads(1)
    if backend == "cuda":
        print(json.dumps(on_a_gpu()))
        return
    retrieved, trained, compiled = gradients(backend)
    found = {
        "retrieval": retrieved,
        "kept": losses_are_kept(compiled),
        "resumed": resumed(trained, compiled),
        "broken": broken(trained, compiled),
        "updates": updates(backend),
        "in_parts": in_parts(backend),
        "refused": refused(),
        "programs": programs(5),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
