"""The import graph is the one that docs/architecture.md promises, and importing stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hopscope"

# Ground floor first; a room may import from itself and from every room before it, but for the exceptions below.
FLOORS = [
    "errors",
    "completion",
    "config",
    "strict_json",
    "sources",
    "words",
    "display",
    "rng",
    "runs",
    "theory",
    "claims",
    "figures",
    "story",
    "tasks",
    "testing",
    "models",
    "zoo",
    "training",
    "probes",
    "circuits",
    "finders",
    "language",
    "measures",
    "studies",
    "report",
    "executors",
    "opened",
    "collection",
    "api",
    "cli",
]
FORBIDDEN = {
    ("report", "studies"),
    ("report", "training"),
    ("report", "models"),
    ("report", "tasks"),
    ("report", "probes"),
    ("report", "circuits"),
    ("report", "language"),
    ("report", "figures"),
    ("report", "story"),
    ("tasks", "figures"),
    ("tasks", "story"),
    ("models", "figures"),
    ("models", "story"),
    ("claims", "runs"),
    ("claims", "rng"),
    ("theory", "runs"),
    ("tasks", "runs"),
    ("tasks", "claims"),
    ("tasks", "theory"),
    ("models", "claims"),
    ("models", "theory"),
    ("runs", "rng"),
}
TORCH_FREE = [
    "errors",
    "display",
    "completion",
    "config",
    "strict_json",
    "runs",
    "claims",
    "figures",
    "story",
    "report",
    "tasks/config",
    "tasks/task",
    "tasks/text",
    "models/config",
    "training/config",
    "language/questions/answers",
    "circuits/places",
    "collection/index",
    "collection/card",
    "language/questions/survival",
    "language/questions/tally_rows",
    "language/inspect/evaluation",
    "language/inspect/failures",
    "language/questions/matching",
    "language/questions/sets",
    "studies/analysis",
    "studies/program",
    "studies/record",
    "studies/units",
    "studies/loading",
    "measures",
    "studies/retrieval",
    "studies/study",
    "language/corpus/depth",
    "language/corpus/file",
    "language/corpus/steps",
    *(
        f"studies/{path.parent.name}/{path.stem}"
        for path in sorted(SOURCE.glob("studies/*/*.py"))
        if path.stem not in ("analysis", "clamps", "proofs")  # they run models
    ),
]
"""What says what a run found is among them: concluding a run, or building its page, does not wait for torch."""
HEAVY = {"torch", "jax", "transformers", "inspect_ai"}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the graph"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "hopscope" and len(parts) > 1 and parts[1] in FLOORS:
                rooms.add(parts[1])
    return rooms


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in FLOORS)


def test_every_room_has_a_floor() -> None:
    assert {room(path) for path in MODULES} == set(FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    here = room(path)
    for other in imported_rooms(path):
        assert FLOORS.index(other) <= FLOORS.index(here), f"{here} imports {other}, which stands above it"
        assert (here, other) not in FORBIDDEN, f"{here} must not know {other}"


def test_of_the_product_only_studies_and_finders_use_the_zoo() -> None:
    for path in MODULES:
        if room(path) == "zoo":
            assert imported_rooms(path) <= {"zoo", "models", "tasks", "theory"}, path
        elif room(path) not in ("studies", "finders"):
            assert "zoo" not in imported_rooms(path), path


def test_the_graph_sees_an_upward_import(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def late():\n    from hopscope.studies import find_study\n", encoding="utf-8")
    assert imported_rooms(module) == {"studies"}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SOURCE.parent)
    return set(done.stdout.split())


def modules_of(name: str) -> list[str]:
    modules = SOURCE / name
    found = sorted(modules.rglob("*.py")) if modules.is_dir() else [modules.with_suffix(".py")]
    names = [".".join(("hopscope", *path.relative_to(SOURCE).with_suffix("").parts)) for path in found]
    return [name.removesuffix(".__init__") for name in names]


def test_rooms_are_free_of_torch() -> None:
    """All in one process, one after the other, so that a fault is told of the module that loads it."""
    lines = [f"import sys\nheavy = {HEAVY}"]
    for module in (module for name in TORCH_FREE for module in modules_of(name)):
        lines.append(f"import {module}\nassert not heavy & set(sys.modules), {module!r}")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=SOURCE.parent
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_and_planning_a_study_take_no_torch() -> None:
    assert "torch" not in loaded_after("import hopscope")
    planning = (
        "from hopscope.studies import find_study\ns = find_study('permutation')\ns.jobs(s.presets['paper'])"
    )
    loaded = loaded_after(planning)
    assert "torch" not in loaded
    assert "altair" not in loaded


def test_modules_stay_short() -> None:
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 500, path


def test_nothing_is_pickled() -> None:
    for path in SOURCE.rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"pickle", "marshal", "shelve", "dill"}, path
        assert "torch.save" not in path.read_text(encoding="utf-8"), path
