"""Proof that a drawing or a page is what was made: a comment at its end holds checksums.

Drawings and pages derive from sealed records, and no number is read from them.  So they are not sealed
(`hopscope.runs.seals`): to draw them again must not write into the record of a run.  Instead each says itself what it
was made from, and what it must hold.
"""

import hashlib
import re
from pathlib import Path
from typing import Literal

State = Literal["stands", "stale", "altered", "unproven"]
"""What a file's proof says: it is what was made; it was made from something else; its bytes were altered; there is no
file or no proof (such as of a drawing by an earlier version)."""

_PROOF = re.compile(
    rb"\n<!-- (?:made from (?P<source>\w+), )?sha256 (?P<own>\w+)(?: and (?P<beside>\w+))? -->\n\Z"
)


def proven(text: str, source: str = "", beside: bytes | None = None) -> str:
    """The text of an SVG or HTML file with its proof as the last line.

    Args:
        text: the file without a proof.
        source: digest of everything that it was made from, as hexadecimal digits.
        beside: a file that was made with it, and is proven by the same comment.
    """
    made = f"made from {source}, " if source else ""
    also = "" if beside is None else f" and {_digest(beside)}"
    return f"{text}\n<!-- {made}sha256 {_digest(text.encode())}{also} -->\n"


def state(path: Path, source: str | None = None, beside: Path | None = None) -> State:
    """What the proof of a file says.

    Args:
        path: a file that `proven` gave the text of.
        source: digest of what it would be made from today; `None` asks for its bytes alone.
        beside: the file that was made with it.
    """
    try:
        content = path.read_bytes()
        also = None if beside is None else beside.read_bytes()
    except OSError:
        return "unproven"
    found = _PROOF.search(content)
    if found is None:
        return "unproven"
    if source is not None and found["source"] != source.encode():
        return "stale"
    whole = found["own"].decode() == _digest(content[: found.start()])
    whole &= also is None or (found["beside"] or b"").decode() == _digest(also)
    return "stands" if whole else "altered"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
