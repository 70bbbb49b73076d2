"""What the page reads from a run folder, checked on the way in: config, story and claims.

The shapes are those of the run folder's documentation; a file that differs is an error that names the field.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from hopscope.claims import JudgedClaim, Ledger
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.report.circuits import PUBLISHED, CircuitBlock
from hopscope.report.explorer import ExplorerBlock
from hopscope.report.unfinished import is_unfinished, unfinished_story
from hopscope.runs import RunFolder, is_slim
from hopscope.runs.files import is_file, read_json
from hopscope.runs.hashing import check_schema

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


class MarkdownBlock(Config):
    """Words in Markdown, without HTML; a number is written as in other words."""

    kind: Literal["markdown"]
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
    """A figure of the run by name.

    Attributes:
        name, caption: of the figure.
        alt: what it shows, in words.
        published: what the study's source calls the figure that this one answers, such as `fig-4`.
    """

    kind: Literal["figure"]
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    caption: str = ""
    alt: str
    published: str = Field("", pattern=PUBLISHED)


class TableBlock(Config):
    """A small table of words and numbers."""

    kind: Literal["table"]
    columns: list[str]
    rows: list[list[Cell]]
    caption: str = ""


class VerdictsBlock(Config):
    """The table of all claims."""

    kind: Literal["verdicts"]


class Bar(Config):
    """What a model holds of one value.

    Attributes:
        value: the value, 1 … V.
        probability: the model's.
        ideal: that of the ideal observer.
        published: the one that the source prints, if it prints any.
    """

    value: int
    probability: float = Field(ge=0.0, le=1.0)
    ideal: float | None = Field(None, ge=0.0, le=1.0)
    published: float | None = Field(None, ge=0.0, le=1.0)


class WorkedStep(Config):
    """One question of a sequence, which y belongs to this x, with the model's answer.

    Attributes:
        x: the token asked about.
        seen: every token up to and with x.
        used: the values shown before x.
        target: the right value, where it is known.
        recall: the value that stood beside an earlier copy of x, if there is one.
        elimination: the only value not used yet, if only one is left.
        bars: one for each value.
        note: a remark.
    """

    x: int
    seen: list[int]
    used: list[int]
    target: int | None = None
    recall: int | None = None
    elimination: int | None = None
    bars: list[Bar] = Field(min_length=1)
    note: str = ""

    @property
    def probabilities(self) -> list[float]:
        """The model's probability of each value."""
        return [bar.probability for bar in self.bars]

    @property
    def ideal(self) -> list[float | None]:
        """The ideal observer's probability of each value."""
        return [bar.ideal for bar in self.bars]

    @model_validator(mode="after")
    def _names_its_values(self) -> Self:
        known = {bar.value for bar in self.bars}
        named = {*self.used, self.target, self.recall, self.elimination} - {None}
        if not named <= known:
            raise ValueError(f"used, target, recall and elimination among the bars' values {sorted(known)}")
        return self


class WorkedSequence(Config):
    """A sequence of tokens x₁ y₁ x₂ y₂ … with a model's probabilities at each x."""

    title: str = ""
    sequence: list[int]
    steps: list[WorkedStep] = Field(min_length=1)
    caption: str = ""


class WorkedBlock(WorkedSequence):
    """A worked sequence of the story; ``key`` names the array ``[step][value]`` of probabilities in ``file``."""

    kind: Literal["worked"]
    file: str
    key: str


Block = Annotated[
    TextBlock
    | MarkdownBlock
    | SequenceBlock
    | FigureBlock
    | TableBlock
    | VerdictsBlock
    | WorkedBlock
    | ExplorerBlock
    | CircuitBlock,
    Field(discriminator="kind"),
]


class Section(Config):
    """A part of the story with a heading.

    Attributes:
        id: its anchor on the page.
        heading, blocks: what it says.
        layer: `story` is open on the page; `numbers` is folded, for readers who want to check.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    heading: str
    blocks: list[Block]
    layer: Literal["story", "numbers"] = "story"


class Lead(Config):
    """What stands on the first screen of the page, under the question.

    Attributes:
        text: the answer in Markdown, three sentences at most.
        figure: the one chart that shows it.
    """

    text: str
    figure: FigureBlock | None = None


class ClaimWords(Config):
    """Words about a claim in the story of an older run, whose ``claims.json`` had none."""

    words: str = ""
    per_seed: dict[str, list[float | str | None]] = Field(default_factory=dict)


class Story(Config):
    """Everything that the page says, in order."""

    schema_version: Literal[1]
    title: str
    subtitle: str = ""
    lead: Lead | None = None
    numbers: dict[str, Number] = Field(default_factory=dict)
    claims: dict[str, ClaimWords] = Field(default_factory=dict)
    sections: list[Section]

    @property
    def blocks(self) -> list[Block]:
        """The lead's chart and the blocks of all sections, in order."""
        first: list[Block] = [self.lead.figure] if self.lead and self.lead.figure else []
        return first + [block for section in self.sections for block in section.blocks]

    @property
    def layers(self) -> tuple[list[Section], list[Section]]:
        """The sections that are open on the page, and those that are folded."""
        told = [section for section in self.sections if section.layer == "story"]
        return told, [section for section in self.sections if section.layer == "numbers"]

    def first(self, kind: str) -> str:
        """Anchor of the first open section with a block of a kind; empty where there is none."""
        found = (each.id for each in self.layers[0] if any(block.kind == kind for block in each.blocks))
        return next(found, "")


class RunConfig(BaseModel):
    """The content of config.json: study, preset and configuration."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    schema_version: int
    results_version: int | str
    study: str
    preset: str | None
    hash: str
    config: dict[str, JsonValue]


class RunRecord(Config):
    """Everything the page needs of one run, apart from its figures.

    Attributes:
        path: the run folder.
        slim: whether the folder has no units: no checkpoints, attention maps and analyses.
        config, story, claims: the files of these names.
        drawn: specifications of figures that the page itself draws, by name; the others are files of the run.
    """

    path: Path
    slim: bool
    config: RunConfig
    story: Story
    claims: list[JudgedClaim]
    drawn: dict[str, dict[str, Any]] = Field(default_factory=dict)


def read_run(path: Path) -> RunRecord:
    """Read and check config.json, story.json and claims.json of a run folder; of an unfinished run, what there is.

    Raises:
        UserError: a file is missing, is no JSON, was made by a newer Hopscope, or has other fields than the
            documentation says.
    """
    config = _read(path / "config.json", TypeAdapter(RunConfig))
    if is_unfinished(path):
        story, drawn = unfinished_story(RunFolder.open(path))
        told = Story.model_validate(story)
        return RunRecord(path=path, slim=False, config=config, story=told, claims=[], drawn=drawn)
    return RunRecord(
        path=path,
        slim=is_slim(path),
        config=config,
        story=_read(path / "story.json", TypeAdapter(Story)),
        claims=list(read_ledger(path)),
    )


def read_ledger(run_path: Path) -> Ledger:
    """The ledger in a run folder.

    Raises:
        UserError: it is missing, altered or damaged, or empty although claims were registered for the run.
    """
    path, rules = run_path / "claims.json", run_path / "registration.json"
    remedy = f"`hopscope claims {run_path}` makes it again from the evidence"
    if not is_file(path):
        return Ledger.read(path)  # which says so
    ledger = Ledger.parse(read_json(path, remedy), str(path))
    if not ledger and is_file(rules) and read_json(rules, "restore it").get("claims"):
        raise UserError(f"{path}: expected the claims that were registered, found an empty list; {remedy}")
    return ledger


def _read(path: Path, shape: TypeAdapter[_T]) -> _T:
    remedy = "run the study to its end (the same command goes on), or name another run folder"
    value = read_json(path, remedy)
    if isinstance(value, dict) and isinstance(value.get("schema_version"), int):
        check_schema(path, value, remedy)
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
