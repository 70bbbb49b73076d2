"""`hopscope run STUDY`: its options, a flag for every field of the study, and how far it is."""

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tyro

from hopscope.cli import say
from hopscope.cli.parsing import console, parse
from hopscope.errors import UserError
from hopscope.study.load import Loaded, load, studies
from hopscope.study.study import Flag, Study

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder

_PLAIN = {
    "seeds": "Number of seeds of every configuration.",
    "held_out": "Held-out samples of an evaluation.",
    "completion": "Start and schedule in one word; fields that are given as well win.",
}
_BETWEEN = 30.0  # seconds between two lines that do not go to a terminal


@dataclasses.dataclass
class RunOptions:
    """Where and how long a study runs; none of it changes the results."""

    preset: str | None = None
    """Named fields to start from (default: laptop where the study has it, else as it is written)."""
    out: Path = Path("runs")
    """Root folder of the runs; with a URL (s3://…) a copy is kept there, and the work is done in a local folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""
    threads: int | None = None
    """Cores to use (default: all)."""
    time_budget: float | None = None
    """Seconds to work; then exit with status 75, and the same command goes on."""
    executor: Literal["local", "ray", "slurm"] = "local"
    """Where units are trained: by processes of this machine, as tasks of a Ray cluster, or as jobs of SLURM."""
    address: str | None = None
    """HOST:PORT of the Ray cluster (default: RAY_ADDRESS, or the one here); of slurm: local or debug, to try it."""
    tracker: tyro.conf.UseAppendAction[tuple[Literal["tensorboard", "wandb", "trackio"], ...]] = ()
    """Send what is recorded there while it trains; may be given several times."""


def run(arguments: Sequence[str]) -> None:
    """Train and conclude a study."""
    names = ", ".join(studies())
    usage = f"usage: hopscope run STUDY [OPTIONS], STUDY is one of: {names}, or a file such as study.py"
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"{usage}\nhopscope run STUDY --help lists the options and the study's fields.")
        return
    if not arguments or arguments[0].startswith("-"):
        raise UserError(f"study: expected one of {names}, or a file such as study.py, found none; {usage}")
    loaded = load(arguments[0])
    options, fields = read_options(loaded, arguments[1:], arguments[0])
    from hopscope import api

    with Bar() as bar:
        found = api.run(arguments[0], **vars(options), fields=fields, listen=bar.hear, say=say)
    if found.claims:
        console().print(found.claims.text(), markup=False)
        print(f"why: hopscope claims {found.path} --long")
    print(f"report: {found.path / 'report.html'}")
    sys.stdout.flush()
    print(found.path)


def read_options(loaded: Loaded, arguments: Sequence[str], called: str) -> tuple[RunOptions, dict[str, Any]]:
    """Run options, and the dotted fields that the command line gives another value than the preset.

    `called` is what the study was called there, for help and errors; `UserError`: an unknown preset or field, or a
    value that does not fit.
    """
    # The preset's fields, and what a completion sets, are the defaults of the others: so these come first.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--preset", "--completion"):
        first.add_argument(name, nargs="?")
    known = first.parse_known_args(list(arguments))[0]
    preset = loaded.study.preset(known.preset)
    plain = {"completion": known.completion} if known.completion is not None else {}
    study = loaded.study.chosen(preset, plain)
    flags = study.fields()
    kind = _command(flags, RunOptions(preset=preset))
    words = _hinted([_whole(each, study) for each in arguments], flags, study)
    parsed = parse(kind, words, f"run {called}", f"{study.name}: {study.question}")
    values = {flag.name: (_value(parsed, flag.name), flag.default) for flag in flags}
    return parsed.run, {
        **plain,
        **{name: value for name, (value, own) in values.items() if not _same(value, own)},
    }


def _command(flags: Sequence[Flag], options: RunOptions) -> type[Any]:
    """A dataclass of run options and all flags, those of a section in one of its own."""
    fields: list[Any] = [("run", Annotated[RunOptions, tyro.conf.arg(name="")], _default(options))]
    sections: dict[str, list[Any]] = {}
    for flag in flags:
        section, _, name = flag.name.rpartition(".")
        own: Any = tuple[flag.type, ...] if flag.varied else flag.type  # type: ignore[name-defined]
        words = _PLAIN.get(flag.name) if flag.owner is Study else _helps(flag.owner).get(name)
        default = tuple(flag.default) if flag.varied else flag.default
        field = (name, Annotated[own, tyro.conf.arg(help=words)], _default(default))
        (sections.setdefault(section, []) if section else fields).append(field)
    for section, own in sections.items():
        made = dataclasses.make_dataclass(section.capitalize(), own)
        fields.append((section, made, dataclasses.field(default_factory=made)))
    return dataclasses.make_dataclass("Run", fields)


def _default(value: Any) -> Any:
    return dataclasses.field(default_factory=lambda: value)


def _helps(kind: type) -> dict[str, str]:
    import docstring_parser

    found: dict[str, str] = {}
    docs = [docstring_parser.parse(base.__doc__ or "") for base in reversed(kind.__mro__)]
    for each in (param for doc in docs for param in doc.params):
        for name in each.arg_name.split(", "):
            found[name] = each.description or ""
    return found


def _value(parsed: Any, name: str) -> Any:
    section, _, field = name.rpartition(".")
    return getattr(getattr(parsed, section) if section else parsed, field)


def _same(found: Any, default: Any) -> bool:
    return bool(found == default or (isinstance(found, tuple) and list(found) == list(default or ())))


def _whole(argument: str, study: Study) -> str:
    """A flag by its whole name, as `--training.steps` for `--training-steps`; anything else as it is."""
    flag, equals, value = argument.partition("=")
    name = flag.removeprefix("--").replace("-", "_")
    bare = name.removeprefix("no_")
    section, dot, field = study.dotted(bare).partition(".")
    if not flag.startswith("--") or not dot or "." in bare:
        return argument
    return f"--{section}.{'no-' * (bare != name)}{field.replace('_', '-')}{equals}{value}"


def _hinted(arguments: Sequence[str], flags: Sequence[Flag], study: Study) -> list[str]:
    """The arguments; a flag that does not exist, or a switch with a value, is told as the study tells it."""
    kinds = {flag.name: flag for flag in flags}
    for at, argument in enumerate(arguments):
        name = argument.removeprefix("--").partition("=")[0].replace("-", "_")
        if not argument.startswith("--") or "." not in name:
            continue
        bare = ".".join(part.removeprefix("no_") for part in name.split("."))
        if name not in kinds and bare not in kinds:
            study.check_open([name])
            study.changed({name: None})  # which raises, with a hint
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        if name in kinds and isinstance(kinds[name].default, bool) and following.lower() in ("true", "false"):
            section, _, field = argument.removeprefix("--").rpartition(".")
            wanted = argument if following.lower() == "true" else f"--{section}.no-{field}"
            words = f"expected a switch without a value, found {following!r}; write {wanted}"
            raise UserError(f"{argument}: {words}")
    return list(arguments)


@dataclasses.dataclass
class _Unit:
    name: str
    cost: int
    share: float = 0.0  # of its work that is done
    losses: Sequence[float] = ()
    diverged: Sequence[int] = ()
    done: bool = False


class Bar:
    """How far a run is, on standard error: a bar on a terminal, elsewhere a dated line every half minute."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._console, self._units, self._said = Console(stderr=True), dict[str, _Unit](), -math.inf
        self._progress = Progress(
            BarColumn(bar_width=10), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("left"),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            console=self._console, disable=not self._console.is_terminal, expand=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def hear(self, folder: "UnitFolder", message: Mapping[str, Any]) -> None:
        """Take in one message of a worker."""
        if not self._units:
            self._know(folder)
        unit, kind = self._units[folder.name], message["kind"]
        if kind == "warning":
            self._tell(f"hopscope: warning: {message['message']}")
        elif kind in ("found", "done"):
            unit.share, unit.losses, unit.done = 1.0, (), True
            if kind == "done" and all(each.done for each in self._units.values()):
                self._show("trained and measured", pause=0.0)
        elif kind == "phase":
            self._show(f"{unit.name}: {message['name']}")
        elif kind == "progress":
            unit.share = message["step"] / max(1, message["steps"])
            unit.losses = [loss for loss in message["losses"] if loss is not None]
            if list(message["diverged"]) != list(unit.diverged):
                unit.diverged = message["diverged"]
                numbers = [folder.members[at].member for at in unit.diverged]
                self._tell(f"{unit.name}: diverged: member {', '.join(map(str, numbers))}")
            losses = [loss for each in self._units.values() for loss in each.losses]
            ends = f", loss {min(losses):.4f} to {max(losses):.4f}" if losses else ""
            self._show(f"{unit.name}: {message['samples_per_second']:,.0f} samples/s{ends}")

    def _know(self, folder: "UnitFolder") -> None:
        from hopscope.execute.pool import size_of
        from hopscope.runs import RunFolder

        for unit in RunFolder(folder.run_path).units:
            seeds = [member.seed for member in unit.members]
            named = f"seeds {seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
            self._units[unit.name] = _Unit(f"{unit.job['label']}, {named}", size_of(unit))

    def _show(self, words: str, pause: float = _BETWEEN) -> None:
        done = round(sum(unit.cost * unit.share for unit in self._units.values()))
        if not self._progress.tasks:  # what was done before says nothing about the time that is left
            self._progress.add_task("", total=sum(unit.cost for unit in self._units.values()), completed=done)
        (task,) = self._progress.tasks
        self._progress.update(task.id, completed=done, description=words)
        if not self._console.is_terminal and time.monotonic() - self._said >= pause:
            self._said, seconds = time.monotonic(), task.time_remaining
            left = f"{timedelta(seconds=round(seconds))} left  " if seconds else ""
            say(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {task.percentage:3.0f} %  {left}{words}")

    def _tell(self, words: str) -> None:
        if self._console.is_terminal:
            self._console.print(words, markup=False, highlight=False)
        else:
            say(words)
