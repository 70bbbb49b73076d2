"""Questions, and natural text whose facts are marked, in a model's tokens: which rows should read which tokens."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.local import Tokens, beginnings, continuations, encoded
from hopscope.language.questions import Mention, Placed, Question
from hopscope.tasks.task import expect

Asked = tuple[Question, Placed]
"""A question, and how it is put."""


class Text(NamedTuple):
    """A question in a model's tokens.

    Attributes:
        reads: target → row → the tokens that it should read.
        roles: of each token, what part it plays, the same in all questions of a kind.
        answers: of each acceptable answer the tokens that tell it from the others; `right` is the right one's place.
    """

    ids: Tokens
    reads: dict[str, dict[int, list[int]]]
    roles: list[str]
    answers: list[Tokens]
    right: int


def read(tokenizer: Any, question: Question, placed: Placed, chat: bool = False) -> Text:
    """A question in tokens: which rows should read which tokens, and what part every token plays.

    Targets are called `row:target`.  Rows: `query`, the mentions of x_0 in the question; `answer`, the last token;
    `facts`, the mentions in the last telling of the facts.  Targets: `previous`, the token before; `same_symbol`, of
    query and answer where the fact of step 1 gives that symbol, of facts all earlier mentions; `pair_mate`, of the
    later mention of a fact its earlier ones; `query`; `hop_k`, what step k of the asked chain finds.  A row is the last
    token of a mention, a target all its tokens, in all tellings.

    Raises:
        UserError: a mention, or an answer, cannot be told in these tokens.
    """
    text, shift = placed.text, 0
    if chat:
        asked = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        shift = text.find(placed.text)
    ids, spans = encoded(tokenizer, text, not chat)
    spans = [(start - shift, end - shift) for start, end in spans]
    tokens, owners = dict[Mention, list[int]](), dict[int, Mention]()
    for mention in placed.mentions:
        inside = [n for n, (start, end) in enumerate(spans) if start < mention.end and end > mention.start]
        whole = placed.text[max(0, spans[inside[0]][0]) : spans[inside[-1]][1]] if inside else ""
        free = all(owners.setdefault(n, mention) == mention for n in inside)
        own = free and tokenizer.unk_token_id not in [ids[n] for n in inside]
        written = placed.text[mention.start : mention.end]
        if not own or re.sub(r"^\W+|\W+$", "", whole) != written or shift < 0:
            wanted = f"{written!r} (character {mention.start}) in whole, known tokens of its own"
            advice = "use another model, formulation or chat template"
            raise UserError(f"{question.id}: expected {wanted}, found {whole!r}; {advice}")
        tokens[mention] = inside
    told = continuations(tokenizer, text, question.acceptable, placed.joiner, not chat)
    answers = told and beginnings(told)
    if not answers:
        wanted = f"answers such as {question.answer!r} in known tokens that leave the text's alone"
        raise UserError(f"{question.id}: expected {wanted}, found others; use another model or formulation")
    reads = _reads(question, placed.mentions, tokens, len(ids) - 1)
    right = question.acceptable.index(question.answer)
    return Text(ids, reads, _roles(owners, len(ids)), answers, right)


def _reads(
    question: Question, mentions: tuple[Mention, ...], tokens: dict[Mention, list[int]], last: int
) -> dict[str, dict[int, list[int]]]:
    found = defaultdict[str, dict[int, list[int]]](dict)

    def add(target: str, row: int, several: Iterable[Mention]) -> None:
        seen = {n for mention in several for n in tokens[mention] if n <= row}
        if seen:
            found[target][row] = sorted({*found[target].get(row, ()), *seen})

    facts = [mention for mention in mentions if mention.line >= 0]
    asked = [mention for mention in facts if mention.chain == question.chain]
    given = [each for each in asked if each.step == 1 and not each.found]
    for mention in (mention for mention in mentions if mention.line < 0):
        for name, row in (("query", tokens[mention][-1]), ("answer", last)):
            found[f"{name}:previous"][row] = [row - 1]
            add(f"{name}:same_symbol", row, [each for each in given if each.symbol == mention.symbol])
            for each in asked:
                add(f"{name}:hop_{each.step}", row, [each] if each.found else [])
        add("answer:query", last, [mention])
    for mention in (each for each in facts if each.telling == facts[-1].telling):
        row, line = tokens[mention][-1], [each for each in facts if each.line == mention.line]
        found["facts:previous"] |= {row: [row - 1]} if row else {}
        same = [each for each in facts if each.symbol == mention.symbol and each.start < mention.start]
        add("facts:same_symbol", row, same)
        if mention.start == max(each.start for each in line):
            other = [each for each in line if (each.symbol, each.found) != (mention.symbol, mention.found)]
            add("facts:pair_mate", row, other)
    return dict(found)


def _roles(owners: dict[int, Mention], length: int) -> list[str]:
    # Of each token, as what the last symbol before it stands there, and how far back; the last one plays the answer.
    roles, where, since = list[str](), "start", 0
    for n in range(length):
        owner = owners.get(n)
        if owner is not None:
            part, since = "found" if owner.found else "given", 0
            where = f"telling {owner.telling}, step {owner.step}, {part}"
        roles.append(f"{where} + {since}")
        since += owner is None or owners.get(n + 1) != owner
    return [*roles[:-1], "answer"]


class Occurrence(Config):
    """The n-th place where some characters stand, counted from 1."""

    text: str = Field(min_length=1)
    occurrence: int = Field(ge=1)


Mark = str | tuple[int, int] | Occurrence
"""Characters that stand in a text once, or where they begin and end, or which occurrence is meant."""


class MarkedFact(Config):
    """Where a text says a fact of step 1, 2 …: what must be known (several, where conditional), and what is learned."""

    given: Mark | list[Mark]
    found: Mark
    step: int = Field(ge=1)


class Passage(Config):
    """Natural text of which one chain of facts is marked, and which ends where the answer would follow.

    Attributes:
        text: what the model is given.
        query: mention of x_0, from which the retrieval starts.
        facts: of the chain, at least one for each step 1 … D.
        answer, acceptable: x_D, which the model should say next, and the answers among which it chooses.
    """

    text: str
    query: Mark
    facts: list[MarkedFact] = Field(min_length=1)
    answer: str
    acceptable: list[str] = Field(min_length=2)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        steps = sorted({fact.step for fact in self.facts})
        expect(steps == [*range(1, len(steps) + 1)], "facts", "steps 1, 2, … without a gap", steps)
        fits = self.answer in self.acceptable and len({*self.acceptable}) == len(self.acceptable)
        expect(fits, "acceptable", f"different answers, {self.answer!r} among them", self.acceptable)
        self.asked("")
        return self

    def asked(self, id: str) -> Asked:
        """The passage as a question; what is given to a step is what the step before has found, however it is written.

        Raises:
            ValueError: a mark is not in the text, or in several places.
        """

        def mention(mark: Mark, symbol: str, *where: Any) -> Mention:
            start, end = _span(self.text, mark)
            return Mention(symbol or self.text[start:end].casefold(), start, end, *where)

        query, mentions = mention(self.query, ""), list[Mention]()
        # Of each step the name of its symbol, as it is found; none where several are found at once.
        names: dict[int, str] = {0: query.symbol}
        for fact in self.facts:
            names[fact.step] = "" if fact.step in names else mention(fact.found, "").symbol
        for line, fact in enumerate(self.facts):
            several = fact.given if isinstance(fact.given, list) else [fact.given]
            before = names[fact.step - 1] if len(several) == 1 else ""
            mentions += [mention(mark, before, line, 0, False, 0, fact.step) for mark in several]
            mentions.append(mention(fact.found, names[fact.step], line, 0, True, 0, fact.step))
        symbols, acceptable = (tuple(names[step] for step in sorted(names)),), tuple(self.acceptable)
        of = max(names), 1, self.answer, acceptable, 0, symbols, dict[str, Any](), (), self.text
        return Question(id, "passage", *of), Placed(self.text, (*mentions, query))


def _span(text: str, mark: Mark) -> tuple[int, int]:
    if isinstance(mark, tuple):
        start, end = mark
        expect(0 <= start < end <= len(text), "mark", f"characters from 0 to {len(text)}", [start, end])
        return start, end
    once = isinstance(mark, str)
    words, number = (mark, 1) if isinstance(mark, str) else (mark.text, mark.occurrence)
    starts = [at for at in range(len(text)) if words and text.startswith(words, at)]
    wanted = f"{words!r} {'once' if once else f'{number} times'} in the text"
    fits = len(starts) == 1 if once else len(starts) >= number
    expect(fits, "mark", wanted, f"it {len(starts)} times")
    return starts[number - 1], starts[number - 1] + len(words)


def passages(file: Path) -> list[Asked]:
    """Passages of one depth, from a file with one or a list of them; see `Passage`.

    Raises:
        UserError: the file cannot be read, is no passage, a mark is not in its text, or passages differ in depth.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        several = [Passage.model_validate(each) for each in (data if isinstance(data, list) else [data])]
    except ValidationError as error:
        raise UserError(f"{file}: {validation_line(error)}; see docs/heads.md") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: expected a file of marked text, found {error}; see docs/heads.md") from None
    found = [each.asked(f"{file.stem}-{number:06d}") for number, each in enumerate(several)]
    if len({question.depth for question, _ in found}) != 1:
        raise UserError(f"{file}: expected passages of one depth, found several or none; put each in a file")
    return found
