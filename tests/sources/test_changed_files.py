"""The hash is of the code that runs, of all the values that it reads, and of no version of Python."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hopscope.errors import UserError
from hopscope.sources import normalised_source, source_hash

TEXT = '''
import dataclasses
import functools
import pydantic


@functools.cache
def cached(number):
    """Words."""
    for each in range(number):
        if each in {1, 2, "three"}:
            return each


@dataclasses.dataclass(frozen=True)
class Data:
    length: int = 3

    @property
    def double(self):
        return 2 * self.length


class Model(pydantic.BaseModel):
    length: int = 3

    @pydantic.field_validator("length")
    @classmethod
    def positive(cls, value):
        return value if value > 0 else 1

    def value(self, e):
        class Inner:
            """Words."""
            two = 2
        return e * Inner.two


one, two = (lambda e: e + 1), (lambda e: e + 2)


def plain(e):
    return helper(e)


def helper(e):
    return one(e) + 3
'''
NAMES = ("cached", "Data", "Model", "one", "two", "plain", "helper")


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "changed_study.py"
    path.write_text(TEXT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("changed_study", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["changed_study"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["changed_study"]


def hashes(module):
    return {name: source_hash(getattr(module, name)) for name in NAMES}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nimport functools", "\n# A comment.\n\nimport functools"),
        ('"""Words."""', '"""Other words,\n\n            and more."""'),
        ('    """Words."""\n    for', "    for"),
        ("    return helper(e)", '    """New words."""\n    # A comment.\n    return helper(e)'),
        ("    def value(self, e):\n", '    # Why.\n    def value(self, e):\n        "Words."\n'),
        ("\n            two = 2", "\n\n            # A comment.\n            two = 2"),
    ],
)
def test_words_in_a_file_may_change_after_the_import(module, old, new):
    before = hashes(module)
    assert TEXT.count(old)
    Path(module.__file__).write_text(TEXT.replace(old, new), encoding="utf-8")
    assert hashes(module) == before


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('"three"', '"four"', {"cached"}),
        ("2 * self", "3 * self", {"Data"}),
        ("value > 0", "value > 1", {"Model"}),
        ("two = 2", "two = 5", {"Model"}),
        ("e + 1)", "e + 1.0)", {"one", "plain", "helper"}),
        ("e + 2)", "e - 2)", {"two"}),
        ("one(e) + 3", "two(e) + 3", {"plain", "helper"}),
    ],
)
def test_code_in_a_file_may_not_change_after_the_import(module, old, new, names):
    path = Path(module.__file__)
    path.write_text(f"# moved\n{TEXT.replace(old, new)}", encoding="utf-8")
    for name in names:
        with pytest.raises(UserError, match=f"^{re.escape(str(path))}: expected .*imported, found .*changed"):
            source_hash(getattr(module, name))
    for name in {*NAMES} - names:
        source_hash(getattr(module, name))


def test_a_definition_that_left_its_file_has_its_bytecode(module):
    Path(module.__file__).write_text(TEXT.replace("def helper", "def renamed"), encoding="utf-8")
    assert normalised_source(module.helper).startswith("code ")


def test_code_that_another_loader_wrote_is_not_compared(module):
    class Loader(type(module.__loader__)):
        pass

    module.__loader__ = Loader("changed_study", module.__file__)
    Path(module.__file__).write_text(TEXT.replace("one(e) + 3", "one(e) + 5"), encoding="utf-8")
    assert "one(e) + 5" in normalised_source(module.helper)


def frame(change=0, index=0, column="a"):
    values = np.arange(5000)
    values[2500] += change
    words = [f"w{value}" for value in values]
    return pd.DataFrame({column: values, "b": words}, index=np.arange(5000) + index)


def array(change=0):
    values = np.zeros(5000, np.float32)
    values[2500] = change
    return values


@pytest.mark.parametrize(
    "made",
    [
        lambda change: array(change),
        lambda change: array(change).astype(object),
        lambda change: torch.tensor(array(change)),
        lambda change: torch.tensor(array(change), requires_grad=True),
        lambda change: torch.tensor(array(change), dtype=torch.bfloat16),
        lambda change: torch.tensor(array(change)).to_sparse(),
        lambda change: [torch.nn.Parameter(torch.tensor(array(change)))],
        lambda change: frame(change),
        lambda change: frame(index=change),
        lambda change: frame(column=f"a{change}"),
        lambda change: frame(change)["b"],
        lambda change: frame(index=change).index,
        lambda change: frame(change).astype("category"),
    ],
)
def test_every_value_of_an_array_counts(module, made):
    def told(change):
        module.one = made(change)
        return normalised_source(module.helper)

    assert told(0) == told(0) != told(7)
    assert len(told(0)) < 3000


def test_tensors_of_other_types_and_shapes_differ():
    zeros = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4).bfloat16(), torch.zeros(4, dtype=torch.int32)]
    assert len({source_hash(each) for each in zeros}) == len(zeros)
    assert source_hash(torch.zeros(4, device="meta"))


def test_what_is_used_is_sorted_by_name(module):
    found = re.findall(r"^# (.*)$", normalised_source(module.plain, module.Data, module.cached), re.MULTILINE)
    assert found == sorted(found) and {"helper", "one", "dataclasses"} <= {*found}
