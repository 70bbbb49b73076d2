"""Inputs that nobody wrote on purpose: bytes, JSON and words, made of valid ones by damage, and some made up."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Pick = Callable[[int], int]
"""Chooses a number below another one."""

Make = Callable[[Pick], Any]
"""Makes an input of such choices."""

_DEEP, _HALF, _NAN, _LARGE, _DIGITS = "<deep>", "<half>", "<nan>", "<large>", "<digits>"

_TEXTS = {
    f'"{_DEEP}"': "[" * 20_000 + "]" * 20_000,
    f'"{_HALF}"': '"\\ud800"',
    f'"{_NAN}"': "NaN",
    f'"{_LARGE}"': "1e999",
    f'"{_DIGITS}"': "9" * 5_000,
}
"""What `json.dumps` does not write."""


def _nested(depth: int) -> Any:
    value: Any = 7
    for _ in range(depth):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**7, 10**12, -(10**30), 10**400, 0.5, -0.0, 1e308, 5e-324,
    "", " ", "²", "٣", "0", "-1", "nan", "../../../outside", "/etc/passwd", "a\nb", "\0", "\u2028", "{key}",
    "{{ 7 * 7 }}", "</script><script>", "javascript:alert(1)", "x" * 2_000, [], {}, [[]], [None], {"": None}, {"²": 3},
    [0, 0], [1, 2, 3], _nested(60), _nested(150), _DEEP, _HALF, _NAN, _LARGE, _DIGITS,
]  # fmt: skip
"""Values in place of others."""

WORDS = [str(value) for value in VALUES if isinstance(value, (str, int, float)) and value not in ("\0",)]
"""Values of a command line."""

_PIECES = [
    b"", b"\xff", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf", b"\xff\xfe", b"[" * 5_000, b'{"a":' * 3_000, b"NaN",
    b"1e999", b'"\\ud800"', b"\n", b"\r\n", b"null", b"-1", "²".encode(), b"9" * 5_000, b"\x7f\xff\xff\xff",
    b"\xff" * 8, b"\x80" * 11,
]  # fmt: skip
"""Bytes that are put into others."""


@st.composite
def chosen(draw: st.DrawFn, make: Make) -> Any:
    """Inputs whose every choice is drawn: a failing one is made small."""
    return make(lambda below: draw(st.integers(0, below - 1)))


def seeded(make: Make) -> st.SearchStrategy[Any]:
    """The same inputs, several times as fast: one number decides all choices."""
    return st.integers(0, 2**63).map(lambda seed: make(random.Random(seed).randrange))


def damaged_bytes(valid: Sequence[bytes]) -> Make:
    """Valid content after one to three damages, or bytes of any kind."""

    def make(pick: Pick) -> bytes:
        if not pick(20):
            return bytes(pick(256) for _ in range(pick(80)))
        return _damaged(pick, valid[pick(len(valid))])

    return make


def _damaged(pick: Pick, whole: bytes) -> bytes:
    content = bytearray(whole)
    for _ in range(1 + pick(3)):
        kind, place = pick(10), pick(max(1, len(content)))
        if kind <= 4 and content:
            content[place] ^= 1 << kind
        elif kind <= 6:
            content[place:place] = _PIECES[pick(len(_PIECES))]
        elif kind == 7:
            del content[place : place + 1 + pick(40)]
        elif kind == 8:
            del content[place:]
        elif content:
            content[place] = pick(256)
    return bytes(content)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container and key below a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            _places(value[key], found)
    return found


def damaged_json(valid: Sequence[Any]) -> Make:
    """A valid value of which one to three parts were replaced, left out, doubled or renamed.

    One input in ten is damaged as bytes are, and is mostly no JSON any more.
    """
    texts = [json.dumps(value, ensure_ascii=False) for value in valid]

    def make(pick: Pick) -> bytes:
        whole = texts[pick(len(texts))]
        if not pick(10):
            return _damaged(pick, whole.encode(errors="surrogatepass"))
        value = [json.loads(whole)]
        for _ in range(1 + pick(3)):
            places = _places(value, [])
            node, key = places[pick(len(places))]
            kind = pick(10)
            if kind == 0:
                del node[key]
                if not value:
                    break
            elif kind == 1 and isinstance(node, dict):
                node[WORDS[pick(len(WORDS))]] = node.pop(key)
            elif kind == 2 and isinstance(node[key], list):
                node[key] = [*node[key], *copy.deepcopy(node[key])]
            else:
                node[key] = copy.deepcopy(VALUES[pick(len(VALUES))])
        return written(value[0] if value else None)

    return make


def written(value: Any) -> bytes:
    """JSON with what `json.dumps` does not write."""
    text = json.dumps(value, ensure_ascii=False)
    if "<" in text:
        for word, instead in _TEXTS.items():
            text = text.replace(word, instead)
    return text.encode(errors="surrogatepass")


def damaged_words(valid: Sequence[Sequence[str]]) -> Make:
    """A command line of which one to three words were replaced, left out, doubled or put in."""

    def make(pick: Pick) -> list[str]:
        words = list(valid[pick(len(valid))])
        for _ in range(1 + pick(3)):
            place, kind = 1 + pick(max(1, len(words) - 1)), pick(4)
            other = (
                WORDS[pick(len(WORDS))] if pick(3) else "".join(_letter(pick(0xDCFF)) for _ in range(pick(7)))
            )
            if kind == 0:
                del words[place : place + 1]
            elif kind == 1:
                words[place:place] = [other]
            else:
                words[place : place + 1] = [other]
        return words

    return make


def _letter(number: int) -> str:
    """Any but NUL; of the surrogates, those by which Python tells of bytes that are not UTF-8."""
    return chr(number - 0x7FF if 0xD800 <= number + 1 < 0xDC80 else number + 1)
