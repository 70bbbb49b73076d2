"""The curriculum study: its grid, what its claims say of runs with a known result, and its page."""

import math

import pytest
from tests.story.user_run import texts
from tests.studies.quick_evidence import of_one_completion

from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.curriculum.study import (
    ALONE,
    BRIEF,
    GROWING,
    OWN,
    OWN_ALONE,
    RANDOM,
    SWITCHED,
    WEIGHTS,
    WHOLE,
    ZIPF,
    Options,
    claims,
    configurations,
    curricula,
    label,
    study,
    subset_name,
    ways,
    weight_name,
)

SEEDS = 16
OPTIONS = Options(steps=(2, 3))
EASIER = {(1, 3): "x₁ and x₃", (2, 3): "x₂ and x₃"}


def as_the_summary_says(steps, name):
    """Training step at which x_D is learned: never where nothing easier is asked for."""
    if name in (ALONE, OWN_ALONE):
        return math.inf
    doses = {weight_name(weight): 300 - 200 * weight for weight in WEIGHTS}
    return doses.get(name, 100.0)


def nothing(steps, name):
    return math.inf


def everything(steps, name):
    return 60.0


def whole_only(steps, name):
    return 100.0 if name == WHOLE else math.inf


def evidence(when=as_the_summary_says, diverged=(), training_steps=400, options=OPTIONS):
    members, rows = [], []
    for steps in options.steps:
        for name in ways(options, steps):
            for seed in range(SEEDS):
                member = len(members)
                members.append(
                    {"member": member, "seed": seed, "configuration": label(steps, name),
                     "overrides": {"task.steps": steps, "task.own_positions": "own" in name}}
                )  # fmt: skip
                gone, time = member in diverged, when(steps, name)
                loss = None if gone else 0.76 if math.isinf(time) else 0.1
                rows += [
                    Row(member, "training", f"loss_step_{steps}", value, step=at)
                    for at, value in {0: 1.1, training_steps: loss}.items()
                ]
                rows.append(
                    Row(
                        member,
                        "learned_at",
                        "learned_at",
                        None if gone else time,
                        step=training_steps,
                        part=f"step_{steps}",
                    )
                )
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": training_steps},
              "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(options=OPTIONS, **changed):
    found = evidence(options=options, **changed)
    return of_one_completion(claims(options), found)


def test_every_way_to_ask_is_there_once():
    names = {steps: list(curricula(steps)) for steps in (2, 3, 4)}
    assert set(BRIEF) <= set(names[2])
    assert set(names[3]) - set(names[2]) == set(EASIER.values())
    every_part = {subset_name(part) for part in ((1, 4), (2, 4), (3, 4), (1, 2, 4), (1, 3, 4), (2, 3, 4))}
    assert set(names[4]) - set(names[2]) == every_part
    labels = [each.label for each in configurations(OPTIONS)]
    assert len(set(labels)) == len(labels) == len(names[2]) + len(names[3])


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_every_way_to_ask_is_a_task(steps):
    for name, fields in curricula(steps).items():
        task = study.task.model_validate({**study.task.model_dump(), "steps": steps, **fields})
        assert steps in task.asked, name  # of every model it is known whether it learned the last symbol
        assert task.shape().output_size > 0


def test_a_growing_chain_asks_for_one_symbol_more_at_a_time():
    fields = curricula(3, training_steps=400)[GROWING]
    assert fields == {"targets": (1,), "schedule": ((100, (1, 2)), (200, (1, 2, 3)))}
    assert curricula(2, training_steps=400)[SWITCHED] == {"targets": (1,), "schedule": ((200, "last"),)}
    assert curricula(3)[ZIPF]["shares"] == pytest.approx((6 / 11, 3 / 11, 2 / 11))


def test_a_run_as_the_summary_says():
    assert verdicts() == dict.fromkeys(("S1a", "S1b", "S1c", "S1d", "S1e"), "reproduced")


def test_a_brief_run_has_fewer_claims():
    brief = Options(steps=(2,), brief=True)
    assert verdicts(brief) == dict.fromkeys(("S1a", "S1b", "S1c"), "reproduced")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"when": nothing}, {"S1a": "refuted", "S1b": "refuted", "S1c": "refuted", "S1d": "refuted"}),
        ({"when": everything}, {"S1a": "refuted"}),
        ({"when": whole_only}, {"S1a": "reproduced", "S1b": "refuted", "S1c": "refuted", "S1d": "refuted"}),
        ({"training_steps": 100}, {"S1a": "inconclusive"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = verdicts(**changed)
    assert {name: found[name] for name in expected} == expected


def test_what_is_learned_without_easier_questions_shows_nothing():
    """Own positions and random subsets are no substitute where x_D alone does as well."""
    found = verdicts(when=everything)
    assert found["S1b"] != "reproduced" and found["S1c"] != "reproduced" and found["S1d"] != "reproduced"


CASES = {
    "as the summary says": {},
    "nothing": {"when": nothing},
    "whole only": {"when": whole_only},
    "one diverged": {"diverged": (1,)},
    "all diverged": {"diverged": range(1000)},
}
SAID = {
    "as the summary says": "So it is not needed that one position is asked for everything",
    "nothing": "this run says nothing of the curriculum",
    "whole only": "supervision at positions of their own does not replace it here",
    "one diverged": "Training diverged in 1 of them",
    "all diverged": "this run says nothing of the curriculum",
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    program, found = find_study("curriculum"), evidence(**CASES[case])
    config = program.configured("workstation", {})
    run = RunFolder.create(tmp_path, "curriculum", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    for name in figure_names(run.path / "figures"):
        render_figure(run.path / "figures", name)
    words = texts(run.read_json("story.json")).replace("\u00a0", " ")
    assert SAID[case] in words
    if case in ("as the summary says", "nothing", "whole only"):
        assert not any(other in words for other in set(SAID.values()) - {SAID[case]})


def test_when_a_symbol_was_learned(tmp_path):
    """Against the curves of a run from end to end."""
    import hopscope as hs

    fields = {"seeds": 2, "training.steps": 9, "model.width": 24, "model.head_dim": 2, "training.batch_size": 5,
              "training.evaluate_every": 3, "options.steps": (2,), "options.brief": True}  # fmt: skip
    run = hs.run("curriculum", fields=fields, out=tmp_path)
    evidence = run.evidence
    assert set(evidence.configurations.values()) == {label(2, name) for name in BRIEF}
    for name in (WHOLE, RANDOM, OWN):
        for step in (1, 2):
            curves = evidence.where(configuration=label(2, name)).curve(f"loss_step_{step}")
            times = evidence.last("learned_at", part=f"step_{step}")
            for member, curve in curves.items():
                under = [at for at, loss in curve.items() if loss < 0.5]
                assert times[member] == (under[0] if under else math.inf)
