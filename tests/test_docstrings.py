"""Docstrings are true to their signatures: what they describe is there."""

import ast
import re
from pathlib import Path

import hopscope

SOURCE = Path(hopscope.__file__).parent


def described(docstring: str) -> list[str]:
    """Names that the sections of arguments and attributes explain."""
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    lines = [
        names for section in sections for names in re.findall(r"^    (\w[\w, *]*):", section, re.MULTILINE)
    ]
    return [name for line in lines for name in re.split(r"[, ]+", line)]


def known(node: ast.AST) -> set[str]:
    """Names that they may explain: arguments of a function, and whatever a class has or reads."""
    found = {getattr(each, "attr", getattr(each, "arg", None)) for each in ast.walk(node)}
    targets = [each.target for each in ast.walk(node) if isinstance(each, ast.AnnAssign)]
    methods = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef)}
    return found | methods | {each.id for each in targets if isinstance(each, ast.Name)}


def wrong(source: str) -> list[str]:
    return [
        f"{node.name}: {name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for name in described(ast.get_docstring(node) or "")
        if name not in known(node)
    ]


def test_every_name_in_a_docstring_exists() -> None:
    found = {
        path.relative_to(SOURCE): wrong(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")
    }
    assert not any(found.values()), {path: names for path, names in found.items() if names}


def test_a_name_that_is_gone_is_found() -> None:
    lines = ["class A:", '    """A.', "", "    Attributes:", "        a, b: two.", '    """', "    a: int"]
    assert wrong("\n".join(lines)) == ["A: b"]
    lines = [
        "def f(a, *b):",
        '    """F.',
        "",
        "    Args:",
        "        a: one.",
        "        b, c: two.",
        '    """',
    ]
    assert wrong("\n".join(lines)) == ["f: c"]
