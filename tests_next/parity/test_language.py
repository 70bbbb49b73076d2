"""Questions equal to the byte, where everything stands in them, hops, answers' counts, and heads: in both houses."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from hopscope.language.questions.prompts import placer
from hopscope.language.questions.sets import question_set
from hopscope.studies.natural.counting import DEFINITIONS, _labels, beyond_chance
from hopscope.studies.natural.texts import texts
from hopscope.tasks.text import TextConfig, questions
from hopscope_next.language import hops
from hopscope_next.language.questions import Questions, kinds

KINDS = [
    ("equations", {}), ("equations", {"depth": 7, "chains": 5}), ("equations", {"depth": 40, "chains": 17}),
    ("lives_with", {}), ("lives_with", {"depth": 45, "chains": 8}), ("kingdoms", {}), ("kingdoms", {"chains": 26}),
    ("functions", {}), ("relatives", {}),
]  # fmt: skip
PUT = [
    {},
    {"few_shot": 2},
    {"filler": 5, "repeats": 3},
    {"few_shot": 1, "complete": True, "repeats": 2, "filler": 3},
]


@pytest.mark.parametrize(("name", "fields"), KINDS, ids=str)
@pytest.mark.parametrize("seed", [0, 2**40])
def test_questions_are_equal_to_the_byte(name, fields, seed):
    config, kind = (
        TextConfig(formulation=name, **fields),
        Questions(formulation=name, count=5, seed=seed, **fields),
    )
    for old, new in zip(questions(config, 5, seed), kind.drawn(), strict=True):
        structure = old.structure
        assert (old.id, old.prompt, old.answer, old.acceptable) == (
            new.id,
            new.prompt,
            new.answer,
            new.acceptable,
        )
        assert (structure.chain, structure.symbols) == (new.chain, new.symbols)
        assert {each.answer: each.lost for each in structure.alternatives} == new.lost
        for how in PUT:
            placed = placer(config, seed, **how)(old)
            own = {key: value for key, value in how.items() if key != "complete"}
            measure = "choice" if how.get("complete") else "answers"
            put = Questions(formulation=name, seed=seed, measure=measure, **fields, **own).put(new)
            assert (placed.text, placed.joiner) == (put.text, put.joiner)
            told = {(each.symbol, each.start, each.end) for each in put.mentions if each.line < 0}
            assert told == {(each.symbol, each.start, each.end) for each in placed.query}
            facts = {
                (fact.chain, fact.step, each.symbol, each.start + start, each.end + start, each is fact.found)
                for start in placed.tellings for fact in structure.facts for each in (*fact.given, fact.found)
            }  # fmt: skip
            assert facts == {
                (each.chain, each.step, each.symbol, each.start, each.end, each.found)
                for each in put.mentions if each.line >= 0
            }  # fmt: skip


def test_held_out_questions_are_the_same():
    fields = {"count": 9, "held_out": 0.3, "split_seed": 2}
    old = question_set(formulations=("equations",), depths=[1, 2], chains=3, **fields).questions()
    new = (one for kind in kinds(["equations"], [1, 2], 3, **fields) for one in kind.drawn())
    assert [one.prompt for one in old] == [one.prompt for one in new]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)
def test_hops_are_the_same(definition):
    (text, *_) = texts((), 1500)
    by, window = definition.tokens, definition.window
    orders = [None, 0, 1]
    new = [hops.hops(text.text, by, window=window, any=definition.any, shuffle=order) for order in orders]
    old = [_labels(text, definition, -1 if order is None else order) for order in orders]
    for one, other in zip(old, new, strict=True):
        assert np.array_equal(one, other)
    counts = [
        np.array([[len(each), (each >= 0).sum(), *((each == hop).sum() for hop in (1, 2, 3))]], float)
        for each in old
    ]
    excess = beyond_chance(counts[0], np.mean(counts[1:], axis=0))[0]
    assert hops.beyond_chance(new[0], new[1:]) == pytest.approx(excess, abs=1e-12)


@pytest.mark.extras
@pytest.mark.parametrize("depth", [1, 2])
def test_heads_are_the_same(depth):
    pytest.importorskip("transformers")
    from hopscope.language.heads.model import attentive as old_attentive
    from hopscope.language.heads.scoring import score as old_score
    from hopscope_next.language.heads import attentive, score

    file = Path(__file__).resolve().parents[2] / "tests" / "language" / "heads" / "planted.py"
    spec = importlib.util.spec_from_file_location("first_house_planted", file)
    planted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    model, words = planted.gpt2(), planted.tokenizer()
    old = old_score(
        old_attentive("m", model, words), "equations", depth=depth, count=11, top=(1, 2), draws=3, chains=3
    )
    asked = Questions(formulation="equations", depth=depth, count=11, chains=3)
    new = score(attentive("m", model, words), asked, top=(1, 2), draws=3)
    assert {*old["targets"]} == {*new["targets"]}
    for name, target in old["targets"].items():
        assert np.array(target["scores"]) == pytest.approx(np.array(new["targets"][name]["mean"]), abs=1e-5)
        ends = np.stack([new["targets"][name][end] for end in ("low", "high")], -1)
        assert np.array(target["interval"]) == pytest.approx(ends, abs=1e-5)
        assert target["floor"] == pytest.approx(new["targets"][name]["floor"])
    for one, other in zip(old["ablation"], new["ablation"], strict=True):
        assert [*map(tuple, one["heads"])] == other["heads"] and one["guess"] == pytest.approx(other["guess"])
        assert [one["accuracy"], *one["interval"]] == pytest.approx(other["all"])
        assert [one["top"]["accuracy"], *one["top"]["interval"]] == pytest.approx(other["top"])
        for name in ("top", "random", "layers"):
            assert one["cost"][name] == pytest.approx(100 * other[f"{name}_cost"][0])
            ends = [100 * end for end in other[f"{name}_cost"][1:]]
            assert one["cost"][f"{name}_interval"] == pytest.approx(ends, abs=3)
