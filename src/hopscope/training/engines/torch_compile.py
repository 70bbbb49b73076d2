"""Training steps as compiled programs, recorded once and replayed (for CUDA; on a CPU they are compiled only).

`torch.compile` makes a few large kernels of what eager PyTorch does in hundreds of small ones, most of all of drawing
samples, which is integer arithmetic.  On CUDA what is left to launch is recorded as two graphs, one for losses and
gradient and one for the optimiser, and each step replays them: the host says which step it is and waits for nothing.
All that changes from step to step is in tensors that stay where they are; the number of the step is one of them, and
the random draws follow from it on the device.

The gradient equals that of the general way, to rounding (tested on a CPU).
"""

import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.block import Block
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import DeviceTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines.batches import own_task
from hopscope.training.optimizer import Optimizer

_P = ParamSpec("_P")
_R = TypeVar("_R")

WARM_UP = 3
"""Steps that are taken before one is recorded: compiling, loading kernels and choosing products cannot be recorded."""


def gradient(
    model: Transformer,
    task: DeviceTask,
    training: TrainingConfig,
    seeds: Int[Tensor, " member"],
    buffer: Float[Tensor, "member size"],
    backend: str = "inductor",
) -> Callable[[int], Mapping[str, Float[Tensor, " member"]]]:
    """Losses and gradients of one step after another; see `Engine.gradient`.

    Args:
        model: the members, at the precision of the products.
        task, training, seeds: what they are trained on, and each member's data seed.
        buffer: where the gradient goes, laid out as the weights.
        backend: of torch.compile.
    """
    weights = [weight.requires_grad_() for weight in model.weights.values()]
    gaps = _gaps(model, buffer)
    step = torch.zeros((), dtype=torch.int64, device=buffer.device)
    losses_of = _losses_of(model, own_task(task), training.batch_size, seeds, backend)
    names: list[str] = []

    def work() -> Tensor:
        losses = losses_of(step)
        found = torch.autograd.grad(losses["loss"].sum(), weights)
        with torch.no_grad():
            # One kernel for a hundred tensors, where a copy of each would take one for each.
            parts = (part for each, gap in zip(found, gaps, strict=True) for part in (each.flatten(1), gap))
            torch.cat([part for part in parts if part.shape[1]], 1, out=buffer)
        names[:] = losses
        return torch.stack(list(losses.values())).detach()

    replayed = Replayed(work, buffer.device)

    def of_step(number: int) -> Mapping[str, Tensor]:
        step.fill_(number)
        # The next replay writes to the same place.
        stacked = replayed().clone()
        return dict(zip(names, stacked, strict=True))

    return of_step


def _gaps(model: Transformer, buffer: Float[Tensor, "member size"]) -> list[Float[Tensor, "member _"]]:
    """Zeros that follow each weight in the buffer, none or a few."""
    views = model.parameters.views(buffer).values()
    starts = [view.storage_offset() - buffer.storage_offset() for view in views]
    ends = [start + view[0].numel() for start, view in zip(starts, views, strict=True)]
    following = zip(ends, [*starts[1:], buffer.shape[1]], strict=True)
    return [buffer.new_zeros(len(buffer), start - end) for end, start in following]


def _losses_of(
    model: Transformer, task: DeviceTask, batch_size: int, seeds: Tensor, backend: str
) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """From the number of a step to its losses, in programs for the beginning, a layer, the last layer and the end.

    One program for everything would be compiled anew for every number of layers, in a time that grows with it; these
    are compiled (and found again in torch's cache) once for all depths, and what they cost more is one pass over the
    stream for each layer.
    """

    def begin(step: Tensor) -> tuple[Tensor, Batch]:
        batch = task.sample(seeds, "train", step, batch_size, annotate=False)
        return model.embedded(batch.inputs), batch

    def inner(block: Block, stream: Tensor) -> Tensor:
        return block(stream)

    def last(block: Block, stream: Tensor) -> Tensor:
        return block(stream, model.rows)

    def end(stream: Tensor, batch: Batch) -> dict[str, Tensor]:
        return dict(task.losses(model.read_out(stream), batch))

    begun, through = _compiled(begin, backend), _compiled(inner, backend)
    finished, judged = _compiled(last, backend), _compiled(end, backend)

    def losses_of(step: Tensor) -> Mapping[str, Tensor]:
        stream, batch = begun(step)
        for block in model.blocks[:-1]:
            stream = through(block, stream)
        return judged(finished(model.blocks[-1], stream), batch)

    return losses_of


def update(
    optimizer: Optimizer, backend: str = "inductor"
) -> Callable[[int, Float[Tensor, " member"]], None]:
    """`Optimizer.step`, as a program of its own: where memory is short, gradients alone are computed in parts."""
    device = optimizer.gradient.device
    step = torch.zeros((), dtype=torch.int64, device=device)
    losses = torch.zeros(len(optimizer.gradient), device=device)

    def move(step: Tensor, losses: Tensor) -> None:
        optimizer.step(step, losses)

    compiled = _compiled(move, backend)
    replayed = Replayed(lambda: compiled(step, losses), device)

    def of_step(number: int, of_members: Tensor) -> None:
        step.fill_(number)
        losses.copy_(of_members)
        replayed()

    return of_step


def _compiled(work: Callable[_P, _R], backend: str) -> Callable[_P, _R]:
    """`work` compiled for the shapes that it is first called with."""
    # torch keeps what it compiled with the code, and a limited number for each: a copy has its own.
    assert isinstance(work, types.FunctionType)
    own = types.FunctionType(
        work.__code__.replace(), work.__globals__, work.__name__, work.__defaults__, work.__closure__
    )
    compiled: Callable[_P, _R] = torch.compile(own, fullgraph=True, dynamic=False, backend=backend)
    return compiled


class Replayed(Generic[_R]):
    """Work on tensors that stay where they are; on CUDA it is recorded as a graph after some calls, then replayed.

    Attributes:
        graph: the recording, once there is one.
    """

    def __init__(self, work: Callable[[], _R], device: torch.device, cuda: Any = torch.cuda):
        """`cuda` records and replays."""
        self.work, self.calls, self._cuda = work, 0, cuda
        self.graph: torch.cuda.CUDAGraph | None = None
        self._results: list[_R] = []
        # What is recorded must have been warmed up on the stream that it is recorded on.
        self._stream = cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self) -> _R:
        """Do it once; the result may be overwritten by the next call."""
        if self.graph is None and self._stream is not None and self.calls == WARM_UP:
            self._record()
        if self.graph is None:
            with _compiling() if self.calls == 0 else nullcontext():
                self._results = [self._done()]
            self.calls += 1
        else:
            self.graph.replay()
        return self._results[0]

    def _done(self) -> _R:
        if self._stream is None:
            return self.work()
        now = self._cuda.current_stream()
        self._stream.wait_stream(now)
        with self._cuda.stream(self._stream):
            result = self.work()
        now.wait_stream(self._stream)
        return result

    def _record(self) -> None:
        """Record without doing: what is launched here runs when the graph is replayed."""
        self._results.clear()
        graph = self._cuda.CUDAGraph()
        with self._cuda.graph(graph, stream=self._stream):
            self._results.append(self.work())
        self.graph = graph


@contextmanager
def _compiling() -> Iterator[None]:
    """Compile without torch's warnings, and turn a failure into one line."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import CppCompileError, InductorError, InvalidCxxCompiler

    with warnings.catch_warnings():
        # They are about what torch finds on its way (that float32 is not TF32, say), nothing that a user could mend.
        warnings.simplefilter("ignore")
        try:
            yield
        except (BackendCompilerFailed, InductorError, CppCompileError, InvalidCxxCompiler) as error:
            words = str(getattr(error, "inner_exception", error)).strip().splitlines() or ["no message"]
            raise UserError(
                f"engine: expected torch.compile to work, found: {words[0][:200]}; "
                "mend that, or use --engine general"
            ) from error
