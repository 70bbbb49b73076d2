"""One sample of the conditional problem in plain Python: the slow obvious reference of `ConditionalTask.sample`."""

from itertools import product
from typing import NamedTuple

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import ConditionalConfig

from . import vectors as draws

Symbol = tuple[str, tuple[int, ...]]
"""Node of a symbol, and the chains of the keys that it stands beside."""


class _Token(NamedTuple):
    kind: str
    node: str
    cell: tuple[int, ...]
    slot: int
    place: int
    row: int
    symbol: Symbol

    @property
    def brings(self) -> bool:
        """Whether the symbol comes from here: no other token is asked where it is."""
        return self.kind in ("value", "second", "query")

    @property
    def on_chain(self) -> bool:
        """Whether all keys are of one chain."""
        return len(set(self.cell)) == 1


def reference_sample(
    config: ConditionalConfig, seed: int, stream: str, step: int, index: int
) -> dict[str, object]:
    """One sample as nested lists, by the names of a `Batch`."""
    address = draws.pooled(config, (seed, stream, step, index))
    named = _symbols(config)
    vector = dict(zip(named, draws.symbols(config, address, len(named)), strict=True))
    tokens = _tokens(config, address)
    asking = [token.node == _roots(config)[-1] for token in tokens]
    rows = tokens[-1].row + 1
    inputs = []
    for position, token in enumerate(tokens):
        number, total = (position, len(tokens)) if config.position == "token" else (token.row, rows)
        inputs.append([*vector[token.symbol], *draws.code(config, number, total)])
    targets = []
    for token, asks in zip(tokens, asking, strict=True):
        if asks:
            right = [vector[_on_chain(config, name, token.cell[0])] for name in config.asked]
            targets.append([number for symbol in right for number in symbol])
    kinds = [kind for kind in _kinds(config) if any(token.kind == kind for token in tokens)]
    return {
        "inputs": inputs,
        "targets": targets,
        "roles": {
            "kind": [kinds.index(token.kind) for token in tokens],
            "node": [config.names.index(token.node) for token in tokens],
            "slot": [token.slot for token in tokens],
            "chain": [token.cell[0] if token.on_chain else config.chains for token in tokens],
            "place": [token.place for token in tokens],
            "holds": [config.names.index(token.symbol[0]) for token in tokens],
        },
        "relations": _relations(config, tokens),
    }


def _parents(config: ConditionalConfig) -> dict[str, tuple[str, ...]]:
    return {node.name: node.parents for node in config.nodes}


def _roots(config: ConditionalConfig) -> list[str]:
    return [node.name for node in config.nodes if not node.parents]


def _cells(config: ConditionalConfig, name: str) -> list[tuple[int, ...]]:
    return list(product(range(config.chains), repeat=len(_parents(config)[name]) or 1))


def _symbols(config: ConditionalConfig) -> list[Symbol]:
    return [(name, cell) for name in config.names for cell in _cells(config, name)]


def _on_chain(config: ConditionalConfig, name: str, chain: int) -> Symbol:
    return next((node, cell) for node, cell in _symbols(config) if node == name and set(cell) == {chain})


def _kinds(config: ConditionalConfig) -> list[str]:
    return [*(f"key{number}" for number in range(1, len(config.nodes))), "value", "first", "second", "query"]


def _tokens(config: ConditionalConfig, address: draws.Address) -> list[_Token]:
    """All tokens in the order of time."""
    parents = _parents(config)
    groups = [config.chains, *(len(_cells(config, name)) for name in config.tables)]
    if config.order == "random":
        groups.append(len(config.tables))
    queries, *shuffled = draws.shuffles(address, groups)
    if config.order == "random":
        order = tuple(config.tables[table] for table in shuffled[-1])
    elif config.order == "deepest-first":
        order = config.tables[::-1]
    else:
        order = config.tables if config.order == "shallowest-first" else config.order
    tokens: list[_Token] = []
    row = 0
    for name in order:
        keys = parents[name]
        words = (
            ["first", "second"] if len(keys) == 1 else [f"key{n + 1}" for n in range(len(keys))] + ["value"]
        )
        for place, number in enumerate(shuffled[config.tables.index(name)]):
            cell = _cells(config, name)[number]
            held = [_on_chain(config, key, chain) for key, chain in zip(keys, cell, strict=True)]
            for slot, symbol in enumerate([*held, (name, cell)]):
                tokens.append(_Token(words[slot], name, cell, slot, place, row, symbol))
            row += 1
    for place, chain in enumerate(queries):
        for slot, name in enumerate(_roots(config)):
            tokens.append(_Token("query", name, (chain,), slot, place, row, (name, (chain,))))
        row += 1
    return tokens


def _relations(config: ConditionalConfig, tokens: list[_Token]) -> dict[str, list[int]]:
    brought = {token.symbol: position for position, token in enumerate(tokens) if token.brings}
    relations = {"previous": [position - 1 for position in range(len(tokens))]}
    relations["pair_mate"] = [_pair_mate(tokens, position) for position in range(len(tokens))]
    relations["same_symbol"] = [
        _first_use(config, tokens, token) if token.brings else brought[token.symbol] for token in tokens
    ]
    roots, order = _roots(config), list(config.names)
    for name in config.tables:
        relations[f"to_{name}"] = [
            brought[_on_chain(config, name, token.cell[0])]
            if token.on_chain and (token.node == roots[-1] or _follows(config, name, token.symbol[0]))
            else NO_RELATION
            for token in tokens
        ]
    if all(node.parents == (before,) for node, before in zip(config.nodes[1:], order, strict=False)):
        for hop in range(1, len(order)):
            further = dict(zip(order, order[hop:], strict=False))
            relations[f"hop_{hop}"] = [
                brought.get((further.get(token.symbol[0], ""), token.cell), NO_RELATION) for token in tokens
            ]
    return relations


def _pair_mate(tokens: list[_Token], position: int) -> int:
    own = tokens[position]
    if own.kind == "query":
        return NO_RELATION
    mates = [other for other, token in enumerate(tokens) if token.row == own.row]
    return mates[0] if own.brings else mates[-1]


def _first_use(config: ConditionalConfig, tokens: list[_Token], own: _Token) -> int:
    uses = [
        (config.names.index(token.node), position)
        for position, token in enumerate(tokens)
        if token.symbol == own.symbol and not token.brings and token.on_chain
    ]
    return min(uses)[1] if uses else NO_RELATION


def _follows(config: ConditionalConfig, name: str, ancestor: str) -> bool:
    """Whether a node follows from another, in one step or more."""
    parents = _parents(config)[name]
    return ancestor in parents or any(_follows(config, parent, ancestor) for parent in parents)
