"""The templates' environment: their filters, and the plain files beside them."""

import json
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup
from pydantic import JsonValue

from hopscope.claims.numbers import format_number
from hopscope.report.circuit_player import shown_circuit
from hopscope.report.explorer import explorer_missing, explorer_payload
from hopscope.report.prose import tie
from hopscope.report.worked import format_probability, format_published, in_words, marks, pairs

MOST_CELLS = 30
"""Cells of a table that stands open on the page; a larger one is folded."""


@cache
def environment() -> jinja2.Environment:
    """The templates' environment: everything is escaped, an unknown name is an error.

    There is one for each process: to compile the templates takes a third of the time of a small page.
    """
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("hopscope.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        number=format_number,
        tie=tie,
        script_json=script_json,
        probability=format_probability,
        published=format_published,
        pairs=pairs,
        in_words=in_words,
    )
    made.globals.update(
        marks=marks,
        shown_circuit=shown_circuit,
        explorer_payload=explorer_payload,
        explorer_missing=explorer_missing,
        most_cells=MOST_CELLS,
    )
    return made


def script_json(value: JsonValue) -> Markup:
    """JSON that is safe inside a ``<script>`` element: no ``<`` is left to end it or to open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def asset(name: str) -> Markup:
    """The text of a file among the templates."""
    # Package files, not user text: escaping would break the style sheet's and the script's own quotes.
    return Markup(resources.files("hopscope.report").joinpath("templates", name).read_text(encoding="utf-8"))
