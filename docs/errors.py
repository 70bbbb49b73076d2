"""Writes the lists of messages in `docs/errors.md` from the source: `python docs/errors.py`; a test compares."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "hopscope"
PAGE = ROOT / "docs" / "errors.md"

GROUPS = {
    "command": ("cli", "api", "opened", "collection", "config"),
    "study": ("studies", "sources", "testing"),
    "task": ("tasks", "theory", "rng"),
    "model": ("models", "zoo"),
    "training": ("training", "executors"),
    "run": ("runs",),
    "measure": ("measures", "claims", "probes"),
    "circuit": ("circuits", "finders"),
    "page": ("figures", "story", "report"),
    "language": ("language",),
}
"""Group of the page → the rooms whose messages it lists."""

_BLOCK = re.compile(r"(<!-- errors: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def messages(source: str) -> set[str]:
    """Every message of a source that says what was expected; what differs from case to case is ‹named›."""
    tree = ast.parse(source)
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return {text for node in ast.walk(tree) for text in _told(node, constants)}


def _told(node: ast.AST, constants: dict[str, ast.expr]) -> Iterator[str]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
        return
    if node.func.id not in ("UserError", "TimeBudgetReached", "ValueError", "StorageError", "Gone"):
        return
    given = node.args[0]
    text = _text(constants.get(given.id, given) if isinstance(given, ast.Name) else given)
    # Errors of programs are ValueErrors too; those that a configuration shows its user say what was expected.
    if "expected" in text or (node.func.id != "ValueError" and " " in text and not text.startswith("‹")):
        yield " ".join(text.split())


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    value = node.value if isinstance(node, ast.FormattedValue) else node
    return f"‹{value.id.strip('_')}›" if isinstance(value, ast.Name) else "‹…›"


def listed(group: str) -> str:
    """The block of one group: a message on each line."""
    rooms = GROUPS[group]
    found = {
        text
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0].removesuffix(".py") in rooms
        for text in messages(path.read_text(encoding="utf-8"))
    }
    return "```text\n" + "".join(f"{text}\n" for text in sorted(found, key=str.casefold)) + "```\n"


def rooms_with_messages() -> set[str]:
    """The rooms of the package that tell a user of an error."""
    return {
        path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in SOURCE.rglob("*.py")
        if messages(path.read_text(encoding="utf-8"))
    }


def renewed(page: str) -> str:
    """The page with its lists as the source has them."""
    return _BLOCK.sub(lambda found: found[1] + listed(found[2]) + found[3], page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
