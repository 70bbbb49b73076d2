"""The study of recipes: its grid, what its claims say of runs with a known result, and its page."""

import pytest
from tests.studies.quick_evidence import evidence, page

from hopscope.claims import judge
from hopscope.completion import COMPLETIONS
from hopscope.studies.program import Program
from hopscope.studies.quick import QUICK_TRAINING
from hopscope.studies.recipes.grid import (
    ALL_ON,
    OFF,
    SCHEDULE,
    SHAPES,
    Options,
    Recipe,
    Start,
    configurations,
    starts,
)
from hopscope.studies.recipes.study import study

WHOLE = Options(parts=("without", "alone", "factorial", "starts"), decisive_seeds=8)
FIRST, SECOND = SHAPES


def all_learn(each, step, seed):
    return 0.05


def none_learn(each, step, seed):
    return 0.75


def needs(*details):
    """Without one of these details a model learns nothing but the first step."""
    off = {field for name in details for field in OFF[name].items() if not isinstance(field[1], list)}

    def loss(each, step, seed):
        lacking = any(each.overrides.get(field, object()) == value for field, value in off)
        return 0.75 if lacking and step > 1 else 0.05

    return loss


def larger_fails_sooner_in_deeper(each, step, seed):
    gamma, layers = each.overrides["model.init"], each.overrides["model.layers"]
    noisy = gamma + 0.06 * (seed % 3 - 1)
    return 0.05 if noisy < {3: 0.9, 6: 0.75, 12: 0.55}[layers] else 0.75


def larger_fails_alike(each, step, seed):
    return 0.05 if each.overrides["model.init"] + 0.1 * (seed % 3 - 1) < 0.7 else 0.75


def of_starts(loss):
    return lambda each, step, seed: loss(each, step, seed) if each.label.startswith("γ") else 0.05


def judged(loss, name, options=WHOLE, training_steps=QUICK_TRAINING.steps, **changed):
    found = evidence(study, options, loss, training_steps=training_steps, **changed)
    return judge(next(claim for claim in study.claims if claim.id == name), found)


def trained(options):
    """Label → model and training of each configuration."""
    program = Program(study.changed({"parts": options.parts, "decisive_seeds": options.decisive_seeds}))
    return {job.label: job for job in program.jobs(program.configured(None, {}))}


def test_all_on_is_torch_schedule_and_all_off_gpt2_base():
    jobs = trained(WHOLE)
    for shape in SHAPES:
        for on, name in ((ALL_ON, "torch-schedule"), ((), "gpt2-base")):
            job, said = jobs[Recipe(shape, on).label], COMPLETIONS[name].values(QUICK_TRAINING.steps)
            found = {"init": job.model.init, "beta2": job.training.betas[1]}
            found |= {field: getattr(job.training, field) for field in said if field not in found}
            assert found == said


def test_each_detail_is_one_difference():
    jobs = trained(WHOLE)
    for shape in SHAPES:
        whole = jobs[Recipe(shape, ALL_ON).label]
        for name in OFF:
            less = jobs[Recipe(shape, tuple(each for each in OFF if each != name)).label]
            parts = ((whole.model, less.model), (whole.training, less.training))
            differing = [
                field
                for one, other in parts
                for field in type(one).model_fields
                if getattr(one, field) != getattr(other, field)
            ]
            assert [f"{'model' if name == 'start' else 'training'}.{each}" for each in differing] == [
                *OFF[name]
            ]


def test_the_grid_has_every_recipe_once():
    assert len(configurations(Options())) == 2 * 6
    assert len(configurations(WHOLE)) == 2 * 2**5 + 2 * 3 * 4
    labels = [each.label for each in configurations(WHOLE)]
    assert len(set(labels)) == len(labels)
    decisive = [each.label for each in configurations(WHOLE) if each.seeds == 8]
    assert len(decisive) == 2 * (1 + 5 + 5 + 1)
    assert len([*starts(WHOLE.parts)]) == 24 and not [*starts(("without",))]


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (needs("cosine"), "reproduced"),
        (needs("cosine", "start"), "reproduced"),  # the start is no part of the schedule
        (all_learn, "refuted"),
        (needs("cosine", "clipping"), "refuted"),
    ],
)
def test_n12(loss, verdict):
    found = judged(loss, "N12")
    assert found.verdict == verdict, found.words
    # Half of the workstation's seeds decide nothing.
    assert judged(loss, "N12", training_steps=40).verdict == "inconclusive"


def test_n12_needs_a_recipe_that_learns():
    found = judged(none_learn, "N12")
    assert (
        found.verdict == "inconclusive" and f"{FIRST}: with all on, 0 of 3 steps are learned" in found.words
    )


def test_n12_says_what_was_not_trained():
    found = judged(all_learn, "N12", options=Options(parts=()))
    assert found.verdict == "not run"


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (of_starts(larger_fails_sooner_in_deeper), "reproduced"),
        (
            of_starts(lambda each, step, seed: larger_fails_sooner_in_deeper(deeper(each), step, seed)),
            "refuted",
        ),
        (of_starts(larger_fails_alike), "inconclusive"),
        (all_learn, "not run"),
    ],
)
def test_n16(loss, verdict):
    found = judged(loss, "N16")
    assert found.verdict == verdict, found.words


def deeper(each):
    """The same start in the deepest model for the shallowest, and the other way round."""
    layers = {3: 12, 6: 6, 12: 3}[each.overrides["model.layers"]]
    return each.model_copy(update={"overrides": {**each.overrides, "model.layers": layers}})


def test_starts_have_their_depth_and_heads():
    for each in starts(WHOLE.parts):
        assert each.overrides["model.init"] == each.gamma and each.overrides["model.layers"] == each.layers
    assert Start(0.61, 3, 8).overrides["model.heads"] == 8
    assert set(SCHEDULE) == set(OFF) - {"start"}


CASES = {
    "one decides": (
        needs("cosine"),
        {},
        "Of warm-up, β₂, cosine and clipping, most is lost without cosine: 2.0 steps",
    ),
    "nothing": (none_learn, {}, "With every detail on, 0 of 16 models"),
    "all": (all_learn, {}, "That is little: each of the four can be left out"),
    "diverged": (all_learn, {"diverged": (0, 5)}, "Training diverged in 2 of them"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    loss, changed, words = CASES[case]
    found = evidence(study, WHOLE, loss, training_steps=QUICK_TRAINING.steps, **changed)
    fields = {"parts": WHOLE.parts, "decisive_seeds": 8}
    assert words in page(study, found, tmp_path, fields)
