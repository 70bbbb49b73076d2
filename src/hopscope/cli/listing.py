"""`hopscope studies`, `hopscope new` and `hopscope bench`."""

import keyword
import re
import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from hopscope.errors import UserError
from hopscope.study.load import load, studies_in
from hopscope.study.load import studies as study_names
from hopscope.study.study import DEFAULT_PRESET, Study

_BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"  # which only the source tree has


def studies(place: Annotated[str | None, tyro.conf.arg(name="from")] = None, json: bool = False) -> None:
    """List the studies, their presets, and what they cost in the words of their authors.

    Args:
        place: List the studies of a file (study.py) or of a package's module instead.
        json: Print JSON.
    """
    found, fault = list[Study](), None
    if place is not None:
        found = [each.study for each in studies_in(place).values()]
    for name in study_names() if place is None else ():
        try:
            found.append(load(name).study)
        except UserError as error:  # which is said after all others
            fault = fault or error
    if json:
        print(dumps([_about(study) for study in found], indent=1, ensure_ascii=False))
    for study in () if json else found:
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


def new(
    kind: Positional[Literal["study"]],
    name: Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]],
    to: Path = Path(),
) -> None:
    """Begin a study of your own: a file, the template of its page, and a test of its task.  Nothing is overwritten.

    Args:
        kind: What to begin.
        name: Name of the study and of its files: small letters, digits and underscores.
        to: Folder to write into.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from hopscope.runs import write_atomic

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        wanted = "small letters, digits and underscores, a letter first"
        raise UserError(f"name: expected {wanted}, found {name!r}")
    if keyword.iskeyword(name) or (find_spec(name) is not None and not (to / f"{name}.py").exists()):
        raise UserError(f"name: expected one that Python does not know as a word or a module, found {name!r}")
    files = {
        f"{name}.py": "study.py.j2",
        f"{name}.md.j2": "page.md.j2",
        f"test_{name}.py": "test_study.py.j2",
    }
    for file in files:
        if (to / file).exists():
            found = "found one; choose another name, or move it away"
            raise UserError(f"{to / file}: expected no such file yet, {found}")
    loader = PackageLoader(__name__.rpartition(".")[0], "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    task = "".join(part.capitalize() for part in name.split("_"))
    for file, template in files.items():
        write_atomic(to / file, environment.get_template(template).render(name=name, task=task).encode())
        print(to / file)
    print(f"next: hopscope run {shlex.quote(f'{to / name}.py')} --preset smoke")


def bench(suite: str = "speed", model: str | None = None, rounds: int = 11, out: Path | None = None) -> None:
    """Measure speed with the suites of benchmarks/, which only a clone of hopscope has.

    speed: training beside plain PyTorch and JAX.  engines: our engines beside one another, float32 and bfloat16.
    growth: the cost by layers, steps and members.  solved: seconds until seeds have learned.  reading: seconds to read
    a circuit.  finders: how well and how quickly finders of circuits do.  gpu: the paper's
    models on CUDA, one after another.

    Args:
        suite: Which suite.
        model: Which model: permutation, depth, depth-mlp, transformer-a, transformer-d, or tiny for a try.
        rounds: Rounds; in each, every contestant has its turn.  Of solved: seeds; of finders: models a family.
        out: File for the measurements, as JSON; written after every comparison.
    """
    if not _BENCHMARKS.is_dir():
        found = "found none; run it from a clone of hopscope"
        raise UserError(f"bench: expected the source tree with benchmarks/, {found}")
    names = sorted(path.stem for path in _BENCHMARKS.glob("[a-z]*.py"))
    if suite not in names:
        raise UserError(f"suite: expected one of {', '.join(names)}, found {suite!r}")
    if rounds < 1:
        raise UserError(f"rounds: expected at least 1, found {rounds}")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"out: expected a file in an existing folder, found {out}; make the folder first")
    sys.path.insert(0, str(_BENCHMARKS.parent))
    measured, timing = (import_module(f"benchmarks.{name}") for name in (suite, "_timing"))
    timing.run(suite, measured.measure, timing.Asked(model, rounds), out)
