"""The command `hopscope questions`: print questions in words."""

import dataclasses
import json
import sys
from typing import Annotated, Any

from pydantic import ValidationError
from tyro.conf import Positional, arg

from hopscope.cli.parsing import parse
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, records


@dataclasses.dataclass
class Options:
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


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, arguments, "questions")
    try:
        config = TextConfig(
            formulation=options.formulation.replace("-", "_"),
            depth=options.depth,
            chains=options.chains,
        )
    except ValidationError as error:
        raise UserError(f"{validation_line(error)}; see hopscope questions --help") from None
    written = json.dumps if options.json else _readable
    for record in records(config, options.count, options.seed):
        sys.stdout.write(f"{written(record)}\n")
    sys.stdout.flush()  # here, where it is handled that the reader has gone
    return 0


def _readable(record: dict[str, Any]) -> str:
    acceptable = ", ".join(record["acceptable"])
    return f"{record['id']}\n{record['prompt']}\nCorrect: {record['answer']}\nAcceptable: {acceptable}\n"
