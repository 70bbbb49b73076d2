"""Links to folders: on the site each such folder is a page that lists its files and, of a run, its claims."""

import html
import json
import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

LEFT_OUT = {"report.html", ".lock", "__pycache__"}
"""What `hopscope report` and Python leave in a folder."""


def resolve_folders(app: Sphinx, document: nodes.document) -> None:
    """Sphinx's event `doctree-read`: links whose target is a folder lead to its page."""
    found = app.env.metadata[app.env.docname].setdefault("folders", "")
    for link in list(document.findall(addnodes.pending_xref)):
        if link.get("reftype") != "myst" or link.get("refdomain") == "doc":
            continue
        target = link["reftarget"].rstrip("/")
        if not target or "#" in target:
            continue
        path, absolute = app.env.relfn2path(target, app.env.docname)
        if Path(absolute).is_dir():
            found += f"{path}\n"
            reference = nodes.reference("", "", *link.children, internal=True, refuri=f"{target}/index.html")
            link.replace_self(reference)
    app.env.metadata[app.env.docname]["folders"] = found


def folder_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Sphinx's event `html-collect-pages`: copies each linked folder, and gives the page that lists it."""
    linked = {path for data in app.env.metadata.values() for path in data.get("folders", "").split()}
    for name in sorted(linked):
        folder, copy = Path(app.srcdir, name), Path(app.outdir, name)
        files = sorted(
            p for p in folder.rglob("*") if p.is_file() and not LEFT_OUT & {*p.relative_to(folder).parts}
        )
        for path in files:
            to = copy / path.relative_to(folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
        yield (
            f"{name}/index",
            {"title": name.removeprefix("docs/"), "body": body(name, folder, files), "toc": ""},
            "page.html",
        )


def body(title: str, folder: Path, files: list[Path]) -> str:
    """What the page of a folder shows: the claims of a run, then its files with their sizes."""
    items = "".join(
        f'<li><a href="{html.escape(where)}"><code>{html.escape(where)}</code></a> {path.stat().st_size:,} bytes</li>'
        for path in files
        for where in [path.relative_to(folder).as_posix()]
    )
    ledger = folder / "claims.json"
    found = json.loads(ledger.read_bytes()) if ledger.exists() else []
    columns = ("id", "statement", "verdict")
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = ("".join(f"<td>{html.escape(str(each[name]))}</td>" for name in columns) for each in found)
    claims = f"<table><tr>{head}</tr><tr>{'</tr><tr>'.join(rows)}</tr></table>" if found else ""
    return f"<section><h1>{html.escape(title)}</h1>{claims}<h2>Files</h2><ul>{items}</ul></section>"


def redirect(app: Sphinx, problem: Exception | None) -> None:
    """Sphinx's event `build-finished`: the top of the site leads to its first page."""
    if problem is None:
        to = posixpath.join(".", f"{app.config.root_doc}.html")
        head = (
            f'<meta charset="utf-8"><title>Hopscope</title><meta http-equiv="refresh" content="0; url={to}">'
        )
        page = f'<!doctype html>{head}<a href="{to}">Hopscope</a>\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this to make the extension known."""
    app.connect("doctree-read", resolve_folders)
    app.connect("html-collect-pages", folder_pages)
    app.connect("build-finished", redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
