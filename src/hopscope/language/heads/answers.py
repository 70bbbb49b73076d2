"""Which acceptable answer a model would give, with all its heads or without some.

The model chooses among the acceptable answers: each is scored by the log-probability of its first tokens, as many as
it takes until no other acceptable answer begins like that, and the best one counts.  This needs no sampling and no
limit on attempts; a model that would rather say something else is not asked.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.choices import Tokens, beginnings, following, leaves, totals
from hopscope.language.heads.attention import ANY, Outputs
from hopscope.language.heads.model import (
    Attentive,
    Padded,
    batches,
    changed,
    hidden_pass,
    last_logits,
    remembered,
    resumed,
)
from hopscope.language.heads.tokens import Tokenized
from hopscope.rng import bits, integers
from hopscope.runs.hashing import content_hash

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


Passed = Callable[[int, int], None]
"""Is told how many passes are done, and of how many."""


def choose(model: Attentive, texts: Sequence[Tokenized], ablation: Ablation | None = None) -> Answers:
    """Let the model choose among the acceptable answers of every question.

    Raises:
        UserError: a question is too long, or an acceptable answer begins with the tokens of another.
    """
    return choose_each(model, texts, [ablation])[0]


def choose_each(
    model: Attentive,
    texts: Sequence[Tokenized],
    ablations: Sequence[Ablation | None],
    kept: "Kept | None" = None,
    passed: Passed = lambda done, of: None,
) -> list[Answers]:
    """The same under each of several ablations; layers below the first head that is taken out are run once for all.

    Args:
        model: whose heads.
        texts: questions.
        ablations: what is taken out; None is nothing.
        kept: passes of an earlier call, which are not made again.
        passed: is told of each pass of one batch of questions.

    Raises:
        UserError: as in `choose`.
    """
    told = [_beginnings(text) for text in texts]
    longer = [(row, leaf) for row, of in enumerate(told) for leaf in leaves(of)]
    owners = [texts[row] for row, _ in longer]
    kept = kept or Kept()
    known: list[list[dict[Tokens, float]]] = [[{} for _ in texts] for _ in ablations]
    several = list(batches(model, [(*texts[row].ids, *leaf) for row, leaf in longer]))
    for done, batch in enumerate(several):
        streams: dict[int, Any] = {}
        ids = [texts[longer[n][0]].id for n in batch.rows]
        for number, ablation in enumerate(ablations):
            key = _key(ablation, ids)
            found = kept.find(key)
            if found is None:
                found = _scored(
                    model,
                    ablation,
                    owners,
                    batch,
                    streams,
                    [(told[longer[n][0]], longer[n][1]) for n in batch.rows],
                )
                kept.add(key, found)
            for n, each in zip(batch.rows, found, strict=True):
                known[number][longer[n][0]] |= each
            passed(done * len(ablations) + number + 1, len(several) * len(ablations))
    return [_answers(texts, told, each) for each in known]


def _scored(
    model: Attentive,
    ablation: Ablation | None,
    owners: Sequence[Tokenized],
    batch: Padded,
    streams: dict[int, Any],
    asked: Sequence[tuple[list[Tokens], Tokens]],
) -> list[list[tuple[Tokens, float]]]:
    """Log-probabilities of answers' tokens, of every row of a batch."""
    counts = [1 + len(leaf) for _, leaf in asked]
    first = min((layer for layer, _ in ablation.heads), default=0) if ablation is not None else 0
    if ablation is None or not ablation.heads:
        with remembered(model, streams):
            logits = last_logits(model, batch, counts)
    else:
        if first and model.blocks and not streams:
            with remembered(model, streams):
                hidden_pass(model, batch)
        with resumed(model, streams, first if streams else 0), _without(model, ablation, owners, batch):
            logits = last_logits(model, batch, counts)
    return [list(following(leaf, of, found)) for (of, leaf), found in zip(asked, logits, strict=True)]


def _answers(
    texts: Sequence[Tokenized], told: Sequence[list[Tokens]], known: Sequence[dict[Tokens, float]]
) -> Answers:
    scores = [totals(of, each) for of, each in zip(told, known, strict=True)]
    margin = np.asarray(
        [
            each[text.right] - max(each[: text.right] + each[text.right + 1 :])
            for each, text in zip(scores, texts, strict=True)
        ]
    )
    return Answers((margin > 0).astype(np.float64), margin)


class Kept:
    """What passes found, so that a command that is killed goes on.

    Args:
        file: a line of JSON for each pass; None keeps nothing.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._found, self._torn = file, dict[str, Any](), False
        if file is not None and file.is_file():
            text = file.read_text(encoding="utf-8")
            self._torn = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                with suppress(ValueError):  # the line at which the command was killed
                    self._found |= dict([json.loads(line)])

    def find(self, key: str) -> list[list[tuple[Tokens, float]]] | None:
        """What a pass found in an earlier call."""
        found = self._found.get(key)
        return found and [[(tuple(tokens), value) for tokens, value in row] for row in found]

    def add(self, key: str, found: list[list[tuple[Tokens, float]]]) -> None:
        """Keep what a pass found.

        Raises:
            UserError: the file cannot be written.
        """
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write("\n" * self._torn + json.dumps([key, found]) + "\n")
            self._torn = False
        except OSError as error:
            raise UserError(
                f"{self._file}: expected a file that can be written, found: {error.strerror}; free some space, or set "
                "XDG_CACHE_HOME to another folder"
            ) from None

    def done(self) -> None:
        """Forget everything: the command has ended."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _key(ablation: Ablation | None, ids: Sequence[str]) -> str:
    if ablation is None:
        return content_hash(["all", list(ids)])
    return content_hash([sorted(ablation.heads), ablation.method, ablation.seed, list(ids)])


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
