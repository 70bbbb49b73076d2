"""What the tasks on vectors have in common: a layout of tokens, shuffled anew in every sample, and what is asked of it.

Whatever is the same in all samples stands in tables over the tokens of the layout.  A sample is the position that each
token is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.tasks import vectors
from hopscope.tasks.batch import NO_RELATION, Batch
from hopscope.tasks.config import VectorTaskConfig
from hopscope.tasks.device import DeviceTask
from hopscope.tasks.draws import Draws, pooled
from hopscope.tasks.sequence_layout import Partner, Role, SequenceLayout


class VectorTask(DeviceTask):
    """A task of one configuration on one device.

    Attributes:
        config: symbols, position codes and pool.
        layout: tokens and symbols before anything is shuffled.
        names: of the symbols of a prediction, one after another.
        codes: position codes, by position, or by tuple in the order of time where all tokens of one share a code.
    """

    def __init__(
        self,
        config: VectorTaskConfig,
        layout: SequenceLayout,
        *,
        order: Sequence[int] | None,
        asked: Mapping[str, int],
        roles: Mapping[str, Role],
        relations: Mapping[str, Partner],
        device: torch.device | str,
    ):
        """Work out the tables.

        Args:
            config: symbols, position codes and pool.
            layout: the tokens.
            order: nodes with parents in the order of time, `None` for another order in every sample.
            asked: names and nodes of the symbols of a prediction.
            roles: of a token; to these `place`, the rank of its tuple within the block, and `holds`, the node whose
                symbol it is, are added.
            relations: partner of a token; to these `previous` is added.
            device: where samples are made.
        """
        super().__init__(config, device)
        self.config, self.layout, self.names = config, layout, tuple(asked)
        chains, self._query_size = layout.blocks[0]
        self._first_query = self.positions - chains * self._query_size
        self._holds = self._table([layout.symbols[token.holds] for token in layout.tokens])
        answers = [[layout.on_chain(node, chain) for node in asked.values()] for chain in range(chains)]
        self._answers = self._table([[layout.symbols[symbol] for symbol in symbols] for symbols in answers])
        self._set_places(order)
        self._roles = {
            name: self._table([role(token) for token in layout.tokens]) for name, role in roles.items()
        }
        self._roles["holds"] = self._table([token.holds[0] for token in layout.tokens])
        # Who has no partner has one beyond the last token, which is given the position NO_RELATION.
        nobody = len(layout.tokens)
        partners = {name: [partner(token) for token in layout.tokens] for name, partner in relations.items()}
        self._partners = {
            name: self._table([nobody if number is None else number for number in numbers])
            for name, numbers in partners.items()
        }

    def _table(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self.device)

    def _set_places(self, order: Sequence[int] | None) -> None:
        layout, blocks = self.layout, self.layout.blocks
        self._block = self._table([token.block for token in layout.tokens])
        self._row = self._table([token.row for token in layout.tokens])
        self._slot = self._table([token.slot for token in layout.tokens])
        self._width = self._table([blocks[token.block][1] for token in layout.tokens])
        self._tuples = self._table([tuples for tuples, _ in blocks])
        self._lengths = self._table([tuples * width for tuples, width in blocks])
        self._groups = [tuples for tuples, _ in blocks] + ([len(layout.tables)] if order is None else [])
        self._in_time: Tensor | None = None
        if order is not None:
            self._in_time = self._table([list(order).index(node) for node in layout.tables])
        count = sum(tuples for tuples, _ in blocks) if self.config.position == "pair" else self.positions
        self.codes = vectors.position_codes(self.config, count).to(self.device)

    # Samples.

    def drawn(self, draws: Draws, *, annotate: bool = True) -> Batch:
        """Samples of the pool, where there is one and they are for training; else fresh ones."""
        address = pooled(draws.address, self.config.pool)
        symbols = vectors.draw_symbols(address, len(self.layout.symbols), self.config.symbol_dim)
        ranks = vectors.draw_ranks(address, self._groups)
        in_time = ranks[..., -len(self.layout.tables) :] if self._in_time is None else self._in_time
        rank = ranks.index_select(-1, self._row)
        first = _starts(in_time, self._lengths).index_select(-1, self._block)
        place = first + rank * self._width + self._slot
        token = vectors.inverse(place)
        codes = self.codes
        if self.config.position == "pair":
            first = _starts(in_time, self._tuples).index_select(-1, self._block)
            codes = codes[(first + rank).gather(-1, token)]
        held = vectors.selected(symbols, _of(self._holds, token))
        plain = Batch(
            torch.cat((held, codes.expand(*held.shape[:2], -1, -1)), -1),
            self._targets(symbols, token),
            weights=self._weights(draws),
        )
        return self._annotated(plain, rank, place, token) if annotate else plain

    def evaluation(self, count: int, *, annotate: bool = True) -> Batch:
        """`count` held-out samples, with `member == 1`: all members answer the same questions.

        They come from the split seed and a stream of their own, so that no training draws them.
        """
        seed = torch.tensor([self.config.split_seed], device=self.device)
        return self.sample(seed, "evaluate", 0, count, annotate=annotate)

    def _targets(
        self, symbols: Float[Tensor, "member batch symbol dim"], token: Int[Tensor, "member batch position"]
    ) -> Float[Tensor, "member batch readout target"]:
        # The queries are the first tokens of the layout, chain by chain.
        chain = token[..., self._first_query :: self._query_size] // self._query_size
        right = vectors.selected(symbols, self._answers[chain].flatten(2))
        return right.unflatten(2, (*chain.shape[2:], -1)).flatten(3)

    def _weights(self, draws: Draws) -> Float[Tensor, "#member #batch 1 target"] | None:
        """Weight of each dimension of the target; `None` where all are alike."""
        return None

    def _annotated(
        self,
        batch: Batch,
        rank: Int[Tensor, "member batch token"],
        place: Int[Tensor, "member batch token"],
        token: Int[Tensor, "member batch position"],
    ) -> Batch:
        roles = {name: partial(_of, role, token) for name, role in self._roles.items()}
        found = torch.nn.functional.pad(place, (0, 1), value=NO_RELATION)
        relations = {
            name: partial(_through, found, partner, token) for name, partner in self._partners.items()
        }
        previous = torch.arange(-1, self.positions - 1, device=self.device).expand(token.shape)
        return replace(
            batch,
            roles={**roles, "place": partial(rank.gather, -1, token)},
            relations={"previous": previous, **relations},
        )

    # What is asked.

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Mean squared error per dimension: of all targets together (`"loss"`, in which weights count), and the partial
        loss of each symbol (paper, section 7)."""
        squared = (predictions - batch.targets).square()
        parts = squared.unflatten(-1, (len(self.names), -1)).mean((1, 2, 4))
        loss = parts.mean(-1) if batch.weights is None else (squared * batch.weights).mean((1, 2, 3))
        return {"loss": loss, **{f"loss_{name}": parts[:, number] for number, name in enumerate(self.names)}}

    def accuracies(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Nearest-candidate accuracy of each symbol, among the N that the chains have for it (guess 1/N)."""
        found = vectors.nearest_candidate(predictions, batch.targets, len(self.names))
        return {f"accuracy_{name}": found[:, number] for number, name in enumerate(self.names)}


def _of(
    table: Int[Tensor, " token"], token: Int[Tensor, "member batch position"]
) -> Int[Tensor, "member batch position"]:
    """The entry of a table for the token at every position."""
    return table.expand(*token.shape[:-1], -1).gather(-1, token)


def _through(
    place: Int[Tensor, "member batch any"],
    partner: Int[Tensor, " token"],
    token: Int[Tensor, "member batch position"],
) -> Int[Tensor, "member batch position"]:
    """Place of the partner of the token at every position."""
    return place.gather(-1, _of(partner, token))


def _starts(in_time: Int[Tensor, "*lead table"], sizes: Int[Tensor, " block"]) -> Int[Tensor, "*lead block"]:
    """First position of every block: the tables by their rank in time, then the queries, which are block 0."""
    tables = sizes[1:]
    earlier = in_time[..., None, :] < in_time[..., :, None]
    queries = tables.sum().expand(*in_time.shape[:-1], 1)
    return torch.cat((queries, (earlier * tables).sum(-1)), -1)
