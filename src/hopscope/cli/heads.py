"""The command `hopscope heads`: score heads of a pretrained model."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hopscope.cli.parsing import parse
from hopscope.cli.terminal import console, progress
from hopscope.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

_BEST = 3
"""Heads shown of each target."""


@dataclasses.dataclass
class Options:
    """Score the heads of a pretrained model: what they attend to in retrieval, and what is lost without them."""

    model: str
    """Folder that save_pretrained wrote, GGUF file, smollm2, gemma3-270m, or a name on the Hugging Face hub
    (HF_HUB_OFFLINE=1 asks only its cache)."""
    formulation: str | None = None
    """Questions: equations, lives_with, kingdoms, functions or relatives; or best, the way to ask of several that the
    model answers best on questions of their own (docs/heads.md)."""
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
    """End with the beginning of the sentence that the answer ends, as hopscope run llm --measure choice does."""
    ablation: Literal["mean", "zero", "resample"] = "mean"
    """The replacement of a head: its mean at the same role in other questions, zero, or an example of it."""
    rank: str = "any"
    """Target by which heads are ranked, such as answer:hop_1 (default: the best of all)."""
    top: tuple[int, ...] = ()
    """How many heads are taken out at once (default: 1, 2, 4, 8, at most one of eight)."""
    draws: int = 8
    """Sets of random heads, as many in each layer, that the top ones are compared with."""
    pretrained: bool = False
    """Say that the model of a folder was trained on text of the world, so that claim S2 may be settled."""
    device: str = "auto"
    """auto, cpu or cuda."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and activations."""
    figures: Path | None = None
    """Folder for heat maps, layers × heads, of each target (SVG, PNG, CSV)."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a model that cannot answer is a result, not a failure."""
    options = parse(Options, arguments, "heads")
    found = _found(options)
    if options.figures is not None:
        from hopscope.language.heads.figures import NAME, write_heat_maps
        from hopscope.report.figures import render_figure

        write_heat_maps(options.figures, found)
        render_figure(options.figures, NAME)
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        _show(found)
    return 0


def _found(options: Options) -> dict[str, Any]:
    from hopscope.language.heads.scoring import score
    from hopscope.runs.files import user_caches

    formulation: Any = options.formulation and options.formulation.replace("-", "_")
    with progress() as tell:
        return score(
            options.model,
            formulation,
            passages=options.passage,
            pretrained=options.pretrained or None,
            device=_device(options.device),
            precision=options.precision,
            progress=tell,
            keep=user_caches() / "heads",
            depth=options.depth,
            chains=options.chains,
            count=options.count,
            seed=options.seed,
            chat=options.chat,
            few_shot=options.few_shot,
            filler=options.filler,
            repeats=options.repeats,
            complete=options.complete,
            method=options.ablation,
            rank=options.rank,
            top=options.top,
            draws=options.draws,
        )


def _device(asked: str) -> str:
    import torch

    there = torch.cuda.is_available()
    if asked not in ("auto", "cpu", "cuda") or (asked == "cuda" and not there):
        known = "auto, cpu or cuda" if there else "auto or cpu (there is no CUDA device)"
        raise UserError(f"device: expected {known}, found {asked!r}; take another")
    return "cuda" if there and asked != "cpu" else "cpu"


def _show(found: dict[str, Any]) -> None:
    screen = console()
    screen.print(
        f"{found['model']}: {found['layers']} layers × {found['heads']} heads; {found['formulation']}, "
        f"depth {found['depth']}, {found['count']} questions",
        highlight=False,
    )
    screen.print(_targets(found))
    screen.print(_ablation(found))
    (claim,) = found["claims"]
    screen.print(f"{claim['id']}: {claim['verdict']}.  {found['words'][claim['id']]}", highlight=False)


def _targets(found: dict[str, Any]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from hopscope.language.heads.figures import target_words

    table = Table(
        title="Attention, mean over questions [95 % interval]; layers and heads count from 0",
        title_justify="left",
    )
    for column in ("row → target", "uniform head", *("best heads (layer.head)", "", "")):
        table.add_column(column)
    for name, target in found["targets"].items():
        table.add_row(
            Text(target_words(name)), f"{target['floor']:.3f}", *(Text(words) for words in _best(target))
        )
    return table


def _best(target: dict[str, Any]) -> list[str]:
    cells = [
        (value, layer, head)
        for layer, heads in enumerate(target["scores"])
        for head, value in enumerate(heads)
    ]
    words = []
    for value, layer, head in sorted(cells, key=lambda cell: (-cell[0], *cell[1:]))[:_BEST]:
        ends = target["interval"] and target["interval"][layer][head]
        shown = f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else ""
        words.append(f"{layer}.{head}  {value:.3f}{shown}")
    return words + [""] * (_BEST - len(words))


def _ablation(found: dict[str, Any]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"Accuracy without heads ({found['method']} in their place)", title_justify="left")
    columns = (
        "depth",
        "heads out",
        "which",
        "guess",
        "with all",
        "without",
        "random others",
        "cost",
        "of random",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "which" else "right")
    for row in found["ablation"]:
        which = " ".join(f"{layer}.{head}" for layer, head in row["heads"])
        cost = row["cost"]
        cells = (
            _share(row),
            _share(row["top"]),
            _share(row["random"]),
            _points(cost["top"], cost["top_interval"]),
            _points(cost["random"], cost["random_interval"]),
        )
        first = (str(row["depth"]), str(row["k"]), which, f"{row['guess']:.3f}")
        table.add_row(*first, *(Text(cell) for cell in cells))
    return table


def _share(row: dict[str, Any]) -> str:
    ends = row["interval"]
    return f"{row['accuracy']:.3f}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "")


def _points(value: float, ends: list[float] | None) -> str:
    return f"{value:.1f} pts" + (f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else "")
