"""A question in words and its structure: what other rooms read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a symbol is written.

    Attributes:
        symbol: its canonical name ("Novaria").
        start: first character in the prompt.
        end: one past the last; `prompt[start:end]` is how it is written there ("Novarians").
    """

    symbol: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the prompt: who knows `given` learns `found` from it.

    Attributes:
        chain: the chain that needs this line; None where none does (functions, relatives).  A line that all chains need
            (the alias of functions that is asked for) counts as the asked one's.
        step: 1 is read first from the question, D gives the answer.  Lines of one round have the same step.
        given: mentions of what must be known: x_{step-1}; two of them where the step is conditional.
        found: mention of what is learned: x_step, or one of its two parts.
        start: first character of the line.
        end: one past its last.
    """

    chain: int | None
    step: int
    given: tuple[Mention, ...]
    found: Mention
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """A wrong acceptable answer, and the errors that lead to it.

    Attributes:
        answer: the wrong answer.
        chain: the other chain whose answer it is; None if it is no chain's (relatives).
        lost: steps at which a single wrong read, all later ones being right, gives this answer.  Linear chains end
            there from any step; in relatives, steps 1 and 2 only lead to other relatives of the same person.
    """

    answer: str
    chain: int | None
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a prompt.

    Attributes:
        chain: the chain that is asked for.
        query: mentions of x_0 in the question sentence: one, or for functions the function and its argument.
        facts: one for each line, in the order of the prompt.
        symbols: [chain][step], x_0 … x_D.  A pair is written as functions write it: x_0 = "f(i)", x_1 = "a(0)".
        answers: the last symbol of each chain; all different, and `answers[chain]` is the question's answer.
        alternatives: one for each wrong acceptable answer, in the order of the acceptable answers.
    """

    chain: int
    query: tuple[Mention, ...]
    facts: tuple[Fact, ...]
    symbols: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words.

    Attributes:
        id: formulation, depth, chains, seed and index, such as "equations-d5-n4-s0-000017".
        formulation: one of `FORMULATIONS`.
        depth: D, the retrieval steps from the question to the answer.
        chains: N, how many chains are interleaved.
        prompt: lines separated by "\\n"; the last is the question itself.
        answer: the correct answer.
        acceptable: all answers that make sense, the correct one among them.
        structure: chains, lines and mentions.
    """

    id: str
    formulation: str
    depth: int
    chains: int
    prompt: str
    answer: str
    acceptable: tuple[str, ...]
    structure: Structure
