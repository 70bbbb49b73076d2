"""`hopscope theory`: the JSON that others rely on, the words and pictures for a reader, and what is refused."""

import itertools
import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope.errors
from hopscope.theory.information_flow import exact_layers_single_target, layers_per_step

KEYS = [
    "steps",
    "mask",
    "order",
    "bound",
    "bound_layers",
    "exact_layers",
    "exact_layers_single_target",
    "per_step",
]


@pytest.fixture
def found(hopscope):
    """What a command line finds, as JSON."""

    def run(*words):
        said = hopscope("theory", *words, "--json")
        assert (said.status, said.err) == (0, "")
        return json.loads(said.out)

    return run


def test_json_of_the_defaults(found):
    three = found("--steps", 3)
    assert list(three) == KEYS
    assert three.pop("bound") == pytest.approx(math.log(6, 3))
    assert three == {
        "steps": 3,
        "mask": "causal",
        "order": "deepest-first",
        "bound_layers": 2,
        "exact_layers": 3,
        "exact_layers_single_target": 3,
        "per_step": {"1": 2, "2": 3, "3": 3},
    }
    assert found("--steps", 1)["exact_layers"] == 2


@pytest.mark.parametrize(
    ("words", "order", "layers"),
    [
        (("--mask", "none"), "deepest-first", 3),
        (("--order", "shallowest-first"), "shallowest-first", 4),
        (("--order", "1,2,4,3"), [1, 2, 4, 3], 3),
        (("--order", "4, 3, 2, 1"), [4, 3, 2, 1], 4),
        (("--mask", "none", "--order=2,4,1,3"), [2, 4, 1, 3], 3),
    ],
)
def test_masks_and_orders(found, words, order, layers):
    four = found("--steps", 4, *words)
    assert (four["order"], four["exact_layers"], four["exact_layers_single_target"]) == (order, layers, 4)


def test_a_long_chain(found):
    longest = found("--steps", 1024)
    assert (longest["exact_layers"], longest["exact_layers_single_target"], longest["bound_layers"]) == (
        12,
        12,
        7,
    )
    assert list(longest["per_step"]) == [str(step) for step in range(1, 1025)]


def picture(out):
    """Layer title → rows of marks."""
    pictures = {}
    for line in out[out.index("the input") :].splitlines():
        if line and not line.startswith(" "):
            pictures[line.split("  ")[0]] = rows = []
        elif line:
            rows.append("".join(mark for mark in line if mark in "■◆·"))
    return pictures


def test_words_and_picture(hopscope):
    said = hopscope("theory", "--steps", 2)
    assert (said.status, said.err) == (0, "")
    assert "in time: x₁x₂  x₀x₁  x₀ (query)" in said.out
    assert "3 layers can bring x₂ to the query, fewer cannot." in said.out
    assert "log₃(2·2) = 1.262, says: at least 2." in said.out
    assert picture(said.out) == {
        "the input": ["■····", "■■···", "·■■··", "··■■·", "···■■"],
        "after layer 1": ["■◆···", "■■···", "◆■■◆·", "··■■·", "··◆■■"],
        "after layer 2": ["■■◆◆·", "■■···", "■■■■◆", "··■■·", "··■■■"],
        "after layer 3": ["■■■■◆", "■■···", "■■■■■", "··■■·", "··■■■"],
    }
    assert max(map(len, said.out.splitlines())) <= 160


def test_table_groups_steps_that_need_the_same(hopscope):
    out = hopscope("theory", "--steps", 5).out
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")
    ]
    assert rows == [
        ["x₁", "1", "2", "2"],
        ["x₂ … x₃", "2", "3", "3"],
        ["x₄", "2", "4", "4"],
        ["x₅", "3", "4", "4"],
    ]


def test_a_long_chain_in_words(hopscope):
    out = hopscope("theory", "--steps", 40, "--mask", "none").out
    assert "x₃₉x₄₀  x₃₈x₃₉  x₃₇x₃₈  …  x₂x₃  x₁x₂  x₀x₁  x₀ (query).  A position sees everything." in out
    reach = [line.split("… ")[1] for line in out.splitlines() if line.startswith("  after layer")]
    # (3^t − 1)/2 pieces beyond x₀: 1, 4, 13, 40, then the end of the chain.
    assert reach == ["p₁", "x₂", "p₇", "x₂₀", "x₄₀"]
    assert "■" not in out


@pytest.mark.parametrize(
    ("words", "found_words"),
    [
        ((), ["--steps"]),
        (("--steps", "0"), ["steps: expected at least 1, found 0"]),
        (("--steps", "-3"), ["steps: expected at least 1, found -3"]),
        (("--steps", "1025"), ["steps: expected at most 1024, found 1025"]),
        (("--steps", "three"), ["--steps", "'three'"]),
        (("--steps", "2.5"), ["--steps", "'2.5'"]),
        (("--steps", "3", "--mask", "full"), ["--mask", "'full'", "'causal', 'none'"]),
        (("--steps", "3", "--order", "random"), ["order: expected deepest-first, shallowest-first", "'random'"]),
        (("--steps", "3", "--order", "3,1"), ["order: expected each of 1 to 3 once, found 3,1;"]),
        (("--steps", "3", "--order", "3,1,1"), ["order: expected each of 1 to 3 once, found 3,1,1;"]),
        (("--steps", "3", "--order", "3,1,4"), ["order: expected each of 1 to 3 once, found 3,1,4;"]),
        (("--steps", "3", "--order", "3;1;2"), ["order", "'3;1;2'", "write 3,2,1 for pair numbers"]),
        (("--steps", "3", "--order", ""), ["order", "''"]),
        (("--steps", "3", "--depth", "2"), ["--depth", "theory --help"]),
    ],
)  # fmt: skip
def test_refused(hopscope, words, found_words):
    complaint = hopscope("theory", *words).complaint
    assert all(part in complaint for part in found_words), complaint
    assert hopscope("theory", *words, "--json").complaint == complaint


def test_counts_are_those_of_the_library(found):
    for steps, mask in itertools.product((1, 2, 6, 13), ("causal", "none")):
        told = found("--steps", steps, "--mask", mask, "--order", "shallowest-first")
        assert told["per_step"] == {
            str(k): count for k, count in layers_per_step(steps, mask, "shallowest-first").items()
        }
        assert told["exact_layers"] == told["per_step"][str(steps)]
        assert told["exact_layers_single_target"] == exact_layers_single_target(steps)


def test_it_starts_at_once_and_without_torch():
    code = (
        "import sys; from hopscope.cli.main import main; "
        "sys.exit(main(['theory', '--steps', '64', '--json']) + 7 + int('torch' in sys.modules))"
    )
    source = Path(hopscope.errors.__file__).parents[1]
    times = []
    for _ in range(3):
        # Its own processor time: the clock would measure who else is at work.
        began = _of_children()
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(source)},
            capture_output=True,
            check=False,
        )
        times.append(_of_children() - began)
        assert done.returncode == 7, done.stderr
    assert min(times) < 1.0


def _of_children():
    """Processor time of all processes that were started and have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
