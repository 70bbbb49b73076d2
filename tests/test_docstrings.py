"""Every public module, class, function and method of the package says what it is, in a phrase of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import hopscope

SOURCE = Path(hopscope.__file__).parent
LEAST_WORDS = 5

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_public_docstring_stands_alone() -> None:
    short = [
        f"{path.relative_to(SOURCE)}:{line} {name}: {words!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name, words in short_docstrings(path.read_text(encoding="utf-8"))
    ]
    assert not short, f"docstrings of fewer than {LEAST_WORDS} words, or none:\n" + "\n".join(short)


def test_short_and_missing_docstrings_are_found() -> None:
    source = '''
class Shown:
    """A value that says what it is."""

    def both(self):
        """Both."""

    def _own(self): ...

def silent():
    def inner(): ...

@overload
def declared(): ...
'''
    assert [name for _, name, _ in short_docstrings(source)] == ["the module", "both", "silent"]


def short_docstrings(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and words of every public docstring in a source that is too short or missing."""
    for node in public_nodes(ast.parse(source)):
        words = ast.get_docstring(node) or ""
        if len(words.split()) < LEAST_WORDS:
            yield getattr(node, "lineno", 1), getattr(node, "name", "the module"), words


def public_nodes(node: Documented) -> Iterator[Documented]:
    """A node, and the public classes and functions in its body; of functions, nothing inside them."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and is_public(child):
            yield from public_nodes(child)


def is_public(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether others use a name; overloads only declare types, and stand before the function that is documented."""
    overload = any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list)
    return not node.name.startswith("_") and not overload
