"""Reading a sample as a person would: by equal vectors alone, without roles, relations or seeds."""

from itertools import permutations, product

from hopscope.tasks.config import ConditionalConfig, RetrievalConfig


def parents_of(config):
    """Parents of every node, by name."""
    if isinstance(config, RetrievalConfig):
        return {step: (step - 1,) if step else () for step in range(config.steps + 1)}
    assert isinstance(config, ConditionalConfig)
    return {node.name: node.parents for node in config.nodes}


def symbols_of(config, inputs):
    """The symbol at every position of one sample, as a tuple of numbers."""
    return [tuple(row[: config.symbol_dim]) for row in inputs.tolist()]


def readings(config, symbols):
    """All ways to understand a sequence: for every query in the order of time, node → symbol.

    Where the order of the tables is known there is at most one; otherwise every order is tried, and those remain in
    which all keys are found.
    """
    parents = parents_of(config)
    tables = [node for node, keys in parents.items() if keys]
    roots = [node for node, keys in parents.items() if not keys]
    named = {"deepest-first": [tables[::-1]], "shallowest-first": [tables], "random": permutations(tables)}
    orders = named[config.order] if isinstance(config.order, str) else [config.order]
    found = []
    for order in orders:
        rest, looked_up = list(symbols), {}
        for node in order:
            width = len(parents[node]) + 1
            rows = [
                tuple(rest.pop(0) for _ in range(width))
                for _ in product(range(config.chains), repeat=width - 1)
            ]
            looked_up[node] = {row[:-1]: row[-1] for row in rows}
        queries = [dict(zip(roots, rest[i:], strict=False)) for i in range(0, len(rest), len(roots))]
        try:
            for query in queries:
                for node in tables:
                    query[node] = looked_up[node][tuple(query[key] for key in parents[node])]
        except KeyError:
            continue
        found.append(queries)
    return found


def asked_symbols(config, reading):
    """What a reading answers, laid out as the targets of one sample."""
    return [[number for node in config.asked for number in query[node]] for query in reading]
