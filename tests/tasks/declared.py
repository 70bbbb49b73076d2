"""Tasks as users write them, for the tests: tokens and vectors, with and without what is optional."""

import torch

from hopscope.tasks.batch import Batch
from hopscope.tasks.task import Shape, Task


class Copy(Task):
    """Repeat the token that stands `back` places before the last one."""

    length: int = 11
    values: int = 7
    back: int = 3

    def shape(self):
        return Shape(
            inputs="tokens",
            input_size=self.values,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=self.values,
        )

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        source = self.length - 1 - self.back
        return Batch(
            inputs=tokens,
            targets=tokens[..., source : source + 1],
            groups={"doubled": tokens[..., source] == tokens[..., -1]},
            relations={"source": draws.constant(source, (self.length,))},
        )

    def floors(self):
        return {"guess": 1.9459, "accuracy": {"guess": 1.0 / self.values}}

    def reference(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        source = self.length - 1 - self.back
        return {
            "inputs": tokens,
            "targets": tokens[source : source + 1],
            "groups": {"doubled": tokens[source] == tokens[-1]},
            "relations": {"source": draws.constant(source, (self.length,))},
        }


class Average(Task):
    """The mean of the vectors before the marked ones, and of the first half alone: the second counts `later` as much.

    From step `begin` on; before that only the whole mean counts.
    """

    length: int = 5
    size: int = 3
    begin: int = 13
    later: float = 0.5

    def shape(self):
        return Shape(
            inputs="vectors",
            input_size=self.size + 2,
            positions=self.length,
            readout=(self.length - 2, self.length - 1),
            output_size=self.size,
            position_size=2,
        )

    def sample(self, draws):
        vectors = draws.normal("vectors", (self.length, self.size)) + draws.uniform("shift")[..., None, None]
        order = draws.permutation("order", self.length)
        angle = order / self.length
        whole = vectors.mean(-2, keepdim=True)
        half = torch.where((order < 2)[..., None], vectors, 0.0).sum(-2, keepdim=True) / 2
        now = (draws.step >= self.begin).float() if draws.use == "train" else torch.ones(len(draws.step))
        second = self.later * now[None, :, None]
        weights = torch.cat((torch.ones_like(second), second), -1)
        return Batch(
            inputs=torch.cat((vectors, torch.stack((angle.cos(), angle.sin()), -1)), -1),
            targets=torch.cat((whole, half), -2),
            weights=weights.expand(*draws.size, 2).contiguous()[..., None],
            roles={"place": lambda: order},
            relations={"next": lambda: (order[..., :, None] + 1 == order[..., None, :]).int().argmax(-1)},
        )

    def parts(self, predictions, batch):
        terms = (predictions - batch.targets).square() * batch.weights
        whole, half = terms.flatten(3).mean(3).mean(1).unbind(-1)
        return {"loss": (whole + half) / 2, "loss_whole": whole, "loss_half": half}

    def loss_gradient(self, predictions, batch):
        scale = 2.0 / (predictions.shape[1] * 2 * self.size)
        return (predictions - batch.targets) * batch.weights * scale
