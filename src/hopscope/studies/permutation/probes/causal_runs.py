"""Running the members of one model under interventions, on the sequences of `causal_cases`.

One variant is one forward pass for each chunk of sequences.  A pass that is compared with another one to the last bit
has the same shape, because a sample's rounding may depend on its place in a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.models.edits import Edits, Means
from hopscope.models.interventions import Intervention
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.causal_cases import Cases, causal_cases, mixture
from hopscope.tasks.permutation import PermutationTask

Answers = Int[Tensor, "member sequence"]
PairSwap = Callable[[tuple[int, ...] | None, str, str], Intervention]
"""Exchanges two pairs, given by ordinal, in some heads (`None` means all)."""


class Change(NamedTuple):
    """Largest absolute change of logits over sequences of one kind and tokens, at the last row and at earlier ones."""

    last: Float[Tensor, " member"]
    earlier: Float[Tensor, " member"]


class CausalRuns:
    """A one-layer model and the sequences that it is tested on.

    Attributes:
        model: the ensemble.
        heads: its heads.
        cases: the sequences, in chunks.
        means: over the training data's mixture of repeats and plain sequences, see `reference_means`.
        repeat, right, other: as in `Cases`, for all sequences.
        has_third: whether there are third pairs (not for V = 3).

    Raises:
        ValueError: the model has several layers, another length than the task, or the limit is too small.
    """

    def __init__(self, model: Transformer, task: PermutationTask, limit: int):
        if (model.config.layers, model.config.length) != (1, task.positions):
            raise ValueError(
                f"causal tests of recall: expected a model with 1 layer and {task.positions} positions, "
                f"found {model.config.layers} and {model.config.length}"
            )
        self.model, self.heads = model, tuple(range(model.config.heads))
        self.cases = causal_cases(task, limit)
        self.means = reference_means(model, task, limit)
        self.repeat, self.right, self.other = (
            torch.cat([getattr(part, name) for part in self.cases]) for name in ("repeat", "right", "other")
        )
        self.has_third = task.config.values > 3
        # Only the last row is needed; the weights are shared.
        last = model.config.model_copy(update={"readout": (task.positions - 1,)})
        self._answering = Transformer(last, model.parameters)
        self._clean = [self._everywhere(part, []) for part in self.cases]

    def answers(self, *interventions: Intervention, donors: str = "self") -> Answers:
        """Each member's most probable token at the last row."""
        parts = []
        for part in self.cases:
            with torch.no_grad():
                edits = self._edits(self._answering, part, interventions, donors)
                logits = self._answering(part.batch.inputs, edits)
            parts.append(logits[:, :, 0].argmax(-1))
        return torch.cat(parts, 1)

    def changes(self, intervention: Intervention, donors: str = "self") -> Mapping[str, Change]:
        """How far logits move, for `"repeats"` and `"plain"` sequences."""
        found: dict[str, list[Tensor]] = {"repeats": [], "plain": []}
        for number, part in enumerate(self.cases):
            edited, _ = self._everywhere(part, [intervention], donors)
            moved = (edited - self._clean[number][0]).abs().amax(-1)
            for kind, chosen in (("repeats", part.repeat), ("plain", ~part.repeat)):
                found[kind].append(moved[:, chosen].amax(1))
        largest = {kind: torch.stack(parts).amax(0) for kind, parts in found.items()}
        return {kind: Change(rows[:, -1], rows[:, :-1].amax(1)) for kind, rows in largest.items()}

    def mass_moved(self, intervention: Intervention) -> dict[str, Float[Tensor, "member head"]]:
        """Attention mass of the last row that goes to other keys: means over `"repeats"` and `"plain"` sequences."""
        edited = [self._everywhere(part, [intervention])[1] for part in self.cases]
        clean = [pattern for _, pattern in self._clean]
        moved = (torch.cat(edited, 1) - torch.cat(clean, 1)).abs().sum(-1).double() / 2.0
        return {"repeats": moved[:, self.repeat].mean(1), "plain": moved[:, ~self.repeat].mean(1)}

    def share(self, hit: Bool[Tensor, "member sequence"], *, repeat: bool) -> Float[Tensor, " member"]:
        """Share of the sequences with (or without) a repeat for which something is true."""
        return hit[:, self.repeat == repeat].double().mean(1)

    def accuracies(self, given: Answers) -> dict[str, Tensor]:
        """Recall (on repeats) and elimination (on plain sequences)."""
        right = given == self.right
        return {"recall": self.share(right, repeat=True), "elimination": self.share(right, repeat=False)}

    def lost(self, before: Answers, after: Answers) -> dict[str, Tensor]:
        """Fall of recall and elimination, rounded once: it may have to meet a threshold."""
        fall = (before == self.right).double() - (after == self.right).double()
        return {"recall": fall[:, self.repeat].mean(1), "elimination": fall[:, ~self.repeat].mean(1)}

    def moves(self, given: Answers, *, repeat: bool) -> dict[str, Tensor]:
        """Shares of answers that are the other one, that stay right, and that are neither."""
        to_other = self.share(given == self.other, repeat=repeat)
        stays = self.share(given == self.right, repeat=repeat)
        return {"to_other": to_other, "stays": stays, "neither": 1.0 - to_other - stays}

    def by_head(
        self,
        variant: Callable[[tuple[int, ...]], Intervention],
        read: Callable[[Answers], dict[str, Tensor]],
        donors: str = "self",
    ) -> dict[str, Tensor]:
        """Each reading `[member, head]` of an intervention in one head at a time."""
        readings = [read(self.answers(variant((head,)), donors=donors)) for head in self.heads]
        return {name: torch.stack([reading[name] for reading in readings], 1) for name in readings[0]}

    def _edits(
        self, model: Transformer, part: Cases, interventions: Sequence[Intervention], donors: str
    ) -> Edits:
        return Edits(model, interventions, part.batch, means=self.means, donor=part.donors[donors])

    def _everywhere(
        self, part: Cases, interventions: Sequence[Intervention], donors: str = "self"
    ) -> tuple[Float[Tensor, "member batch position output"], Float[Tensor, "member batch head key"]]:
        """Logits at every position, and the last row's attention pattern."""
        with torch.no_grad():
            edits = self._edits(self.model, part, interventions, donors)
            predicted, captured = self.model.capture(part.batch.inputs, edits)
        return predicted, captured.patterns[0][:, :, :, -1]


def reference_means(model: Transformer, task: PermutationTask, limit: int) -> Means:
    """What a mean ablation puts in place: means over the mixture that the model is trained on.

    Training mappings, and the training data's share of repeats (here always of the last x).  A mean over one kind of
    sequence would tell the model which kind it sees, and so could cost one skill and spare the other without any head
    or MLP being specialised; under this one mean, used for both, an ablated part says the same of every sequence.
    """
    parts = list(mixture(causal_cases(task, limit, "train"), task.config.repeat_ratio))
    means = [(weight, model.means(inputs)) for weight, inputs in parts]
    patterns, heads, mlps = (
        torch.stack([weight * getattr(mean, name) for weight, mean in means]).sum(0)
        for name in ("patterns", "heads", "mlps")
    )
    return Means(patterns, heads, mlps)
