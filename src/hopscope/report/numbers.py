"""Numbers in running text; how a number itself is written, claims say (`hopscope.claims.numbers`)."""

import re

_UNTIED = re.compile(r"(?<=[≤≥<>=±|−]) (?=\d)|(?<=\d) (?=%)|(?<=\b[A-Za-z]) (?=[≤≥<>=] \d)")


def tie(text: str) -> str:
    """The text with signs, units and single letters tied to their numbers: no line breaks in ``D = 2`` or ``≥ 9 %``."""
    return _UNTIED.sub("\N{NO-BREAK SPACE}", text)
