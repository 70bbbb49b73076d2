"""The sequence of a task on vectors before anything is shuffled: which token holds what, and who belongs to whom.

Every chain has one symbol for each node of a directed acyclic graph.  Nodes without parents are the query; any other
node is a table of tuples (a symbol of each parent, a value), one for every combination of its parents' symbols.  Where
all keys are of one chain, so is the value; only such values are keys of later nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

Symbol = tuple[int, tuple[int, ...]]
"""Node of a symbol, and its cell: the chain of every key that it stands beside (for the query, its own chain)."""


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes:
        node: table that it belongs to, or its own node if it is part of a query.
        cell: cell of the tuple that it belongs to.
        slot: place within the tuple or within the query.
        block: 0 for the queries, 1, 2 … for the tables.
        row: number of the tuple in the whole sample; those of the queries come first.
        holds: its symbol.
    """

    node: int
    cell: tuple[int, ...]
    slot: int
    block: int
    row: int
    holds: Symbol


Role = Callable[[Token], int]
"""What a token is in every sample."""

Partner = Callable[[Token], int | None]
"""Number of the token that another is related to in every sample."""


@dataclass(frozen=True)
class SequenceLayout:
    """Tokens and symbols of one sample, numbered: the queries chain by chain, then the tables tuple by tuple.

    Attributes:
        parents: parents of every node, each earlier than the node.
        chains: number of chains N.
    """

    parents: tuple[tuple[int, ...], ...]
    chains: int

    @cached_property
    def roots(self) -> list[int]:
        """Nodes without parents, which the query shows."""
        return [node for node, parents in enumerate(self.parents) if not parents]

    @cached_property
    def tables(self) -> list[int]:
        """Nodes with parents, each of which has a table."""
        return [node for node, parents in enumerate(self.parents) if parents]

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Number of tuples and their length: of the queries, then of every table."""
        arity = [len(self.parents[node]) for node in self.tables]
        return [(self.chains, len(self.roots)), *((self.chains**keys, keys + 1) for keys in arity)]

    @cached_property
    def symbols(self) -> dict[Symbol, int]:
        """The number of every symbol, in the order of nodes."""
        every = ((node, cell) for node in range(len(self.parents)) for cell in self._cells(node))
        return {symbol: number for number, symbol in enumerate(every)}

    @cached_property
    def tokens(self) -> list[Token]:
        """Every token, in the order of its number."""
        return [
            Token(node, cell, slot, block, row, holds)
            for row, (block, cell, held) in enumerate(self._rows())
            for slot, (node, holds) in enumerate(held)
        ]

    def on_chain(self, node: int, chain: int) -> Symbol:
        """The symbol that a chain has for a node."""
        return node, (chain,) * max(1, len(self.parents[node]))

    def chain_of(self, token: Token) -> int:
        """Chain that a tuple lies on, N for none."""
        return token.cell[0] if len(set(token.cell)) == 1 else self.chains

    def is_query(self, token: Token) -> bool:
        """Whether a token is part of a query."""
        return token.block == 0

    def is_value(self, token: Token) -> bool:
        """Whether a token is the last of its tuple."""
        return not self.is_query(token) and token.slot == len(self.parents[token.node])

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Words of what a token can be in its tuple: those of pairs, those of longer tuples, and `query`."""
        longest = max(len(parents) for parents in self.parents)
        keys = [f"key{number}" for number in range(1, longest + 1)] if longest > 1 else []
        pairs = ["first", "second"] if any(len(parents) == 1 for parents in self.parents) else []
        return (*keys, *(["value"] if keys else []), *pairs, "query")

    def kind(self, token: Token) -> int:
        """What a token is in its tuple, as a number of `kinds`."""
        if self.is_query(token):
            return self.kinds.index("query")
        if len(self.parents[token.node]) == 1:
            return self.kinds.index(("first", "second")[token.slot])
        return self.kinds.index("value" if self.is_value(token) else f"key{token.slot + 1}")

    # Relations: number of the token that is the partner.

    def pair_mate(self, token: Token) -> int | None:
        """From a key to the value of its tuple, from a value to the first key."""
        if self.is_query(token):
            return None
        keys, own = len(self.parents[token.node]), self._numbers[token.row, token.slot]
        return own - keys if self.is_value(token) else own + keys - token.slot

    def same_symbol(self, token: Token) -> int | None:
        """From a key to where its symbol is brought; from there to the first key with it in a tuple on its chain."""
        if self.is_query(token) or self.is_value(token):
            return self._first_use.get(token.holds)
        return self._brings[token.holds]

    def to_node(self, token: Token, node: int) -> int | None:
        """From the end of a query, or a symbol of the chain that `node` follows from, to where `node` is brought."""
        chain = self.chain_of(token)
        is_end = self.is_query(token) and token.slot == len(self.roots) - 1
        follows = is_end or token.holds[0] in self._ancestors[node]
        return self._brings[self.on_chain(node, chain)] if follows and chain < self.chains else None

    def hop(self, token: Token, steps: int) -> int | None:
        """From x_k to where x_{k + steps} is brought, in a graph that is a single path."""
        node = token.holds[0] + steps
        return self._brings[self.on_chain(node, self.chain_of(token))] if node < len(self.parents) else None

    def _cells(self, node: int) -> Iterator[tuple[int, ...]]:
        return product(range(self.chains), repeat=max(1, len(self.parents[node])))

    def _rows(self) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, Symbol]]]]:
        """Block and cell of every tuple, and of each of its tokens the node that it belongs to and its symbol."""
        for chain in range(self.chains):
            yield 0, (chain,), [(root, self.on_chain(root, chain)) for root in self.roots]
        for block, node in enumerate(self.tables, 1):
            for cell in self._cells(node):
                keys = map(self.on_chain, self.parents[node], cell)
                yield block, cell, [(node, holds) for holds in (*keys, (node, cell))]

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        return {(token.row, token.slot): number for number, token in enumerate(self.tokens)}

    @cached_property
    def _brings(self) -> dict[Symbol, int]:
        """Number of the token that brings each symbol: the value of its tuple, or the query."""
        return {
            token.holds: number
            for number, token in enumerate(self.tokens)
            if self.is_query(token) or self.is_value(token)
        }

    @cached_property
    def _first_use(self) -> dict[Symbol, int]:
        """Number of the first key with each symbol, among the tuples that lie on a chain."""
        first: dict[Symbol, int] = {}
        for number, token in enumerate(self.tokens):
            is_key = not self.is_query(token) and not self.is_value(token)
            if is_key and self.chain_of(token) < self.chains:
                first.setdefault(token.holds, number)
        return first

    @cached_property
    def _ancestors(self) -> list[set[int]]:
        every: list[set[int]] = []
        for parents in self.parents:
            every.append({*parents, *(node for parent in parents for node in every[parent])})
        return every
