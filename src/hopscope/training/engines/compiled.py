"""Training steps as compiled programs, recorded once and replayed (for CUDA; on a CPU they are compiled only).

`torch.compile` makes a few large kernels of what eager PyTorch does in hundreds of small ones.  On CUDA what is left to
launch is recorded as two graphs, one for losses and gradient and one for the optimiser, and each step replays them: the
host hands on a batch and the number of the step, and waits for nothing.
"""

import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task
from hopscope.training.config import Training
from hopscope.training.optimiser import Optimiser

from .autograd import Step, batches, gradient_into

WARM_UP = 3
"""Steps that are taken before one is recorded: compiling, loading kernels and choosing products cannot be recorded."""


def gradient(
    model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor, by: Any = "inductor"
) -> Step:
    """The engine; `by` is the backend of torch.compile."""
    batch_of, names, written = batches(task, training, seeds), list[str](), gradient_into(model, buffer)
    # What is not copied to these places at every step, a program must not read.
    given = batch_of(0).plain().changed(torch.clone)
    losses_of = _losses_of(model, task, given, by)

    def work() -> Tensor:
        losses = written(losses_of())
        names[:] = losses
        return torch.stack(list(losses.values()))

    replayed = Replayed(work, buffer.device)

    def of_step(number: int) -> dict[str, Tensor]:
        batch = batch_of(number)
        for field in ("inputs", "targets", "weights"):
            if getattr(given, field) is not None:
                getattr(given, field).copy_(getattr(batch, field))
        found = replayed().clone()  # the next replay writes to the same place
        return dict(zip(names, found, strict=True))

    return of_step


def _losses_of(model: Transformer, task: Task, given: Batch, backend: Any) -> Callable[[], dict[str, Tensor]]:
    # Programs for the beginning, a layer, the last layer and the end: one for everything would be compiled anew for
    # every number of layers, in a time that grows with it; these are compiled (and found again in torch's cache) once
    # for all depths, and what they cost more is one pass over the stream for each layer.
    begin = _compiled(lambda inputs: model.embedded(inputs), backend)
    inner = _compiled(lambda layer, stream: layer(stream), backend)
    last = _compiled(lambda layer, stream: layer(stream, model.rows), backend)
    end = _compiled(lambda stream, batch: dict(task.parts(model.read_out(stream), batch)), backend)

    def losses_of() -> dict[str, Tensor]:
        stream = begin(given.inputs)
        for layer in model.layers[:-1]:
            stream = inner(layer, stream)
        found: dict[str, Tensor] = end(last(model.layers[-1], stream), given)
        return found

    return losses_of


def update(optimiser: Optimiser, by: Any = "inductor") -> Callable[[int, Tensor], None]:
    """`Optimiser.step` as a program of its own."""
    losses = optimiser.flat.new_zeros(len(optimiser.flat))
    scalars = optimiser.flat.new_zeros(3, dtype=torch.float64).unbind()
    move = _compiled(lambda *given: optimiser.move(*given), by)
    replayed = Replayed(lambda: move(losses, *scalars), losses.device)

    def of_step(number: int, of_members: Tensor) -> None:
        for place, value in zip(scalars, optimiser.scalars(number), strict=True):
            place.fill_(value)
        losses.copy_(of_members)
        replayed()

    return of_step


def _compiled(work: Any, backend: Any) -> Any:
    # torch keeps what it compiled with the code, and a limited number for each: a copy has its own.
    own = types.FunctionType(work.__code__.replace(), work.__globals__, work.__name__, None, work.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=False, backend=backend)


class Replayed:
    """Work on tensors that stay where they are; on CUDA it is recorded as a graph after some calls, then replayed."""

    def __init__(self, work: Callable[[], Any], device: torch.device, cuda: Any = torch.cuda):
        """`cuda` records and replays."""
        self._work, self._cuda, self._calls, self._graph = work, cuda, 0, None
        # What is recorded must have been warmed up on the stream that it is recorded on.
        self._stream: Any = cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self) -> Any:
        """Do it once; the result may be overwritten by the next call."""
        if self._stream is not None and self._calls == WARM_UP:
            self._graph = self._cuda.CUDAGraph()
            # What is launched here runs when it is replayed.
            with self._cuda.graph(self._graph, stream=self._stream):
                self._result = self._work()
        self._calls += 1
        if self._graph is not None:
            self._graph.replay()
            return self._result
        with _compiling() if self._calls == 1 else nullcontext():
            return self._work() if self._stream is None else self._aside()

    def _aside(self) -> Any:
        now = self._cuda.current_stream()
        self._stream.wait_stream(now)
        with self._cuda.stream(self._stream):
            result = self._work()
        now.wait_stream(self._stream)
        return result


@contextmanager
def _compiling() -> Iterator[None]:
    with warnings.catch_warnings():
        # They are about what torch finds on its way (that float32 is not TF32, say), nothing that a user could mend.
        warnings.simplefilter("ignore")
        try:
            yield
        except RuntimeError as error:  # torch's and Triton's own, a missing compiler among them
            if "out of memory" in str(error) or "ALLOC_FAILED" in str(error):
                raise
            words = str(getattr(error, "inner_exception", error)).strip().splitlines() or ["no message"]
            found = f"{words[0][:200]}; mend that, or use engine autograd"
            raise UserError(f"engine: expected torch.compile to work, found: {found}") from error
