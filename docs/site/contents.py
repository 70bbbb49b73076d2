"""The navigation of the site: the links under each heading of `docs/index.md`, and the notebooks."""

import posixpath
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
PAGE = re.compile(r"\[([^]]+)\]\(([^)#]+\.md)\)")
NOTEBOOK = re.compile(r"\[(\w+)\.ipynb\]\(\1\.ipynb\)")
NOTEBOOKS = "notebooks/README"
"""The page that lists the notebooks."""


def toctrees(text: str, folder: str) -> str:
    """A hidden table of contents for every heading: the pages that its list names, from the top of the repository."""
    _, *parts = GROUP.split(text)
    trees = []
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        pages = (
            (title, posixpath.normpath(posixpath.join(folder, page))) for title, page in PAGE.findall(body)
        )
        lines = "".join(f"{title[0].upper()}{title[1:]} </{page}>\n" for title, page in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{lines}```\n")
    return "\n".join(trees)


def append_toctrees(app: "Sphinx", docname: str, source: list[str]) -> None:
    """Sphinx's event `source-read`: only the root page and that of the notebooks have contents."""
    if docname == app.config.root_doc:
        source[0] += "\n" + toctrees(source[0], posixpath.dirname(docname))
    elif docname == NOTEBOOKS:
        pages = "\n".join(NOTEBOOK.findall(source[0]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def setup(app: "Sphinx") -> dict[str, Any]:
    """Sphinx calls this to make the extension known."""
    app.connect("source-read", append_toctrees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
