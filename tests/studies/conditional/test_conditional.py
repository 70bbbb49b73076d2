"""The conditional study: its grid, what its claims say of runs with a known result, and its page."""

import math

import pytest
from tests.studies.quick_evidence import page, verdicts

import hopscope as hs
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies.conditional.study import (
    CHAIN_FIRST,
    MIXED,
    NOTHING_FIRST,
    ROOT,
    STEPS,
    SWITCH,
    TWO,
    VARIANTS,
    Options,
    configurations,
    study,
)

SEEDS = 16
OPTIONS = Options()
CLAIMS = ("S5a", "S5b", "S5c")


def as_the_paper_says(name, seed):
    """Training step at which z is learned."""
    if "z alone" in name and name != NOTHING_FIRST:
        return math.inf
    return {CHAIN_FIRST: SWITCH + 200, NOTHING_FIRST: SWITCH + 500}.get(name, 500)


def nothing(name, seed):
    return math.inf


def no_help(name, seed):
    return SWITCH + 510 if name in (CHAIN_FIRST, NOTHING_FIRST) else as_the_paper_says(name, seed)


def anything_helps(name, seed):
    return SWITCH + 200 if name == NOTHING_FIRST else as_the_paper_says(name, seed)


def everything(name, seed):
    return 400


def same_heads(seed):
    """Heads of another model are elsewhere."""
    return {(seed % 3, seed % 4), (4, 1)}, {(seed % 3, seed % 4), (4, 1), (5, 2)}


def new_heads(seed):
    return {(1, 0), (2, 1)}, {(3, 0), (4, 1)}


def all_heads(seed):
    every = {(layer, head) for layer in range(6) for head in range(4)}
    return every, every


def evidence(when=as_the_paper_says, heads=same_heads, diverged=(), steps=STEPS, options=OPTIONS):
    members, rows = [], []
    for each in configurations(options):
        for seed in range(SEEDS):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            time = when(each.label, seed)
            gone = member in diverged
            loss = None if gone else 0.9 if math.isinf(time) else 0.1
            for group in ("chain", "branching") if each.label == MIXED else (None,):
                rows += [
                    Row(member, "training", "loss_z", value, step=at, part=group)
                    for at, value in {0: 1.1, steps: loss}.items()
                ]
                part = "z" if group is None else f"z@{group}"
                rows.append(
                    Row(member, "learned_at", "learned_at", None if gone else time, step=steps, part=part)
                )
            if each.label == MIXED:
                for part, used in zip(("chain", "branching"), heads(seed), strict=True):
                    rows += [
                        Row(
                            member,
                            "rises",
                            "rise",
                            None if gone else 0.3 * ((layer, head) in used),
                            step=steps,
                            part=part,
                            layer=layer,
                            head=head,
                        )
                        for layer in range(6)
                        for head in range(4)
                    ]
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": steps},
              "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def judged(options=OPTIONS, **changed):
    return verdicts(study, options, evidence(options=options, **changed))


def test_every_variant_is_a_task():
    for name, fields in VARIANTS.items():
        task = study.task.model_validate({**study.task.model_dump(), **fields})
        assert task.shape().output_size == (4 if "z alone" in name and name != NOTHING_FIRST else 12)


def test_a_run_as_the_paper_says():
    assert judged() == dict.fromkeys(CLAIMS, "reproduced")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"when": nothing}, {"S5a": "refuted", "S5b": "not run"}),
        ({"when": everything}, {"S5a": "refuted"}),
        ({"heads": new_heads}, {"S5a": "reproduced", "S5b": "refuted"}),
        ({"when": no_help}, {"S5a": "reproduced", "S5c": "refuted"}),
        ({"steps": 90}, {"S5a": "inconclusive", "S5b": "inconclusive"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = judged(**changed)
    assert {name: found[name] for name in expected} == expected


def test_heads_that_are_all_used_show_no_reuse():
    """Where every head is used, the heads of another model are the same as well."""
    assert judged(heads=all_heads)["S5b"] != "reproduced"


def test_what_any_first_phase_does_is_no_help_of_the_chain():
    assert judged(when=anything_helps)["S5c"] != "reproduced"


def test_a_small_run_has_fewer_claims():
    small = Options(variants=(TWO, f"{TWO}, z alone"))
    assert judged(small) == {"S5a": "reproduced"}
    assert judged(Options(variants=(ROOT,))) == {}


CASES = {
    "as the paper says": ({}, "Models that were trained on both learned to do both"),
    "nothing": ({"when": nothing}, "this run does not say whether heads are used again"),
    "diverged": ({"diverged": (0, 20)}, "Training diverged in 2 of them"),
    "all diverged": ({"diverged": range(99)}, "does not say whether heads are used again"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    changed, said = CASES[case]
    every = {"options.variants": OPTIONS.variants}
    assert said in page(study, evidence(**changed), tmp_path, every)


def test_rises_are_those_of_heads_that_give_their_mean(tmp_path):
    """Against an intervention that is written out, on one group of the samples."""
    fields = {"seeds": 2, "training.steps": 3, "model.width": 24, "model.head_dim": 2, "model.layers": 2,
              "training.batch_size": 5, "training.evaluate_every": 3, "options.variants": (MIXED, TWO)}  # fmt: skip
    run = hs.run("conditional", fields=fields, out=tmp_path)
    ensemble = run.ensemble(configuration=MIXED)
    batch = ensemble.batch(512)  # as many as the study holds out

    def without(z):
        z[..., 2, :] = z[..., 2, :].mean(1, keepdim=True)
        return z

    found = ensemble.intervene(batch, {"blocks.1.attn.hook_z": without})
    last = slice(8, 12)
    squared = [
        (each - batch.targets)[..., last].square().mean((2, 3)) for each in (found, ensemble(batch.inputs))
    ]
    for part in ("chain", "branching"):
        chosen = batch.groups[part].expand(squared[0].shape)
        expected = [
            float(one[member][chosen[member]].mean() - other[member][chosen[member]].mean())
            for one, other in [squared]
            for member in range(2)
        ]
        rise = run.evidence.rows("rise", layer=1, head=2, part=part)["value"].tolist()
        assert rise == pytest.approx(expected, abs=1e-5)
    assert len(run.evidence.rows("rise")) == 2 * 2 * 4 * 2
