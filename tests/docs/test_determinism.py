"""Every row of docs/determinism.md names tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "determinism.md").read_text("utf-8")


def test_every_row_names_tests_that_exist() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    rows = [row for row in rows if "shown by" not in row and not row.startswith("| ---")]
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for file, function in named:
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, (
                file,
                function,
            )


def test_the_figures_are_those_of_the_tests() -> None:
    """The bounds that the page gives are those that its tests hold."""
    for file, line, figure in (
        ("tests/training/test_determinism.py", "ROUNDING = 2e-6", "2·10⁻⁶"),
        ("release/golden.py", "TOLERANCE = 2e-5", "2·10⁻⁵"),
    ):
        assert line in (ROOT / file).read_text("utf-8") and figure in TEXT
