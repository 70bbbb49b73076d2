"""Which acceptable answer a model would give, with all its heads or without some.

The model chooses among the acceptable answers: each is scored by the log-probability of its first tokens, as many as
it takes until no other acceptable answer begins like that, and the best one counts.  This needs no sampling and no
limit on attempts; a model that would rather say something else is not asked.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.choices import Tokens, beginnings, following, leaves, totals
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
    told = [_beginnings(text) for text in texts]
    longer = [(row, leaf) for row, of in enumerate(told) for leaf in leaves(of)]
    known: list[dict[Tokens, float]] = [{} for _ in texts]
    owners = [texts[row] for row, _ in longer]
    for batch in batches(model, [(*texts[row].ids, *leaf) for row, leaf in longer]):
        with _without(model, ablation, owners, batch):
            found = last_logits(model, batch, [1 + len(longer[n][1]) for n in batch.rows])
        for n, logits in zip(batch.rows, found, strict=True):
            row, leaf = longer[n]
            known[row] |= following(leaf, told[row], logits)
    scores = [totals(of, each) for of, each in zip(told, known, strict=True)]
    margin = np.asarray(
        [
            each[text.right] - max(each[: text.right] + each[text.right + 1 :])
            for each, text in zip(scores, texts, strict=True)
        ]
    )
    return Answers((margin > 0).astype(np.float64), margin)


def _beginnings(text: Tokenized) -> list[Tokens]:
    found = beginnings(text.continuations)
    if found is None:
        raise UserError(
            f"{text.id}: expected acceptable answers none of which begins another in the model's tokens, found "
            f"{list(text.continuations)}; ask for fewer chains"
        )
    return found


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
