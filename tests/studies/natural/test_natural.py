"""The study of natural text: its grid, what its claims say of runs with a known result, and its page."""

import math
import random

import pytest
from tests.story.user_run import texts
from tests.studies.quick_evidence import of_one_completion

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.natural import study as natural
from hopscope.studies.natural.counting import DEFINITIONS, by_block
from hopscope.studies.natural.study import DEEPEST, MOST, TEXT, UNIFORM, ZIPF, Options, claims, study

SEEDS, OPTIONS = 8, Options(files=("book.txt",))
SHARES = {TEXT: 0.01, MOST: 0.02}
TEXTS = [f"text {number}" for number in range(9)]


@pytest.fixture(autouse=True)
def counted_before(monkeypatch):
    """Shares of two hops, without counting them."""
    shares = {"words": SHARES[TEXT], "content words": SHARES[MOST]}
    monkeypatch.setattr(natural, "two_hop_shares", lambda files, words: shares)


def mixtures_help(name, seed):
    return 100.0 + 20 * (seed % 2) if name != DEEPEST else math.inf


def texts_are_too_easy(name, seed):
    return math.inf if name in (TEXT, MOST) else mixtures_help(name, seed)


def nobody(name, seed):
    return math.inf


def all_alike(name, seed):
    return 100.0


def seed_decides(name, seed):
    """Two hops alone are learned by every other seed, mixtures by all."""
    return 20.0 if name != DEEPEST or seed % 2 else math.inf


FALLING, RISING, NOTHING = (0.10, 0.02, 0.005), (0.01, 0.02, 0.03), (0.0, 0.0, 0.0)


def evidence(
    when=mixtures_help, hops=FALLING, control=NOTHING, diverged=(), steps=400, options=OPTIONS, texts=9
):
    members, rows = [], []
    for each in study.configurations(options):
        for seed in range(SEEDS):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            gone, time = member in diverged, when(each.label, seed)
            for step, loss in ((1, 0.1), (2, 0.76 if math.isinf(time) else 0.1)):
                rows += [Row(member, "training", f"loss_step_{step}", value, step=at)
                         for at, value in {0: 1.1, steps: None if gone else loss}.items()]  # fmt: skip
            value = None if gone else time
            rows.append(Row(member, "learned_at", "learned_at", value, step=steps, part="step_2"))
    drawn = random.Random(5)
    for text in TEXTS[:texts]:
        source = f"{text} · a file that was given · SHA-256 {'0' * 64}"
        rows.append(Row(None, "hops", "words", 6_000.0, part=source))
        for definition in DEFINITIONS:
            for metric, values in (("excess", hops), ("control", control)):
                for hop, value in enumerate(values, start=1):
                    for block in range(3):
                        part = f"{definition.name} · {text} · {block}"
                        noise = drawn.uniform(-0.001, 0.001)
                        rows.append(Row(None, "hops", f"{metric}_{hop}", value + noise, part=part))
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": steps, "batch_size": 128},
              "options": options.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def verdicts(**changed):
    found = evidence(**changed)
    return of_one_completion(claims(changed.get("options", OPTIONS)), found)


def test_mixtures():
    found = {each.label: each.overrides["task.shares"][1] for each in study.configurations(OPTIONS)}
    assert found == pytest.approx(
        {DEEPEST: 1.0, UNIFORM: 0.5, ZIPF: 1 / 3, "0.03 two hops": 0.03, "0.1 two hops": 0.1, "0.9 two hops": 0.9,
         **SHARES}
    )  # fmt: skip
    for each in study.configurations(OPTIONS):
        task = type(study.task).model_validate({**dict(study.task), "shares": each.overrides["task.shares"]})
        hs.testing.check_task(task)


def test_a_run_in_which_text_supplies_the_curriculum():
    assert verdicts() == dict.fromkeys(("S6a", "S6b", "S6c", "S6d"), "reproduced")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"when": texts_are_too_easy},
            {"S6b": "not run", "S6d": "reproduced"},
        ),  # nor do the deepest texts alone
        (
            {"when": nobody},
            {"S6b": "not run", "S6d": "not run"},
        ),  # which would have been sooner, nobody knows
        ({"when": all_alike}, {"S6b": "refuted", "S6d": "refuted"}),
        ({"when": seed_decides}, {"S6b": "inconclusive", "S6d": "inconclusive"}),  # the control moves as much
        ({"hops": RISING}, {"S6a": "refuted", "S6c": "reproduced"}),
        ({"hops": (0.1, -0.01, -0.02)}, {"S6a": "reproduced", "S6c": "refuted"}),
        ({"hops": NOTHING}, {"S6a": "refuted", "S6c": "refuted"}),
        ({"hops": (0.1, 0.0, 0.0)}, {"S6a": "reproduced", "S6c": "refuted"}),
        ({"hops": (0.1, 0.02, 0.03)}, {"S6a": "refuted", "S6c": "reproduced"}),
        ({"control": FALLING}, {"S6a": "inconclusive", "S6c": "inconclusive"}),
        ({"texts": 7}, {"S6a": "inconclusive", "S6c": "inconclusive", "S6b": "reproduced"}),
        ({"texts": 0}, {"S6a": "not run", "S6c": "not run"}),
        ({"steps": 100}, {"S6b": "inconclusive", "S6d": "inconclusive", "S6a": "reproduced"}),
        ({"options": Options(words=100)}, {"S6a": "inconclusive", "S6b": "reproduced"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = verdicts(**changed)
    assert {name: found[name] for name in expected} == expected


def test_one_definition_that_rises_refutes():
    found = evidence()
    table = found.to_pandas()
    last = DEFINITIONS[-1].name
    rising = table["part"].fillna("").str.startswith(last) & (table["metric"] == "excess_2")
    rows = [
        Row(None, "hops", each["metric"], 0.2 if there else each["value"], part=each["part"])
        for there, each in zip(rising, table.to_dict("records"), strict=True)
        if each["measure"] == "hops"
    ]
    judged = {claim.id: judge(claim, Evidence.of([], rows, found.config)) for claim in claims(OPTIONS)[:2]}
    assert judged["S6a"].verdict == "refuted" and judged["S6c"].verdict == "reproduced"
    assert judged["S6a"].words == f"15 of 16 hold, 1 of 16 fail (failing: {last}: 1 over 2)"
    assert judged["S6c"].words == "8 of 8 hold"


CASES = {
    "text helps": {},
    "too easy": {"when": texts_are_too_easy, "hops": (0.1, 0.001, 0.0)},
    "nothing": {"when": nobody},
    "all alike": {"when": all_alike},
    "one diverged": {"diverged": (1,)},
    "all diverged": {"diverged": range(1000), "texts": 1},
    "nothing counted": {"texts": 0},
}
SAID = {
    "text helps": "The mixture of the texts helps here: 8 of 8 seeds",
    "too easy": "but not in the proportion of the texts (0 of 8)",
    "nothing": "says nothing of the texts' mixture",
    "all alike": "so this run shows no curriculum",
    "one diverged": "Training diverged in 1 of them",
    "all diverged": "says nothing of the texts' mixture",
    "nothing counted": "Nothing was counted in this run",
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    program, found = find_study("natural"), evidence(**CASES[case])
    config = program.configured("laptop", {"files": OPTIONS.files})
    run = RunFolder.create(tmp_path, "natural", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    for name in figure_names(run.path / "figures"):
        render_figure(run.path / "figures", name)
    words = texts(run.read_json("story.json")).replace("\u00a0", " ")
    assert SAID[case] in words
    if case in ("text helps", "too easy", "nothing", "all alike"):
        assert not any(other in words for other in set(SAID.values()) - {SAID[case]})
    assert ("two hops beyond chance are rare" in words) == (case != "nothing counted")


@pytest.mark.extras
def test_a_small_run_from_end_to_end(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("a stone and a stone and a tree. " * 300)
    fields = {
        "seeds": 2, "training.steps": 4, "model.width": 24, "model.head_dim": 2, "training.batch_size": 5,
        "training.evaluate_every": 2, "words": 300, "shares": (), "files": (str(file),),
    }  # fmt: skip
    run = hs.run("natural", fields=fields, out=tmp_path)
    assert set(run.evidence.configurations.values()) == {DEEPEST, UNIFORM, ZIPF, TEXT, MOST}
    blocks = by_block(run.evidence, "excess_1", "words")
    assert set(blocks) == {"language reference", "documentation strings", "book"}
    assert blocks["book"][0] > 0.3
    assert "SHA-256" in (run.path / "story.json").read_text()
