"""The permutation study: members of every preset, measures of one model, and verdicts on the committed evidence."""

import json
from pathlib import Path

import pytest
import torch
from tests_next.studies.permutation.conftest import measured

from hopscope.models.config import TransformerConfig as OldConfig
from hopscope.models.transformer import Transformer as OldTransformer
from hopscope.studies import find_study
from hopscope.studies.permutation import measures as old_measures
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.probes import predictions
from hopscope.studies.permutation.probes.causal_tests import measure_causal_tests
from hopscope.studies.permutation.probes.head_roles import measure_roles
from hopscope.studies.permutation.probes.posterior import measure_posteriors
from hopscope.studies.permutation.probes.slots import recall_by_slot_pair
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope_next.claims.judge import judge
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.runs import Evidence
from hopscope_next.studies.permutation import measures
from hopscope_next.studies.permutation.study import study
from hopscope_next.study.jobs import plan
from hopscope_next.tasks import Permutation

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "permutation"


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper", "readings"])
def test_members(preset):
    program = find_study("permutation")
    jobs = program.jobs(program.configured(preset, {}))
    old = {(job.label, member.seed): (job, member) for job in jobs for member in job.members}
    numbers = []
    for job in plan(study.chosen(preset)):
        for member in job.members:
            own, before = old[job.label, member.seed]
            numbers.append((member.member, before.member))
            seeds = member.seed, member.init_seed, member.data_seed
            assert seeds == (before.seed, before.init_seed, before.data_seed)
        fields = {name: own.task.model_dump(mode="json")[name] for name in job.task["fields"]}
        assert fields == job.task["fields"]
        assert own.model.model_dump() == job.config.model_dump()
        assert {name: getattr(own.training, name) for name in type(job.training).model_fields} == dict(
            job.training
        )
    assert len(numbers) == len(old) and all(ours == before for ours, before in numbers)


# Measures.

SHAPE = {"width": 19, "heads": 2, "head_dim": 7, "mlp_ratio": 23 / 19, "init": "encoder", "norm": "post",
         "length": 7, "input_size": 5, "output_size": 5, "readout": (0, 2, 4, 6)}  # fmt: skip
TASK = {"values": 4, "repeat_ratio": 0.3}


@pytest.fixture(scope="module")
def models():
    """Both houses' models of the same weights, at which most interventions change some answers."""
    old = OldTransformer.initial(OldConfig(**SHAPE), torch.tensor([31, 37, 41]))
    old.parameters.flat.mul_(1.7)
    new = Transformer(TransformerConfig(**SHAPE), 3)
    return old, new.load({name: weight.clone() for name, weight in old.weights.items()})


def flat(name, record):
    """The rows of a record of the first house: (metric, part, split, head) → `[member]`."""
    found = {}
    for place in range(3):
        own = old_measures.of_member(old_measures._prepared(name, record), place, 3)
        for row in old_measures.rows(place, name, own, (7, 70), None):
            found.setdefault((row.metric, row.part, row.split, row.head), []).append(row.value)
    return found


def probed(model, task, limit):
    plain, repeats = task.evaluation("plain", limit=limit), task.evaluation("repeats", limit=limit)
    on_plain = predictions.predict(model, plain)
    skills = {"elimination": predictions.accuracy_by_slot(on_plain, plain)[:, -1]}
    return predictions.as_json(
        {**skills, **predictions.repeat_probe(predictions.predict(model, repeats), repeats)}
    )


OLD = {
    "probes": (probed, {"exhaustive"}),
    "posteriors": (measure_posteriors, {"used_mass_mean"}),
    "slots": (recall_by_slot_pair, set()),
    "battery": (lambda model, task, limit: measure_causal_tests(model, task), set()),
    "roles": (lambda model, task, limit: measure_roles(model, task), set()),
}
"""Measure → the first house's function, and metrics that only the new one has somewhere."""


@pytest.mark.parametrize("name", OLD)
def test_measures(name, models):
    old_model, model = models
    function, new = OLD[name]
    task = PermutationTask(PermutationConfig(**TASK))
    expected = flat(name, function(old_model, task, 50_000))
    found = measured(getattr(measures, name), model, Permutation(**TASK))
    for place, values in found.items():
        if place[:2] in (("recall", "mlp_ablation.resample"), ("elimination", "mlp_ablation.resample")):
            continue  # whose donors are drawn in another way
        if place not in expected:
            assert place[0] in new, place
            continue
        other = [0.0 if each is None else each for each in expected[place]]
        assert [each or 0.0 for each in values] == pytest.approx(other, abs=1e-5), place
    assert sum(place in expected for place in found) >= 6


def test_what_is_read_off_curves():
    """Random curves, of which one belongs to a diverged member."""
    generator = torch.Generator().manual_seed(3)
    steps = [*range(0, 1980, 20), 1987]
    curves = {
        ("held_out", "recall"): torch.rand(3, 100, generator=generator).mul(0.2) + torch.linspace(0, 1, 100).pow(3),
        ("held_out", "elimination"): torch.rand(3, 100, generator=generator).mul(0.1) + torch.linspace(0, 0.9, 100),
        ("held_out", "mass_recalled"): torch.rand(3, 100, generator=generator),
        ("train", "loss"): torch.rand(3, 100, generator=generator) + 0.5,
    }  # fmt: skip
    curves = {key: values.double() for key, values in curves.items()}
    record = [
        {"split": split, "metric": metric, "step": step, "value": [*values[:2, at].tolist(), None]}
        for (split, metric), values in curves.items()
        for at, step in enumerate(steps)
        if step or split == "held_out"
    ]

    class Curves:
        def __init__(self, split):
            self.split = split

        def curve(self, metric, member):
            start = int(self.split == "train")
            return (
                (steps[start:], curves[self.split, metric][member, start:].tolist())
                if member < 2
                else ([], [])
            )

    options = {"samples_per_epoch": 1010, "batch_size": 10, "values": 4}
    for data in ("plain", "repeats"):
        config = PermutationStudyConfig(configurations=(f"d8/1 {data}",), seeds=3, **options)
        (job,) = (job.model_copy(update={"members": job.members}) for job in config.jobs()[:1])
        job = job.model_copy(update={"members": tuple(replace_member(job.members[0], n) for n in range(3))})
        rows = old_measures.of_curves(
            job, config, {split: Curves(split) for split in ("train", "held_out")}, {2}
        )
        expected = {}
        for row in rows:
            expected.setdefault((row.metric, row.part, row.split, row.measure), []).append(row.value)
        task = Permutation(values=4, repeat_ratio=0.3 * (data == "repeats"))
        model = Transformer(TransformerConfig(**SHAPE), 3)
        for measure in (measures.last_epoch, measures.late, measures.transition):
            given = {"record": record, "diverged": [None, None, 1990], **options}
            for (metric, part, split, _), values in measured(measure, model, task, **given).items():
                if (metric, part) != ("width", "elimination.from_zero") and not (part or "").startswith(
                    "elimination.f"
                ):
                    other = expected[metric, part, split, measure.name]
                    assert values[:2] == pytest.approx(other[:2], abs=1e-9), (metric, part)
                    assert values[2] is None


def replace_member(member, number):
    return member.model_copy(update={"member": number, "seed": number})


# Verdicts.

OPENED = ("refuted", "inconclusive")
CHANGED = {
    # Where one split of the mappings had decided, ten are needed; and nothing is refuted before every reading was tried
    # (docs/protocol_log.md, 2026-11-23).
    "paper": {"P6": ("reproduced", "inconclusive"), **dict.fromkeys(("P3", "P7", "P8", "P11"), OPENED)},
    # Plain data for the model of width 16, and medians of the last epochs, are a reading together, too (2026-11-26).
    "readings": {"P8": OPENED},
    "no-positions": {},
}  # fmt: skip
ADDED = {"paper": {"P9b", "P12"}, "readings": set(), "no-positions": {"P9b", "P12"}}


@pytest.mark.parametrize("name", CHANGED)
def test_verdicts_on_the_committed_evidence(name):
    config = json.loads((RESULTS / name / "config.json").read_text())["config"]
    committed = {each["id"]: each for each in json.loads((RESULTS / name / "claims.json").read_text())}
    known = {key: value for key, value in config.items() if key in type(study.options).model_fields}
    known["init"] = {"torch": "encoder"}.get(known["init"], known["init"])  # as it was called then
    evidence = Evidence.read(RESULTS / name)
    verdicts = {}
    for claim in study.changed(known).all_claims():
        found, before = judge(claim, evidence).to_json(), committed.get(claim.id)
        if claim.id in ADDED[name]:
            assert before is None
            continue
        if found["verdict"] != before["verdict"]:
            verdicts[claim.id] = before["verdict"], found["verdict"]
        assert found["n"] == before["n"]
        for key in ("value", "interval"):
            assert numbers(found[key]) == pytest.approx(numbers(before[key]), rel=1e-12, abs=1e-15), claim.id
    assert verdicts == CHANGED[name]


def numbers(value):
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in numbers(value[key])]
    return (
        [each for one in value for each in numbers(one)]
        if isinstance(value, list)
        else []
        if value is None
        else [value]
    )
