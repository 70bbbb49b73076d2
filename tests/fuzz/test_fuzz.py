"""Every reader of outside data, given a few hundred damaged inputs: the documented error, or a right result.

`python tests/fuzz/soak.py` gives them two hundred thousand (docs/reliability.md).
"""

import resource

import pytest
from fuzz_inputs import VALUES, chosen, damaged_bytes, damaged_json, seeded, written
from fuzz_readers import NAMES, Reader, World, outcome
from hypothesis import HealthCheck, Phase, given, settings

from hopscope.errors import UserError
from hopscope.strict_json import parse_json

INPUTS = 25
MOST_GROWTH_MIB = 512


@pytest.fixture(scope="module")
def readers(small_run, tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        # Where figures of this machine are kept.
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield {reader.name: reader for reader in World(small_run, tmp_path_factory.mktemp("world")).readers()}


def test_every_reader_is_listed(readers):
    assert list(readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_damaged_inputs_are_refused_or_read(readers, name):
    reader = readers[name]
    found = []
    inputs = min(INPUTS, max(3, round(INPUTS * reader.weight)))

    @settings(
        max_examples=inputs, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(seeded(reader.make))
    def check(content):
        found.append(outcome(reader, content))
        assert found[-1] in ("right", "refused"), (content, found[-1])

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    check()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < MOST_GROWTH_MIB
    assert len(found) >= inputs / 2


def test_a_fault_is_seen_and_made_small():
    """The fuzzer finds what it is for: a reader that trusts what it reads."""

    def trusting(content):
        try:
            value = parse_json(content)
        except ValueError as error:
            raise UserError(f"no JSON: {error}") from None
        return [each["count"] + 1 for each in value["rows"]]

    reader = Reader("trusting", damaged_json([{"rows": [{"count": 3}]}]), trusting, (UserError,))
    found = []

    @settings(max_examples=200)
    @given(chosen(reader.make))
    def check(content):
        found.append(outcome(reader, content))

    check()
    kinds = {each.partition(":")[0] for each in found}
    assert {"refused", "right", "KeyError", "TypeError"} <= kinds


def test_an_error_of_several_lines_is_a_fault():
    def wordy(content):
        raise ValueError("one\ntwo")

    assert (
        outcome(Reader("wordy", damaged_bytes([b"a"]), wordy, (ValueError,)), b"")
        == "an error of 2 lines: one\ntwo"
    )


def test_inputs_hold_what_python_does_not_write():
    text = written(VALUES)
    for piece in (b"[" * 20_000, b'"\\ud800"', b"NaN", b"1e999", b"9" * 5_000):
        assert piece in text
