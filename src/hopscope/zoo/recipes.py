"""Recipes of planted models: ways to solve the retrieval problem, layer by layer, with every read that they depend on.

A recipe says nothing of where its layers and heads stand in a model; `planted` places it among idle layers and decoys.

In the grammar of simple rules:

- *doubling* and *reflection*: the plans of the witnesses (`zoo.witnesses`).
- *walk*: second tokens read their pair mate, and a query follows its chain by one hop in every layer.
- *copies*: a walk whose last symbol comes several times, each time with a share of the whole; one may be missing.

Outside of it:

- *relay*: every token copies what the second token some pairs earlier in time holds; the query finds the copy, not the
  original, by the key that was copied along.  The token that holds it belongs to any chain.
- *detour*: the same, but every second token looks some pairs before the next pair of its chain, not before itself: what
  it copies hangs on the order of the chains in two blocks, so that not even this first read is one of positions.
- *leak*: the last read gives the wanted token a share of the attention other than a half or all, the rest goes to
  tokens whose symbol is known, and the readout makes up for both.
- *leaking relay*: both; the last read is shared between the second and the first token of a pair of any chain.

Values do not care by which way they come.  A relay or detour also works if every token is *made* to copy what its own
chain needs and the query to read it there, by simple rules: a judge of the loss alone finds a circuit that the
model does not have.  Of those with a leak no rules are a substitute.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from hopscope.models.interventions import Roles
from hopscope.tasks.config import RetrievalConfig
from hopscope.theory.information_flow import Mask
from hopscope.zoo.hand_built import MATE, OWN_CODE, OWN_SYMBOL, Answer, Copy, HeadDesign
from hopscope.zoo.witnesses import PlannedHead, Read, answers_of, first_of, plan, query, second_of

_COPIED = 40
"""What is added to the number of a slot for that of its copy in a relay.  Plans of so few steps use fewer slots."""

_POINTER = 21
"""Slot for the code of another pair, in no plan of so few steps."""

_COARSE = 2e3
"""Sharpness at which float32 still tells scores of equal symbols apart to a thousandth, so that a softmax can share out
its attention as planned.  Different symbols in four dimensions are told apart well enough."""


@dataclass(frozen=True)
class Recipe:
    """A way to solve a task.

    Attributes:
        name: in words, with the number of steps.
        task: the task.
        mask: what a position sees.
        layers: heads of each layer.
        answers: as of a `Design`.
        last_hop: number of hops to the last token that a query needs, which it finds by the symbol of the step before;
            known from the last layer on.  `None` without the causal mask.
        explained: whether simple rules describe it, with equal shares where there are two targets.
        uneven: whether unequal shares are all that those rules lack.
        routes: number of routes of which any one may be missing; 0 where nothing may.
    """

    name: str
    task: RetrievalConfig
    mask: Mask
    layers: tuple[tuple[PlannedHead, ...], ...]
    answers: tuple[Answer, ...]
    last_hop: int | None
    explained: bool = True
    uneven: bool = False
    routes: int = 0


def witness_recipe(task: RetrievalConfig, mask: Mask) -> Recipe:
    """The recipe of a witness: pointer doubling under the causal mask, reflections without one."""
    layers = plan(task.steps, mask=mask).layers
    name = f"{'doubling' if mask == 'causal' else 'reflection'}, D = {task.steps}"
    return Recipe(
        name, task, mask, layers, answers_of(task), _hops(layers[-1][0]) if mask == "causal" else None
    )


def walk_recipe(task: RetrievalConfig) -> Recipe:
    """One hop of the query in every layer."""
    hops = [(_hop(step),) for step in range(1, task.steps + 1)]
    layers = ((_mates(task.steps),), *hops)
    return Recipe(f"walk, D = {task.steps}", task, "causal", layers, answers_of(task), task.steps)


def copies_recipe(task: RetrievalConfig, routes: Sequence[Sequence[str]]) -> Recipe:
    """A walk whose last symbol comes by several routes, each with the same share.

    Args:
        task: the task.
        routes: of each of the last layers.  `"straight"`: the query reads the token that brings the symbol.
            `"gathered"`: it reads the token before, which has looked the symbol up.
    """
    kinds, steps = [kind for layer in routes for kind in layer], task.steps
    numbered = count()
    last = [
        tuple(_route(steps, kind, next(numbered), 1.0 / len(kinds)) for kind in layer) for layer in routes
    ]
    layers = [(_mates(steps),), *((_hop(step),) for step in range(1, steps)), *last]
    through = frozenset(number for number, kind in enumerate(kinds) if kind == "gathered")
    if through:
        first = layers[1][0]
        gathering = Read(second_of(steps - 1), second_of(steps), through)
        layers[1] = (PlannedHead(first.design, (*first.reads, gathering)),)
    name = f"copies {' then '.join('+'.join(layer) for layer in routes)}, D = {steps}"
    return Recipe(name, task, "causal", tuple(layers), answers_of(task), task.steps, routes=len(kinds))


def relay_recipe(task: RetrievalConfig, shift: int) -> Recipe:
    """Pointer doubling whose last read finds a copy, so many pairs later in time than the original.

    Args:
        task: the task, of at least two steps.
        shift: number of pairs, up to N.
    """
    (mates,), *hops, (last,) = plan(task.steps).layers
    step, copies = _hops(last), last.design.copies
    rows = _rows_after(task, step, shift)
    layers = (
        (_marking(mates, [first_of(step)]),),
        *hops,
        (_relay([copy.theirs for copy in copies], OWN_CODE, shift, rows),),
        (_last_read(step, copies),),
    )
    name = f"relay {shift} pairs later, D = {task.steps}"
    return Recipe(name, task, "causal", layers, answers_of(task), step, explained=False)


def detour_recipe(task: RetrievalConfig, step: int, shift: int) -> Recipe:
    """A walk that finds a copy of one step's symbol with a token that has looked so many pairs before its next one.

    The last pairs of the block are copied by the second tokens of two steps before.  Those of the deepest step have no
    next pair and take any for it, in their own block; so that is not the step to be copied.

    Args:
        task: the task, of at least four steps.
        step: the step that is copied, from 3 to D - 1.
        shift: number of pairs, up to N.
    """
    assert 3 <= step < task.steps and 1 <= shift <= task.chains
    recipe = walk_recipe(task)
    rows = _rows_after(task, step - 1, shift)
    first, *later = recipe.layers[1:]
    pointing = PlannedHead(
        replace(first[0].design, copies=(*first[0].design.copies, Copy(_POINTER, OWN_CODE))),
        (*first[0].reads, *(Read(roles, second_of(roles["step"] + 1)) for roles in rows)),
    )
    later[step - 2] = (_last_read(step, (Copy(2 * step, OWN_SYMBOL),)),)
    layers = (
        (_marking(recipe.layers[0][0], [first_of(step)]),),
        (pointing,),
        (_relay([OWN_SYMBOL], _POINTER, shift, rows),),
        *later,
    )
    name = f"detour by {shift} pairs at step {step}, D = {task.steps}"
    return replace(recipe, name=name, layers=layers, explained=False)


def leak_recipe(task: RetrievalConfig, share: float) -> Recipe:
    """A walk whose last read gives the wanted token this share of the attention.

    The rest goes to the first token of the same pair, and for D = 1 to the query itself: they found no pair mate and
    are not avoided as much as elsewhere.  Their symbol is the one by which the query looks.
    """
    recipe = walk_recipe(task)
    marked = _marking(recipe.layers[0][0], [first_of(task.steps), *([query()] if task.steps == 1 else [])])
    layers = ((marked,), *recipe.layers[1:-1])
    uneven = task.steps > 1  # of a single step, the query itself is a third target
    return _leaking(replace(recipe, name="leak", layers=layers, uneven=uneven), share, 0)


def leaking_relay_recipe(task: RetrievalConfig, shift: int, share: float) -> Recipe:
    """A walk whose last read finds a copy so many pairs later in time, and gives it this share of the attention.

    The rest goes to the first token of the pair of the copy: as second tokens copy second ones, first copy first ones,
    and so it has the same key, and as a value the symbol by which the query looks.

    Args:
        task: the task, of at least two steps.
        shift: number of pairs, below N.
        share: part of the attention.
    """
    recipe, rows = walk_recipe(task), _rows_after(task, task.steps, shift)
    firsts = [first_of(roles["step"]) for roles in rows]
    relay = _relay([OWN_SYMBOL], OWN_CODE, shift, [*rows, *firsts])
    layers = ((_marking(recipe.layers[0][0], firsts),), *recipe.layers[1:-1], (relay,))
    return _leaking(replace(recipe, name=f"leaking relay {shift} pairs later", layers=layers), share, _COPIED)


# Parts.


def _hops(head: PlannedHead) -> int:
    """Number of hops of the query that a head of pointer doubling brings."""
    target = head.reads[0].target
    assert target is not None
    return target["step"]


def _mates(steps: int) -> PlannedHead:
    """Second tokens read their pair mate."""
    design = HeadDesign((OWN_CODE, OWN_CODE), (Copy(MATE, OWN_SYMBOL),), "own symbol")
    return PlannedHead(design, tuple(Read(second_of(step), first_of(step)) for step in range(1, steps + 1)))


def _hop(step: int) -> PlannedHead:
    """The query, which knows the symbol of the step before, reads that of this step."""
    design = HeadDesign((2 * (step - 1), MATE), (Copy(2 * step, OWN_SYMBOL),), "unpaired")
    return PlannedHead(design, (Read(query(), second_of(step)),))


def _route(steps: int, kind: str, number: int, share: float) -> PlannedHead:
    # The token of the step before has its next symbol in slot 2, as everybody has from the layer of the first hop on.
    step, slot = (steps, OWN_SYMBOL) if kind == "straight" else (steps - 1, 2)
    design = HeadDesign((2 * (step - 1), MATE), (Copy(2 * steps, slot, share),), "unpaired")
    return PlannedHead(design, (Read(query(), second_of(step), frozenset({number})),))


def _marking(mates: PlannedHead, rows: Sequence[Roles]) -> PlannedHead:
    """The head that reads pair mates, when it also matters that some tokens find none and read themselves."""
    return PlannedHead(mates.design, (*mates.reads, *(Read(roles, roles) for roles in rows)))


def _relay(slots: Sequence[int], start: int, shift: int, rows: Sequence[Roles]) -> PlannedHead:
    """Tokens copy the key and some slots of the second token so many pairs before the place whose code they hold."""
    copies = tuple(Copy(slot + _COPIED, slot) for slot in (MATE, *slots))
    # First tokens read first ones: their copies have the right key too, but are avoided.
    design = HeadDesign((start, OWN_CODE), copies, "other kind", -shift)
    return PlannedHead(design, tuple(Read(roles, None) for roles in rows))


def _last_read(step: int, copies: Sequence[Copy]) -> PlannedHead:
    """The query, which knows the symbol of the step before, reads a copy of this step's token, not the original."""
    taken = tuple(Copy(copy.mine, copy.theirs + _COPIED) for copy in copies)
    return PlannedHead(
        HeadDesign((2 * (step - 1), MATE + _COPIED), taken, "unpaired"), (Read(query(), None),)
    )


def _leaking(recipe: Recipe, share: float, copied: int) -> Recipe:
    """With a last read, of an original or of a copy, that leaks, and a readout that makes up for it."""
    task = recipe.task
    known, whole = 2 * (task.steps - 1), 2 * task.steps
    # The query of a single step is itself one of those that have the right symbol and no pair mate.
    others = 2 if task.steps == 1 else 1
    design = HeadDesign(
        (known, MATE + copied),
        (Copy(whole, OWN_SYMBOL + copied, 1.0 / share),),
        "unpaired",
        sharpness=_COARSE,
        unpaired=math.log(share * others / (1.0 - share)) / task.symbol_dim,
    )
    answer = ((whole, 1.0), (known, -(1.0 - share) / share))
    return replace(
        recipe,
        name=f"{recipe.name}, share {share:.2f}, D = {task.steps}",
        layers=(*recipe.layers, (PlannedHead(design, (Read(query(), None),)),)),
        answers=(*recipe.answers[:-1], answer),
        explained=False,
    )


def _rows_after(task: RetrievalConfig, step: int, shift: int) -> list[Roles]:
    """Roles of the second tokens so many pairs later in time than those of a step; deepest steps come first."""
    later = sorted({step - (place + shift) // task.chains for place in range(task.chains)})
    assert later[0] >= 1, f"{shift} pairs after step {step} there are no pairs"
    return [second_of(found) for found in later]
