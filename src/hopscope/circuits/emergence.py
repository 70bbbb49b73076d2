"""How the paths of a circuit form: the attention on each of them at every checkpoint (paper, section 9 and appendix D).

The circuit is the one that was read at the end of training.  What is followed is how much of the attention of a path's
rows lay on what its rule reads, long before there was a circuit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.execution import Execution, followed
from hopscope.circuits.goal import Setting
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import Learned, MeanMap
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch


@dataclass(frozen=True)
class Formation:
    """What became of attention at the checkpoints of one member.

    Attributes:
        checkpoints: training steps, ascending.
        paths: those that are followed.
        attention: mean attention on what each path reads, path by path.
    """

    checkpoints: tuple[int, ...]
    paths: tuple[Path, ...]
    attention: tuple[tuple[float, ...], ...]


def formation(
    circuit: Circuit, models: Iterable[tuple[int, Transformer]], setting: Setting, batch: Batch
) -> Formation:
    """Follow the paths of a circuit through training.

    Rows that only a mean map describes read nothing that could form, and what rows without a rule read nobody can say:
    both are left out.

    Args:
        circuit: read from the last of the models.
        models: training step and model (`member == 1`) of each checkpoint, ascending.
        setting: how the task was put to the reader.
        batch: sequences of the setting that neither were trained on nor used to read the circuit.
    """
    paths = tuple(path for path in circuit.paths if not isinstance(path.rule, MeanMap | Learned))
    steps: list[int] = []
    attention: list[list[float]] = [[] for _ in paths]
    grammar: Grammar | None = None
    for step, model in models:
        steps.append(step)
        # What rules mean on these sequences is the same at every checkpoint.
        grammar = grammar or setting.grammar(batch, causal=model.config.causal)
        execution = Execution(setting.model(model), grammar)
        for values, path in zip(attention, paths, strict=True):
            values.append(attention_on(execution, path))
    return Formation(tuple(steps), paths, tuple(map(tuple, attention)))


def attention_on(execution: Execution, path: Path) -> float:
    """Mean attention of a path's rows on what its rule reads, in the unedited model."""
    slot = (path.layer, path.head, execution.grammar.roles.index(path.roles))
    return followed(execution, slot, path.rule)


def maps(
    models: Iterable[tuple[int, Transformer]], batch: Batch
) -> Iterator[tuple[int, UInt8[Tensor, "layer head query key"]]]:
    """Attention maps of every head on the first sequence of a batch, in 255ths, checkpoint by checkpoint."""
    for step, model in models:
        yield step, in_255ths(torch.stack([pattern[0, 0] for pattern in _patterns(model, batch)]))


def in_255ths(attention: Float[Tensor, "*axes"]) -> UInt8[Tensor, "*axes"]:
    """Attention as bytes."""
    return (attention * 255.0).round().to(torch.uint8)


def _patterns(model: Transformer, batch: Batch) -> Iterator[Float[Tensor, "1 batch head query key"]]:
    with torch.no_grad():
        stream = model.embedded(batch.inputs[:, :1])
        for block in model.blocks:
            pattern = block.pattern(stream)
            yield pattern
            stream = block.under(stream, pattern)
