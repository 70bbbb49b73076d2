"""Numbers in running text; how a number itself is written, claims say (`hopscope.claims.numbers`)."""

import re

from hopscope.claims.numbers import format_estimate as format_estimate
from hopscope.claims.numbers import format_number as format_number

_UNTIED = re.compile(r"(?<=[≤≥<>=±|−]) (?=\d)|(?<=\d) (?=%)|(?<=\b[A-Za-z]) (?=[≤≥<>=] \d)")


def tie(text: str) -> str:
    """The text with signs, units and single letters tied to their numbers: no line breaks in ``D = 2`` or ``≥ 9 %``."""
    return _UNTIED.sub("\N{NO-BREAK SPACE}", text)
