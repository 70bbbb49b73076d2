"""Ways to ask: where a model should look in each, and which one is taken."""

import pytest

from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, question

CONFIG = TextConfig(formulation="equations", depth=2, chains=3)
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def told(planted, index=5, **changes):
    """A question in the planted tokenizer's tokens, as words, with what should be read and the roles."""
    from hopscope.language.heads.tokens import Reader
    from hopscope.language.questions.prompts import placer

    one = question(CONFIG, index, 7)
    found = Reader(planted.tokenizer()).read(one, placer(CONFIG, 7, **changes)(one))
    return one, [planted.VOCABULARY[token] for token in found.ids], found


@pytest.mark.parametrize("changes", [{"repeats": 3}, {"repeats": 3, "complete": True}])
def test_targets_stand_in_all_tellings_and_rows_in_the_last(planted, changes):
    one, words, found = told(planted, **changes)
    symbols = one.structure.symbols[one.structure.chain]
    once = told(planted)[2]
    last = max(n for n, role in enumerate(found.roles) if role.startswith("telling 3 step"))
    first = min(n for n, role in enumerate(found.roles) if role.startswith("telling 3 step"))
    for step in (1, 2):
        ((row, targets),) = found.reads[f"answer:hop_{step}"]
        assert row == len(words) - 1
        assert [words[n] for n in targets] == [symbols[step]] * 3 * len(
            once.reads[f"answer:hop_{step}"][0][1]
        )
    ((_, asked),) = found.reads["answer:query"]
    assert [words[n] for n in asked] == [symbols[0]] and asked[0] > last
    ((_, given),) = found.reads["answer:same_symbol"]
    assert [words[n] for n in given] == [symbols[0]] * 3
    for name in ("facts:pair_mate", "facts:same_symbol"):
        assert all(first <= row <= last for row, _ in found.reads[name]), name
    assert len(found.reads["facts:pair_mate"]) == len(one.structure.facts)
    for row, targets in found.reads["facts:pair_mate"]:
        (mate,) = {words[n] for n in targets}
        assert len(targets) == 3 and (words[row - 2], "=", words[row]) == (mate, "=", words[row])
    # From the second telling on, every symbol has been seen before.
    assert len(found.reads["facts:same_symbol"]) == 2 * len(one.structure.facts)
    assert all(words[n] == words[row] for row, targets in found.reads["facts:same_symbol"] for n in targets)


def test_roles_tell_tellings_and_examples_apart(planted):
    _, words, found = told(planted, repeats=2, few_shot=1, complete=True)
    _, others, other = told(planted, index=6, repeats=2, few_shot=1, complete=True)
    assert found.roles == other.roles and words != others
    examples = [n for n, role in enumerate(found.roles) if role.startswith("example")]
    assert [found.roles[n] for n in examples] == [f"example {n}" for n in examples] and examples[0] == 0
    assert [words[n] for n in examples] == [others[n] for n in examples]
    for telling in (1, 2):
        steps = [role for role in found.roles if role.startswith(f"telling {telling} step 1 given")]
        assert len(steps) == CONFIG.chains
    assert found.roles[-1] == "answer" and len({*found.roles}) > len(examples)
    # Told once, roles have no number: what was measured before is measured again alike.
    assert not any(role.startswith(("telling", "example")) for role in told(planted)[2].roles)


def test_the_best_way_to_ask_is_taken_before_any_head_is_looked_at(planted):
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    # It reads the name 13 tokens before the end: only the question itself is asked like that.
    model = attentive("planted", planted.llama(), planted.tokenizer(TEMPLATE))
    said = []
    found = score(model, "best", count=11, top=(3,), draws=2, pretrained=True, progress=said.append)
    assert (found["formulation"], found["depth"], found["chat"], found["complete"]) == (
        "equations", 1, True, False,
    )  # fmt: skip
    assert (found["seed"], found["count"], found["ablation"][0]["accuracy"]) == (0, 11, 1.0)
    ways = found["settings"]
    # Names of the world are no words of its tokenizer, so "lives with" cannot be asked at all.
    assert {way["formulation"] for way in ways} == {"equations"} and len(ways) == 6
    (chat,) = [way for way in ways if way["chat"]]
    assert chat["accuracy"] == 1.0 > max(way["accuracy"] for way in ways if not way["chat"])
    assert {way["repeats"] for way in ways} == {1, 2, 4, 8} and {way["few_shot"] for way in ways} == {0, 4}
    assert "ways to ask: 12 of 12" in said
    by_name = score(model, "equations", depth=1, chat=True, count=11, top=(3,), draws=2, pretrained=True)
    assert by_name == {**found, "settings": None}


def test_the_rule_is_the_lower_end_above_guessing():
    from hopscope.language.heads.config import HeadsConfig
    from hopscope.language.heads.settings import Tried, best, settings

    config = HeadsConfig(formulation="equations", depth=1)
    few, many = Tried(config, 4, 4, 0.25), Tried(config, 30, 32, 0.25)
    easy = Tried(config, 31, 32, 0.5)
    assert best([few, easy, many]) is many
    assert best([few, few._replace(config=config.model_copy(update={"repeats": 2}))]) is few
    ways = settings(HeadsConfig(formulation="best", count=50, seed=3), chat=False)
    assert len(ways) == 10 and {way.count for way in ways} == {32} and not any(way.chat for way in ways)
    assert {way.seed for way in ways} == {(1 << 33) + 3}


def test_a_tokenizer_that_can_tell_no_way_is_said(planted):
    from hopscope.language.heads.model import attentive
    from hopscope.language.heads.scoring import score

    words = tuple(word for word in planted.VOCABULARY if word not in "abcd")
    model = attentive("planted", planted.llama(), planted.tokenizer(words=words))
    with pytest.raises(UserError, match="expected a token of the tokenizer's own, found the unknown one"):
        score(model, "best", count=3)


def test_what_is_left_to_the_rule_is_not_set(planted, tmp_path):
    from hopscope.language.heads.scoring import score

    with pytest.raises(UserError, match=r"repeats: expected it left to the formulation best.*; leave it out"):
        score("nowhere", "best", repeats=2)
    with pytest.raises(UserError, match="chat: expected it left to the formulation best"):
        score("nowhere", "best", chat=True)
    with pytest.raises(UserError, match="complete: expected questions, found a passage"):
        score("nowhere", passages=tmp_path / "none.json", complete=True)
