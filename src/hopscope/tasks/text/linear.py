"""Equations, lives-with and kingdoms (F1 to F3): plain chains, N of them, told in D shuffled rounds.

Symbols stand on levels: level 0 holds the answers, level D what can be asked for.  Round r ties each symbol of level r
to another one of level r - 1; read from the question, it is step D - r + 1.
"""

from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import NamedTuple

from hopscope.tasks.text.draws import Draws, words_of
from hopscope.tasks.text.names import CITIES, CREEDS, DISEASES, ELEMENTS, FOODS, KINGDOMS, LETTERS, PEOPLE
from hopscope.tasks.text.page import Meaning, Page, Sentence, alternatives, locate
from hopscope.tasks.text.values import Structure

Words = tuple[str, ...]


class Telling(NamedTuple):
    """The wording of the lines of one round: subject, verb, object, end.

    Attributes:
        subjects: as the symbols of one level are written in front of the verb.
        verb: with its spaces.
        objects: as those of the other level are written behind it.
        end: of the line.
        upper_first: whether the subject is the symbol of the upper level, which is given ("b = a").
    """

    subjects: Words
    verb: str
    objects: Words
    end: str = ""
    upper_first: bool = True


@dataclass(frozen=True)
class Linear:
    """One of the linear formulations.

    Attributes:
        levels: [level][index], canonical names of N symbols on each of D + 1 levels.
        tellings: of round 1 … D.
        question: what stands before and behind the symbol that is asked about.
    """

    levels: tuple[Words, ...]
    tellings: tuple[Telling, ...]
    question: tuple[str, str]

    @property
    def chains(self) -> int:
        """The number of chains N."""
        return len(self.levels[0])

    @cached_property
    def size(self) -> int:
        """Every round has N! orders of its lines and N! ways to tie them; N symbols can be asked for."""
        return factorial(self.chains) ** (2 * len(self.tellings)) * self.chains

    @cached_property
    def words(self) -> int:
        """Random words of one draw."""
        return words_of(numbers=1, permutations=(self.chains,) * (2 * len(self.tellings)))

    def draw(self, draws: Draws) -> "Chains":
        """Every way with the same probability."""
        count = self.chains
        rounds = tuple((draws.permutation(count), draws.permutation(count)) for _ in self.tellings)
        return Chains(self, rounds, draws.below(count))


Round = tuple[tuple[int, ...], tuple[int, ...]]
"""Of each line, in order: the index of its symbol on the upper level, and on the lower."""


@dataclass(frozen=True, slots=True)
class Chains:
    """One draw of a linear formulation.

    Attributes:
        form: the formulation.
        rounds: of round 1 … D.
        asked: index on level D of the symbol that is asked about.
    """

    form: Linear
    rounds: tuple[Round, ...]
    asked: int

    def page(self) -> Page:
        """Write the question down as a page."""
        sentences: list[Sentence] = []
        for telling, (uppers, lowers) in zip(self.form.tellings, self.rounds, strict=True):
            subjects, verb, objects, end, upper_first = telling
            ties = zip(uppers, lowers, strict=True) if upper_first else zip(lowers, uppers, strict=True)
            sentences += [("", subjects[first], verb, objects[second], end) for first, second in ties]
        before, behind = self.form.question
        sentences.append((before, self.form.levels[-1][self.asked], behind))
        acceptable = self.form.levels[0]
        return Page(sentences, acceptable[self._answer()], acceptable)

    def structure(self) -> Structure:
        """Chain c is the one that ends in the acceptable answer c."""
        page = self.page()
        levels, depth = self.form.levels, len(self.rounds)
        paths = self._paths()
        chain_of = [{index: chain for chain, index in enumerate(path)} for path in zip(*paths, strict=True)]
        meanings: list[Meaning] = []
        for number, (telling, (uppers, lowers)) in enumerate(
            zip(self.form.tellings, self.rounds, strict=True)
        ):
            for upper, lower in zip(uppers, lowers, strict=True):
                pair = (levels[number + 1][upper], levels[number][lower])
                symbols, found = (pair, 1) if telling.upper_first else (pair[::-1], 0)
                meanings.append(Meaning(chain_of[number][lower], depth - number, symbols, found))
        facts, query = locate(page.sentences, meanings, (levels[-1][self.asked],))
        every_step = tuple(range(1, depth + 1))
        return Structure(
            chain=chain_of[-1][self.asked],
            query=query,
            facts=facts,
            symbols=tuple(
                tuple(levels[level][path[level]] for level in range(depth, -1, -1)) for path in paths
            ),
            answers=levels[0],
            alternatives=alternatives(page, levels[0], dict.fromkeys(levels[0], every_step)),
        )

    def _answer(self) -> int:
        index = self.asked
        for uppers, lowers in reversed(self.rounds):
            index = lowers[uppers.index(index)]
        return index

    def _paths(self) -> list[list[int]]:
        """[chain][level] → index of the symbol there."""
        paths = [[chain] for chain in range(self.form.chains)]
        for uppers, lowers in self.rounds:
            above = dict(zip(lowers, uppers, strict=True))
            for path in paths:
                path.append(above[path[-1]])
        return paths


def equations(depth: int, chains: int) -> Linear:
    """F1: "a = 3", "b = a" …; the symbols of round r are the r-th N letters."""
    levels = (tuple(map(str, range(chains))), *_groups(LETTERS, depth, chains))
    tellings = tuple(Telling(levels[level], " = ", levels[level - 1]) for level in range(1, depth + 1))
    before, behind = (
        "What is the value of ",
        "? Say directly only the numeric value, without any other words.",
    )
    return Linear(levels, tellings, (before, behind))


def lives_with(depth: int, chains: int) -> Linear:
    """F2: "Alice lives in Berlin", "Bob lives with Alice" …; the people of round r are the r-th N of the list."""
    levels = (CITIES[:chains], *_groups(PEOPLE, depth, chains))
    tellings = tuple(
        Telling(levels[level], " lives with " if level > 1 else " lives in ", levels[level - 1])
        for level in range(1, depth + 1)
    )
    behind = " live? Say directly only the name of the city, without any other words."
    return Linear(levels, tellings, ("Where does ", behind))


def kingdoms(depth: int, chains: int) -> Linear:
    """F3: five kinds of facts, each told from the answer's side; a follower or a people has a word of its own."""
    levels = tuple(names[:chains] for names in (PEOPLE, KINGDOMS, CREEDS, FOODS, ELEMENTS, DISEASES))
    if depth != len(levels) - 1:
        raise ValueError(f"expected depth {len(levels) - 1}, found {depth}")
    people, lands, creeds, foods, elements, diseases = levels
    peoples = tuple(f"{land}ns" for land in lands)
    believers = tuple(f"{creed.removesuffix('m')}ts".capitalize() for creed in creeds)
    told = (
        (people, " lives in ", lands),
        (peoples, " believe in ", creeds),
        (believers, " eat ", foods),
        (tuple(food.capitalize() for food in foods), " contains ", elements),
        (elements, " causes ", diseases),
    )
    tellings = tuple(Telling(*words, end=".", upper_first=False) for words in told)
    return Linear(levels, tellings, ("Who has ", "? Say directly the name without other words."))


def _groups(names: Words, depth: int, chains: int) -> list[Words]:
    return [names[first : first + chains] for first in range(0, depth * chains, chains)]
