"""What samples of the retrieval problem are made of: tokens before anything is shuffled, symbols, position codes."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, product

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Layout:
    """Tokens and symbols of one sample, numbered: the queries chain by chain, then the tables tuple by tuple.

    Attributes:
        block, tuple_of: of each token its block (0: the queries; then the tables), and its tuple in the sample.
        slot: its place in the tuple.
        node, chain: the node whose table it is in (of a query its own), and the chain of its tuple (-1: on none).
        symbol, holds: the number of its symbol, and the node of that.
        on_chain: number of the symbol that a chain has for a node, `[node][chain]`; `symbols`: how many there are.
        relations: every token's partner, see `Retrieval.sample`; the number of tokens where it has none.
    """

    def __init__(self, parents: Sequence[Sequence[int]], chains: int, names: Sequence[str]):
        """`parents` of every node, each earlier than the node; `chains` N; `names` of a graph's nodes."""
        self.parents, self.chains, every = parents, chains, range(chains)
        counts = [chains ** max(1, len(keys)) for keys in parents]
        *starts, self.symbols = accumulate(counts, initial=0)
        # The cell (c, c, …) is number c·(1 + N + N² + …) of a node's N^p.
        steps = [(count - 1) // max(1, chains - 1) for count in counts]
        self.on_chain = [[start + step * c for c in every] for start, step in zip(starts, steps, strict=True)]
        roots = [node for node, keys in enumerate(parents) if not keys]
        # Of each tuple its block, node and chain, and of its tokens symbol and node.
        tuples = [(0, -1, chain, [(self.on_chain[root][chain], root) for root in roots]) for chain in every]
        for block, node in enumerate((node for node, keys in enumerate(parents) if keys), 1):
            for number, cells in enumerate(product(every, repeat=len(parents[node]))):
                pairs = zip(parents[node], cells, strict=True)
                keys = [(self.on_chain[key][cell], key) for key, cell in pairs]
                chain = cells[0] if len({*cells}) == 1 else -1
                tuples.append((block, node, chain, [*keys, (starts[node] + number, node)]))
        tokens = [
            (block, number, slot, len(held) - 1, node if block else holds, chain, symbol, holds)
            for number, (block, node, chain, held) in enumerate(tuples)
            for slot, (symbol, holds) in enumerate(held)
        ]
        self.relations = {name: torch.tensor(to) for name, to in self._relations(tokens, names).items()}
        columns = torch.tensor([*zip(*tokens, strict=True)]).unbind()
        self.block, self.tuple_of, self.slot, _, self.node, self.chain, self.symbol, self.holds = columns

    def _relations(self, tokens: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, list[int]]:
        none, last, found = len(tokens), len(self.parents) - 1, defaultdict[str, list[int]](list)
        is_path = [*map(tuple, self.parents)] == [(), *((node,) for node in range(last))]
        ancestors = list[set[int]]()
        for keys in self.parents:
            ancestors.append({*keys}.union(*(ancestors[key] for key in keys)))
        # Where a symbol is brought, by its query or at the end of its tuple, and where it is first a key on its chain.
        brought, first_key = dict[int, int](), dict[int, int]()
        for at, (block, _, slot, end, _, chain, symbol, _) in enumerate(tokens):
            if not block or slot == end:
                brought[symbol] = at
            elif chain >= 0:
                first_key.setdefault(symbol, at)
        for at, (block, _, slot, end, _, chain, symbol, holds) in enumerate(tokens):
            here, first = brought[symbol], at - slot
            found["pair_mate"].append(first + (0 if slot == end else end) if block else none)
            found["same_symbol"].append(first_key.get(symbol, none) if here == at else here)
            led = {f"to_{name}": node for node, name in enumerate(names) if self.parents[node]}
            led |= {f"hop_{steps}": holds + steps for steps in range(1, last + 1 if is_path else 0)}
            for name, node in led.items():
                asks = not block and slot == end
                known = chain >= 0 and node <= last and (asks or holds in ancestors[node])
                found[name].append(brought[self.on_chain[node][chain]] if known else none)
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
