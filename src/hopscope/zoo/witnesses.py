"""Witnesses: transformers with hand-built weights that solve the retrieval problem in the fewest layers possible.

`theory.information_flow` says how many layers are necessary in a model of attention; a witness is an ordinary
`Transformer` that needs no more.  Its *plan* says who reads whom in every layer; `hand_built` turns that into weights.

Positions and pieces are those of the paper's proof (appendix B): s₀ is the query, s_{2k-1} and s_{2k} the two
tokens of pair k; e_{2k} is the symbol x_k, e_{2k-1} the position code of pair k.  At first s_i holds e_{i-1} and
e_i.

What a position has read it keeps in *slots*, which are numbered along the chain from its own symbol: slot 0 is the
own symbol, slot -1 the own code, slot 1 the code of the other token with that symbol, slot -2 the symbol of the
other token of the pair, and so on.  Slot a of a query or second token holds e_{i+a}, of a first token, which looks
the other way, e_{i-1-a}.  Even slots hold symbols and odd ones codes, for every token: one set of weights serves all
rows at once.

A head compares one slot of the reading row with one slot of every key.  Two recipes reach the exact minimum:

- *causal mask, pairs deepest first, one head: pointer doubling.* Layer 1: second tokens read their pair mate.  With
  the own symbol they then know a symbol (slot 0) and the one before it (slot -2), by which others can find them.
  Layer t + 1: everybody knows 2^{t-1} - 1 symbols further on, looks for the token whose "symbol before" is the last
  of them, and learns its symbol and the 2^{t-1} - 1 that it knows.  A query knows D symbols after 1 + ⌈log₂(D + 1)⌉
  layers.
- *no mask, any order, two heads: reflection.* Every piece has two holders (the two tokens with a symbol; those of a
  pair), and so has every piece in a slot: the row that holds e in slot a, and its mirror image about e, which holds
  it in its slot a too.  One head reads the mirror image about a piece to the one side, the other to the other side.
  A token that knew g pieces beyond its own symbol, and likewise beyond its code, then knows any g' ≤ 3g + 1 with g' - g
  odd: 2D pieces are reached after the least t with (3^t - 1)/2 ≥ 2D.  The number g of each layer is chosen as small
  as the next layer permits, so that whatever is needed is read from a position that exists.

From the recipe a plan keeps what is needed: `plan` follows the answer back through the layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from hopscope.models.interventions import Roles
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import FIRST, KINDS, QUERY, SECOND
from hopscope.theory.information_flow import Mask
from hopscope.zoo.hand_built import (
    MATE,
    OWN_CODE,
    OWN_SYMBOL,
    Answer,
    Avoid,
    Copy,
    Design,
    HeadDesign,
    build,
)


class Read(NamedTuple):
    """Rows that all read the token with certain roles in their own chain.

    Attributes:
        rows: kind and step of the rows.
        target: kind and step of what they read; `None` where that is no such token of their own chain.
        routes: routes of the answer that the read belongs to, of which one may be missing; none where all depends on
            it.
    """

    rows: Roles
    target: Roles | None
    routes: frozenset[int] = frozenset()


class PlannedHead(NamedTuple):
    """A head, and its reads on which the answer depends."""

    design: HeadDesign
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class WitnessPlan:
    """Every read that an answer depends on, in order of the chain.

    Attributes:
        layers: heads of each layer.
    """

    layers: tuple[tuple[PlannedHead, ...], ...]

    @property
    def heads(self) -> int:
        """Most heads of a layer."""
        return max(len(heads) for heads in self.layers)

    def __str__(self) -> str:
        lines = []
        for layer, heads in enumerate(self.layers, 1):
            for number, head in enumerate(heads, 1):
                name = f"layer {layer}" + (f", head {number}" if self.heads > 1 else "")
                reads = "; ".join(f"{_words(read.rows)} → {_words(read.target)}" for read in head.reads)
                lines.append(f"{name}: {reads}")
        return "\n".join(lines)


def witness(task: RetrievalConfig, *, mask: Mask = "causal") -> Transformer:
    """A transformer of one member that solves the task: mean squared error below 0.01 for K ≥ 4, N = 4 and D ≤ 8.

    Symbols that almost coincide are confused.  That matters for many keys in few dimensions only: without a mask, the
    error is about 0.05 for K = 2, N = 5, D = 3.

    Args:
        task: any chains, steps and targets, with position codes by pair; with the causal mask, deepest first.
        mask: `"causal"`: one head a layer and 1 + ⌈log₂(D + 1)⌉ layers.  `"none"`: at most two heads, and the
            least t layers with (3^t - 1)/2 ≥ 2D.

    Returns:
        An ordinary transformer: pre-norm, GELU, codes carried by the inputs; only its first MLP does anything.

    Raises:
        ValueError: the task's position codes or order are others, or its codes too many to be told apart.
    """
    if task.position != "pair":
        raise ValueError(f"position: expected 'pair', as in the proof of Theorem 1, found {task.position!r}")
    deepest_first = task.order == "deepest-first" or task.order == tuple(range(task.steps, 0, -1))
    if mask == "causal" and not deepest_first:
        raise ValueError(f"order: expected 'deepest-first' with the causal mask, found {task.order!r}")
    planned = plan(task.steps, mask=mask, asked=task.asked)
    layers = tuple(
        tuple(head.design for head in heads) + (None,) * (planned.heads - len(heads))
        for heads in planned.layers
    )
    return build(task, Design(mask, layers, answers_of(task)))


def plan(steps: int, *, mask: Mask = "causal", asked: Sequence[int] | None = None) -> WitnessPlan:
    """The plan of a witness for chains of D steps; the module explains its two recipes.

    Args:
        steps: D.
        mask: `"causal"` (pairs deepest first, one head a layer) or `"none"` (pairs in any order, at most two).
        asked: steps that a query is asked for; by default all.  There are as many layers as the last of them needs.

    Raises:
        ValueError: steps that do not exist.
    """
    asked = tuple(range(1, steps + 1)) if asked is None else tuple(asked)
    if not asked or not set(asked) <= set(range(1, steps + 1)):
        raise ValueError(f"asked: expected steps from 1 to {steps}, found {list(asked)}")
    recipe = _pointer_doubling(max(asked)) if mask == "causal" else _reflections(max(asked))
    needs = _Needs(recipe, max(asked))
    for step in asked:
        needs.add(len(recipe), 0, 2 * step)
    return needs.plan()


def first_of(step: int) -> Roles:
    """The first token of the pair of a step."""
    return {"kind": FIRST, "step": step}


def second_of(step: int) -> Roles:
    """The second token of the pair of a step."""
    return {"kind": SECOND, "step": step}


def query() -> Roles:
    """The role of the query token."""
    return {"kind": QUERY, "step": 0}


def answers_of(task: RetrievalConfig) -> tuple[Answer, ...]:
    """Slots of a query that knows its chain, for every step that it is asked for."""
    return tuple(((2 * step, 1.0),) for step in task.asked)


@dataclass(frozen=True)
class _Head:
    """A head of a recipe: what it compares and all that it could copy.

    Attributes:
        flips: whether a key looks along the chain in the other direction than the row that reads it.
        copies: slot of the row → slot of the key.
    """

    mine: int
    theirs: int
    flips: bool
    avoid: Avoid
    copies: dict[int, int]

    def partner(self, position: int) -> int:
        """The position that a position of the chain reads."""
        forward = position % 2 == 0
        piece = position + self.mine if forward else position - 1 - self.mine
        return piece - self.theirs if forward != self.flips else piece + 1 + self.theirs


def _pointer_doubling(steps: int) -> list[list[_Head]]:
    recipe = [[_Head(OWN_CODE, OWN_CODE, True, "own symbol", {MATE: OWN_SYMBOL})]]
    known = 0
    while known < steps:
        hop = known + 1
        copies = {2 * (hop + ahead): 2 * ahead for ahead in range(hop)}
        recipe.append([_Head(2 * known, MATE, False, "unpaired", copies)])
        known += hop
    return recipe


def _reflections(steps: int) -> list[list[_Head]]:
    layers = 0
    while (3**layers - 1) // 2 < 2 * steps:
        layers += 1
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
    avoid: Avoid = "own symbol" if mirror == OWN_CODE else "own code"
    return _Head(mirror, mirror, True, avoid, {mine: 2 * mirror - mine for mine in written})


_Key = tuple[int, int]
"""Layer and number of a head."""


@dataclass
class _Needs:
    """The reads that an answer depends on, followed back through the layers of a recipe.

    Attributes:
        recipe: heads of each layer.
        steps: steps of the chain that the recipe is for.
        reads, copies: what is needed of each head: positions that read, and slots that are written.
    """

    recipe: list[list[_Head]]
    steps: int
    reads: dict[_Key, set[int]] = field(default_factory=dict)
    copies: dict[_Key, set[int]] = field(default_factory=dict)
    _known: set[tuple[int, int, int]] = field(default_factory=set)

    def add(self, layers: int, position: int, slot: int) -> None:
        """After `layers` layers, this position must hold the right piece in this slot."""
        if (layers, position, slot) in self._known:
            return
        self._known.add((layers, position, slot))
        if layers == 0:
            assert slot in (OWN_SYMBOL, OWN_CODE), f"nobody writes slot {slot} of position {position}"
            return
        writers = [n for n, head in enumerate(self.recipe[layers - 1]) if slot in head.copies]
        if not writers:
            self.add(layers - 1, position, slot)
            return
        (number,) = writers
        head = self.recipe[layers - 1][number]
        partner = head.partner(position)
        assert 0 <= partner <= 2 * self.steps, f"position {position} would read {partner}"
        self.reads.setdefault((layers - 1, number), set()).add(position)
        self.copies.setdefault((layers - 1, number), set()).add(slot)
        self.add(layers - 1, partner, head.copies[slot])
        self.add(layers - 1, position, head.mine)
        self.add(layers - 1, partner, head.theirs)

    def plan(self) -> WitnessPlan:
        """The needed heads of every layer."""
        return WitnessPlan(
            tuple(
                tuple(
                    self._head((layer, number))
                    for number in range(len(heads))
                    if (layer, number) in self.reads
                )
                for layer, heads in enumerate(self.recipe)
            )
        )

    def _head(self, key: _Key) -> PlannedHead:
        head = self.recipe[key[0]][key[1]]
        copies = tuple(Copy(slot, head.copies[slot]) for slot in sorted(self.copies[key]))
        return PlannedHead(
            HeadDesign((head.mine, head.theirs), copies, head.avoid),
            tuple(Read(_roles(row), _roles(head.partner(row))) for row in sorted(self.reads[key])),
        )


def _roles(position: int) -> Roles:
    if position == 0:
        return query()
    step = (position + 1) // 2
    return second_of(step) if position % 2 == 0 else first_of(step)


def _words(roles: Roles | None) -> str:
    if roles is None:
        return "another chain"
    kind = KINDS[roles["kind"]]
    return f"{kind} of pair {roles['step']}" if roles["step"] else kind
