"""From a page's template (Markdown with Jinja) to its sections in HTML.

Numbers and blocks are held by a sign of their own while Jinja and Markdown read the words around them.  A template can
read no file and call nothing but what it is given; what stands in it as HTML stays text.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count, pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

import jinja2
from jinja2.sandbox import SandboxedEnvironment
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from hopscope.errors import UserError

# Characters for private use: a number, and a block, by their places.
_NUMBER, _BLOCK = re.compile("\ue000(\\d+)\ue001"), re.compile("(?:<p>)?\ue002(\\d+)\ue003(?:</p>)?")
_PRIVATE = re.compile("[\ue000-\ue003]")
_UNTIED = re.compile(r"(?<=[≤≥<>=±|−]) (?=\d)|(?<=\d) (?=%)|(?<=\b[A-Za-z]) (?=[≤≥<>=] \d)")
_TAGS = r"(?:\{%(?:(?!%\}).)*%\}|\{#(?:(?!#\}).)*#\})"
_TAG_LINE = re.compile(rf"^[ \t]*((?:{_TAGS}[ \t]*)+)\r?\n", re.MULTILINE | re.DOTALL)
_LAST_END = re.compile(r"([-+]?[%#]\})[ \t]*$")


class Section(NamedTuple):
    """A part of a page; `folded`: it stands among the numbers, for readers who want to check."""

    id: str
    heading: str
    html: Markup
    folded: bool = False


def tie(text: str) -> str:
    """The text without line breaks between a number and its sign or unit, as in `D = 2` and `≥ 9 %`."""
    return _UNTIED.sub("\N{NO-BREAK SPACE}", text)


class Held:
    """Numbers and blocks of one page, and the words that hold places for them, as HTML."""

    def __init__(self) -> None:
        self._numbers, self._blocks = list[tuple[str, str]](), list[Markup]()

    def number(self, text: str, origin: str) -> str:
        """Hold a number, which tells where it comes from; returns what holds its place."""
        self._numbers.append((text, origin))
        return f"\ue000{len(self._numbers) - 1}\ue001"

    def block(self, html: Markup) -> str:
        """Hold a block; returns what holds its place, a paragraph of its own."""
        self._blocks.append(html)
        return f"\n\n\ue002{len(self._blocks) - 1}\ue003\n\n"

    def html(self, words: str) -> Markup:
        """Words as text, with their numbers."""
        return self._filled(str(escape(tie(words))))

    def plain(self, words: str) -> str:
        """Words with the numbers written out, for titles and labels."""
        return _PRIVATE.sub("", _NUMBER.sub(lambda found: self._of(found)[0], tie(words)))

    def markdown(self, words: str) -> Markup:
        """Markdown as HTML."""
        return self._rendered(_reader().parse(words))

    def sections(self, written: str) -> tuple[str, str, list[Section]]:
        """Title, question and sections of a filled template.

        The paragraph under the title is the question.  A second title begins what is folded: the numbers.
        """
        title, question, found, folded = "", "", list[Section](), False
        for level, heading, body in _parts(_reader().parse(written)):
            if level == 1 and not title:
                title = self.plain(heading)
                if len(body) > 2 and body[0].type == "paragraph_open" and "\ue002" not in body[1].content:
                    question, body = self.plain(_words(body[1])), body[3:]
            elif level == 1:
                folded = True
            html, words = self._rendered(body), self.plain(heading) if level == 2 else "In short"
            if html.strip():
                stem = "s-" + (re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "section")
                taken, names = {each.id for each in found}, chain([stem], (f"{stem}-{n}" for n in count(2)))
                found.append(Section(next(name for name in names if name not in taken), words, html, folded))
        return title, question, found

    def _rendered(self, tokens: Sequence[Token]) -> Markup:
        for token in _all(tokens):
            for name, value in token.attrs.items():
                token.attrs[name] = self.plain(str(value))
        return self._filled(_reader().renderer.render(tokens, _reader().options, {}))

    def _filled(self, html: str) -> Markup:
        def number(found: re.Match[str]) -> str:
            text, origin = self._of(found)
            span = Markup('<span class="number" tabindex="-1" title="{}">{}</span>')
            return str(span.format(origin, text)) if origin else str(escape(text))

        def block(found: re.Match[str]) -> str:
            return self._blocks[int(found[1])] if int(found[1]) < len(self._blocks) else ""

        return Markup(_BLOCK.sub(block, _NUMBER.sub(number, html)))

    def _of(self, found: re.Match[str]) -> tuple[str, str]:
        return self._numbers[int(found[1])] if int(found[1]) < len(self._numbers) else ("", "")


def _parts(tokens: Sequence[Token]) -> Iterator[tuple[int, str, Sequence[Token]]]:
    # Level and words of every heading of one or two signs, with what follows it; first what stands before all of them.
    opening = ("heading_open", 0, "h1"), ("heading_open", 0, "h2")
    starts = [at for at, each in enumerate(tokens) if (each.type, each.level, each.tag) in opening]
    yield 0, "", tokens[: starts[0] if starts else None]
    for start, end in pairwise([*starts, len(tokens)]):
        yield int(tokens[start].tag[1]), _words(tokens[start + 1]), tokens[start + 3 : end]


def _words(token: Token) -> str:
    return "".join(" " if each.type == "softbreak" else each.content for each in token.children or []).strip()


def _all(tokens: Sequence[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_all(token.children or []))]


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    # A page fetches nothing, so it has no pictures; indented text is a condition's body, and no code.
    reader.disable(["image", "code"])
    reader.add_render_rule("text", lambda renderer, tokens, at, *_: str(escape(tie(tokens[at].content))))
    scroll = '<div class="scroll" role="group" aria-label="Table">\n<table>\n'
    reader.add_render_rule("table_open", lambda *_: scroll)
    reader.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    return reader


# Jinja.


def fill(text: str, name: str, names: Mapping[str, Any], parts: Callable[[str], str | None]) -> str:
    """A template of this name, filled in with `names`; `parts` gives the text of one that it includes, if there is.

    `UserError`: it cannot be read or filled in; the message names the line.
    """

    class Sandbox(SandboxedEnvironment):
        # Fields come before methods: `task.fields.values` is the field of a task, not a method of its dictionary.
        def getattr(self, obj: Any, attribute: str) -> Any:
            own = isinstance(obj, Mapping) and attribute in obj
            return obj[attribute] if own else super().getattr(obj, attribute)

    def source(name: str) -> Any:
        found = parts(name) if PurePath(name).name == name else None
        return None if found is None else (_without_tag_lines(found), name, lambda: True)

    loader, undefined = jinja2.FunctionLoader(source), jinja2.StrictUndefined
    sandbox = Sandbox(undefined=undefined, autoescape=False, loader=loader, extensions=["jinja2.ext.do"])
    faults = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        return sandbox.from_string(_without_tag_lines(text)).render(names)
    except jinja2.TemplateSyntaxError as error:
        where = f"{error.name or name}, line {error.lineno}"
        raise UserError(f"{where}: expected a Jinja template, found {error.message}") from error
    except UserError as error:
        raise UserError(f"{_place(error, name)}: {error}") from error
    except faults as error:
        words = f"expected something that can be filled in, found {' '.join(f'{error}'.split())}"
        raise UserError(f"{_place(error, name)}: {words}") from error


def _without_tag_lines(text: str) -> str:
    # Line breaks behind nothing but tags move into these: a condition between two lines of a paragraph must not part
    # it, and every line keeps its number.
    return _TAG_LINE.sub(lambda found: _LAST_END.sub(r"\n\1", found[1]), text)


def _place(error: Exception, name: str) -> str:
    # The template, or the part that it includes, and the line: Jinja's traceback has it.
    frames = traceback.extract_tb(error.__traceback__)
    known = [(each.filename, each.lineno) for each in frames if each.filename.endswith(("<template>", ".j2"))]
    file, line = known[-1] if known else ("<template>", None)
    return f"{name if file == '<template>' else file}, line {line or '?'}"
