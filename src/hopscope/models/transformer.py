"""The transformer of this laboratory: one module; one model or a thousand is the size of one axis.

Parameters are `[*member, in, out]`.  Without a member axis it is a plain `torch.nn.Module`, which any PyTorch tool
takes; `member(i)` of an ensemble is one.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.init import initialise
from hopscope.models.layers import At, Embedding, Layer, Linear, Norm, Precision, Stream, unchanged
from hopscope.models.sites import Cache, SiteFunction, calling, check_sites, described, site_names
from hopscope.tasks import Batch, Task, draw
from hopscope.tasks.draws import Seeds
from hopscope.tasks.samples import some_held_out

_ALIGNMENT = 16
"""Weights start at multiples of 64 bytes, so that a product's rounding does not depend on what precedes it."""

Predictions = Float[Tensor, "*member batch readout output"]

Known = Task | Callable[[], Task] | None
"""A task, or a function that finds it."""

Interventions = Any
"""A dict from site to function, an intervention, which has a method `functions(model, batch)` that gives such a dict,
or a list of both."""


class Transformer(nn.Module):
    """A transformer, or an ensemble of transformers of one shape.

    Attributes:
        config: its shape; `precision`: of the factors of matrix products.
        members: number of members; `None`: a single model, whose tensors have no member axis.
        rows: readout positions, as the last layer computes them.
        seeds, step: data seeds of the members, and training step of the weights; `None` where they are not known.
        examples: size of the pool that they are trained on; `None`: there is none.
    """

    rows: slice | Tensor
    precision: Precision = "float32"
    seeds: tuple[int, ...] | None = None
    step: int | None = None
    examples: int | None = None
    _task: Known = None

    def __init__(self, config: TransformerConfig, members: int | None = None):
        """A model whose weights are yet to be filled in; made on torch's default device."""
        super().__init__()
        self.config, self.members = config, members
        hidden = torch.full((config.length, config.length), -torch.inf if config.causal else 0.0).triu(1)
        positions = config.readout_positions
        steps = {after - before for before, after in itertools.pairwise(positions)}
        if len(steps) > 1:
            # Once: a copy from the host could not be recorded as a CUDA graph.
            self.register_buffer("rows", torch.tensor(positions), persistent=False)
        else:  # the gradient of a slice is a copy, that of an index a sum
            self.rows = slice(positions[0], positions[-1] + 1, *steps)
        self.embed = Embedding(config, members)
        self.layers = nn.ModuleList(Layer(config, members, hidden) for _ in range(config.layers))
        if config.norm == "pre":
            self.final_norm = Norm(members, config.width)
        self.readout = Linear(members, config.width, config.output_size)

    @classmethod
    def initial(
        cls, config: TransformerConfig, seeds: Seeds | int, device: torch.device | str = "cpu"
    ) -> "Transformer":
        """Freshly drawn members, one for each seed; of a plain number a single model."""
        with torch.device(device):
            model = cls(config, None if isinstance(seeds, int) else len(seeds))
        initialise(model, config, torch.as_tensor(seeds, device=device).view(-1))
        return model

    # The forward pass.

    def forward(self, inputs: Tensor, at: At = unchanged, *, every_position: bool = False) -> Predictions:
        """Predictions at the readout positions (or at every position); a `UserError` if inputs do not fit.

        Args:
            inputs: token ids `[*member, batch, position]` or vectors `[*member, batch, position, feature]`; a member
                axis of 1, or none, hands the same samples to every member.  There may be fewer positions than the
                model has.
            at: called at every named site (`hopscope.models.sites`); the pass goes on with what it returns.
            every_position: predictions at all positions; then there is no site `predictions`.
        """
        stream, quick = self.embedded(inputs, at), at is unchanged
        length, last = stream.shape[-2], self.config.layers - 1
        whole = every_position or not quick or length != self.config.length
        for number, layer in enumerate(self.layers):
            rows = None if whole or number < last else self.rows
            inside = at if quick else lambda name, value, number=number: at(f"blocks.{number}.{name}", value)
            stream = layer(stream, rows, inside)
        found = self.read_out(stream, at)
        if every_position or not whole:
            return found
        asked = [position for position in self.config.readout_positions if position < length]
        return at("predictions", found[..., asked, :])

    def embedded(self, inputs: Tensor, at: At = unchanged) -> Stream:
        """The stream before the first layer, `[*member, batch, position, model]`; errors as of `forward`."""
        config, members = self.config, self.members
        features = () if config.input_kind == "tokens" else (config.input_size,)
        leads = [()] if members is None else [(), (1,), (members,)]
        axes, shape = 2 + len(features), getattr(inputs, "shape", ())
        fits = len(shape) >= axes and shape[:-axes] in leads and shape[-axes:][2:] == features
        types = (self.readout.weight.dtype,) if features else (torch.int32, torch.int64)
        typed = fits and isinstance(inputs, Tensor) and inputs.dtype in types
        if not typed or not 1 <= shape[1 - axes] <= config.length:
            sizes = ", ".join(map(str, ("batch", f"1 to {config.length} positions", *features)))
            lead = f", with or without an axis of 1 or {members} members before" if members else ""
            kind = f"{described(types[0])} vectors" if features else "int64 token ids"
            raise UserError(f"inputs: expected {kind} [{sizes}]{lead}, found {described(inputs)}")
        # In an ensemble a wrong id would read another member's table.  Looked at where that costs no wait.
        at_hand = inputs.device.type == "cpu" and not torch.compiler.is_compiling()
        if at_hand and inputs.numel() and not features:
            least, most, last = *map(int, inputs.aminmax()), config.input_size - 1
            if least < 0 or most > last:
                raise UserError(f"inputs: expected token ids from 0 to {last}, found {least} to {most}")
        return self.embed(inputs.expand(*leads[-1], *inputs.shape[-axes:]), at)

    def read_out(self, stream: Stream, at: At = unchanged) -> Float[Tensor, "*member batch position output"]:
        """Predictions from the stream after the last layer."""
        if self.config.norm == "pre":
            stream = at("ln_final.hook_normalized", self.final_norm(stream))
        return self.readout(stream)

    # Looking inside.

    def cache(self, inputs: Tensor, names: Iterable[str] | None = None) -> Cache:
        """The tensors of named sites (by default all), without gradients; see `hopscope.models.sites`.

        For gradients call the model with a cache of your own: `model(inputs, cache := Cache())`.
        """
        cache = Cache(names)
        check_sites(cache.names or (), site_names(self.config))
        with torch.no_grad():
            self(inputs, cache)
        return cache

    def intervene(self, batch: Batch, interventions: Interventions) -> Predictions:
        """Predictions at the readout positions under interventions, without gradients.

        Roles and relations of the batch say which rows are meant.  Functions of one site are called in their order.
        """
        with torch.no_grad():
            functions = self.site_functions(batch, interventions)  # first: it refuses what is no batch
            return self(batch.inputs, calling(functions))

    def site_functions(self, batch: Batch, interventions: Interventions) -> dict[str, list[SiteFunction]]:
        """What interventions call on a batch, in their order, by site; errors as of `intervene`."""
        if not isinstance(batch, Batch):
            found = type(batch).__name__
            raise UserError(f"batch: expected a Batch, such as .batch(64) gives, found {found}")
        single = isinstance(interventions, Mapping) or hasattr(interventions, "functions")
        several = interventions if isinstance(interventions, list | tuple) and not single else [interventions]
        functions = dict[str, list[SiteFunction]]()
        with torch.no_grad():
            for each in several:
                made = hasattr(each, "functions") and not isinstance(each, type)
                if not isinstance(each, Mapping) and not made:
                    wanted = "ones such as ReplacePattern(layer=0, by='uniform') and dicts by site"
                    raise UserError(f"interventions: expected {wanted}, found {each!r}")
                own = each if isinstance(each, Mapping) else each.functions(self, batch)
                check_sites(own, site_names(self.config))
                for name, function in own.items():
                    if not callable(function):
                        raise UserError(f"{name}: expected a function of the tensor here, found {function!r}")
                    functions.setdefault(name, []).append(function)
        return functions

    # Weights.

    def weights(self) -> dict[str, Tensor]:
        """Name → weight `[*member, …]`, without gradients; they share memory with the parameters."""
        return {name: parameter.data for name, parameter in self.named_parameters()}

    def load(self, weights: Mapping[str, Tensor]) -> "Transformer":
        """Take over weights by name; a `RuntimeError` if one is missing or unknown, or its shape differs."""
        self.load_state_dict(weights)
        return self

    @property
    def layout(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """Name, start, end and shape of each weight of a member in a flat buffer; see `flatten`."""
        places, end = list[tuple[str, int, int, tuple[int, ...]]](), 0
        for name, weight in self.weights().items():
            shape, start = tuple(weight.shape if self.members is None else weight.shape[1:]), _aligned(end)
            end = start + math.prod(shape)
            places.append((name, start, end, shape))
        return places

    def flatten(self) -> Float[Tensor, "member size"]:
        """Move all weights into one buffer, a row for each member, of which the parameters become views.

        An optimiser is then a handful of operations for all members and weights.  Gaps for alignment are zeros.
        """
        flat = torch.zeros(len(self), _aligned(self.layout[-1][2]), device=self.readout.weight.device)
        for view, parameter in zip(self.views(flat).values(), self.parameters(), strict=True):
            own = view if self.members is not None else view[0]
            parameter.data = own.copy_(parameter.data)
        return flat

    def views(self, flat: Float[Tensor, "member size"]) -> dict[str, Tensor]:
        """Name → view `[member, …]` of a buffer that is laid out as `flatten` does."""
        return {name: flat[:, start:end].view(len(flat), *shape) for name, start, end, shape in self.layout}

    def decay_mask(self) -> Float[Tensor, " size"]:
        """1 for matrices, 0 for what does not decay: biases, norms, embedding tables; laid out as `flatten` is."""
        mask = torch.zeros(1, _aligned(self.layout[-1][2]), device=self.readout.weight.device)
        matrices = {f"{name}.weight" for name, module in self.named_modules() if isinstance(module, Linear)}
        for name, view in self.views(mask).items():
            view.fill_(name in matrices)
        return mask[0]

    def at_precision(self, precision: Precision) -> "Transformer":
        """The same members, with products of another precision; the parameters are shared."""
        if precision == self.precision:
            return self
        shared = (*self.parameters(), *self.buffers(), self.config, self._task)
        twin = deepcopy(self, {id(each): each for each in shared})
        twin.precision = precision
        for module in twin.modules():
            if isinstance(module, Linear):
                module.dtype = getattr(torch, precision)
        return twin

    # Members.

    def __len__(self) -> int:
        """Number of members; 1 for a single model."""
        return self.members or 1

    def member(self, index: int) -> "Transformer":
        """Member `index` (counted from 0) as a plain module with its own copy of the weights."""
        return self._copy("member", [index], None)

    def select(self, indices: Sequence[int] | Tensor) -> "Transformer":
        """An ensemble of copies of some members (counted from 0); `UserError`: no such member, or none asked for."""
        chosen = indices.reshape(-1).tolist() if isinstance(indices, Tensor) else [*indices]
        return self._copy("indices", chosen, len(chosen))

    def _copy(self, what: str, chosen: list[int], members: int | None) -> "Transformer":
        numbers = all(isinstance(each, Integral) and not isinstance(each, bool) for each in chosen)
        if not chosen or not numbers or not {*chosen} <= {*range(self.members or 0)}:
            have = "an ensemble" if self.members is None else f"some of 0 to {self.members - 1}"
            raise UserError(f"{what}: expected {have}, found {chosen}")
        with torch.device(self.readout.weight.device):
            empty = Transformer(self.config, members).to(self.readout.weight.dtype)
        copy = empty.at_precision(self.precision)
        picked = chosen[0] if members is None else chosen
        copy.load({name: weight[picked] for name, weight in self.weights().items()})
        seeds = self.seeds and [self.seeds[each] for each in chosen]
        return copy.knowing(self._task, seeds, self.step, self.examples)

    # The task.

    def knowing(
        self, task: Known, seeds: Sequence[int] | None = None, step: int | None = None,
        examples: int | None = None,
    ) -> "Transformer":  # fmt: skip
        """This model, which now knows its task, data seeds, training step and pool of samples."""
        self._task, self.step, self.examples = task, step, examples
        self.seeds = None if seeds is None else tuple(seeds)
        return self

    @property
    def task(self) -> Task | None:
        """The task that it was trained on, `None` where none is known; a `UserError` if it cannot be found any more."""
        if self._task is not None and not isinstance(self._task, Task):
            self._task = self._task()
        return self._task

    def batch(self, n: int = 64, use: str = "held-out") -> Batch:
        """Samples of its task: inputs `[*member, batch, position]`, targets `[*member, batch, readout]`.

        Of `"held-out"` the member axis is 1, since all members share them; of an exhaustive set they are a random part,
        always the same.  `"train"` (of a finite pool, if there was one) and `"probe"` are of step 0.
        `UserError`: its task or its seeds are not known, or there is no such use.
        """
        task, device = self.task, self.readout.weight.device
        if task is None:
            wanted = "a model that knows its task"
            raise UserError(f"batch: expected {wanted}, found weights; load it from its run")
        if not isinstance(n, int) or n < 1:
            raise UserError(f"n: expected at least 1 sample, found {n!r}")
        if use != "held-out" and not self.seeds:
            raise UserError(f"use: expected 'held-out' for members whose seeds are not known, found {use!r}")
        if use == "held-out":
            found = some_held_out(task, n, device)
        else:
            seeds = torch.tensor(self.seeds, device=device)
            found = draw(task, seeds, use, 0, n, examples=self.examples)
        return found if self.members is not None else found.changed(lambda tensor: tensor[0])

    def __repr__(self) -> str:
        shape, count = self.config, "" if self.members is None else f"{self.members} × "
        said = f"{shape.layers} × {shape.heads} heads of {shape.head_size}, width {shape.width}"
        size = sum(parameter.numel() for parameter in self.parameters()) // len(self)
        return f"Transformer({count}{said}, {shape.length} positions, {size:,} weights)"


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT) * _ALIGNMENT
