"""Links lead somewhere, pages stay short, name what is there, and speak of the project alone."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import hopscope
from hopscope.study.load import studies

from .pages import DOCS, PAGES, ROOT, anchors_of, links_of, name_of, text_of

BINARY = {".png", ".svg", ".parquet", ".npz", ".safetensors"}
STRANGE = re.compile(
    r"/(work|farm|root)/|/home/\w|/tmp/\w*(first|main)|(first|second|old|new)[ _-]house|hopscope_next|campaigns/"
)


@cache
def tracked():
    """Files of the repository, as git knows them, or all where the sources were not cloned."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        paths = {ROOT / name for name in done.stdout.decode().split("\0") if name}
    else:
        folders = ("src", "tests", "docs", "examples", "notebooks", "benchmarks", "release")
        paths = {*ROOT.glob("*"), *(path for name in folders for path in (ROOT / name).rglob("*"))}
    return {path for path in paths if path.is_file()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    """And to nothing that git ignores, which is missing in every clone."""
    there, lost = {each for path in tracked() for each in (path, *path.parents)}, []
    for file, anchor, line in links_of(page):
        target = (page.parent / file).resolve() if file else page
        known = not anchor or target.suffix != ".md" or (target.is_file() and anchor in anchors_of(target))
        lost += [] if target in there and known else [f"line {line}: {file}#{anchor}"]
    assert not lost


def test_pages_stay_small():
    lines = {name_of(page): text_of(page).count("\n") for page in sorted(DOCS.glob("*.md"))}
    assert text_of(ROOT / "README.md").count("\n") <= 150
    assert sum(lines.values()) <= 4_000, sorted(lines.items(), key=lambda each: -each[1])[:10]


def test_the_project_speaks_of_itself_alone():
    """No path of a machine, and no name of what is not there."""
    found, silent = [], {Path(__file__), ROOT / "CHANGELOG.md"}
    for path in sorted(path for path in tracked() - silent if path.suffix not in BINARY):
        text = path.read_text(encoding="utf-8", errors="replace")
        for strange in STRANGE.finditer(text):
            line = text.count("\n", 0, strange.start()) + 1
            found.append(f"{name_of(path)}:{line}: {strange[0]}")
    assert not found


def test_tests_that_pages_name_are_there():
    named = [
        (page, *each)
        for page in PAGES
        for each in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text_of(page))
    ]
    lost = [f"{name_of(page)}: {file}::{test}" for page, file, test in named
            if not (ROOT / file).is_file() or f"def {test}" not in f"{text_of(ROOT / file)}def "]  # fmt: skip
    assert named and not lost


def test_the_contents_name_every_page():
    index = DOCS / "index.md"
    listed = {(DOCS / file).resolve() for file, *_ in links_of(index)}
    pages = {*DOCS.glob("*.md"), *DOCS.glob("api/*.md")} - {index}
    assert not sorted(name_of(page) for page in pages - listed)


def test_every_public_name_and_study_is_told():
    reference = text_of(DOCS / "reference.md")
    assert not [name for name in hopscope.__all__ if not re.search(rf"\bhs\.{name}\b", reference)]
    lessons = text_of(DOCS / "lessons.md")
    assert sorted(re.findall(r"^## (.+)$", lessons, re.MULTILINE)) == sorted(studies())
    assert lessons.count("*Exercise.*") == lessons.count("<summary>Solution</summary>") == len(studies())
