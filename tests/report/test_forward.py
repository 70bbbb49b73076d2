"""The page's own forward pass and reading of sequences, run in Node, against PyTorch and the Python readers."""

import itertools
import json
import shutil
import subprocess
from importlib import resources

import pytest

from hopscope.errors import UserError
from hopscope.theory.sequences import read_sequence

SCRIPT = resources.files("hopscope.report") / "templates" / "forward.js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node on the PATH")


def evaluate(body, value):
    """The JSON result of JavaScript that may use `forward` and `input`."""
    code = (
        f"require({json.dumps(str(SCRIPT))}); const forward = globalThis.hopscopeForward;"
        "const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"process.stdout.write(JSON.stringify((() => {{ {body} }})()));"
    )
    command = [str(NODE), "-e", code]
    done = subprocess.run(
        command, input=json.dumps(value), capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


RUN = "return input.map(each => forward.run(forward.load(each.model), each.tokens));"


def test_it_is_the_forward_pass_of_pytorch(forward_cases):
    forward_cases.compare(evaluate(RUN, forward_cases.cases()))


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(norm="none"),
        lambda config: config.update(activation="gelu"),
        lambda config: config.update(heads=1, head_size=10),
    ],
    ids=["norm", "activation", "heads"],
)
def test_the_comparison_notices_another_pass(forward_cases, change):
    cases = forward_cases.cases()
    change(cases[0]["model"]["config"])
    with pytest.raises(AssertionError, match="post, relu, 2 heads: plain"):
        forward_cases.compare(evaluate(RUN, cases))


@pytest.mark.parametrize(
    ("name", "shape"), [("readout.bias", "shape 6,"), ("embed.position.weight", "shape 9,10,")]
)
def test_a_missing_weight_is_named(forward_cases, name, shape):
    model = forward_cases.cases()[0]["model"]
    del model["weights"][name]
    body = "try { forward.load(input); return 'loaded'; } catch (error) { return error.message; }"
    assert all(part in evaluate(body, model) for part in (name, shape, "null"))


def read(tokens, values):
    reading = read_sequence(tokens, values)
    names = ("x", "seen", "used", "target", "recall", "elimination", "ideal")
    questions = [{name: getattr(question, name) for name in names} for question in reading.questions]
    return json.loads(json.dumps({"questions": questions, "mapping": reading.mapping}))


def refused(tokens, values):
    try:
        read_sequence(tokens, values)
    except UserError:
        return True
    return False


def test_sequences_are_read_as_python_reads_them():
    every = [list(tokens) for length in (5, 6) for tokens in itertools.product((1, 2, 3), repeat=length)]
    four = [[1, 3, 2, 4, 1, 3, 4, 1], [1, 3, 1, 3, 1, 3, 2], [4, 4, 3, 3, 2, 2, 3, 3], [4, 2, 3, 3, 4, 2, 3]]
    body = """return input.map(({ tokens, values }) => {
      try { return { questions: forward.questions(tokens, values), mapping: forward.mapping(tokens, values) }; }
      catch (error) { if (error instanceof forward.Refusal) return null; throw error; }
    });"""
    asked = [{"tokens": t, "values": 3} for t in every] + [{"tokens": t, "values": 4} for t in four]
    expected = [None if refused(**each) else read(**each) for each in asked]
    assert 100 < sum(each is None for each in expected) < len(asked) - 100
    assert evaluate(body, asked) == expected


PARSE = """return input.map(([text, values]) => {
  try { return forward.parse(text, values); }
  catch (error) { if (error instanceof forward.Refusal) return error.message; throw error; }
});"""


def test_typed_sequences():
    typed = {
        ("23 15 44 32 51", 5): [2, 3, 1, 5, 4, 4, 3, 2, 5, 1],
        ("2315443251", 5): [2, 3, 1, 5, 4, 4, 3, 2, 5, 1],
        (" 2→3, 1→5, 4→? ", 5): [2, 3, 1, 5, 4],
        ("1:10; 12->11 3", 12): [1, 10, 12, 11, 3],
    }
    assert evaluate(PARSE, list(typed)) == list(typed.values())


def test_typed_words_that_are_no_sequence():
    refused = {
        ("", 5): ("Type tokens", "1 to 5"),
        ("?", 5): ("Type tokens", "1 to 5"),
        ("23 16", 5): ("1 to 5", "“6” at place 4"),
        ("23 0", 5): ("1 to 5", "“0” at place 3"),
        ("2? 3", 5): ("1 to 5", "“?” at place 2"),
        ("2x", 5): ("1 to 5", "“x” at place 2"),
        ("1 13", 12): ("1 to 12", "“13” at place 2"),
        ("23 15 44 32 51 2", 5): ("at most 10", "found 11"),
    }
    for said, parts in zip(evaluate(PARSE, list(refused)), refused.values(), strict=True):
        assert all(part in said for part in parts), said
