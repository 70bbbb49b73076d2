"""The site of the documentation: what its contents must name, and that it is built strictly."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import hopscope
from hopscope.studies.loading import study_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


def test_the_contents_name_every_page() -> None:
    listed = {
        (DOCS / page).resolve() for page in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    }
    pages = {*DOCS.glob("*.md"), *DOCS.glob("api/*.md")} - {DOCS / "index.md"}
    assert not pages - listed, "pages that docs/index.md does not name"
    assert all(page.is_file() for page in listed)


def test_the_reference_names_every_public_name() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("api/*.md")))
    described = set(re.findall(r":: hopscope\.([A-Za-z_]+)", text))
    assert set(hopscope.__all__) == described & set(hopscope.__all__)


def test_every_built_in_study_has_a_lesson() -> None:
    text = (DOCS / "lessons.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (.+)$", text, re.MULTILINE)) == sorted(study_names())
    lessons = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert all("*Exercise.*" in lesson and "<summary>Solution</summary>" in lesson for lesson in lessons)


@pytest.mark.extras
def test_a_link_that_leads_nowhere_fails_and_the_rest_works(tmp_path: Path) -> None:
    if find_spec("sphinx") is None or find_spec("myst_nb") is None:
        assert os.environ.get("HOPSCOPE_REQUIRE_DOCS") != "1", (
            "HOPSCOPE_REQUIRE_DOCS=1 asks for the extra docs"
        )
        pytest.skip("the extra docs is not installed")
    (tmp_path / "docs/kept").mkdir(parents=True)
    (tmp_path / "docs/kept/note.txt").write_text("<kept>")
    index = tmp_path / "docs/index.md"
    index.write_text("# Top\n\n## Learn\n\n* [Other words](a.md)\n")
    page = tmp_path / "docs/a.md"
    page.write_text("# A\n\n[folder](kept), [the top](index.md#learn)\n")
    (tmp_path / "notebooks").mkdir()
    for name in ("README.md", "1_first_run.ipynb"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path / "notebooks")
    listed = tmp_path / "notebooks/README.md"
    kept = [line for line in listed.read_text().splitlines() if ".ipynb" not in line or "1_first" in line]
    listed.write_text("\n".join(kept))
    index.write_text(index.read_text() + "* [Notebooks](../notebooks/README.md)\n")
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    notebook = (site / "notebooks/1_first_run.html").read_text()
    assert "<h1>1. A first run" in notebook and "import" in notebook, (
        "a notebook is a page, not only a download"
    )
    assert 'href="1_first_run.html"' in (site / "notebooks/README.html").read_text()
    assert 'href="kept/index.html"' in (site / "docs/a.html").read_text()
    assert 'href="note.txt"' in (site / "docs/kept/index.html").read_text()
    assert (site / "docs/kept/note.txt").read_text() == "<kept>"
    assert "Other words" in (site / "docs/a.html").read_text(), "the sidebar has the words of the contents"
    assert "url=./docs/index.html" in (site / "index.html").read_text()
    for made in site.rglob("*.html"):
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"(https?:)?//", made.read_text()), (
            "the site is offline"
        )
    for broken in ("[gone](gone.md)", "[gone](index.md#gone)", "[gone](missing-folder)"):
        page.write_text(f"# A\n\n{broken}\n")
        found = build(tmp_path)
        assert found.returncode == 1 and "xref_missing" in found.stderr, broken
    page.write_text("# A\n")
    (tmp_path / "docs/b.md").write_text("# B\n")
    assert "toc.not_included" in build(tmp_path).stderr


def build(root: Path) -> "subprocess.CompletedProcess[str]":
    shutil.rmtree(root / "site", ignore_errors=True)
    options = [
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "-c",
        str(DOCS / "site"),
        "-d",
        str(root / "trees"),
    ]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(root), str(root / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
