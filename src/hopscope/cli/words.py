"""`hopscope questions` and `hopscope heads`: retrieval in words, and language models."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError
from tyro.conf import Positional, arg

from hopscope.cli.parsing import parse, show_table, stage
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.language.questions import Questions

_BEST = 3  # heads shown of each target


@dataclasses.dataclass
class QuestionsOptions:
    """Print questions in words, with their answers; the same seed gives the same ones on any machine."""

    formulation: Positional[Annotated[str, arg(metavar="FORMULATION")]]
    """One of equations, lives_with, kingdoms, functions, relatives."""
    # Everything else has a default: tyro speaks of missing options before it looks at what was typed.
    count: int = 10
    """How many; no two are equal."""
    seed: int = 0
    """Seed of the draws, from 0 to 2**63 - 1."""
    depth: int | None = None
    """D: retrieval steps (default: that of the paper; kingdoms, functions and relatives have no other)."""
    chains: int = 4
    """N: chains that are interleaved (functions and relatives: 4)."""
    json: bool = False
    """Print JSON, one object a line."""


def questions(arguments: Sequence[str]) -> None:
    """Print questions."""
    options = parse(QuestionsOptions, arguments, "questions")
    for each in _asked(options, "questions").drawn():
        if options.json:
            names = ("id", "formulation", "depth", "chains", "prompt", "answer", "acceptable")
            print(json.dumps({name: getattr(each, name) for name in names}))
        else:
            answers = f"Correct: {each.answer}\nAcceptable: {', '.join(each.acceptable)}"
            print(f"{each.id}\n{each.prompt}\n{answers}\n")
    sys.stdout.flush()  # here, where it is handled that the reader has gone


@dataclasses.dataclass
class HeadsOptions:
    """Score the heads of a language model: what they attend to in retrieval, and what is lost without them."""

    model: str
    """Folder that save_pretrained wrote, GGUF file, or a name on the Hugging Face hub (HF_HUB_OFFLINE=1: its cache)."""
    formulation: str = "equations"
    """Questions: equations, lives_with, kingdoms, functions or relatives."""
    passage: Path | None = None
    """In place of questions: a file of natural text with its facts marked (docs/heads.md)."""
    depth: int | None = None
    """D of the questions on which heads are found (default: that of the paper)."""
    chains: int = 4
    """N: chains that are interleaved."""
    count: int = 64
    """Questions on which heads are found; as many others, of each depth, are answered without them."""
    seed: int = 0
    """Seed of the questions and of the random heads."""
    chat: bool = False
    """Put prompts through the tokenizer's chat template."""
    few_shot: int = 0
    """Solved examples of the same kind before each question."""
    filler: int = 0
    """Dots between each question and its answer."""
    repeats: int = 1
    """How often each problem is told."""
    complete: bool = False
    """End with the beginning of the sentence that the answer ends."""
    ablation: Literal["mean", "zero"] = "mean"
    """The replacement of a head: its mean at the same role in other questions, or zero."""
    rank: str = "any"
    """Target by which heads are ranked, such as answer:hop_1 (default: the best of all)."""
    top: tuple[int, ...] = ()
    """How many heads are taken out at once (default: 1, 2, 4, 8, at most one of eight)."""
    draws: int = 8
    """Sets of random heads, as many in each layer, that the top ones are compared with."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and activations."""
    keep: Path | None = None
    """File for what was found of every question, so that the same command goes on where it stopped."""
    json: bool = False
    """Print JSON."""


def heads(arguments: Sequence[str]) -> None:
    """Score heads; a model that cannot answer is a result, not a failure."""
    options = parse(HeadsOptions, arguments, "heads")
    asked: Any = None if options.passage is not None else _asked(options, "heads")
    from hopscope.execute.local import ThisMachine
    from hopscope.language.heads import score
    from hopscope.language.reading import passages

    asked = passages(options.passage) if options.passage is not None else asked
    with stage() as tell:
        found = score(
            options.model, asked, chat=options.chat, rank=options.rank, method=options.ablation, top=options.top,
            draws=options.draws, device=ThisMachine().device(options.device), precision=options.precision,
            keep=options.keep, say=tell,
        )  # fmt: skip
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    print(f"{options.model}: {found['layers']} layers × {found['heads']} heads")
    title = "Attention, mean over questions [95 % interval]; layers and heads count from 0"
    show_table(
        ("row → target", "uniform head", "best heads (layer.head)", "", ""), _targets(found["targets"]), title
    )
    about, shares = ("depth", "heads out", "which", "guess"), ("with all", "without", "random others")
    rows, title = found["ablation"], f"Accuracy without heads ({options.ablation} in their place)"
    show_table((*about, *shares, "cost", "of random"), _ablations(rows), title)


def _asked(options: Any, command: str) -> Questions:
    names = ("chains", "count", "seed", "few_shot", "filler", "repeats")
    fields = {name: getattr(options, name) for name in names if hasattr(options, name)}
    fields |= {"measure": "choice"} if getattr(options, "complete", False) else {}
    fields |= {} if options.depth is None else {"depth": options.depth}
    try:
        return Questions.model_validate({"formulation": options.formulation.replace("-", "_"), **fields})
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
        shares = [_told(row[name]) for name in ("all", "top", "random", "top_cost", "random_cost")]
        yield [str(row["depth"]), str(row["k"]), which, f"{row['guess']:.3f}", *shares]


def _told(found: Sequence[float | None]) -> str:
    value, low, high = found
    return f"{value:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else "")
