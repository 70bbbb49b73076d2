"""What is said where an extra is missing, and what is advised about an error."""

from types import SimpleNamespace

import pytest

from hopscope.errors import UserError
from hopscope.language.inspect import evaluate, failures


def test_without_inspect(monkeypatch, tmp_path):
    monkeypatch.setattr(failures, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"inspect_ai, found none; install it with: pip install 'hopscope\[llm\]'"
    ):
        evaluate(["openai/m"], [], log_dir=tmp_path)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ValueError("two\nlines"), "two lines"),
        (SimpleNamespace(message="[bold]ERROR[/bold]: No key."), "No key"),
        (ValueError("[/not markup"), "[/not markup"),
        (KeyError(), "KeyError"),
    ],
)
def test_errors_in_one_line(error, found):
    assert failures.in_one_line(error) == found


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("AuthenticationError: Error code: 401 - no", "set the key"),
        ("RateLimitError: Error code: 429 - slow down", "ask fewer questions at a time"),
        ("APITimeoutError: Request timed out", "allow it more time"),
        (
            "APIConnectionError: Connection error (port 4290)",
            "check the model's name, its server and the network",
        ),
    ],
)
def test_advice(said, advice):
    assert advice in str(failures.as_user_error(ValueError(said), "m"))
