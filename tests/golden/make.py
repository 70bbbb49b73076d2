"""Numbers that must never change unnoticed: samples, starts, plants, optimiser, first losses, plans of presets.

`python tests/golden/make.py` writes `values.json`.  Write it anew only with a change that is meant to move numbers, and
raise `hopscope.study.jobs.NUMBERS` in the same change: runs of before must not be continued by code that computes
otherwise.

Tensors are kept as a hash of their bytes, and as sums for processors that round otherwise than the one of `machine`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.circuits.plants import chain_plants, witness
from hopscope.language import Equations
from hopscope.models.config import Model, TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.study.load import BUILT_IN, load
from hopscope.study.study import Study
from hopscope.tasks import Draws, Permutation, Retrieval, Task, draw, held_out
from hopscope.training import engines
from hopscope.training.config import COMPLETION_NAMES, Training, completed
from hopscope.training.optimiser import Optimiser

KEPT = Path(__file__).with_name("values.json")
SEEDS = (1, 2, 5)
STEPS = 50
LOOKED_AT = (0, 1, 7, 23, 49)

_SHARES = {"shares": (0.2, 0.3, 0.5)}
_PATH = [{"name": "a"}, {"name": "b", "parents": ["a"]}, {"name": "c", "parents": ["b"]}]
_ROOTS = [{"name": "p"}, {"name": "q"}, {"name": "r", "parents": ["p", "q"]}, {"name": "s", "parents": ["r"]}]
TASKS: tuple[tuple[type[Task], dict[str, Any], int | None], ...] = (
    (Retrieval, {}, None), (Retrieval, {"position": "pair"}, 17), (Retrieval, {"steps": 4, "order": "random"}, None),
    (Retrieval, {"targets": "last", "schedule": ((3, "ic"),)}, None), (Retrieval, _SHARES, 3),
    (Retrieval, {**_SHARES, "emphasis": "one"}, None), (Retrieval, {**_SHARES, "emphasis": "subsets"}, None),
    (Retrieval, {"targets": (1, 3), "split_seed": 7}, None), (Retrieval, {"order": "shallowest-first"}, None),
    (Retrieval, {"frequencies": "geometric", "symbol_dim": 6, "chains": 9, "order": (2, 1, 3)}, None),
    (Retrieval, {"nodes": _PATH}, None), (Retrieval, {"nodes": _ROOTS, "chains": 3, "order": "random"}, 5),
    (Permutation, {"values": 3}, None), (Permutation, {"values": 12}, None), (Permutation, {"repeat_ratio": 0.3}, 7),
    (Permutation, {"values": 3, "held_out_share": 0.5}, None), (Permutation, {"values": 9, "repeat_ratio": 1.0}, None),
    (Permutation, {"values": 8, "repeat_ratio": 0.7, "repeat_slots": (4, 8), "repeat_sources": (2,)}, None),
    (Equations, {}, None), (Equations, {"chains": 3, "depths": (2,), "split_seed": 5}, None),
    (Equations, {"depths": (1, 3), "mixture": "zipf", "repeated": False, "asked": "last", "lines": "paper"}, None),
)  # fmt: skip
"""A task's class, its fields, and of how many examples its training samples are taken."""

INITS = ("gpt2", "linear", "encoder", "mimetic", 0.61)
TRAININGS = (
    ("permutation", "smoke", "shallow"), ("permutation", "smoke", "autograd"), ("depth", "smoke", "deep"),
    ("depth", "smoke", "autograd"), ("circuits", "smoke", "deep"), ("first-steps", "smoke", "deep"),
    ("recipes", "workstation", "low-rank"), ("tiny-lm", "smoke", "autograd"),
)  # fmt: skip
"""A study, its preset, and the engine that its first configuration is trained by."""


def machine() -> list[str]:
    """What decides the last bits of float numbers: the version of torch, and the processor's maker and vectors."""
    info = Path("/proc/cpuinfo")
    maker = re.search(r"vendor_id\s*:\s*(\S+)", info.read_text()) if info.exists() else None
    return [torch.__version__, maker[1] if maker else "", torch.backends.cpu.get_cpu_capability()]


def told(tensors: Iterable[Tensor]) -> list[Any]:
    """A hash of all bytes, and two sums of all numbers, of which one depends on their order."""
    digest, plain, turned = sha256(), 0.0, 0.0
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
        flat = tensor.detach().double().flatten().nan_to_num()
        plain += float(flat.sum())
        turned += float(flat @ torch.cos(torch.arange(len(flat), dtype=torch.float64)))
    return [digest.hexdigest()[:16], float(f"{plain:.12g}"), float(f"{turned:.12g}")]


def _batches(task: Task, examples: int | None) -> Iterator[Tensor]:
    seeds = torch.tensor(SEEDS)
    # Circuits of equations are looked for on questions of their own.
    uses = ("train", "probe", *(() if isinstance(task, Equations) else ("circuit",)))
    drawn = [
        draw(task, seeds, use, step, 7, start=start, examples=examples)
        for use in uses
        for step, start in ((range(2, 5), 0), (7, 2))
    ]
    for batch in (*drawn, held_out(task, 11)):
        yield from (batch.inputs, batch.targets, *([] if batch.weights is None else [batch.weights]))
        for named in (batch.roles, batch.relations, batch.groups):
            yield from (named[name] for name in sorted(named))


def samples() -> dict[str, Any]:
    """Inputs, targets, weights, roles, relations and groups at several addresses, and held-out sets."""
    return {
        f"{kind.__name__} {json.dumps(fields)}{f' of {examples}' if examples else ''}": told(
            _batches(kind(**fields), examples)
        )
        for kind, fields, examples in TASKS
    }


def presets() -> Iterator[tuple[str, Study]]:
    """Every preset of every built-in study that trains anything."""
    for name in BUILT_IN:
        study = load(name).study
        for preset in study.presets if study.task is not None else ():
            yield f"{name} {preset}", study.chosen(preset)


def plans() -> dict[str, Any]:
    """What every preset trains: a hash, how many members, and samples of its tasks."""
    found = {}
    for name, study in presets():
        members, tasks = list[Any](), dict[str, Task]()
        for cell in study.grid():
            here = study.of(cell)
            parts = [getattr(here, part).model_dump(mode="json") for part in ("task", "model", "training")]
            members += [[cell.label, seed, *parts, here.held_out] for seed in study.seeds_of(cell)]
            tasks.setdefault(json.dumps(parts[0], sort_keys=True), here.task)
        digest = sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:16]
        # Not by `draw`, which checks each task first: half a minute for all of them.
        drawn = (each.sample(Draws(torch.tensor([3]), "train", 5, 2)) for each in tasks.values())
        found[name] = [
            digest,
            len(members),
            told(each for batch in drawn for each in (batch.inputs, batch.targets)),
        ]
    return found


def starts() -> dict[str, Any]:
    """Weights before the first step, of every start and kind of input."""
    vectors = {"input_kind": "vectors", "positions": "carried", "position_size": 4, "readout": (3, 7)}
    shapes: tuple[Mapping[str, Any], ...] = (vectors, {}, {"norm": "post", "positions": "pair"})
    size = {
        "layers": 3,
        "heads": 2,
        "width": 10,
        "head_dim": 7,
        "length": 8,
        "input_size": 12,
        "output_size": 5,
    }
    configs = {
        f"{init} {json.dumps(shape)}": TransformerConfig(**size, init=init, **shape)
        for init in INITS
        for shape in shapes
    }
    seeds = torch.tensor([0, 1, 5])
    return {name: told(Transformer.initial(each, seeds).weights().values()) for name, each in configs.items()}


def plants() -> dict[str, Any]:
    """Weights and circuits of models that were built by hand."""
    found = {
        f"witness of {steps}, {'causal' if causal else 'no mask'}": told(
            witness(Retrieval(steps=steps, position="pair"), causal=causal).weights().values()
        )
        for steps in range(1, 9)
        for causal in (True, False)
    }
    for plant in (*chain_plants(), *permutation_plants(4)):
        # Their weights are tested by what they do: some are solutions of least squares, and rounded.
        circuits = sha256(json.dumps([sorted(map(list, each), key=str) for each in plant.circuits]).encode())
        found[plant.name] = [circuits.hexdigest()[:16], len(plant.decoys)]
    return found


def optimiser() -> dict[str, Any]:
    """Weights after some steps on made-up gradients."""
    found = {}
    for fields in ({}, {"optimizer": "adam", "clip_norm": None}, {"decay": "all", "schedule": "constant"}):
        training = Training(**{"steps": 23, "learning_rate": 0.01, "clip_norm": 0.7, **fields})
        flat = torch.linspace(-1.0, 1.0, 3 * 48).view(3, 48)
        taken = Optimiser(flat, (torch.arange(48) < 32).float(), training)
        for step in range(23):
            taken.gradient.copy_(torch.sin(torch.arange(3 * 48.0) * (step + 1)).view(3, 48))
            taken.step(step, torch.ones(3))
        found[json.dumps(fields)] = told([taken.flat])
    return found


def trainings() -> dict[str, Any]:
    """Losses of two members at some of 50 steps, of every engine for a CPU."""
    found = {}
    for name, preset, engine in TRAININGS:
        study = load(name).study.chosen(preset)
        for here in map(study.of, study.grid()):
            assert here.task is not None and here.model is not None and here.training is not None
            config = here.model.for_task(here.task.shape())
            if engine in ("autograd", engines.choose(here.task, config, "cpu")):
                break
        else:
            continue  # the engine is not installed
        training = here.training.model_copy(update={"batch_size": min(here.training.batch_size, 31)})
        model = Transformer.initial(config, torch.tensor([3, 5]))
        taken = Optimiser(model.flatten(), model.decay_mask(), training)
        module = engines.load(engine, here.task, config, "cpu")
        gradient = module.gradient(model, here.task, training, torch.tensor([3, 5]), taken.gradient)
        losses = []
        for step in range(STEPS):
            loss = gradient(step)["loss"]
            taken.step(step, loss)
            losses.append([round(each, 8) for each in loss.tolist()])
        found[f"{name} {preset}, {engine}"] = [losses[step] for step in LOOKED_AT]
    return found


def completions() -> dict[str, Any]:
    """What each completion sets, and at which steps a training is kept and evaluated."""
    found = {}
    for name in COMPLETION_NAMES:
        model, training = completed(name, Model(), Training(steps=1234))
        steps = (training.checkpoint_steps(), training.evaluation_steps(), training.final_steps())
        values = [model.model_dump(mode="json"), training.model_dump(mode="json"), *map(list, steps)]
        found[name] = sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return found


PARTS: tuple[Callable[[], dict[str, Any]], ...] = (
    samples, plans, starts, plants, optimiser, trainings, completions,
)  # fmt: skip


def main() -> None:
    from hopscope.study.jobs import NUMBERS

    torch.set_num_threads(1)
    found = {"numbers": NUMBERS, "machine": machine(), **{part.__name__: part() for part in PARTS}}
    lines = []
    for part, values in found.items():
        if isinstance(values, dict):
            rows = (f" {json.dumps(key)}: {json.dumps(each)}" for key, each in values.items())
            lines.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
        else:
            lines.append(f'"{part}": {json.dumps(values)}')
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
