"""The mixture of depths that a text has: how it is given, and what it comes to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator
from tyro.constructors import PrimitiveConstructorSpec

from hopscope.language.corpus.file import StepCounts, read_counts


def _of_file(given: object) -> object:
    """A file is read where the option is read; a run's record has the counts, and needs the file no more."""
    return read_counts(Path(given)) if isinstance(given, str | Path) else given


# By itself tyro would ask for every field of the counts.
_OPTION = PrimitiveConstructorSpec[object](
    nargs=1,
    metavar="FILE",
    instance_from_str=lambda words: None if words[0] == "None" else Path(words[0]),
    is_instance=lambda value: value is None or isinstance(value, StepCounts | Path),
    str_from_instance=lambda value: [value.text if isinstance(value, StepCounts) else str(value)],
)

Corpus = Annotated[StepCounts | None, BeforeValidator(_of_file), _OPTION]
"""How many words of a text need how many steps; given as a file (see `read_counts`), or as the counts themselves."""


def shares(corpus: StepCounts, depths: Sequence[int]) -> tuple[float, ...]:
    """Share of each depth among the words that need as many steps as one of the depths.

    Args:
        corpus: counts of a text.
        depths: ascending.

    Raises:
        ValueError: no word needs as many steps as the largest depth.
    """
    counts = [corpus.needing(depth) for depth in depths]
    if counts and not counts[-1]:
        found = ", ".join(f"{count:,} of {depth}" for depth, count in zip(depths, counts, strict=True))
        raise ValueError(
            f"corpus: expected words of {corpus.text} that need {depths[-1]} steps, the largest depth, found {found} "
            "steps; take a smaller depth, a longer text, or hopscope corpus --json with a larger --limit"
        )
    return tuple(count / sum(counts) for count in counts)
