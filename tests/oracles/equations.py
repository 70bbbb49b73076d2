"""Training texts in equations in plain Python: the slow obvious reference of `EquationsTask.sample`."""

import itertools
from typing import cast

import torch

from hopscope import rng
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.text.linear import equations
from hopscope.tasks.text.split import held_out_mappings
from hopscope.tasks.text.tokens import END, PADDING, numbered, tokenized


def reference_text(
    config: EquationsConfig, seed: int, stream: str, step: int, index: int
) -> dict[str, object]:
    """One training text: its `prompt`, `answer`, and the `repeated` lines, in words."""
    chains, deepest = config.chains, config.depths[-1]
    count = deepest + 1 + -(-chains * deepest // 4)
    blocks = [rng.bits(seed, stream, step, index, block=block).tolist() for block in range(count)]
    share = float(rng.uniform(torch.tensor(blocks[deepest][2])))
    # As float32, in which the limits are compared.
    until = torch.tensor(list(itertools.accumulate(config.shares))[:-1]).tolist()
    depth = config.depths[sum(share >= limit for limit in until)]
    values, *rounds = equations(deepest, chains).levels
    known: list[str] = list(values)
    orders = list(itertools.permutations(range(chains)))
    found: dict[str, str] = {}
    lines: list[str] = []
    for words, names in zip(blocks[:deepest], rounds, strict=True):
        if config.lines == "paper":
            choices = [known[-chains:][place] for place in orders[_below(words[:2], len(orders))]]
        else:
            tie = _below(words[:2], len(known) ** chains)
            choices = [known[tie // len(known) ** place % len(known)] for place in range(chains)]
        found |= zip(names, choices, strict=True)
        lines += [names[place] for place in orders[_below(words[2:], len(orders))]]
        known += names
    last = rounds[depth - 1]
    _avoid_held_out(config, found, last)
    told_names = [name for names in rounds[:depth] for name in names]
    among = told_names if config.asked == "any" else told_names[-chains:]
    query = among[-1 - _below(blocks[deepest][:2], len(among))]
    ranks = list(itertools.chain(*blocks[deepest + 1 :]))
    repeated = sorted(told_names, key=lambda name: ranks[told_names.index(name)])
    before, behind = equations(depth, chains).question
    told = [f"{name} = {found[name]}" for name in lines[: chains * depth]]
    return {
        "prompt": "\n".join([*told, f"{before}{query}{behind}"]),
        "answer": _end(found, query),
        "repeated": [f"{name} = {found[name]}" for name in repeated],
    }


def reference_tokens(
    config: EquationsConfig, seed: int, stream: str, step: int, index: int
) -> dict[str, object]:
    """The same text as token numbers: inputs, targets and weights of one sample of a batch."""
    text = reference_text(config, seed, stream, step, index)
    written = f"{text['prompt']} {text['answer']}"
    numbers = numbered(config.vocabulary)
    words = [each.token for each in tokenized(written)]
    prompt = len(words) - 1
    words.append(END)
    if config.repeated:
        words += [each.token for line in cast(list[str], text["repeated"]) for each in tokenized(line)]
    tokens = [numbers[word] for word in words]
    tokens += [numbers[PADDING]] * (config.positions + 1 - len(tokens))
    (depth,) = (depth for depth in config.depths if config.prompt_length(depth) == prompt)
    asked = [position in config.answered(depth) for position in config.readout]
    average = sum(
        share * len(config.answered(depth)) for share, depth in zip(config.shares, config.depths, strict=True)
    )
    return {
        "inputs": tokens[: config.positions],
        "targets": [tokens[at + 1] * here for at, here in zip(config.readout, asked, strict=True)],
        "weights": [here * len(asked) / average for here in asked],
    }


def _below(pair: list[int], limit: int) -> int:
    """A number below a limit from two random words, as `rng.integers`."""
    return ((pair[0] * 2**32 + pair[1]) * limit) >> 64


def _end(found: dict[str, str], name: str) -> str:
    while name in found:
        name = found[name]
    return name


def _avoid_held_out(config: EquationsConfig, found: dict[str, str], last: tuple[str, ...]) -> None:
    """Change the values in which the chains of the last names end, where these have a held-out mapping."""
    mapping = tuple(int(_end(found, name)) for name in last)
    held = held_out_mappings(config.chains, config.held_out_share, config.split_seed)
    if mapping not in held:
        return
    trained = [order for order in itertools.permutations(range(config.chains)) if order not in held]
    for name, value in zip(last, trained[held.index(mapping) % len(trained)], strict=True):
        while found[name] in found:
            name = found[name]
        found[name] = str(value)
