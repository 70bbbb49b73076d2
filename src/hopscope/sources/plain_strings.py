"""Code as text that is the same under every version of Python: f-strings as Python 3.11 writes them.

`ast.unparse` chooses the quotes of an f-string anew since Python 3.12, where quotes may be used again inside braces.
The text of a function names runs and registers claims, so a study would have had another name under another Python.
"""

import ast
import copy
from collections.abc import Sequence

_TRIPLE = ('"""', "'''")
_QUOTES = ("'", '"', *_TRIPLE)


def unparsed(node: ast.AST) -> str:
    """A piece of code as text, as `ast.unparse` of Python 3.11 gives it; `node` is not changed."""
    return ast.unparse(_FStrings().visit(copy.deepcopy(node)))


class _FStrings(ast.NodeTransformer):
    """Puts a name in place of every f-string, because names are written as they are: here, the f-string's text.

    Attributes:
        inside: whether the code stands between the braces of an f-string, where strings have no backslashes.
    """

    def __init__(self, inside: bool = False) -> None:
        self.inside = inside

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [(_piece(each), isinstance(each, ast.Constant)) for each in node.values]
        if self.inside:
            return ast.Name(id="f" + _quoted("".join(text for text, _ in parts)))
        return ast.Name(id="f" + _joined(parts))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(id=_quoted(node.value)) if self.inside and isinstance(node.value, str) else node


def _piece(node: ast.expr) -> str:
    """Text, or an expression in braces, as it stands between the quotes of an f-string."""
    if isinstance(node, ast.JoinedStr):  # what follows a colon
        return "".join(map(_piece, node.values))
    if isinstance(node, ast.Constant):
        return str(node.value).replace("{", "{{").replace("}", "}}")
    assert isinstance(node, ast.FormattedValue)
    text = _expression(_FStrings(inside=True).visit(node.value))
    conversion = "" if node.conversion == -1 else f"!{chr(node.conversion)}"
    layout = "" if node.format_spec is None else f":{_piece(node.format_spec)}"
    return f"{{{' ' if text.startswith('{') else ''}{text}{conversion}{layout}}}"


def _expression(node: ast.expr) -> str:
    """An expression with the brackets that it needs between braces: those that it needs before an `if`."""
    before = ast.IfExp(test=ast.Name(id="_"), body=node, orelse=ast.Name(id="_"))
    return ast.unparse(before).removesuffix(" if _ else _")


def _joined(parts: Sequence[tuple[str, bool]]) -> str:
    """The parts of an f-string between the first quotes that fit them all; of each, whether it is text."""
    quotes: Sequence[str] = _QUOTES
    written = []
    for text, is_text in parts:
        piece, fitting = _fitted(text, quotes, escape=is_text)
        if not set(fitting) & set(quotes):
            # repr chooses single quotes for what begins with a double one.
            return f"'''{''.join(repr(chr(34) + each)[2:-1] for each, _ in parts)}'''"
        written.append(piece)
        quotes = fitting
    return f"{quotes[0]}{''.join(written)}{quotes[0]}"


def _quoted(text: str) -> str:
    """A string without backslashes, where that is possible."""
    piece, fitting = _fitted(text, _QUOTES, escape=False)
    return f"{fitting[0]}{piece}{fitting[0]}"


def _fitted(text: str, quotes: Sequence[str], escape: bool) -> tuple[str, list[str]]:
    """A string as it stands between quotes, and those of `quotes` that can be used, best first.

    Args:
        text: the string.
        quotes: which there are to choose from.
        escape: whether to write line ends and tabs with a backslash.
    """

    def written(sign: str) -> str:
        kept = (sign.isprintable() and sign != "\\") or (sign in "\n\t" and not escape)
        return sign if kept else sign.encode("unicode_escape").decode("ascii")

    found = "".join(map(written, text))
    fitting = [each for each in quotes if each not in found and ("\n" not in found or each in _TRIPLE)]
    if not fitting:
        whole = repr(text)
        return whole[1:-1], [next((each for each in quotes if whole[0] in each), whole[0])]
    if found:
        fitting.sort(key=lambda each: each[0] == found[-1])
        if fitting[0][0] == found[-1]:
            found = f"{found[:-1]}\\{found[-1]}"
    return found, fitting
