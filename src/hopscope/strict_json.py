"""JSON from outside, read in one way: what a file of any origin can hold, and nothing that breaks what comes after.

Python's own reader ends deep nesting with a `RecursionError`, and gives infinities, NaN and halves of surrogate pairs,
which cannot be written again.  Here all of them are a `ValueError`, like text that is not JSON at all.
"""

import json
import re
from typing import Any, Never

MOST_NESTED = 100
"""Lists and objects within each other; records have about ten, specifications of charts about twenty."""

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON writes half of a character beyond the first plane."""

_NESTING = frozenset((dict, list))


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text; bytes are UTF-8.

    Raises:
        ValueError: the text is not JSON or not UTF-8, is nested too deeply, or holds a NaN, an infinity (also as a
            number such as 1e999), a whole number of thousands of digits, or half a surrogate pair.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_depth(value)
    if _HALF.search(text):
        canonical_json(value).encode()  # which half a pair does not survive
    return value


def canonical_json(value: object) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, floats by `repr`.

    Raises:
        ValueError: the value holds a NaN or an infinity.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _finite(number: str) -> float:
    value = float(number)
    if value - value != 0:
        raise ValueError(f"{number[:20]} is too large for a number")
    return value


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(value: object) -> None:
    """Level by level: a walk that calls itself would be what it is meant to prevent."""
    level: list[Any] = [value] if type(value) in _NESTING else []
    for _ in range(MOST_NESTED):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child)
            in _NESTING  # the reader makes no others, and to ask for kinds of them takes twice as long
        ]
        if not level:
            return
    raise ValueError("nested too deeply")
