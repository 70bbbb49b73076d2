"""f-strings are written alike under every version of Python, as 3.11 wrote them."""

import ast
import sys
from pathlib import Path

import pytest

import hopscope.errors
from hopscope.sources.plain_strings import unparsed

SIGNS = "\\n"
CASES = {
    """f'plain {a}'""": "f'plain {a}'",
    """f"{a['b']}" """: """f"{a['b']}\"""",
    """f'{a["b"]}' """: """f"{a['b']}\"""",
    '''f"""{a['b']} "and" {x!r:>{width}}"""''': """f\"\"\"{a['b']} "and" {x!r:>{width}}\"\"\"""",
    '''f"""{"it's"}"""''': '''f"""{"it's"}"""''',
    f"""f"{{a}}{SIGNS}" """: f"f'{{a}}{SIGNS}'",
    "f'{ {1: 2}[1]} {{brace}}'": "f'{ {1: 2}[1]} {{brace}}'",
    "f'{(lambda x: x)(1)} {(a if b else c)} {(yes := 1)} {1, 2}'": (
        "f'{(lambda x: x)(1)} {(a if b else c)} {(yes := 1)} {(1, 2)}'"
    ),
    """f"{f'{a}{b!s}' + 'c'}" """: '''f"{f'{a}{b!s}' + 'c'}"''',
    "f'{x=}'": "f'x={x!r}'",
    "g(f'', 'a', b'c', u'd')": "g(f'', 'a', b'c', u'd')",
}


@pytest.mark.parametrize("code", CASES)
def test_the_text_is_that_of_python_3_11(code: str) -> None:
    assert unparsed(ast.parse(code.strip())) == CASES[code]


def test_the_code_is_not_changed() -> None:
    tree = ast.parse("f'{a}'")
    before = ast.dump(tree)
    unparsed(tree)
    assert ast.dump(tree) == before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="compares with what Python 3.11 writes")
def test_what_was_registered_under_python_3_11_stays() -> None:
    """Every definition of the studies, the claims and the command line: plenty of f-strings of all kinds."""
    root = Path(hopscope.errors.__file__).parent
    files = [path for room in ("studies", "claims", "cli", "story") for path in (root / room).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(files)]
    strings = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    assert len(strings) > 100
    for node in strings:
        assert unparsed(node) == ast.unparse(node)
