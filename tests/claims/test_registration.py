"""Rules that are changed after the run began: the verdict is that of the new rule, and both are shown."""

import copy
import functools
import importlib.util
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from hopscope.claims import Ledger, Samples, at_least, at_most, registered
from hopscope.claims.judge import judge
from hopscope.claims.source import text_of

from .runs import claim, members, series

RUN, STRICT, LAX = members(10), at_least(0.999, "fraction"), at_least(0.9, "fraction")


def scores(evidence):
    return series([0.95, 0.97] * 5)


def best(values):
    return max(values[-2:])


def average(values):
    return sum(values) / len(values)


def by(helper):
    return lambda evidence: Samples([helper([0.8, 0.95])] * 10, "seed")


class Best:
    def __init__(self, of):
        self.of = of

    def __call__(self, evidence):
        return series([best(self.of)] * 10)


def unbound():
    def value(evidence):
        return later(evidence)

    text = text_of(value)
    later = scores
    return text, text_of(value)


def after(then, now, ledger=True):
    """The claim as it is now, in a run that was registered, and judged, with what it was before."""
    rules = registered([then])
    before = Ledger([judge(then, RUN, registered=rules)] if ledger else [])
    return judge(now, RUN, registered=rules, before=Ledger.from_json(before.to_json()))


BASE = {"value": scores, "must": LAX, "protocol": "p"}
CHANGES = [  # what it was before; the verdict under that
    ({"must": STRICT}, "refuted"), ({"must": at_least(0.9)}, "reproduced"), ({"protocol": "another"}, "reproduced"),
    ({"rule": "mean"}, "reproduced"), ({"source_n": 64}, "inconclusive"), ({"seeds_needed": 12}, "inconclusive"),
    ({"value": by(best)}, "reproduced"), ({"value": lambda evidence: series([0.5] * 10)}, "refuted"),
    ({"at_scale": lambda evidence: "1 of 20 epochs"}, "inconclusive"), ({"untried": lambda evidence: ""}, "reproduced"),
    ({"readings": {"b": lambda evidence: series([0.5] * 10)}}, "inconclusive"), ({"kind": "general"}, "reproduced"),
    ({"controls": {"c": scores}, "must_not": at_least(0.5)}, "inconclusive"), ({"structural": True}, "reproduced"),
]  # fmt: skip


@pytest.mark.parametrize(("then", "verdict"), CHANGES)
def test_whatever_decides_a_claim_is_part_of_its_rule(then, verdict):
    found = after(claim(**{**BASE, **then}), claim(**BASE))
    assert (found.verdict, found.registration.state) == ("reproduced", "changed")
    assert found.registration.under_registered.verdict == verdict
    assert f"changed after the run: was {verdict}" in str(Ledger([found]))
    unjudged = after(claim(**{**BASE, **then}), claim(**BASE), ledger=False).registration
    assert (unjudged.state, unjudged.under_registered) == (
        "changed",
        None,
    ) and "never judged" in unjudged.words


@pytest.mark.parametrize("then", [{"statement": "less"}, {"source": "elsewhere"}, {"trust": ["much"]}, {}])
def test_words_about_a_claim_may_change(then):
    found = after(claim(**{**BASE, **then}), claim(**BASE))
    assert (found.registration.state, found.registration.words) == ("registered", "")


def test_a_claim_that_was_changed_twice_still_shows_the_registered_verdict():
    then, now = claim(**{**BASE, "must": STRICT}), claim(**BASE)
    rules, once = registered([then]), after(then, now)
    twice = judge(claim(**BASE, rule="mean"), RUN, registered=rules, before=[once])
    assert twice.registration.under_registered == once.registration.under_registered
    assert judge(then, RUN, registered=rules, before=[twice]).registration.state == "registered"
    other = judge(claim(**BASE, rule="mean"), RUN, registered=registered([now]), before=[once])
    assert other.registration.under_registered.verdict == "reproduced"


def test_added_claims_and_runs_without_registration_say_so():
    assert judge(claim(**BASE), RUN).registration.state == "none"
    found = judge(claim(**BASE, id="C2"), RUN, registered=registered([claim(**BASE)]))
    assert found.registration.state == "added" and "added after the run" in str(Ledger([found]))


def test_helpers_and_what_a_function_has_around_it_count():
    made = [by(best), by(average), partial(best, [1]), partial(best, [2]), lambda e: 3,
            lambda e: 5, lambda e, n=3: n,
            lambda e, n=5: n, at_most, {"a": best}, {"a": average}, [1.5], [2.5], Samples, type(RUN),
            Best([3]), Best([5]), np.arange(2000), np.arange(2000) * (np.arange(2000) != 997), *unbound()]  # fmt: skip
    assert len({text_of(each) for each in made}) == len(made)
    for make in (
        lambda: by(best),
        lambda: {1: best},
        lambda: Best([3]),
        lambda: {best, average},
        lambda: np.arange(2000),
    ):
        assert text_of(make()) == text_of(make())
    assert "0x" not in text_of([by(best), Best(Best), {"of": object()}, tuple[float, float], sys])


MODULE = """
import math
from helpers import LIMITS, spread
{comment}
class Scale:
    def of(self, value): return value * {factor}
def helper(value):
    {docstring}
    return Scale().of(value) + math.sqrt(2) + spread(value)
def value(evidence): return [helper(n) for n in range(LIMITS["n"])]
other = lambda evidence: {other}
"""
HELPERS = "LIMITS = {{'n': {n}}}\ndef spread(value): return value - {by}\n"
PLAIN = {"comment": "", "docstring": "", "factor": 3, "other": 1, "n": 7, "by": 2}


def hash_of(folder, **changes):
    """Hash of `value` in a fresh process, as a later command would have it."""
    fields = {**PLAIN, **changes}
    folder.mkdir(exist_ok=True)
    (folder / "study.py").write_text(MODULE.format(**fields))
    (folder / "helpers.py").write_text(HELPERS.format(**fields))
    code = "from study import value; from hopscope.claims.source import text_of; print(hash(text_of(value)))"
    run = [sys.executable, "-c", code]
    env = {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(importlib.util.find_spec("hopscope").submodule_search_locations[0]) + "/..",
    }
    return subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def test_what_a_file_says_is_hashed_and_not_how(tmp_path):
    plain = hash_of(tmp_path / "a")
    looks = {"comment": "# words\n\n", "docstring": '"""Words."""\n', "other": 2}
    assert hash_of(tmp_path / "b", **looks) == plain
    for change in ({"factor": 5}, {"n": 11}, {"by": 3}):
        assert hash_of(tmp_path / "a", **change) != plain, change
    assert hash_of(tmp_path / "a") == plain


def test_a_file_that_is_edited_while_the_run_goes_on_changes_nothing(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("def value(evidence):\n    return 1\n")
    spec = importlib.util.spec_from_file_location("edited", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = text_of(module.value)
    path.write_text("\n\n\ndef value(evidence):\n    return 2\n")
    assert text_of(module.value) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor(0.10001), torch.tensor(0.10002)),
        (torch.zeros(2003), torch.zeros(2003).index_fill(0, torch.tensor([997]), 1.0)),
        (torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3)),
        (pd.DataFrame({"x": range(211)}), pd.DataFrame({"x": [0] * 100 + [7] + [*range(101, 211)]})),
        (pd.Series([0.1234567890123]), pd.Series([0.1234567890124])),
    ],
    ids=["digits", "middle", "kind", "rows", "series"],
)
def test_numbers_that_a_text_leaves_out_count(one, other):
    assert text_of([one]) != text_of([other]) and text_of([one]) == text_of([copy.deepcopy(one)])


def test_what_is_found_once_and_kept_does_not_count():
    class Opened:
        @functools.cached_property
        def table(self):
            return [3, 5]

    opened = Opened()
    before = text_of(lambda: opened)
    assert opened.table and text_of(lambda: opened) == before
