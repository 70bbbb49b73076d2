"""`hopscope questions`: the JSON lines that others rely on, the words for a reader, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope.errors
from hopscope.tasks.text import FORMULATIONS, TextConfig, questions

KEYS = ["id", "formulation", "depth", "chains", "prompt", "answer", "acceptable"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(hopscope.errors.__file__).parents[1])}


@pytest.fixture
def lines(hopscope):
    """The JSON lines of a command line."""

    def run(*words):
        said = hopscope("questions", *words, "--json")
        assert (said.status, said.err) == (0, "")
        assert said.out.endswith("\n")
        return [json.loads(line) for line in said.out.splitlines()]

    return run


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_json_lines_are_those_of_the_library(lines, formulation):
    told = lines(formulation, "--count", 6, "--seed", 9)
    assert all(list(line) == KEYS for line in told)
    asked = questions(TextConfig(formulation=formulation), 6, seed=9)
    assert told == [
        {key: getattr(one, key) for key in KEYS} | {"acceptable": list(one.acceptable)} for one in asked
    ]


def test_depth_and_chains(lines):
    (told,) = lines("equations", "--count", 1, "--depth", 7, "--chains", 5, "--seed", 0)
    assert (told["id"], told["depth"], told["chains"]) == ("equations-d7-n5-s0-000000", 7, 5)
    assert len(told["prompt"].splitlines()) == 7 * 5 + 1
    assert told["acceptable"] == ["0", "1", "2", "3", "4"]


def test_a_formulation_may_be_written_as_in_the_paper(lines):
    words = ("--count", 2, "--seed", 1)
    assert lines("lives-with", *words) == lines("lives_with", *words)


def test_the_order_of_options_does_not_matter(lines):
    assert lines("--seed", 3, "--count", 2, "functions") == lines("functions", "--count", 2, "--seed", 3)


def test_the_seed_decides(lines):
    told = [tuple(line["prompt"] for line in lines("kingdoms", "--count", 3, "--seed", s)) for s in (0, 0, 1)]
    assert told[0] == told[1]
    assert not set(told[0]) & set(told[2])


def test_for_a_reader(hopscope, lines):
    said = hopscope("questions", "relatives", "--count", 2, "--seed", 4)
    assert (said.status, said.err) == (0, "")
    first, second = lines("relatives", "--count", 2, "--seed", 4)
    expected = "".join(
        f"{one['id']}\n{one['prompt']}\nCorrect: {one['answer']}\nAcceptable: {', '.join(one['acceptable'])}\n\n"
        for one in (first, second)
    )
    assert said.out == expected


def test_ten_questions_of_seed_0_unless_told_otherwise(lines):
    assert lines("kingdoms") == lines("kingdoms", "--count", 10, "--seed", 0)


@pytest.mark.parametrize(
    ("words", "found_words"),
    [
        ((), ["FORMULATION"]),
        (("--count", "3", "--seed", "0"), ["FORMULATION"]),
        (("equation", "--count", "3"), ["formulation", "'equations'", "found 'equation'"]),
        (("equations", "--cuont", "3"), ["--cuont"]),
        (("riddles", "--count", "3", "--seed", "0"), ["formulation", "'equations'", "'relatives'", "'riddles'"]),
        (("", "--count", "3", "--seed", "0"), ["formulation", "found ''"]),
        (("equations", "--count", "0", "--seed", "0"), ["count: expected at least 1, found 0"]),
        (("equations", "--count", "-3", "--seed", "0"), ["count: expected at least 1, found -3"]),
        (("equations", "--count", "many", "--seed", "0"), ["--count", "'many'"]),
        (("equations", "--count", "1", "--seed", "-1"), ["seed: expected at least 0, found -1"]),
        (("equations", "--count", "1", "--seed", str(2**63)), ["seed", "2**63 - 1"]),
        (("equations", "--count", "1", "--seed", "0", "--depth", "0"), ["depth: expected at least 1, found 0"]),
        (("equations", "--count", "1", "--seed", "0", "--depth", "176"), ["702", "176 · 4 = 704"]),
        (("equations", "--count", "1", "--seed", "0", "--chains", "1"), ["chains: expected at least 2, found 1"]),
        (("lives-with", "--count", "1", "--seed", "0", "--depth", "91"), ["363", "91 · 4 = 364"]),
        (("lives_with", "--count", "1", "--seed", "0", "--chains", "76"), ["75 cities", "found 76"]),
        (("kingdoms", "--count", "1", "--seed", "0", "--depth", "4"), ["expected 5 for kingdoms, found 4"]),
        (("kingdoms", "--count", "1", "--seed", "0", "--chains", "27"), ["26 kingdoms", "found 27"]),
        (("functions", "--count", "1", "--seed", "0", "--depth", "3"), ["expected 2 for functions, found 3"]),
        (("functions", "--count", "1", "--seed", "0", "--chains", "3"), ["expected 4 for functions, found 3"]),
        (("relatives", "--count", "1", "--seed", "0", "--depth", "5"), ["expected 4 for relatives, found 5"]),
        (("relatives", "--count", "1", "--seed", "0", "--chains", "5"), ["expected 4 for relatives, found 5"]),
        (
            ("equations", "--count", "9", "--seed", "0", "--depth", "1", "--chains", "2"),
            ["count: expected at most 8", "found 9"],
        ),
        (("equations", "extra", "--count", "1", "--seed", "0"), ["extra", "questions --help"]),
        (("equations", "--count", "1", "--seed", "0", "--steps", "3"), ["--steps", "questions --help"]),
    ],
)  # fmt: skip
def test_refused(hopscope, words, found_words):
    complaint = hopscope("questions", *words).complaint
    assert all(part in complaint for part in found_words), complaint
    assert hopscope("questions", *words, "--json").complaint == complaint


def children_seconds():
    """Processor time of ended children: what a command takes of one core, however busy the machine is."""
    times = os.times()
    return times.children_user + times.children_system


def test_it_starts_at_once_and_without_torch_or_numpy():
    code = (
        "import sys; from hopscope.cli.main import main; "
        "status = main(['questions', 'equations', '--count', '2', '--seed', '0']); "
        "sys.exit(status + 7 + 2 * len({'torch', 'numpy'} & set(sys.modules)))"
    )
    times = []
    for _ in range(3):
        began = children_seconds()
        done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, check=False)
        times.append(children_seconds() - began)
        assert done.returncode == 7, done.stderr
    assert min(times) < 1.0


@pytest.mark.parametrize("count", ["40", "1000000000"], ids=["in the buffer", "endless"])
def test_a_reader_may_go_away(count):
    """Such as `| head`: nothing is said, and nothing more is made."""
    command = [
        sys.executable,
        "-m",
        "hopscope",
        "questions",
        "equations",
        "--seed",
        "0",
        "--json",
        "--count",
        count,
    ]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        if count != "40":
            assert json.loads(process.stdout.readline())["id"].endswith("-000000")
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=20)


@pytest.mark.soak
@pytest.mark.parametrize("formulation", ["equations", "relatives"])
def test_a_hundred_thousand_in_twenty_seconds(formulation, tmp_path):
    command = [sys.executable, "-m", "hopscope", "questions", formulation, "--count", "100000", "--seed", "0"]
    began = children_seconds()
    with (tmp_path / "lines").open("wb") as output:
        subprocess.run([*command, "--json"], env=ENVIRONMENT, stdout=output, check=True)
    assert children_seconds() - began < 20.0
    ids = [json.loads(line)["id"] for line in (tmp_path / "lines").read_text(encoding="utf-8").splitlines()]
    assert len(set(ids)) == 100000
