"""A pretrained decoder that goes on from many prompts at once, each of which is read a single time.

What prompts have in common at their beginning (a chat's system message, solved examples) is read once for all of them.
The keys and values of the prompts read last are kept, so that a question that is asked again is only continued.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.choices import Tokens, following, leaves, totals
from hopscope.language.pretrained import first_line

ROWS = 16
"""Prompts that are read at a time."""

_KEPT = 1 << 30
"""Bytes of keys and values that are kept."""

_SHARED = 8
"""Tokens from which a common beginning is worth a pass of its own."""

Past = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, each [batch, head, position, dim]."""


class Prompt(NamedTuple):
    """A prompt that was read.

    Attributes:
        length: its tokens.
        past: keys and values of each layer, [head, position, dim].
        logits: after its last token.
    """

    length: int
    past: Past
    logits: Float[Tensor, " vocabulary"]

    @property
    def bytes(self) -> int:
        """Memory that keys, values and logits take."""
        return sum(each.nbytes for pair in self.past for each in pair) + self.logits.nbytes


class Decoder:
    """A causal language model of transformers with a key-value cache.

    Args:
        name: of the model, for errors.
        model: in evaluation mode.
    """

    def __init__(self, name: str, model: Any) -> None:
        self.name, self._model = name, model
        self._kept: OrderedDict[Tokens, Prompt] = OrderedDict()
        self._shared: tuple[Tokens, Past] = ((), [])
        config = model.config.get_text_config()
        self._context = getattr(config, "max_position_embeddings", None)

    def read(self, prompts: Sequence[Tokens]) -> list[Prompt]:
        """Read prompts, but for those that are still known.

        Raises:
            UserError: one is longer than the context, or the model keeps no keys and values.
        """
        longest = max(map(len, prompts))
        if self._context is not None and longest > self._context:
            raise UserError(
                f"{self.name}: expected at most {self._context} tokens, found a prompt of {longest}; ask shorter "
                "questions"
            )
        known = {tokens: self._kept[tokens] for tokens in prompts if tokens in self._kept}
        fresh = sorted({*prompts} - {*known}, key=lambda tokens: (len(tokens), tokens))
        shared = self._read_shared(fresh)
        for first in range(0, len(fresh), ROWS):
            rows = fresh[first : first + ROWS]
            known |= zip(rows, self._read(rows, *shared), strict=True)
        for tokens in prompts:
            self._kept[tokens] = known[tokens]
            self._kept.move_to_end(tokens)
        while len(self._kept) > 1 and sum(prompt.bytes for prompt in self._kept.values()) > _KEPT:
            self._kept.popitem(last=False)
        return [known[tokens] for tokens in prompts]

    def go_on(
        self, prompts: Sequence[Prompt], choose: Callable[[int, int, Tensor], int | None], most: int
    ) -> None:
        """Continue prompts, token by token.

        Args:
            prompts: what was read.
            choose: is given a row, the place of the token and the logits, and says which token follows; None ends
                the row.
            most: tokens.
        """
        logits = torch.stack([prompt.logits for prompt in prompts])
        past, lengths = _stacked(prompts), torch.tensor([prompt.length for prompt in prompts])
        rows = list(range(len(prompts)))
        for place in range(most):
            tokens = [choose(row, place, found) for row, found in zip(rows, logits, strict=True)]
            going = [at for at, token in enumerate(tokens) if token is not None]
            if not going or place == most - 1:
                return
            if len(going) < len(rows):  # what has ended costs nothing more
                rows, lengths = [rows[at] for at in going], lengths[going]
                past = [(keys[going], values[going]) for keys, values in past]
            ids = torch.tensor([[tokens[at]] for at in going])
            found, past = self._after(ids, past, lengths, read=place)
            logits = found[:, -1]

    def scores(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Tokens]]) -> list[list[float]]:
        """Log-probability of each answer after each prompt."""
        known: list[dict[Tokens, float]] = []
        longer: list[tuple[int, Tokens]] = []
        for row, (prompt, of) in enumerate(zip(prompts, answers, strict=True)):
            known.append(dict(following((), of, prompt.logits[None])))
            longer += [(row, leaf) for leaf in leaves(of) if leaf]
        for first in range(0, len(longer), ROWS):
            part = longer[first : first + ROWS]
            rows = [prompts[row] for row, _ in part]
            width = max(len(leaf) for _, leaf in part)
            # Filled up at the end, where nothing looks.
            ids = torch.tensor([[*leaf, *([0] * (width - len(leaf)))] for _, leaf in part])
            lengths = torch.tensor([prompt.length for prompt in rows])
            logits, _ = self._after(ids, _stacked(rows), lengths, read=0)
            for (row, leaf), prompt, found in zip(part, rows, logits, strict=True):
                told = torch.cat([prompt.logits[None], found[: len(leaf)]])
                known[row] |= following(leaf, answers[row], told)
        return [totals(of, told) for of, told in zip(answers, known, strict=True)]

    def _read_shared(self, prompts: Sequence[Tokens]) -> tuple[Tokens, Past]:
        """What all prompts begin with, but for the last token of each."""
        shared, past = self._shared
        if prompts and not all(len(each) > len(shared) and each[: len(shared)] == shared for each in prompts):
            shared, past = (), []
        if len(prompts) > 1 and not shared:
            common = _common([each[:-1] for each in prompts])
            if len(common) >= _SHARED:
                shared = common
                _, past = self._run(torch.tensor([shared]), [], keep=1)
            self._shared = shared, past
        return shared, past

    def _read(self, prompts: Sequence[Tokens], shared: Tokens, past: Past) -> list[Prompt]:
        """Read prompts of about the same length; filled up at the end, where no token of theirs looks."""
        lengths = [len(each) for each in prompts]
        width = max(lengths)
        ids = torch.tensor([[*each, *([0] * (width - len(each)))] for each in prompts])[:, len(shared) :]
        before = [
            (keys.expand(len(ids), -1, -1, -1), values.expand(len(ids), -1, -1, -1)) for keys, values in past
        ]
        logits, known = self._run(ids, before, keep=width - min(lengths) + 1)
        return [
            Prompt(
                length,
                [(keys[row, :, :length].clone(), values[row, :, :length].clone()) for keys, values in known],
                logits[row, length - 1 - width].float().clone(),
            )
            for row, length in enumerate(lengths)
        ]

    def _after(
        self, ids: Int64[Tensor, "batch position"], past: Past, lengths: Int64[Tensor, " batch"], read: int
    ) -> tuple[Tensor, Past]:
        """Continue rows whose prompts are filled up at the beginning, after `read` more tokens of each."""
        total = past[0][0].shape[2] + ids.shape[1]
        start = total - ids.shape[1] - read - lengths
        mask = torch.arange(total)[None] >= start[:, None]
        places = lengths[:, None] + read + torch.arange(ids.shape[1])[None]
        return self._run(ids, past, keep=ids.shape[1], attention_mask=mask.long(), position_ids=places)

    def _run(
        self, ids: Int64[Tensor, "batch position"], past: Past, keep: int, **more: Tensor
    ) -> tuple[Tensor, Past]:
        """One pass: logits of the last tokens, and all keys and values."""
        from transformers import DynamicCache

        device = next(self._model.parameters()).device
        try:
            cache = DynamicCache()
            for layer, (keys, values) in enumerate(past):
                cache.update(keys, values, layer)
            with torch.inference_mode():
                out = self._model(
                    input_ids=ids.to(device),
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=keep,
                    **{name: value.to(device) for name, value in more.items()},
                )
            known = [(layer.keys, layer.values) for layer in cache.layers]
            if not known or any(keys.shape[2] != cache.get_seq_length() for keys, _ in known):
                raise ValueError("one that keeps something else")
            return out.logits[:, -keep:].cpu(), known
        except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
            raise UserError(
                f"{self.name}: expected a decoder with a key-value cache, found: {first_line(error)}; use another "
                "model, or ask it through a server"
            ) from None


def _common(prompts: Sequence[Tokens]) -> Tokens:
    """The beginning that all have in common."""
    first, last = min(prompts), max(prompts)
    different = (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(different, min(len(first), len(last)))]


def _stacked(prompts: Sequence[Prompt]) -> Past:
    """Keys and values side by side, filled up at the beginning."""
    longest = max(prompt.length for prompt in prompts)

    def side_by_side(layer: int, kind: int) -> Tensor:
        parts = [prompt.past[layer][kind] for prompt in prompts]
        heads, _, dim = parts[0].shape
        found = parts[0].new_zeros((len(parts), heads, longest, dim))
        for row, part in enumerate(parts):
            found[row, :, longest - part.shape[1] :] = part
        return found

    return [(side_by_side(layer, 0), side_by_side(layer, 1)) for layer in range(len(prompts[0].past))]
