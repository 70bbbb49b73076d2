"""`hopscope questions` and `hopscope heads`: retrieval in words, and language models."""

import sys
from collections.abc import Iterator, Sequence
from json import dumps
from typing import Annotated, Any, Literal

from pydantic import ValidationError
from tyro.conf import Positional, arg

from hopscope.cli.parsing import show_table, stage
from hopscope.config import validation_line, values_of
from hopscope.errors import UserError
from hopscope.language.questions import Questions, Wording

_BEST = 3  # heads shown of each target


def questions(
    formulation: Positional[Annotated[str, arg(metavar="FORMULATION")]],
    # Everything else has a default: tyro speaks of missing options before it looks at what was typed.
    count: int = 10,
    seed: int = 0,
    depth: int | None = None,
    chains: int = 4,
    json: bool = False,
) -> None:
    """Print questions in words, with their answers; the same seed gives the same ones on any machine.

    Args:
        formulation: One of equations, lives_with, kingdoms, functions, relatives.
        count: How many; no two are equal.
        seed: Seed of the draws, from 0 to 2**63 - 1.
        depth: D: retrieval steps; by default that of the paper (kingdoms, functions and relatives have no other).
        chains: N: chains that are interleaved (functions and relatives: 4).
        json: Print JSON, one object a line.
    """
    asked = _asked("questions", formulation, depth, count=count, seed=seed, chains=chains)
    for each in asked.drawn():
        if json:
            kind = asked.model_dump(include={"formulation", "depth", "chains"})
            told = {name: getattr(each, name) for name in ("prompt", "answer", "acceptable")}
            print(dumps({"id": each.id, **kind, **told}))
        else:
            answers = f"Correct: {each.answer}\nAcceptable: {', '.join(each.acceptable)}"
            print(f"{each.id}\n{each.prompt}\n{answers}\n")
    sys.stdout.flush()  # here, where it is handled that the reader has gone


def heads(
    model: str,
    formulation: str = "equations",
    depth: int | None = None,
    chains: int = 4,
    put: Annotated[Wording, arg(name="")] = Wording(count=64),  # noqa: B008 - frozen
    ablation: Literal["mean", "zero"] = "mean",
    top: Annotated[tuple[int, ...], arg(help_behavior_hint="")] = (),
    draws: int = 8,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["float32", "bfloat16"] = "float32",
    json: bool = False,
) -> None:
    """Score the heads of a language model: what they attend to in retrieval, and what is lost without them.

    Heads are found on --count questions, and ablated on as many new ones of each depth.  A model that cannot
    answer is a result, not a failure.

    Args:
        model: Folder that save_pretrained wrote, GGUF file, or a name on the Hugging Face hub (HF_HUB_OFFLINE=1: its
            cache).
        formulation: Questions: equations, lives_with, kingdoms, functions or relatives.
        depth: D of the questions on which heads are found; by default that of the paper.
        chains: N: chains that are interleaved.
        ablation: The replacement of a head: its mean at the same role in other questions, or zero.
        top: How many heads are taken out at once; by default 1, 2, 4, 8, and at most one of eight.
        draws: Sets of random heads, as many in each layer, that the top ones are compared with.
        device: Where.
        precision: Number format of weights and activations.
        json: Print JSON.
    """
    asked = _asked("heads", formulation, depth, chains=chains, **values_of(put))
    from hopscope.execute.local import ThisMachine
    from hopscope.language.heads import score

    with stage() as tell:
        found = score(
            model, asked, method=ablation, top=top, draws=draws, device=ThisMachine().device(device),
            precision=precision, say=tell,
        )  # fmt: skip
    if json:
        print(dumps(found, indent=1, ensure_ascii=False))
        return
    print(f"{model}: {found['layers']} layers × {found['heads']} heads")
    title = "Attention, mean over questions [95 % interval]; layers and heads count from 0"
    columns = ("row → target", "uniform head", "best heads (layer.head)", "", "")
    show_table(columns, _targets(found["targets"]), title)
    about, shares = ("depth", "heads out", "which", "guess"), ("with all", "without", "random others")
    title = f"Accuracy without heads ({ablation} in their place)"
    show_table((*about, *shares, "cost", "of random"), _ablations(found["ablation"]), title)


def _asked(command: str, formulation: str, depth: int | None, **fields: Any) -> Questions:
    fields |= {} if depth is None else {"depth": depth}
    try:
        return Questions.model_validate({"formulation": formulation.replace("-", "_"), **fields})
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; see hopscope {command} --help") from None


def _targets(targets: dict[str, Any]) -> Iterator[list[str]]:
    for name, target in targets.items():
        means = enumerate(target["mean"])
        cells = [(value, layer, head) for layer, row in means for head, value in enumerate(row)]
        best = [
            f"{layer}.{head}  {value:.3f} [{target['low'][layer][head]:.3f}, {target['high'][layer][head]:.3f}]"
            for value, layer, head in sorted(cells, key=lambda cell: (-cell[0], *cell[1:]))[:_BEST]
        ]
        row, _, found = name.partition(":")
        yield [f"{row} → {found}", f"{target['floor']:.3f}", *best]


def _ablations(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        which = " ".join(f"{layer}.{head}" for layer, head in row["heads"])
        shares = [_told(*row[name]) for name in ("all", "top", "random", "top_cost", "random_cost")]
        yield [str(row["depth"]), str(row["k"]), which, f"{row['guess']:.3f}", *shares]


def _told(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else "")
