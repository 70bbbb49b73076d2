"""`hopscope theory`: count the layers that a chain needs."""

import dataclasses
import json
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Literal

from hopscope.cli.parsing import console, parse
from hopscope.theory import (
    Order,
    Span,
    bound_layers,
    exact_layers_single_target,
    held_pieces,
    layers_per_step,
    pair_order,
    theorem_bound,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_PICTURED = (
    10  # steps of the longest chain of which every position is drawn; of longer ones, what the query holds
)
_HAD, _NEW, _NOT = "■", "◆", "·"
_NAME_WIDTH = 24
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclasses.dataclass
class Options:
    """Count the attention layers that a chain of D retrieval steps needs, and show what can travel where."""

    steps: int
    """D: the retrieval steps of the chain, 1 to 1024."""
    mask: Literal["causal", "none"] = "causal"
    """Which positions a position sees: itself and earlier ones, or all."""
    order: str = "deepest-first"
    """In which order the pairs come: deepest-first, shallowest-first, or their numbers in time order, such as 3,1,2."""
    json: bool = False
    """Print JSON."""


def theory(arguments: Sequence[str]) -> None:
    """Print the layers that a chain needs."""
    options = parse(Options, arguments, "theory")
    order = _order(options.order)
    found = _found(options, order)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    screen = console()
    screen.print(_heading(options, order))
    screen.print(_table(found))
    screen.print(_sentences(found))
    for line in _pictures(held_pieces(options.steps, options.mask, order)):
        screen.print(line)


def _symbol(step: int) -> str:
    return f"x{step}".translate(_LOWERED)


def _order(words: str) -> Order:
    try:
        return [int(number) for number in words.split(",")]
    except ValueError:
        return words  # type: ignore[return-value]


def _found(options: Options, order: Order) -> dict[str, Any]:
    per_step = layers_per_step(options.steps, options.mask, order)
    return {
        "steps": options.steps,
        "mask": options.mask,
        "order": order,
        "bound": theorem_bound(options.steps),
        "bound_layers": bound_layers(options.steps),
        "exact_layers": per_step[options.steps],
        "exact_layers_single_target": exact_layers_single_target(options.steps),
        "per_step": {str(step): layers for step, layers in per_step.items()},
    }


def _heading(options: Options, order: Order) -> str:
    pairs = pair_order(options.steps, order)
    shown = [f"{_symbol(pair - 1)}{_symbol(pair)}" for pair in pairs]
    if len(shown) > _PICTURED:
        shown = [*shown[:3], "…", *shown[-3:]]
    sees = "itself and what is before it" if options.mask == "causal" else "everything"
    return f"Chain of {options.steps}, in time: {'  '.join(shown)}  {_symbol(0)} (query).  A position sees {sees}.\n"


def _table(found: dict[str, Any]) -> "Table":
    from rich.table import Table

    table = Table(title="Layers needed before the query can hold …", title_justify="left")
    columns = ("symbol", "theorem 1", "exact", "exact, one target per position")
    for column in columns:
        table.add_column(column, justify="left" if column == "symbol" else "right")
    rows = [
        (step, (bound_layers(step), exact, exact_layers_single_target(step)))
        for step, exact in enumerate(found["per_step"].values(), start=1)
    ]
    for counts, steps in groupby(rows, key=lambda row: row[1]):
        group = [step for step, _ in steps]
        symbols = _symbol(group[0]) if len(group) == 1 else f"{_symbol(group[0])} … {_symbol(group[-1])}"
        table.add_row(symbols, *map(str, counts))
    return table


def _sentences(found: dict[str, Any]) -> str:
    steps, exact, single = found["steps"], found["exact_layers"], found["exact_layers_single_target"]
    return (
        f"{exact} layers can bring {_symbol(steps)} to the query, fewer cannot.  The published bound alone, "
        f"log₃(2·{steps}) = {found['bound']:.3f}, says: at least {found['bound_layers']}.\n"
        f"If each position reads one other in a layer (one head, one-hot), {single} are needed and enough; two "
        "targets always do as well as any number.\n"
        "This bounds models in which a position reads only what it shares a piece with, not every network: see "
        "docs/theory.md.\n"
    )


def _pictures(layers: list[list[Span]]) -> "list[Text]":
    from rich.text import Text

    steps = len(layers[0]) // 2
    if steps > _PICTURED:
        reach = [f"  after layer {t:2}: x₀ … {_piece(held[0][1])}" for t, held in enumerate(layers) if t]
        return [Text(line) for line in ["What the query can hold:", *reach]]
    key = f"What each position can hold ({_HAD} before the layer, {_NEW} new from it; p₁ is the code of pair 1):"
    lines = [Text(key)]
    for layer, (before, after) in enumerate(pairwise([layers[0], *layers])):
        title = f"after layer {layer}" if layer else "the input"
        pieces = "".join(f" {_piece(piece):<3}" for piece in range(2 * steps + 1))
        lines += [Text(), Text(f"{title:<{_NAME_WIDTH}}{pieces}".rstrip(), style="bold")]
        lines += [
            _row(position, before[position], after[position], 2 * steps) for position in range(2 * steps + 1)
        ]
    return lines


def _row(position: int, before: Span, after: Span, last: int) -> "Text":
    from rich.text import Text

    row = Text(f"{_position(position):<{_NAME_WIDTH}}")
    for piece in range(last + 1):
        if before[0] <= piece <= before[1]:
            row.append(f" {_HAD}  ")
        elif after[0] <= piece <= after[1]:
            row.append(f" {_NEW}  ", style="bold green")
        else:
            row.append(f" {_NOT}  ", style="dim")
    row.rstrip()
    return row


def _position(position: int) -> str:
    if position == 0:
        return f"  {_symbol(0)} query"
    token = "second" if position % 2 == 0 else "first"
    return f"  {_symbol(position // 2)} {token} of pair {(position + 1) // 2}"


def _piece(piece: int) -> str:
    return f"p{(piece + 1) // 2}".translate(_LOWERED) if piece % 2 else _symbol(piece // 2)
