"""Loss and gradient of one-layer models of short token sequences, several times as fast as by autograd.

Three facts make it so.  At the only layer a stream is one of few vectors, token + position, so queries, keys, scores
and what a head writes are small tables.  A causal row depends on the tokens up to it alone, so the early rows of a
batch repeat each other: each different prefix is computed once and counts as often as it occurs.  And between the large
matrix products, which torch does best, everything is a loop over rows that stays in cache, compiled by numba (`rows`,
`tables`), with the derivatives written out.

It gives what autograd gives for `PermutationTask.losses`, to rounding (tested); `docs/performance.md` has the ratios.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.models.transformer import Transformer
from hopscope.tasks.device import DeviceTask
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Gradient
from hopscope.training.engines.batches import TrainingBatches, own_task
from hopscope.training.engines.numba_shallow import rows as rows_module
from hopscope.training.engines.numba_shallow import tables as tables_module

# Their many arguments are handed on as lists, which mypy cannot count.
row_loops: ModuleType = rows_module
table_loops: ModuleType = tables_module

_ATTENTION, _MLP = "layers.0.attention", "layers.0.mlp"
_PROJECTIONS = [
    f"{_ATTENTION}.{part}.{what}" for part in ("query", "key", "value") for what in ("weight", "bias")
]
_OUTPUT = f"{_ATTENTION}.output.weight"
_FIRST_NORM = ("layers.0.attention_norm.weight", "layers.0.attention_norm.bias")


class ShallowGradient:
    """Losses and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of members that `engines.fits_shallow` accepts.
        batch: sequences of each member in a batch.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters, batch: int):
        self.config, self.parameters, self.batch = config, parameters, batch
        self._readout = np.array(config.readout_positions, dtype=np.int64)
        self._position_of = np.array(config.position_codes, dtype=np.int64)
        self._scale = np.float32(config.head_size**-0.5)
        prefixes = [config.input_size ** (position + 1) for position in config.readout_positions]
        self._counted = sum(count <= batch for count in prefixes)
        rows = sum(prefixes[: self._counted]) + batch * (len(prefixes) - self._counted)
        members = parameters.flat.shape[0]
        self._tokens = np.zeros((members, rows, config.length), dtype=np.int64)
        self._slots = np.zeros((members, rows), dtype=np.int64)
        self._used = np.zeros(members, dtype=np.int64)
        self._tensors = {name: torch.zeros(members, *shape) for name, shape in self._shapes(rows).items()}
        self._tensors |= {"embed.position.weight": self._tensors["no_codes"]}
        self._tensors |= {name: view.detach() for name, view in parameters.views().items()}
        self._arrays = {name: tensor.numpy() for name, tensor in self._tensors.items()}
        self._gradient: Tensor | None = None

    def _shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """What is kept between the loops; `rows` and `tables` say what each is."""
        config = self.config
        heads, keys, size, width = config.heads, config.length, config.input_size, config.width
        slots, sources = len(self._readout), config.input_size + max(config.position_count, 1)
        pairs = (heads, slots, size, keys, size)
        return {
            "no_codes": (1, width), "back_no_codes": (1, width),
            "counts": (rows, config.output_size), "attention": (rows, heads, keys), "spread": (rows,),
            "normed": (rows, width), "stream": (rows, width), "out": (rows, width), "more": (rows, width),
            "hidden": (rows, config.mlp_size), "back_hidden": (rows, config.mlp_size), "losses": (slots,),
            "sources": (sources, width), "back_sources": (sources, width),
            "projected": (3, sources, heads * config.head_size),
            "query": (heads, slots, size, config.head_size), "key": (heads, keys, size, config.head_size),
            "write": (heads, keys, size, width), "back_write": (heads, keys, size, width),
            "score": pairs, "power": pairs, "back_score": pairs,
        }  # fmt: skip

    @torch.no_grad()
    def __call__(
        self,
        inputs: Int[Tensor, "member batch position"],
        targets: Int[Tensor, "member batch slot"],
        gradient: Float[Tensor, "member size"],
    ) -> Float[Tensor, "member slot"]:
        """Cross-entropy by slot (nats, mean over the batch).

        Args:
            inputs, targets: tokens, and the right one at each readout.
            gradient: laid out as the weights; becomes the gradient of the mean over slots.
        """
        self._lay_out(gradient)
        row_loops.gather_rows(
            inputs.contiguous().numpy(), targets.contiguous().numpy(), self._readout, self._counted,
            self._tokens, self._slots, self._arrays["counts"], self._used,
        )  # fmt: skip
        rows = int(self._used.max())
        self._attend(rows)
        self._mlp(rows)
        self._judge(rows)
        self._mlp_back(rows)
        self._attend_back(rows)
        return self._tensors["losses"].clone()

    def _lay_out(self, gradient: Tensor) -> None:
        """Name the parts of the gradient; it is the same buffer at every step."""
        if gradient is not self._gradient:
            self._gradient = gradient
            self._back = self.parameters.views(gradient)
            self._back_arrays = {name: view.numpy() for name, view in self._back.items()}
            # Apart from the codes themselves, which stay zero where there are none.
            self._back_arrays.setdefault("embed.position.weight", self._arrays["back_no_codes"])

    def _of(self, *names: str) -> list[np.ndarray]:
        return [self._arrays[name] for name in names]

    def _back_of(self, *names: str) -> list[np.ndarray]:
        return [self._back_arrays[name] for name in names]

    def _attend(self, rows: int) -> None:
        table_loops.make_tables(
            *self._of("embed.token.weight", "embed.position.weight"), self._position_of, self._readout, self._scale,
            *self._of(*_PROJECTIONS, _OUTPUT, "sources", "projected", "query", "key", "write", "score", "power"),
        )  # fmt: skip
        row_loops.attend(
            rows, self._tokens, self._slots, self._readout, self._arrays["sources"], self._position_of,
            *self._of(f"{_ATTENTION}.output.bias", *_FIRST_NORM, "score", "power", "write",
                      "attention", "normed", "spread", "stream"),
        )  # fmt: skip

    def _mlp(self, rows: int) -> None:
        stream, hidden, out = (self._tensors[name][:, :rows] for name in ("stream", "hidden", "out"))
        inner, outer = (f"{_MLP}.{name}" for name in ("inner", "outer"))
        weights = self._tensors
        torch.baddbmm(weights[f"{inner}.bias"][:, None], stream, weights[f"{inner}.weight"], out=hidden)
        hidden.relu_()
        torch.baddbmm(weights[f"{outer}.bias"][:, None], hidden, weights[f"{outer}.weight"], out=out)

    def _judge(self, rows: int) -> None:
        names = ("layers.0.mlp_norm.weight", "layers.0.mlp_norm.bias", "readout.weight", "readout.bias")
        row_loops.judge(
            rows, self.batch, self._slots, *self._of("counts", "stream", "out", *names, "losses"),
            *self._back_of(*names, f"{_MLP}.outer.bias"),
        )  # fmt: skip

    def _mlp_back(self, rows: int) -> None:
        stream, hidden, out, back_hidden, more = (
            self._tensors[name][:, :rows] for name in ("stream", "hidden", "out", "back_hidden", "more")
        )
        inner, outer = f"{_MLP}.inner.weight", f"{_MLP}.outer.weight"
        torch.bmm(hidden.transpose(1, 2), out, out=self._back[outer])
        torch.bmm(out, self._tensors[outer].transpose(1, 2), out=back_hidden)
        row_loops.rectify_back(
            rows, *self._of("hidden", "back_hidden"), self._back_arrays[f"{_MLP}.inner.bias"]
        )
        torch.bmm(stream.transpose(1, 2), back_hidden, out=self._back[inner])
        torch.bmm(back_hidden, self._tensors[inner].transpose(1, 2), out=more)

    def _attend_back(self, rows: int) -> None:
        row_loops.attend_back(
            rows, self._tokens, self._slots, self._readout, self._position_of,
            *self._of(_FIRST_NORM[0], "out", "more", "attention", "normed", "spread", "write"),
            *self._back_of(*_FIRST_NORM, f"{_ATTENTION}.output.bias"),
            *self._of("back_sources", "back_write", "back_score"),
        )  # fmt: skip
        weights = [
            f"{_ATTENTION}.{name}" for name in ("query.weight", "key.weight", "value.weight", "value.bias")
        ]
        table_loops.tables_back(
            self._arrays["sources"], self._position_of, self._readout, self._scale,
            *self._of(*weights, _OUTPUT, "projected", "query", "key", "back_write", "back_score", "back_sources"),
            *self._back_of("embed.token.weight", "embed.position.weight", *_PROJECTIONS, _OUTPUT),
        )  # fmt: skip


def gradient(
    model: Transformer, task: DeviceTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    """Losses and gradients of one encoder layer; see `Engine.gradient`."""
    own = cast(PermutationTask, own_task(task))
    shallow = ShallowGradient(model.config, model.parameters, training.batch_size)
    batches = TrainingBatches(own, training, seeds)

    def of_step(step: int) -> Mapping[str, Tensor]:
        batch = batches.of(step)
        return own.named_losses(shallow(batch.inputs, batch.targets, buffer))

    return of_step
