"""What is released holds what it must: every file of the package, and the whole repository."""

import importlib.util
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hopscope

ROOT = Path(__file__).parents[2]


def load(name):
    """A script of `release/`, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"hopscope_{name}", ROOT / "release" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


distributions, lowest = load("distributions"), load("lowest")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributions")
    wheel, sdist = distributions.built(distributions.copied(folder / "tree"), folder / "dist", sys.executable)
    return wheel, sdist


def test_the_wheel_holds_the_package_alone_and_whole(built):
    assert distributions.wheel_faults(built[0], ROOT) == []
    with zipfile.ZipFile(built[0]) as archive:
        names = archive.namelist()
    assert built[0].name == f"hopscope-{hopscope.__version__}-py3-none-any.whl"
    for needed in (
        "py.typed",
        "page/templates/page.js",
        "studies/permutation/page.md.j2",
        "cli/templates/study.py.j2",
    ):
        assert f"hopscope/{needed}" in names


def test_the_source_distribution_holds_the_repository(built):
    assert distributions.sdist_faults(built[1], ROOT) == []
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"docs/results/README.md", "Makefile", "constraints-lowest.txt"} <= names


def test_what_is_missing_or_foreign_is_named(built, tmp_path):
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(wheel, "w") as changed:
        for name in whole.namelist():
            if name != "hopscope/page/templates/page.js" and not name.endswith("LICENSE"):
                changed.writestr(name, whole.read(name).replace(b"\nVersion: ", b"\nVersion: 9"))
        changed.writestr("tests/test_left_behind.py", "")
    assert distributions.wheel_faults(wheel, ROOT) == [
        "wheel: without hopscope/page/templates/page.js",
        "wheel: has tests/test_left_behind.py",
        "wheel: without its LICENSE",
        f"wheel: expected version {hopscope.__version__}, found 9{hopscope.__version__}",
    ]


def test_the_same_files_are_found_without_git(tmp_path):
    tree = distributions.copied(tmp_path / "tree")
    for junk in ("src/hopscope.egg-info/PKG-INFO", "tests/__pycache__/x.pyc", "PKG-INFO", ".venv/pyvenv.cfg"):
        (tree / junk).parent.mkdir(parents=True, exist_ok=True)
        (tree / junk).touch()
    assert distributions.tracked(tree) == distributions.tracked(ROOT)


def test_every_place_tells_the_same_version(tmp_path):
    assert distributions.version_faults(ROOT) == []
    assert distributions.version_of(ROOT) == hopscope.__version__
    tree = distributions.copied(tmp_path / "tree")
    init = tree / "src" / "hopscope" / "__init__.py"
    init.write_text(init.read_text("utf-8").replace('__version__ = "', '__version__ = "7.'), encoding="utf-8")
    assert [fault.partition(":")[0] for fault in distributions.version_faults(tree)] == [
        "CITATION.cff",
        "CHANGELOG.md",
    ]


def test_the_lowest_versions_are_those_of_the_project():
    assert (ROOT / "constraints-lowest.txt").read_text("utf-8") == lowest.constraints(ROOT / "pyproject.toml")


def test_lower_bounds_are_read_as_they_are_written():
    project = {
        "dependencies": ["torch>=2.11,<2.14", "Some_Name[extra]>=1.2.3"],
        "optional-dependencies": {"a": ["torch>=2.9"], "b": ["x>=3"], "c": ["x>=10"]},
    }
    assert lowest.lower_bounds(project) == {"torch": "2.11", "some-name": "1.2.3", "x": "10"}
    with pytest.raises(ValueError, match=r"expected a lower bound .*, found 'free'"):
        lowest.lower_bounds({"dependencies": ["free"], "optional-dependencies": {}})


def test_the_container_names_what_is_there():
    """It is not built in tests: this says only that its files, its Python and its torch are those of the project."""
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert copied and all((ROOT / name).exists() for names in copied for name in names)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (torch,) = (line.partition("=")[2].strip('"') for line in lines if line.startswith("ARG TORCH="))
    assert f"TORCH := {torch}\n" in makefile
    pythons = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert pythons <= {f"python:3.{minor}-slim" for minor in (11, 12, 13)}
