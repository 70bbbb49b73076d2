"""How a circuit came about: its paths through checkpoints, and training again without some of them.

*Formation* (paper, section 9 and appendix D) follows the paths of the circuit that was read at the end: how much of the
attention of a path's rows lay on what its rule reads, long before there was a circuit.

*Clamps* ask what a path is for.  Attention that rises before a loss falls need not be what makes it fall.  So a member
is trained again from a checkpoint, on the very samples that it saw, while some rows read uniformly, in training and
evaluation.  What no longer forms then, needed them.  All runs begin with a fresh optimiser; one in which nothing is
clamped, and a control, in which rows of heads that read nothing are clamped, tell what harm comes of that alone.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar, Rows
from hopscope.circuits.interventions import ReplacePattern
from hopscope.circuits.rules import History, Learned, Roles, Uniform, is_sharp
from hopscope.errors import UserError
from hopscope.models.layers import At
from hopscope.models.sites import calling
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task, draw, held_out, losses
from hopscope.training.config import Training
from hopscope.training.engines import autograd
from hopscope.training.optimiser import Optimiser
from hopscope.training.train import arithmetic

Clamps = Mapping[str, Sequence[ReplacePattern]]
"""What is replaced in each run, by its name; nothing in a run that is left alone.  No pattern may rest on the model's
own, which changes."""


def formation(
    circuit: Circuit, models: Iterable[tuple[int, Transformer]], task: Task, samples: int = 128
) -> list[tuple[Path, dict[int, float]]]:
    """The paths of a circuit, and the mean attention on what each reads: training step → share, 0 … 1.

    The circuit is that of the last of the models, which come with their training step; the samples are of the use
    `probe`, on which nothing is trained or read.  Rows that follow a mean map read nothing that could form, and what
    rows without a rule read nobody can say: both are left out.
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
    """For each path a clamp of the same rows of a head that reads nothing there: the one in the nearest layer, once.

    What reads in any of the circuits of the model is no control.  `None` if there are too few such heads.
    """
    taken = [(path.layer, path.head, path.roles) for circuit in circuits for path in circuit.paths]
    roles, found = execution.grammar.roles, []
    free = [(layer, head, roles[role]) for layer, head, role in execution.reachable]
    free = [place for place in free if place not in taken]
    for path in paths:
        alike = [place for place in free if place[2] == path.roles]
        if not alike:
            return None
        nearest = min(alike, key=lambda place: (abs(place[0] - path.layer), place[:2]))
        free.remove(nearest)
        found.append(clamp(*nearest))
    return found


def trained_again(
    member: Transformer, training: Training, clamps: Clamps, *, steps: int, every: int, samples: int = 512
) -> dict[str, dict[str, dict[int, float]]]:
    """Train one member again from a checkpoint, once under each clamp, all side by side.

    Args:
        member: an ensemble of that member alone, which knows its task, data seed and step.
        training: as it was trained.
        clamps: see `Clamps`; one that names what does not exist is a `UserError`.
        steps: how many to take, on to the next checkpoint, of which none after the training's own last.
        every: steps between evaluations, on so many held-out samples.

    Returns:
        Held-out losses: run → name of the loss → training step → value, first at the checkpoint; a run that diverged
        has no more of them.
    """
    named = [(name, clamp.by) for name, several in clamps.items() for clamp in several]
    if resting := [name for name, by in named if isinstance(by, Learned | History)]:
        raise UserError(
            f"clamps: expected no pattern of the model's own, which changes, found one in {resting[0]!r}"
        )
    if member.members != 1:
        raise UserError(
            f"member: expected an ensemble of one member (.select([number])), found {member.members}"
        )
    runs, task, start = member.select([0] * len(clamps)), member.task, member.step
    assert task is not None and start is not None
    seeds, told = torch.tensor(runs.seeds)[:1], Rows.drawn(task, 0, "cpu")
    held = told.annotated(held_out(task, samples))
    often = {"evaluate_every": every, "checkpoint_every": every, "final_window": 0}
    asked = training.model_copy(update=often)
    end = next((step for step in asked.checkpoint_steps() if step >= start + steps), training.steps)
    optimiser = Optimiser(runs.flatten(), runs.decay_mask(), training)
    products = runs.at_precision("bfloat16" if training.precision == "bfloat16" else "float32")
    backward = autograd.backward_into(products, task, optimiser.gradient)
    found: dict[str, dict[str, dict[int, float]]] = {name: {} for name in clamps}

    @torch.no_grad()
    def evaluate(step: int) -> None:
        optimiser.alive &= optimiser.flat.isfinite().all(1)
        predictions = runs(held.inputs, _clamped(runs, clamps, held))
        for metric, values in losses(task, predictions, held).items():
            every = zip(clamps, values.tolist(), optimiser.alive.tolist(), strict=True)
            for name, value in ((name, value) for name, value, alive in every if alive):
                found[name].setdefault(metric, {})[step] = value

    with arithmetic(precision=training.precision):
        evaluate(start)
        for step in range(start, end):
            batch = draw(task, seeds, "train", step, training.batch_size, examples=training.examples)
            loss = backward(batch, _clamped(products, clamps, told.annotated(batch)))["loss"]
            optimiser.step(step - start, loss)  # its rate and corrections count from the checkpoint
            if step + 1 in asked.evaluation_steps():
                evaluate(step + 1)
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
