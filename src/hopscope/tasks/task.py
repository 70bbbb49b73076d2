"""A task as its author writes it: a frozen configuration, its shape, and how samples are drawn.  Without torch.

A subclass of `Task` needs torch only inside `sample`, `parts` and `loss_gradient`, so that listing studies stays quick.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from hopscope.config import Config

if TYPE_CHECKING:
    import torch

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.device import DeviceTask
    from hopscope.tasks.draws import Draws
    from hopscope.tasks.plain_draws import PlainDraws

_Made = TypeVar("_Made")

Use = Literal["train", "held-out", "probe"]
"""What samples are for."""

Floors = Mapping[str, float | Mapping[str, float]]
"""Values that a metric has without learning: of the loss by name, of another metric under that metric's name."""


class Shape(Config):
    """The sizes of a task's inputs and predictions, which a model must fit.

    Attributes:
        inputs: `"tokens"` (ids below `input_size`) or `"vectors"` (of `input_size` features).
        input_size: vocabulary or number of features.
        positions: length of the input.
        readout: positions whose predictions are asked for, ascending.
        output_size: number of classes, or dimensions of a target vector.
        outputs: `"classes"` or `"vectors"`; by default classes for tokens and vectors for vectors.
        position_size: how many of an input vector's last features are a position code, which a model carries along.
    """

    inputs: Literal["tokens", "vectors"]
    input_size: int = Field(ge=1)
    positions: int = Field(ge=1)
    readout: tuple[int, ...] = Field(min_length=1)
    output_size: int = Field(ge=1)
    outputs: Literal["classes", "vectors"]
    position_size: int = Field(0, ge=0)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            inputs: Literal["tokens", "vectors"],
            input_size: int,
            positions: int,
            readout: tuple[int, ...],
            output_size: int,
            outputs: Literal["classes", "vectors"] | None = None,
            position_size: int = 0,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _outputs_like_inputs(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("outputs") is None:
            return {**given, "outputs": "classes" if given.get("inputs") == "tokens" else "vectors"}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        inside = all(0 <= position < self.positions for position in self.readout)
        if not inside or list(self.readout) != sorted(set(self.readout)):
            raise ValueError(
                f"readout: expected ascending positions from 0 to {self.positions - 1}, found {self.readout}"
            )
        if self.position_size and (self.inputs != "vectors" or self.position_size >= self.input_size):
            raise ValueError(
                f"position_size: expected 0, or with inputs 'vectors' less than input_size = {self.input_size}, "
                f"found {self.position_size} with inputs {self.inputs!r}"
            )
        return self


class Task(Config):
    """A task: its fields are its configuration.  A subclass gives `shape` and `sample`; the rest is optional."""

    def shape(self) -> Shape:
        """Sizes of inputs and predictions."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a method shape(self) -> hs.Shape, found none"
        )

    def sample(self, draws: "Draws") -> "Batch":
        """Draw samples.  All randomness comes from `draws`; every tensor begins with the axes `[member, batch]`."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a method sample(self, draws) -> hs.Batch, found none"
        )

    def parts(self, predictions: "torch.Tensor", batch: "Batch") -> "Mapping[str, torch.Tensor]":
        """Losses by name, each `[member]`; `"loss"` is minimised, the others are recorded.

        By default cross-entropy in nats for classes and squared error for vectors: the sum of weight · term over
        samples, readouts (and dimensions), divided by their number.

        Args:
            predictions: `[member, batch, readout, output]`.
            batch: what was asked; its member axis may be 1.
        """
        from hopscope.tasks.losses import default_parts

        return default_parts(predictions, batch)

    def loss_gradient(self, predictions: "torch.Tensor", batch: "Batch") -> "torch.Tensor":
        """Derivative of the sum of the members' `"loss"` by the predictions, for engines without autograd."""
        from hopscope.tasks.losses import default_gradient

        return default_gradient(predictions, batch)

    @property
    def differentiable_without_autograd(self) -> bool:
        """Whether `loss_gradient` belongs to `parts`: both are the default, or the task gives the gradient."""
        own = type(self)
        return own.parts is Task.parts or own.loss_gradient is not Task.loss_gradient

    def floors(self) -> Floors:
        """Values without learning: of the loss (name → value), and of other metrics (metric → name → value)."""
        return {}

    def cases(self, use: Use) -> "Batch | None":
        """An exhaustive set that is measured instead of samples, with a member axis of 1; `None`: there is none."""
        return None

    def reference(self, draws: "PlainDraws") -> "Mapping[str, Any] | None":
        """One sample in plain Python, as nested lists by the names of `hs.Batch`; the tests hold `sample` to it.

        `None`: there is no reference.
        """
        return None

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, torch.Tensor] | None":
        """Inputs with one thing exchanged, by the name of that thing, for the circuit reader.

        By default (`None`) the reader takes the inputs of one role from another sample.
        """
        return None

    def faithfulness_criterion(
        self, predictions: "torch.Tensor", batch: "Batch", threshold: float | None
    ) -> Any:
        """A criterion of one's own for circuits: an object like `hopscope.circuits.criteria.FaithfulnessCriterion`.

        By default (`None`) a circuit must keep those parts of the loss that the model has learned.

        Args:
            predictions: of the model itself, `[1, batch, readout, output]`.
            batch: what was asked, with a member axis of 1.
            threshold: the loss that a circuit may have, if one was asked for.
        """
        return None

    @property
    def words(self) -> Mapping[str, Any]:
        """How the task is written: `"roles"` (role → words of its integers) and `"token"` (function of a token id)."""
        return {}

    @property
    def held_out_seed(self) -> int:
        """Data seed of held-out samples, so that all members answer the same."""
        return 0

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "DeviceTask":
        """The task on a device, as the trainer uses it.

        Args:
            device: where samples are made.
            examples: number of different training samples that each member sees; `None`: fresh ones without end.
        """
        from hopscope.tasks.device import TaskOnDevice

        return TaskOnDevice(self, device, examples)


def _words(task: Task) -> Mapping[str, Any]:
    words: Any = task.words
    # An author may write `words` as a method, like the rest of a task.
    return words() if callable(words) else words


def token_words(task: Task) -> Callable[[int], str]:
    """The function that writes a token: the one in the task's `words`, or `str`."""
    return _words(task).get("token", str)


def role_words(task: Task) -> dict[str, tuple[str, ...]]:
    """Words of a task's roles; a role that is a plain number has no entry."""
    return {name: tuple(words) for name, words in _words(task).get("roles", {}).items()}


class BuiltInTask(Task):
    """A task of this package: `on` gives its device class, which draws samples and knows the losses."""

    def sample(self, draws: "Draws") -> "Batch":
        """Samples at the addresses of some draws."""
        return self.on(draws.device).drawn(draws)

    def parts(self, predictions: "torch.Tensor", batch: "Batch") -> "Mapping[str, torch.Tensor]":
        """Losses by name, each `[member]`."""
        return self.on(predictions.device).losses(predictions, batch)

    def loss_gradient(self, predictions: "torch.Tensor", batch: "Batch") -> "torch.Tensor":
        """Derivative of the sum of the members' `"loss"` by the predictions."""
        return self.on(predictions.device).slope(predictions, batch)

    @property
    def held_out_seed(self) -> int:
        """Seed of the held-out samples: the split seed, where there is one."""
        return int(getattr(self, "split_seed", 0))


def made(kind: Callable[..., _Made], task: Task, device: "torch.device | str", *more: Any) -> _Made:
    """The device class of a task, whose tables are kept for the next call."""
    try:
        return _kept(kind, task, str(device), *more)
    except TypeError:
        # Somebody's subclass may have a field that cannot be a key.
        return kind(task, device, *more)


@lru_cache(maxsize=8)
def _kept(kind: Callable[..., _Made], task: Task, device: str, *more: Any) -> _Made:
    return kind(task, device, *more)
