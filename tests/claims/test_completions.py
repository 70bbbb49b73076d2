"""Verdicts under the completions of a recipe: of a source's own models, and of what it says in general."""

from dataclasses import dataclass, field

import pytest
from tests.claims.stand_in import claim, members, series

from hopscope.claims import Ledger, Samples, Verdict, at_least, judge
from hopscope.claims.completions import Completed
from hopscope.claims.registration import register
from hopscope.completion import COMPLETION_NAMES, COMPLETIONS

REPRODUCED, REFUTED, INCONCLUSIVE = Verdict.REPRODUCED, Verdict.REFUTED, Verdict.INCONCLUSIVE
GOOD, BAD = [1.0] * 11, [0.5] * 11
BASE, OTHER, THIRD, DEFAULT = COMPLETION_NAMES
OTHERS = {name: ", ".join(each for each in COMPLETION_NAMES if each != name) for name in COMPLETION_NAMES}


@dataclass(frozen=True)
class Run:
    """Members with the configuration of their run."""

    config: dict
    members: list = field(default_factory=lambda: members(12).members)
    seeds: dict = field(default_factory=lambda: members(12).seeds)


def recipe(name, steps=1_300, **changed):
    """The configuration of a run, as a study with one recipe has it."""
    return {"completion": name, "training_steps": steps, **COMPLETIONS[name].values(steps), **changed}


def judged(values, kind, config, **fields):
    rule = {"rule": "mean", **fields}
    return judge(claim(series(values), at_least(0.9), kind=kind, **rule), Run(config))


@pytest.mark.parametrize("name", COMPLETION_NAMES)
@pytest.mark.parametrize(
    ("kind", "values", "verdict", "here", "leaning"),
    [
        ("existence", GOOD, REPRODUCED, REPRODUCED, None),
        ("existence", BAD, INCONCLUSIVE, REFUTED, "disagrees"),
        ("general", GOOD, INCONCLUSIVE, REPRODUCED, "agrees"),
        ("general", BAD, REFUTED, REFUTED, None),
        (None, GOOD, REPRODUCED, REPRODUCED, None),
        (None, BAD, REFUTED, REFUTED, None),
    ],
)
def test_a_run_under_one_completion(kind, values, verdict, here, leaning, name):
    found = judged(values, kind, recipe(name))
    assert (found.verdict, found.here.verdict, found.leaning) == (verdict, here, leaning)
    assert found.completion == (None if kind is None else name)
    # Whatever is decided, the words name what was run and what was not.
    assert (OTHERS[name] in found.words and f"under {name}" in found.words) is (kind is not None)


def test_what_a_run_before_completions_was_trained_by_is_known():
    """Records from before there were names are of GPT-2's start; what they lack is not held against them."""
    old = {"training_steps": 24_000, "beta2": 0.999, "warmup_steps": 0, "clip_norm": None}
    assert Completed.of(Run(old)) == Completed(BASE)
    declared = {
        "model": {"init": "gpt2"},
        "training": {"steps": 400, "betas": [0.9, 0.95], "warmup_steps": 0, "clip_norm": None},
    }
    assert Completed.of(Run(declared)) == Completed(BASE, ("beta2",))
    assert Completed.of(Run({"anything": 1})) is None and Completed.of(Run({"completion": None})) is None
    assert judged(BAD, "existence", old).verdict is INCONCLUSIVE


@pytest.mark.parametrize(
    ("kind", "values", "verdict"),
    [
        ("existence", GOOD, INCONCLUSIVE),  # no registered completion reproduces it
        ("existence", BAD, INCONCLUSIVE),
        ("general", GOOD, INCONCLUSIVE),
        ("general", BAD, REFUTED),  # one counterexample is enough, whatever its recipe is called
    ],
)
def test_a_run_that_departs_from_its_completion_is_under_none(kind, values, verdict):
    found = judged(values, kind, recipe(DEFAULT, beta2=0.97))
    assert (found.verdict, found.completion) == (verdict, f"{DEFAULT}, but for beta2")
    if verdict is INCONCLUSIVE:
        assert found.words.endswith(f"not run: {', '.join(COMPLETION_NAMES)}")


def test_readings_that_were_not_tried_are_named_beside_completions():
    batch = {"untried": lambda evidence: "a larger batch"}
    assert judged(BAD, "existence", recipe(THIRD), **batch).words.endswith(f"{OTHERS[THIRD]}, a larger batch")
    found = judged(BAD, "general", recipe(THIRD), **batch)
    assert found.verdict is INCONCLUSIVE and found.words.endswith("not tried: a larger batch")


def under(**numbers):
    """Readings of a claim that are completions; a string says that nothing was learned."""
    return {
        name.replace("_", "-"): (
            lambda evidence, found=found: (
                Samples([], excluded=found) if isinstance(found, str) else series(found)
            )
        )
        for name, found in numbers.items()
    }


@pytest.mark.parametrize(
    ("kind", "found", "verdict", "here", "value"),
    [
        # One completion is enough for what a source's own models do, and all are for what it says in general.
        ("existence", {"gpt2_base": BAD, "torch_base": GOOD}, REPRODUCED, REPRODUCED, 1.0),
        ("general", {"gpt2_base": GOOD, "torch_base": BAD}, REFUTED, REFUTED, 0.5),
        ("existence", {"gpt2_base": BAD, "torch_base": BAD}, INCONCLUSIVE, REFUTED, 0.5),
        ("general", {"gpt2_base": GOOD, "torch_base": GOOD}, INCONCLUSIVE, REPRODUCED, 1.0),
        ("existence", dict.fromkeys(("gpt2_base", "gpt2_schedule", "torch_base", "torch_schedule"), BAD), REFUTED,
         REFUTED, 0.5),
        ("general", dict.fromkeys(("gpt2_base", "gpt2_schedule", "torch_base", "torch_schedule"), GOOD), REPRODUCED,
         REPRODUCED, 1.0),
        # Where nothing is learned there is nothing to say in general; it is not held against it.
        ("general", {"gpt2_base": "nothing is learned", "gpt2_schedule": GOOD, "torch_base": GOOD,
                     "torch_schedule": GOOD}, REPRODUCED, REPRODUCED, 1.0),
        ("general", {"gpt2_base": [], "gpt2_schedule": GOOD, "torch_base": GOOD, "torch_schedule": GOOD}, INCONCLUSIVE,
         REPRODUCED, 1.0),
        # What is open under one keeps what all are needed for open.
        ("existence", {"gpt2_base": BAD, "gpt2_schedule": BAD, "torch_base": [0.8, 1.0] * 6, "torch_schedule": BAD},
         INCONCLUSIVE, INCONCLUSIVE, 0.5),
    ],
)  # fmt: skip
def test_completions_in_one_run_count_by_the_kind_of_the_claim(kind, found, verdict, here, value):
    one = claim(None, at_least(0.9), kind=kind, rule="mean", readings=under(**found))
    judged = judge(one, Run({"completion": BASE}))
    assert (judged.verdict, judged.here.verdict, judged.value) == (verdict, here, value), judged.words
    left = [name for name in COMPLETION_NAMES if found.get(name.replace("-", "_"), []) == []]
    assert all(name in judged.words for name in left)


def test_the_numbers_shown_are_those_of_the_completion_that_decides():
    one = claim(
        None, at_least(0.9), kind="existence", rule="mean", readings=under(gpt2_base=BAD, torch_base=GOOD)
    )
    found = judge(one, Run({}))
    assert found.samples == GOOD and "reproduced under torch-base (1 of 2 that were tried)" in found.words


def test_a_control_that_shows_it_too_takes_it_back_under_any_completion():
    controls = {"controls": {"nothing": lambda evidence: series(GOOD)}, "must_not": at_least(0.9)}
    found = judged(GOOD, "existence", recipe(DEFAULT), **controls)
    assert (found.verdict, found.leaning) == (INCONCLUSIVE, "mixed")


def test_the_kind_of_a_claim_is_registered_and_changes_no_hash_of_others():
    def rule(**fields):
        return register([claim(series(GOOD), **fields)])["claims"]["C1"]

    assert "kind" not in rule()["rule"] and rule(kind="general")["rule"]["kind"] == "general"
    assert len({rule(**fields)["hash"] for fields in ({}, {"kind": "general"}, {"kind": "existence"})}) == 3


def test_a_ledger_names_the_completion_once():
    ledger = Ledger([judged(GOOD, "existence", recipe(DEFAULT)), judged(BAD, "existence", recipe(DEFAULT))])
    assert str(ledger).splitlines()[0].strip() == f"Claims, completion {DEFAULT}"
    assert Ledger([judged(GOOD, None, recipe(DEFAULT))]).completion == ""
