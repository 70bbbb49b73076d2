"""`hopscope studies`, `hopscope new` and `hopscope bench`."""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.errors import UserError
from hopscope.study.load import load, studies_in
from hopscope.study.load import studies as study_names
from hopscope.study.study import DEFAULT_PRESET, Study

_BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"  # which only the source tree has
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass
class StudiesOptions:
    """List the studies, their presets, and what they cost in the words of their authors."""

    place: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """List the studies of a file (study.py) or of a package's module instead."""
    json: bool = False
    """Print JSON."""


def studies(arguments: Sequence[str]) -> None:
    """List studies and presets; one that cannot be loaded is said after all others."""
    options, found, fault = parse(StudiesOptions, arguments, "studies"), list[Study](), None
    if options.place is not None:
        found = [each.study for each in studies_in(options.place).values()]
    for name in study_names() if options.place is None else ():
        try:
            found.append(load(name).study)
        except UserError as error:
            fault = fault or error
    if options.json:
        print(json.dumps([_about(study) for study in found], indent=1, ensure_ascii=False))
    for study in () if options.json else found:
        print(f"{study.name}: {study.question}")
        for name in study.presets:
            default, cost = " (default)" * (name == DEFAULT_PRESET), study.costs.get(name, "")
            print(f"  --preset {name}{default}{': ' * bool(cost)}{cost}")
    if fault is not None:
        raise fault


def _about(study: Study) -> dict[str, Any]:
    presets = [{"preset": name, "cost": study.costs.get(name, "")} for name in study.presets]
    fields = [flag.name for flag in study.fields()]
    return {"study": study.name, "question": study.question, "presets": presets, "fields": fields}


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
        wanted = "small letters, digits and underscores, a letter first"
        raise UserError(f"name: expected {wanted}, found {name!r}")
    names = (f"{name}.py", f"{name}.md.j2", f"test_{name}.py")
    files = dict(zip(names, ("study.py.j2", "page.md.j2", "test_study.py.j2"), strict=True))
    for file in files:
        if (options.to / file).exists():
            remedy = "choose another name, or move it away"
            raise UserError(f"{options.to / file}: expected no such file yet, found one; {remedy}")
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
    """Measure speed with the suites of benchmarks/, which only a clone of hopscope has.

    speed: training beside plain PyTorch and JAX.  engines: our engines beside one another, float32 and bfloat16.
    growth: the cost by layers, steps and members.  solved: seconds until seeds have learned.  reading: seconds to read
    a circuit.  finders: how well and how quickly finders of circuits do.  gpu: the paper's
    models on CUDA, one after another.
    """

    suite: str = "speed"
    """Which suite."""
    model: str | None = None
    """Which model: permutation, depth, depth-mlp, transformer-a, transformer-d, or tiny for a try."""
    rounds: int = 11
    """Rounds; in each, every contestant has its turn.  Of solved: seeds; of finders: models a family."""
    out: Path | None = None
    """File for the measurements, as JSON; written after every comparison."""


def bench(arguments: Sequence[str]) -> None:
    """Run a suite."""
    options = parse(BenchOptions, arguments, "bench")
    if not _BENCHMARKS.is_dir():
        found = "found none; run it from a clone of hopscope"
        raise UserError(f"bench: expected the source tree with benchmarks/, {found}")
    names = sorted(path.stem for path in _BENCHMARKS.glob("[a-z]*.py"))
    if options.suite not in names:
        raise UserError(f"suite: expected one of {', '.join(names)}, found {options.suite!r}")
    if options.rounds < 1:
        raise UserError(f"rounds: expected at least 1, found {options.rounds}")
    if options.out is not None and not options.out.parent.is_dir():
        words = f"expected a file in an existing folder, found {options.out}"
        raise UserError(f"out: {words}; make the folder first")
    sys.path.insert(0, str(_BENCHMARKS.parent))
    suite, timing = (import_module(f"benchmarks.{name}") for name in (options.suite, "_timing"))
    asked = timing.Asked(options.model, options.rounds)
    timing.run(options.suite, suite.measure, asked, options.out)
