"""The command `hopscope corpus`: count retrieval steps of a text."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from hopscope.cli.parsing import parse
from hopscope.cli.terminal import console
from hopscope.language.corpus.depth import WINDOW, measure
from hopscope.language.corpus.file import read_text
from hopscope.language.corpus.steps import LIMIT, NEW, REPEATED, UNLINKED

if TYPE_CHECKING:
    from rich.table import Table

_BAR = 40
_WORDS = {
    NEW: "not seen in the window",
    REPEATED: "already in the sentence, or the one before",
    UNLINKED: "seen, but no chain leads there",
}


@dataclasses.dataclass
class Options:
    """Estimate how many retrieval steps the words of a text need: a histogram, beside that of the text shuffled."""

    file: Positional[Annotated[Path, arg(metavar="FILE")]]
    """Plain text in UTF-8, English as far as function words go; - reads standard input."""
    window: int = WINDOW
    """Content words that are looked back over (256 are about 512 words of running text)."""
    limit: int = LIMIT
    """Longest chain that is looked for."""
    seed: int = 0
    """Seed of the shuffles."""
    form: Literal["prose", "lines"] = "prose"
    """Prose: sentences end with a full stop.  Lines: with the line, and a blank line ends a text (as of questions)."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, arguments, "corpus")
    found = {
        "file": str(options.file),
        **measure(
            read_text(options.file),
            window=options.window,
            limit=options.limit,
            seed=options.seed,
            form=options.form,
        ),
    }
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    screen = console()
    screen.print(_table(found))
    screen.print(_sentence(found), highlight=False)
    return 0


def _table(found: dict[str, Any]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=f"{found['file']}: steps to {found['tokens']:,} content words in {found['sentences']:,} sentences",
        title_justify="left",
    )
    for column in ("steps", "words", "share", "shuffled", "", "what it is"):
        table.add_column(column, justify="right" if column in ("words", "share", "shuffled") else "left")
    for name, count in found["histogram"].items():
        share, chance = count / found["tokens"], found["shuffled"][name] / found["tokens"]
        bar = Text("█" * round(_BAR * share))
        table.add_row(name, f"{count:,}", f"{share:.4f}", f"{chance:.4f}", bar, _WORDS.get(name, ""))
    return table


def _sentence(found: dict[str, Any]) -> str:
    zipf = found["zipf"]
    if zipf["exponent"] is None:
        return "Zipf's law needs words that are different numbers of steps away; there are none."
    ends = zipf["interval"]
    shown = f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else ""
    other = found["shuffled_exponent"]
    beside = "" if other is None else f"; shuffled: {other:.2f}"
    return (
        f"Among 1 to {found['limit']} steps, P(h) ∝ h^-s fits best at s = {zipf['exponent']:.2f}{shown}{beside}.  "
        f"It misplaces {100 * zipf['distance']:.1f} % of the words.  What this measures and what not: docs/heads.md."
    )
