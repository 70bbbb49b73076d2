"""The transformer of this laboratory: one module; one model or a thousand is the size of one axis.

Parameters are `[*member, in, out]`.  Without a member axis it is a plain `torch.nn.Module`, which any PyTorch tool
takes; `member(i)` of an ensemble is one.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from hopscope_next.errors import UserError
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.init import initialise
from hopscope_next.models.layers import At, Layer, Linear, Norm, Precision, Stream, Table, affine
from hopscope_next.models.sites import (
    PREDICTIONS,
    Cache,
    SiteFunction,
    at_layer,
    calling,
    check_sites,
    described,
)
from hopscope_next.tasks import Batch, Task, draw, held_out

_ALIGNMENT = 16
"""Weights start at multiples of 64 bytes, so that a product's rounding does not depend on what precedes it."""


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT) * _ALIGNMENT


Interventions = Mapping[str, Any] | Sequence[Any]
"""A dict from site to function, or a list of such dicts and of interventions.  An intervention has a method
`functions(model, batch)` that gives such a dict."""


class Embedding(nn.Module):
    """Token or vector, and position code."""

    def __init__(self, config: TransformerConfig, members: int | None, precision: Precision):
        super().__init__()
        self.config = config
        if config.input_kind == "tokens":
            self.token = Table(members, config.input_size, config.width)
        else:
            self.vector = Linear(members, config.input_size, config.width, precision)
        if config.position_count:
            self.position = Table(members, config.position_count, config.width)

    def forward(self, inputs: Tensor, at: At | None = None) -> Stream:
        """The stream before the first layer."""
        if at is None or not self.config.position_size:
            symbol = self._tokens(inputs) if self.config.input_kind == "tokens" else self.vector(inputs)
            code = self._codes(inputs) if self.config.position_count else None
        else:  # a code that is part of the input vector, told apart
            cut, weight = self.config.input_size - self.config.position_size, self.vector.weight
            symbol = affine(inputs[..., :cut], weight[..., :cut, :], self.vector.bias, self.vector.dtype)
            nothing = torch.zeros_like(self.vector.bias)
            code = affine(inputs[..., cut:], weight[..., cut:, :], nothing, self.vector.dtype)
        if at is None:
            return symbol if code is None else symbol + code
        symbol = at("hook_embed", symbol)
        return symbol if code is None else symbol + at("hook_pos_embed", code.expand_as(symbol).clone())

    def _tokens(self, inputs: Tensor) -> Tensor:
        table: Tensor = self.token.weight
        if table.ndim == 3:  # one look-up for all members, whose tables follow one another
            inputs = (
                inputs + self.config.input_size * torch.arange(len(table), device=table.device)[:, None, None]
            )
        return functional.embedding(inputs, table.reshape(-1, self.config.width))

    def _codes(self, inputs: Tensor) -> Tensor:
        codes: Tensor = self.position.weight
        if self.config.positions == "pair":
            # Made on the device (0 0 1 1 2 …): a copy from the host could not be recorded as a CUDA graph.
            codes = codes.index_select(-2, torch.arange(self.config.length, device=codes.device) // 2)
        return codes[..., None, : inputs.shape[-1], :]


class Transformer(nn.Module):
    """A transformer, or an ensemble of transformers of one shape.

    Attributes:
        config: its shape.
        members: number of members; `None`: a single model, whose tensors have no member axis.
        precision: of the factors of matrix products.
        rows: readout positions, as the last layer computes them.
        seeds: data seeds of the members, `None` where they are not known.
        step: training step of the weights, `None` where it is not known.
    """

    def __init__(
        self, config: TransformerConfig, members: int | None = None, precision: Precision = "float32"
    ):
        """A model whose weights are yet to be filled in; made on torch's default device."""
        super().__init__()
        self.config, self.members, self.precision = config, members, precision
        hidden = torch.zeros(config.length, config.length)
        if config.causal:
            hidden.masked_fill_(torch.ones_like(hidden).triu(1).bool(), -torch.inf)
        # Once: a copy from the host could not be recorded as a CUDA graph.
        positions = config.readout_positions
        steps = {after - before for before, after in itertools.pairwise(positions)}
        self._spaced = None if len(steps) > 1 else slice(positions[0], positions[-1] + 1, *steps)
        self.register_buffer("_readout_rows", torch.tensor(positions), persistent=False)
        self._readout_rows: Tensor
        self.embed = Embedding(config, members, precision)
        self.layers = nn.ModuleList(Layer(config, members, hidden, precision) for _ in range(config.layers))
        if config.norm == "pre":
            self.final_norm = Norm(members, config.width)
        self.readout = Linear(members, config.width, config.output_size, precision)
        self.seeds: tuple[int, ...] | None = None
        self.step: int | None = None
        self._task: Task | Callable[[], Task] | None = None

    @classmethod
    def initial(
        cls,
        config: TransformerConfig,
        seeds: Int[Tensor, " member"] | int,
        device: torch.device | str = "cpu",
    ) -> "Transformer":
        """Freshly drawn members, one for each seed; of a plain number a single model."""
        with torch.device(device):
            model = cls(config, None if isinstance(seeds, int) else len(seeds))
        drawn = torch.tensor([seeds]) if isinstance(seeds, int) else seeds
        initialise(model, config, drawn.to(device))
        return model

    # The forward pass.

    def forward(
        self, inputs: Tensor, at: At | None = None, *, every_position: bool = False
    ) -> Float[Tensor, "*member batch readout output"]:
        """Predictions at the readout positions (or at every position).

        Args:
            inputs: token ids `[*member, batch, position]` or vectors `[*member, batch, position, feature]`; a member
                axis of 1 hands the same samples to every member.  Fewer positions than the model has are allowed:
                then those readout positions are answered that are there.
            at: called at every named site (`hopscope.models.sites`); the pass goes on with what it returns.
            every_position: predictions at all positions; then there is no site `predictions`.

        Raises:
            UserError: inputs of another shape, or token ids out of range.
        """
        inputs = self._checked(inputs)
        whole = every_position or at is not None or inputs.shape[self._batch_axis + 1] != self.config.length
        stream = self._embedded(inputs, at)
        for number, layer in enumerate(self.layers):
            last = number == self.config.layers - 1
            inside = None if at is None else at_layer(at, number)  # an empty cache is false
            stream = layer(stream, None if whole or not last else self.rows, inside)
        found = self.read_out(stream, at)
        if not whole or every_position:
            return found
        found = found[..., self.readout_rows(inputs.shape[self._batch_axis + 1]), :]
        return found if at is None else at(PREDICTIONS, found)

    def embedded(self, inputs: Tensor) -> Stream:
        """The stream before the first layer."""
        return self._embedded(self._checked(inputs), None)

    def read_out(
        self, stream: Stream, at: At | None = None
    ) -> Float[Tensor, "*member batch position output"]:
        """Predictions from the stream after the last layer."""
        if self.config.norm == "pre":
            stream = self.final_norm(stream)
            stream = stream if at is None else at("ln_final.hook_normalized", stream)
        return self.readout(stream)

    def readout_rows(self, positions: int) -> list[int]:
        """Readout positions that inputs of this length have."""
        return [position for position in self.config.readout_positions if position < positions]

    @property
    def rows(self) -> slice | Int[Tensor, " readout"]:
        """Readout positions: a slice where they are evenly spaced, since its gradient is a copy, that of an index a
        sum."""
        return self._readout_rows if self._spaced is None else self._spaced

    @property
    def _batch_axis(self) -> int:
        return 0 if self.members is None else 1

    def _checked(self, inputs: Tensor) -> Tensor:
        """Inputs with the member axis of this model; refuses other shapes, looks at no value."""
        config = self.config
        features = () if config.input_kind == "tokens" else (config.input_size,)
        if isinstance(inputs, Tensor) and self.members is not None and inputs.ndim == 2 + len(features):
            inputs = inputs[None]
        wanted = self._batch_axis + 2 + len(features)
        fits = (
            isinstance(inputs, Tensor)
            and inputs.ndim == wanted
            and inputs.shape[self._batch_axis + 2 :] == features
            and 1 <= inputs.shape[self._batch_axis + 1] <= config.length
            and (self.members is None or inputs.shape[0] in (1, self.members))
            and inputs.is_floating_point() == bool(features)
        )
        if not fits:
            axes = ", ".join(map(str, ("batch", f"1 to {config.length} positions", *features)))
            lead = f", with or without an axis of 1 or {self.members} members before" if self.members else ""
            kind = "float32 vectors" if features else "int64 token ids"
            raise UserError(f"inputs: expected {kind} [{axes}]{lead}, found {described(inputs)}")
        return inputs if self.members is None else inputs.expand(self.members, *inputs.shape[1:])

    def _embedded(self, inputs: Tensor, at: At | None) -> Tensor:
        try:
            return self.embed(inputs, at)
        except IndexError:  # looked at once a look-up has failed
            found = f"{int(inputs.min())} to {int(inputs.max())}"
            last = self.config.input_size - 1
            raise UserError(f"inputs: expected token ids from 0 to {last}, found {found}") from None

    # Looking inside.

    def cache(self, inputs: Tensor, names: Iterable[str] | None = None) -> Cache:
        """The tensors of named sites (by default all), without gradients; see `hopscope.models.sites`.

        For gradients call the model with a cache of your own: `model(inputs, cache := Cache())`.

        Raises:
            UserError: the model cannot read these inputs, or has no such site.
        """
        names = None if names is None else list(names)
        check_sites(names or (), self.config)
        cache = Cache(names)
        with torch.no_grad():
            self(inputs, cache)
        return cache

    def intervene(
        self, batch: Batch, interventions: Interventions
    ) -> Float[Tensor, "*member batch readout output"]:
        """Predictions at the readout positions under interventions, without gradients.

        Args:
            batch: samples; its roles and relations say which rows are meant.
            interventions: what to change.  Several functions of one site are called in their order.

        Raises:
            UserError: something does not exist, or a function returns something of another shape.
        """
        if not isinstance(batch, Batch):
            raise UserError(
                f"batch: expected a Batch, such as .batch(64) gives, found {type(batch).__name__}; "
                "roles and relations say where to intervene"
            )
        if not isinstance(interventions, Mapping | list | tuple):
            raise UserError(
                "interventions: expected a list of interventions, or a dict from site to function, "
                f"found {type(interventions).__name__}; put it into a list"
            )
        functions: dict[str, list[SiteFunction]] = {}
        with torch.no_grad():
            for each in [interventions] if isinstance(interventions, Mapping) else interventions:
                for name, function in self._functions(each, batch).items():
                    functions.setdefault(name, []).append(function)
            return self(batch.inputs, calling(functions))

    def _functions(self, each: Any, batch: Batch) -> Mapping[str, SiteFunction]:
        if not isinstance(each, Mapping):
            if not hasattr(each, "functions"):
                raise UserError(
                    "interventions: expected interventions such as ReplacePattern(layer=0, by='uniform'), "
                    f"and dicts from site to function, found {each!r}"
                )
            each = each.functions(self, batch)
        check_sites(each, self.config)
        for name, function in each.items():
            if not callable(function):
                raise UserError(f"{name}: expected a function of the tensor at this site, found {function!r}")
        return each

    # Weights.

    def weights(self) -> dict[str, Tensor]:
        """Name → weight `[*member, …]`, without gradients; they share memory with the parameters."""
        return {name: parameter.data for name, parameter in self.named_parameters()}

    def load(self, weights: Mapping[str, Tensor]) -> "Transformer":
        """Take over weights by name.

        Raises:
            ValueError: a name is missing or unknown, or a shape differs.
        """
        own = self.weights()
        found = {name: tuple(weight.shape) for name, weight in weights.items()}
        expected = {name: tuple(weight.shape) for name, weight in own.items()}
        if found != expected:
            wrong = next(name for name in {**expected, **found} if expected.get(name) != found.get(name))
            raise ValueError(f"{wrong}: expected shape {expected.get(wrong)}, found {found.get(wrong)}")
        for name, weight in own.items():
            weight.copy_(weights[name])
        return self

    @property
    def layout(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """Name, start, end and shape of each weight of a member in a flat buffer; see `flatten`."""
        places, start = [], 0
        for name, parameter in self.named_parameters():
            shape = tuple(parameter.shape[self._batch_axis :])
            size = math.prod(shape)
            places.append((name, start, start + size, shape))
            start = _aligned(start + size)
        return places

    def flatten(self) -> Float[Tensor, "member size"]:
        """Move all weights into one buffer, a row for each member, of which the parameters become views.

        Optimiser, gradient norms and the divergence guard are then a handful of operations for all members and weights.
        Gaps for alignment are zeros.
        """
        flat = torch.zeros(len(self), self._size, device=self.readout.weight.device)
        for view, parameter in zip(self.views(flat).values(), self.parameters(), strict=True):
            own = view if self.members is not None else view[0]
            parameter.data = own.copy_(parameter.data)
        return flat

    def views(self, flat: Float[Tensor, "member size"]) -> dict[str, Tensor]:
        """Name → view `[member, …]` of a buffer that is laid out as `flatten` does."""
        return {name: flat[:, start:end].view(len(flat), *shape) for name, start, end, shape in self.layout}

    def decay_mask(self) -> Float[Tensor, " size"]:
        """1 where weight decay is meant for matrices only: not biases, norms and embeddings; as a row of `flatten`."""
        matrices = {f"{name}.weight" for name, module in self.named_modules() if isinstance(module, Linear)}
        mask = torch.zeros(self._size)
        for name, start, end, _ in self.layout:
            mask[start:end] = float(name in matrices)
        return mask.to(self.readout.weight.device)

    @property
    def _size(self) -> int:
        return _aligned(self.layout[-1][2])

    def at_precision(self, precision: Precision) -> "Transformer":
        """The same members, with products of another precision; the parameters are shared."""
        if precision == self.precision:
            return self
        with torch.device("meta"):
            twin = Transformer(self.config, self.members, precision)
        for name, module in twin.named_modules():
            own = self.get_submodule(name)
            module._parameters.update(own._parameters)
            module._buffers.update(own._buffers)
        return twin.knowing(self._task, self.seeds, self.step)

    # Members.

    def member(self, index: int) -> "Transformer":
        """Member `index` (counted from 0) as a plain module with its own copy of the weights.

        Raises:
            UserError: there is no such member.
        """
        if self.members is None or not 0 <= index < self.members:
            have = "a single model" if self.members is None else f"0 to {self.members - 1}"
            raise UserError(f"member: expected {have}, found {index}")
        return self._copy(None, index)

    def select(self, indices: Sequence[int]) -> "Transformer":
        """An ensemble of copies of some members."""
        return self._copy(len(indices), list(indices))

    def _copy(self, members: int | None, chosen: int | list[int]) -> "Transformer":
        with torch.device(self.readout.weight.device):
            copy = Transformer(self.config, members, self.precision)
        copy.load({name: weight[chosen] for name, weight in self.weights().items()})
        numbers = [chosen] if isinstance(chosen, int) else chosen
        return copy.knowing(self._task, self.seeds and [self.seeds[each] for each in numbers], self.step)

    def __len__(self) -> int:
        """Number of members; 1 for a single model."""
        return self.members or 1

    # The task.

    def knowing(
        self,
        task: Task | Callable[[], Task] | None,
        seeds: Sequence[int] | None = None,
        step: int | None = None,
    ) -> "Transformer":
        """This model, which now knows its task (or a function that finds it), data seeds and training step."""
        self._task, self.step = task, step
        self.seeds = None if seeds is None else tuple(seeds)
        return self

    @property
    def task(self) -> Task | None:
        """The task that it was trained on; `None` where none is known.

        Raises:
            UserError: it cannot be found, such as when a study's file has changed.
        """
        if self._task is not None and not isinstance(self._task, Task):
            self._task = self._task()
        return self._task

    def batch(self, n: int = 64, use: str = "held-out") -> Batch:
        """Samples of its task: inputs `[*member, batch, position]`, targets `[*member, batch, readout]`.

        Args:
            n: how many (fewer where the task has fewer).
            use: `"held-out"`, `"train"` or `"probe"` (those of the first step).  All members share held-out samples:
                their member axis is 1.

        Raises:
            UserError: the task is not known, or a use does not exist.
        """
        task, device = self.task, self.readout.weight.device
        if task is None:
            raise UserError(
                "batch: expected a model that knows its task, found weights alone; load it from its run"
            )
        if n < 1:
            raise UserError(f"n: expected at least 1 sample, found {n}")
        if use == "held-out":
            found = held_out(task, n, device)
        elif use not in ("train", "probe"):
            raise UserError(f"use: expected 'held-out', 'train' or 'probe', found {use!r}")
        elif not self.seeds:
            raise UserError(f"use: expected 'held-out' for members whose seeds are not known, found {use!r}")
        else:
            found = draw(task, torch.tensor(self.seeds, device=device), use, 0, n)
        found = found.take(slice(n))
        return found if self.members is not None else found.changed(lambda tensor: tensor[0])

    def __repr__(self) -> str:
        shape, count = self.config, "" if self.members is None else f"{self.members} × "
        said = f"{shape.layers} × {shape.heads} heads of {shape.head_size}, width {shape.width}"
        size = sum(parameter.numel() for parameter in self.parameters()) // len(self)
        return f"Transformer({count}{said}, {shape.length} positions, {size:,} weights)"
