"""Texts to count in: what comes with Python itself, and files that are given."""

import ast
import hashlib
import platform
import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hopscope.errors import UserError
from hopscope.language.corpus.file import read_text

WORD = re.compile(r"\w+(?:['’]\w+)*")

PARTS = " · "
"""What parts the names in a row of the evidence table."""


class Text(NamedTuple):
    """A text and where it is from.

    Attributes:
        name: by which its rows are called.
        origin: where it comes from, in words.
        text: its beginning, as far as it is counted.
        sha256: of the whole text in UTF-8.
    """

    name: str
    origin: str
    text: str
    sha256: str

    @property
    def words(self) -> tuple[str, ...]:
        """Its words, without capitals and punctuation."""
        return _words(self.text)


@lru_cache(maxsize=16)  # a text is shuffled a dozen times, from the same words
def _words(text: str) -> tuple[str, ...]:
    return tuple(word.casefold().replace("’", "'") for word in WORD.findall(text))


def texts(files: Sequence[str], most: int) -> list[Text]:
    """The texts that come with Python, then the files.

    Args:
        files: names of text files in UTF-8.
        most: words of each text that are counted, from its beginning.

    Raises:
        UserError: a file cannot be read, is no UTF-8, or two have one name.
    """
    python = f"Python {platform.python_version()}"
    found = [
        _cut("language reference", f"pydoc_data.topics of {python}", _topics(), most),
        _cut("documentation strings", f"modules of {python}", _docstrings(), most),
    ]
    for file in files:
        name = Path(file).stem
        if PARTS in name or name in {each.name for each in found}:
            raise UserError(
                f"files: expected files with different names, without {PARTS!r}, found {name}; rename one"
            )
        found.append(_cut(name, "a file that was given", read_text(Path(file)), most))
    return found


def _cut(name: str, origin: str, text: str, most: int) -> Text:
    """A text up to its `most`th word."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    for number, match in enumerate(WORD.finditer(text), start=1):
        if number == most:
            return Text(name, origin, text[: match.end()], digest)
    return Text(name, origin, text, digest)


def _topics() -> str:
    """The language reference, as `help()` shows it."""
    from pydoc_data import topics

    return "\n\n".join(topics.topics.values())


@lru_cache(maxsize=1)  # parsing the standard library takes a second or two
def _docstrings() -> str:
    """Documentation strings of the modules of the standard library that are one file, in the order of their names."""
    return "\n\n".join(_each_docstring())


def _each_docstring() -> Iterator[str]:
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if file.name.startswith("_"):  # such as the configuration of the machine that Python was built on
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""
