"""The paper's five examples are written as printed, solved, and taken apart."""

import pytest

from hopscope.tasks.text import FORMULATIONS, TextConfig

from .appendix import ANSWERS, PROMPTS, drawn
from .solvers import SOLVERS


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_as_printed(formulation):
    page = drawn(formulation).page()
    answer, acceptable = ANSWERS[formulation]
    assert page.prompt() == PROMPTS[formulation]
    assert page.answer == answer
    assert ", ".join(page.acceptable) == acceptable
    assert SOLVERS[formulation](PROMPTS[formulation]) == answer


def test_defaults_are_those_of_the_appendix():
    shapes = [(config.formulation, config.depth, config.chains) for config in map(_default, FORMULATIONS)]
    assert shapes == [
        ("equations", 5, 4),
        ("lives_with", 5, 4),
        ("kingdoms", 5, 4),
        ("functions", 2, 4),
        ("relatives", 4, 4),
    ]


def _default(formulation):
    return TextConfig(formulation=formulation)


def path(formulation):
    """The asked chain's lines in the order in which they are read, and how given and found are written there."""
    prompt, structure = PROMPTS[formulation], drawn(formulation).structure()
    facts = sorted((fact for fact in structure.facts if fact.chain == structure.chain), key=lambda f: f.step)
    return [
        (
            fact.step,
            prompt[fact.start : fact.end],
            [(given.symbol, prompt[given.start : given.end]) for given in fact.given],
            (fact.found.symbol, prompt[fact.found.start : fact.found.end]),
        )
        for fact in facts
    ]


def same(*symbols):
    return [(symbol, symbol) for symbol in symbols]


def test_path_of_equations():
    names = ["s", "p", "l", "g", "a", "1"]
    assert path("equations") == [
        (step, f"{names[step - 1]} = {names[step]}", same(names[step - 1]), (names[step],) * 2)
        for step in range(1, 6)
    ]
    structure = drawn("equations").structure()
    assert structure.symbols == (
        ("t", "m", "j", "h", "d", "0"),
        ("s", "p", "l", "g", "a", "1"),
        ("q", "n", "k", "e", "b", "2"),
        ("r", "o", "i", "f", "c", "3"),
    )
    assert [(a.answer, a.chain, a.lost) for a in structure.alternatives] == [
        ("0", 0, (1, 2, 3, 4, 5)),
        ("2", 2, (1, 2, 3, 4, 5)),
        ("3", 3, (1, 2, 3, 4, 5)),
    ]


def test_path_of_kingdoms_has_canonical_names():
    assert path("kingdoms") == [
        (1, "Zephyrium causes Chronogy.", same("Chronogy"), ("Zephyrium", "Zephyrium")),
        (2, "Lamb contains Zephyrium.", same("Zephyrium"), ("lamb", "Lamb")),
        (3, "Harmonianists eat lamb.", same("lamb"), ("harmonianism", "Harmonianists")),
        (4, "Novarians believe in harmonianism.", same("harmonianism"), ("Novaria", "Novarians")),
        (5, "Alice lives in Novaria.", same("Novaria"), ("Alice", "Alice")),
    ]
    structure = drawn("kingdoms").structure()
    assert structure.symbols[0] == ("Chronogy", "Zephyrium", "lamb", "harmonianism", "Novaria", "Alice")
    (query,) = structure.query
    assert PROMPTS["kingdoms"][query.start :].startswith("Chronogy? Say")


def test_path_of_functions_is_conditional():
    assert path("functions") == [
        (1, "f = a", same("f"), ("a", "a")),
        (1, "i = 0", same("i"), ("0", "0")),
        (2, "a(0) = 3", same("a", "0"), ("3", "3")),
    ]
    structure = drawn("functions").structure()
    assert [mention.symbol for mention in structure.query] == ["f", "i"]
    assert structure.symbols == (
        ("f(i)", "a(0)", "3"),
        ("f(j)", "a(2)", "0"),
        ("f(k)", "a(3)", "1"),
        ("f(l)", "a(1)", "2"),
    )
    assert [(a.answer, a.chain, a.lost) for a in structure.alternatives] == [
        ("0", 1, (1, 2)),
        ("1", 2, (1, 2)),
        ("2", 3, (1, 2)),
    ]


def test_path_of_relatives_is_conditional():
    assert path("relatives") == [
        (1, "Eve works as a lawyer.", same("Eve"), ("lawyer", "lawyer")),
        (2, "Lawyers live with their mothers.", [("lawyer", "Lawyers")], ("mother", "mothers")),
        (3, "Eves mother is Lily.", [("Eve", "Eves"), ("mother", "mother")], ("Lily", "Lily")),
        (4, "Lily lives in Brazil.", same("Lily"), ("Brazil", "Brazil")),
    ]
    structure = drawn("relatives").structure()
    assert structure.symbols == (
        ("John", "doctor", "brother", "Mike", "Japan"),
        ("Chris", "engineer", "father", "Adam", "Mexico"),
        ("Diana", "teacher", "sister", "Isabelle", "France"),
        ("Eve", "lawyer", "mother", "Lily", "Brazil"),
    )
    assert structure.answers == ("Japan", "Mexico", "France", "Brazil")
    why = {a.answer: (a.chain, a.lost) for a in structure.alternatives}
    assert why["Mexico"] == (1, (3, 4))  # Chris lives there
    assert (
        why["Peru"] == why["Hungary"] == why["Kenya"] == (None, (1, 2, 3, 4))
    )  # brother, father, sister of Eve
    assert why["England"] == (None, (3, 4))  # the mother of John, who does not live with her
    assert len(why) == 15
