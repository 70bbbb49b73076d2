"""When a text is an answer: one plain normal form, and equality with an acceptable answer.

The prompts ask for the answer "directly, without any other words", and the paper repeats sampling until an
acceptable answer is given.  So nothing is dug out of a sentence here: a text that says more than the answer
is not acceptable, and the question is asked again.
"""

from collections.abc import Sequence

_QUOTES = "\"'`“”‘’«»"


def normal_form(text: str) -> str:
    """Bring a text to its normal form: no outer space, no quotes around it, no final full stop, lower case.

    >>> normal_form(' "Berlin." ')
    'berlin'
    >>> normal_form("The answer is 3")
    'the answer is 3'
    """
    bare = text.strip()
    while True:
        stripped = bare.strip(_QUOTES).strip().removesuffix(".").strip()
        if stripped == bare:
            return " ".join(bare.casefold().split())
        bare = stripped


def matched(text: str, acceptable: Sequence[str]) -> str | None:
    """Return the acceptable answer that a text gives, as the question writes it; None if it gives none."""
    given = normal_form(text)
    return next((answer for answer in acceptable if normal_form(answer) == given), None)
