"""How members get their gradients: one function `gradient` for each engine, and the rule that chooses (no torch).

`gradient(model, task, training, seeds, buffer)` gives a function from the number of a step to each member's losses by
name, `[member]`.  It overwrites `buffer` `[member, size]`, laid out as the weights (`Transformer.flatten`), with the
gradient of the sum of the members' losses.  A step depends on the members' data seeds and its number alone.  Every
engine gives what autograd gives, to rounding; within one engine results are the same to the last bit.
"""

import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, get_args

from hopscope_next.errors import UserError
from hopscope_next.models.config import TransformerConfig
from hopscope_next.tasks import Permutation, Task
from hopscope_next.training.config import Training

EngineName = Literal["compiled", "shallow", "low-rank", "deep", "autograd"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)

ONE_THREAD: Final = frozenset({"shallow", "low-rank", "deep"})
"""Engines whose loops run on one thread, so that more threads of a worker would only wait; they need numba."""


def choose(task: Task, config: TransformerConfig, training: Training, device: str) -> EngineName:
    """The fastest engine on this machine; it decides rounding, so a run keeps it in its record.

    * CUDA: `compiled` for the default loss; a user's own may not compile.
    * CPU, the default loss, numba installed: `shallow` for the presentation's encoder layer (without bfloat16); of
      pre-norm models `low-rank` where heads are narrow beside the stream, `deep` where inputs are few.
    * `autograd` for all else.

    Raises:
        UserError: bfloat16 is asked for on a CPU that does not multiply in it.
    """
    from hopscope_next.tasks import has_standard_loss

    width, inputs = config.width, config.input_size + config.position_count
    cuda, rounded = device.startswith("cuda"), training.precision == "bfloat16"
    if rounded and not cuda:
        _check_rounding()
    if not has_standard_loss(task):
        return "autograd"
    if cuda:
        return "compiled" if find_spec("triton") else "autograd"
    if not find_spec("numba"):
        return "autograd"
    encoder = config.layers == 1 and config.norm == "post" and config.causal and config.activation == "relu"
    if isinstance(task, Permutation) and encoder and config.mlp_size and not rounded:
        return "shallow"
    # Without its stream a layer reads, on the average, one number for each input and half of what all heads write.
    known = config.input_size + 1 + config.layers * config.heads * config.head_size / 2
    vectors, no_more = config.input_kind == "vectors", not (config.position_count or config.mlp_size)
    if config.norm == "pre" and vectors and no_more and known <= width / 2:
        return "low-rank"
    # It makes a column of each token and learned code: with 16 for each dimension it took twice as long as autograd.
    # One layer on tokens computes little but the rows that are read out.
    few = vectors or (config.layers > 1 and inputs <= 4 * width)
    return "deep" if config.norm == "pre" and few else "autograd"


def load(name: str, device: str, precision: str = "float32") -> Any:
    """The module of an engine: its `gradient`, and `update` where the optimiser's step is its own.

    Raises:
        UserError: there is no such engine, it has no such precision, or this machine lacks what it needs.
    """
    if name not in ENGINES:
        raise UserError(f"engine: expected one of {', '.join(ENGINES)}, found {name!r}")
    if name in ONE_THREAD and not find_spec("numba"):
        raise UserError(f"engine: expected numba for {name}, found none; run pip install 'hopscope[fast]'")
    if name in ONE_THREAD and precision == "bfloat16":
        if name == "shallow":
            raise UserError(
                "precision: expected float32 for engine shallow, found bfloat16; use engine autograd"
            )
        _check_rounding()
    if name == "compiled":
        _check_compiler(device.startswith("cuda"))
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def _check_rounding() -> None:
    from torch.cpu import get_capabilities

    found = get_capabilities()
    if not (found.get("avx512_bf16") or found.get("amx_bf16")):
        raise UserError(
            "precision: expected a CPU that multiplies in bfloat16 (AVX512-BF16 or AMX), "
            f"found {found.get('cpu_name') or 'one'} without; use precision float32, or engine autograd, which rounds "
            "alike and gains no time"
        )


def _check_compiler(cuda: bool) -> None:
    # For a CPU a C++ compiler; for CUDA Triton, and a C compiler for its launchers.
    instead = "or use engine autograd"
    if cuda and not find_spec("triton"):
        raise UserError(
            "engine: expected triton, with which torch.compile makes CUDA kernels, found none; "
            f"install a build of torch with CUDA, {instead}"
        )
    cplusplus = "clang++" if sys.platform == "darwin" else "g++"
    variable, usual = ("CC", ("gcc", "clang")) if cuda else ("CXX", (cplusplus,))
    wanted = (os.environ[variable],) if os.environ.get(variable) else usual
    if not any(map(shutil.which, wanted)):
        raise UserError(
            f"engine: expected a compiler for torch.compile, found no {' or '.join(wanted)}; install one, name one in "
            f"{variable}, {instead}"
        )
