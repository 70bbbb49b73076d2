"""The study of multi-query recall: what its claims say of runs with a known result, its page and its measure."""

import pytest
import torch
from tests.story.user_run import texts

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.recall.study import STEPS, Options, cells, claims, configurations, label, smaller_scale

SEEDS, OPTIONS = 8, Options()
PLACE = {pairs: 1 / pairs for pairs in OPTIONS.pairs}


def as_published(layers, width, pairs, seed):
    return 0.998 if layers == 2 else PLACE[pairs] - 0.01


def nothing(layers, width, pairs, seed):
    return PLACE[pairs]


def everything(layers, width, pairs, seed):
    return 0.998


def width_grows(layers, width, pairs, seed):
    return as_published(layers if width >= 4 * pairs else 1, width, pairs, seed)


def one_guesses_well(layers, width, pairs, seed):
    return (
        PLACE[pairs] + 0.2 if (layers, pairs, seed) == (1, 8, 3) else as_published(layers, width, pairs, seed)
    )


def evidence(values=as_published, diverged=(), steps=STEPS, attention=0.95):
    members, rows = [], []
    for cell, each in zip(cells(OPTIONS), configurations(OPTIONS), strict=True):
        for seed in range(SEEDS):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            final = None if member in diverged else values(*cell, seed)
            rows += [
                Row(member, "training", "accuracy", value, step=time)
                for time, value in ((0, 0.0), (steps, final))
            ]
            for layer in range(cell[0]):
                for metric in ("attention_to_key", "attention_to_value"):
                    found = attention if cell[0] == 2 else 0.2
                    value = None if member in diverged else found
                    rows.append(Row(member, metric, metric, value, step=steps, layer=layer, head=0))
    config = {"task": {"fields": {"vocabulary": 64, "power": 1.0}}, "training": {"steps": steps},
              "options": OPTIONS.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(**changed):
    """Claim → verdict at the scale of the run, which is smaller than that of the publication."""
    found = evidence(**changed)
    judged = [judge(claim, found) for claim in claims(OPTIONS)]
    assert {each.verdict for each in judged} == {"inconclusive"}
    return {each.id: each.here.verdict for each in judged}


def test_a_run_as_published():
    assert verdicts() == dict.fromkeys(("N2a", "N2b", "N2c", "N2d"), "reproduced")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"values": nothing}, {"N2a": "refuted", "N2b": "refuted"}),
        ({"values": everything}, {"N2c": "refuted"}),
        ({"values": width_grows}, {"N2a": "reproduced", "N2b": "refuted", "N2c": "reproduced"}),
        ({"values": one_guesses_well}, {"N2a": "reproduced", "N2c": "refuted"}),
        ({"attention": 0.5}, {"N2a": "reproduced", "N2d": "refuted"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = verdicts(**changed)
    assert {name: found[name] for name in expected} == expected


def test_a_claim_whose_control_shows_the_same_is_not_reproduced():
    found = verdicts(values=everything)
    assert found["N2a"] != "reproduced" and found["N2b"] != "reproduced"
    assert verdicts(values=nothing)["N2c"] != "reproduced"


def test_what_a_run_lacks_of_the_published_experiment():
    usual = (
        "places of queries uniform, not by a power law, 64 tokens, not 8,192, widths to 64, not 512, "
        "16 pairs, not 64, 4 positions for a pair, not 16"
    )
    assert smaller_scale(evidence()) == usual
    assert smaller_scale(evidence(steps=60)) == f"60 of 2,000 steps, {usual}"


def test_one_number_of_pairs_says_nothing_of_more():
    assert [claim.id for claim in claims(Options(pairs=(4,)))] == ["N2a", "N2c", "N2d"]


@pytest.mark.parametrize(
    ("values", "diverged"),
    [(as_published, ()), (nothing, ()), (everything, ()), (as_published, (41,)), (as_published, range(72))],
)
def test_the_page_is_written(values, diverged, tmp_path):
    program, found = find_study("recall"), evidence(values, diverged)
    config = program.configured("laptop", {})
    run = RunFolder.create(tmp_path, "recall", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    words = texts(run.read_json("story.json")).replace("\u00a0", " ")
    assert (f"Training diverged in {len(diverged)} of them" in words) == bool(diverged)
    recalls = values is not nothing and len(diverged) < 2
    all_do = "all seeds that did not diverge recall" if diverged else "all seeds recall"
    assert (f"{all_do}, with 4, 8, 16 pairs" in words) == recalls
    assert ("not every seed recalls in" in words) == (not recalls)
    assert ("With one layer none knows more" in words) == (len(diverged) < 2 and values is not everything)


def test_attention_to_keys_is_that_of_a_loop(tmp_path):
    fields = {
        "seeds": 2, "training.steps": 3, "training.batch_size": 5, "training.evaluate_every": 3,
        "options.widths": (8,), "options.pairs": (3, 5), "task.vocabulary": 22,
    }  # fmt: skip
    run = hs.run("recall", fields=fields, out=tmp_path)
    ensemble = run.ensemble(configuration=label(2, 8, 5))
    pattern = ensemble.cache(ensemble.batch(64).inputs)["blocks.1.attn.hook_pattern"]
    expected = torch.stack([pattern[:, :, 0, row, row - 1].mean(1) for row in range(1, 10, 2)]).mean(0)
    rows = run.evidence.rows("attention_to_key", layer=1, head=0, configuration=label(2, 8, 5))
    torch.testing.assert_close(torch.tensor(rows["value"].tolist()), expected, atol=1e-5, rtol=1e-4)
