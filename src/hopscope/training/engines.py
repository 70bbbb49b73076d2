"""Which way a unit is trained: a choice without torch, made when the unit is created and kept (it decides rounding)."""

import os
import shutil
import sys
from importlib.util import find_spec
from typing import Literal, get_args

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import EquationsConfig, PermutationConfig, TaskReference
from hopscope.training.config import UnitPlan

Engine = Literal["general", "fused", "stacked", "virtual", "compiled"]
"""`general`: autograd, any model on any device.  `fused` (one encoder layer on tokens), `stacked` (any number of
pre-norm layers, where the derivative of the task's loss is known) and `virtual` (of those without MLPs: narrow heads on
a wide stream): derivatives written out for a CPU.  `compiled`: autograd through `torch.compile`, recorded as CUDA
graphs where there is CUDA."""

ENGINES: tuple[Engine, ...] = get_args(Engine)

MOST_INPUTS = 4
"""Tokens and learned position codes for each dimension of the stream, at most, where the stacked way is chosen.  It
makes a column of each: with 16 for each dimension it took twice as long as autograd."""

MOST_KNOWN = 0.5
"""Numbers that the virtual way keeps in place of the stream, on the average over layers, for each of its dimensions, at
most: what has more keeps the stacked way, and with it the rounding of earlier runs."""


def chosen_engine(plan: UnitPlan, device: str) -> Engine:
    """The fastest way for a unit on this machine."""
    if device == "cuda":
        # What draws the samples of a declared task is any code: it may not compile.
        return "general" if isinstance(plan.task, TaskReference) else "compiled"
    if not _installed():
        return "general"
    if fits_fused(plan):
        return "fused"
    if fits_stacked(plan):
        return "virtual" if fits_virtual(plan.model) else "stacked"
    return "general"


def fits_fused(plan: UnitPlan) -> bool:
    """Whether a unit is of the kind that the fused way is for: the presentation's task and layer, in float32."""
    full = plan.training.precision == "float32"
    return full and isinstance(plan.task, PermutationConfig) and is_encoder_layer(plan.model)


def fits_stacked(plan: UnitPlan) -> bool:
    """Whether a unit is of the kind that the stacked way is for: pre-norm layers in float32, under a known derivative.

    Of the tasks of this package these are the paper's models and small language models, as it has always been: another
    way would round otherwise.
    """
    model = plan.model
    if model.norm != "pre" or plan.training.precision != "float32":
        return False
    if isinstance(plan.task, TaskReference):
        # With one layer autograd is quicker: it computes little but the rows that are read out.
        return plan.task.gradient and model.layers > 1 and _few_inputs(model)
    carried = model.input_kind == "vectors" and model.positions == "carried"
    language = isinstance(plan.task, EquationsConfig) and model.causal
    return carried or language


def fits_virtual(model: TransformerConfig) -> bool:
    """Whether a model that fits the stacked way is quicker without its stream.

    What a layer reads is then, on the average over layers, one number for each input and half of what all heads write,
    instead of one for each dimension of the stream.
    """
    known = model.input_size + 1 + model.layers * model.heads * model.head_size / 2
    narrow = MOST_KNOWN * model.width >= known
    return model.input_kind == "vectors" and not model.position_count and not model.mlp_size and narrow


def _few_inputs(model: TransformerConfig) -> bool:
    """Whether tokens and position codes may be columns of a matrix, of which each position has one or two."""
    return model.input_size + model.position_count <= MOST_INPUTS * model.width


def is_encoder_layer(model: TransformerConfig) -> bool:
    """One causal post-norm layer on tokens, with a ReLU MLP (presentation, section 5)."""
    return (
        model.layers == 1
        and model.input_kind == "tokens"
        and model.norm == "post"
        and model.activation == "relu"
        and model.mlp_size > 0
        and model.causal
    )


def check_engine(engine: Engine, device: str = "cpu") -> None:
    """Refuse an engine that this machine lacks.

    Raises:
        UserError: its package, or the compiler that it needs, is not installed.
    """
    if engine in ("fused", "stacked", "virtual") and not _installed():
        raise UserError(
            "engine: expected numba, with which this unit began, found none; run pip install 'hopscope[fast]'"
        )
    if engine == "compiled":
        _check_compiler(device)


def _check_compiler(device: str) -> None:
    """What torch.compile needs: a C++ compiler for a CPU; Triton and a C compiler, for its launchers, for CUDA."""
    if device == "cuda" and find_spec("triton") is None:
        raise UserError(
            "engine: expected triton, with which torch.compile makes CUDA kernels, found none; "
            "install a build of torch with CUDA, or use --engine general"
        )
    cplusplus = "clang++" if sys.platform == "darwin" else "g++"
    variable, usual = ("CC", ("gcc", "clang")) if device == "cuda" else ("CXX", (cplusplus,))
    wanted = (os.environ[variable],) if os.environ.get(variable) else usual
    if not any(shutil.which(name) for name in wanted):
        raise UserError(
            f"engine: expected a compiler for torch.compile, found no {' or '.join(wanted)}; "
            f"install one, name one in {variable}, or use --engine general"
        )


def _installed() -> bool:
    return find_spec("numba") is not None
