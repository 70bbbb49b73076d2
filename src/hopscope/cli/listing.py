"""`hopscope studies`, `hopscope new` and `hopscope bench`."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.errors import UserError
from hopscope.study.load import Loaded, load, studies_in
from hopscope.study.load import studies as study_names
from hopscope.study.study import DEFAULT_PRESET

_BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"  # which only the source tree has
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass
class StudiesOptions:
    """List the studies, their presets, and what they cost in the words of their authors."""

    place: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """List the studies of a file (study.py) or of a package's module instead."""
    study: str | None = None
    """List this study alone."""
    json: bool = False
    """Print JSON."""


def studies(arguments: Sequence[str]) -> None:
    """List studies and presets; one that cannot be loaded is said after all others."""
    options = parse(StudiesOptions, arguments, "studies")
    found, fault = _asked(options)
    if options.json:
        every = [
            {
                "study": each.study.name,
                "question": each.study.question,
                "presets": [
                    {"preset": name, "cost": each.study.costs.get(name, "")} for name in each.study.presets
                ],
                "fields": [flag.name for flag in each.study.fields()],
            }
            for each in found
        ]
        print(json.dumps(every, indent=1, ensure_ascii=False))
    for each in () if options.json else found:
        print(f"{each.study.name}: {each.study.question}")
        for name in each.study.presets:
            default, cost = " (default)" * (name == DEFAULT_PRESET), each.study.costs.get(name, "")
            print(f"  --preset {name}{default}{': ' * bool(cost)}{cost}")
    if fault is not None:
        raise fault


def _asked(options: StudiesOptions) -> tuple[list[Loaded], UserError | None]:
    if options.place is not None:
        every = studies_in(options.place)
        if options.study is not None and options.study not in every:
            raise UserError(f"study: expected one of {', '.join(every)}, found {options.study!r}")
        return [each for name, each in every.items() if options.study in (None, name)], None
    if options.study is not None:
        return [load(options.study)], None
    found, fault = list[Loaded](), None
    for name in study_names():
        try:
            found.append(load(name))
        except UserError as error:
            fault = fault or error
    return found, fault


@dataclasses.dataclass
class NewOptions:
    """Begin a study of your own: a file, the template of its page, and a test of its task."""

    kind: Positional[Literal["study"]]
    """What to begin."""
    name: Positional[str]
    """Name of the study and of its files: small letters, digits and underscores."""
    to: Path = Path()
    """Folder to write into."""


def new(arguments: Sequence[str]) -> None:
    """Write the files of a study; nothing is overwritten."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from hopscope.runs import write_atomic

    options = parse(NewOptions, arguments, "new")
    name = options.name
    if not _NAME.fullmatch(name):
        raise UserError(
            f"name: expected small letters, digits and underscores, a letter first, found {name!r}"
        )
    files = {
        f"{name}.py": "study.py.j2",
        f"{name}.md.j2": "page.md.j2",
        f"test_{name}.py": "test_study.py.j2",
    }
    for file in files:
        if (options.to / file).exists():
            words = "expected no such file yet, found one; choose another name, or move it away"
            raise UserError(f"{options.to / file}: {words}")
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0], "templates"), undefined=StrictUndefined,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    task = "".join(part.capitalize() for part in name.split("_"))
    for file, template in files.items():
        text = environment.get_template(template).render(name=name, task=task)
        write_atomic(options.to / file, text.encode())
        print(options.to / file)
    print(f"next: hopscope run {options.to / name}.py --preset smoke")


@dataclasses.dataclass
class BenchOptions:
    """Measure training and reading with the scripts of benchmarks/, which only a clone of hopscope has."""

    suite: str = "cpu"
    """Name of a script."""
    rounds: int | None = None
    """Rounds; in each, every contestant runs once."""
    out: Path | None = None
    """File for the measurements, as JSON."""


def bench(arguments: Sequence[str]) -> None:
    """Run a measuring script; its exit status is the command's."""
    options = parse(BenchOptions, arguments, "bench")
    if not _BENCHMARKS.is_dir():
        raise UserError(
            "bench: expected the source tree with benchmarks/, found none; run it from a clone of hopscope"
        )
    names = sorted(path.stem for path in _BENCHMARKS.glob("[a-z]*.py"))
    if options.suite not in names:
        raise UserError(f"suite: expected one of {', '.join(names)}, found {options.suite!r}")
    given = {"--rounds": options.rounds, "--out": options.out}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    done = subprocess.run([sys.executable, str(_BENCHMARKS / f"{options.suite}.py"), *words], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
