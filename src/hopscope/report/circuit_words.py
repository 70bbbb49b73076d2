"""Circuits in words: rules as sentences, symbols with their index, uses of a path."""

import re

from hopscope.report.circuits import CircuitPath, ListedPath, Target, Use
from hopscope.words import lowered

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_PARTS = {"Q": "queries", "K": "keys", "V": "values"}

_RULES = {
    "previous": "the token just before",
    "pair_mate": "the other token of the pair",
    "same_symbol": "the other token with the same symbol",
    "own_chain": "on its own chain",
    "over_role": "all alike, by position alone",
    "identity": "the row itself",
    "mean_map": "fixed positions (the head’s mean map)",
    "learned": "tokens that no rule names (the head’s own softmax)",
    "uniform": "all visible tokens alike",
}


def symbol(name: str) -> str:
    """`x_2` as x₂; other names stay as they are."""
    found = re.fullmatch(r"([A-Za-z]+)_(\d+)", name)
    return lowered(f"{found[1]}{found[2]}") if found else name


def head_name(path: ListedPath) -> str:
    """A path's head, written as `layer.head`."""
    return f"{path.layer}.{path.head}"


def carries_signs(path: ListedPath) -> str:
    """What a path brings, in a row; a dash for nothing."""
    return ", ".join(map(symbol, path.brings)) or "–"


def rule_words(rule: str) -> str:
    """A rule with one target in words."""
    hops = re.fullmatch(r"hop_(\d+)", rule)
    if hops is None:
        return _RULES.get(rule, rule.replace("_", " "))
    number = int(hops[1])
    count = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{count} hop{'' if number == 1 else 's'} along its chain"


def target_words(target: Target) -> str:
    """A target in words: `second 1`, `all first 2`."""
    return f"all {target.role}" if target.every else target.role


def reads_words(path: ListedPath) -> str:
    """Targets of a path with their rules: `second 1 (one hop on along the same chain)`."""
    said = []
    for target in path.targets:
        share = f"{target.share:.0%} " if len(path.targets) > 1 else ""
        if not target.role:
            said.append(rule_words(target.rule))
        else:
            said.append(f"{share}{target_words(target)} ({rule_words(target.rule)})")
    return " and ".join(said)


def carries_words(path: ListedPath) -> str:
    """Things that a path carries: `x₁, x₂ and position`."""
    names = [symbol(name) for name in path.brings]
    if not names:
        return "nothing that could be measured alone"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def use_words(use: Use) -> str:
    """One use of a path: `readout`, or `keys of 4.1 (query)`."""
    if use.reader == "readout":
        return "readout"
    where = f"{use.reader.layer}.{use.reader.head} ({use.reader.query_role})"
    part = _PARTS.get(use.part or "", use.part)
    return f"{part} of {where}" if part else where


def use_sign(use: Use) -> str:
    """One use of a path in short: `readout`, or `4.1 K`."""
    if use.reader == "readout":
        return "readout"
    return f"{use.reader.layer}.{use.reader.head} {(use.part or '')[:1].upper()}".rstrip()


def title_words(path: CircuitPath) -> str:
    """A path as a title: `Head 4.1: query reads second 2`."""
    read = " and ".join(target_words(target) for target in path.targets if target.role)
    return f"Head {head_name(path)}: {path.query_role} reads {read or rule_words(path.rule)}"


def path_words(path: ListedPath) -> str:
    """A path in one sentence, for those who cannot see the graph."""
    return (
        f"Head {head_name(path)}: {path.query_role} reads {reads_words(path)}; carries {carries_words(path)}."
    )
