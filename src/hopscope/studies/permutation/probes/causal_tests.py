"""How a one-layer model recalls: causal tests.

Two accounts are told apart.  The *presentation's* (sections 10 and 11): y rows attend to themselves, x rows to the
preceding y, which binds each pair; the FFN recognises the repeated x by its own embedding and routes it to the y.  The
*pointer* account: at the last row one head attends to the earlier copy of x and imports its position code; a head with
distinct weights for the slots writes a weighted sum of the y's; the FFN uses the first to select from the second.  In
one layer the last row reads the other rows' embeddings, never what those rows computed.

Repeats have their repeated x in the last slot.  x₁, y₁ are the copy and its y; x₂, y₂ and x₃, y₃ are other earlier
pairs (see `causal_cases`).  *Becomes y₂*, *stays*: what happens to the answer y₁.

| test                 | what is changed                         | presentation      | pointer account          |
| -------------------- | --------------------------------------- | ----------------- | ------------------------ |
| `earlier_rows`       | patterns of all rows before the last    | answers change    | last logits: exactly 0   |
| `position_code_swap` | codes of x₁ and x₂, as values           | stays             | becomes y₂               |
| `y_swap`             | symbols of y₁ and y₂, as values         | becomes y₂        | becomes y₂               |
| `attention_swap`     | last row's weights of x₁ and x₂         | stays             | becomes y₂               |
| `equal_y_weights`    | last row's weights of y's made equal    | both skills stay  | only recall falls        |
| `mlp_ablation`       | FFN output of the last row              | only recall falls | recall falls             |
| `mlp_interchange`    | the same, from the sequence with x₂     | becomes y₂        | becomes y₂               |
| `head_interchange`   | head outputs, from the sequence with x₂ | stays (same y's)  | becomes y₂, by one head  |

| test                 | control, which must show nothing                                                          |
| -------------------- | ----------------------------------------------------------------------------------------- |
| `earlier_rows`       | (those rows' own logits must change, or nothing was done)                                 |
| the three swaps      | the same with x₂ and x₃ (y₂ and y₃): the answer stays; plain sequences stay right         |
| `equal_y_weights`    | equal weights of the x's that neither account reads: both skills stay                     |
| the two interchanges | earlier rows from unrelated donors; itself as donor: last row's logits change by exactly 0 |

*The sequence with x₂* has the same pairs, but repeats x₂ in its last slot.  On plain sequences the interchanges take
another plain sequence with another unused value for donor; both accounts expect its answer.  A control that moves next
to no attention is a weak one: `mass_moved` tells how much a test or its control gave to other keys.  A match head that
finds no copy must look somewhere; where it spreads over the x's, edits of x weights on plain sequences are no control,
but tell whether elimination depends on how it spreads.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from hopscope import rng
from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    Intervention,
    ReplacePattern,
    Roles,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes.causal_cases import (
    EARLIER_ROWS,
    IDLE_X_KEYS,
    LAST_ROW,
    LIMIT,
    Y_KEYS,
)
from hopscope.studies.permutation.probes.causal_runs import Answers, CausalRuns, PairSwap
from hopscope.studies.permutation.probes.predictions import as_json
from hopscope.tasks.permutation import PermutationTask


def measure_causal_tests(model: Transformer, task: PermutationTask, limit: int = LIMIT) -> dict[str, Any]:
    """Run every test on held-out sequences, for all members of a one-layer model.

    All tests use the same sequences, so that `clean` and `floors` belong to each of them.

    Args:
        model: the ensemble.
        task: its task.  Where its repeats stand does not matter; their share in training does, for the means and
            donors of ablations (see `reference_means`).
        limit: most repeats, and most plain sequences.

    Returns:
        JSON values.  `[m]` are lists over members, `[m][h]` over members and heads; shares are fractions.

        * `sequences`: `repeats` and `plain`, how many.
        * `floors`: accuracy of guessing among all values (`uniform`) and among the values shown (`used`).
        * `clean`: `recall` and `elimination` `[m]`.
        * `earlier_rows`: for each replacement (`uniform`, `identity`, `random`) and kind (`repeats`, `plain`) the
          largest absolute change of logits `[m]`: `last_row_change`, and `earlier_rows_change` for the rows whose
          patterns are replaced; `last_row_replaced`: recall and elimination after the same at the last row only.
        * `position_code_swap` (null without position codes), `y_swap`, `attention_swap`: shares of answers that
          become y₂ (`to_other`), stay y₁ (`stays`) or are `neither` `[m]`; `plain_accuracy` `[m]`; `by_head`, all of
          these `[m][h]`; `control_stays` `[m]` (null for V = 3, where there is no third pair).  `attention_swap`
          also has `mass_moved` and `control_mass_moved`, each by kind of sequence, `repeats` and `plain` `[m][h]`.
        * `equal_y_weights`: `recall`, `elimination` `[m]`, `by_head`, both `[m][h]`, and `mass_moved`;
          `control_recall`, `control_elimination`, `control_mass_moved` (null for V = 3).
        * `mlp_ablation` (null without MLP): `mean`, `resample` and `zero`, each `recall` and `elimination` `[m]`.
        * `mlp_interchange` (null without MLP), `head_interchange`: `to_other`, `stays`, `neither`, and the first two
          for plain sequences, `plain_to_other` and `plain_stays` `[m]`; `earlier_rows_change` and `self_change`, the
          last row's largest absolute change of logits in the controls `[m]`, and `earlier_rows_own_change`, that of
          the rows whose outputs come from elsewhere (the smaller one of both kinds of sequence).  `head_interchange`
          also has `by_head`.

    Raises:
        ValueError: the model has several layers or does not fit the task, or the limit is too small.
    """
    runs = CausalRuns(model, task, limit)
    values, repeats = task.config.values, int(runs.repeat.sum())
    found = {
        "sequences": {"repeats": repeats, "plain": len(runs.repeat) - repeats},
        "floors": {"uniform": 1.0 / values, "used": 1.0 / (values - 1)},
        "clean": runs.accuracies(runs.answers()),
        "earlier_rows": _earlier_rows(runs, task),
        "position_code_swap": _swap(runs, _swap_positions) if model.config.position_count else None,
        "y_swap": _swap(runs, _swap_symbols),
        "attention_swap": _swap(runs, _swap_attention) | _moved_by_swap(runs),
        "equal_y_weights": _equal_y_weights(runs),
        "mlp_ablation": _mlp_ablation(runs) if model.config.mlp_size else None,
        "mlp_interchange": _mlp_interchange(runs) if model.config.mlp_size else None,
        "head_interchange": _head_interchange(runs),
    }
    return as_json(found)


# Patterns of the rows before the last.


def _earlier_rows(runs: CausalRuns, task: PermutationTask) -> dict[str, Any]:
    matrix = random_pattern(task.config.split_seed, task.positions)

    def replaced(rows: Roles) -> dict[str, ReplacePattern]:
        return {
            "uniform": ReplacePattern(layer=0, rows=rows, by="uniform"),
            "identity": ReplacePattern(layer=0, rows=rows, by="identity"),
            "random": ReplacePattern(layer=0, rows=rows, by="matrix", matrix=matrix),
        }

    changes = {name: runs.changes(edit) for name, edit in replaced(EARLIER_ROWS).items()}
    at_the_end = {name: runs.accuracies(runs.answers(edit)) for name, edit in replaced(LAST_ROW).items()}
    return {
        "last_row_change": {
            name: {kind: change.last for kind, change in found.items()} for name, found in changes.items()
        },
        "earlier_rows_change": {
            name: {kind: change.earlier for kind, change in found.items()} for name, found in changes.items()
        },
        "last_row_replaced": at_the_end,
    }


def random_pattern(seed: int, positions: int) -> tuple[tuple[float, ...], ...]:
    """A causal attention pattern `[query][key]` whose rows are random and sum to 1, a function of the seed."""
    drawn = rng.uniform_tensor(torch.tensor([seed]), "intervene", 0, (positions, positions))[0].tril()
    return tuple(tuple(row) for row in (drawn / drawn.sum(-1, keepdim=True)).tolist())


# Swaps of two pairs' position codes, symbols or attention weights.


def _site(kind: str, ordinal: str) -> Site:
    """The x or y of a sequence's first, second or third pair."""
    return Site(roles=LAST_ROW, relation=f"{kind}_{ordinal}")


def _swap_positions(heads: tuple[int, ...] | None, one: str, other: str) -> SwapValues:
    return SwapValues(layer=0, heads=heads, what="position", first=_site("x", one), second=_site("x", other))


def _swap_symbols(heads: tuple[int, ...] | None, one: str, other: str) -> SwapValues:
    return SwapValues(layer=0, heads=heads, what="symbol", first=_site("y", one), second=_site("y", other))


def _swap_attention(heads: tuple[int, ...] | None, one: str, other: str) -> SwapAttention:
    return SwapAttention(layer=0, heads=heads, rows=LAST_ROW, first=_site("x", one), second=_site("x", other))


def _swap(runs: CausalRuns, swap: PairSwap) -> dict[str, Any]:
    """Swap first and second, in all heads and in each alone; for control second and third."""

    def read(given: Answers) -> dict[str, Tensor]:
        plain = runs.share(given == runs.right, repeat=False)
        return runs.moves(given, repeat=True) | {"plain_accuracy": plain}

    control = None
    if runs.has_third:
        given = runs.answers(swap(None, "second", "third"))
        control = runs.share(given == runs.right, repeat=True)
    return {
        **read(runs.answers(swap(None, "first", "second"))),
        "by_head": runs.by_head(lambda heads: swap(heads, "first", "second"), read),
        "control_stays": control,
    }


def _moved_by_swap(runs: CausalRuns) -> dict[str, Any]:
    third = runs.mass_moved(_swap_attention(None, "second", "third")) if runs.has_third else None
    return {
        "mass_moved": runs.mass_moved(_swap_attention(None, "first", "second")),
        "control_mass_moved": third,
    }


# Equal attention weights.


def _equal_y_weights(runs: CausalRuns) -> dict[str, Any]:
    def equal(keys: Roles, heads: tuple[int, ...] | None = None) -> EqualizeAttention:
        return EqualizeAttention(layer=0, heads=heads, rows=LAST_ROW, keys=keys)

    control: dict[str, Any] = {}
    if runs.has_third:
        control |= runs.accuracies(runs.answers(equal(IDLE_X_KEYS)))
        control["mass_moved"] = runs.mass_moved(equal(IDLE_X_KEYS))
    return {
        **runs.accuracies(runs.answers(equal(Y_KEYS))),
        "by_head": runs.by_head(lambda heads: equal(Y_KEYS, heads), runs.accuracies),
        "mass_moved": runs.mass_moved(equal(Y_KEYS)),
        **{f"control_{name}": control.get(name) for name in ("recall", "elimination", "mass_moved")},
    }


# Outputs of the FFN and of heads.


def _mlp_ablation(runs: CausalRuns) -> dict[str, Any]:
    methods: tuple[Literal["mean", "resample", "zero"], ...] = ("mean", "resample", "zero")
    edits = {by: AblateMLP(layer=0, rows=LAST_ROW, by=by) for by in methods}
    return {by: runs.accuracies(runs.answers(edit, donors="mixed")) for by, edit in edits.items()}


def _mlp_interchange(runs: CausalRuns) -> dict[str, Any]:
    earlier, last = (AblateMLP(layer=0, rows=rows, by="resample") for rows in (EARLIER_ROWS, LAST_ROW))
    return {
        **_interchanged(runs, runs.answers(last, donors="other")),
        **_interchange_controls(runs, earlier, last),
    }


def _head_interchange(runs: CausalRuns) -> dict[str, Any]:
    earlier, last = (AblateHead(layer=0, rows=rows, by="resample") for rows in (EARLIER_ROWS, LAST_ROW))
    return {
        **_interchanged(runs, runs.answers(last, donors="other")),
        "by_head": runs.by_head(
            lambda heads: last.model_copy(update={"heads": heads}),
            lambda given: _interchanged(runs, given),
            donors="other",
        ),
        **_interchange_controls(runs, earlier, last),
    }


def _interchanged(runs: CausalRuns, given: Answers) -> dict[str, Tensor]:
    plain = runs.moves(given, repeat=False)
    return {
        **runs.moves(given, repeat=True),
        "plain_to_other": plain["to_other"],
        "plain_stays": plain["stays"],
    }


def _interchange_controls(
    runs: CausalRuns, earlier_rows: Intervention, last_row: Intervention
) -> dict[str, Tensor]:
    # A repeat's donor has the same earlier rows; only an unrelated one makes a control of them.
    elsewhere = runs.changes(earlier_rows, donors="mixed").values()
    itself = runs.changes(last_row, donors="self").values()
    return {
        "earlier_rows_change": torch.stack([change.last for change in elsewhere]).amax(0),
        "earlier_rows_own_change": torch.stack([change.earlier for change in elsewhere]).amin(0),
        "self_change": torch.stack([change.last for change in itself]).amax(0),
    }
