"""The five formulations: the paper's own examples, what a question says of itself, how it is put, what is refused."""

import math
import re
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.language import words
from hopscope.language.questions import FORMULATIONS, FREE_CHAINS, FREE_DEPTH, Choices, Questions, kinds
from hopscope.language.text import Equations
from hopscope.tasks import draw, losses

SENTENCES = {
    "equations": r"What is the value of (\w+)\? Say directly only the numeric value, without any other words\.",
    "lives_with": r"Where does (\w+) live\? Say directly only the name of the city, without any other words\.",
    "kingdoms": r"Who has (\w+)\? Say directly the name without other words\.",
    "functions": r"What is the value of (\w)\((\w)\)\? Say directly only the numeric value, without any other words\.",
    "relatives": r"Where does (\w+) live\? Say directly only the name, without any other words\.",
}
ACCEPTABLE = {
    "equations": "0, 1, 2, 3", "lives_with": "Amsterdam, Berlin, Cairo, Delhi", "functions": "0, 1, 2, 3",
    "kingdoms": "Alice, Bob, Charlie, David", "relatives": ", ".join(words.COUNTRIES),
}  # fmt: skip


def read(formulation, prompt):
    """The answer to a question, read from its text alone."""
    *lines, asked = prompt.split("\n")
    named = re.fullmatch(SENTENCES[formulation], asked)
    text = "\n".join(lines)
    if formulation in ("equations", "lives_with"):
        known, name = dict(re.split(r" = | lives (?:in|with) ", line) for line in lines), named[1]
        while name in known:
            name = known[name]
        return name
    if formulation == "kingdoms":  # four letters tell all names of one kind apart, however they end
        pattern = r"(\w+) (?:lives in|believe in|eat|contains|causes) (\w+)\."
        known, name = {found[:4].lower(): given for given, found in re.findall(pattern, text)}, named[1]
        while name[:4].lower() in known:
            name = known[name[:4].lower()]
        return name
    known = dict(line.split(" = ") for line in lines) if formulation == "functions" else {}
    if formulation == "functions":
        return known[f"{known[named[1]]}({known[named[2]]})"]
    job = re.search(rf"{named[1]} works as an? (\w+)\.", text)[1].capitalize()
    relation = re.search(rf"{job}s live with their (\w+)s\.", text)[1]
    home = re.search(rf"{named[1]}s {relation} is (\w+)\.", text)[1]
    return re.search(rf"{home} lives in (\w+)\.", text)[1]


@pytest.mark.parametrize("name", FORMULATIONS)
def test_answers_are_what_a_reader_finds(name):
    seen, kind = set(), Questions(formulation=name, count=29, seed=7)
    for one in kind.drawn():
        assert re.fullmatch(SENTENCES[name], one.prompt.split("\n")[-1])
        assert one.answer == one.symbols[one.chain][-1] and ", ".join(one.acceptable) == ACCEPTABLE[name]
        assert {len(path) for path in one.symbols} == {kind.depth + 1} and len(one.symbols) == kind.chains
        assert read(name, one.prompt) == one.answer
        seen.add(one.prompt)
    assert len(seen) == 29


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"few_shot": 2},
        {"repeats": 3, "filler": 5},
        {"measure": "choice", "repeats": 2},
        {"measure": "choice", "few_shot": 1},
    ],
    ids=str,
)
def test_every_mention_is_where_it_is_said_to_be(name, fields):
    kind = Questions(formulation=name, count=5, seed=3, **fields)
    for one in kind.drawn():
        placed = kind.put(one)
        facts = [mention for mention in placed.mentions if mention.line >= 0]
        assert {(each.telling, each.line) for each in facts} == {
            (telling, line) for telling in range(kind.repeats) for line in range(len(one.lines))
        }
        for each in placed.mentions:
            written = placed.text[each.start : each.end]
            assert written.lower()[:3] == each.symbol.lower()[:3]
        own = {each.step: each.symbol for each in facts if each.chain == one.chain and each.found}
        path = one.symbols[one.chain]
        if name != "functions":
            assert [own[step] for step in range(1, kind.depth + 1)] == [*path[1:]]
        query = [mention for mention in placed.mentions if mention.line < 0]
        assert all(mention.start > facts[-1].end for mention in query)
        assert "".join(each.symbol for each in query) == re.sub(r"\W", "", path[0])
        assert placed.text.count(one.lines[-1].marked.replace("<", "").replace(">", "")) >= kind.repeats


def test_the_paper_s_way_is_the_prompt_itself_and_changes_add_to_it():
    kind = Questions(formulation="equations", depth=2, chains=3, count=3, seed=5)
    one = next(kind.drawn())
    assert kind.put(one).text == one.prompt
    facts = one.prompt.rpartition("\n")[0]
    put = {
        name: kind.model_copy(update={name: 2}).put(one).text for name in ("few_shot", "filler", "repeats")
    }
    assert put["filler"] == f"{one.prompt}\n. ." and put["repeats"] == f"{one.prompt}\n\n{one.prompt}"
    shots = put["few_shot"].removesuffix(one.prompt).split("\n\n")[:-1]
    for shot in shots:
        prompt, _, answer = shot.rpartition("\n")
        assert read("equations", prompt) == answer and prompt != one.prompt
    assert len(shots) == 2
    assert (
        kind.model_copy(update={"measure": "choice"}).put(one).text
        == f"{facts}\n{one.symbols[one.chain][0]} ="
    )


def test_questions_do_not_depend_on_how_many_are_asked():
    kind = Questions(formulation="lives_with", depth=3, chains=5, count=11, seed=2)
    every = [*kind.drawn()]
    assert [*kind.model_copy(update={"count": 4, "start": 7}).drawn()] == every[7:]
    assert every[8].id == "lives_with-d3-n5-s2-000008"
    few = Questions(formulation="equations", depth=1, chains=2, count=8)
    assert len({one.prompt for one in few.drawn()}) == 8 == few.space


def test_held_out_questions_are_those_that_no_training_sees():
    task = Equations(chains=3, held_out_share=0.3, split_seed=2)
    kind = Questions(formulation="equations", depth=2, chains=3, count=7, held_out=0.3, split_seed=2)
    last = [*map(str, words.LETTERS[3:6])]
    for one in kind.drawn():
        values = {path[0]: int(path[-1]) for path in one.symbols}
        assert tuple(values[name] for name in last) in task.held_out_mappings


@pytest.mark.parametrize("use", ["train", "held-out", "circuit"])
def test_the_loss_of_equal_logits_is_that_of_a_guess_whatever_a_text_asks_for(use):
    task = Equations(chains=3)
    shape, batch = task.shape(), draw(task, torch.tensor([0]), use, 0, 500)
    found = losses(task, torch.zeros(1, 500, len(shape.readout), shape.output_size), batch)["loss"]
    assert float(found) == pytest.approx(math.log(shape.output_size), rel=0.02)


@given(st.integers(2, 97), st.text(max_size=5))
def test_choices_are_permutations_that_the_address_decides(n, address):
    first = Choices(address, n).permutation(n)
    assert sorted(first) == [*range(n)] and first == Choices(address, 2 * n).permutation(n)


def test_kinds_keep_what_they_cannot_choose():
    found = [(each.formulation, each.depth, each.chains) for each in kinds(depths=["1", 3], chains=5)]
    assert found == [
        *(("equations", depth, 5) for depth in (1, 3)), *(("lives_with", depth, 5) for depth in (1, 3)),
        ("kingdoms", 5, 5), ("functions", 2, 4), ("relatives", 4, 4),
    ]  # fmt: skip
    assert [each.kind for each in kinds(count=1)][:3] == ["equations D = 5", "lives with", "kingdoms"]
    for name in FORMULATIONS:
        for field, value, free in (("depth", 3, FREE_DEPTH), ("chains", 5, FREE_CHAINS)):
            if name not in free:
                with pytest.raises(
                    UserError,
                    match=f"^Questions: {field}: expected . for {name}, found {value}; leave it out",
                ):
                    kinds([name], [value] if field == "depth" else (), 5 if field == "chains" else None)


@pytest.mark.parametrize(
    ("fields", "words_"),
    [
        ({"formulations": ["sums"]}, "formulation: expected 'equations', .* found 'sums'"),
        ({"formulations": ["equations"], "cuont": 3}, "no field 'cuont'; did you mean 'count'"),
        (
            {"formulations": ["equations"], "depths": [0]},
            "depth: expected greater than or equal to 1, found 0",
        ),
        ({"formulations": ["equations"], "depths": ["one"]}, "depth: expected a valid integer.*found 'one'"),
        ({"formulations": ["lives_with"], "depths": [99]}, "depth · chains at most 149"),
        ({"formulations": ["kingdoms"], "chains": 27}, "chains: expected at most 26 for kingdoms, found 27"),
        (
            {"formulations": ["equations"], "depths": [1], "chains": 2, "count": 9},
            "count: expected at most 8, as many",
        ),
        (
            {"formulations": ["equations"], "depths": [1], "few_shot": 3_000},
            "few_shot: expected fewer than the 2,304",
        ),
        ({"formulations": ["kingdoms"], "held_out": 0.2}, "held_out: expected equations, found kingdoms"),
        (
            {"formulations": ["equations"], "chains": 7, "held_out": 0.2},
            "Equations: chains: expected less than or equal",
        ),
    ],
)
def test_questions_that_cannot_be_are_refused_in_one_line(fields, words_):
    with pytest.raises(UserError, match=words_) as raised:
        [*islice((one for kind in kinds(**fields) for one in kind.drawn()), 99)]
    assert "\n" not in str(raised.value)
