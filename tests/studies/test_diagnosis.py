"""Failures that the summary of the paper lists, recognised in losses that are made up and in runs on record."""

from collections import Counter
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.diagnosis import diagnosed, diagnoses, needed_layers
from hopscope.training.config import MemberPlan, TrainJob

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

FLAT, DOWN, FALLS = [1.1, 0.8, 0.75, 0.75, 0.75], [1.1, 0.7, 0.3, 0.1, 0.05], [1.1, 0.9, 0.8, 0.7, 0.6]


def job(layers, steps=3, **task):
    config = DepthStudyConfig(chains=3, width=8, heads=1)
    chains = hs.tasks.Retrieval(steps=steps, chains=3, **task)
    return TrainJob(
        label="made up",
        task=chains,
        model=config.model_of(chains, layers, None),
        training=hs.Training(steps=7, batch_size=5),
        members=(MemberPlan(member=0, seed=0),),
    )


def test_layers_that_are_needed_are_those_of_the_theory():
    assert needed_layers(job(4)) == {1: 2, 2: 3, 3: 3}
    # In a random order a model must be right in the worst one.
    assert needed_layers(job(4, order="random")) == needed_layers(job(4, order="deepest-first"))


@pytest.mark.parametrize(
    ("layers", "task", "losses", "signature", "cause"),
    [
        (1, {}, {1: FLAT, 2: FLAT, 3: FLAT}, "early plateau", "too few layers: x₁ needs 2, and there are 1"),
        (7, {}, {1: FLAT, 2: FLAT, 3: FLAT}, "early plateau", "not found: 7 layers are enough for x₁ (2 are needed)"),
        (2, {}, {1: DOWN, 2: FLAT, 3: FLAT}, "only induction heads", "too few layers: x₂ needs 3"),
        (7, {}, {1: DOWN, 2: FALLS, 3: FLAT}, "only induction heads", "still falling: 7 layers are enough for x₂"),
        (2, {}, {1: DOWN, 2: DOWN, 3: FLAT}, "long chains fail", "too few layers: x₃ needs 3"),
        (7, {"targets": "last"}, {3: FLAT}, "long chains fail", "nothing asks for x₁ and x₂"),
        (2, {"targets": "last"}, {3: FLAT}, "early plateau", "too few layers: x₃ needs 3"),
        (7, {"targets": (2, 3)}, {2: FLAT, 3: FLAT}, "long chains fail", "nothing asks for x₁"),
        (7, {}, {1: DOWN, 2: DOWN, 3: DOWN}, "learned", ""),
        (7, {"targets": "last"}, {3: DOWN}, "learned", ""),
    ],
)  # fmt: skip
def test_a_signature_and_its_cause(layers, task, losses, signature, cause):
    found, learned, said = diagnosed(job(layers, **task), losses)
    assert found == signature and cause in said and bool(said) == bool(cause)
    assert learned == tuple(step for step, values in losses.items() if values is DOWN)


def test_a_member_that_diverged_is_nothing_else():
    assert diagnosed(job(1), {1: DOWN, 2: FLAT, 3: FLAT}, diverged=True)[:2] == ("diverged", ())
    assert diagnosed(job(1), {1: [], 2: [], 3: []})[0] == "diverged"


def test_a_run_on_record():
    found = diagnoses(RunFolder.open(RESULTS / "depth/laptop"))
    assert Counter(each.signature for each in found) == {
        "early plateau": 12, "long chains fail": 12, "learned": 13, "only induction heads": 2,
    }  # fmt: skip
    for each in found:
        if "non-IC" in each.configuration:
            assert each.cause.startswith("too few layers" if each.layers < 3 else "no curriculum")
            assert each.signature == ("early plateau" if each.layers < 3 else "long chains fail")
        last = {step: values[-1] for step, values in each.curves.items()}
        assert each.learned == tuple(step for step, loss in last.items() if loss < 0.5)
        assert len(each.steps) == len(each.curves[each.failing])


def test_another_task_is_refused():
    with pytest.raises(UserError, match="expected members trained to follow chains"):
        diagnoses(RunFolder.open(RESULTS / "permutation/paper"))
