"""Samples of the retrieval problem: a layout of tokens, shuffled anew in every sample; losses, and exchanged inputs.

Whatever is the same in all samples stands in tables over the tokens of the layout.  A sample is the position that each
token is given.  Every draw is a function of its address alone.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope_next import rng
from hopscope_next.tasks.batch import NO_RELATION, Batch
from hopscope_next.tasks.draws import Draws
from hopscope_next.tasks.layout import Layout

_SYMBOLS, _SHUFFLES = range(2)
"""Blocks of the random words of one sample; the next one says which example of a pool it is."""

_LARGEST_COMPARED = 8
"""Most things that are ranked by comparing all pairs, which a compiler makes one loop of; more are sorted."""


class Sampler:
    """Draws samples of a layout on a device; whatever is the same in all of them stands in tables."""

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        *,
        asked: Sequence[int],
        in_time: Sequence[int] | None,
        codes: Float[Tensor, "code symbol_dim"],
        stages: Sequence[tuple[int, Sequence[float]]],
        emphasis: str,
        node_names: Sequence[str],
    ):
        """Work out the tables.

        Args:
            layout: the tokens.
            device: where samples are made.
            asked: nodes of the symbols of a prediction.
            in_time: nodes with parents in the order in which they are shown, `None` for another order in every sample.
            codes: position codes, by position, or by tuple in the order of time where all tokens of one share a code.
            stages: from which training step on how much each of `asked` counts.
            emphasis: what these shares are; see `Retrieval`.
            node_names: of a graph; empty for a chain.
        """
        self.device, self.layout, self.codes, self.emphasis = device, layout, codes.to(device), emphasis
        tokens, blocks = layout.tokens, layout.blocks
        self.query_size, self.tables = len(layout.roots), len(layout.tables)
        self.first_query = len(tokens) - layout.chains * self.query_size
        self.holds = self._table([layout.symbols[token.holds] for token in tokens])
        on_chains = [[layout.on_chain(node, chain) for node in asked] for chain in range(layout.chains)]
        self.answers = self._table([[layout.symbols[symbol] for symbol in symbols] for symbols in on_chains])
        self.block, self.row, self.slot = (
            self._table([getattr(token, name) for token in tokens]) for name in ("block", "row", "slot")
        )
        self.width = self._table([blocks[token.block][1] for token in tokens])
        self.tuples = self._table([count for count, _ in blocks])
        self.lengths = self._table([count * width for count, width in blocks])
        self.groups = [count for count, _ in blocks] + ([] if in_time else [self.tables])
        self.in_time = self._table([in_time.index(node) for node in layout.tables]) if in_time else None
        self.roles = {name: self._table(values) for name, values in layout.roles(bool(node_names)).items()}
        # Who has no partner has one beyond the last token, which is given the position NO_RELATION.
        self.partners = {
            name: self._table([len(tokens) if number is None else number for number in numbers])
            for name, numbers in layout.relations(node_names).items()
        }
        self.starts = self._table([start for start, _ in stages])
        self.shares = self._table([shares for _, shares in stages])
        # However many targets count, the loss is a mean over those.
        weights = self.shares.repeat_interleave(codes.shape[1], -1)
        self.weights = weights / weights.mean(-1, keepdim=True)
        self.all_alike = emphasis == "weights" and bool((weights == 1.0).all())

    def _table(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self.device)

    def __call__(self, draws: Draws) -> Batch:
        """Samples at the addresses of some draws."""
        count, dim = len(self.layout.symbols), self.codes.shape[1]
        numbers = rng.normal(draws.words(count * dim, _SYMBOLS))
        symbols = numbers[..., : count * dim].unflatten(-1, (count, dim))
        ranks = _drawn_ranks(draws, self.groups)
        in_time = ranks[..., -self.tables :] if self.in_time is None else self.in_time
        rank = ranks.index_select(-1, self.row)
        place = _starts(in_time, self.lengths).index_select(-1, self.block) + rank * self.width + self.slot
        token, codes = _inverse(place), self.codes
        if len(codes) < len(self.row):
            first = _starts(in_time, self.tuples).index_select(-1, self.block)
            codes = codes[(first + rank).gather(-1, token)]
        held = _selected(symbols, _of(self.holds, token))
        # The queries are the first tokens of the layout, chain by chain.
        chain = token[..., self.first_query :: self.query_size] // self.query_size
        right = _selected(symbols, self.answers[chain].flatten(2))

        def partner(name: str) -> Tensor:
            positions = torch.nn.functional.pad(place, (0, 1), value=NO_RELATION)
            return positions.gather(-1, _of(self.partners[name], token))

        before = torch.arange(-1, token.shape[-1] - 1, device=self.device)
        return Batch(
            torch.cat((held, codes.expand(*held.shape[:2], -1, -1)), -1),
            right.unflatten(2, (*chain.shape[2:], -1)).flatten(3),
            weights=self._weights(draws),
            roles={
                **{name: partial(_of, role, token) for name, role in self.roles.items()},
                "place": lambda: rank.gather(-1, token),
            },
            relations={
                "previous": lambda: before.expand(token.shape),
                **{name: partial(partner, name) for name in self.partners},
            },
        )

    def _weights(self, draws: Draws) -> Float[Tensor, "#member #batch 1 target"] | None:
        if self.all_alike:
            return None
        if draws.stream != "train":
            return self.weights[None, :1, None]
        if self.emphasis == "weights":
            stage = (draws.step[:, None] >= self.starts).sum(-1) - 1
            return self.weights[stage][None, :, None]
        (shares,) = self.shares
        if self.emphasis == "subsets":
            asked = draws.uniform("asked", (len(shares),)) < shares
        else:
            ends = shares.cumsum(0)[:-1].contiguous()
            one = torch.searchsorted(ends, draws.uniform("asked"), right=True)
            asked = functional.one_hot(one, len(shares)).bool()
        return (asked.float() / shares.mean()).repeat_interleave(self.codes.shape[1], -1)[:, :, None]


def position_codes(count: int, dim: int, base: float | None) -> Float[Tensor, "code symbol_dim"]:
    """Cosines and sines that tell `count` places apart (paper, section 6; "rotary" there, but concatenated).

    Args:
        count, dim: of the codes.
        base: of geometric frequencies; `None`: whole multiples of 2π / count.
    """
    number = torch.arange(dim // 2, dtype=torch.float64)
    whole = 2.0 * math.pi * (number + 1.0) / count
    frequency = whole if base is None else base ** (-number / (dim // 2))
    angle = torch.arange(count, dtype=torch.float64)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), -1).float()


def _drawn_ranks(draws: Draws, groups: Sequence[int]) -> Int[Tensor, "member batch item"]:
    """A random permutation of 0 … n - 1 for each n of `groups`, one after another: the place that each thing is given.

    Every thing has a random word, and its place is the number of smaller ones (of equal ones, those before it).
    """
    words = draws.words(sum(groups), _SHUFFLES)
    runs = [(size, len(list(run))) for size, run in groupby(groups)]
    parts = words[..., : sum(groups)].split([size * count for size, count in runs], -1)
    ranks = [
        _ranks(part.unflatten(-1, (count, size))).flatten(-2)
        for part, (size, count) in zip(parts, runs, strict=True)
    ]
    return torch.cat(ranks, -1)


def _ranks(words: Int[Tensor, "*lead item"]) -> Int[Tensor, "*lead item"]:
    size = words.shape[-1]
    if size > _LARGEST_COMPARED:
        return _inverse(words.argsort(dim=-1, stable=True))
    earlier = torch.ones(size, size, device=words.device).tril(-1).bool()
    mine, others = words[..., :, None], words[..., None, :]
    return ((others < mine) | ((others == mine) & earlier)).sum(-1)


def _inverse(places: Int[Tensor, "*lead item"]) -> Int[Tensor, "*lead item"]:
    """The thing that stands at each place."""
    things = torch.arange(places.shape[-1], device=places.device)
    return torch.empty_like(places).scatter_(-1, places, things.expand_as(places))


def _selected(
    symbols: Float[Tensor, "member batch symbol dim"], which: Int[Tensor, "member batch item"]
) -> Float[Tensor, "member batch item dim"]:
    # Whole rows are copied, which `gather` would do number by number.
    members, samples, count, dim = symbols.shape
    first = count * torch.arange(members * samples, device=symbols.device).view(members, samples, 1)
    return symbols.reshape(-1, dim).index_select(0, (which + first).flatten()).view(*which.shape, dim)


def _of(
    table: Int[Tensor, " token"], token: Int[Tensor, "member batch position"]
) -> Int[Tensor, "member batch position"]:
    """The entry of a table for the token at every position."""
    return table.expand(*token.shape[:-1], -1).gather(-1, token)


def _starts(in_time: Int[Tensor, "*lead table"], sizes: Int[Tensor, " block"]) -> Int[Tensor, "*lead block"]:
    """First position of every block: the tables by their rank in time, then the queries, which are block 0."""
    tables = sizes[1:]
    earlier = in_time[..., None, :] < in_time[..., :, None]
    queries = tables.sum().expand(*in_time.shape[:-1], 1)
    return torch.cat((queries, (earlier * tables).sum(-1)), -1)


# What is asked.


def parts(
    names: Sequence[str], predictions: Float[Tensor, "member batch readout output"], batch: Batch
) -> dict[str, Float[Tensor, " member"]]:
    """See `Retrieval.parts`."""
    squared = (predictions - batch.targets).square()
    of_symbols = squared.unflatten(-1, (len(names), -1)).mean((1, 2, 4))
    loss = of_symbols.mean(-1) if batch.weights is None else (squared * batch.weights).mean((1, 2, 3))
    return {"loss": loss, **{f"loss_{name}": of_symbols[:, number] for number, name in enumerate(names)}}


def accuracies(
    names: Sequence[str], predictions: Float[Tensor, "member batch readout output"], batch: Batch
) -> dict[str, Float[Tensor, " member"]]:
    """See `Retrieval.scores`."""
    both = predictions, batch.targets
    predicted, right = (x.unflatten(-1, (len(names), -1)).movedim(3, 2) for x in both)
    # |p - c|² without |p|², which is the same for all candidates of a prediction.
    distance = right.square().sum(-1)[..., None, :] - 2.0 * predicted @ right.transpose(-1, -2)
    own = torch.arange(right.shape[-2], device=right.device)
    found = (distance.argmin(-1) == own).double().mean((1, 3))
    return {f"accuracy_{name}": found[:, number] for number, name in enumerate(names)}


def exchanged(
    symbol_dim: int, chains: int, batch: Batch
) -> dict[str, Float[Tensor, "1 batch position feature"]]:
    """See `Retrieval.counterfactuals`."""
    symbols, codes = batch.inputs[0].split(symbol_dim, -1)
    holds, chain = batch.roles["holds"][0], batch.roles["chain"][0]
    found = {}
    for node in holds.unique().tolist():
        changed = symbols.clone()
        for number in range(chains):
            here = (holds == node) & (chain == number)
            symbol = symbols[torch.arange(len(here), device=here.device), here.int().argmax(-1)]
            changed = torch.where(here[..., None], symbol.roll(1, 0)[:, None], changed)
        found[f"x_{node}"] = torch.cat((changed, codes), -1)[None]
    found["position"] = torch.cat((symbols, codes.roll(2, 1)), -1)[None]
    return found
