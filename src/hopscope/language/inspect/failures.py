"""What can go wrong with a language model, as one line that says what to do."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.errors import UserError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_MALFORMED = re.compile(r"(Type|Key|Index|Attribute|JSONDecode|Validation)Error\(")
"""What the clients raise when they read a reply of another form."""


def check_installed() -> None:
    """Refuse to begin without Inspect.

    Raises:
        UserError: with the install command.
    """
    if find_spec("inspect_ai") is None:
        raise UserError(
            "language models: expected the package inspect_ai, found none; install it with: "
            "pip install 'hopscope[llm]'"
        )


def as_user_error(error: Exception, model: str) -> UserError:
    """Say in one line why a model could not be asked."""
    if isinstance(error, UserError):
        return error
    found = in_one_line(error)
    if any(kind.__name__ == "ClickException" for kind in type(error).__mro__):
        return UserError(found)  # a provider of ours, which has said what to do; Inspect brings click along
    return UserError(f"{model}: expected a model that can be asked, found: {found}; {_advice(found)}")


def failure_of(log: "EvalLog", model: str, log_dir: Path) -> UserError:
    """Say in one line why an evaluation ended early, and what is kept of it."""
    message = log.error.message if log.error else f"the evaluation ended with status {log.status}"
    found = _flat(message)
    if _MALFORMED.match(found):
        found = f"a reply that is no chat completion ({found})"
    elif inner := re.fullmatch(r"NoReplyError\((['\"])(.*)\1\)", found):
        found = inner[2]
    kept = sum(1 for sample in log.samples or [] if sample.scores and not sample.error)
    total = (log.eval.dataset.samples or 0) * (log.eval.config.epochs or 1)
    return UserError(
        f"{model}: expected answers, found: {found}; {kept} of {total} questions are answered and kept in "
        f"{log_dir}; {_advice(found)}, then repeat the command, which goes on there"
    )


# The first that is found in the words of an error says what to do.
_ADVICE = (
    (r"api_key|environment variable|authentication|\b401\b", "set the key that this provider reads"),
    (r"not recognized|<api_name>", "name the model as PROVIDER/MODEL, with a provider that Inspect knows"),
    (r"pip install", "install what it names"),
    (r"timeout|timed out", "check that the server answers, or allow it more time (timeout)"),
    (r"\b429\b|rate limit", "wait, or ask fewer questions at a time (max_connections)"),
    (r"", "check the model's name, its server and the network"),
)


def _advice(found: str) -> str:
    return next(advice for pattern, advice in _ADVICE if re.search(pattern, found, re.IGNORECASE))


def in_one_line(error: Exception) -> str:
    """What an error says, without markup and line breaks."""
    # Inspect's own errors carry rich markup and hold their text in `message`.
    message = getattr(error, "message", None)
    text = str(message) if message is not None else str(error)
    return _flat(text) or type(error).__name__


def _flat(text: str) -> str:
    from rich.errors import MarkupError
    from rich.text import Text

    try:
        plain = Text.from_markup(text).plain
    except MarkupError:
        plain = text
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return " ".join(lines)[:300].removeprefix("ERROR: ").rstrip(".;")
