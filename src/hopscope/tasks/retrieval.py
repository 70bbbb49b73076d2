"""The retrieval problem (paper, sections 3 and 6): follow a chain of pairs from its first symbol, step by step.

N chains of D + 1 symbols, each symbol a fresh Gaussian vector.  For every step k a block of N pairs (x_{k-1}, x_k) is
shown, the pairs of a block in random order; then the N queries x₀, in random order.  Every query is asked for the
symbols of its chain.
"""

from functools import partial
from operator import attrgetter

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.tasks.config import RetrievalConfig, Targets
from hopscope.tasks.draws import Draws
from hopscope.tasks.sequence_layout import SequenceLayout
from hopscope.tasks.vector_config import FIRST as FIRST
from hopscope.tasks.vector_config import KINDS as KINDS
from hopscope.tasks.vector_config import QUERY as QUERY
from hopscope.tasks.vector_config import SECOND as SECOND
from hopscope.tasks.vector_task import VectorTask


class RetrievalTask(VectorTask):
    """The task of one configuration on one device.

    Roles: `kind` (first or second token of a pair, or query), `step` (1 … D, the step a pair belongs to; 0 for a
    query), `chain`, `place` (rank within the block), `holds` (k of the symbol x_k).  Relations: `previous` (the token
    before), `pair_mate` (the other token of the pair), `same_symbol` (the other position with the same symbol) and
    `hop_1` … `hop_D`: from a position with x_k to the second token of the pair of step k + j of its chain, the one that
    brings x_{k+j}.
    """

    config: RetrievalConfig

    def __init__(self, config: RetrievalConfig, device: torch.device | str = "cpu"):
        layout = SequenceLayout(((), *((step - 1,) for step in range(1, config.steps + 1))), config.chains)
        super().__init__(
            config,
            layout,
            order=config.steps_in_time,
            asked={f"step_{step}": step for step in config.asked},
            roles={"kind": layout.kind, "step": attrgetter("node"), "chain": layout.chain_of},
            relations={
                "pair_mate": layout.pair_mate,
                "same_symbol": layout.same_symbol,
                **{f"hop_{hop}": partial(layout.hop, steps=hop) for hop in range(1, config.steps + 1)},
            },
            device=device,
        )
        stages = [(0, config.targets), *config.schedule]
        self._stage_starts = torch.tensor([start for start, _ in stages], device=self.device)
        self._stage_weights = torch.stack([self._weights_of(targets) for _, targets in stages])
        self._all_alike = bool((self._stage_weights == 1.0).all()) and not config.shares
        # However many targets count, the loss is a mean over those.
        self._stage_weights = self._stage_weights / self._stage_weights.mean(-1, keepdim=True)

    def _weights_of(self, targets: Targets) -> Float[Tensor, " target"]:
        wanted = self.config.steps_of(targets)
        shares = self.config.shares or [float(step in wanted) for step in self.config.asked]
        return torch.tensor(shares, device=self.device).repeat_interleave(self.config.symbol_dim)

    def _weights(self, draws: Draws) -> Float[Tensor, "#member #batch 1 target"] | None:
        if self._all_alike:
            return None
        if draws.stream != "train":
            return self._stage_weights[None, :1, None]
        if self.config.emphasis != "weights":
            return self._drawn_weights(draws)
        stage = (draws.step[:, None] >= self._stage_starts).sum(-1) - 1
        return self._stage_weights[stage][None, :, None]

    def _drawn_weights(self, draws: Draws) -> Float[Tensor, "member batch 1 target"]:
        """1 for the steps that each sample asks for, 0 for the others, over their mean in all samples."""
        shares = torch.tensor(self.config.shares, device=self.device)
        if self.config.emphasis == "subsets":
            asked = draws.uniform("asked", (len(shares),)) < shares
        else:
            ends = shares.cumsum(0)[:-1].contiguous()
            one = torch.searchsorted(ends, draws.uniform("asked"), right=True)
            asked = torch.nn.functional.one_hot(one, len(shares)).bool()
        weights = asked.float() / shares.mean()
        return weights.repeat_interleave(self.config.symbol_dim, -1)[:, :, None]
