"""A sample of the retrieval problem before anything is shuffled: which token holds what, and who belongs to whom."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

Symbol = tuple[int, tuple[int, ...]]
"""Node of a symbol, and its cell: the chain of every key that it stands beside (for the query, its own chain)."""


class Token(NamedTuple):
    """One token: its block (0: the queries), its tuple (`row`) in the sample, its place there; the `node` whose table
    it is in (of a query the own one), the chain of its tuple (N: on none), its symbol, and whether it `brings` this, as
    a value or a query."""

    block: int
    row: int
    slot: int
    node: int
    chain: int
    holds: Symbol
    brings: bool


class Layout:
    """Tokens and symbols of one sample, numbered: the queries chain by chain, then the tables tuple by tuple.

    Attributes:
        blocks: number of tuples and their length: of the queries, then of every table.
        symbols: the number of every symbol, in the order of nodes.
        kinds: words of what a token can be in its tuple: those of longer tuples, those of pairs, and `query`.
    """

    def __init__(self, parents: Sequence[Sequence[int]], chains: int):
        """`parents` of every node, each earlier than the node; `chains` N."""
        self.parents, self.chains, arity = parents, chains, [len(keys) for keys in parents]
        roots = [node for node, keys in enumerate(arity) if not keys]
        tables = [node for node, keys in enumerate(arity) if keys]
        cells = [[*product(range(chains), repeat=max(1, keys))] for keys in arity]
        self.blocks = [(chains, len(roots)), *((len(cells[node]), arity[node] + 1) for node in tables)]
        every = ((node, cell) for node, of_node in enumerate(cells) for cell in of_node)
        self.symbols = {symbol: number for number, symbol in enumerate(every)}
        tuples: list[tuple[int, tuple[int, ...], list[Symbol]]]
        tuples = [(0, (chain,), [self.on_chain(root, chain) for root in roots]) for chain in range(chains)]
        for block, node in enumerate(tables, 1):
            for cell in cells[node]:
                tuples.append((block, cell, [*map(self.on_chain, parents[node], cell), (node, cell)]))
        self.tokens = list[Token]()
        for row, (block, cell, held) in enumerate(tuples):
            chain = cell[0] if len({*cell}) == 1 else chains
            for slot, holds in enumerate(held):
                node, brings = tables[block - 1] if block else holds[0], block == 0 or slot == len(held) - 1
                self.tokens.append(Token(block, row, slot, node, chain, holds, brings))
        keys = [*(f"key{number}" for number in range(1, max(arity) + 1)), "value"] if max(arity) > 1 else []
        self.kinds = (*keys, *(("first", "second") if 1 in arity else ()), "query")

    def on_chain(self, node: int, chain: int) -> Symbol:
        """The symbol that a chain has for a node."""
        return node, (chain,) * max(1, len(self.parents[node]))

    def kind(self, token: Token) -> int:
        """What a token is in its tuple, as a number of `kinds`."""
        if len(self.parents[token.node]) == 1:
            return self.kinds.index(("first", "second")[token.slot])
        name = "value" if token.brings else f"key{token.slot + 1}"
        return self.kinds.index(name if token.block else "query")

    def relations(self, names: Sequence[str]) -> dict[str, list[int | None]]:
        """Number of every token's partner under every relation, see `Retrieval.sample`; `names` of a graph's nodes."""
        every, parents, ancestors = [*enumerate(self.tokens)], self.parents, list[set[int]]()
        for keys in parents:
            ancestors.append({*keys, *(node for key in keys for node in ancestors[key])})
        brings, firsts = {token.holds: number for number, token in every if token.brings}, dict[Symbol, int]()
        for number, token in every:
            if not token.brings and token.chain < self.chains:
                firsts.setdefault(token.holds, number)

        def mate(number: int, token: Token) -> int | None:
            keys = len(parents[token.node])
            return None if not token.block else number - keys if token.brings else number + keys - token.slot

        def to(node: int, token: Token) -> int | None:
            last_of_query = not token.block and token.slot == self.blocks[0][1] - 1
            follows = node < len(parents) and (last_of_query or token.holds[0] in ancestors[node])
            return brings[self.on_chain(node, token.chain)] if follows and token.chain < self.chains else None

        found = {
            "pair_mate": [mate(*each) for each in every],
            "same_symbol": [(firsts if token.brings else brings).get(token.holds) for token in self.tokens],
        }
        for node, name in enumerate(names):
            if parents[node]:
                found[f"to_{name}"] = [to(node, token) for token in self.tokens]
        is_path = [*map(tuple, parents)] == [(), *((node,) for node in range(len(parents) - 1))]
        for steps in range(1, len(parents) if is_path else 0):
            found[f"hop_{steps}"] = [to(token.holds[0] + steps, token) for token in self.tokens]
        return found
