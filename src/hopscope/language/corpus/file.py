"""How many steps the words of a text need, from the text itself or from what `hopscope corpus --json` said of it."""

import sys
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.corpus.depth import labelled
from hopscope.language.corpus.steps import histogram
from hopscope.runs.files import listed
from hopscope.strict_json import parse_json


class StepCounts(Config):
    """How many words of a text need how many retrieval steps.

    Attributes:
        text: name of the file.
        tokens: content words that were looked at, those included that need no step or cannot be reached.
        counts: of them, those that need 1, 2, … steps.
    """

    text: str
    tokens: int = Field(ge=1)
    counts: tuple[int, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> Self:
        if min(self.counts) < 0 or sum(self.counts) > self.tokens:
            raise ValueError(
                f"counts: expected numbers of words, {self.tokens} in all at most, found {list(self.counts)}"
            )
        return self

    def needing(self, steps: int) -> int:
        """Words that need so many steps; those that need more than were looked for are not known, and count 0."""
        return self.counts[steps - 1] if steps <= len(self.counts) else 0


def read_text(file: Path) -> str:
    """A file of text, or standard input for `-`.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise UserError(
            f"{file}: expected a readable file, found {error.strerror}; name a text file"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}: expected UTF-8 text, found {error.reason} at byte {error.start}; convert the file"
        ) from None


def read_counts(file: Path) -> StepCounts:
    """Count the steps of a text, with the defaults of `hopscope corpus`, or read what that command printed.

    Args:
        file: plain text; or JSON, told by its name or by how it begins.

    Raises:
        UserError: it cannot be read, or is JSON of something else.
    """
    text = read_text(file)
    try:
        record = parse_json(text)
    except ValueError:
        record = None
    if not isinstance(record, dict) and file.suffix != ".json":
        _, labels = labelled(text)
        record = {"file": str(file), "histogram": histogram(labels)}
    if not isinstance(record, dict) or not isinstance(record.get("histogram"), dict) or "file" not in record:
        raise _foreign(file, "none" if record is None else "other JSON")
    # Without folders: where a text lies changes nothing.
    name = "standard input" if record["file"] == "-" else Path(str(record["file"])).name
    counted = record["histogram"]
    steps = sorted((label for label in counted if label.isdecimal()), key=lambda label: (len(label), label))
    if not steps or steps != [str(step) for step in range(1, len(steps) + 1)]:
        raise _foreign(file, f"counts of {listed(steps) or 'no'} steps")
    try:
        counts = tuple(counted[step] for step in steps)
        return StepCounts(text=name, tokens=sum(counted.values()), counts=counts)
    except (TypeError, ArithmeticError, ValidationError) as error:
        said = validation_line(error) if isinstance(error, ValidationError) else "counts that are no numbers"
        raise _foreign(file, said) from None


def _foreign(file: Path, found: str) -> UserError:
    return UserError(
        f"{file}: expected a text, or the JSON that hopscope corpus FILE --json prints, found {found}; "
        "name another file"
    )
