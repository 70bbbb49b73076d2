"""Retrieval asked in words: the paper's five formulations (section 4 and Appendix A), and how they are put.  No torch.

Symbols are marked in the lines of a question, and lines belong to chains, so that a wrong answer, or an attention head,
can be named for what it did.
"""

import hashlib
import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import factorial
from typing import Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.language import words
from hopscope.language.text import Equations
from hopscope.language.words import ASKED, COUNTRIES, JOBS, LETTERS, PEOPLE, RELATIONS
from hopscope.tasks.task import expect

Formulation = Literal["equations", "lives_with", "kingdoms", "functions", "relatives"]
FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)
"""F1 to F5 of the paper."""

FREE_DEPTH, FREE_CHAINS = FORMULATIONS[:2], FORMULATIONS[:3]
"""Formulations whose depth, and whose number of chains, can be chosen."""

_DEPTHS = dict(zip(FORMULATIONS, (5, 5, 5, 2, 4), strict=True))  # of Appendix A
# Chains, and depth · chains, at most.
_MOST = {
    "equations": (len(LETTERS), len(LETTERS)), "lives_with": (len(words.CITIES), len(PEOPLE)),
    "kingdoms": (len(words.KINGDOMS), 5 * len(words.KINGDOMS)),
}  # fmt: skip
_KINGDOMS = (PEOPLE, words.KINGDOMS, words.CREEDS, words.FOODS, words.ELEMENTS, words.DISEASES)
_RELATIVES = (*words.WOMEN, *words.MEN)
_SHOTS_SEED, _SAY = 1 << 32, "Say directly only the"

# How a symbol is written at the beginning of a line; the other way round, what is meant.
_SUBJECTS = {
    **{name: f"{name}ns" for name in words.KINGDOMS},
    **{name: f"{name[:-1]}ts".capitalize() for name in words.CREEDS},
    **{name: name.capitalize() for name in words.FOODS},
    **{name: f"{name.capitalize()}s" for name in JOBS},
    **{name: f"{name}s" for name in RELATIONS},
}
_SYMBOLS = {**{written: name for name, written in _SUBJECTS.items()}, **{f"{name}s": name for name in ASKED}}

_STEMS = {
    "equations": "<{}> =", "lives_with": "<{}> lives in", "kingdoms": "The person who has <{}> is",
    "functions": "<{}>(<{}>) =", "relatives": "<{}> lives in",
}  # fmt: skip
"""The beginning of a sentence that the answer ends."""


class Line(NamedTuple):
    """A line, symbols in angle brackets: who knows the others learns the last one (in kingdoms, the first).

    `chain` is the one that needs the line, if one does (of a line that all need, the asked one).  `step` 1 is read
    first from the question, D gives the answer.
    """

    chain: int | None
    step: int
    marked: str


class Question(NamedTuple):
    """A question in words.

    Attributes:
        answer, acceptable: the right answer, and all that make sense.
        chain: the one that is asked.
        symbols: `[chain][step]`, x_0 … x_D; the last of each is its answer.
        lines, sentence: of the prompt; what is asked about is marked in the question sentence too.
    """

    id: str
    answer: str
    acceptable: tuple[str, ...]
    chain: int
    symbols: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]
    sentence: str

    @property
    def prompt(self) -> str:
        """The question in the paper's way."""
        return _plain("\n".join([*(line.marked for line in self.lines), self.sentence]))


class Protocol(Config):
    """How a language model is asked.

    Attributes:
        attempts: answers asked for at most until one is acceptable.
        identical: unacceptable answers of the same wording in a row after which a question is given up.
        temperature: of sampling; by default the model's own.
        max_tokens: of an answer; by default the model's own, or, of a model of this machine, 16.
        base_url: address of the models' server, if not the provider's own.
        precision: number format of weights and activations of models of this machine (hf/…).
        timeout: seconds after which a request, with its retries, is given up; one try has half of them. Changes no
            result, and is not on record.
        max_connections: requests at a time; by default the provider's own. Changes no result, and is not on record.
    """

    attempts: int = Field(10, ge=1)
    identical: int = Field(3, ge=2)
    temperature: float | None = Field(None, ge=0.0)
    max_tokens: int | None = Field(None, ge=1)
    base_url: str | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    timeout: int = Field(50, ge=1, exclude=True)
    max_connections: int | None = Field(None, ge=1, exclude=True)


class Mention(NamedTuple):
    """Where a symbol ("Novaria") is written ("Novarians"): characters `start` to `end` of a text.

    `line` (-1: where the answer is asked for) and `telling` count lines and tellings of the problem; chain and step are
    the line's, and `found` is whether it tells this symbol.
    """

    symbol: str
    start: int
    end: int
    line: int = -1
    telling: int = 0
    chain: int | None = None
    step: int = 0
    found: bool = False


class Placed(NamedTuple):
    """A question as it is put: what a model is given, the mentions in it, and what stands before the answer."""

    text: str
    mentions: tuple[Mention, ...]
    joiner: str = " "


class Wording(Config):
    """How many questions are drawn, and how they are put.

    Attributes:
        count: questions of each kind (500 in the paper).
        seed: of the draws.
        few_shot: solved examples of the same kind before each question, never the question itself.
        filler: dots between each question and its answer.
        repeats: how often each problem is told.
        measure: answers, as the paper asks for them; or choice: the prompt ends with the beginning of a sentence that
            the answer ends, and the likeliest of the acceptable answers counts, which needs no obedience.
    """

    count: int = Field(100, ge=1)
    seed: int = Field(0, ge=0, lt=1 << 63)
    few_shot: int = Field(0, ge=0)
    filler: int = Field(0, ge=0)
    repeats: int = Field(1, ge=1)
    measure: Literal["answers", "choice"] = "answers"


class Questions(Wording):
    """Different questions of one kind, each a function of kind, seed and number alone, and how they are put.

    Attributes:
        formulation: equations (F1), lives_with (F2), kingdoms (F3), functions (F4) or relatives (F5).
        depth: retrieval steps D; by default those of Appendix A.  Kingdoms, functions and relatives have no others.
        chains: interleaved chains N; functions and relatives have 4.
        start: number of the first question.
        held_out: only equations that no training with this `held_out_share` sees; `split_seed` is of that split.
    """

    formulation: Formulation
    depth: int = Field(default_factory=lambda given: _DEPTHS.get(given.get("formulation"), 1), ge=1)
    chains: int = Field(4, ge=2)
    start: int = Field(0, ge=0)
    held_out: float | None = Field(None, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0)

    @property
    def kind(self) -> str:
        """What the kind is called: "equations D = 3", "lives with"."""
        name, usual = self.formulation.replace("_", " "), _DEPTHS[self.formulation]
        return f"{name} D = {self.depth}" if name == "equations" or self.depth != usual else name

    @property
    def space(self) -> int:
        """How many different prompts there are; of functions and relatives, at least."""
        return factorial(self.chains) ** (2 * self.depth) * self.chains

    def drawn(self) -> Iterator[Question]:
        """The questions; to know which prompts are new, those before `start` are drawn too.

        `UserError`: there are not so many.
        """
        every, space, wanted = self._every(), self.space, self.start + self.count
        if self.held_out is not None:
            task = Equations(chains=self.chains, held_out_share=self.held_out, split_seed=self.split_seed)
            mappings = {*task.held_out_mappings}
            every = (one for one in every if _mapping(one) in mappings)
            # Every mapping has equally many questions.
            space = space * len(mappings) // factorial(self.chains)
        if wanted > space:
            words = f"at most {space}, as many there are of {self.kind} with {self.chains} chains"
            raise UserError(f"count: expected {words}, found {wanted}; take fewer")
        return itertools.islice(every, self.start, wanted)

    def put(self, question: Question) -> Placed:
        """A question as it is put, with all mentions in it; a `UserError`: there are not so many examples."""
        joiner = "\n" if self.few_shot and self.measure == "answers" else " "
        shots = [shot for shot in _shots(self) if shot.prompt != question.prompt][: self.few_shot]
        text, mentions = "", list[Mention]()
        for shot in shots:
            text += _plain("\n".join(marked for marked, _ in self._told(shot))) + f"{joiner}{shot.answer}\n\n"
        for marked, where in self._told(question):
            pieces = re.split("[<>]", marked)
            tells = 1 if self.formulation == "kingdoms" else len(pieces) - 2
            for place, piece in enumerate(pieces):
                if place % 2 and where is not None:
                    mention = Mention(_SYMBOLS.get(piece, piece), len(text), len(text) + len(piece), *where)
                    mentions.append(mention._replace(found=bool(where) and place == tells))
                text += piece
            text += "\n"
        return Placed(text[:-1], tuple(mentions), joiner)

    def _told(self, question: Question) -> Iterator[tuple[str, tuple[Any, ...] | None]]:
        # Line by line; with number, telling, chain and step of a fact, nothing where the answer is asked for.
        choice = self.measure == "choice"
        for telling in range(self.repeats):
            if telling:
                yield "", None
            for at, line in enumerate(question.lines):
                yield line.marked, (at, telling, line.chain, line.step)
            if not choice:
                yield question.sentence, () if telling == self.repeats - 1 else None
        if self.filler:
            yield " ".join("." * self.filler), None
        if choice:
            yield _STEMS[self.formulation].format(*re.findall("<(.*?)>", question.sentence)), ()

    def _every(self) -> Iterator[Question]:
        name, seen = f"{self.formulation}-d{self.depth}-n{self.chains}", set[str]()
        draw = {"functions": _functions, "relatives": _relatives}.get(self.formulation, self._linear)
        for index in itertools.count():
            for attempt in itertools.count():
                address = f"hopscope/text/{name}/{self.seed}/{index}/{attempt}"
                choices = Choices(address, 2 * self.depth * self.chains + 64)
                lines, sentence, acceptable, chain, symbols = draw(choices)
                answer, id = symbols[chain][-1], f"{name}-s{self.seed}-{index:06d}"
                question = Question(id, answer, acceptable, chain, symbols, tuple(lines), sentence)
                if question.prompt not in seen:
                    break
            seen.add(question.prompt)
            yield question

    def _linear(self, choices: "Choices") -> "_Drawn":
        # Symbols stand on levels: level 0 holds the answers, level D what can be asked for.  Round r ties each symbol
        # of level r to another one of level r - 1; read from the question, it is step D - r + 1.
        n, starts = self.chains, range(0, self.depth * self.chains, self.chains)
        if self.formulation == "kingdoms":
            levels = [names[:n] for names in _KINGDOMS]
            verbs = ("lives in", "believe in", "eat", "contains", "causes")
            told = [f"<{{2}}> {verb} <{{0}}>." for verb in verbs]
            sentence = "Who has <{}>? Say directly the name without other words."
        elif self.formulation == "equations":
            levels = [tuple(map(str, range(n))), *(LETTERS[start : start + n] for start in starts)]
            told = ["<{0}> = <{1}>"] * self.depth
            sentence = f"What is the value of <{{}}>? {_SAY} numeric value, without any other words."
        else:
            levels = [words.CITIES[:n], *(PEOPLE[start : start + n] for start in starts)]
            told = ["<{0}> lives in <{1}>", *["<{0}> lives with <{1}>"] * (self.depth - 1)]
            sentence = f"Where does <{{}}> live? {_SAY} name of the city, without any other words."
        chain_of, lines = {name: chain for chain, name in enumerate(levels[0])}, list[Line]()
        for number, line in enumerate(told):
            for upper, lower in zip(choices.permutation(n), choices.permutation(n), strict=True):
                above, below = levels[number + 1][upper], levels[number][lower]
                chain_of[above] = chain_of[below]
                written = line.format(above, below, _SUBJECTS.get(below, below))
                lines.append(Line(chain_of[below], self.depth - number, written))
        asked, every = levels[-1][choices.below(n)], [name for names in levels[::-1] for name in names]
        symbols = tuple(tuple(name for name in every if chain_of[name] == chain) for chain in range(n))
        return lines, sentence.format(asked), levels[0], chain_of[asked], symbols

    @model_validator(mode="after")
    def _can_be_written(self) -> Self:
        name, depth, chains = self.formulation, self.depth, self.chains
        for field, usual, free in (("depth", _DEPTHS[name], FREE_DEPTH), ("chains", 4, FREE_CHAINS)):
            found = getattr(self, field)
            expect(name in free or found == usual, field, f"{usual} for {name}", f"{found}; leave it out")
        most, names = _MOST.get(name, (chains, depth * chains))
        expect(chains <= most, "chains", f"at most {most} for {name}", f"{chains}; take fewer")
        advice = f"{depth} · {chains} = {depth * chains}; take a smaller depth or fewer chains"
        expect(depth * chains <= names, "depth", f"depth · chains at most {names} for {name}", advice)
        expect(self.held_out is None or name == "equations", "held_out", "equations", f"{name}; leave it out")
        wanted = f"fewer than the {self.space:,} questions that there are"
        expect(self.few_shot < self.space, "few_shot", wanted, f"{self.few_shot:,}; take fewer")
        return self


def kinds(
    formulations: Sequence[str] = FORMULATIONS, depths: Sequence[Any] = (), chains: int | None = None,
    **fields: Any,
) -> list[Questions]:  # fmt: skip
    """Questions of each formulation and depth.  Among others, a formulation keeps a depth or N that it cannot choose.

    `UserError`: there are no such questions.
    """
    found, alone = list[Questions](), len(formulations) == 1
    for name in formulations:
        own = {"chains": chains} if chains is not None and (alone or name in FREE_CHAINS) else {}
        several = [{"depth": depth} for depth in depths] if depths and (alone or name in FREE_DEPTH) else [{}]
        found += [Questions(formulation=name, **own, **depth, **fields) for depth in several]
    return found


class Choices:
    """Random choices as a function of an address alone: the bits of SHAKE-256 (FIPS 202), the same on any machine.

    There are at most `words` choices; a permutation of n takes n - 1.
    """

    def __init__(self, address: str, words: int) -> None:
        digest = hashlib.shake_256(address.encode()).digest(8 * words)
        self._words = iter(struct.unpack(f"<{words}Q", digest))

    def below(self, n: int) -> int:
        """A number from 0 to n - 1; the probability of each differs from 1/n by less than 2**-64."""
        return (next(self._words) * n) >> 64

    def permutation(self, n: int) -> tuple[int, ...]:
        """The numbers 0 … n - 1 in random order (Fisher and Yates; Knuth's algorithm P)."""
        items = list(range(n))
        for last in range(n - 1, 0, -1):
            place = self.below(last + 1)
            items[last], items[place] = items[place], items[last]
        return tuple(items)


# Lines, question sentence, acceptable answers, asked chain and symbols: as in `Question`.
_Drawn = tuple[list[Line], str, tuple[str, ...], int, tuple[tuple[str, ...], ...]]


def _functions(choices: Choices) -> _Drawn:
    # Which line of a table is read depends on two things that are looked up.  Chain c asks the same function of the
    # c-th variable.
    tables = [choices.permutation(4) for _ in range(4)]
    aliases, variables = choices.permutation(4), choices.permutation(4)
    function, asked = choices.below(4), choices.below(4)
    called, lines, name = aliases[function], list[Line](), LETTERS[4 + function]
    for table, given in itertools.product(range(4), range(4)):
        chain = variables.index(given) if table == called else None
        lines.append(Line(chain, 2, f"<{LETTERS[table]}>(<{given}>) = <{tables[table][given]}>"))
    for alias, table in enumerate(aliases):
        chain = asked if alias == function else None
        lines.append(Line(chain, 1, f"<{LETTERS[4 + alias]}> = <{LETTERS[table]}>"))
    lines += [Line(chain, 1, f"<{LETTERS[8 + chain]}> = <{value}>") for chain, value in enumerate(variables)]
    what = f"<{name}>(<{LETTERS[8 + asked]}>)"
    sentence = f"What is the value of {what}? Say directly only the numeric value, without any other words."
    symbols = tuple(
        (f"{name}({LETTERS[8 + chain]})", f"{LETTERS[called]}({value})", str(tables[called][value]))
        for chain, value in enumerate(variables)
    )
    return lines, sentence, tuple("0123"), asked, symbols


def _relatives(choices: Choices) -> _Drawn:
    # With which relative a person lives depends on the person and the job.  Chain c starts from the c-th person.
    family = (COUNTRIES, _RELATIVES, words.WOMEN, words.MEN, JOBS, ASKED)
    countries, told, women, men, rules, jobs = (choices.permutation(len(each)) for each in family)
    asked, people = choices.below(4), (*women, *(len(women) + man for man in men))
    kin = [people[first : first + 4] for first in range(0, len(people), 4)]  # [relation][person]
    home_of = {relative: COUNTRIES[country] for relative, country in zip(told, countries, strict=True)}
    homes, lines = [kin[rules[job]][person] for person, job in enumerate(jobs)], list[Line]()
    for one, country in home_of.items():
        chain = homes.index(one) if one in homes else None
        lines.append(Line(chain, 4, f"<{_RELATIVES[one]}> lives in <{country}>."))
    for person, relation in itertools.product(range(4), range(4)):
        written = f"<{ASKED[person]}s> <{RELATIONS[relation]}> is <{_RELATIVES[kin[relation][person]]}>."
        lines.append(Line(person if relation == rules[jobs[person]] else None, 3, written))
    for job, relation in enumerate(rules):
        written = f"<{_SUBJECTS[JOBS[job]]}> live with their <{_SUBJECTS[RELATIONS[relation]]}>."
        lines.append(Line(jobs.index(job), 2, written))
    for person, job in enumerate(jobs):
        article = "an" if JOBS[job][0] in "aeiou" else "a"
        lines.append(Line(person, 1, f"<{ASKED[person]}> works as {article} <{JOBS[job]}>."))
    sentence = f"Where does <{ASKED[asked]}> live? Say directly only the name, without any other words."
    symbols = tuple(
        (ASKED[person], JOBS[job], RELATIONS[rules[job]], _RELATIVES[home], home_of[home])
        for person, (job, home) in enumerate(zip(jobs, homes, strict=True))
    )
    return lines, sentence, COUNTRIES, asked, symbols


@lru_cache(maxsize=8)
def _shots(kind: Questions) -> tuple[Question, ...]:
    # One more than needed: none may be the question itself.
    fields = {"count": kind.few_shot + 1, "seed": kind.seed + _SHOTS_SEED, "start": 0, "held_out": None}
    return tuple(kind.model_copy(update=fields).drawn()) if kind.few_shot else ()


def _plain(marked: str) -> str:
    return re.sub("[<>]", "", marked)


def _mapping(question: Question) -> tuple[int, ...]:
    # Of each name of the last round its value; such names sort as they are counted: by length, then by letters.
    last = {path[0]: chain for chain, path in enumerate(question.symbols)}
    return tuple(last[name] for name in sorted(last, key=lambda name: (len(name), name)))
