"""One sample of the retrieval problem in plain Python: the slow obvious reference of `RetrievalTask.sample`."""

from collections.abc import Sequence
from itertools import accumulate, count

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.plain_draws import PlainDraws

from . import vectors as draws

Held = tuple[int, int]
"""Step k of a symbol x_k, and its chain."""


def reference_sample(
    config: RetrievalConfig, seed: int, stream: str, step: int, index: int
) -> dict[str, object]:
    """One sample as nested lists, by the names of a `Batch`; `weights` only where they are not all alike."""
    address = draws.pooled(config, (seed, stream, step, index))
    every = [(k, chain) for k in range(config.steps + 1) for chain in range(config.chains)]
    symbols = dict(zip(every, draws.symbols(config, address, len(every)), strict=True))
    order, blocks = _order(config, address)
    tokens: list[tuple[str, int, Held]] = []
    for k in order:
        for chain in blocks[k]:
            tokens += [("first", k, (k - 1, chain)), ("second", k, (k, chain))]
    tokens += [("query", 0, (0, chain)) for chain in blocks[0]]
    described: dict[str, object] = {
        "inputs": [
            [*symbols[held], *_code(config, position, kind)]
            for position, (kind, _, held) in enumerate(tokens)
        ],
        "targets": [[x for k in config.asked for x in symbols[k, chain]] for chain in blocks[0]],
        "roles": {
            "kind": [("first", "second", "query").index(kind) for kind, _, _ in tokens],
            "step": [k for _, k, _ in tokens],
            "chain": [chain for _, _, (_, chain) in tokens],
            "place": [blocks[k].index(chain) for _, k, (_, chain) in tokens],
            "holds": [k for _, _, (k, _) in tokens],
        },
        "relations": _relations(config, tokens),
    }
    if config.shares:
        asked = _asked(config, seed, step, index) if stream == "train" else config.shares
        middle = sum(config.shares) / len(config.shares)
        weights = [share / middle for share in asked for _ in range(config.symbol_dim)]
    else:
        weights = _weights(config, step if stream == "train" else 0)
    alike = all(_weights_alike(config)) and not config.shares
    return described if alike else {**described, "weights": [weights]}


def _asked(config: RetrievalConfig, seed: int, step: int, index: int) -> Sequence[float]:
    """How much each step counts in one training sample."""
    if config.emphasis == "weights":
        return config.shares
    named = PlainDraws(seed, "train", step, index)
    if config.emphasis == "subsets":
        words = named.uniform("asked", (len(config.shares),))
        return [float(word < share) for word, share in zip(words, config.shares, strict=True)]
    word, ends = named.uniform("asked"), list(accumulate(config.shares))
    one = next((place for place, end in enumerate(ends[:-1]) if word < end), len(ends) - 1)
    return [float(place == one) for place in range(len(ends))]


def _order(config: RetrievalConfig, address: draws.Address) -> tuple[list[int], list[list[int]]]:
    """Steps in the order of time, and for the queries and each step its chains in the order of time."""
    groups = [config.chains] * (config.steps + 1) + ([config.steps] if config.order == "random" else [])
    shuffled = draws.shuffles(address, groups)
    if config.order == "random":
        order = [item + 1 for item in shuffled.pop()]
    elif config.order == "deepest-first":
        order = list(range(config.steps, 0, -1))
    elif config.order == "shallowest-first":
        order = list(range(1, config.steps + 1))
    else:
        order = list(config.order)
    return order, shuffled


def _code(config: RetrievalConfig, position: int, kind: str) -> list[float]:
    if config.position == "token":
        return draws.code(config, position, config.positions)
    pairs = config.chains * config.steps
    number = position - pairs if kind == "query" else position // 2
    return draws.code(config, number, pairs + config.chains)


def _relations(config: RetrievalConfig, tokens: list[tuple[str, int, Held]]) -> dict[str, list[int]]:
    second = {held: p for p, (kind, _, held) in enumerate(tokens) if kind == "second"}
    names = ["previous", "pair_mate", "same_symbol", *(f"hop_{j}" for j in range(1, config.steps + 1))]
    relations: dict[str, list[int]] = {name: [] for name in names}
    for position, (kind, _, (k, chain)) in enumerate(tokens):
        same = (p for p, (_, _, held) in enumerate(tokens) if held == (k, chain) and p != position)
        mate = {"first": position + 1, "second": position - 1, "query": NO_RELATION}[kind]
        relations["previous"].append(position - 1)
        relations["pair_mate"].append(mate)
        relations["same_symbol"].append(next(same, NO_RELATION))
        for j, name in zip(count(1), names[3:], strict=False):
            relations[name].append(second.get((k + j, chain), NO_RELATION))
    return relations


def _weights(config: RetrievalConfig, step: int) -> list[float]:
    targets = config.targets
    for start, later in config.schedule:
        targets = later if step >= start else targets
    wanted = config.steps_of(targets)
    # However many steps are asked for, the loss is a mean over those.
    each = len(config.asked) / len(wanted)
    return [each * (k in wanted) for k in config.asked for _ in range(config.symbol_dim)]


def _weights_alike(config: RetrievalConfig) -> list[bool]:
    every = [config.targets, *(targets for _, targets in config.schedule)]
    return [config.steps_of(targets) == config.asked for targets in every]
