"""Which acceptable answer a model would give, with all its heads or without some.

The model chooses among the acceptable answers: each is scored by the log-probability of its first tokens, as many as
it takes until no other acceptable answer begins like that, and the best one counts.  This needs no sampling and no
limit on attempts; a model that would rather say something else is not asked.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.heads.attention import ANY, Outputs
from hopscope.language.heads.model import Attentive, Padded, batches, changed, last_logits
from hopscope.language.heads.tokens import Tokenized
from hopscope.rng import bits, integers

Method = Literal["mean", "zero", "resample"]

METHODS: Final[tuple[Method, ...]] = ("mean", "zero", "resample")

EXAMPLES = 16
"""Outputs of each role among which resampling draws."""

Head = tuple[int, int]
"""Layer and head, both from 0."""


class Ablation(NamedTuple):
    """Heads that are taken out at every token, and what stands there instead.

    Attributes:
        heads: which ones.
        method: `mean`, their mean output at tokens of the same role in other questions; `zero`; or `resample`,
            their output at a token of the same role of another question.
        outputs: of the other questions.
        seed: of the draws of `resample`.
    """

    heads: frozenset[Head]
    method: Method
    outputs: Outputs
    seed: int = 0


class Answers(NamedTuple):
    """What a model chose, for each question.

    Attributes:
        correct: whether it was the right answer.
        margin: log-probability of the right answer minus that of the best other one.
    """

    correct: NDArray[np.float64]
    margin: NDArray[np.float64]


def choose(model: Attentive, texts: Sequence[Tokenized], ablation: Ablation | None = None) -> Answers:
    """Let the model choose among the acceptable answers of every question.

    Raises:
        UserError: a question is too long, or an acceptable answer begins with the tokens of another.
    """
    prefixes = [_prefixes(text) for text in texts]
    nodes = [
        (row, node)
        for row, found in enumerate(prefixes)
        for node in dict.fromkeys(prefix[:cut] for prefix in found for cut in range(len(prefix)))
    ]
    told: dict[tuple[int, tuple[int, ...]], float] = {}
    owners = [texts[row] for row, _ in nodes]
    for batch in batches(model, [(*texts[row].ids, *node) for row, node in nodes]):
        with _without(model, ablation, owners, batch):
            told |= _children(last_logits(model, batch), [nodes[n] for n in batch.rows], prefixes)
    scores = [
        [sum(told[row, prefix[:cut]] for cut in range(1, len(prefix) + 1)) for prefix in found]
        for row, found in enumerate(prefixes)
    ]
    margin = np.asarray(
        [
            found[text.right] - max(found[: text.right] + found[text.right + 1 :])
            for found, text in zip(scores, texts, strict=True)
        ]
    )
    return Answers((margin > 0).astype(np.float64), margin)


def _prefixes(text: Tokenized) -> list[tuple[int, ...]]:
    """Of each acceptable answer, the shortest beginning that no other one has."""
    found = []
    for answer in text.continuations:
        others = [other for other in text.continuations if other is not answer]
        lengths = (n for n in count(1) if n > len(answer) or all(o[:n] != answer[:n] for o in others))
        length = next(lengths)
        if length > len(answer):
            raise UserError(
                f"{text.id}: expected acceptable answers none of which begins another in the model's tokens, found "
                f"{list(text.continuations)}; ask for fewer chains"
            )
        found.append(answer[:length])
    return found


def _children(
    logits: Float[Tensor, "batch vocabulary"],
    nodes: Sequence[tuple[int, tuple[int, ...]]],
    prefixes: Sequence[Sequence[tuple[int, ...]]],
) -> dict[tuple[int, tuple[int, ...]], float]:
    """Log-probability of every next token of an answer's beginning."""
    told = {}
    for found, (row, node) in zip(logits.log_softmax(dim=-1), nodes, strict=True):
        after = {p[: len(node) + 1] for p in prefixes[row] if len(p) > len(node) and p[: len(node)] == node}
        for longer in after:
            told[row, longer] = float(found[longer[-1]])
    return told


def _without(
    model: Attentive, ablation: Ablation | None, owners: Sequence[Tokenized], batch: Padded
) -> AbstractContextManager[None]:
    if ablation is None or not ablation.heads:
        return nullcontext()
    roles = ablation.outputs.numbers(owners, batch)

    def replace(layer: int, found: Tensor) -> Tensor | None:
        heads = [head for where, head in ablation.heads if where == layer]
        if not heads:
            return None
        instead = _instead(ablation, layer, roles, batch.rows).to(found.dtype)
        chosen = torch.zeros(model.heads, model.layers[layer].head_dim, dtype=torch.bool, device=found.device)
        chosen[heads] = True
        return torch.where(chosen.flatten(), instead, found)

    return changed(model, replace)


def _instead(
    ablation: Ablation, layer: int, roles: Int64[Tensor, "batch position"], rows: Sequence[int]
) -> Float[Tensor, "..."]:
    outputs = ablation.outputs
    if ablation.method == "zero":
        return torch.zeros((), device=roles.device)
    if ablation.method == "mean":
        return outputs.means(layer)[roles]
    kept = outputs.kept[layer].to(roles.device)
    known = torch.where(kept[roles] > 0, roles, ANY)
    index = torch.tensor(rows, device=roles.device)[:, None] * roles.shape[1] + torch.arange(
        roles.shape[1], device=roles.device
    )
    # All heads of a token are drawn from one token of another question, as they were together there.
    words = bits(ablation.seed, "resample", layer, index)
    return outputs.examples[layer][known, integers(words[..., 0], words[..., 1], kept[known])]
