"""`make quick` runs the files of `quick.txt`: they exist, and each room of the package has one."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LISTED = TESTS.joinpath("quick.txt").read_text(encoding="utf-8").split()
ROOMS = sorted(path.parent.name for path in TESTS.parent.glob("src/hopscope/*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_a_quick_file(room):
    assert [path for path in LISTED if path.startswith(f"tests/{room}/")]


def test_every_quick_file_is_there_once():
    assert len(ROOMS) > 10
    assert sorted(set(LISTED)) == LISTED
    assert all(TESTS.parent.joinpath(path).is_file() for path in LISTED)
