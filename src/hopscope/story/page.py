"""The page of a declared study: a Markdown template with Jinja, filled with what the run measured.

Numbers of a template are calls and explanations stand under conditions on the evidence, so that no sentence can
contradict the run.  The result is the run's story, whose numbers say which rows of the evidence they come from.
"""

import itertools
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from hopscope.errors import UserError
from hopscope.figures import Figure, numbered
from hopscope.figures.selection import Floors
from hopscope.runs import RunFolder
from hopscope.story.text import Block, PageText

if TYPE_CHECKING:
    from hopscope.claims import JudgedClaim
    from hopscope.runs.evidence import Evidence
    from hopscope.story.functions import PageFunctions

DEFAULT = "page.md.j2"
"""The template of studies that bring none, among this package's templates."""

SHARED = ("circuits.md.j2",)
"""Templates of this package that others may include."""

_TAGS = r"(?:\{%(?:(?!%\}).)*%\}|\{#(?:(?!#\}).)*#\})"
_TAG_LINE = re.compile(rf"^[ \t]*((?:{_TAGS}[ \t]*)+)\r?\n", re.MULTILINE | re.DOTALL)
_TAKEN = ("title", "record")
"""Anchors of a page that are not sections."""


@dataclass(frozen=True)
class StudyFacts:
    """Facts about a study for its page, besides the measured numbers.

    Attributes:
        name, question: of the study.
        options: its own fields.
        task: `name` and `docstring` of its class, and `fields`, its configuration; `None` where nothing is trained.
        model, training: their configurations.
        vary: field → values of the grid.
        seeds: of each configuration.
        floors: of the task, or a function from a configuration's label to them.
        source: where the study stands, as `file.py:name` or `package.module:name`.
        template: the template's name in errors.
        member_name: gives what a member is called from its number; by default its configuration and seed are.
    """

    name: str
    question: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seeds: int = 0
    floors: Floors | None = None
    source: str = ""
    template: str = DEFAULT
    member_name: Callable[[int], str] | None = None


def default_template() -> str:
    """The template of a study that brings none."""
    return packaged(DEFAULT)


def packaged(name: str) -> str:
    """A template of this package by its name."""
    return resources.files("hopscope.story").joinpath("templates", name).read_text(encoding="utf-8")


def render_page(
    template: str | None,
    facts: StudyFacts,
    evidence: "Evidence",
    ledger: "Sequence[JudgedClaim]",
    figures: Sequence[Figure],
    run: RunFolder,
    own: "Callable[[PageFunctions], Mapping[str, Any]] | None" = None,
    parts: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """Return the story of a run: what its page says, block by block, and where each number comes from.

    Args:
        template: its text; `None`: the default template.
        facts: what is known of the study.
        evidence: what was measured.
        ledger: the judged claims.
        figures: as the study declares them.
        run: names the run on the page.
        own: gives what the study's own code adds to the names that the template may use.
        parts: gives the text of a further template that this one includes, by its name.

    Raises:
        UserError: the template asks for something that there is not; the message names its line.
    """
    from hopscope.story.functions import PageFunctions

    text = PageText()
    functions = PageFunctions(facts, evidence, ledger, numbered(figures), run, text)
    # A page without a program behind it has no models to explore.
    names = {"explorer": lambda *_: ""} | functions.names() | dict(own(functions) if own else {})
    written = fill(default_template() if template is None else template, facts.template, names, parts)
    title, subtitle, sections = _sections(written, text)
    # Conditions ask for more numbers than the page says.
    said = set(re.findall(r"\{(n\d+)\}", json.dumps([title, subtitle, functions.lead, sections])))
    return {
        "schema_version": 1,
        "title": title or text.literal(facts.name),
        "subtitle": subtitle or text.literal(facts.question),
        "lead": functions.lead,
        "numbers": {name: number for name, number in text.numbers.items() if name in said},
        "claims": {},
        "sections": sections,
    }


# Jinja.


def fill(text: str, name: str, names: Mapping[str, Any], parts: Callable[[str], str] | None = None) -> str:
    """Return a template's text with everything filled in; it can read no file and call nothing but `names`.

    Args:
        text: the template.
        name: its name, for errors.
        names: what it may use.
        parts: gives the text of a template that it includes; by default it may include none but the shared ones.

    Raises:
        UserError: it cannot be read or filled in; the message names the line.
    """
    # Takes a while to load, and listing a study does not need it.
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    class Sandbox(SandboxedEnvironment):
        """Fields come before methods: `task.fields.values` is the field of a task, not a method of its dictionary."""

        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            return super().getattr(obj, attribute)

    class _Shared(jinja2.BaseLoader):
        """Parts that a page includes: those that several of our own studies share, and those of the study itself."""

        def get_source(self, environment: Any, template: str) -> Any:
            read = packaged if template in SHARED else parts
            if (
                read is None or PurePath(template).name != template
            ):  # parts stand beside the page, nowhere else
                raise jinja2.TemplateNotFound(template)
            return _without_tag_lines(read(template)), template, lambda: True

    environment = Sandbox(
        undefined=jinja2.StrictUndefined, autoescape=False, loader=_Shared(), extensions=["jinja2.ext.do"]
    )
    try:
        return environment.from_string(_without_tag_lines(text)).render(names)
    except jinja2.TemplateSyntaxError as error:
        raise UserError(
            f"{error.name or name}, line {error.lineno}: expected a Jinja template, found {error.message}"
        ) from error
    except UserError as error:
        raise UserError(f"{_place(error, name)}: {error}") from error
    except (
        jinja2.TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        cause = " ".join(str(error).split())
        raise UserError(
            f"{_place(error, name)}: expected something that can be filled in, found {cause}"
        ) from error


def _without_tag_lines(text: str) -> str:
    """The template, with the line breaks of lines of nothing but tags moved into these, where they print nothing.

    A condition between two lines of a paragraph must not part it, and every line keeps its number.
    """

    def moved(found: re.Match[str]) -> str:
        tags = found[1].rstrip()
        end = 3 if tags[-3] in "-+" else 2
        return f"{tags[:-end]}\n{tags[-end:]}"

    return _TAG_LINE.sub(moved, text)


def _place(error: Exception, name: str) -> str:
    """The template, or the part that it includes, and the line in which an error came up: Jinja's traceback has it."""
    known = ("<template>", ".j2")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(known)]
    if not frames:
        return f"{name}, line ?"
    last = frames[-1]
    return f"{name if last.filename == known[0] else last.filename}, line {last.lineno or '?'}"


# From Markdown to sections.


def _sections(written: str, text: PageText) -> tuple[str, str, list[Block]]:
    """Title, question and sections.

    The paragraph under the title is the question, and what follows it a section of its own.  A second title of one
    sign begins the layer of the numbers: the sections under it are folded.
    """
    title, question, sections, taken, layer = "", "", [], set(_TAKEN), "story"
    for level, heading, body in _cut(written):
        words = _unmarked(heading) if level == 2 else "In short"
        if level == 1 and title:
            layer, words = "numbers", _unmarked(heading)
        elif level == 1:
            title = text.story(_unmarked(heading))
        if level < 2 and layer == "story" and not question:
            first, _, rest = body.strip().partition("\n\n")
            if text.is_words(first):
                question, body = text.story(_unmarked(first)), rest
        blocks = list(text.pieces(body))
        if blocks:
            name = _anchor(text.plain(words), taken)
            section = {"id": name, "heading": text.story(words), "blocks": blocks}
            sections.append(section if layer == "story" else section | {"layer": layer})
    return title, question, sections


def _unmarked(text: str) -> str:
    """Words of a line of Markdown without its marks: titles and leads have none."""
    from markdown_it import MarkdownIt

    (token, *_) = MarkdownIt("commonmark", {"html": False}).parseInline(text)
    pieces = (" " if child.type == "softbreak" else child.content for child in token.children or [])
    return "".join(pieces)


def _cut(written: str) -> Iterator[tuple[int, str, str]]:
    """Level, heading and body of every part: what stands before the first heading has level 0."""
    from markdown_it import MarkdownIt

    lines = written.splitlines(keepends=True)
    tokens = MarkdownIt("commonmark", {"html": False}).disable("code").parse(written)
    found: list[tuple[int, str, int, int]] = []
    for token, inside in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.tag in ("h1", "h2") and token.map:
            found.append((int(token.tag[1]), inside.content, token.map[0], token.map[1]))
    ends = [start for _, _, start, _ in found] + [len(lines)]
    yield 0, "", "".join(lines[: ends[0]])
    for (level, heading, _, start), end in zip(found, ends[1:], strict=True):
        yield level, heading, "".join(lines[start:end])


def _anchor(heading: str, taken: set[str]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
    # Claims and data of figures have anchors with these beginnings.
    stem = f"on-{stem}" if stem.startswith(("claim-", "spec-")) else stem
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}-{count}"
    taken.add(name)
    return name
