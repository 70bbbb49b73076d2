"""`hopscope run STUDY`: its options, a flag for every field of the study, and how far it is."""

import argparse
import dataclasses
import functools
import math
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from hopscope.cli import say
from hopscope.cli.parsing import console, parse
from hopscope.errors import UserError
from hopscope.execute.pool import size_of
from hopscope.runs import RunFolder, UnitFolder
from hopscope.study.load import Loaded, load, studies
from hopscope.study.study import Flag, Study

_BETWEEN = 30.0  # seconds between two lines that do not go to a terminal
_OWN = "of_the_command"  # where its own options stand among the fields of a study


@dataclasses.dataclass
class RunOptions:
    """Where and how long a study runs; none of it changes the results."""

    preset: str | None = None
    """Named fields to start from; by default laptop where the study has it, else as it is written."""
    out: str = "runs"
    """Root folder of the runs; with a URL (s3://…) a copy is kept there, and the work is done in a local folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""
    threads: int | None = None
    """Cores to use; by default all."""
    time_budget: float | None = None
    """Seconds to work; then exit with status 75, and the same command goes on."""
    executor: Literal["local", "ray", "slurm"] = "local"
    """Where units are trained: by processes of this machine, as tasks of a Ray cluster, or as jobs of SLURM."""
    address: str | None = None
    """HOST:PORT of the Ray cluster, by default RAY_ADDRESS, or the one here; of slurm: local or debug, to try it."""
    tracker: tyro.conf.UseAppendAction[tuple[Literal["tensorboard", "wandb", "trackio"], ...]] = ()
    """Send records to this tracker in training; may be given several times."""


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
    with loaded.naming():
        options, fields = read_options(loaded, arguments[1:], arguments[0])
    from hopscope import api

    with Bar() as bar:
        found = api.run(arguments[0], **vars(options), fields=fields, listen=bar.hear, say=say)
    if found.claims:
        console().print(found.claims.text(), markup=False)
        print(f"why: hopscope claims {shlex.quote(str(found.path))} --long")
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
    plain: dict[str, Any] = {"completion": known.completion} if known.completion is not None else {}
    study = loaded.study.chosen(preset, plain)
    flags = study.fields()
    kind = _command(flags, RunOptions(preset=preset))
    named = [*_named(arguments, {flag.name: flag for flag in flags}, study)]
    parsed = parse(kind, [word for word, _ in named], f"run {called}", f"{study.name}: {study.question}")
    # What was given counts also where it is the default: another flag may move that.
    given = {name for _, name in named}
    for flag in flags:
        section, _, field = flag.name.rpartition(".")
        value = getattr(getattr(parsed, section) if section else parsed, field)
        same = value == flag.default or (isinstance(value, tuple) and value == tuple(flag.default or ()))
        if flag.name in given or not same:
            plain[flag.name] = value
    return getattr(parsed, _OWN), plain


def _command(flags: Sequence[Flag], options: RunOptions) -> type[Any]:
    # A dataclass of run options and all flags, those of a section in one of its own.
    fields: list[Any] = [(_OWN, Annotated[RunOptions, tyro.conf.arg(name="")], _default(options))]
    sections: dict[str, list[Any]] = {}
    for flag in flags:
        section, _, name = flag.name.rpartition(".")
        own: Any = tuple[flag.type, ...] if flag.varied else flag.type  # type: ignore[name-defined]
        default = tuple(flag.default) if flag.varied else flag.default
        hint = "(on by default: this turns it off)" if default is True else None
        hint = "(default: none)" if default == () else hint
        about = tyro.conf.arg(help=_helps(flag.owner).get(name), help_behavior_hint=hint)
        field = (name, Annotated[own, about], _default(default))
        (sections.setdefault(section, []) if section else fields).append(field)
    for section, own in sections.items():
        made = dataclasses.make_dataclass(section.capitalize(), own)
        fields.append((section, made, dataclasses.field(default_factory=made)))
    return dataclasses.make_dataclass("Run", fields)


def _default(value: Any) -> Any:
    return dataclasses.field(default_factory=lambda: value)


@functools.cache
def _helps(kind: type) -> dict[str, str]:
    import docstring_parser

    docs = [docstring_parser.parse(base.__doc__ or "") for base in reversed(kind.__mro__)]
    params = [param for doc in docs for param in doc.params]
    # Each as one paragraph: lines that the docstring breaks would stay broken.
    said = {each.arg_name: " ".join((each.description or "").split()) for each in params}
    return {name: words for names, words in said.items() for name in names.split(", ")}


def _named(arguments: Sequence[str], flags: Mapping[str, Flag], study: Study) -> Iterator[tuple[str, str]]:
    """Each argument, a flag by its whole name (`--training.steps` for `--training-steps`), and the field of a flag.

    A flag that does not exist, or a switch with a value, is told as the study tells it: by a `UserError`.
    """
    for argument, following in pairwise([*arguments, ""]):
        if argument.startswith("--options."):  # as `vary` may name an option
            argument = f"--{argument.removeprefix('--options.')}"
        written, equals, value = argument.partition("=")
        name = written.removeprefix("--").replace("-", "_") if written.startswith("--") else ""
        bare = name.removeprefix("no_")
        if bare and "." not in bare and "." in (whole := study.dotted(bare)):
            section, _, field = whole.partition(".")
            name = f"{section}.{'no_' * (bare != name)}{field}"
            argument = f"--{name.replace('_', '-')}{equals}{value}"
        plain = ".".join(part.removeprefix("no_") for part in name.split("."))
        # The field of an option that has fields itself is known by its first word.
        if "." in name and not {name, plain, name.partition(".")[0]} & {*flags}:
            study.check_open([name])
            study.changed({name: None})  # which raises, with a hint
        is_on, valued = name in flags and flags[name].default, following.lower() in ("true", "false")
        if isinstance(is_on, bool) and name in flags and (valued or is_on):
            section, _, field = argument.removeprefix("--").rpartition(".")
            off = f"--{section}{'.' * bool(section)}no-{field}"
            on = following.lower() != "false"
            advice = "leave it out, for so it is" if is_on == on else f"write {argument if on else off}"
            kind, found = (
                ("without a value", repr(following)) if valued else ("that is off", "one that is on")
            )
            raise UserError(f"{argument}: expected a switch {kind}, found {found}; {advice}")
        yield argument, name


class _Unit:
    def __init__(self, folder: UnitFolder):
        seeds = [member.seed for member in folder.members]
        named = f"seeds {seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
        self.name, self.cost = f"{folder.job['label']}, {named}", size_of(folder)
        self.share, self.done = 0.0, False  # of its work, what is done
        self.losses, self.diverged = list[float](), list[int]()


class Bar(Progress):
    """How far a run is, on standard error: a bar on a terminal, elsewhere a dated line every half minute."""

    def __init__(self) -> None:
        console, wide = Console(stderr=True), Column(ratio=1, no_wrap=True)
        words = TextColumn("{task.description}", markup=False, table_column=wide)
        columns = BarColumn(bar_width=10), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("left")
        super().__init__(*columns, words, console=console, disable=not console.is_terminal, expand=True)
        self._units, self._said = dict[str, _Unit](), -math.inf

    def hear(self, folder: UnitFolder, message: Mapping[str, Any]) -> None:
        """Take in one message of a worker."""
        if not self._units:
            self._units = {unit.name: _Unit(unit) for unit in RunFolder(folder.run_path).units}
        unit, kind = self._units[folder.name], message["kind"]
        if kind == "warning":
            say(f"hopscope: warning: {message['message']}")
        elif kind in ("found", "done"):
            unit.share, unit.losses, unit.done = 1.0, [], True
            if kind == "done" and all(each.done for each in self._units.values()):
                self._show("trained and measured", pause=0.0)
        elif kind == "phase":
            self._show(f"{unit.name}: {message['name']}")
        elif kind == "progress":
            unit.share = message["step"] / max(1, message["steps"])
            unit.losses = [loss for loss in message["losses"] if loss is not None]
            if list(message["diverged"]) != unit.diverged:
                unit.diverged = list(message["diverged"])
                numbers = [str(folder.members[at].member) for at in unit.diverged]
                say(f"{unit.name}: diverged: member {', '.join(numbers)}")
            losses = [loss for each in self._units.values() for loss in each.losses]
            ends = f", loss {min(losses):.4f} to {max(losses):.4f}" if losses else ""
            self._show(f"{unit.name}: {message['samples_per_second']:,.0f} samples/s{ends}")

    def _show(self, words: str, pause: float = _BETWEEN) -> None:
        done = round(sum(unit.cost * unit.share for unit in self._units.values()))
        if not self.tasks:  # what was done before says nothing about the time that is left
            self.add_task("", total=sum(unit.cost for unit in self._units.values()), completed=done)
        (task,) = self.tasks
        self.update(task.id, completed=done, description=words)
        if not self.console.is_terminal and time.monotonic() - self._said >= pause:
            self._said, seconds = time.monotonic(), task.time_remaining
            left = f"{timedelta(seconds=round(seconds))} left  " if seconds else ""
            say(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {task.percentage:3.0f} %  {left}{words}")
