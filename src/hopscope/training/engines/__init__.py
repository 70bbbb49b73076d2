"""How members get their gradients: one function `gradient` for each engine, and the rule that chooses (no torch).

`gradient(model, task, training, seeds, buffer)` gives a function from the number of a step to each member's losses by
name, `[member]`.  It overwrites `buffer` `[member, size]`, laid out as the weights (`Transformer.flatten`), with the
gradient of the sum of the members' losses.  A step depends on the members' data seeds and its number alone.  Every
engine gives what autograd gives, to rounding; within one engine results are the same to the last bit.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, get_args

from hopscope import tasks  # which loads torch when its losses are asked for
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.tasks import Permutation, Task

EngineName = Literal["compiled", "shallow", "low-rank", "deep", "autograd"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)

ONE_THREAD: Final = frozenset({"shallow", "low-rank", "deep"})
"""Engines for a CPU whose loops run on one thread, so that more threads of a worker would only wait."""


def choose(task: Task, config: TransformerConfig, device: str) -> EngineName:
    """The fastest engine on this machine; it decides rounding, so a run keeps it in its record.

    * CUDA: `compiled` for the default loss, beside losses that need no roles and groups; a user's own may not compile.
    * CPU, where they can (`load` says what they need): `shallow` for the presentation's encoder layer; `low-rank` where
      heads are narrow beside the stream; `deep` where inputs are few.
    * `autograd` for all else.
    """
    if device != "cpu":
        compiles = device.startswith("cuda") and tasks.has_standard_loss(task) and find_spec("triton")
        return "compiled" if compiles and _takes_plain(task, config) else "autograd"
    # Without its stream a layer reads, on the average, one number for each input and half of what all heads write.
    known = config.input_size + 1 + config.layers * config.heads * config.head_size / 2
    # Deep makes a column of each token and learned code: with 16 for each dimension it took twice as long as autograd.
    # One layer on tokens computes little but the rows that are read out.
    few = config.layers > 1 and config.input_size + config.position_count <= 4 * config.width
    quick: dict[EngineName, bool] = {"shallow": True, "low-rank": known <= config.width / 2}
    quick["deep"] = config.input_kind == "vectors" or few
    can = (name for name, each in quick.items() if each and not _lacking(name, task, config))
    return next(can, "autograd") if find_spec("numba") else "autograd"


def load(name: str, task: Task, config: TransformerConfig, device: str) -> Any:
    """The module of an engine: its `gradient`, and `update` where the optimiser's step is its own.

    `UserError`: there is no such engine, it cannot train this, or this machine lacks what it needs.
    """
    if name not in ENGINES:
        raise UserError(f"engine: expected one of {', '.join(ENGINES)}, found {name!r}")
    if name in ONE_THREAD:
        lacking, found = "numba", "none; run pip install 'hopscope[fast]'"
        if find_spec("numba"):
            lacking = "a CPU" if device != "cpu" else _lacking(name, task, config)
            found = "something else; use engine autograd"
        if lacking:
            raise UserError(f"engine: expected {lacking} for {name}, found {found}")
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def _takes_plain(task: Task, config: TransformerConfig) -> bool:
    # A program is given inputs, targets and weights alone.
    import torch

    batch = tasks.draw(task, torch.tensor([0]), "train", 0, 2).plain()
    try:
        task.parts(torch.zeros(1, 2, len(config.readout_positions), config.output_size), batch)
    except Exception:
        return False
    return True


def _lacking(name: str, task: Task, config: TransformerConfig) -> str:
    # The first thing that an engine without autograd needs and does not find, in words.
    needed = {"the default loss": tasks.has_standard_loss(task)}
    if name == "shallow":
        own = all(
            getattr(type(task), name) is getattr(Permutation, name)
            for name in ("sample", "sequences", "parts")
        )
        needed["the samples and losses of Permutation"] = own
        needed["one causal post-norm layer"] = config.layers == 1 and config.norm == "post" and config.causal
        needed["an MLP with relu"] = config.mlp_size > 0 and config.activation == "relu"
    else:
        needed["pre-norm layers"] = config.norm == "pre"
    if name == "low-rank":
        needed["inputs that are vectors"] = config.input_kind == "vectors"
        needed["no learned positions"] = not config.position_count
        needed["no MLPs"] = not config.mlp_size
    return next((words for words, found in needed.items() if not found), "")
