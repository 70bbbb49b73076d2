"""Words with numbers in them: ``{key}`` becomes the number's text, which tells where it came from.

A brace that means itself is written ``\\{``.
"""

import re
from collections.abc import Callable, Mapping

from markupsafe import Markup

from hopscope.errors import UserError
from hopscope.report.record import Number

_PLACE = re.compile(r"(?<!\\)\{([^{}]*)\}")
_BRACE = "\\{"
_PARAGRAPH = re.compile(r"\n\s*\n")
_UNTIED = re.compile(r"(?<=[≤≥<>=±|−]) (?=\d)|(?<=\d) (?=%)|(?<=\b[A-Za-z]) (?=[≤≥<>=] \d)")


def tie(text: str) -> str:
    """The text with signs, units and single letters tied to their numbers: no line breaks in ``D = 2`` or ``≥ 9 %``."""
    return _UNTIED.sub("\N{NO-BREAK SPACE}", text)


class Prose:
    """Fills the numbers of one run into its story's words.

    Attributes:
        numbers: the story's numbers by key.
    """

    def __init__(self, numbers: Mapping[str, Number]) -> None:
        self.numbers = numbers

    def html(self, text: str) -> Markup:
        """Escaped text in which each ``{key}`` is a ``<span>`` that names the file and key it came from.

        Raises:
            UserError: a key is not among the story's numbers.
        """
        return Markup("").join(self._pieces(tie(text), _span))

    def paragraphs(self, text: str) -> list[Markup]:
        """`html` of each paragraph; blank lines part them."""
        return [self.html(part.strip()) for part in _PARAGRAPH.split(text) if part.strip()]

    def markdown(self, text: str, level: int = 1) -> Markup:
        """Markdown as HTML, with numbers as in `html`; markup in the text stays text.

        Args:
            text: the Markdown.
            level: of the page's own title: a heading of `n` signs becomes an element of level `n + level - 1`.

        Raises:
            UserError: a key is not among the story's numbers.
        """
        from hopscope.report.markdown import to_html

        parts = _PLACE.split(text)
        numbers = [self._number(key, text) for key in parts[1::2]]
        words = [part.replace(_BRACE, "{") for part in parts[::2]]
        return to_html(words, [(_span(number), number.text) for number in numbers], level)

    def plain(self, text: str) -> str:
        """Text with the numbers filled in and no markup, for titles and labels.

        Raises:
            UserError: a key is not among the story's numbers.
        """
        return tie("".join(self._pieces(text, lambda number: number.text)))

    def _pieces(self, text: str, write: Callable[[Number], str]) -> list[str]:
        # `split` on a pattern with one group alternates: words, key, words, key, …, words.
        parts = _PLACE.split(text)
        return [
            write(self._number(part, text)) if at % 2 else part.replace(_BRACE, "{")
            for at, part in enumerate(parts)
        ]

    def _number(self, key: str, text: str) -> Number:
        if key not in self.numbers:
            raise UserError(
                f"story.json: expected every {{key}} in its words to be one of {len(self.numbers)} numbers, "
                f"found '{{{key}}}' in '{text[:60]}'; run the study again, or mend the story's words"
            )
        return self.numbers[key]


def _span(number: Number) -> Markup:
    origin = f"{number.file} · {number.key}"
    return Markup('<span class="number" tabindex="-1" title="{}">{}</span>').format(origin, number.text)
