"""The command `hopscope new study NAME`: begin a study."""

import dataclasses
import re
from pathlib import Path

from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.errors import UserError
from hopscope.runs.files import write_atomic

KINDS = ("study",)
"""Kinds of things that can be begun."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass
class Options:
    """Begin a study: a file with a task, a claim and figures, the template of its page, and a test of the task."""

    kind: Positional[str]
    """What to begin: study."""
    name: Positional[str]
    """Name of the study and of its files: small letters, digits and underscores."""
    to: Path = Path()
    """Folder to write into."""


def main(arguments: list[str]) -> int:
    """Run the command; nothing is overwritten."""
    options = parse(Options, arguments, "new")
    if options.kind not in KINDS:
        raise UserError(
            f"new: expected one of {', '.join(KINDS)}, found {options.kind!r}; see hopscope new --help"
        )
    if not _NAME.fullmatch(options.name):
        raise UserError(
            f"name: expected small letters, digits and underscores, a letter first, found {options.name!r}"
        )
    files = {
        f"{options.name}.py": "study.py.j2",
        f"{options.name}.md.j2": "page.md.j2",
        f"test_{options.name}.py": "test_study.py.j2",
    }
    there = [name for name in files if (options.to / name).exists()]
    if there:
        raise UserError(
            f"{options.to / there[0]}: expected no such file yet, found one; choose another name, or move it away"
        )
    for name, template in files.items():
        write_atomic(options.to / name, _filled(template, options.name))
        print(options.to / name)
    print(f"next: hopscope run {options.to / options.name}.py --preset smoke")
    return 0


def _filled(template: str, name: str) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hopscope.cli", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    task = "".join(part.capitalize() for part in name.split("_"))
    return environment.get_template(template).render(name=name, task=task)
