"""Imports go down the rooms, in no circle of files; the rooms below the models load without torch."""

import ast
import graphlib
import importlib.util
import subprocess
import sys
from pathlib import Path

PACKAGE = "hopscope"
LIGHT = ["errors", "config", "theory", "runs", "claims"]
ROOMS = [
    "errors", "config", "rng", *LIGHT[2:], "tasks", "models", "training", "circuits", "study", "execute", "page",
    "language", "studies", "api", "cli",
]  # fmt: skip
"""From the ground up: a room imports itself and those before it."""

SOURCE = Path(importlib.util.find_spec(PACKAGE).origin).parent


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))


FILES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports(name):
    """Files of the package that a file imports, wherever in it."""
    here = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        if isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), here)
            for alias in node.names:
                yield from [each for each in (f"{base}.{alias.name}", base) if each in FILES][:1]


def room_of(name):
    return [*name.split("."), "door"][1]


def test_every_import_goes_down():
    assert {room_of(name) for name in FILES} <= {*ROOMS, "door"}, "a room is missing in ROOMS"
    upwards = [
        f"{name} imports {other}"
        for name in FILES
        for other in imports(name)
        if [*ROOMS, "door"].index(room_of(other)) > [*ROOMS, "door"].index(room_of(name))
    ]
    assert not upwards


def test_no_circle_of_files():
    graph = {name: set(imports(name)) - {name} for name in FILES if name != PACKAGE}
    graphlib.TopologicalSorter(graph).prepare()


def test_rooms_below_the_tasks_load_no_torch():
    modules = [name for name in FILES if room_of(name) in LIGHT]
    code = f"import sys, {', '.join(modules)}\nprint(sorted({{'torch'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
