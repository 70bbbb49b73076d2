"""Trained members side by side: what `run.ensemble(…)` and `hs.train(…)` return."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.cache import Cache
from hopscope.models.config import TransformerConfig
from hopscope.models.intervening import Interventions, Reference, checked
from hopscope.models.lazy_task import LazyTask, TaskSource
from hopscope.models.member import MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch


class Ensemble:
    """Members of one configuration at one checkpoint, which know their task.

    Member i of a tensor is member i of the ensemble; `members[i]` is its number in the run.

    Attributes:
        transformer: the members' weights, and the program that runs them.
        members: their numbers in the run, by default 0, 1, 2, …
        seeds: their data seeds, `None` where they are not known.
        step: training step of the checkpoint, `None` where it is not known.
    """

    def __init__(
        self,
        transformer: Transformer,
        task: TaskSource | LazyTask = None,
        *,
        members: Sequence[int] | None = None,
        seeds: Sequence[int] | None = None,
        step: int | None = None,
    ):
        """Give the members their task: on a device, or a function that finds it (or raises a `UserError`)."""
        self.transformer, self.step = transformer, step
        self.members = tuple(range(transformer.members) if members is None else members)
        self.seeds = None if seeds is None else tuple(seeds)
        for name, given in (("members", self.members), ("seeds", self.seeds)):
            if given is not None and len(given) != transformer.members:
                raise ValueError(f"{name}: expected {transformer.members}, found {len(given)}")
        self._task = task if isinstance(task, LazyTask) else LazyTask(task)

    @property
    def config(self) -> TransformerConfig:
        """The shape of every member: layers, heads and widths."""
        return self.transformer.config

    @property
    def task(self) -> Any:
        """The task that they were trained on, on its device; `None` where none is known.

        Raises:
            UserError: it cannot be found, such as when a study's file has changed.
        """
        return self._task.task

    def __len__(self) -> int:
        """Number of members."""
        return self.transformer.members

    def __call__(self, inputs: Tensor) -> Float[Tensor, "member batch readout output"]:
        """Predictions at the readout positions.

        Args:
            inputs: token ids `[member, batch, position]` or vectors `[member, batch, position, feature]`; without a
                member axis, or with one of 1, they are given to every member.

        Raises:
            UserError: the members cannot read these inputs.
        """
        return self.transformer(checked(inputs, self.config, len(self)))

    def batch(self, n: int = 64, use: str = "held-out") -> Batch:
        """Samples of the task, with a member axis (of 1 where all members are shown the same).

        Args:
            n: how many (fewer where the task has fewer).
            use: `"held-out"`, `"train"` (those of the first step) or `"probe"`.

        Raises:
            UserError: the task is not known, or a use does not exist.
        """
        return self._task.batch(n, use, self.seeds, self.transformer.parameters.flat.device)

    def cache(self, inputs: Tensor) -> Cache:
        """The tensors of every named site, with a leading member axis; see `Transformer.cache`."""
        return self.transformer.cache(inputs)

    def intervene(
        self, batch: Batch, interventions: Interventions, *, means: Reference = None
    ) -> Float[Tensor, "member batch readout output"]:
        """Predictions of all members under interventions; see `MemberTransformer.intervene`."""
        return self.transformer.intervene(batch, interventions, means=means)

    def member(self, index: int) -> MemberTransformer:
        """Member `index` (counted from 0) as a plain module that knows its task, with its own copy of the weights.

        Raises:
            UserError: there is no such member.
        """
        if not 0 <= index < len(self):
            raise UserError(
                f"member: expected 0 to {len(self) - 1} (these are members {self._numbers()} of their run), "
                f"found {index}"
            )
        seed = None if self.seeds is None else self.seeds[index]
        return self.transformer.member(index).with_task(self._task, row=index, seed=seed)

    def _numbers(self) -> str:
        return ", ".join(map(str, self.members))

    def __repr__(self) -> str:
        shape = self.config
        layers, heads = (
            f"{count} {word}{'s' * (count != 1)}"
            for count, word in ((shape.layers, "layer"), (shape.heads, "head"))
        )
        step = "" if self.step is None else f", step {self.step:,}"
        return f"Ensemble(members {self._numbers()}: {layers}, {heads}, width {shape.width}{step})"
