"""The study of formation: verdicts on made-up times both ways, its page, and its measures against loops."""

import math

import pytest
import torch
from tests.story.user_run import texts

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.formation.claims import claims, doublings, lacks, neighbours
from hopscope.studies.formation.measures import SIGNS
from hopscope.studies.formation.options import BASES, ONE, REPEATS, WIDTH, Options
from hopscope.studies.formation.study import configurations

SEEDS, OPTIONS, JITTER = 8, Options(), (1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.07)


def law(one, repeats, depth=0.7, unable=math.inf):
    """Times by (context, batch) exponents of each variant; `depth`: factor of larger models; `unable`: of controls."""

    def time(variant, context, batch, what):
        if what in ("1 layer", "shuffled values"):
            return unable
        by_context, by_batch = {ONE: one, REPEATS: repeats}[variant]
        base = BASES[variant]
        found = 200 * (context / base[0]) ** by_context * (batch / base[1]) ** by_batch
        return found / depth if what == "width 32" else found * depth if what else found

    return time


TOKENS, STEPS = (-0.5, -0.5), (2.0, -0.5)
MIXED = law(STEPS, TOKENS)


def evidence(time=MIXED, diverged=(), width=WIDTH, options=OPTIONS):
    members, rows = [], []
    for cell in configurations(options):
        variant = REPEATS if cell.overrides["task.repeats"] else ONE
        context, batch, end = (cell.overrides[f"{name}"] for name in
                               ("task.context", "training.batch_size", "training.steps"))  # fmt: skip
        what = "" if "batch" in cell.label else cell.label.split(", ")[1]
        for seed in range(SEEDS):
            member = len(members)
            members.append({"member": member, "seed": seed, "configuration": cell.label,
                            "overrides": cell.overrides})  # fmt: skip
            when = time(variant, context, batch, what) * JITTER[seed]
            when = math.inf if when > 50 * end else when
            for sign in SIGNS:
                values = {"formed_at": when, "plateau": 0.1,
                          "not_before": 0.97 * when if math.isfinite(when) else float(end)}  # fmt: skip
                for metric, value in values.items():
                    gone = member in diverged
                    rows.append(Row(member, "formed", metric, None if gone else value, step=end, part=sign))
            for metric in ("accuracy", "to_answers"):
                rows += [Row(member, "training", metric, None if member in diverged and step else 0.5, step=step)
                         for step in (0, end)]  # fmt: skip
    config = {"task": {"fields": {"kinds": 16}}, "model": {"width": width, "layers": 2}, "training": {"steps": 1500},
              "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(*arguments, **changed):
    found = evidence(*arguments, **changed)
    return {claim.id: judge(claim, found).verdict for claim in claims(OPTIONS)}


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (law(TOKENS, TOKENS), {"I1": "reproduced", "I2": "refuted", "I3": "refuted", "I4": "reproduced"}),
        (law(STEPS, STEPS), {"I1": "refuted", "I2": "reproduced", "I3": "refuted", "I4": "reproduced"}),
        (MIXED, {"I1": "refuted", "I2": "refuted", "I3": "reproduced", "I5": "reproduced"}),
        (law(TOKENS, STEPS), {"I1": "refuted", "I2": "refuted", "I3": "refuted"}),
        (law(STEPS, TOKENS, depth=1.5), {"I4": "refuted"}),
    ],
)
def test_verdicts_follow_the_law(time, expected):
    found = verdicts(time)
    assert {name: found[name] for name in expected} == expected


def test_where_controls_form_heads_no_law_is_reproduced():
    found = verdicts(law(TOKENS, TOKENS, unable=100.0))
    assert found["I1"] == "inconclusive"
    assert found["I5"] == "refuted"


def test_where_nothing_forms_no_law_is_judged():
    found = verdicts(lambda *cell: math.inf)
    assert found == {
        "I1": "not run",
        "I2": "not run",
        "I3": "not run",
        "I5": "inconclusive",
        "I4": found["I4"],
    }
    assert found["I4"] != "reproduced"


def test_a_smaller_model_that_never_formed_counts_as_the_end():
    found = doublings({0: 200.0, 1: math.inf, 2: 400.0}, {0: math.inf, 1: 200.0, 2: 100.0}, end=800.0)
    assert found.values == (-2.0, math.inf, 2.0)
    assert doublings({0: 1.0}, {}, end=800.0).values == (None,)


def test_the_control_of_two_shapes_can_fail():
    """Around the circle of all seeds the mean of the logarithms is 0 whatever the times are."""
    found = neighbours(ONE)(evidence()).values
    assert len(found) == SEEDS // 2 and all(found) and abs(sum(found)) > 1e-9


def test_what_a_run_lacks():
    assert lacks(evidence()) == ""
    assert lacks(evidence(width=8)) == "width 8"
    fewer = OPTIONS.model_copy(update={"one_steps": (20, 20, 20)})
    assert lacks(evidence(options=fewer)) == "smaller one steps"


def test_options_must_be_aligned_and_without_the_standard_model_nothing_is_claimed():
    with pytest.raises(ValueError, match="one number for each of 1 batches"):
        Options(batches=(64,))
    assert claims(Options(one_contexts=(8,))) == []


@pytest.mark.parametrize("time", [MIXED, lambda *cell: math.inf])
@pytest.mark.parametrize("diverged", [(), (3,), range(1_000)])
def test_the_page_is_written(time, diverged, tmp_path):
    program, found = find_study("formation"), evidence(time, diverged)
    config = program.configured("laptop", {})
    run = RunFolder.create(tmp_path, "formation", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    words = texts(run.read_json("story.json"))
    gone = min(len(diverged), len(found.members))
    assert (f"Training diverged in {gone} of them" in words) == bool(gone)
    weighed = time is MIXED and gone < len(found.members)
    assert ("nearer to its paper counts most" in words) == weighed
    assert ("lies within the band of 1.5 to 2.5" in words) == weighed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of four cells that stops long before a head can form."""
    fields = {
        "seeds": 2, "model.width": 8, "options.batches": (5, 64), "options.one_steps": (3, 3),
        "options.repeats_steps": (3, 3), "options.every": (3, 3), "options.layers": (), "options.widths": (),
        "options.one_contexts": (8,), "options.repeats_contexts": (12,),
    }  # fmt: skip
    return hs.run("formation", fields=fields, out=tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("repeats", [False, True])
def test_measures_are_those_of_loops(run, repeats):
    name = f"{REPEATS if repeats else ONE}, context {12 if repeats else 8}, batch 5"
    ensemble = run.ensemble(configuration=name)
    batch = ensemble.batch(128)  # as many as the study holds out
    cache = ensemble.cache(batch.inputs)
    best, even = [], []
    for layer in range(2):
        pattern, masses = cache[f"blocks.{layer}.attn.hook_pattern"], []
        for sample, tokens in enumerate(batch.inputs[0].tolist()):
            for row in ensemble.config.readout_positions:
                keys = [at + 1 for at in range(0, row, 2) if tokens[at] == tokens[row]]
                if keys:
                    masses.append(pattern[:, sample, 0, row, keys].sum(-1))
                    even.append(len(keys) / (row + 1))
        best.append(torch.stack(masses).mean(0))
    found = run.evidence.last("to_answers", configuration=name)
    torch.testing.assert_close(torch.tensor(found.tolist()), torch.stack(best).amax(0), atol=1e-5, rtol=1e-4)
    plateau = run.evidence.last("plateau", part="attention", configuration=name)
    assert plateau.iloc[0] == pytest.approx(sum(even) / len(even), abs=1e-5)
    assert all(
        math.isinf(time) for time in run.evidence.last("formed_at", part="accuracy", configuration=name)
    )
    assert set(run.evidence.last("not_before", part="accuracy", configuration=name)) == {3.0}
