"""The study of the first experiments: its grid, what its claims say of runs with a known result, and its page."""

import math

import pytest
from tests.story.user_run import texts

from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.first_steps.study import (
    CAUSES,
    HEADS,
    LAYERS,
    SIGNATURES,
    WITH,
    WITHOUT,
    Options,
    configurations,
    exact,
    study,
)
from hopscope.theory.information_flow import layers_per_step

SEEDS = 3
OPTIONS = Options(layers=(2, 4, 7), most_steps=3)
NAN = math.nan


def as_summary_says(steps, layers, targets):
    """With the curriculum, a chain takes more layers than it has steps."""
    return 0.1 if targets == "ic" and layers > steps else 0.76


def nothing(steps, layers, targets):
    return 0.76


def always(steps, layers, targets):
    return 0.1


def evidence(final=as_summary_says, used=0.25, largest=0.6, diverged=(), training_steps=400):
    """The table of a run whose last symbols end at losses that depend on the configuration alone."""
    members, rows = [], []
    for each in configurations(OPTIONS):
        steps, layers, targets = each.overrides.values()
        for seed in range(SEEDS):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            gone = member in diverged
            loss = final(steps, layers, targets)
            asked = range(1, steps + 1) if targets == "ic" else [steps]
            for step in asked:
                curve = {0: 1.1, 100: 0.8, training_steps: None if gone else loss}
                rows += [
                    Row(member, "training", f"loss_step_{step}", value, step=at)
                    for at, value in curve.items()
                ]

            def row(measure, metric, value, gone=gone, member=member, **place):
                return Row(member, measure, metric, None if gone else value, step=training_steps, **place)

            told = {"signature": (SIGNATURES, "learned" if loss < 0.5 else "early plateau"),
                    "cause": (CAUSES, "" if loss < 0.5 else "too few layers")}  # fmt: skip
            rows += [
                row("signatures", metric, float(name == found), part=name)
                for metric, (names, found) in told.items()
                for name in names
            ]
            if each.label == WITH:
                rows += [row("rises", "heads_used", used), row("rises", "largest_rise", largest)]
                rows += [
                    row("rises", "rise", 0.01 * head, part=f"step_{step}", layer=layer, head=head)
                    for layer in range(LAYERS)
                    for head in range(HEADS)
                    for step in (1, 2)
                ]
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": training_steps},
              "options": OPTIONS.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(**changed):
    """Claim → its verdict at the size of the run: that it agrees or disagrees, where seeds are too few to decide."""
    found = {}
    for claim in study.claims:
        judged = judge(claim, evidence(**changed))
        found[claim.id] = judged.leaning or judged.verdict
    return found


def test_the_grid_has_both_models_of_the_first_experiment_once():
    found = configurations(OPTIONS)
    assert len({each.label for each in found}) == len(found) == 3 * 3 + 1
    assert {WITH, WITHOUT} <= {each.label for each in found}
    short = configurations(Options(layers=(3,), most_steps=1))
    assert [each.label for each in short] == [WITH, WITHOUT, "D=1, 3 layers"]


def test_least_layers_are_those_of_theory():
    assert [exact(steps) for steps in (1, 2, 3)] == [
        layers_per_step(steps, "causal", "deepest-first")[steps] for steps in (1, 2, 3)
    ]


def test_a_run_as_the_summary_says_agrees_with_all_claims():
    assert verdicts() == {"F1": "agrees", "F2": "agrees", "F3": "agrees", "F4": "agrees"}


@pytest.mark.parametrize(
    ("changed", "claim", "found"),
    [
        ({"final": nothing}, "F1", "refuted"),  # one model that fails is enough against "every seed"
        (
            {"final": nothing},
            "F3",
            "not run",
        ),  # which heads are used is not asked of models that learned nothing
        ({"final": always}, "F2", "refuted"),
        ({"final": always}, "F4", "disagrees"),  # two layers do for any chain
        ({"used": 0.8}, "F3", "disagrees"),
        ({"training_steps": 40, "final": nothing}, "F1", "disagrees"),  # a brief run refutes nothing
    ],
)
def test_a_run_that_goes_another_way_does_not(changed, claim, found):
    assert verdicts(**changed)[claim] == found


@pytest.mark.parametrize(
    ("changed", "claim", "control"),
    [
        ({"final": always}, "F1", "asked for x₂ alone"),
        ({"final": nothing}, "F2", "asked for the whole chain"),
        ({"largest": 0.01}, "F3", "largest rise of the loss without one head"),
    ],
)
def test_a_control_takes_a_verdict_back(changed, claim, control):
    judged = judge(next(each for each in study.claims if each.id == claim), evidence(**changed))
    assert judged.verdict != "reproduced" and control in str(judged.controls)


CASES = {
    "as the summary says": {},
    "nothing": {"final": nothing},
    "everything": {"final": always},
    "one diverged": {"diverged": (1,)},
    "a configuration diverged": {"diverged": (0, 1, 2)},
    "all diverged": {"diverged": range(30)},
}


@pytest.fixture(params=CASES)
def told(request, tmp_path):
    """Name of the case, and the words of its page, with every figure drawn."""
    program, found = find_study("first-steps"), evidence(**CASES[request.param])
    config = program.configured(None, {"seeds": SEEDS, "options.layers": (2, 4, 7), "options.most_steps": 3})
    run = RunFolder.create(tmp_path, "first-steps", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in study.claims]))
    for name in figure_names(run.path / "figures"):
        render_figure(run.path / "figures", name)
    return request.param, texts(run.read_json("story.json")).replace("\u00a0", " ")


SAID = {
    "as the summary says": (
        "3 of 3 seeds learned x₂. Asked for x₂ alone, 0 of 3 did",
        "it is the easier question",
    ),
    "nothing": ("0 of 3 seeds learned x₂", "says nothing of the curriculum"),
    "everything": ("Asked for x₂ alone, 3 of 3 did", "made no difference"),
    "one diverged": ("Training diverged in 1 of them", "2 of 2 seeds learned x₂"),
    "a configuration diverged": ("Training diverged in 3 of them", "nothing is known of its heads"),
    "all diverged": ("Training diverged in 30 of them", "nothing is known of its heads"),
}


def test_the_page_says_what_is_so(told):
    case, words = told
    for expected in SAID[case]:
        assert expected in words
    for other in {each[1] for each in SAID.values()} - {SAID[case][1]}:
        if case in ("as the summary says", "nothing", "everything"):
            assert other not in words
