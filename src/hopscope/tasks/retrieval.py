"""The retrieval problem (paper, sections 3 and 6): follow a chain of pairs from its first symbol, step by step.

N chains of D + 1 symbols, each symbol a fresh Gaussian vector.  For every step k a block of N pairs (x_{k-1}, x_k) is
shown, the pairs of a block in random order; then the N queries x₀, in random order.  Every query is asked for the
symbols of its chain.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.tasks import vectors
from hopscope.tasks.batch import NO_RELATION, Batch, addresses
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval_reference import reference_sample

KINDS = ("first", "second", "query")
FIRST, SECOND, QUERY = range(3)


@dataclass(frozen=True)
class Layout:
    """Where everything stands in each sample; `level` counts the symbols of a chain, x₀ … x_D.

    Attributes:
        place: rank of a chain among the N pairs of step `level`, or among the queries (level 0).
        block: rank in time of the pairs of each step 1 … D.
        chain: chain of every position.
        level: which symbol of its chain a position holds.
        kind: first or second token of a pair, or query.
    """

    place: Int[Tensor, "member batch level chain"]
    block: Int[Tensor, "member batch step"]
    chain: Int[Tensor, "member batch position"]
    level: Int[Tensor, "member batch position"]
    kind: Int[Tensor, " position"]


class RetrievalTask:
    """The task of one configuration on one device.

    Attributes:
        config: what the task is.
        codes: position code of every position.
        positions, readout, input_size, output_size, input_kind, role_values: see `Task`.

    Roles: `kind` (first or second token of a pair, or query), `step` (1 … D, the step a pair belongs to; 0 for a
    query), `chain`, `place` (rank within the block).  Relations: `previous` (the token before), `pair_mate` (the
    other token of the pair), `same_symbol` (the other position with the same symbol) and `hop_1` … `hop_D`: from a
    position with x_k to the second token of the pair of step k + j of its chain, the one that brings x_{k+j}.
    """

    input_kind = "vectors"
    role_values: Mapping[str, tuple[str, ...]] = {"kind": KINDS}

    def __init__(self, config: RetrievalConfig, device: torch.device | str = "cpu"):
        self.config, self.device = config, torch.device(device)
        self.positions = config.positions
        self.readout = tuple(range(self.positions - config.chains, self.positions))
        self.input_size = 2 * config.symbol_dim
        self.output_size = len(config.asked) * config.symbol_dim
        self.names = tuple(f"step_{step}" for step in config.asked)
        self.codes = position_codes(config).to(self.device)
        self._asked = torch.tensor(config.asked, device=self.device)
        order = config.order
        if order == "random":
            self._block = None
        else:
            self._block = torch.tensor(blocks_of(order, config.steps), device=self.device)
        kinds = [FIRST, SECOND] * (config.chains * config.steps) + [QUERY] * config.chains
        self._kind = torch.tensor(kinds, device=self.device)
        starts = [0, *(start for start, _ in config.schedule)]
        weights = [
            self._weights_of(targets) for targets in (config.targets, *(t for _, t in config.schedule))
        ]
        self._starts, self._weights = torch.tensor(starts, device=self.device), torch.stack(weights)
        self._all_alike = bool((self._weights == 1.0).all())

    def _weights_of(self, targets: object) -> Tensor:
        wanted = self.config.steps_of(targets)  # type: ignore[arg-type]
        of_steps = torch.isin(self._asked, torch.tensor(wanted, device=self.device)).float()
        return of_steps.repeat_interleave(self.config.symbol_dim)

    # Samples.

    def sample(
        self,
        seeds: Int[Tensor, " member"],
        stream: str,
        step: int | range | Int[Tensor, ""],
        batch: int,
        *,
        start: int = 0,
        annotate: bool = True,
    ) -> Batch:
        """Samples `start … start + batch - 1` of a step, for every member's seed; see `Task.sample`.

        Those of the stream "train" come from the pool, where there is one.
        """
        steps, index = addresses(step, start, batch, self.device)
        address = vectors.pooled((seeds[:, None], stream, steps, index), self.config.pool)
        steps_in, chains, dim = self.config.steps, self.config.chains, self.config.symbol_dim
        symbols = vectors.draw_symbols(address, (steps_in + 1) * chains, dim)
        groups = [chains] * (steps_in + 1) + ([steps_in] if self._block is None else [])
        ranks = vectors.draw_ranks(address, groups)
        lead = (len(seeds), len(index))
        place = torch.stack(ranks[: steps_in + 1], 2).expand(*lead, -1, -1)
        block = ranks[-1] if self._block is None else self._block.expand(*lead, -1)
        layout = self._layout(place, block)
        plain = self._batch(
            symbols.expand(*lead, -1, -1), layout, self._target_weights(stream, steps, len(index))
        )
        return self._annotated(plain, layout) if annotate else plain

    def evaluation(self, count: int, *, annotate: bool = True) -> Batch:
        """`count` held-out samples, with `member == 1`: all members answer the same questions.

        They come from the split seed and a stream of their own, so that no training draws them.
        """
        seed = torch.tensor([self.config.split_seed], device=self.device)
        return self.sample(seed, "evaluate", 0, count, annotate=annotate)

    def _target_weights(
        self, stream: str, steps: int | Int[Tensor, "*sample"], count: int
    ) -> Float[Tensor, "batch target"] | None:
        if self._all_alike:
            return None
        if stream != "train":
            return self._weights[:1].expand(count, -1)
        now = torch.as_tensor(steps, device=self.device).expand(count)
        return self._weights[(now[:, None] >= self._starts).sum(-1) - 1]

    def _layout(
        self, place: Int[Tensor, "member batch level chain"], block: Int[Tensor, "member batch step"]
    ) -> Layout:
        chains, steps = self.config.chains, self.config.steps
        chain_at = vectors.inverse(place)
        step_at = vectors.inverse(block) + 1
        pairs = torch.take_along_dim(chain_at, step_at[..., None].expand(-1, -1, -1, chains), 2)
        of_pairs = pairs.flatten(2).repeat_interleave(2, -1)
        levels = (
            step_at.repeat_interleave(2 * chains, -1) - (self._kind[: 2 * chains * steps] == FIRST).long()
        )
        queries = chain_at[:, :, 0]
        return Layout(
            place=place,
            block=block,
            chain=torch.cat((of_pairs, queries), -1),
            level=torch.cat((levels, torch.zeros_like(queries)), -1),
            kind=self._kind,
        )

    def _batch(
        self,
        symbols: Float[Tensor, "member batch symbol dim"],
        layout: Layout,
        weights: Float[Tensor, "batch target"] | None,
    ) -> Batch:
        chains = self.config.chains
        held = torch.take_along_dim(symbols, (layout.level * chains + layout.chain)[..., None], 2)
        inputs = torch.cat((held, self.codes.expand(*held.shape[:2], -1, -1)), -1)
        asked_of = layout.chain[:, :, -chains:, None] + self._asked * chains
        right = torch.take_along_dim(symbols, asked_of.flatten(2)[..., None], 2)
        targets = right.unflatten(2, (chains, -1)).flatten(3)
        mask = (layout.kind == QUERY).expand(layout.chain.shape)
        return Batch(inputs, targets, mask, {}, {}, weights)

    # Roles and relations.

    def _annotated(self, batch: Batch, layout: Layout) -> Batch:
        chains = self.config.chains
        is_query = layout.kind == QUERY
        step = torch.where(is_query, 0, layout.level + (layout.kind == FIRST).long())
        place = layout.place.flatten(2).gather(-1, step * chains + layout.chain)
        kind = layout.kind.expand(step.shape)
        roles = {"kind": kind, "step": step, "chain": layout.chain, "place": place}
        return Batch(
            batch.inputs, batch.targets, batch.loss_mask, roles, self._relations(layout), batch.target_weights
        )

    def _relations(self, layout: Layout) -> dict[str, Int[Tensor, "member batch position"]]:
        chains, steps = self.config.chains, self.config.steps
        first = 2 * (layout.block[..., None] * chains + layout.place[:, :, 1:])
        query = 2 * chains * steps + layout.place[:, :, :1]
        nowhere = torch.full_like(query, NO_RELATION)
        # Who brings x_k as the second token of a pair (nobody x₀, and there is no x beyond x_D), and who holds it
        # otherwise (the query x₀, the first token of the next pair the others, nobody else x_D).
        brought = torch.cat((nowhere, first + 1, nowhere.expand(-1, -1, steps, -1)), 2).flatten(2)
        asking = torch.cat((first, nowhere), 2).flatten(2)
        own = layout.level * chains + layout.chain
        position = torch.arange(self.positions, device=self.device)
        mate = torch.where(position % 2 == 0, position + 1, position - 1)
        back = torch.where(
            layout.level == 0, query[:, :, 0].gather(-1, layout.chain), brought.gather(-1, own)
        )
        relations = {
            "previous": (position - 1).expand(own.shape),
            "pair_mate": torch.where(layout.kind == QUERY, NO_RELATION, mate).expand(own.shape),
            "same_symbol": torch.where(layout.kind == FIRST, back, asking.gather(-1, own)),
        }
        for hop in range(1, steps + 1):
            relations[f"hop_{hop}"] = brought.gather(-1, own + hop * chains)
        return relations

    # What is asked.

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Mean squared error: of the targets, and the partial loss of each step (paper, section 7)."""
        return vectors.partial_losses(predictions, batch, self.names)

    def accuracies(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Nearest-candidate accuracy of each step (guess 1/N)."""
        found = vectors.nearest_candidate(predictions, batch.targets, len(self.names))
        return {f"accuracy_{name}": found[:, number] for number, name in enumerate(self.names)}

    def reference_sample(self, seed: int, stream: str, step: int, index: int) -> dict[str, object]:
        """One sample in plain Python, from the same random words: the slow obvious reference of `sample`."""
        return reference_sample(self.config, seed, stream, step, index)


def blocks_of(order: str | tuple[int, ...], steps: int) -> list[int]:
    """Rank in time of the pairs of each step 1 … D under an order that is the same for all samples."""
    if order == "deepest-first":
        return list(range(steps - 1, -1, -1))
    if order == "shallowest-first":
        return list(range(steps))
    return [list(order).index(step) for step in range(1, steps + 1)]


def position_codes(config: RetrievalConfig) -> Float[Tensor, "position symbol_dim"]:
    """The code of every position; a query's is its own under both kinds of position."""
    pairs = config.chains * config.steps
    if config.position == "token":
        return vectors.position_codes(config, config.positions)
    codes = vectors.position_codes(config, pairs + config.chains)
    return torch.cat((codes[:pairs].repeat_interleave(2, 0), codes[pairs:]))
