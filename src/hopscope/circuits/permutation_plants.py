"""Planted models of permutation lookup: one encoder layer.

A score is a sum of two tables, over pairs of symbols and over pairs of positions.  A head writes the symbols that it
reads (a *history*), or the positions of the x that it reads (a *pointer*).  In the MLP, a value counts as used where
the history holds enough of it: a hinge.  Recall wants the value whose weight in the history is that of the slot that
the pointer names: a tent, which only the right pointer at the last row opens.  So equal weights are enough for
elimination, and recall needs different ones.
Every feature stands beside a large constant: what a layer norm divides by then hardly depends on the features.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.plants import Plant, Read
from hopscope.circuits.weights import Units, assembled, features, put, reading, writing
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Permutation

_CONSTANT = 256.0
_NEVER = -40.0  # score of a key that is not read
_SYMBOL = 25.0  # score of a key with the row's own symbol, where symbols are compared
_USED, _RECALLED = 14.0, 28.0  # logits that a used value loses and a recalled one gains
_SHUT = 50.0  # what keeps a tent shut
_LEAST = 0.04  # weight in the history from which on a value counts as used


class _Head(NamedTuple):
    scores: Float[Tensor, "row key"]  # by position
    symbols: float = 0.0  # score of a key that has the row's own symbol
    pointer: bool = False  # it writes the positions of the x that it reads, and not the symbols
    decoy: Mapping[str, str] = {}  # rows and rule, where nobody reads its output
    inverted: bool = False  # its pointer names the x that is *not* read
    by_symbol: bool = False  # keys are weighed by their symbols too, the first V times as much as the last
    by_parity: bool = False  # rows with an even symbol give the slots' weights to the last slot first


def permutation_plants(values: int = 5) -> Iterator[Plant]:
    """All plants of permutation lookup with V values; each is built when it is asked for."""
    deepest, last, key = f"x {values}", f"x {values} repeat", torch.arange(2 * values - 1)
    row, is_x = key[:, None], key % 2 == 0
    earlier, seen = is_x[:, None] & ~is_x & (key < row), is_x & ((row == key) | (row == key[-1]))
    reads = (earlier, earlier, seen, seen, row == key, earlier & (key == row - 1))
    first = row + key == 0  # which has nothing to read but itself
    even, uneven, match, other, itself, before = (torch.where(read | first, 0.0, _NEVER) for read in reads)
    uneven[-1, 1::2] = _shares(values).log()
    # The last row reads earlier x, or itself (an earlier copy must be worth more); the other x read themselves.
    match[-1, -1], other[-1, -1] = -_SYMBOL / 2, _NEVER
    history, pointer = _Head(uneven), _Head(match, _SYMBOL, pointer=True)
    idle, previous = _Head(itself, decoy={"": "identity"}), _Head(before, decoy={deepest: "previous"})
    copy = _Head(match, _SYMBOL, decoy={last: "same_symbol"})
    absent = _Head(other, -_SYMBOL, pointer=True, inverted=True)
    by_symbol, by_match = "history by symbol", "history by match"

    def eliminated(head: int, rule: str = "over_role", at_last: str = "over_role") -> set[Read]:
        rows = {f"x {step}": rule for step in range(3, values)} | {deepest: at_last}
        found = {Read(0, head, row, "all y", how) for row, how in rows.items()}
        return found | {Read(0, head, "x 2", "y 1", "previous")}

    def recalled(pointer: int, head: int, target: str = "any", rule: str = "same_symbol") -> set[Read]:
        pair = {Read(0, pointer, last, target, rule), Read(0, head, last, "all y", "history")}
        return pair | eliminated(head, at_last="history")

    def plant(name: str, heads: Sequence[_Head], *circuits: set[Read], repeats: float = 0.5) -> Plant:
        task = Permutation(values=values, repeat_ratio=repeats)
        found, fakes = tuple(map(frozenset, circuits)), [head.decoy.items() for head in heads]
        decoys = tuple(Read(0, at, rows, None, rule) for at, each in enumerate(fakes) for rows, rule in each)
        return Plant(f"{name}, V = {values}", name.split()[0], task, _looking_up(task, heads), found, decoys)

    yield plant("elimination", [_Head(even)], eliminated(0), repeats=0.0)
    yield plant("elimination of two heads", [idle, _Head(even)], eliminated(1), repeats=0.0)
    yield plant("weights", [_Head(even, by_symbol=True)], eliminated(0, by_symbol, by_symbol), repeats=0.0)
    yield plant("recall by head 0", [pointer, history], recalled(0, 1))
    yield plant("recall by head 1", [history, pointer], recalled(1, 0))
    yield plant("decoys", [previous, history, pointer, copy], recalled(2, 1))
    yield plant("redundancy", [pointer, history, pointer], recalled(0, 1), recalled(2, 1))
    yield plant("inverted", [absent, history], recalled(0, 1, "all x", by_match))
    # The third x of five sees two slots whose weights are turned so little that equal ones will do.
    rows = {f"x {step}" for step in range(3 if values == 4 else 4, values + 1)} | {last}
    turned = {read for read in recalled(0, 1) if read.head == 1 and read.rows in rows}
    found = recalled(0, 1) - turned | {read._replace(rule=by_match) for read in turned}
    yield plant("parity", [pointer, _Head(uneven, by_parity=True)], found)


def _shares(values: int) -> Float[Tensor, " slot"]:  # of the last row's history, which tell its slots apart
    return torch.arange(values - 1, 0, -1) / (values * (values - 1) / 2)


def _looking_up(task: Permutation, heads: Sequence[_Head]) -> Transformer:
    values, length, shares = task.values, 2 * task.values - 1, _shares(task.values)
    written = {f"head {number}": values for number in range(len(heads))}
    at = features({"token": values, "place": length} | written | {"used": values, "recalled": values, "C": 1})
    token, place, found = at["token"], at["place"], {}
    for number, head in enumerate(heads):
        turned = torch.zeros(values, length)
        if head.by_parity:
            turned[1::2, 1::2] = shares.flip(0).log() - shares.log()
        weighed = torch.arange(values, 0, -1).log().expand(length, -1) * head.by_symbol
        of_token, of_place = torch.eye(values) * head.symbols, torch.cat((weighed, head.scores), 1)
        query = token @ torch.cat((of_token, turned), 1) + place @ of_place
        read = place[:, : length - 1 : 2] if head.pointer else token
        move = read, at[f"head {number}"][:, : read.shape[1]]
        found[0, number] = (query, torch.cat((token, place), 1)), move
    shape = Model(heads=len(heads), width=2 * len(token), activation="relu", norm="post")
    model = assembled(shape, task, found, [_verdicts(at, values, heads)])
    weights = model.weights()
    weights["embed.token.weight"][1:] = writing(token.T)
    weights["embed.position.weight"].copy_(writing(place.T + _CONSTANT * at["C"].T))
    for name in ("attention_norm", "mlp_norm"):
        # What the layer norm divides by, all but the share that the features have in it.
        weights[f"layers.0.{name}.weight"].fill_(_CONSTANT / math.sqrt(len(token)))
    put(model, "readout", reading(_RECALLED * at["recalled"] - _USED * at["used"]), column=1)
    weights["readout.bias"][0] = -2.0 * _RECALLED
    return model


def _verdicts(at: dict[str, Tensor], values: int, heads: Sequence[_Head]) -> list[Units]:
    # Whether each value is used, and whether recall wants it.
    own = [at[f"head {n}"] for n, head in enumerate(heads) if not (head.pointer or head.decoy)]
    history, place, token, shares = torch.stack(own).sum(0), at["place"], at["token"], _shares(values)
    # 0 below half of the least weight, 1 from it on; nothing is used at the first row.
    steep = 2.0 / _LEAST * (history - 2.0 * place[:, :1])
    found = [(steep, -1.0, at["used"]), (steep, -2.0, -at["used"])]
    width, parities = float(shares[0] - shares[1]) / 2.0, 1 + any(head.by_parity for head in heads)
    for number, head in enumerate(heads):
        for parity in range(parities if head.pointer else 0):
            for slot, share in enumerate(shares.flip(0) if parity else shares):
                gate = place[:, -1:] + (-1.0 if head.inverted else 1.0) * at[f"head {number}"][:, [slot]]
                if parities > 1:
                    gate = gate + token[:, parity::2].sum(1, keepdim=True)
                shut = _SHUT * (parities + 1 - head.inverted) + float(share)
                for bend, height in ((-width, 1.0), (0.0, -2.0), (width, 1.0)):
                    found.append((_SHUT * gate + history, -shut - bend, height / width * at["recalled"]))
    return found
