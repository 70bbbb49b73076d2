"""Every reader of outside data, with valid inputs, and what becomes of an input: right, refused, or a fault.

A reader is a function of bytes (or of the words of a command line).  It may return, or raise the documented error.
Whatever else it raises is a fault.
"""

import contextlib
import importlib.util
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fuzz_inputs import Make, damaged_bytes, damaged_json, damaged_words

ROOT = Path(__file__).resolve().parents[2]


NAMES = [
    "JSON", "npz archive", "worker's line", "record of a copy", "config.json", "members.json", "unit.json",
    "units.json",
    "thinned.json", "study.json", "events.jsonl", "seals.jsonl", "metrics part", "metrics.parquet",
    "evidence.parquet", "checkpoint", "checkpoint on resume", "analysis (JSON)", "analysis (npz)",
    "claims.json", "registration.json", "story.json", "config.json of a page", "figure (Vega-Lite)",
    "figure (CSV)", "config.json of an export", "weights of an export", "weights, sealed again",
    "language model's record", "language model's weights", "answers.json", "transcript's sample",
    "question set", "passage", "corpus", "counts of a corpus", "campaign: campaign.json",
    "campaign: state.json", "campaign: models.json", "campaign: log", "pack: archive", "pack: entries",
    "pack: provenance", "costs", "kept script", "command lines", "fields of `run`",
    "commands on a damaged run",
]  # fmt: skip
"""Of all readers, in their order."""


@dataclass(frozen=True)
class Reader:
    """One reader.

    Attributes:
        name: of the file or value that it reads.
        make: makes an input (`fuzz_inputs`).
        read: what reads one.
        documented: errors that it may raise.
        weight: its part of a soak, beside the others.
    """

    name: str
    make: Make
    read: Callable[[Any], object]
    documented: tuple[type[BaseException], ...]
    weight: float = 1.0


def outcome(reader: Reader, given: Any) -> str:
    """What a reader makes of an input: `right`, `refused`, or the words of a fault."""
    try:
        reader.read(given)
    except reader.documented as error:
        lines = str(error).splitlines()
        return (
            "refused" if len(lines) == 1 and lines[0].strip() else f"an error of {len(lines)} lines: {error}"
        )
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:120]} at {_where(error)}"
    return "right"


def _where(error: BaseException) -> str:
    """The last line of ours that an error came through."""
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/hopscope/" in name or "/campaigns/" in name:
            found = f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _module(path: Path) -> Any:
    """A module by its path, once."""
    name = path.stem if path.parent.name == "campaigns" else f"fuzz_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


class World:
    """Valid files around which inputs are made.

    Attributes:
        folder: where inputs are put; nothing else is in it.
        run: a finished run, without seals, as if from before there were any: sealed, it would refuse every input.
    """

    def __init__(self, run: Path, folder: Path):
        self.folder = folder
        self.run = folder / "runs" / run.parent.name / run.name
        shutil.copytree(run, self.run)
        for path in self.run.rglob("seals.jsonl"):
            path.unlink()
        (self.unit,) = (self.run / "units").iterdir()

    def readers(self) -> list[Reader]:
        """All of them."""
        from fuzz_more_readers import more_readers

        return [
            *self._ground(), *self._records(), *self._tables(), *self._page(), *more_readers(self),
        ]  # fmt: skip

    # One kind of input each.

    def json(
        self, name: str, path: Path, read: Callable[[], object], *values: Any, weight: float = 1.0
    ) -> Reader:
        """Of a JSON file: `read` is called with the damaged one in its place; without values, made of what is there."""
        from hopscope.errors import UserError

        valid = values or (json.loads(path.read_text(encoding="utf-8")),)
        return Reader(name, damaged_json(valid), self._placed(path, read), (UserError,), weight)

    def bytes(
        self, name: str, path: Path, read: Callable[[], object], *values: bytes, weight: float = 1.0
    ) -> Reader:
        """Of any file."""
        from hopscope.errors import UserError

        valid = values or (path.read_bytes(),)
        return Reader(name, damaged_bytes(valid), self._placed(path, read), (UserError,), weight)

    def _placed(self, path: Path, read: Callable[[], object]) -> Callable[[bytes], object]:
        before = path.read_bytes() if path.is_file() else None

        def with_input(content: bytes) -> object:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            try:
                return read()
            finally:
                path.unlink() if before is None else path.write_bytes(before)

        return with_input

    # The readers.

    def _ground(self) -> list[Reader]:
        import numpy as np

        from hopscope.executors.processes import message_of
        from hopscope.runs.arrays import npz_arrays, npz_bytes
        from hopscope.runs.generations import Generation, read_generation
        from hopscope.strict_json import canonical_json, parse_json

        def again(content: bytes) -> None:
            text = canonical_json(parse_json(content))
            assert canonical_json(parse_json(text)) == text

        valid = [{"a": [1, 2.5, None, "é"], "b": {"c": True}}]
        archive = npz_bytes({"two": np.arange(6.0).reshape(2, 3), "five": np.arange(5)})
        copied = Generation.following(7, {"units/a/DONE": (sha256().hexdigest(), 0)}).model_dump(mode="json")
        message = json.dumps({"kind": "progress", "step": 3, "loss": [0.5]}).encode()
        return [
            Reader("JSON", damaged_json(valid), again, (ValueError,), 6.0),
            Reader("npz archive", damaged_bytes([archive]), npz_arrays, (ValueError,), 4.0),
            Reader("worker's line", damaged_bytes([message]), lambda line: message_of(line.decode(errors="replace")),
                   (), 2.0),
            Reader("record of a copy", damaged_json([copied]), read_generation, (ValueError,)),
        ]  # fmt: skip

    def _records(self) -> list[Reader]:
        from hopscope.runs import RunFolder, UnitFolder, content_hash
        from hopscope.runs.files import read_bytes
        from hopscope.runs.thinning import frozen_members, steps_left_out
        from hopscope.studies.record import program_of
        from hopscope.training.config import is_trained, job_of

        run, unit = self.run, UnitFolder(self.unit)

        def opened() -> None:
            found = RunFolder.open(run)
            program_of(found).recorded(found)

        def planned() -> None:
            unit_record = unit.path / "unit.json"
            job_of(unit)
            with contextlib.suppress(ValueError, AttributeError, UnicodeDecodeError, RecursionError):
                # Once more under the name that fits, or hardly any plan would be looked at.
                plan = json.loads(unit_record.read_bytes())["plan"]
                named = UnitFolder(unit.path.parent / content_hash(plan))
                named.path.mkdir(exist_ok=True)
                return _and_gone(
                    named, unit_record.read_bytes(), lambda: (job_of(named), is_trained(named), named.steps)
                )

        def _and_gone(named: UnitFolder, content: bytes, read: Callable[[], object]) -> None:
            (named.path / "unit.json").write_bytes(content)
            try:
                read()
            finally:
                if named.path != unit.path:
                    shutil.rmtree(named.path)

        def slim() -> None:
            aside = unit.path / "unit.json"
            content = aside.read_bytes()
            aside.unlink()
            try:
                _ = unit.record, unit.steps
            finally:
                aside.write_bytes(content)

        def thin() -> None:
            steps_left_out(unit)
            frozen_members(unit, 8)

        def sealed() -> None:
            read_bytes(run / "claims.json", "mend")

        thinned = {"schema_version": 1, "rounded": [8], "left_out": [4, 8], "frozen": [0]}
        units = {"schema_version": 1, "units": {unit.hash: json.loads((self.unit / "unit.json").read_text())}}
        study = {"schema_version": 1, "reference": "none.py", "file": "none.py", "sha256": "7"}
        line = {"file": "claims.json", "sha256": sha256((run / "claims.json").read_bytes()).hexdigest()}
        return [
            self.json("config.json", run / "config.json", opened, weight=2.0),
            self.json("members.json", run / "members.json", lambda: RunFolder.open(run).units, weight=2.0),
            self.json("unit.json", self.unit / "unit.json", planned, weight=2.0),
            self.json("units.json", run / "units.json", slim, units),
            self.json("thinned.json", self.unit / "thinned.json", thin, thinned),
            self.json("study.json", run / "study.json", lambda: program_of(RunFolder.open(run)), study),
            self.bytes("events.jsonl", run / "events.jsonl", RunFolder(run).events),
            self.bytes("seals.jsonl", run / "seals.jsonl", sealed, 3 * (json.dumps(line).encode() + b"\n"), weight=2.0),
        ]  # fmt: skip

    def _tables(self) -> list[Reader]:
        from hopscope.runs import UnitFolder, load_checkpoint
        from hopscope.runs.evidence import Evidence
        from hopscope.runs.metrics import read_metrics
        from hopscope.runs.store import RunFolder

        unit, run = UnitFolder(self.unit), RunFolder(self.run)
        part = max((self.unit / "metrics").iterdir(), key=lambda path: path.stat().st_size)
        checkpoint = unit.checkpoint_path(8)
        analysis = min((self.unit / "analysis").glob("*.json"), key=lambda path: path.stat().st_size)
        name, _, step = analysis.stem.partition("-step-")
        arrays = min((self.unit / "analysis").glob("*.npz"), key=lambda path: path.stat().st_size)
        named, _, at = arrays.stem.partition("-step-")

        def table() -> None:
            found = Evidence.read(run)
            _ = found.to_pandas(), found.metrics

        def resumed() -> None:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                unit.resume_point()
            unit.checkpoint()

        return [
            self.bytes("metrics part", part, lambda: read_metrics(self.unit), weight=0.3),
            self.bytes("metrics.parquet", self.run / "metrics.parquet", lambda: run.metrics().to_pandas(), weight=0.7),
            self.bytes("evidence.parquet", self.run / "evidence.parquet", table, weight=0.7),
            self.bytes("checkpoint", checkpoint, lambda: load_checkpoint(checkpoint), weight=2.0),
            self.bytes("checkpoint on resume", checkpoint, resumed),
            self.json("analysis (JSON)", analysis, lambda: dict(unit.read_analysis(name, int(step)))),
            self.bytes("analysis (npz)", arrays, lambda: unit.read_analysis(named, int(at))),
        ]  # fmt: skip

    def _page(self) -> list[Reader]:
        from hopscope.claims.registration import noted, state_of
        from hopscope.report.figures import inline_figure
        from hopscope.report.page import build_report
        from hopscope.report.record import read_ledger
        from hopscope.runs import RunFolder
        from hopscope.runs.files import read_json
        from hopscope.studies.record import program_of

        made_up = _module(ROOT / "tests" / "report" / "synthetic_run.py")
        run = made_up.write_synthetic_run(self.folder / "made up")
        page = self.folder / "page.html"
        claims = json.loads((self.run / "claims.json").read_text(encoding="utf-8"))[2:5]
        registered = json.loads((self.run / "registration.json").read_text(encoding="utf-8"))
        registered["claims"] = {key: registered["claims"][key] for key in list(registered["claims"])[:2]}
        own = RunFolder.open(self.run)
        rules = program_of(own).claims(program_of(own).recorded(own))[:2]

        def ledger() -> None:
            str(read_ledger(self.run))

        def registration() -> None:
            found = read_json(self.run / "registration.json")
            for claim in rules:
                state_of(claim, found)
            noted(found, [])

        def figure() -> None:
            json.dumps(inline_figure(run / "figures", "loss"))

        return [
            self.json("claims.json", self.run / "claims.json", ledger, claims, weight=2.0),
            self.json("registration.json", self.run / "registration.json", registration, registered, weight=0.1),
            self.json("story.json", run / "story.json", lambda: build_report([run], page), weight=0.1),
            self.json("config.json of a page", run / "config.json", lambda: build_report([run], page), weight=0.05),
            self.json("figure (Vega-Lite)", run / "figures" / "loss.vl.json", figure),
            self.bytes("figure (CSV)", run / "figures" / "loss.csv", figure),
        ]  # fmt: skip


def command(line: Sequence[str]) -> str:
    """Run a command line in this process; returns what it said on standard error.

    Raises:
        AssertionError: it ended as nothing documented does.
    """
    from hopscope.cli.main import main

    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            status = main(list(line))
        except SystemExit as stop:  # of --help
            status = stop.code or 0
    words = complained.getvalue()
    assert "a fault of Hopscope" not in words and "Traceback" not in words, words[-300:]
    assert status in (0, 2), (status, words[-300:])
    assert status == 0 or words.strip(), "refused without a word"
    return words


def archive_of(files: dict[str, bytes]) -> bytes:
    """A compressed tar file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


__all__ = ["NAMES", "ROOT", "Reader", "World", "archive_of", "command", "damaged_words", "outcome"]
