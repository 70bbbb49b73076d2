"""Relatives (F5): conditional retrieval; the relative that a person lives with depends on the person and the job."""

from dataclasses import dataclass
from math import factorial

from hopscope.tasks.text.draws import Draws, words_of
from hopscope.tasks.text.names import ASKED_ABOUT, COUNTRIES, JOBS, MEN, RELATIONS, WOMEN
from hopscope.tasks.text.page import Meaning, Page, Sentence, alternatives, locate
from hopscope.tasks.text.values import Structure

RELATIVES = (*WOMEN, *MEN)
"""Women first, as in `RELATIONS`."""

_OWNERS = tuple(f"{name}s" for name in ASKED_ABOUT)
_WORKERS = tuple(f"{job.capitalize()}s" for job in JOBS)
_WORKS_AS = tuple(f" works as {'an' if job[0] in 'aeiou' else 'a'} " for job in JOBS)
_THEIRS = tuple(f"{relation}s" for relation in RELATIONS)

_COUNT = len(ASKED_ABOUT)
_PERMUTATIONS = (len(COUNTRIES), len(RELATIVES), len(WOMEN), len(MEN), len(JOBS), _COUNT)
_QUESTION = "Where does ", " live? Say directly only the name, without any other words."
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Relatives:
    """The formulation; it has one shape only."""

    @property
    def size(self) -> int:
        """Number of questions: homes and their order, each one's relatives, rules, jobs, and the person asked about."""
        size = _COUNT
        for length in _PERMUTATIONS:
            size *= factorial(length)
        return size

    @property
    def words(self) -> int:
        """Random words of one draw."""
        return words_of(numbers=1, permutations=_PERMUTATIONS)

    def draw(self, draws: Draws) -> "Family":
        """Every way with the same probability."""
        countries, told, women, men, rules, jobs = map(draws.permutation, _PERMUTATIONS)
        people = (*women, *(len(WOMEN) + man for man in men))
        kin = tuple(people[first : first + _COUNT] for first in range(0, len(people), _COUNT))
        return Family(tuple(zip(told, countries, strict=True)), kin, rules, jobs, draws.below(_COUNT))


@dataclass(frozen=True, slots=True)
class Family:
    """One draw.

    Attributes:
        homes: (relative, country) of each line, in the order in which they are told.
        kin: [relation][person] → relative.
        rules: [job] → relation.
        jobs: [person] → job.
        asked: the person.
    """

    homes: tuple[tuple[int, int], ...]
    kin: tuple[tuple[int, ...], ...]
    rules: tuple[int, ...]
    jobs: tuple[int, ...]
    asked: int

    def page(self) -> Page:
        """Write it down; only the first block is shuffled."""
        sentences: list[Sentence] = [
            ("", RELATIVES[person], " lives in ", COUNTRIES[country], ".") for person, country in self.homes
        ]
        for person, owner in enumerate(_OWNERS):
            sentences += [
                ("", owner, " ", relation, " is ", RELATIVES[relatives[person]], ".")
                for relation, relatives in zip(RELATIONS, self.kin, strict=True)
            ]
        sentences += [
            ("", workers, " live with their ", _THEIRS[relation], ".")
            for workers, relation in zip(_WORKERS, self.rules, strict=True)
        ]
        sentences += [
            ("", name, _WORKS_AS[job], JOBS[job], ".")
            for name, job in zip(ASKED_ABOUT, self.jobs, strict=True)
        ]
        sentences.append((_QUESTION[0], ASKED_ABOUT[self.asked], _QUESTION[1]))
        return Page(sentences, self._answer(self.asked), COUNTRIES)

    def structure(self) -> Structure:
        """Chain c starts from the c-th person."""
        page = self.page()
        answers = tuple(self._answer(person) for person in range(_COUNT))
        facts, query = locate(page.sentences, self._meanings(), (ASKED_ABOUT[self.asked],))
        symbols = tuple(
            (
                ASKED_ABOUT[person],
                JOBS[self.jobs[person]],
                RELATIONS[self._relation(person)],
                RELATIVES[self._home(person)],
                answers[person],
            )
            for person in range(_COUNT)
        )
        return Structure(
            self.asked, query, facts, symbols, answers, alternatives(page, answers, self._lost())
        )

    def _relation(self, person: int) -> int:
        return self.rules[self.jobs[person]]

    def _home(self, person: int) -> int:
        """The relative that a person lives with."""
        return self.kin[self._relation(person)][person]

    def _answer(self, person: int) -> str:
        home = self._home(person)
        return next(COUNTRIES[country] for relative, country in self.homes if relative == home)

    def _lost(self) -> dict[str, tuple[int, ...]]:
        """A wrong job or a wrong rule still leads to a relative of the same person."""
        own = {relatives[self.asked] for relatives in self.kin}
        return {
            COUNTRIES[country]: tuple(range(1 if relative in own else 3, _DEPTH + 1))
            for relative, country in self.homes
        }

    def _meanings(self) -> list[Meaning]:
        homes = {self._home(person): person for person in range(_COUNT)}
        workers = {job: person for person, job in enumerate(self.jobs)}
        lives = [
            Meaning(homes.get(relative), 4, (RELATIVES[relative], COUNTRIES[country]), 1)
            for relative, country in self.homes
        ]
        kin = [
            Meaning(
                person if relation == self._relation(person) else None,
                3,
                (ASKED_ABOUT[person], RELATIONS[relation], RELATIVES[relatives[person]]),
                2,
            )
            for person in range(_COUNT)
            for relation, relatives in enumerate(self.kin)
        ]
        rules = [
            Meaning(workers[job], 2, (JOBS[job], RELATIONS[relation]), 1)
            for job, relation in enumerate(self.rules)
        ]
        jobs = [
            Meaning(person, 1, (ASKED_ABOUT[person], JOBS[job]), 1) for person, job in enumerate(self.jobs)
        ]
        return [*lives, *kin, *rules, *jobs]
