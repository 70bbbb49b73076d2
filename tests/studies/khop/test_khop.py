"""The study of k-hop induction: what its claims say of runs with a known result, its page and its measure."""

import math

import pytest
from tests.story.user_run import texts

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.khop.study import (
    FOLLOWED,
    PUBLISHED_ERRORS,
    STEPS,
    Options,
    claims,
    configurations,
    enough,
    label,
    reach,
    smaller_scale,
)
from hopscope.words import counted

SEEDS, OPTIONS = 8, Options()


def as_theory_says(layers, hops, seed):
    return 0.99 if layers >= enough(hops) else 0.6


def nothing(layers, hops, seed):
    return 0.5


def everything(layers, hops, seed):
    return 0.99


def one_layer_late(layers, hops, seed):
    return as_theory_says(layers - 1, hops, seed)


def one_is_early(layers, hops, seed):
    return 0.97 if (layers, hops, seed) == (2, 3, 5) else as_theory_says(layers, hops, seed)


def depth_is_nothing(layers, hops, seed):
    """Which hops are followed depends on the seed alone."""
    return 0.99 if hops <= seed % 4 + 1 else 0.6


def evidence(values=as_theory_says, diverged=(), options=OPTIONS, steps=STEPS, length=32):
    members, rows = [], []
    for each in configurations(options):
        layers = each.overrides["model.layers"]
        for seed in range(SEEDS):
            member = len(members)
            members.append({"member": member, "seed": seed, "configuration": each.label,
                            "overrides": {"model.layers": layers}})  # fmt: skip
            for hops in options.hops:
                part = counted(hops, "hop")
                for time in (0, steps):
                    final = None if member in diverged else values(layers, hops, seed)
                    rows.append(
                        Row(member, "training", "accuracy", final if time else 0.25, step=time, part=part)
                    )
                if member not in diverged:
                    rows.append(Row(member, "shortcut", "two_fewer", 0.5, step=steps, part=part))
    config = {"task": {"fields": {"length": length, "letters": 4}}, "model": {"width": 64},
              "training": {"steps": steps}, "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(options=OPTIONS, **changed):
    """Claim → verdict at the scale of the run, whose texts are shorter than those of the publication."""
    found = evidence(options=options, **changed)
    judged = [judge(claim, found) for claim in claims(options)]
    assert {each.verdict for each in judged} == {"inconclusive"}
    return {each.id: each.here.verdict for each in judged}


def test_layers_that_are_enough():
    assert [enough(hops) for hops in (1, 2, 3, 4, 7, 8, 16)] == [
        math.floor(math.log2(k)) + 2 for k in (1, 2, 3, 4, 7, 8, 16)
    ]


def test_published_models_follow_hops_with_as_many_layers_as_theory_says():
    for layers, errors in PUBLISHED_ERRORS.items():
        assert all(1 - error >= FOLLOWED for hops, error in errors.items() if enough(hops) <= layers)
        assert all(1 - error < FOLLOWED for hops, error in errors.items() if enough(hops) > layers)


def test_a_run_as_theory_says():
    assert verdicts() == dict.fromkeys(("N1a", "N1b", "N1c"), "reproduced")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (nothing, {"N1a": "refuted", "N1c": "refuted"}),
        (everything, {"N1b": "refuted", "N1c": "refuted"}),
        (one_layer_late, {"N1a": "refuted", "N1c": "reproduced"}),
        (one_is_early, {"N1a": "reproduced", "N1b": "refuted", "N1c": "reproduced"}),
        (depth_is_nothing, {"N1a": "refuted", "N1b": "refuted", "N1c": "refuted"}),
    ],
)
def test_a_run_that_goes_another_way(values, expected):
    found = verdicts(values=values)
    assert {name: found[name] for name in expected} == expected


def test_a_claim_whose_control_shows_the_same_is_not_reproduced():
    assert verdicts(values=everything)["N1a"] != "reproduced"
    assert verdicts(values=nothing)["N1b"] != "reproduced"


def test_what_a_run_lacks_of_the_published_experiment():
    found = evidence(steps=60, options=Options(hops=(1, 2, 16)), length=100)
    assert smaller_scale(found) == "60 of 3,000 steps, width 64, not 128"
    assert smaller_scale(evidence()) == "32 letters, not 100, up to 4 hops, not 16, width 64, not 128"


def test_how_far_models_reach():
    found = evidence(one_is_early, diverged=(9,))  # seed 1 of two layers
    two = reach(found, OPTIONS, 2)
    assert math.isnan(two.pop(1)) and set(two.values()) == {1.0}  # three hops without two do not count
    assert set(reach(found, OPTIONS, 4).values()) == {4.0} and set(reach(found, OPTIONS, 1).values()) == {0.0}


def test_one_depth_alone_claims_nothing_of_depth():
    assert [claim.id for claim in claims(Options(layers=(2,)))] == ["N1a", "N1b"]
    assert claims(Options(layers=(5,))) == []


@pytest.mark.parametrize(
    ("values", "diverged", "said"),
    [
        (as_theory_says, (), "No model follows k hops with fewer than"),
        (nothing, (), "this run says nothing of the depth"),
        (everything, (), "with fewer layers than theory says are enough"),
        (as_theory_says, (9,), "No model follows k hops with fewer than"),
        (as_theory_says, range(32), "this run says nothing of the depth"),
    ],
)
def test_the_page_is_written(values, diverged, said, tmp_path):
    program, found = find_study("khop"), evidence(values, diverged)
    config = program.configured("laptop", {})
    run = RunFolder.create(tmp_path, "khop", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    words = texts(run.read_json("story.json"))
    assert (f"Training diverged in {len(diverged)} of them" in words) == bool(diverged)
    assert said in words
    all_do = "all that did not diverge do" if diverged else "all do"
    assert (f"With as many or more, {all_do}." in words) == (values is not nothing and len(diverged) < 32)


def test_a_small_run(tmp_path):
    fields = {
        "seeds": 2, "training.steps": 3, "task.length": 13, "model.width": 8, "training.batch_size": 5,
        "training.evaluate_every": 3, "options.layers": (1, 2), "options.hops": (1, 3),
    }  # fmt: skip
    run = hs.run("khop", fields=fields, out=tmp_path)
    batch = run.ensemble(configuration=label(2)).batch(1024)  # as many as the study holds out
    right = total = 0
    for tokens, hops in zip(batch.inputs[0].tolist(), batch.groups["3 hops"][0].tolist(), strict=True):
        text = tokens[1:]
        for place in range(13):
            ends = [place]
            for _ in range(3):
                before = [
                    at + 1
                    for at in range(ends[-1] or 0)
                    if ends[-1] is not None and text[at] == text[ends[-1]]
                ]
                ends.append(before[-1] if before else None)
            if hops and ends[3] is not None:
                right += text[ends[3]] == text[ends[1]]
                total += 1
    assert run.evidence.last("two_fewer", part="3 hops", configuration=label(2))[2] == pytest.approx(
        right / total
    )
