"""The study of in-context Markov chains: what its claims say of runs with a known result, its page and its measure."""

import pytest
import torch
from tests.story.user_run import texts

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.markov.study import STEPS, Options, claims, label, lacks, phases

SEEDS, OPTIONS = 8, Options()
TIMES = (0, 500, 1_000, 2_000, STEPS)


def as_published(layers, seed):
    """Divergence from the uniform, the unigram and the bigram predictor at each time."""
    if layers == 1:
        return [(0.0, 0.2, 0.2), (0.1, 0.02, 0.1), (0.1, 0.02, 0.1), (0.1, 0.02, 0.1), (0.1, 0.02, 0.1)]
    return [(0.0, 0.2, 0.2), (0.1, 0.03, 0.1), (0.15, 0.08, 0.04), (0.2, 0.1, 0.02), (0.2, 0.1, 0.01)]


def never_pairs(layers, seed):
    return as_published(1, seed)


def at_once(layers, seed):
    """Pairs are counted without single states first."""
    return [(0.0, 0.2, 0.2), *[(0.2, 0.1, 0.01)] * 4] if layers == 2 else as_published(1, seed)


def one_layer_does_it(layers, seed):
    return as_published(2, seed)


def evidence(values=as_published, diverged=(), steps=STEPS):
    members, rows = [], []
    for layers in OPTIONS.layers:
        for seed in range(SEEDS):
            member = len(members)
            members.append({"member": member, "seed": seed, "configuration": label(layers),
                            "overrides": {"model.layers": layers}})  # fmt: skip
            for time, numbers in zip(TIMES, values(layers, seed), strict=True):
                named = dict(zip(("uniform", "unigram", "bigram"), numbers, strict=True))
                gone = member in diverged and time
                rows += [Row(member, "training", f"from_{name}", None if gone else value, step=time)
                         for name, value in named.items()]  # fmt: skip
                rows.append(Row(member, "training", "excess", None if gone else named["bigram"], step=time))
            for layer in range(layers):
                for metric in ("attention_to_previous", "to_successors"):
                    rows.append(Row(member, metric, metric, 0.5, step=STEPS, layer=layer, head=0))
            rows.append(Row(member, "to_successors", "to_successors_uniform", 0.4, step=STEPS))
    config = {"task": {"fields": {"states": 3}}, "model": {"width": 64}, "training": {"steps": steps}}
    return Evidence.of(members, rows, {**config, "options": OPTIONS.model_dump(mode="json"), "seeds": SEEDS})


def verdicts(**changed):
    """Claim → verdict at the scale of the run, whose positions are not those of the publication."""
    found = evidence(**changed)
    judged = [judge(claim, found) for claim in claims(OPTIONS)]
    assert {each.verdict for each in judged} == {"inconclusive"}
    return {each.id: each.here.verdict for each in judged}


def test_a_run_as_published():
    assert verdicts() == dict.fromkeys(("N3a", "N3b", "N3c"), "reproduced")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"values": never_pairs}, {"N3a": "refuted", "N3c": "inconclusive"}),
        ({"values": at_once}, {"N3a": "reproduced", "N3b": "refuted"}),
        ({"values": one_layer_does_it}, {"N3a": "inconclusive", "N3c": "refuted"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = verdicts(**changed)
    assert {name: found[name] for name in expected} == expected


def test_what_a_run_lacks_of_the_published_experiment():
    assert lacks(evidence()) == "learned positions, not relative ones"
    assert lacks(evidence(steps=200)) == "learned positions, not relative ones, 200 of 3,000 steps"


def test_phases_of_a_member():
    found = phases(evidence(diverged=(9,)))
    assert found[8] == {"least": pytest.approx(0.03), "lead": 1_500}
    assert found[9]["lead"] != found[9]["lead"]  # not known


def test_the_least_is_looked_for_before_the_model_comes_near_bigrams():
    """Unigrams may be nearer still when it is all over."""

    def later(layers, seed):
        return [*as_published(layers, seed)[:4], (0.2, 0.01, 0.02)]

    assert phases(evidence(later))[8]["least"] == pytest.approx(0.03)


def test_one_depth_alone_claims_nothing():
    assert claims(Options(layers=(2,))) == []


@pytest.mark.parametrize("diverged", [(), (3,), range(16)])
def test_the_page_is_written(diverged, tmp_path):
    program, found = find_study("markov"), evidence(diverged=diverged)
    config = program.configured("laptop", {})
    run = RunFolder.create(tmp_path, "markov", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    words = texts(run.read_json("story.json"))
    assert "a Markov chain with 3 states" in words
    assert (f"Training diverged in {len(diverged)} of them" in words) == bool(diverged)


def test_attention_to_successors_is_that_of_a_loop(tmp_path):
    fields = {
        "seeds": 2, "training.steps": 3, "task.length": 11, "model.width": 8, "model.heads": 2,
        "training.batch_size": 5, "training.evaluate_every": 3, "options.layers": (2,),
    }  # fmt: skip
    run = hs.run("markov", fields=fields, out=tmp_path)
    ensemble = run.ensemble(configuration=label(2))
    batch = ensemble.batch(1024)  # as many as the study holds out
    pattern = ensemble.cache(batch.inputs)["blocks.1.attn.hook_pattern"]
    states = batch.inputs[0].tolist()
    masses, even = [], []
    for sample, walk in enumerate(states):
        for row in range(11):
            keys = [key for key in range(1, row + 1) if walk[key - 1] == walk[row]]
            if keys:
                masses.append(pattern[:, sample, 1, row, keys].sum(-1))
                even.append(len(keys) / (row + 1))
    rows = run.evidence.rows("to_successors", layer=1, head=1).set_index("member")["value"]
    torch.testing.assert_close(torch.tensor(rows.tolist()), torch.stack(masses).mean(0), atol=1e-5, rtol=1e-4)
    assert run.evidence.last("to_successors_uniform")[0] == pytest.approx(sum(even) / len(even), abs=1e-5)
