"""Functions (F4): conditional retrieval; which line of a table to read depends on two things that are looked up."""

from dataclasses import dataclass
from itertools import chain as concatenate
from math import factorial
from typing import Final

from hopscope.tasks.text.draws import Draws, words_of
from hopscope.tasks.text.names import LETTERS
from hopscope.tasks.text.page import Meaning, Page, Sentence, alternatives, locate
from hopscope.tasks.text.values import Structure

COUNT: Final = 4
"""Tables, aliases, variables and values."""

TABLES, ALIASES, VARIABLES = (LETTERS[first : first + COUNT] for first in (0, COUNT, 2 * COUNT))
VALUES: Final = tuple(map(str, range(COUNT)))

_PERMUTATIONS = COUNT + 2


@dataclass(frozen=True, slots=True)
class Functions:
    """The formulation; it has one shape only."""

    @property
    def size(self) -> int:
        """Tables, aliases and variables are permutations; every alias can be asked of every variable."""
        return int(factorial(COUNT) ** _PERMUTATIONS) * COUNT**2

    @property
    def words(self) -> int:
        """Random words of one draw."""
        return words_of(numbers=2, permutations=(COUNT,) * _PERMUTATIONS)

    def draw(self, draws: Draws) -> "Applied":
        """Every way with the same probability."""
        tables = tuple(draws.permutation(COUNT) for _ in range(COUNT))
        aliases, variables = draws.permutation(COUNT), draws.permutation(COUNT)
        return Applied(tables, aliases, variables, draws.below(COUNT), draws.below(COUNT))


@dataclass(frozen=True, slots=True)
class Applied:
    """One draw.

    Attributes:
        tables: [table][argument] → value.
        aliases: [alias] → table.
        variables: [variable] → value.
        function: the alias that is asked for.
        argument: the variable that it is asked of.
    """

    tables: tuple[tuple[int, ...], ...]
    aliases: tuple[int, ...]
    variables: tuple[int, ...]
    function: int
    argument: int

    def page(self) -> Page:
        """Write it down; every block stands in order."""
        tables: list[Sentence] = [
            ("", name, "(", VALUES[argument], ") = ", VALUES[value], "")
            for name, table in zip(TABLES, self.tables, strict=True)
            for argument, value in enumerate(table)
        ]
        bound: list[Sentence] = [
            ("", name, " = ", told, "")
            for name, told in concatenate(
                zip(ALIASES, (TABLES[table] for table in self.aliases), strict=True),
                zip(VARIABLES, (VALUES[value] for value in self.variables), strict=True),
            )
        ]
        question = (
            "What is the value of ",
            ALIASES[self.function],
            "(",
            VARIABLES[self.argument],
            ")? Say directly only the numeric value, without any other words.",
        )
        return Page([*tables, *bound, question], self._values()[self.argument], VALUES)

    def structure(self) -> Structure:
        """Chain c asks the same function of the c-th variable: tables being permutations, all answers differ."""
        page = self.page()
        answers = self._values()
        table = self.aliases[self.function]
        query = (ALIASES[self.function], VARIABLES[self.argument])
        facts, mentions = locate(page.sentences, self._meanings(), query)
        symbols = tuple(
            (f"{query[0]}({variable})", f"{TABLES[table]}({value})", answer)
            for variable, value, answer in zip(VARIABLES, self.variables, answers, strict=True)
        )
        return Structure(
            chain=self.argument,
            query=mentions,
            facts=facts,
            symbols=symbols,
            answers=answers,
            alternatives=alternatives(page, answers, dict.fromkeys(VALUES, (1, 2))),
        )

    def _values(self) -> tuple[str, ...]:
        """Value of the function for each variable."""
        table = self.tables[self.aliases[self.function]]
        return tuple(VALUES[table[value]] for value in self.variables)

    def _meanings(self) -> list[Meaning]:
        asked = self.aliases[self.function]
        chain_of = {value: chain for chain, value in enumerate(self.variables)}
        rows = [
            Meaning(
                chain_of[argument] if table == asked else None,
                2,
                (TABLES[table], VALUES[argument], VALUES[values[argument]]),
                2,
            )
            for table, values in enumerate(self.tables)
            for argument in range(COUNT)
        ]
        aliases = [
            Meaning(self.argument if alias == self.function else None, 1, (ALIASES[alias], TABLES[table]), 1)
            for alias, table in enumerate(self.aliases)
        ]
        variables = [
            Meaning(variable, 1, (VARIABLES[variable], VALUES[value]), 1)
            for variable, value in enumerate(self.variables)
        ]
        return [*rows, *aliases, *variables]
