"""How the paths of a circuit form: the attention on each of them at every checkpoint (paper, section 9 and appendix D).

The circuit is the one that was read at the end of training.  What is followed is how much of the attention of a path's
rows lay on what its rule reads, long before there was a circuit.  It is written into the unit's analysis folder.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.circuit_task import CircuitTask
from hopscope.circuits.config import SEQUENCES, ReaderConfig, formation_name, maps_name, spaced
from hopscope.circuits.execution import Execution, mean_attention
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.record import path_json, read_member
from hopscope.models.patterns import Learned, MeanMap
from hopscope.models.transformer import Transformer
from hopscope.runs import UnitFolder
from hopscope.tasks.batch import Batch
from hopscope.training.restore import load_ensemble

MOST_MAPS = 24
"""Checkpoints of which attention maps are kept."""

Example = Callable[[Grammar], dict[str, Any]]
"""What a page tells of the sequence that the maps are of: `tokens`, its positions, and `rows`, the row roles."""


def read_and_follow(
    unit: UnitFolder,
    index: int,
    member: int,
    step: int,
    config: ReaderConfig,
    task: CircuitTask,
    example: Example,
) -> None:
    """Read the circuit of a member, and follow its paths through the checkpoints; what is on record is kept.

    Args:
        unit: that the member is in.
        index: its place there.
        member: its number in the run.
        step: of the last checkpoint.
        config: how to read.
        task: as it is put to the reader.
        example: see `Example`; given the first of the sequences that are watched.

    Raises:
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    reading = read_member(unit.run, member, step, config)
    if unit.analysis_path(formation_name(member), step).is_file():
        return
    batch = task.batch(0, SEQUENCES, "watch")
    steps = [at for at, _ in unit.checkpoints() if at <= step]
    models = [(at, task.model(load_ensemble(unit, at).select([index]))) for at in steps]
    found = formation(Circuit.model_validate(reading["circuit"]), models, task, batch)
    shown = spaced(steps, MOST_MAPS)
    of_heads = [bytes_.numpy() for _, bytes_ in maps((pair for pair in models if pair[0] in shown), batch)]
    unit.write_analysis(maps_name(member), step, {"steps": np.array(shown), "maps": np.stack(of_heads)})
    # Last, because its file says that both are there.
    unit.write_analysis(
        formation_name(member),
        step,
        {
            "member": member,
            **found,
            **example(task.grammar(batch, causal=models[0][1].config.causal)),
        },
    )


def formation(
    circuit: Circuit, models: Iterable[tuple[int, Transformer]], task: CircuitTask, batch: Batch
) -> dict[str, Any]:
    """Follow the paths of a circuit through training.

    Rows that only a mean map describes read nothing that could form, and what rows without a rule read nobody can say:
    both are left out.

    Args:
        circuit: read from the last of the models.
        models: training step and model (`member == 1`) of each checkpoint, ascending.
        task: as it was put to the reader.
        batch: sequences of the task that neither were trained on nor used to read the circuit.

    Returns:
        JSON values: `checkpoints`, the training steps; `paths`, those that are followed, each with `attention`: the
        mean attention on what it reads, by checkpoint.
    """
    paths = [path for path in circuit.paths if not isinstance(path.rule, MeanMap | Learned)]
    steps: list[int] = []
    attention: list[list[float]] = [[] for _ in paths]
    grammar: Grammar | None = None
    for step, model in models:
        steps.append(step)
        # What rules mean on these sequences is the same at every checkpoint.
        grammar = grammar or task.grammar(batch, causal=model.config.causal)
        execution = Execution(task.model(model), grammar)
        for values, path in zip(attention, paths, strict=True):
            slot = path.layer, path.head, grammar.roles.index(path.roles)
            values.append(mean_attention(execution, slot, path.rule))
    followed = [
        {**path_json(path), "attention": values} for path, values in zip(paths, attention, strict=True)
    ]
    return {"checkpoints": steps, "paths": followed}


def maps(
    models: Iterable[tuple[int, Transformer]], batch: Batch
) -> Iterator[tuple[int, UInt8[Tensor, "layer head query key"]]]:
    """Attention maps of every head on the first sequence of a batch, in 255ths, checkpoint by checkpoint."""
    for step, model in models:
        with torch.no_grad():
            _, captured = model.capture(batch.inputs[:, :1])
        yield step, in_255ths(torch.stack([pattern[0, 0] for pattern in captured.patterns]))


def in_255ths(attention: Float[Tensor, "*axes"]) -> UInt8[Tensor, "*axes"]:
    """Attention as bytes: 255 stands for attention 1."""
    return (attention * 255.0).round().to(torch.uint8)
