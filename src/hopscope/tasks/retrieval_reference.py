"""One sample of the retrieval problem in plain Python: the slow obvious reference of `RetrievalTask.sample`."""

import math
from itertools import count

from hopscope import rng
from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import RetrievalConfig

_SYMBOLS, _SHUFFLES, _PICKS = range(3)

Held = tuple[int, int]
"""Step k of a symbol x_k, and its chain."""


def reference_sample(
    config: RetrievalConfig, seed: int, stream: str, step: int, index: int
) -> dict[str, object]:
    """One sample as nested lists, by the names of a `Batch`; `target_weights` only where they are not all alike."""
    training_step = step
    if config.pool is not None and stream == "train":
        high, low, *_ = rng.bits(seed, stream, step, index, _PICKS).tolist()
        stream, step, index = "pool", 0, (((high << 32) | low) * config.pool) >> 64
        trained = True
    else:
        trained = stream == "train"
    symbols = _symbols(config, seed, stream, step, index)
    order, blocks = _order(config, seed, stream, step, index)
    tokens: list[tuple[str, int, Held]] = []
    for k in order:
        for chain in blocks[k]:
            tokens += [("first", k, (k - 1, chain)), ("second", k, (k, chain))]
    tokens += [("query", 0, (0, chain)) for chain in blocks[0]]
    described = {
        "inputs": [
            [*symbols[held], *_code(config, position, kind)]
            for position, (kind, _, held) in enumerate(tokens)
        ],
        "targets": [[x for k in config.asked for x in symbols[k, chain]] for chain in blocks[0]],
        "loss_mask": [kind == "query" for kind, _, _ in tokens],
        "roles": {
            "kind": [("first", "second", "query").index(kind) for kind, _, _ in tokens],
            "step": [k for _, k, _ in tokens],
            "chain": [chain for _, _, (_, chain) in tokens],
            "place": [blocks[k].index(chain) for _, k, (_, chain) in tokens],
        },
        "relations": _relations(config, tokens),
    }
    weights = _weights(config, training_step if trained else 0)
    return described if all(_weights_alike(config)) else {**described, "target_weights": weights}


def _words(how_many: int, seed: int, stream: str, step: int, index: int, block: int) -> list[int]:
    quads = -(-how_many // 4)
    words: list[int] = []
    for quad in range(quads):
        words += rng.bits(seed, stream, step, index * quads + quad, block).tolist()
    return words[:how_many]


def _symbols(
    config: RetrievalConfig, seed: int, stream: str, step: int, index: int
) -> dict[Held, list[float]]:
    dim, total = config.symbol_dim, (config.steps + 1) * config.chains * config.symbol_dim
    words = _words(total, seed, stream, step, index, _SYMBOLS)
    numbers = []
    for first, second in zip(words[::2], words[1::2], strict=True):
        radius = math.sqrt(-2.0 * math.log((first + 0.5) / 2**32))
        angle = 2.0 * math.pi * second / 2**32
        numbers += [radius * math.cos(angle), radius * math.sin(angle)]
    held = [(k, chain) for k in range(config.steps + 1) for chain in range(config.chains)]
    return {key: numbers[n * dim : (n + 1) * dim] for n, key in enumerate(held)}


def _order(
    config: RetrievalConfig, seed: int, stream: str, step: int, index: int
) -> tuple[list[int], list[list[int]]]:
    """Steps in the order of time, and for the queries and each step its chains in the order of time."""
    groups = [config.chains] * (config.steps + 1) + ([config.steps] if config.order == "random" else [])
    words = _words(sum(groups), seed, stream, step, index, _SHUFFLES)
    shuffles = []
    for size in groups:
        mine, words = words[:size], words[size:]
        shuffles.append(sorted(range(size), key=lambda item, mine=mine: (mine[item], item)))  # type: ignore[misc]
    if config.order == "random":
        order = [item + 1 for item in shuffles[-1]]
    elif config.order == "deepest-first":
        order = list(range(config.steps, 0, -1))
    elif config.order == "shallowest-first":
        order = list(range(1, config.steps + 1))
    else:
        order = list(config.order)
    return order, shuffles[: config.steps + 1]


def _code(config: RetrievalConfig, position: int, kind: str) -> list[float]:
    half, pairs = config.symbol_dim // 2, config.chains * config.steps
    if config.position == "token":
        number, total = position, config.positions
    else:
        number, total = (position - pairs if kind == "query" else position // 2), pairs + config.chains
    if config.frequencies == "harmonic":
        frequencies = [2.0 * math.pi * (n + 1) / total for n in range(half)]
    else:
        frequencies = [config.frequency_base ** (-n / half) for n in range(half)]
    return [math.cos(f * number) for f in frequencies] + [math.sin(f * number) for f in frequencies]


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
    return [float(k in wanted) for k in config.asked for _ in range(config.symbol_dim)]


def _weights_alike(config: RetrievalConfig) -> list[bool]:
    every = [config.targets, *(targets for _, targets in config.schedule)]
    return [config.steps_of(targets) == config.asked for targets in every]
