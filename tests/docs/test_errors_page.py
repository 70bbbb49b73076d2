"""The page of all errors is made from the source, and no room's messages are left out."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("docs_errors", DOCS / "errors.py")
errors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(errors)


def test_the_page_has_every_message():
    page = errors.PAGE.read_text(encoding="utf-8")
    assert errors.renewed(page) == page, "run python docs/errors.py"
    assert all(f"<!-- errors: {group} -->" in page for group in errors.GROUPS)


def test_every_room_that_tells_of_errors_has_a_group():
    rooms = [room for group in errors.GROUPS.values() for room in group]
    assert len(rooms) == len(set(rooms))
    assert errors.rooms_with_messages() <= set(rooms)


def test_messages_are_found_wherever_they_are_made():
    source = """
_DAMAGED = "record: expected a whole one, found half"

def refuse(path, error):
    if path:
        raise UserError(f"{path}: expected a file, found {error.reason}: " + "look again")
    raise UserError(_DAMAGED) from None

def made(error):
    return UserError(str(error))

def other():
    raise ValueError("a program's own mistake")
"""
    assert errors.messages(source) == {
        "‹path›: expected a file, found ‹…›: look again",
        "record: expected a whole one, found half",
    }
