"""How much attention every head pays to structural targets, and what heads put out on average, by role.

Attention weights are reduced as soon as a layer has computed them, so that memory holds those of one layer of one
batch, whatever the number of questions; what is kept are sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from hopscope.language.heads.model import Attentive, Padded, batches, changed, hidden_pass, watched
from hopscope.language.heads.tokens import Tokenized

ANY = 0
"""Number of the role that every token has: it stands in for roles that were not met."""


class Scores(NamedTuple):
    """Attention to one target, mean over questions.

    Attributes:
        mean: share of attention, [layer, head].
        low, high: ends of the 95 % t interval over questions, [layer, head]; NaN for one question.
        floor: what a head pays that looks everywhere alike: target tokens / visible tokens.
        questions: that have the target.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    floor: float
    questions: int


@dataclass
class Outputs:
    """What heads put out, by role: the means, and a few examples.

    Attributes:
        roles: their numbers; `ANY` is no role's.
        sums: of each layer, [role, width].
        counts: tokens of each role.
        examples: of each layer, [role, example, width], the first that were met.
        kept: examples of each role in each layer, [layer, role].
    """

    roles: dict[str, int]
    sums: list[Float[Tensor, "role width"]]
    counts: Float[Tensor, " role"]
    examples: list[Float[Tensor, "role example width"]]
    kept: Int64[Tensor, "layer role"]

    def means(self, layer: int) -> Float[Tensor, "role width"]:
        """Mean output at each role; at roles that were not met, the mean over all tokens."""
        found = self.sums[layer] / self.counts.clamp(min=1)[:, None]
        return torch.where(self.counts[:, None] > 0, found, found[ANY])

    def add(self, layer: int, found: Float[Tensor, "token width"], roles: Int64[Tensor, " token"]) -> None:
        """Add the outputs of some tokens of one layer."""
        self.sums[layer].index_add_(0, roles, found)
        self.sums[layer][ANY] += found.sum(dim=0)
        if layer == 0:  # the same tokens come by in all layers
            self.counts.index_add_(0, roles, torch.ones_like(roles, dtype=torch.float32))
            self.counts[ANY] += len(roles)
        if self.examples[layer].shape[1]:
            for role in [ANY, *roles.unique().tolist()]:
                first = int(self.kept[layer, role])
                more = found if role == ANY else found[roles == role]
                more = more[: self.examples[layer].shape[1] - first]
                self.examples[layer][role, first : first + len(more)] = more
                self.kept[layer, role] += len(more)

    def numbers(self, texts: Sequence[Tokenized], batch: Padded) -> Int64[Tensor, "batch position"]:
        """The role of every token in a batch; what follows a prompt counts as its last token."""
        width = batch.ids.shape[1]
        rows = []
        for row in batch.rows:
            found = [self.roles.get(role, ANY) for role in texts[row].roles]
            rows.append(found + [found[-1]] * (width - len(found)))
        return torch.tensor(rows, device=batch.ids.device)


class _Pairs(NamedTuple):
    """All pairs of row and token of a batch that a target joins, flat.

    Attributes:
        where: place in the batch, row and token.
        slot: which question's target it belongs to.
        weight: one by the rows of that target.
        slots: name of each slot's target, and what uniform attention pays to it.
    """

    where: Int64[Tensor, "pair 3"]
    slot: Int64[Tensor, " pair"]
    weight: Float[Tensor, " pair"]
    slots: list[tuple[str, float]]


def measure(
    model: Attentive, texts: Sequence[Tokenized], examples: int = 0
) -> tuple[dict[str, Scores], Outputs]:
    """Attention of every head to every target, and outputs by role.

    Args:
        model: whose heads.
        texts: questions in its tokens, at least one.
        examples: outputs that are kept of each role, in every layer.

    Raises:
        UserError: a question is longer than the model's context.
    """
    paid: dict[str, list[NDArray[np.float64]]] = {}
    floors: dict[str, list[float]] = {}
    outputs = _no_outputs(model, texts, examples)
    for batch in batches(model, [text.ids for text in texts]):
        pairs = _pairs(texts, batch)
        roles = outputs.numbers(texts, batch)
        layers: list[NDArray[np.float64]] = []

        def watch(
            layer: int, weights: Tensor, pairs: _Pairs = pairs, layers: list[NDArray[np.float64]] = layers
        ) -> None:
            layers.append(_reduced(weights, pairs))

        def keep(layer: int, out: Tensor, batch: Padded = batch, roles: Tensor = roles) -> None:
            outputs.add(layer, out[batch.mask].float(), roles[batch.mask])

        with watched(model, watch), changed(model, keep):
            hidden_pass(model, batch)
        for (name, floor), each in zip(pairs.slots, np.stack(layers, 1), strict=True):
            paid.setdefault(name, []).append(each)
            floors.setdefault(name, []).append(floor)
    # In the order of the questions' own targets, whichever batch came first.
    names = dict.fromkeys(name for text in texts for name, pairs in text.reads.items() if pairs)
    return {name: _scores(np.stack(paid[name]), floors[name]) for name in names}, outputs


def _scores(paid: NDArray[np.float64], floors: Sequence[float]) -> Scores:
    """Means over questions, [question, layer, head], with their t intervals."""
    from scipy.stats import t as student

    n, mean = len(paid), paid.mean(0)
    half = (
        student.ppf(0.975, n - 1) * paid.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full_like(mean, np.nan)
    )
    return Scores(mean, np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0), float(np.mean(floors)), n)


def _pairs(texts: Sequence[Tokenized], batch: Padded) -> _Pairs:
    where: list[tuple[int, int, int]] = []
    slot: list[int] = []
    weight: list[float] = []
    slots: list[tuple[str, float]] = []
    for place, row in enumerate(batch.rows):
        for name, pairs in texts[row].reads.items():
            if not pairs:
                continue
            floor = sum(len(targets) / (query + 1) for query, targets in pairs) / len(pairs)
            for query, targets in pairs:
                where += [(place, query, target) for target in targets]
                slot += [len(slots)] * len(targets)
                weight += [1 / len(pairs)] * len(targets)
            slots.append((name, floor))
    device = batch.ids.device
    return _Pairs(
        torch.tensor(where, device=device),
        torch.tensor(slot, device=device),
        torch.tensor(weight, device=device),
        slots,
    )


def _reduced(weights: Float[Tensor, "batch head query key"], pairs: _Pairs) -> NDArray[np.float64]:
    """[slot, head]: attention summed over target tokens, mean over rows."""
    place, query, key = pairs.where.unbind(dim=1)
    each = weights[place, :, query, key].float() * pairs.weight[:, None]
    total = each.new_zeros((len(pairs.slots), weights.shape[1]))
    return total.index_add_(0, pairs.slot, each).double().cpu().numpy()


def _no_outputs(model: Attentive, texts: Sequence[Tokenized], examples: int) -> Outputs:
    names = dict.fromkeys(role for text in texts for role in text.roles)
    roles = {name: number for number, name in enumerate(names, start=ANY + 1)}
    widths = [model.heads * layer.head_dim for layer in model.layers]
    count = len(roles) + 1
    return Outputs(
        roles=roles,
        sums=[torch.zeros((count, width), device=model.device) for width in widths],
        counts=torch.zeros(count, device=model.device),
        examples=[torch.zeros((count, examples, width), device=model.device) for width in widths],
        kept=torch.zeros((len(widths), count), dtype=torch.int64),
    )
