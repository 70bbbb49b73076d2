"""Every page of a built-in study that a test makes, of whatever run, keeps what a lead promises."""

import re
from typing import Any

import pytest

import hopscope.story.page

MOST_SENTENCES = 3


def check_lead(story: dict[str, Any]) -> None:
    """The lead has an answer of three sentences at most, all of them whole, and a chart of the run if it has any."""
    lead = story["lead"]
    assert lead is not None, f"{story['title']}: expected a lead"
    text = re.sub(r"\{n\d+\}", "0", lead["text"])
    assert 1 <= len(re.findall(r"[.!?](?= [A-Z0-9*]|$)", text)) <= MOST_SENTENCES, text
    assert text.endswith(".") and not re.search(r"\b(nan|inf|None)\b|no value|  ", text), text
    figures = [
        block for section in story["sections"] for block in section["blocks"] if block["kind"] == "figure"
    ]
    assert lead["figure"] is not None or not figures, text


@pytest.fixture(scope="session", autouse=True)
def leads() -> Any:
    """Check the lead of every page of a built-in study that is rendered; a user's own need not have one."""
    render = hopscope.story.page.render_page

    def checked(template: str | None, facts: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
        story = render(template, facts, *arguments, **named)
        if "/" in facts.template:  # which names the folder of a built-in study
            check_lead(story)
        return story

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hopscope.story.page, "render_page", checked)
        yield


@pytest.fixture(scope="module", autouse=True)
def units_are_trained_here(training_here: Any) -> Any:
    """Runs of these tests train their units in the test's process; workers have tests of their own."""
    with training_here():
        yield
