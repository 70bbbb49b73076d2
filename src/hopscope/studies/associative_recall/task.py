"""Multi-query associative recall: pairs of a key and a value, then every key again (arXiv 2312.04927, section 3)."""

import math
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

import hopscope as hs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hopscope.tasks.task import Floors


class AssociativeRecall(hs.Task):
    """Say the value of each key that is asked, after all pairs of keys and values were shown.

    Keys of a sample are different, values are drawn for each sample.  Then all keys come again in random order; the
    answer at each of them is its value.

    Attributes:
        pairs: number of keys with a value P; there are as many queries.
        symbols: number of different keys, and of different values.
    """

    pairs: int = Field(8, ge=1)
    symbols: int = Field(32, ge=2)

    @model_validator(mode="after")
    def _has_enough_keys(self) -> "AssociativeRecall":
        if self.pairs > self.symbols:
            raise ValueError(f"pairs: expected at most {self.symbols} (symbols), found {self.pairs}")
        return self

    def shape(self) -> hs.Shape:
        """Key, value, key, value …, then keys; a value is asked for at each of the last."""
        return hs.Shape(
            inputs="tokens",
            input_size=2 * self.symbols,
            positions=3 * self.pairs,
            readout=tuple(range(2 * self.pairs, 3 * self.pairs)),
            output_size=self.symbols,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Pairs, and the order in which keys are asked."""
        import torch

        keys = draws.permutation("keys", self.symbols)[..., : self.pairs]
        values = draws.integers("values", self.symbols, (self.pairs,))
        order = draws.permutation("queries", self.pairs)
        shown = torch.stack((keys, self.symbols + values), -1).flatten(-2)
        before = torch.arange(2 * self.pairs, device=draws.device)
        relations = {
            "previous": torch.cat((before - 1, before.new_full((self.pairs,), -1))).expand(
                *order.shape[:2], -1
            ),
            "answer": torch.cat((torch.full_like(shown, -1), 2 * order + 1), -1),
        }
        return hs.Batch(
            inputs=torch.cat((shown, keys.gather(-1, order)), -1),
            targets=values.gather(-1, order),
            relations=relations,
        )

    def parts(self, predictions: "Tensor", batch: "hs.Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats, and the share of the queries whose value is most probable."""
        right = (predictions.argmax(-1) == batch.targets).float().mean((1, 2))
        return {**super().parts(predictions, batch), "accuracy": right}

    def loss_gradient(self, predictions: "Tensor", batch: "hs.Batch") -> "Tensor":
        """Derivative of the loss by the predictions."""
        return super().loss_gradient(predictions, batch)

    def floors(self) -> "Floors":
        """What it costs to guess among all values; any shown value at random is right once in P and now and then."""
        by_chance = 1.0 / self.pairs + (1.0 - 1.0 / self.pairs) / self.symbols
        return {
            "loss": {"uniform": math.log(self.symbols)},
            "accuracy": {"any value": 1.0 / self.symbols, "a value that was shown": by_chance},
        }

    def reference(self, draws: Any) -> "Mapping[str, Any] | None":
        """The same sample by loops."""
        keys = draws.permutation("keys", self.symbols)[: self.pairs]
        values = draws.integers("values", self.symbols, (self.pairs,))
        order = draws.permutation("queries", self.pairs)
        shown = [token for key, value in zip(keys, values, strict=True) for token in (key, self.symbols + value)]
        return {"inputs": shown + [keys[place] for place in order], "targets": [values[place] for place in order]}
