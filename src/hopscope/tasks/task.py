"""A task: a frozen configuration, its shape, how samples are drawn, and what its losses are.  Without torch.

A subclass needs torch only inside the methods that compute, so that listing studies stays quick.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config, values_of
from hopscope.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws

Use = Literal["train", "held-out", "probe"]
"""What samples are for."""

Floors = Mapping[str, float | Mapping[str, float]]
"""Values that a metric has without learning: of the loss by name, of another metric under that metric's name."""

LEARNED = 1 / 3
"""Share of its lowest floor below which a part of the loss counts as learned: 0.25 for four chains."""


def expect(holds: bool, field: str, wanted: str, found: object) -> None:
    """Refuse the value of a field that is not what is wanted, by a `ValueError`."""
    if not holds:
        raise ValueError(f"{field}: expected {wanted}, found {found}")


def expect_readout(readout: tuple[int, ...], positions: int) -> None:
    """Refuse positions that are read out if they are none, not in order, or not among so many."""
    ascending = bool(readout) and [*readout] == sorted({*readout} & {*range(positions)})
    expect(ascending, "readout", f"ascending positions from 0 to {positions - 1}", readout)


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
    readout: tuple[int, ...]
    output_size: int = Field(ge=1)
    outputs: Literal["classes", "vectors"] = Field(
        default_factory=lambda given: "classes" if given.get("inputs") == "tokens" else "vectors"
    )
    position_size: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        expect_readout(self.readout, self.positions)
        vectors, size = self.inputs == "vectors", self.position_size
        most = f"less than input_size = {self.input_size}" if vectors else "0 with tokens"
        expect(size < (self.input_size if vectors else 1), "position_size", most, size)
        return self


class Task(Config):
    """A task: its fields are its configuration.  A subclass gives `shape` and `sample`; the rest is optional.

    Attributes:
        standard_loss: whether `"loss"` of one's own `parts` is the default one; engines without autograd ask.
        row_roles: roles by which the circuit reader tells rows apart; none: it finds out.
    """

    standard_loss: ClassVar[bool] = False
    row_roles: ClassVar[tuple[str, ...]] = ()

    def shape(self) -> Shape:
        """Sizes of inputs and predictions."""
        raise UserError(f"{type(self).__name__}: expected a method shape(self) -> hs.Shape, found none")

    def sample(self, draws: "Draws") -> "Batch":
        """Draw samples.  All randomness comes from `draws`; every tensor begins with the axes `[member, batch]`."""
        wanted = "a method sample(self, draws) -> hs.Batch"
        raise UserError(f"{type(self).__name__}: expected {wanted}, found none")

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Losses by name, each `[member]`; `"loss"` is minimised, the others are recorded.

        By default cross-entropy in nats for classes and squared error for vectors: the sum of weight · term over
        samples, readouts (and dimensions), divided by their number.  Predictions are `[member, batch, readout,
        output]`; the member axis of the batch may be 1.
        """
        from hopscope.tasks.batch import default_parts

        return default_parts(predictions, batch)

    def scores(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Further numbers of a model, each `[member]`; by default the accuracy where targets are classes."""
        from hopscope.tasks.batch import accuracy

        return {} if batch.targets.is_floating_point() else {"accuracy": accuracy(predictions, batch)}

    def floors(self) -> Floors:
        """Values without learning: of the loss (name → value), and of other metrics (metric → name → value)."""
        return {}

    def cases(self, use: Use) -> "Batch | None":
        """An exhaustive set that is measured instead of samples, with a member axis of 1; `None`: there is none."""
        return None

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor] | None":
        """Thing → the `inputs` with it exchanged; `None`: the circuit reader exchanges the inputs of a role."""
        return None

    def skills(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Answers that show a skill: name → `[1, batch, readout]` booleans.

        A circuit must keep the accuracy of learned skills; of a task without any, the learned parts of the loss.
        """
        return {}

    @property
    def words(self) -> Mapping[str, Any]:
        """How the task is written: `"roles"` (role → words of its integers) and `"token"` (function of a token id)."""
        return {}

    @classmethod
    def __pydantic_init_subclass__(cls, **given: Any) -> None:
        for name in cls.model_fields:
            if name in vars(Task):
                wanted = "fields with names of their own"
                raise UserError(f"{cls.__name__}: expected {wanted}, found {name!r}; rename it")

    def __hash__(self) -> int:
        return hash(repr(self))  # a field may be a list

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # Nothing that was worked out from the fields: `model_copy` may change these.
        object.__setattr__(copied, "__dict__", values_of(self))
        return copied


def role_words(task: Task) -> dict[str, tuple[str, ...]]:
    """Words of a task's roles; a role that is a plain number has no entry."""
    words: Any = task.words
    # An author may write `words` as a method, like the rest of a task.
    roles = (words() if callable(words) else words).get("roles", {})
    return {name: tuple(values) for name, values in roles.items()}
