"""Texts to count in: what comes with Python itself, and files that are given; and how often they ask for hops."""

import ast
import hashlib
import platform
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hopscope.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hopscope.language.hops import By, Labels

PARTS = " · "
"""What parts the names in a row of the evidence table."""

LIMIT, BLOCK = 3, 2_000
"""Most hops; words of a block, the smallest piece of a text that is counted by itself."""


class Text(NamedTuple):
    """A text: name, origin, its beginning as far as it is counted, the SHA-256 of all of it, words that are counted."""

    name: str
    origin: str
    text: str
    sha256: str
    words: int


class Definition(NamedTuple):
    """A way to count hops: its name, `by`, `window` and `any` of `hopscope.language.hops`, shuffles for chance."""

    name: str
    by: "By"
    window: int
    any: bool = False
    shuffles: int = 8


USUAL = Definition("words", "words", 512)
DEFINITIONS = (
    USUAL,
    Definition("words, window of 128", "words", 128),
    Definition("words, window of 2048", "words", 2048),
    Definition("content words", "content", 256),
    Definition("content words, any occurrence", "content", 256, any=True, shuffles=2),
    Definition("pieces of words", "pieces", 512, shuffles=4),
    Definition("letters", "letters", 512, shuffles=4),
    Definition("sentences as facts", "sentences", 256, shuffles=2),
)
"""The first four are by words: of these, mixtures for training are made."""


def labels(text: Text, definition: Definition) -> "list[Labels]":
    """Fewest hops to each token: of the text, of its shuffles, and of one further shuffle, a control."""
    from hopscope.language.hops import hops

    _, by, window, any_, shuffles = definition
    orders = (None, *range(shuffles + 1))
    return [hops(text.text, by, window=window, limit=LIMIT, any=any_, shuffle=order) for order in orders]


def by_blocks(text: Text, found: "Labels", chance: "Sequence[Labels]") -> "NDArray[np.float64]":
    """Share of the tokens of each block that need exactly so many hops, beyond chance, `[block, LIMIT]`."""
    import numpy as np

    from hopscope.language.hops import beyond_chance

    blocks = max(1, text.words // BLOCK)
    pieces = zip(*(np.array_split(each, blocks) for each in (found, *chance)), strict=True)
    return np.array([beyond_chance(own, others, LIMIT) for own, *others in pieces])


@lru_cache(maxsize=8)
def two_hop_shares(files: tuple[str, ...], most: int) -> dict[str, float]:
    """Definition by words → tokens that need two hops, among those that need one or two, beyond chance; to 0.0001.

    Arguments are those of `texts`.
    """
    import numpy as np

    read, shares = texts(files, most), {}
    for definition in DEFINITIONS[:4]:
        counted = ((text, labels(text, definition)) for text in read)
        blocks = [by_blocks(text, found, chance) for text, (found, *chance, _) in counted]
        one, two = np.concatenate(blocks).mean(0).clip(min=0.0)[:2]
        shares[definition.name] = round(float(two / (one + two)), 4) if one + two else 0.0
    return shares


def texts(files: Sequence[str], most: int) -> list[Text]:
    """The texts that come with Python, then the files.

    Args:
        files: names of text files in UTF-8.
        most: words of each text that are counted, from its beginning.

    Raises:
        UserError: a file cannot be read, is no UTF-8, or two have one name.
    """
    from pydoc_data import topics

    from hopscope.language.hops import WORD, text_of

    python, given = f"Python {platform.python_version()}", "a file that was given"
    sources = [
        ("language reference", f"pydoc_data.topics of {python}", "\n\n".join(topics.topics.values())),
        ("documentation strings", f"modules of {python}", _docstrings()),
        *((Path(file).stem, given, text_of("files", file)) for file in files),
    ]
    found = dict[str, Text]()
    for name, origin, text in sources:
        if PARTS in name or name in found:
            wanted = f"files with different names, without {PARTS!r}"
            raise UserError(f"files: expected {wanted}, found {name}; rename one")
        words = [*islice(WORD.finditer(text), most)]
        end = words[-1].end() if len(words) == most else len(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        found[name] = Text(name, origin, text[:end], digest, len(words))
    return [*found.values()]


@lru_cache(maxsize=1)  # parsing the standard library takes a second or two
def _docstrings() -> str:
    # Of the modules of the standard library that are one file, in the order of their names; not of those that begin
    # with _, such as the configuration of the machine that Python was built on.
    kinds, found = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef), list[str]()
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("[!_]*.py")):
        nodes = ast.walk(ast.parse(file.read_bytes()))
        found += [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
    return "\n\n".join(found)
