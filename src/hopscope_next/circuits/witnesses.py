"""Witnesses: transformers with hand-built weights that solve retrieval in the fewest layers (`theory` says how few).

*Causal mask, pairs deepest first, one head: pointer doubling.*  First, second tokens read their pair mate: they then
know the symbol before theirs, by which others can find them.  In layer t + 1 everybody knows 2^{t-1} - 1 symbols
further on, looks for the token whose "symbol before" is the last of them, and learns all that it knows.

*No mask, any order, two heads: reflection.*  Every piece has two holders (the two tokens with a symbol; those of a
pair), and so has every piece in a slot: the row that holds it, and its mirror image about the piece, which holds it in
the same slot.  One head reads the mirror image to one side, the other to the other side.  Whoever knew g pieces beyond
its own symbol, and as many beyond its code, then knows any g' ≤ 3g + 1 with g' - g odd.  The g of each layer is as
small as the next one permits, so that whatever is needed is read from a position that exists.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

from hopscope_next.circuits.weights import MATE, OWN_CODE, OWN_SYMBOL, Answer, Copy, Head, build
from hopscope_next.errors import UserError
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Retrieval


class Planned(NamedTuple):
    """A head, and its reads on which the answer depends.

    Attributes:
        head: what it does.
        reads: rows, such as `query` or `second 2`, to what they read in their own chain; `None` where that is not
            always the same token of it.
        route: route of the answer that it belongs to, of which one may be missing; `None`: the answer needs it.
    """

    head: Head
    reads: dict[str, str | None]
    route: int | None = None


Plan = list[list[Planned]]
"""[layer][head]."""


def witness(task: Retrieval, *, causal: bool = True) -> Transformer:
    """A model that solves the task: mean squared error below 0.01 for K ≥ 4, N = 4 and D ≤ 8.

    Symbols that almost coincide are confused.  That matters for many keys in few dimensions only: without a mask, the
    error is about 0.05 for K = 2, N = 5, D = 3.

    Args:
        task: with position codes by pair; under the causal mask, deepest pairs first.
        causal: one head a layer and 1 + ⌈log₂(D + 1)⌉ layers; else at most two heads, and the least t layers with
            (3^t - 1)/2 ≥ 2D.

    Raises:
        UserError: the task's order or position codes are others, or its codes too many to be told apart.
    """
    if causal and task.order not in ("deepest-first", tuple(range(task.steps, 0, -1))):
        raise UserError(f"order: expected 'deepest-first' under the causal mask, found {task.order!r}")
    layers = plan(task.steps, causal=causal, asked=tuple(task.asked.values()))
    heads = max(map(len, layers))
    designs = [[each.head for each in layer] + [None] * (heads - len(layer)) for layer in layers]
    return build(task, designs, answers_of(task), causal=causal)


def answers_of(task: Retrieval) -> list[Answer]:
    """Slots of a query that knows its chain, for every step that it is asked for."""
    return [((2 * step, 1.0),) for step in task.asked.values()]


def plan(steps: int, *, causal: bool = True, asked: Sequence[int] | None = None) -> Plan:
    """Who reads whom in a witness for chains of D steps: as many layers as the last step that is asked for needs.

    Only reads and copies are kept on which an answer depends.

    Raises:
        UserError: steps that do not exist.
    """
    asked = tuple(range(1, steps + 1)) if asked is None else tuple(asked)
    if not asked or not set(asked) <= set(range(1, steps + 1)):
        raise UserError(f"asked: expected steps from 1 to {steps}, found {list(asked)}")
    recipe = _doubling(max(asked)) if causal else _reflection(max(asked))
    reads: dict[tuple[int, int], set[int]] = defaultdict(set)
    copies: dict[tuple[int, int], set[int]] = defaultdict(set)

    @cache
    def need(layers: int, position: int, slot: int) -> None:
        """After so many layers this position must hold the right piece in this slot."""
        writers = [n for n, head in enumerate(recipe[layers - 1]) if slot in head.copies] if layers else []
        for number in writers:
            head = recipe[layers - 1][number]
            partner = head.partner(position)
            reads[layers - 1, number].add(position)
            copies[layers - 1, number].add(slot)
            need(layers - 1, position, head.mine)
            need(layers - 1, partner, head.theirs)
            need(layers - 1, partner, head.copies[slot])
        if layers and not writers:
            need(layers - 1, position, slot)

    for step in asked:
        need(len(recipe), 0, 2 * step)
    return [
        [
            Planned(
                Head((head.mine, head.theirs), head.kept(copies[layer, number]), head.avoid),
                {words(row): words(head.partner(row)) for row in sorted(reads[layer, number])},
            )
            for number, head in enumerate(heads)
            if (layer, number) in reads
        ]
        for layer, heads in enumerate(recipe)
    ]


def words(position: int) -> str:
    """A position of the chain as rows are named: 0 is the query, 2k - 1 and 2k are the tokens of the pair of step k."""
    return f"{'first' if position % 2 else 'second'} {(position + 1) // 2}" if position else "query"


class _Head(NamedTuple):
    mine: int
    theirs: int
    flips: bool  # whether a key looks along the chain in the other direction than the row that reads it
    avoid: Literal["own symbol", "own code", "unpaired"]
    copies: dict[int, int]  # slot of the row → slot of the key: all that could be copied

    def partner(self, position: int) -> int:
        """The position that a position of the chain reads.  First tokens look the other way: their slot a holds piece
        i - 1 - a, that of the others piece i + a."""
        forward = position % 2 == 0
        piece = position + self.mine if forward else position - 1 - self.mine
        return piece - self.theirs if forward != self.flips else piece + 1 + self.theirs

    def kept(self, slots: set[int]) -> tuple[Copy, ...]:
        return tuple(Copy(slot, self.copies[slot]) for slot in sorted(slots))


def _doubling(steps: int) -> list[list[_Head]]:
    recipe, known = [[_Head(OWN_CODE, OWN_CODE, True, "own symbol", {MATE: OWN_SYMBOL})]], 0
    while known < steps:
        copies = {2 * (known + 1 + ahead): 2 * ahead for ahead in range(known + 1)}
        recipe.append([_Head(2 * known, MATE, False, "unpaired", copies)])
        known = 2 * known + 1
    return recipe


def _reflection(steps: int) -> list[list[_Head]]:
    layers = next(t for t in range(1, 99) if (3**t - 1) // 2 >= 2 * steps)
    grown = [2 * steps + layers % 2]
    for layer in range(layers - 1, -1, -1):
        # The smallest from which one layer can get there; of the layer's parity, since every layer adds an odd number.
        least = -(-(grown[0] - 1) // 3)
        grown.insert(0, least + (least + layer) % 2)
    return [
        [_mirror(known, (then - known - 1) // 2, side) for side in (1, -1)] for known, then in pairwise(grown)
    ]


def _mirror(known: int, slot: int, side: int) -> _Head:
    """The head that reads the mirror image about `slot`; about its counterpart on the code's side for side -1."""
    mirror = slot if side > 0 else -slot - 1
    first, last = known + 1, known + 2 * slot + 1
    written = range(first, last + 1) if side > 0 else range(-last - 1, -first)
    avoid: Literal["own symbol", "own code"] = "own symbol" if mirror == OWN_CODE else "own code"
    return _Head(mirror, mirror, True, avoid, {mine: 2 * mirror - mine for mine in written})
