"""Finding studies: by name, module, file and entry point, and every way in which that can fail."""

import importlib.metadata
import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import UserError
from hopscope.studies import find_study, study_names
from hopscope.studies.loading import GROUP, home_of, of_reference, split_reference, studies_in

BUILT_IN = [
    "permutation", "depth", "circuits", "emergence", "recipes", "tiny-lm", "llm", "first-steps", "curriculum",
    "capacity", "sharing", "conditional", "markov", "khop", "recall", "formation", "natural", "reduced",
]  # fmt: skip

TEXT = (
    "import hopscope as hs\nstudy = hs.Study(name='mine', question='Why?')\nother = hs.Study(name='other')\n"
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package folder on the path, with entry points that tests write."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def with_points(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str], group: str = GROUP) -> None:
    made = [EntryPoint(name=name, value=value, group=group) for name, value in points]

    def entry_points(**asked: str) -> list[EntryPoint]:
        return [point for point in made if all(getattr(point, key) == value for key, value in asked.items())]

    monkeypatch.setattr("hopscope.studies.loading.entry_points", entry_points)
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_built_in_studies_are_found_by_name_without_anything_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_points(monkeypatch)
    assert study_names() == BUILT_IN
    assert [find_study(name).name for name in BUILT_IN] == BUILT_IN


def test_an_entry_point_is_a_name(monkeypatch: pytest.MonkeyPatch, installed: Path) -> None:
    (installed / "point_package.py").write_text(TEXT, encoding="utf-8")
    with_points(monkeypatch, ("mine", "point_package:study"))
    assert study_names() == [*BUILT_IN, "mine"]
    found = find_study("mine")
    assert found.reference == "point_package:study"
    assert found.file == installed / "point_package.py"
    assert find_study("point_package:other").name == "other"


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("import no_such_package", "broken_point:study", "No module named 'no_such_package'"),
        ("study = 3", "broken_point:study", "expected a study named 'study', found int"),
        ("", "broken_point:study", "expected a study named 'study', found none"),
        (None, "broken_point:study", "No module named 'broken_point'"),
    ],
)
def test_an_entry_point_that_fails_is_one_line(
    monkeypatch: pytest.MonkeyPatch, installed: Path, text: str | None, value: str, words: str
) -> None:
    sys.modules.pop("broken_point", None)
    if text is not None:
        (installed / "broken_point.py").write_text(text, encoding="utf-8")
    with_points(monkeypatch, ("broken", value))
    with pytest.raises(UserError) as error:
        find_study("broken")
    assert words in str(error.value) and "\n" not in str(error.value) and "broken_point" in str(error.value)
    sys.modules.pop("broken_point", None)


def test_two_entry_points_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_points(monkeypatch, ("twin", "a:study"), ("twin", "b:study"))
    with pytest.raises(UserError, match="expected one study named 'twin', found 2: a:study, b:study"):
        find_study("twin")


def test_tasks_of_installed_packages_stand_beside_the_built_in_ones(
    monkeypatch: pytest.MonkeyPatch, installed: Path
) -> None:
    text = "import hopscope as hs\nclass Mine(hs.Task):\n    size: int = 3\nwrong = 5\n"
    (installed / "task_package.py").write_text(text, encoding="utf-8")
    points = [("mine", "task_package:Mine"), ("wrong", "task_package:wrong"), ("gone", "task_package:gone")]
    with_points(monkeypatch, *points, group="hopscope.tasks")
    assert hs.tasks.mine(size=7).size == 7
    for name, words in (
        ("wrong", "expected a subclass of hopscope.Task, found 5"),
        ("gone", "AttributeError"),
    ):
        with pytest.raises(UserError, match=words):
            getattr(hs.tasks, name)
    with pytest.raises(AttributeError):
        _ = hs.tasks.unheard_of


def test_a_file_is_loaded_anew_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT, encoding="utf-8")
    first = of_reference(str(path))
    assert of_reference(str(path)).study is first.study
    path.write_text(TEXT.replace("Why?", "How?"), encoding="utf-8")
    assert of_reference(str(path)).study.question == "How?"
    assert {name: each.reference for name, each in studies_in(str(path)).items()} == {
        "mine": f"{path}:study",
        "other": f"{path}:other",
    }


def test_a_path_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"mine-\xff")
    folder.mkdir()
    (folder / "mine.py").write_text(TEXT, encoding="utf-8")
    with pytest.raises(
        UserError, match=r"mine-.*: expected a path in UTF-8.*; rename the folder or the file$"
    ):
        of_reference(f"{folder / 'mine.py'}:study")


def test_a_file_may_use_helpers_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helper_beside.py").write_text("QUESTION = 'Really?'\n", encoding="utf-8")
    path = tmp_path / "asks.py"
    text = "import hopscope as hs\nfrom helper_beside import QUESTION\nstudy = hs.Study(name='a', question=QUESTION)\n"
    path.write_text(text, encoding="utf-8")
    assert find_study(str(path)).study.question == "Really?"


def test_a_helper_of_another_folder_is_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper_of_one.py").write_text(f"QUESTION = {folder!r}\n", encoding="utf-8")
        text = "import hopscope as hs\nfrom helper_of_one import QUESTION as Q\nstudy = hs.Study(name='a', question=Q)"
        (tmp_path / folder / "asks.py").write_text(text, encoding="utf-8")
    assert find_study(str(tmp_path / "one" / "asks.py")).study.question == "one"
    assert find_study(str(tmp_path / "one" / "asks.py")).study.question == "one"
    words = (
        rf"{tmp_path}/two/asks.py: expected helper_of_one.py beside it, found {tmp_path}/one/helper_of_one.py"
    )
    with pytest.raises(UserError, match=words):
        find_study(str(tmp_path / "two" / "asks.py"))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("model=hs.Model(layers=0)", "Model: layers: expected greater than or equal to 1, found 0"),
        ("training=hs.Training()", "Training: steps: expected a value, found none"),
        ("training=hs.Training(steps=2, speed=3)", "Training: no field 'speed'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_field(tmp_path: Path, field: str, words: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(f"import hopscope as hs\nstudy = hs.Study(name='a', {field})\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"{path}.*found {words}.*line 2"):
        find_study(str(path))


def test_a_file_that_runs_its_study_when_it_is_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.py"
    path.write_text(TEXT + "hs.run(study)\n", encoding="utf-8")
    with pytest.raises(UserError, match="__main__") as error:
        find_study(str(path))
    assert str(path) in str(error.value)


def test_references() -> None:
    assert split_reference("a/b.py") == ("a/b.py", None)
    assert split_reference("a/b.py:other") == ("a/b.py", "other")
    assert split_reference("pkg.mod:name") == ("pkg.mod", "name")


def test_a_study_knows_the_file_that_it_is_a_variable_of(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT, encoding="utf-8")
    study = find_study(f"{path}:other").study
    assert home_of(study) == f"{path}:other"
    assert home_of(hs.Study(name="nowhere")) is None


def test_a_file_of_a_package_is_imported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lab_package" / "inner"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").touch()
    (folder / "near.py").write_text("QUESTION = 'Near?'\n", encoding="utf-8")
    text = (
        "import hopscope as hs\nfrom .near import QUESTION\nstudy = hs.Study(name='a', question=QUESTION)\n"
    )
    (folder / "asks.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    by_file, by_name = find_study(str(folder / "asks.py")), find_study("lab_package.inner.asks:study")
    assert by_file.study is by_name.study and by_file.study.question == "Near?"
    assert home_of(by_name.study) == "lab_package.inner.asks:study"
