"""Sequences of Markov chains that are new in every sample, and the predictors that count (arXiv 2402.11004)."""

from typing import TYPE_CHECKING

from pydantic import Field

import hopscope as hs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class MarkovChains(hs.Task):
    """Predict the next state of a Markov chain whose transition matrix has to be seen from the sequence itself.

    Each row of the matrix is uniform over all distributions (Dirichlet with parameters 1), the first state uniform over
    states.  So the best predictor counts pairs: (times that s followed the current state + 1) / (times that anything
    followed it + S).

    Attributes:
        states: number of states S.
        length: length of a sequence; at every position the next state is asked for.
    """

    states: int = Field(3, ge=2)
    length: int = Field(64, ge=2)

    def shape(self) -> hs.Shape:
        """States, and the next one at every position."""
        return hs.Shape(
            inputs="tokens",
            input_size=self.states,
            positions=self.length,
            readout=tuple(range(self.length)),
            output_size=self.states,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """A matrix for each sample, and a walk by it."""
        import torch

        weights = -torch.log1p(-draws.uniform("matrix", (self.states, self.states)))
        ends = (weights / weights.sum(-1, keepdim=True)).cumsum(-1)[..., :-1]
        steps = draws.uniform("steps", (self.length,))
        walk = [draws.integers("first", self.states)]
        for step in steps.unbind(-1):
            row = ends.gather(2, walk[-1][..., None, None].expand(-1, -1, 1, ends.shape[-1]))[:, :, 0]
            walk.append((step[..., None] >= row).sum(-1))
        states = torch.stack(walk, -1)
        previous = draws.constant(range(-1, self.length - 1), (self.length,))
        return hs.Batch(inputs=states[..., :-1], targets=states[..., 1:], relations={"previous": previous})

    def predictors(self, inputs: "Tensor") -> "dict[str, Tensor]":
        """Probabilities of the next state, `[member, batch, position, state]`, by what is counted.

        Args:
            inputs: states, `[member, batch, position]`.

        Returns:
            `uniform`: of nothing; `unigram`: of states so far, the current one among them; `bigram`: of what followed
            the current state so far, which is the best that can be done.
        """
        import torch
        from torch.nn.functional import one_hot, pad

        seen = one_hot(inputs, self.states).float()
        pairs = pad(seen[..., :-1, :, None] * seen[..., 1:, None, :], (0, 0, 0, 0, 1, 0)).cumsum(-3)
        followed = (pairs * seen[..., None]).sum(-2)
        counts = {"uniform": torch.zeros_like(seen), "unigram": seen.cumsum(-2), "bigram": followed}
        return {name: (count + 1.0) / (count + 1.0).sum(-1, keepdim=True) for name, count in counts.items()}

    def parts(self, predictions: "Tensor", batch: "hs.Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats, what it is above that of the best predictor, and how far the model is from each.

        `excess`: of these samples; `from_NAME`: divergence of the model from a predictor, KL(predictor ‖ model).
        """
        found = dict(super().parts(predictions, batch))
        logs = predictions.log_softmax(-1)
        given = self.predictors(batch.inputs)
        best = given["bigram"].gather(-1, batch.targets[..., None]).log().mean((1, 2, 3))
        distances = {
            f"from_{name}": (each * (each.log() - logs)).sum(-1).mean((1, 2)) for name, each in given.items()
        }
        return {**found, "excess": found["loss"] + best, **distances}

    def loss_gradient(self, predictions: "Tensor", batch: "hs.Batch") -> "Tensor":
        """Derivative of the loss by the predictions."""
        return super().loss_gradient(predictions, batch)
