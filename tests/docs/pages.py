"""The pages of the documentation, and what stands in them."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES = [
    *FRONT, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("api/*.md")), DOCS / "results/README.md",
    ROOT / "examples/README.md", ROOT / "notebooks/README.md",
]  # fmt: skip

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


@cache
def blocks_of(page: Path) -> list[tuple[str, str, int]]:
    """What stands behind the fence, the text of each block of code, and its first line's number."""
    text = text_of(page)
    return [(each[1], each[2], text.count("\n", 0, each.start()) + 2) for each in _BLOCK.finditer(text)]


@cache
def prose_of(page: Path) -> str:
    """A page without its blocks of code; lines keep their numbers."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text_of(page))


def links_of(page: Path) -> list[tuple[str, str, int]]:
    """Relative links: file, anchor, line."""
    text = prose_of(page)
    found = [(each[1], text.count("\n", 0, each.start()) + 1) for each in _LINK.finditer(text)]
    return [(*target.partition("#")[::2], line) for target, line in found if ":" not in target]


@cache
def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found, seen = set(re.findall(r'id="([^"]+)"', text_of(page))), Counter[str]()
    for heading in _HEADING.findall(prose_of(page)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]|[₀-₉²³]", "", words).replace(" ", "-")
        found.add(anchor if not seen[anchor] else f"{anchor}-{seen[anchor]}")
        seen[anchor] += 1
    return found
