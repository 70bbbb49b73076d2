"""Step counts from a text and from what the command said of it."""

import json

import pytest

from hopscope.cli.main import main
from hopscope.errors import UserError
from hopscope.language.corpus.file import StepCounts, read_counts

TEXT = "Anna knows Bert. Bert paints ships. Ships need tar. Anna tar. Bert tar. Anna ships."


def test_a_text_and_its_json_say_the_same(tmp_path, capsys):
    text = tmp_path / "ships.txt"
    text.write_text(TEXT, encoding="utf-8")
    assert main(["corpus", str(text), "--json"]) == 0
    said = capsys.readouterr().out
    found = read_counts(text)
    histogram = json.loads(said)["histogram"]
    assert found == StepCounts(
        text="ships.txt",
        tokens=sum(histogram.values()),
        counts=[histogram[str(step)] for step in range(1, 6)],
    )
    assert found.tokens == 14 and found.counts[2] == 1
    for name in ("said.json", "said.txt"):
        (tmp_path / name).write_text(said, encoding="utf-8")
        assert read_counts(tmp_path / name) == found


def test_steps_beyond_the_longest_chain_count_nothing():
    counts = StepCounts(text="t", tokens=23, counts=(7, 5, 3))
    assert [counts.needing(steps) for steps in (1, 2, 3, 4)] == [7, 5, 3, 0]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("no JSON here", "text.json", "found none; name another"),
        ('{"config": 1}', "text.txt", "found other JSON; name another"),
        ("[1, 2]", "text.json", "found other JSON; name another"),
        ('{"file": "t", "histogram": {"1": 3, "3": 2}}', "text.json", "found counts of 1, 3 steps"),
        ('{"file": "t", "histogram": {"new": 3}}', "text.json", "found counts of no steps"),
        ('{"file": "t", "histogram": {"1": "x"}}', "text.json", "found counts that are no numbers"),
        ('{"file": "t", "histogram": {"1": -3, "2": 5}}', "text.json", "expected numbers of words, 2 in all"),
        ('{"file": "t", "histogram": {"1": 0}}', "text.json", "tokens: expected greater than or equal to 1"),
        ('{"file": "t", "histogram": {"²": 3}}', "text.json", "found counts of no steps"),
        ('{"file": "t", "histogram": {"٣": 3}}', "text.json", "found counts of ٣ steps"),
        ('{"file": "t", "histogram": {"1": 7, "02": 3}}', "text.json", "found counts of 1, 02 steps"),
        ('{"file": "t", "histogram": {"1": 1e999}}', "text.json", "found none; name another"),
        ("[" * 20_000, "text.json", "found none; name another"),
        ("word", "text.txt", "expected at least two content words"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, content, name, said):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=said) as error:
        read_counts(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_said_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.txt: expected a readable file"):
        read_counts(tmp_path / "nothing.txt")
