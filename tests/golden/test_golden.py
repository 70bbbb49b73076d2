"""Numbers are those of every version so far: to the bit where nothing rounds otherwise, else to rounding."""

import json

import pytest
import torch

from hopscope.study.jobs import NUMBERS

from . import make

KEPT = json.loads(make.KEPT.read_text(encoding="utf-8"))
MEANT = "; if the change is meant, raise NUMBERS in study/jobs.py, and run python tests/golden/make.py"
ALIKE = KEPT["machine"] == make.machine()


@pytest.fixture(autouse=True)
def _inspect_is_there(monkeypatch):
    """The study tiny-lm refuses to be planned where its exam could not be taken."""
    monkeypatch.setattr("hopscope.studies.tiny_lm.study.find_spec", lambda name: True)


def same(found, kept):
    """Hashes count where torch and processor are those of the file; sums and losses everywhere."""
    if isinstance(found, list):
        whole = not (ALIKE or [*map(type, found)] != [str, float, float])  # of tensors, on another machine
        pairs = [*zip(found, kept, strict=True)]
        return all(same(one, other) for one, other in pairs[whole:])
    return found == (pytest.approx(kept, rel=1e-5, abs=1e-5) if isinstance(kept, float) else kept)


def test_the_values_are_of_this_version_of_the_numbers():
    assert KEPT["numbers"] == NUMBERS, "run python tests/golden/make.py"
    assert {*KEPT} == {"numbers", "machine", *(part.__name__ for part in make.PARTS)}


@pytest.mark.parametrize("part", make.PARTS, ids=lambda part: part.__name__)
def test_nothing_has_changed(part):
    found, kept = part(), KEPT[part.__name__]
    missing = {*kept} - {*found}
    assert {*found} <= {*kept} and (not missing or part is make.trainings), f"{missing}{MEANT}"
    told = [f"{name}: {kept[name]} → {each}" for name, each in found.items() if not same(each, kept[name])]
    assert not told, "\n".join([*told, MEANT])


def test_a_change_of_a_digit_or_a_byte_is_noticed(monkeypatch):
    kept, other = (make.told([torch.tensor([0.25, 1.5, end])]) for end in (2.0, 2.0000002))
    assert same(kept, kept) and kept[0] != other[0] and same(other, kept) is not ALIKE
    turned = make.told([torch.tensor([1.5, 0.25, 2.0])])
    monkeypatch.setattr(f"{__name__}.ALIKE", False)
    assert same(other, kept) and not same(turned, kept) and not same([[1.0], [2.0001]], [[1.0], [2.0]])
