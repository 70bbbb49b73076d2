"""The page's own forward pass and reading of sequences, run in Node, against PyTorch and the Python readers."""

import base64
import itertools
import json
import shutil
import subprocess
from importlib import resources

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.theory.sequences import read_sequence

TEMPLATES = resources.files("hopscope.report") / "templates"
SCRIPTS = [str(TEMPLATES / name) for name in ("forward.js", "permutation.js", "inputs.js")]
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node on the PATH")


def evaluate(body, value):
    """The JSON result of JavaScript that may use the page's scripts without a document, and `input`."""
    code = (
        f"{json.dumps(SCRIPTS)}.forEach(require);"
        "const { hopscopeForward: forward, hopscopePermutation: permutation, hopscopeInputs: inputs } = globalThis;"
        "const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        "const plain = (key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);"
        f"process.stdout.write(JSON.stringify((() => {{ {body} }})(), plain));"
    )
    command = [str(NODE), "-e", code]
    done = subprocess.run(
        command, input=json.dumps(value), capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


LOADED = "forward.load(each.config, each.layout, forward.unpack(each.weights, 'float32'))"
RUN = f"return input.map(each => forward.run({LOADED}, each.inputs, each.edits));"


def test_it_is_the_forward_pass_of_pytorch(forward_cases):
    forward_cases.compare(evaluate(RUN, forward_cases.cases()))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("post, relu, 2 heads", {"activation": "gelu"}),
        ("none, gelu, 3 layers", {"activation": "relu"}),
        ("none, gelu, 3 layers", {"heads": 1, "head_size": 6}),
        ("post, no MLP, everything visible", {"causal": True}),
        ("vectors, carried codes", {"causal": False}),
        ("pre, gelu, 3 heads, 2 layers, pair", {"codes": [0, 1, 1, 2, 2, 3, 3]}),
    ],
    ids=str,
)
def test_the_comparison_notices_another_pass(forward_cases, name, change):
    cases = forward_cases.cases()
    for case in cases:
        if case["name"].startswith(name):
            case["config"].update(change)
    with pytest.raises(AssertionError, match=name):
        forward_cases.compare(evaluate(RUN, cases))


def test_the_comparison_notices_edits_that_do_nothing(forward_cases):
    cases = [{**case, "edits": []} for case in forward_cases.cases()]
    with pytest.raises(AssertionError, match="1 edits"):
        forward_cases.compare(evaluate(RUN, cases))


@pytest.mark.parametrize(
    ("name", "shape"), [("readout.bias", "shape 13,"), ("final_norm.weight", "shape 17,")]
)
def test_a_missing_weight_is_named(forward_cases, name, shape):
    (case, *_) = [case for case in forward_cases.cases() if case["name"].startswith("pre, no MLP")]
    case["layout"] = [["other" if each == name else each, size] for each, size in case["layout"]]
    body = (
        f"const each = input; try {{ {LOADED}; return 'loaded'; }} catch (error) {{ return error.message; }}"
    )
    assert all(part in evaluate(body, case) for part in (name, shape, "null"))


def test_too_few_weights_are_refused(forward_cases):
    case = forward_cases.cases()[0]
    case["weights"] = case["weights"][:-16]
    body = (
        f"const each = input; try {{ {LOADED}; return 'loaded'; }} catch (error) {{ return error.message; }}"
    )
    assert "weights: expected" in evaluate(body, case)


def test_half_precision_is_read_as_numpy_writes_it():
    bits = np.arange(2**16, dtype="<u2").view("<f2")
    finite = bits[np.isfinite(bits)]
    text = base64.b64encode(finite.tobytes()).decode()
    found = evaluate("return forward.unpack(input, 'float16');", text)
    assert np.array_equal(np.array(found), finite.astype(np.float64))


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
      try { return { questions: permutation.questions(tokens, values), mapping: permutation.mapping(tokens, values) }; }
      catch (error) { if (error instanceof forward.Refusal) return null; throw error; }
    });"""
    asked = [{"tokens": t, "values": 3} for t in every] + [{"tokens": t, "values": 4} for t in four]
    expected = [None if refused(**each) else read(**each) for each in asked]
    assert 100 < sum(each is None for each in expected) < len(asked) - 100
    assert evaluate(body, asked) == expected


PARSE = """return input.map(([text, tokens, most]) => {
  try { return inputs.parse(text, tokens, most); }
  catch (error) { if (error instanceof forward.Refusal) return error.message; throw error; }
});"""
DIGITS, WORDS = list("012345"), ["a", "the", "of", "1"]


def test_typed_sequences():
    typed = [
        (["23 15 44 3", DIGITS, 9], [2, 3, 1, 5, 4, 4, 3]),
        ([" 2→3, 1→5, 4→? ", DIGITS, 9], [2, 3, 1, 5, 4]),
        (["of the, 1 of", WORDS, 4], [2, 1, 3, 2]),
    ]
    assert evaluate(PARSE, [given for given, _ in typed]) == [found for _, found in typed]


def test_typed_words_that_are_no_sequence():
    refused = [
        (["", DIGITS, 9], ("Type 1 to 9", "0 1 2 3 4 5")),
        (["23 16", DIGITS, 9], ("“6” at place 4",)),
        (["2x", DIGITS, 9], ("“x” at place 2",)),
        (["of thee", WORDS, 4], ("“thee” at place 2", "a the of 1")),
        (["2→3 1→5 4", DIGITS, 4], ("at most 4", "found 5")),
    ]
    for said, (_, parts) in zip(evaluate(PARSE, [given for given, _ in refused]), refused, strict=True):
        assert all(part in said for part in parts), said


@pytest.mark.parametrize(("ids", "tokens", "pairs", "text"), [
    ([2, 3, 1, 5, 4], DIGITS, True, "2→3 1→5 4"), ([2, 3, 1], DIGITS, False, "2 3 1"), ([2, 0], WORDS, True, "of a"),
])  # fmt: skip
def test_what_is_written_is_read_again(ids, tokens, pairs, text):
    body = """const [ids, tokens, pairs] = input, text = inputs.write(ids, tokens, pairs);
      return [text, inputs.parse(text, tokens, 9)];"""
    assert evaluate(body, [ids, tokens, pairs]) == [text, ids]


def test_symbols_of_vectors_are_told_apart_drawn_anew_and_exchanged():
    symbols = np.array([[1.0, -2.0], [0.5, 3.0], [1.0, -2.0], [4.0, 0.25]], dtype="<f4")
    codes = np.arange(12.0, dtype="<f4").reshape(4, 3)
    vectors = np.concatenate([symbols, codes], 1)
    targets = np.array([[0.5, 3.0, 1.0, -2.0], [7.0, 7.0, 4.0, 0.25]], dtype="<f4")
    body = """const rows = inputs.rows(input[0], 4), targets = inputs.rows(input[1], 2);
      const { different, of } = inputs.symbols(rows, 2), drawn = inputs.redrawn(different, 3);
      return { of, parts: inputs.parts(targets, different, 2), same: inputs.redrawn(different, 0),
        drawn, again: inputs.redrawn(different, 3), other: inputs.redrawn(different, 4),
        rebuilt: inputs.rebuilt(rows, 2, of, drawn, { 2: 1 }) };"""
    packed = [base64.b64encode(values.tobytes()).decode() for values in (vectors, targets)]
    found = evaluate(body, packed)
    assert found["of"] == [0, 1, 0, 2]
    assert found["parts"] == [[1, 0], [-1, 2]]
    assert found["same"] == symbols[[0, 1, 3]].tolist()
    assert found["drawn"] == found["again"] != found["other"]
    expected = [found["drawn"][at] for at in (0, 1, 1, 2)]
    assert found["rebuilt"] == [
        [*symbol, *code] for symbol, code in zip(expected, codes.tolist(), strict=True)
    ]


def test_symbols_drawn_anew_are_normal_and_as_large():
    body = """const row = () => Float64Array.from({ length: 53 }, (_, at) => (at % 2 ? 2 : -2));
      const given = Array.from({ length: 61 }, row);
      return inputs.redrawn(given, 5);"""
    drawn = np.array(evaluate(body, None))
    assert abs(drawn.mean()) < 0.1 and abs(drawn.std() - 2.0) < 0.1
    assert abs((np.abs(drawn) < 2.0).mean() - 0.683) < 0.03
