"""How a unit gets its gradients: one folder for each engine, one contract, and the choice (no torch).

The choice is made when a unit is created, and kept in its record, because it decides rounding.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import EquationsConfig, PermutationConfig, TaskReference
from hopscope.training.config import TrainingConfig, TrainJob

if TYPE_CHECKING:
    # Annotations only: an engine is chosen while a run is planned, which does not wait for torch.
    from torch import Tensor

    from hopscope.models.transformer import Transformer
    from hopscope.tasks.device import DeviceTask
    from hopscope.training.optimizer import Optimizer

EngineName = Literal["general", "fused", "stacked", "virtual", "compiled"]
"""An engine in records and flags.  Records outlive modules: these names stay, whatever the folders are called."""

Gradient: TypeAlias = "Callable[[int], Mapping[str, Tensor]]"
"""From the number of a step to each member's losses by name, `[member]`; `"loss"` is what is minimised."""

Update: TypeAlias = "Callable[[int, Tensor], None]"
"""From the number of a step and each member's loss to the optimiser's step."""

MOST_INPUTS = 4
"""Tokens and learned position codes for each dimension of the stream, at most, where `stacked` is chosen for a declared
task.  It makes a column of each: with 16 for each dimension it took twice as long as autograd."""

MOST_KNOWN = 0.5
"""Numbers that `virtual` keeps in place of the stream, on the average over layers, for each of its dimensions, at most:
what has more keeps `stacked`, and with it the rounding of earlier runs."""


@dataclass(frozen=True)
class Engine:
    """A way to compute losses and gradients of all members of a unit.

    Every engine gives what autograd gives for the same weights and batches, to rounding (each is tested against it).
    The batches of a step depend on the members' data seeds and on the step's number alone.  Within one unit and layout
    results are the same to the last bit, so a unit keeps the engine that it began with (`unit.json`).

    Its module is loaded when a gradient is made.  It has a function `gradient`, which takes what `Engine.gradient`
    takes, the members already at the precision of the training; and, where the optimiser's step is its own, `update`.

    Attributes:
        name: in records and flags.
        module: below this package.
        fits: whether it can train a unit on a device, and is quicker there than the engines after it in `ENGINES`.
        packages: optional packages without which it is neither chosen nor used.
        one_thread: whether its loops run on one thread, so that more threads of a worker would only wait.
        raises_out_of_memory: whether memory that runs out is an error, after which a step is taken for fewer members at
            a time.  A CPU's memory ends without one.
        compiles: whether it needs a compiler for `torch.compile`.
    """

    name: EngineName
    module: str
    fits: Callable[[TrainJob, str], bool]
    packages: tuple[str, ...] = ()
    one_thread: bool = False
    raises_out_of_memory: bool = False
    compiles: bool = False

    def installed(self) -> bool:
        """Whether its optional packages are."""
        return all(find_spec(package) is not None for package in self.packages)

    def check(self, device: str) -> None:
        """Refuse a machine that lacks what the engine needs.

        Raises:
            UserError: a package or a compiler is missing.
        """
        if not self.installed():
            raise UserError(
                f"engine: expected {' and '.join(self.packages)}, with which this unit began, found none; "
                "run pip install 'hopscope[fast]'"
            )
        if self.compiles:
            _check_compiler(device)

    def gradient(
        self,
        model: "Transformer",
        task: "DeviceTask",
        training: TrainingConfig,
        seeds: "Tensor",
        buffer: "Tensor",
    ) -> Gradient:
        """Losses and gradients of one training step after another.

        Args:
            model: the members; their weights are read anew at every step.
            task, training: what they are trained on, and how.
            seeds: each member's data seed, `[member]`.
            buffer: `[member, size]`, laid out as the weights: every step overwrites it with the gradient of the sum of
                the members' losses.

        Raises:
            UserError: this machine lacks what the engine needs.
        """
        self.check(buffer.device.type)
        made = self._loaded().gradient(model.at(training.precision), task, training, seeds, buffer)
        return cast(Gradient, made)

    def update(self, optimizer: "Optimizer") -> Update:
        """The optimiser's step, once the gradient of all members is in its buffer."""
        own = getattr(self._loaded(), "update", None)
        return optimizer.step if own is None else cast(Update, own(optimizer))

    def _loaded(self) -> ModuleType:
        return import_module(f"{__name__}.{self.module}")


def fits_shallow(job: TrainJob, device: str) -> bool:
    """Whether a unit has the presentation's task and encoder layer (section 5), on a CPU in float32."""
    model = job.model
    layer = model.layers == 1 and model.input_kind == "tokens" and model.norm == "post" and model.causal
    mlp = model.activation == "relu" and model.mlp_size > 0
    return _plain(job, device) and isinstance(job.task, PermutationConfig) and layer and mlp


def fits_deep(job: TrainJob, device: str) -> bool:
    """Whether a unit has pre-norm layers under a loss whose derivative is known, on a CPU in float32.

    Of the tasks of this package these are the paper's models and small language models, as it has always been: another
    engine would round otherwise.
    """
    model = job.model
    if model.norm != "pre" or not _plain(job, device):
        return False
    if isinstance(job.task, TaskReference):
        # With one layer autograd is quicker: it computes little but the rows that are read out.
        few_inputs = model.input_size + model.position_count <= MOST_INPUTS * model.width
        return job.task.gradient and model.layers > 1 and few_inputs
    carried = model.input_kind == "vectors" and model.positions == "carried"
    language = isinstance(job.task, EquationsConfig) and model.causal
    return carried or language


def is_narrow(model: TransformerConfig) -> bool:
    """Whether a pre-norm model is quicker without its stream: no MLP, and heads that are narrow beside the stream.

    What a layer reads is then, on the average over layers, one number for each input and half of what all heads write,
    instead of one for each dimension of the stream.
    """
    known = model.input_size + 1 + model.layers * model.heads * model.head_size / 2
    narrow = MOST_KNOWN * model.width >= known
    return model.input_kind == "vectors" and not model.position_count and not model.mlp_size and narrow


def _plain(job: TrainJob, device: str) -> bool:
    return device == "cpu" and job.training.precision == "float32"


def _check_compiler(device: str) -> None:
    """Check what torch.compile needs: for a CPU a C++ compiler; for CUDA Triton, and a C compiler for its launchers."""
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


ENGINES: Mapping[EngineName, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            "compiled", "torch_compile",
            # What draws the samples of a declared task is any code: it may not compile.
            lambda job, device: device == "cuda" and not isinstance(job.task, TaskReference),
            raises_out_of_memory=True, compiles=True,
        ),
        Engine("fused", "numba_shallow.gradient", fits_shallow, ("numba",), one_thread=True),
        Engine(
            "virtual", "virtual_weights.gradient",
            lambda job, device: fits_deep(job, device) and is_narrow(job.model), ("numba",), one_thread=True,
        ),
        Engine("stacked", "numba_deep.gradient", fits_deep, ("numba",), one_thread=True),
        Engine("general", "autograd", lambda job, device: True, raises_out_of_memory=True),
    )
}  # fmt: skip
"""Engines by the names that stand in records and flags, those for the fewest units first."""


def chosen_engine(job: TrainJob, device: str) -> EngineName:
    """The fastest engine for a unit on this machine."""
    return next(name for name, engine in ENGINES.items() if engine.installed() and engine.fits(job, device))
