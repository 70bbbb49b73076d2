"""Damage to a file of a run, of any kind."""

import random
import re
from collections.abc import Callable
from pathlib import Path


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        place = draw.randrange(8 * len(changed))
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _zeros(content: bytes, draw: random.Random) -> bytes:
    first = draw.randrange(len(content))
    last = min(len(content), first + draw.choice((1, 8, 512, 4096)))
    return content[:first] + bytes(last - first) + content[last:]


def _longer(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(draw.choice((1, 3, 64))) + content[place:]


ALTERED: dict[str, tuple[str, ...]] = {
    "bits turned": ("flip",), "cut, zeroed or lengthened": ("cut", "zeros", "longer"), "deleted": ("delete",)
}  # fmt: skip
"""Rows of the table → what is done."""

_HOW: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flip, "cut": _cut, "zeros": _zeros, "longer": _longer
}  # fmt: skip


def kind(name: str) -> str:
    """The kind of a file of a run, from its path in the run."""
    name = re.sub(r"^units/\w+/", "units/*/", re.sub(r"\.\d+-\d+\.tmp$", ".tmp", name))
    name = re.sub(r"\d{9,}", "*", re.sub(r"-[0-9a-f]{12}", "", name))
    return re.sub(r"^figures/\w+", "figures/*", name)


def struck(run: Path, row: str, seed: int) -> tuple[str, str] | None:
    """Damage one file of a run; every kind of file is as likely as any other.

    Returns:
        Its path in the run, and what was done; `None` if the content is what it was (zeros in place of zeros).
    """
    draw = random.Random(seed)
    how = draw.choice(ALTERED[row])
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and (how in ("delete", "longer") or path.stat().st_size):
            by_kind.setdefault(kind(path.relative_to(run).as_posix()), []).append(path)
    path = draw.choice(by_kind[draw.choice(sorted(by_kind))])
    before = path.read_bytes()
    if how == "delete":
        path.unlink()
    else:
        path.write_bytes(_HOW[how](before, draw))
        if path.read_bytes() == before:
            return None
    return path.relative_to(run).as_posix(), how
