"""How a circuit came about: its paths through checkpoints, and training again without some of them.

*Formation* (paper, section 9 and appendix D) follows the paths of the circuit that was read at the end: how much of the
attention of a path's rows lay on what its rule reads, long before there was a circuit.

*Clamps* ask what a path is for.  Attention that rises before a loss falls need not be what makes it fall.  So a member
is trained again from a checkpoint, on the very samples that it saw, while some rows read uniformly, in training and
evaluation.  What no longer forms then, needed them.  From a checkpoint with the state of its optimiser, a run in which
nothing is clamped repeats what has been, to rounding; from one without, all runs begin with a fresh optimiser.  A
control, in which rows of heads that read nothing are clamped, tells what harm a clamp does by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar, Rows
from hopscope.circuits.interventions import ReplacePattern
from hopscope.circuits.rules import Learned, Roles, Uniform, is_sharp
from hopscope.models.config import Model
from hopscope.models.layers import At
from hopscope.models.sites import calling
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task, draw, held_out, losses
from hopscope.training.config import Training
from hopscope.training.engines import autograd
from hopscope.training.engines.batches import Step
from hopscope.training.optimiser import Optimiser
from hopscope.training.train import Row, State, arithmetic, intervals

Clamps = Mapping[str, Sequence[ReplacePattern]]
"""What is replaced in each run, by its name; nothing in a run that is left alone.  No pattern may rest on the model's
own, which changes."""


def formation(
    circuit: Circuit, models: Iterable[tuple[int, Transformer]], task: Task, samples: int = 128
) -> list[tuple[Path, dict[int, float]]]:
    """The paths of a circuit, and the mean attention on what each reads: training step → share, 0 … 1.

    Rows that follow a mean map read nothing that could form, and what rows without a rule read nobody can say: both are
    left out.

    Args:
        circuit: of the last of the models.
        models: training step and single model at each checkpoint.
        task: that they were trained on.
        samples: probe samples, on which nothing is trained or read.
    """
    told = (path for path in circuit.paths if is_sharp(path.rule) and path.rule != Learned())
    found = [(path, dict[int, float]()) for path in told]
    grammar: Grammar | None = None
    for step, model in models:
        if grammar is None:  # what rules mean on these samples is the same at every checkpoint
            seeds = torch.tensor([0], device=model.readout.weight.device)
            batch, rows = draw(task, seeds, "probe", 0, samples), Rows.drawn(task, 0, seeds.device)
            grammar = Grammar(task, rows, batch, causal=model.config.causal)
        execution = Execution(model, grammar)
        for path, attention in found:
            slot = path.layer, path.head, grammar.roles.index(path.roles)
            attention[step] = execution.attention_on(slot, path.rule)
    return found


def clamp(layer: int, head: int, rows: Roles) -> ReplacePattern:
    """Some rows of a head read uniformly."""
    return ReplacePattern(layer=layer, heads=(head,), rows=rows, by=Uniform())


def controls(
    paths: Sequence[Path], circuits: Iterable[Circuit], execution: Execution
) -> list[ReplacePattern] | None:
    """For each path the same rows of a head that reads nothing there: the one in the nearest layer, each once.

    Args:
        paths: what is clamped elsewhere.
        circuits: all of the model; what reads in any of them is no control.
        execution: the model, whose rows that can matter are meant.

    Returns:
        The clamps, or `None` if there are too few such heads.
    """
    taken = [(path.layer, path.head, path.roles) for circuit in circuits for path in circuit.paths]
    found, roles = [], execution.grammar.roles
    every = [(layer, head, roles[role]) for layer, head, role in execution.reachable]
    for path in paths:
        free = [place for place in every if place[2] == path.roles and place not in taken]
        if not free:
            return None
        nearest = min(free, key=lambda place: (abs(place[0] - path.layer), place[:2]))
        taken.append(nearest)
        found.append(clamp(*nearest))
    return found


def trained_again(
    task: Task, model: Model, training: Training, seed: int, state: State, clamps: Clamps, *, steps: int, every: int,
    samples: int = 512,
) -> dict[str, dict[str, dict[int, float]]]:  # fmt: skip
    """Train one member again from a checkpoint, once under each clamp, all side by side.

    Args:
        task, model, training, seed: as it was trained.
        state: of the checkpoint, of an ensemble whose one member it is; without the moments of its optimiser, all runs
            begin with a fresh one, whose rate and corrections count from there.
        clamps: see `Clamps`.
        steps: how many to take at most; the training's own last step is the last in any case.
        every: steps between evaluations.
        samples: held-out samples of every evaluation.

    Returns:
        Held-out losses: run → name of the loss → training step → value, first at the checkpoint; a run that diverged
        has no more of them.

    Raises:
        UserError: model and task do not fit, or a clamp names what does not exist.
    """
    arrays, metadata = state
    start, count = metadata["step"], len(clamps)
    copies = {name: np.repeat(array, count, 0) for name, array in arrays.items()}
    nothing = np.zeros((count, 1), np.float32)  # stands for all moments
    fresh = {f"optimiser/{name}": nothing for name in ("first_moment", "second_moment")}
    taken = 0 if {*fresh} <= {*copies} else start
    runs = Transformer(model.for_task(task.shape()), count).knowing(task, [seed] * count, start)
    told = Rows.drawn(task, 0, "cpu")
    held = told.annotated(held_out(task, samples))
    often = {"evaluate_every": every, "checkpoint_every": every, "final_window": 0}

    def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
        backward = autograd.backward_into(model, task, buffer)

        def of_step(step: int) -> Mapping[str, Tensor]:
            batch = draw(task, seeds[:1], "train", step, training.batch_size, examples=training.examples)
            return backward(batch, _clamped(model, clamps, told.annotated(batch)))

        return of_step

    def evaluate(ensemble: Transformer) -> Iterator[Row]:
        predictions = ensemble(held.inputs, _clamped(ensemble, clamps, held))
        for name, value in losses(task, predictions, held).items():
            yield {"split": "held-out", "metric": name, "value": value}

    found: dict[str, dict[str, dict[int, float]]] = {name: {} for name in clamps}

    def keep(rows: Iterable[Row], step: int | None = None) -> None:
        for row in (row for row in rows if row["split"] == "held-out"):
            metric = "@".join(filter(None, (row["metric"], row.get("part"))))
            for name, value in zip(clamps, row["value"], strict=True):
                if value is not None:
                    found[name].setdefault(metric, {})[row.get("step", step)] = float(value)

    def update(optimiser: Optimiser) -> Callable[[int, Tensor], None]:
        return lambda step, losses: optimiser.step(step - taken, losses)

    after = {**fresh, **copies}, {"step": start, "diverged_at": metadata["diverged_at"] * count}
    engine = SimpleNamespace(gradient=gradient, update=update)
    whole = training.model_copy(update=often)
    with arithmetic(precision=training.precision):
        runs.load({name.removeprefix("weights/"): torch.from_numpy(each) for name, each in copies.items()
                   if name.startswith("weights/")})  # fmt: skip
        with torch.no_grad():
            keep(evaluate(runs), start)
        for rows, (_, now) in intervals(runs, whole, after=after, engine=engine, evaluate=evaluate):
            keep(rows)
            if now["step"] >= start + steps:
                break
    return found


def _clamped(model: Transformer, clamps: Clamps, batch: Batch) -> At:
    # Every run of an ensemble under its own clamps, on the same samples.
    of_runs = [model.site_functions(batch, each) for each in clamps.values()]
    runs, sites = [calling(functions) for functions in of_runs], set[str]().union(*of_runs)

    def at(name: str, tensor: Tensor) -> Tensor:
        if name not in sites:
            return tensor
        return torch.cat([run(name, own) for run, own in zip(runs, tensor.split(1), strict=True)])

    return at
