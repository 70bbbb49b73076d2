"""`hopscope theory`: count the layers that a chain needs."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from json import dumps
from typing import Any, Literal

from hopscope.theory import information_flow as flow

# Steps of the longest chain of which every position is drawn; of longer ones, what the query holds.
_PICTURED = 10
_HAD, _NEW, _NOT = "■", "◆", "·"
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def theory(
    steps: int, mask: Literal["causal", "none"] = "causal", order: str = "deepest-first", json: bool = False
) -> None:
    """Count the attention layers that a chain of D retrieval steps needs, and show what can travel where.

    Args:
        steps: D: the retrieval steps of the chain, 1 to 1024.
        mask: Which positions a position sees: itself and earlier ones, or all.
        order: In which order the pairs come: deepest-first, shallowest-first, or their numbers in time order, such as
            3,1,2.
        json: Print JSON.
    """
    pairs = _order(order)
    exact, single_target = flow.layers_per_step(steps, mask, pairs), flow.exact_layers_single_target
    single, bound = single_target(steps), flow.theorem_bound(steps)
    if json:
        found: dict[str, Any] = {
            "steps": steps, "mask": mask, "order": pairs, "bound": bound, "bound_layers": flow.bound_layers(steps),
            "exact_layers": exact[steps], "exact_layers_single_target": single,
            "per_step": {str(step): layers for step, layers in exact.items()},
        }  # fmt: skip
        print(dumps(found, indent=1))
        return
    shown = [f"{_symbol(pair - 1)}{_symbol(pair)}" for pair in flow.pair_order(steps, pairs)]
    shown = shown if len(shown) <= _PICTURED else [*shown[:3], "…", *shown[-3:]]
    sees = "itself and what is before it" if mask == "causal" else "everything"
    print(f"Chain of {steps}, in time: {'  '.join(shown)}  {_symbol(0)} (query).  A position sees {sees}.\n")
    print("Layers needed before the query can hold …\n")
    print(f"{'symbol':<12}{'theorem 1':>12}{'exact':>12}   exact, one target per position")
    rows = [(step, (flow.bound_layers(step), exact[step], single_target(step))) for step in exact]
    for counts, group in groupby(rows, key=lambda row: row[1]):
        symbols = [_symbol(step) for step, _ in group]
        named = " … ".join(dict.fromkeys([symbols[0], symbols[-1]]))
        print(f"{named:<12}" + "".join(f"{count:>12}" for count in counts))
    print(
        f"\n{exact[steps]} layers can bring {_symbol(steps)} to the query, fewer cannot.  The published bound alone, "
        f"log₃(2·{steps}) = {bound:.3f}, says: at least {flow.bound_layers(steps)}.\n"
        f"If each position reads one other in a layer (one head, one-hot), {single} are needed and enough; two targets "
        "always do as well as any number.\nThis bounds models in which a position reads only what it shares a piece "
        "with, not every network: see docs/theory.md.\n"
    )
    for line in _pictures(flow.held_pieces(steps, mask, pairs)):
        print(line.rstrip())


def _symbol(step: int) -> str:
    return f"x{step}".translate(_LOWERED)


def _order(words: str) -> flow.Order:
    try:
        return [int(number) for number in words.split(",")]
    except ValueError:
        return words  # type: ignore[return-value]


def _pictures(layers: list[list[flow.Span]]) -> Iterator[str]:
    pieces = range(len(layers[0]))
    if len(pieces) // 2 > _PICTURED:
        yield "What the query can hold:"
        yield from (f"  after layer {t:2}: x₀ … {_piece(held[0][1])}" for t, held in enumerate(layers) if t)
        return
    yield f"What each position can hold ({_HAD} before the layer, {_NEW} new from it; p₁ is the code of pair 1):"
    for layer, (before, after) in enumerate(pairwise([layers[0], *layers])):
        title = f"after layer {layer}" if layer else "the input"
        yield f"\n{title:<24}" + "".join(f" {_piece(piece):<3}" for piece in pieces)
        for position in pieces:
            had, has = (range(low, high + 1) for low, high in (before[position], after[position]))
            signs = [_HAD if piece in had else _NEW if piece in has else _NOT for piece in pieces]
            yield f"  {_position(position):<22}" + "".join(f" {sign}  " for sign in signs)


def _position(position: int) -> str:
    token = "second" if position % 2 == 0 else "first"
    where = f"{token} of pair {(position + 1) // 2}" if position else "query"
    return f"{_symbol(position // 2)} {where}"


def _piece(piece: int) -> str:
    return f"p{(piece + 1) // 2}".translate(_LOWERED) if piece % 2 else _symbol(piece // 2)
