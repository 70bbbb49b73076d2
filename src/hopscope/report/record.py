"""What the page reads from a run folder, checked on the way in: config, story and claims.

The shapes are those of the run folder's documentation; a file that differs is an error that names the field.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from hopscope.claims import Claim, read_ledger
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.runs.files import read_json

Cell = str | int | float | None

_T = TypeVar("_T")


class Number(Config):
    """A number of the story: value, how it is written, and the file (in the run) and key it is from."""

    value: JsonValue
    text: str
    file: str
    key: str


class TextBlock(Config):
    """Paragraphs of words; blank lines part them."""

    kind: Literal["text"]
    text: str


class TokenCell(Config):
    """One token of a sequence, its role (such as ``x`` or ``y``) and what is written beneath it."""

    token: str
    role: str = ""
    note: str = ""


class SequenceBlock(Config):
    """A sequence drawn as token cells."""

    kind: Literal["sequence"]
    cells: list[TokenCell]
    caption: str = ""


class FigureBlock(Config):
    """A figure of the run by name; ``alt`` says in words what it shows."""

    kind: Literal["figure"]
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    caption: str = ""
    alt: str


class TableBlock(Config):
    """A small table of words and numbers."""

    kind: Literal["table"]
    columns: list[str]
    rows: list[list[Cell]]
    caption: str = ""


class VerdictsBlock(Config):
    """The table of all claims."""

    kind: Literal["verdicts"]


Block = Annotated[
    TextBlock | SequenceBlock | FigureBlock | TableBlock | VerdictsBlock, Field(discriminator="kind")
]


class Section(Config):
    """A part of the story with a heading; ``id`` is its anchor on the page."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    heading: str
    blocks: list[Block]


class ClaimWords(Config):
    """What the story says about a claim: plain words, and the values seed by seed."""

    words: str = ""
    per_seed: dict[str, list[float | str | None]] = Field(default_factory=dict)


class Story(Config):
    """What the page says, in order."""

    schema_version: Literal[1]
    title: str
    subtitle: str = ""
    numbers: dict[str, Number] = Field(default_factory=dict)
    claims: dict[str, ClaimWords] = Field(default_factory=dict)
    sections: list[Section]


class RunConfig(BaseModel):
    """config.json: what was asked."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    schema_version: int
    results_version: int | str
    study: str
    preset: str | None
    hash: str
    config: dict[str, JsonValue]


class RunRecord(Config):
    """Everything the page needs of one run, apart from its figures."""

    path: Path
    config: RunConfig
    story: Story
    claims: list[Claim]


def read_run(path: Path) -> RunRecord:
    """Read and check config.json, story.json and claims.json of a run folder.

    Raises:
        UserError: a file is missing, is no JSON, or has other fields than the documentation says.
    """
    return RunRecord(
        path=path,
        config=_read(path / "config.json", TypeAdapter(RunConfig)),
        story=_read(path / "story.json", TypeAdapter(Story)),
        claims=read_ledger(path / "claims.json"),
    )


def _read(path: Path, shape: TypeAdapter[_T]) -> _T:
    value = read_json(path, "run the study to its end (the same command goes on), or name another run folder")
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        raise UserError(_one_line(path, error.errors()[0])) from error


def _one_line(path: Path, first: Any) -> str:
    where = ".".join(str(part) for part in first["loc"])
    found = " ".join(repr(first["input"]).split())[:60]
    return (
        f"{path}: at '{where}' expected: {first['msg']}; found {found}; run the study again to write it anew"
    )
