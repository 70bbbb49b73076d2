"""What samples of the retrieval problem are made of: tokens before anything is shuffled, symbols, position codes."""

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Layout:
    """Tokens and symbols of one sample, numbered: the queries chain by chain, then the tables tuple by tuple.

    Attributes:
        block, row: of each token its block (0: the queries; then the tables), and its tuple in the sample.
        slot, end: its place in the tuple, and that of the last token there.
        node, chain: the node whose table it is in (of a query its own), and the chain of its tuple (N: on none).
        symbol, holds: the number of its symbol, and the node of that.
        on_chain: number of the symbol that a chain has for a node, `[node, chain]`; `symbols`: how many there are.
    """

    def __init__(self, parents: Sequence[Sequence[int]], chains: int):
        """`parents` of every node, each earlier than the node; `chains` N."""
        self.parents, self.chains, every = parents, chains, torch.arange(chains)
        counts = [chains ** max(1, len(keys)) for keys in parents]
        *starts, self.symbols = accumulate(counts, initial=0)
        # The cell (c, c, …) is number c·(1 + N + N² + …) of a node's N^p.
        steps = [(count - 1) // max(1, chains - 1) for count in counts]
        self.on_chain = torch.tensor(starts)[:, None] + torch.tensor(steps)[:, None] * every
        roots = [node for node, keys in enumerate(parents) if not keys]
        tables = [node for node, keys in enumerate(parents) if keys]
        held, chain = [self.on_chain[roots].T], [every]  # of every block, `[tuple, slot]` and `[tuple]`
        for node in tables:
            number, powers = torch.arange(counts[node])[:, None], range(len(parents[node]))[::-1]
            cells = number // torch.tensor([chains**power for power in powers]) % chains
            keys = self.on_chain[torch.tensor(parents[node]), cells]
            held.append(torch.cat((keys, starts[node] + number), 1))
            chain.append(cells[:, 0].where((cells == cells[:, :1]).all(1), chains))
        tuples, widths = torch.tensor([each.shape for each in held]).unbind(1)
        block = torch.arange(len(held)).repeat_interleave(tuples)
        self.row = torch.arange(len(block)).repeat_interleave(widths[block])
        self.block, self.chain = block[self.row], torch.cat(chain)[self.row]
        self.slot = torch.cat([torch.arange(each.shape[1]).repeat(len(each)) for each in held])
        self.symbol, self.end = torch.cat([each.flatten() for each in held]), widths[self.block] - 1
        self.holds = torch.arange(len(parents)).repeat_interleave(torch.tensor(counts))[self.symbol]
        self.node = torch.tensor([0, *tables])[self.block].where(self.block > 0, self.holds)

    def relations(self, names: Sequence[str]) -> dict[str, Int[Tensor, " token"]]:
        """Every token's partner under every relation, see `Retrieval.sample`; the number of tokens where it has none.

        `names` of a graph's nodes.
        """
        none, last, is_query = len(self.row), len(self.parents) - 1, self.block == 0
        is_last, on_one, token = self.slot == self.end, self.chain < self.chains, torch.arange(none)
        brings, nowhere = is_query | is_last, torch.full_like(token, none)
        is_key = on_one & ~brings
        brought = nowhere.scatter(0, self.symbol[brings], token[brings])
        first_key = nowhere.scatter_reduce(0, self.symbol[is_key], token[is_key], "amin")
        ancestors = torch.zeros(last + 1, last + 1, dtype=torch.bool)
        for node, keys in enumerate(map(list, self.parents)):
            ancestors[node] = ancestors[keys].any(0)
            ancestors[node, keys] = True

        def to(nodes: Tensor) -> Tensor:
            node = nodes.clamp(max=last)
            follows = on_one & (nodes <= last) & (is_query & is_last | ancestors[node, self.holds])
            there = brought[self.on_chain[node, self.chain.clamp(max=self.chains - 1)]]
            return there.where(follows, none)

        mate = token - self.slot + self.end.where(~brings, 0)
        found = {
            "pair_mate": mate.where(~is_query, none),
            "same_symbol": first_key[self.symbol].where(brings, brought[self.symbol]),
        }
        for node, name in enumerate(names):
            if self.parents[node]:
                found[f"to_{name}"] = to(torch.full_like(token, node))
        is_path = [*map(tuple, self.parents)] == [(), *((node,) for node in range(last))]
        for steps in range(1, last + 1 if is_path else 0):
            found[f"hop_{steps}"] = to(self.holds + steps)
        return found


def position_codes(count: int, dim: int, base: float | None) -> Float[Tensor, "code symbol_dim"]:
    """Cosines and sines that tell `count` places apart (paper, section 6; "rotary" there, but concatenated).

    `base` of geometric frequencies; `None`: whole multiples of 2π / count.
    """
    number = torch.arange(dim // 2, dtype=torch.float64)
    whole = 2.0 * math.pi * (number + 1.0) / count
    frequency = whole if base is None else base ** (-number / (dim // 2))
    angle = torch.arange(count, dtype=torch.float64)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), -1).float()


def selected(
    symbols: Float[Tensor, "member batch symbol dim"], which: Int[Tensor, "member batch item"]
) -> Float[Tensor, "member batch item dim"]:
    """Symbols of each sample, by their numbers."""
    # Whole rows are copied, which `gather` would do number by number.
    members, samples, count, dim = symbols.shape
    first = count * torch.arange(members * samples, device=symbols.device).view(members, samples, 1)
    return symbols.reshape(-1, dim).index_select(0, (which + first).flatten()).view(*which.shape, dim)
