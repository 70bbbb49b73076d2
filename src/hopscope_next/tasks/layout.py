"""A sample of the retrieval problem before anything is shuffled: which token holds what, and who belongs to whom."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product

Symbol = tuple[int, tuple[int, ...]]
"""Node of a symbol, and its cell: the chain of every key that it stands beside (for the query, its own chain)."""


@dataclass(frozen=True)
class Token:
    """One token: the table `node` (or own node of a query) and `cell` of its tuple, its `slot` there, `block` (0: the
    queries) and `row` (number of the tuple in the whole sample), and the symbol that it `holds`."""

    node: int
    cell: tuple[int, ...]
    slot: int
    block: int
    row: int
    holds: Symbol


@dataclass(frozen=True)
class Layout:
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
            for row, (block, cell, held) in enumerate(self._tuples())
            for slot, (node, holds) in enumerate(held)
        ]

    def on_chain(self, node: int, chain: int) -> Symbol:
        """The symbol that a chain has for a node."""
        return node, (chain,) * max(1, len(self.parents[node]))

    def chain_of(self, token: Token) -> int:
        """Chain that a tuple lies on, N for none."""
        return token.cell[0] if len(set(token.cell)) == 1 else self.chains

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Words of what a token can be in its tuple: those of longer tuples, those of pairs, and `query`."""
        longest = max(len(parents) for parents in self.parents)
        keys = [f"key{number}" for number in range(1, longest + 1)] if longest > 1 else []
        pairs = ["first", "second"] if any(len(parents) == 1 for parents in self.parents) else []
        return (*keys, *(["value"] if keys else []), *pairs, "query")

    def kind(self, token: Token) -> int:
        """What a token is in its tuple, as a number of `kinds`."""
        if token.block == 0:
            return self.kinds.index("query")
        if len(self.parents[token.node]) == 1:
            return self.kinds.index(("first", "second")[token.slot])
        return self.kinds.index("value" if self._is_value(token) else f"key{token.slot + 1}")

    def roles(self, graph: bool) -> dict[str, list[int]]:
        """Roles of every token; see `Retrieval.sample`."""
        own = {"node": "node", "slot": "slot"} if graph else {"step": "node"}
        return {
            "kind": [self.kind(token) for token in self.tokens],
            **{role: [getattr(token, field) for token in self.tokens] for role, field in own.items()},
            "chain": [self.chain_of(token) for token in self.tokens],
            "holds": [token.holds[0] for token in self.tokens],
        }

    def relations(self, names: Sequence[str]) -> dict[str, list[int | None]]:
        """Number of every token's partner; `names` are those of the nodes of a graph, none of a chain."""
        partners: dict[str, Callable[[Token], int | None]] = {
            "pair_mate": self.pair_mate,
            "same_symbol": self.same_symbol,
        }
        if names:
            partners |= {f"to_{names[node]}": partial(self.to_node, node=node) for node in self.tables}
        if self.parents == ((), *((node,) for node in range(len(self.parents) - 1))):
            partners |= {f"hop_{hop}": partial(self.hop, steps=hop) for hop in range(1, len(self.parents))}
        return {name: [partner(token) for token in self.tokens] for name, partner in partners.items()}

    def pair_mate(self, token: Token) -> int | None:
        """From a key to the value of its tuple, from a value to the first key."""
        if token.block == 0:
            return None
        keys, own = len(self.parents[token.node]), self._numbers[token.row, token.slot]
        return own - keys if self._is_value(token) else own + keys - token.slot

    def same_symbol(self, token: Token) -> int | None:
        """From a key to where its symbol is brought; from there to the first key with it in a tuple on its chain."""
        brings = token.block == 0 or self._is_value(token)
        return self._first_use.get(token.holds) if brings else self._brings[token.holds]

    def to_node(self, token: Token, node: int) -> int | None:
        """From the end of a query, or a symbol of the chain that `node` follows from, to where `node` is brought."""
        chain = self.chain_of(token)
        is_end = token.block == 0 and token.slot == len(self.roots) - 1
        follows = is_end or token.holds[0] in self._ancestors[node]
        return self._brings[self.on_chain(node, chain)] if follows and chain < self.chains else None

    def hop(self, token: Token, steps: int) -> int | None:
        """From x_k to where x_{k + steps} is brought, in a graph that is a single path."""
        node = token.holds[0] + steps
        return self._brings[self.on_chain(node, self.chain_of(token))] if node < len(self.parents) else None

    def _is_value(self, token: Token) -> bool:
        return token.block > 0 and token.slot == len(self.parents[token.node])

    def _cells(self, node: int) -> Iterator[tuple[int, ...]]:
        return product(range(self.chains), repeat=max(1, len(self.parents[node])))

    def _tuples(self) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, Symbol]]]]:
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
        every = enumerate(self.tokens)
        return {each.holds: number for number, each in every if each.block == 0 or self._is_value(each)}

    @cached_property
    def _first_use(self) -> dict[Symbol, int]:
        first: dict[Symbol, int] = {}
        for number, token in enumerate(self.tokens):
            is_key = token.block > 0 and not self._is_value(token)
            if is_key and self.chain_of(token) < self.chains:
                first.setdefault(token.holds, number)
        return first

    @cached_property
    def _ancestors(self) -> list[set[int]]:
        every: list[set[int]] = []
        for parents in self.parents:
            every.append({*parents, *(node for parent in parents for node in every[parent])})
        return every
