"""What a collection of trained members holds: one row a member, and the sums of all files.  Loads no torch.

```
FOLDER/
  README.md          the dataset card
  members.jsonl      the index: a `CollectedMember` a line
  NAME/              of each member
    config.json        what the model is, and where it comes from
    model.safetensors  its weights, float16
    reading.json       what the reader of circuits found, as `hopscope circuit --json` prints it
  circuits.json      every circuit that was read, as head rows (format `hopscope-circuits`, docs/benchmark.md)
  timelines.parquet  attention on each path of these circuits, at every checkpoint
  learned.parquet    the training step at which each part of a task was learned
  samples.safetensors  some held-out samples of each configuration
  SHA256SUMS         of all files, for `sha256sum --check`
```
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.runs.files import is_file, listed, read_bytes
from hopscope.strict_json import parse_json
from hopscope.tasks.config import TaskConfig
from hopscope.training.config import TrainingConfig

INDEX, CARD, CIRCUITS, SUMS = "members.jsonl", "README.md", "circuits.json", "SHA256SUMS"
TIMELINES, LEARNED_AT, SHOWN = "timelines.parquet", "learned.parquet", "samples.safetensors"
READING = "reading.json"
"""Names of the files."""

REMEDY = "copy the collection again, or build it anew with hopscope zoo build-members"


class CollectedMember(Config):
    """One trained member of a collection: a line of its index.

    Attributes:
        name: of its folder, and of no other member.
        study, run, member: the study, the hash of the run, and its number there.
        command: that trained it; empty where it was not told.
        configuration: what it has in common with other seeds, in words.
        seed, init_seed, data_seed: of the member, its initial weights, and its training samples.
        task, model, training: all fields.
        task_source: hash of the source of the task's class, where the task is not one of `hopscope.tasks`.
        step: training step of the weights.
        parameters: number of weights.
        diverged: whether training broke off because a loss was not finite.
        samples_name: under which `samples.safetensors` has held-out samples: `NAME/inputs`, `NAME/targets` and, where
            answers count differently, `NAME/weights`.
        samples: number of held-out samples on which `held_out` and `held_out_float16` are measured.
        held_out: metric → value with the weights as they were trained (float32); `None` where it is not a number.
        held_out_float16: the same with the weights as they are here.
        recorded: metric → value at the last evaluation of the run, on the run's own held-out samples.
        floors: metric → what it is without learning: name → value.
        asked: the parts of the task that could be learned.
        learned: those that were, by the rule of the reader of circuits.
        learned_at: part → the first evaluation from which it was so; `None`: never.
        verdict: of the reader: `read`, `unexplained` with the reason, or `no circuit`.
        heads, paths: number of heads with a path in its smallest circuit, and of these paths.
        holds_in_float16: whether the circuit holds in the rounded weights too; `None` where none was read.
        versions: of Hopscope and what it stands on, where it was trained.
        files: file in the member's folder → SHA-256.
    """

    format: Literal["hopscope-collection"] = "hopscope-collection"
    schema_version: Literal[1] = 1
    name: str
    study: str
    run: str
    member: int
    command: str = ""
    configuration: str
    seed: int
    init_seed: int
    data_seed: int
    task: TaskConfig
    task_source: str | None = None
    model: TransformerConfig
    training: TrainingConfig
    step: int
    parameters: int
    diverged: bool
    samples_name: str
    samples: int
    held_out: dict[str, float | None]
    held_out_float16: dict[str, float | None]
    recorded: dict[str, float | None]
    floors: dict[str, dict[str, float]]
    asked: tuple[str, ...]
    learned: tuple[str, ...]
    learned_at: dict[str, int | None]
    verdict: str
    heads: int
    paths: int
    holds_in_float16: bool | None
    versions: dict[str, str]
    files: dict[str, str]

    @property
    def learned_all(self) -> bool:
        """Whether every part of the task was learned."""
        return set(self.asked) <= set(self.learned)

    @property
    def was_read(self) -> bool:
        """Whether a circuit accounts for what was learned."""
        return self.holds_in_float16 is not None

    @property
    def change(self) -> float:
        """How far rounding moved the held-out loss; infinite where one of the two losses is not a number."""
        before, after = self.held_out["loss"], self.held_out_float16["loss"]
        return float("inf") if before is None or after is None else abs(after - before)


def slug(words: str) -> str:
    """Words as part of a folder's name: small letters, digits and hyphens."""
    plain = words.lower().translate({ord("₀") + digit: str(digit) for digit in range(10)})
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_index(folder: Path) -> list[CollectedMember]:
    """The rows of a collection.

    Raises:
        UserError: the folder is no collection, or its index is damaged.
    """
    path = folder / INDEX
    if not is_file(path):
        raise UserError(
            f"{folder}: expected a collection of members, found no {INDEX}; name its folder, such as "
            "docs/results/zoo/members of Hopscope's repository"
        )
    rows, names = [], set()
    for number, line in enumerate(read_bytes(path, REMEDY).splitlines(), 1):
        try:
            row = CollectedMember.model_validate(parse_json(line))
        except ValidationError as error:
            raise UserError(f"{path}, line {number}: {validation_line(error)}; {REMEDY}") from None
        except ValueError as error:
            raise UserError(f"{path}, line {number}: expected JSON, found {error}; {REMEDY}") from None
        if row.name in names or row.name != slug(row.name):
            raise UserError(
                f"{path}, line {number}: expected a name of letters, digits and hyphens that no other member has, "
                f"found {row.name!r}; {REMEDY}"
            )
        names.add(row.name)
        rows.append(row)
    return rows


def row_of(folder: Path) -> CollectedMember:
    """The row of a member's folder.

    Raises:
        UserError: the folder above it is no collection, or does not list it.
    """
    rows = {row.name: row for row in read_index(folder.parent)}
    if folder.name not in rows:
        raise UserError(
            f"{folder}: expected a member that hopscope zoo members {folder.parent} lists ({listed(rows, 3)}), "
            f"found {folder.name!r}"
        )
    return rows[folder.name]


def check_files(folder: Path, row: CollectedMember) -> None:
    """Check every file of a member's folder against the index.

    Raises:
        UserError: one is missing or altered.
    """
    for name, expected in row.files.items():
        found = sha256(read_bytes(folder / name, REMEDY))
        if found != expected:
            raise UserError(
                f"{folder / name}: expected the SHA-256 of {INDEX}, {expected[:12]}…, found {found[:12]}…; {REMEDY}"
            )


def sums(folder: Path, names: Iterable[str]) -> str:
    """The content of `SHA256SUMS`: sum and path of each of some files, as `sha256sum` writes it.

    Raises:
        UserError: a file cannot be read.
    """
    return "".join(f"{sha256(read_bytes(folder / name, REMEDY))}  {name}\n" for name in names)


def by_configuration(rows: Sequence[CollectedMember]) -> Iterator[tuple[CollectedMember, Mapping[str, Any]]]:
    """The first member of each study and configuration, with what is said of all of its members.

    Yields:
        The member, and `members`, `learned` (all that was asked), `partly` (some of it), `read`, `holds`, `heads` (the
        fewest and the most of a circuit that was read), `loss` (lowest and highest, float16) and `parameters`.
    """
    for _, group in groupby(rows, key=lambda row: (row.study, row.run, row.configuration)):
        same = list(group)
        heads = [row.heads for row in same if row.was_read]
        losses = [loss for row in same if (loss := row.held_out_float16["loss"]) is not None]
        yield (
            same[0],
            {
                "members": len(same),
                "learned": sum(row.learned_all for row in same),
                "partly": sum(bool(row.learned) and not row.learned_all for row in same),
                "read": sum(row.was_read for row in same),
                "holds": sum(bool(row.holds_in_float16) for row in same),
                "heads": (min(heads), max(heads)) if heads else None,
                "loss": (min(losses), max(losses)) if losses else None,
                "parameters": same[0].parameters,
            },
        )
