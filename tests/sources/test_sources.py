"""The normalised source changes with what code does, and with nothing else."""

import dataclasses
import functools
import importlib.util
import statistics
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BeforeValidator

from hopscope.claims import Samples
from hopscope.sources import normalised_source, source_hash
from hopscope.studies.recipe import exact_of

HELPERS = """
SLACK = 2

def score(number):
    return number + SLACK
"""

STUDY = """
import functools
import math

import numpy as np

import {helpers}
from {helpers} import score as scored

LIMIT = 5


class Base:
    width: int = 3


class Copy(Base):
    length: int = LIMIT

    def sample(self, draws):
        return np.ones(self.length) * helper(draws)


def helper(number, power=7):
    return math.sqrt(number) ** power


def value(evidence):
    return helper(scored(evidence)) + LIMIT


def through_module(evidence):
    return {helpers}.score(evidence)


def local_import(evidence):
    from {helpers} import SLACK
    return evidence * SLACK


def recursive(evidence):
    return recursive(evidence - 1) if evidence else other(evidence)


def other(evidence):
    return recursive(evidence)


def made(number):
    return lambda evidence: evidence + number


eleven = made(11)
one, two = (lambda evidence: evidence + 1), (lambda evidence: evidence + 2)
nested = lambda evidence: [lambda evidence: evidence + 3, 13]
partial_of = functools.partial(helper, power=17)
"""


class Files:
    """Writes modules into a folder and imports them under names of their own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.loaded = []

    def load(self, study=STUDY, helpers=HELPERS):
        number = len(self.loaded)
        folder = self.folder / str(number)
        folder.mkdir()
        names = [f"helpers_{id(self)}", f"study_{id(self)}"]
        for name in names:
            sys.modules.pop(name, None)
        for name, text in zip(names, (helpers, study.replace("{helpers}", names[0])), strict=True):
            path = folder / f"{name}.py"
            path.write_text(text, encoding="utf-8")
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        self.loaded.append(names)
        return module


@pytest.fixture
def files(tmp_path):
    files = Files(tmp_path)
    yield files
    for name in {name for names in files.loaded for name in names}:
        sys.modules.pop(name, None)


EVERYTHING = [
    *(
        "Copy",
        "value",
        "through_module",
        "local_import",
        "recursive",
        "eleven",
        "one",
        "two",
        "nested",
        "partial_of",
    )
]


def hashes(module):
    return {name: source_hash(getattr(module, name)) for name in EVERYTHING}


def test_every_object_has_a_hash_of_its_own(files):
    found = hashes(files.load())
    assert len({*found.values()}) == len(EVERYTHING)
    assert all(len(each) == 64 and int(each, 16) >= 0 for each in found.values())


HELPER = STUDY[STUDY.index("def helper") : STUDY.index("def value")]
UNUSED = "import json\n\nUNUSED = json\n\n\ndef unused():\n    return 23\n"
SAME = {
    "comment": lambda text: text.replace("LIMIT = 5", "LIMIT = 5  # a comment\n# another"),
    "docstring": lambda text: text.replace(
        "def value(evidence):", 'def value(evidence):\n    """Say what."""'
    ),
    "attribute docstring": lambda text: text.replace("int = LIMIT", 'int = LIMIT\n    """How long."""'),
    "format": lambda text: text.replace(
        "helper(scored(evidence)) + LIMIT", "(\n  helper( scored(evidence) )\n + LIMIT)"
    ),
    "move": lambda text: text.replace(HELPER, "").replace("class Base", f"{HELPER}class Base"),
    "unused": lambda text: f"{UNUSED}{text}",
    "lambda format": lambda text: text.replace("evidence + 3, 13]", "evidence+3,\n    13]"),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_changes_nothing_changes_no_hash(files, change):
    assert change(STUDY) != STUDY
    assert hashes(files.load(change(STUDY))) == hashes(files.load())


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda text: text.replace("LIMIT = 5", "LIMIT = 7"), {"Copy", "value"}),
        (lambda text: text.replace("power=7", "power=3"), {"Copy", "value", "partial_of"}),
        (lambda text: text.replace("math.sqrt", "math.exp"), {"Copy", "value", "partial_of"}),
        (lambda text: text.replace("width: int = 3", "width: int = 5"), {"Copy"}),
        (lambda text: text.replace("np.ones", "np.zeros"), {"Copy"}),
        (lambda text: text.replace("made(11)", "made(13)"), {"eleven"}),
        (lambda text: text.replace("evidence + 2)", "evidence + 5)"), {"two"}),
        (lambda text: text.replace("evidence + 1)", "evidence + 5)"), {"one"}),
        (lambda text: text.replace("evidence + 3", "evidence + 5"), {"nested"}),
        (lambda text: text.replace("power=17", "power=19"), {"partial_of"}),
        (lambda text: text.replace("return recursive(evidence)\n", "return 1\n"), {"recursive"}),
        (lambda text: text.replace("import numpy as np", "import math as np"), {"Copy"}),
    ],
)  # fmt: skip
def test_what_is_used_counts(files, change, changed):
    assert change(STUDY) != STUDY
    before, after = hashes(files.load()), hashes(files.load(change(STUDY)))
    assert {name for name in EVERYTHING if before[name] != after[name]} == changed


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda text: text.replace("number + SLACK", "number - SLACK"), {"value", "through_module"}),
        (lambda text: text.replace("SLACK = 2", "SLACK = 3"), {"value", "through_module", "local_import"}),
        (lambda text: text.replace("def score", "# here\ndef score"), set()),
    ],
)
def test_a_module_in_the_same_folder_counts(files, change, changed):
    before, after = hashes(files.load()), hashes(files.load(helpers=change(HELPERS)))
    assert {name for name in EVERYTHING if before[name] != after[name]} == changed


def test_a_file_and_its_data_may_move_together(tmp_path):
    texts = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "reads.py"
        path.write_text(
            "from pathlib import Path\nDATA = Path(__file__).parent / 'words.txt'\nFAR = Path('/etc/x')\n"
            "def value(evidence):\n    return DATA, FAR\n",
            encoding="utf-8",
        )
        spec = importlib.util.spec_from_file_location(f"reads_{folder}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        texts.append(normalised_source(module.value))
    assert texts[0] == texts[1]
    assert "Path('words.txt')" in texts[0] and "Path('/etc/x')" in texts[0]


def test_lambdas_of_one_line_differ(files):
    module = files.load()
    assert normalised_source(module.one) == "lambda evidence: evidence + 1\n"
    assert normalised_source(module.two) == "lambda evidence: evidence + 2\n"
    assert normalised_source(module.nested) == "lambda evidence: [lambda evidence: evidence + 3, 13]\n"
    assert normalised_source(module.nested(0)[0]) == "lambda evidence: evidence + 3\n"


def test_the_text_can_be_read(files):
    module = files.load()
    text = normalised_source(module.value)
    assert text.startswith("def value(evidence):\n    return helper(scored(evidence)) + LIMIT\n")
    for part in (
        "# scored\ndef score(number):",
        "# LIMIT\n5\n",
        "# math\nmodule math\n",
        "# SLACK\n2\n",
        "default 0 = 7",
    ):
        assert part in text
    assert "sqrt(number)" in text and "def sqrt" not in text


def test_several_objects_share_what_they_use(files):
    module = files.load()
    both = normalised_source(module.one, module.value)
    assert both.startswith("lambda evidence: evidence + 1\n\ndef value")
    assert normalised_source(module.value, module.Copy).count("def helper") == 1
    assert source_hash(module.one, module.two) != source_hash(module.two, module.one)


def test_what_a_library_does_is_not_read():
    text = normalised_source(uses_pytest)
    assert text == "def uses_pytest(number):\n    return pytest.approx(number)\n\n# pytest\nmodule pytest\n"
    assert (
        normalised_source(functools.partial(statistics.mean, 7))
        == "functools.partial(statistics.mean, tuple(7), dict())\n"
    )


def uses_pytest(number):
    return pytest.approx(number)


def test_hopscope_itself_is_named_only_but_for_what_decides_claims():
    text = normalised_source(makes_samples)
    assert "# Samples\nhopscope.claims.samples.Samples\n" in text  # a library to whoever uses it
    inside = normalised_source(exact_of)
    assert "def exact_layers" in inside  # in a built-in study, theory is part of the claim
    assert "class Config(BaseModel)" not in inside


def makes_samples():
    return Samples([1.0])


@dataclasses.dataclass(frozen=True)
class Setting:
    length: int = 3
    table: tuple = (1, 2)

    @property
    def double(self):
        return 2 * self.length

    def value(self, evidence):
        return evidence * self.double


def test_instances_and_methods_count_with_what_they_hold():
    assert source_hash(Setting(3)) == source_hash(Setting(3)) != source_hash(Setting(5))
    assert source_hash(Setting(3).value) != source_hash(Setting(5).value)
    assert source_hash(Setting(3).value) != source_hash(Setting(3))
    assert "def double(self)" in normalised_source(Setting(3).value)
    assert (
        source_hash({"b": [1], "a": {3, 2}})
        == source_hash({"b": [1], "a": {2, 3}})
        != source_hash({"b": [2]})
    )


def test_decorated_functions_are_read_through():
    @functools.cache
    def cached(number):
        return number + 29

    assert "number + 29" in normalised_source(cached)


def test_closures_of_plain_functions_count():
    def outer(limit):
        count = 0

        def inner(evidence):
            nonlocal count
            count += limit
            return count + evidence

        return inner

    assert source_hash(outer(3)) == source_hash(outer(3)) != source_hash(outer(5))


def test_code_without_source_has_its_bytecode():
    def typed(text):
        names = {"__name__": "__main__"}
        exec(compile(text, "<stdin>", "exec"), names)
        return names

    first = typed("LIMIT = 3\ndef value(e):\n    return e + LIMIT\n")
    moved = typed("\n\nLIMIT = 3\ndef value(e):\n    # words\n    return e + LIMIT\n")
    other = typed("LIMIT = 3\ndef value(e):\n    return e - LIMIT\n")
    limit = typed("LIMIT = 5\ndef value(e):\n    return e + LIMIT\n")
    assert source_hash(first["value"]) == source_hash(moved["value"])
    assert len({source_hash(each["value"]) for each in (first, other, limit)}) == 3
    classes = [
        typed(f"class Copy:\n    back: int = {back}\n    def f(self): return {x}\n")
        for back, x in ((3, 1), (3, 2), (5, 1))
    ]
    assert len({source_hash(each["Copy"]) for each in classes}) == 3
    again = typed("class Copy:\n    back: int = 3\n    def f(self): return 1\n")
    assert source_hash(again["Copy"]) == source_hash(classes[0]["Copy"])


def test_a_notebook_cell_is_read_from_the_line_cache():
    import linecache

    text = (
        "LIMIT = 3\nclass Copy:\n    '''Words.'''\n    back: int = LIMIT\n    def value(self): return LIMIT\n"
        "value = lambda e: e\n"
    )
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    names = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), names)
    assert normalised_source(names["value"]) == "lambda e: e\n"
    names["Copy"].__module__ = "__nowhere__"
    assert normalised_source(names["Copy"]).startswith("class Copy:\n    back: int = LIMIT\n")
    del linecache.cache["<cell>"]


def test_a_file_that_was_written_anew_is_read_anew(files):
    module = files.load()
    before = source_hash(module.one)
    path = Path(module.__file__)
    path.write_text(path.read_text().replace("evidence + 1)", "evidence + 31)"))
    spec = importlib.util.spec_from_file_location(module.__name__, path)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.one(0) == 31
    assert source_hash(again.one) != before


def test_an_annotated_type_is_written_without_addresses():
    def annotated():
        return Annotated[tuple[int, ...], BeforeValidator(lambda value: value)]

    first, second = annotated(), annotated()
    assert repr(first) != repr(second)
    assert source_hash(first) == source_hash(second)
