"""Whether a batch has the shape that its task declares: one line where it has not."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch, given
from hopscope.tasks.task import Shape


@dataclass(frozen=True)
class BatchCheck:
    """A check that a batch is as its task declares.

    Attributes:
        maker: what made it, such as `Copy.sample`.
        shape: of the task.
        size: numbers of members and samples.
        device: where it should lie.
    """

    maker: str
    shape: Shape
    size: tuple[int, int]
    device: torch.device

    def __call__(self, batch: object, annotate: bool = True) -> Batch:
        """Return a batch that is right.

        Functions of groups, roles and relations are not called.

        Args:
            batch: what was made.
            annotate: whether groups, roles and relations are looked at.

        Raises:
            UserError: names the maker, the field, what was expected and what was found.
        """
        if not isinstance(batch, Batch):
            raise UserError(f"{self.maker}: expected an hs.Batch, found {type(batch).__name__}")
        vectors, classes = self.shape.inputs == "vectors", self.shape.outputs == "classes"
        inputs = (self.shape.positions, *((self.shape.input_size,) if vectors else ()))
        targets = (len(self.shape.readout), *(() if classes else (self.shape.output_size,)))
        self._tensor("inputs", batch.inputs, inputs, torch.float32 if vectors else torch.int64)
        self._tensor("targets", batch.targets, targets, torch.int64 if classes else torch.float32)
        self._values("inputs", batch.inputs, self.shape.input_size)
        self._values("targets", batch.targets, self.shape.output_size)
        if batch.weights is not None:
            self._weights(batch.weights, (*self.size, *targets))
        if annotate:
            self._annotations(batch)
        return batch

    def _annotations(self, batch: Batch) -> None:
        for name, values in given(batch.groups).items():
            self._tensor(f"groups[{name!r}]", values, (), torch.bool)
        for kind in ("roles", "relations"):
            for name, values in given(getattr(batch, kind)).items():
                self._tensor(f"{kind}[{name!r}]", values, (self.shape.positions,), torch.int64)

    def _tensor(self, field: str, value: object, trailing: tuple[int, ...], dtype: torch.dtype) -> None:
        """Type, shape, number type and device."""
        shape = [*self.size, *trailing]
        if not isinstance(value, Tensor):
            raise self._wrong(field, f"a tensor of shape {shape}", type(value).__name__)
        if list(value.shape) != shape:
            raise self._wrong(field, f"shape {shape}", f"{list(value.shape)}")
        if value.dtype != dtype:
            raise self._wrong(field, str(dtype), str(value.dtype))
        self._place(field, value)

    def _place(self, field: str, value: Tensor) -> None:
        wanted, found = self.device, value.device
        if found.type != wanted.type or wanted.index not in (None, found.index):
            raise self._wrong(field, f"it on {wanted} (see draws.device)", f"it on {found}")

    def _values(self, field: str, values: Tensor, limit: int) -> None:
        if values.is_floating_point():
            if not bool(values.isfinite().all()):
                raise self._wrong(field, "finite numbers", "NaN or infinity")
            return
        lowest, highest = (int(value) for value in values.aminmax())
        if lowest < 0 or highest >= limit:
            raise self._wrong(field, f"ids from 0 to {limit - 1}", f"{lowest} to {highest}")

    def _weights(self, weights: object, shape: tuple[int, ...]) -> None:
        wanted = f"float32 weights that broadcast to {list(shape)}"
        if not isinstance(weights, Tensor) or weights.dtype != torch.float32:
            found = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
            raise self._wrong("weights", wanted, str(found))
        # Weights of vectors may leave out the axis of their dimensions.
        fits = all(size in (1, whole) for size, whole in zip(weights.shape, shape, strict=False))
        if weights.dim() not in (3, len(shape)) or not fits:
            raise self._wrong("weights", wanted, f"shape {list(weights.shape)}")
        self._place("weights", weights)
        if not bool((weights.isfinite() & (weights >= 0.0)).all()):
            raise self._wrong("weights", "finite numbers from 0", f"{weights.min():g} to {weights.max():g}")

    def _wrong(self, field: str, expected: str, found: str) -> UserError:
        return UserError(f"{self.maker}: {field}: expected {expected}, found {found}")
