"""From the characters of a question to the tokens of a model: which row should read which tokens.

Targets are named `row:target`.  Rows: `query`, the mention of x_0 in the question; `answer`, the last token, after
which the answer follows; `facts`, the mentions in the facts.  Targets: `previous`, the token before; `same_symbol`,
the same symbol where it is given (from the query and the answer: in the fact of step 1; from the facts: wherever it
was mentioned in an earlier fact); `pair_mate`, from the later mention of a fact to its earlier ones; `query`, from
the answer to the mention of x_0; `hop_k`, what step k of the asked chain finds.  A row is the last token of a
mention, a target all of its tokens.  Where a problem is told several times, rows are those of the last telling, and
targets are in all tellings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hopscope.errors import UserError
from hopscope.language.heads.passages import FORMULATION as PASSAGE
from hopscope.language.questions.prompts import Placed, as_it_is
from hopscope.language.tokenizing import Spans, continuations, encoded
from hopscope.tasks.text import Fact, Mention, Question

Pair = tuple[int, tuple[int, ...]]
"""A row, and the tokens that it should read."""


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A question as the tokens of one model.

    Attributes:
        id: of the question.
        ids: tokens of the prompt.
        reads: of each target, rows and what they should read; rows that cannot see it are left out.
        roles: of each token, what part it plays in the question; the same in all questions of a formulation.
        continuations: tokens of every acceptable answer.
        right: which of them is correct.
    """

    id: str
    ids: tuple[int, ...]
    reads: Mapping[str, tuple[Pair, ...]]
    roles: tuple[str, ...]
    continuations: tuple[tuple[int, ...], ...]
    right: int


@dataclass(frozen=True, slots=True)
class _Told:
    """A question as it is put, with all mentions where they stand in the text.

    Attributes:
        question: what is asked.
        text: what the model is given.
        facts: of each telling.
        query: mentions of x_0 from which the last telling asks.
    """

    question: Question
    text: str
    facts: tuple[tuple[Fact, ...], ...]
    query: tuple[Mention, ...]

    @property
    def all_facts(self) -> list[Fact]:
        return [fact for of_telling in self.facts for fact in of_telling]


class Reader:
    """Puts questions into the tokens of one tokenizer.

    A prompt is given bare, or within the tokenizer's chat template.  The answer follows after one space (or the line
    break of solved examples), or directly where the tokenizer makes other tokens of the prompt, or an unknown one, with
    that in between.

    Args:
        tokenizer: a fast tokenizer of transformers (one that knows offsets).
        chat: whether to use its chat template.

    Raises:
        UserError: the tokenizer has no offsets, or no chat template where one is asked for.
    """

    def __init__(self, tokenizer: Any, chat: bool = False) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                "tokenizer: expected a fast one, which says where tokens stand, found a slow one; convert it "
                "(tokenizer.json)"
            )
        if chat and tokenizer.chat_template is None:
            raise UserError("--chat: expected a tokenizer with a chat template, found none; leave it out")
        self._tokenizer, self._chat = tokenizer, chat
        self._joiner: str | None = None

    def read(self, question: Question, placed: Placed | None = None) -> Tokenized:
        """The question's tokens, targets and roles.

        Args:
            question: what is asked.
            placed: how it is put; None for its prompt as it is.

        Raises:
            UserError: a mention, or where an answer begins, cannot be told in these tokens.
        """
        placed = placed or as_it_is(question)
        text, shift = self._embedded(question.id, placed.text)
        ids, found = encoded(self._tokenizer, text, special=not self._chat)
        spans = [(start - shift, end - shift) for start, end in found]
        told = _told(question, placed)
        tokens = self._mentions(told, ids, spans)
        return Tokenized(
            id=question.id,
            ids=ids,
            reads=_reads(told, tokens, last=len(spans) - 1),
            roles=_roles(told, placed.tellings, tokens, spans),
            continuations=self._continuations(question, text, ids, placed.joiner),
            right=question.acceptable.index(question.answer),
        )

    def _embedded(self, id: str, prompt: str) -> tuple[str, int]:
        """What the model is given, and where the prompt begins in it."""
        if not self._chat:
            return prompt, 0
        chat = [{"role": "user", "content": prompt}]
        text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        shift = text.rfind(prompt)
        if shift < 0:
            raise UserError(
                f"{id}: expected a chat template that leaves the prompt as it is, found one that "
                "changes it; leave --chat out"
            )
        return text, shift

    def _mentions(self, told: _Told, ids: Sequence[int], spans: Spans) -> dict[Mention, list[int]]:
        owners: dict[int, Mention] = {}
        located: dict[Mention, list[int]] = {}
        for mention in dict.fromkeys([*_of_facts(told.all_facts), *told.query]):
            inside = [
                n for n, (start, end) in enumerate(spans) if start < mention.end and end > mention.start
            ]
            _check_covered(told, mention, [spans[n] for n in inside])
            if any(ids[n] == self._tokenizer.unk_token_id for n in inside):
                raise UserError(
                    f"{_named(told, mention)}: expected a token of the tokenizer's own, found the unknown "
                    "one; use a model that knows the word"
                )
            for n in inside:
                other = owners.setdefault(n, mention)
                if other != mention:
                    raise UserError(
                        f"{_named(told, mention)}: expected tokens of its own, found one that it shares with "
                        f"{told.text[other.start : other.end]!r} (character {other.start}); "
                        "use another tokenizer or formulation"
                    )
            located[mention] = inside
        return located

    def _continuations(
        self, question: Question, text: str, ids: tuple[int, ...], joiner: str
    ) -> tuple[tuple[int, ...], ...]:
        joiners = (joiner, "") if self._joiner is None else (self._joiner,)
        found = continuations(
            self._tokenizer, text, ids, question.acceptable, joiners, special=not self._chat
        )
        if found is None:
            raise UserError(
                f"{question.id}: expected answers such as {question.answer!r} in tokens that follow the prompt's, "
                "found others or an unknown one; use another tokenizer or formulation"
            )
        self._joiner, tokens = found
        return tokens


def _told(question: Question, placed: Placed) -> _Told:
    def moved(mention: Mention, by: int) -> Mention:
        return replace(mention, start=mention.start + by, end=mention.end + by)

    def told(fact: Fact, by: int) -> Fact:
        given = tuple(moved(mention, by) for mention in fact.given)
        found = moved(fact.found, by)
        return replace(fact, given=given, found=found, start=fact.start + by, end=fact.end + by)

    facts = tuple(tuple(told(fact, by) for fact in question.structure.facts) for by in placed.tellings)
    return _Told(question, placed.text, facts, placed.query)


def _of_facts(facts: Iterable[Fact]) -> list[Mention]:
    return [mention for fact in facts for mention in (*fact.given, fact.found)]


def _named(told: _Told, mention: Mention) -> str:
    written = told.text[mention.start : mention.end]
    start = told.text.rfind("\n", 0, mention.start) + 1
    line = told.text[start:].split("\n", 1)[0]
    return f"{told.question.id}: mention {written!r} at character {mention.start}, in {line[:80]!r}"


def _check_covered(told: _Told, mention: Mention, spans: Spans) -> None:
    if not spans or spans[0][0] > mention.start or max(end for _, end in spans) < mention.end:
        raise UserError(
            f"{_named(told, mention)}: expected tokens that cover it, found {len(spans)} that do not; "
            "use another tokenizer or formulation"
        )
    before = told.text[max(0, spans[0][0]) : mention.start]
    after = told.text[mention.end : max(end for _, end in spans)]
    if any(sign.isalnum() for sign in before + after):
        raise UserError(
            f"{_named(told, mention)}: expected it in whole tokens, found "
            f"{before + told.text[mention.start : mention.end] + after!r} in one; mark whole words, or use "
            "another tokenizer or formulation"
        )


def _reads(told: _Told, tokens: Mapping[Mention, list[int]], last: int) -> dict[str, tuple[Pair, ...]]:
    """Of each target, the rows that see it; see the module."""
    question, everywhere, latest = told.question, told.all_facts, told.facts[-1]
    mentions, facts = _of_facts(latest), _of_facts(everywhere)
    asked = [fact for fact in everywhere if fact.chain == question.structure.chain]
    first = [mention for fact in asked if fact.step == 1 for mention in fact.given]

    def row(mention: Mention) -> int:
        return tokens[mention][-1]

    def every(mentions: Iterable[Mention]) -> tuple[int, ...]:
        return tuple(sorted({n for mention in mentions for n in tokens[mention]}))

    def where_given(wanted: Sequence[Mention]) -> tuple[int, ...]:
        symbols = {mention.symbol for mention in wanted}
        return every(mention for mention in first if mention.symbol in symbols)

    def earlier(mention: Mention) -> tuple[int, ...]:
        return every(m for m in facts if m.symbol == mention.symbol and m.start < mention.start)

    rows = {"query": [row(mention) for mention in told.query], "answer": [last]}
    found: dict[str, list[Pair]] = {}
    for name, starts in (*rows.items(), ("facts", sorted({row(mention) for mention in mentions}))):
        found[f"{name}:previous"] = [(start, (start - 1,)) for start in starts]
    found["query:same_symbol"] = [(row(mention), where_given([mention])) for mention in told.query]
    found["answer:same_symbol"] = [(last, where_given(told.query))]
    found["answer:query"] = [(last, every(told.query))]
    for step in range(1, question.depth + 1):
        hop = every(fact.found for fact in asked if fact.step == step)
        for name, starts in rows.items():
            found[f"{name}:hop_{step}"] = [(start, hop) for start in starts]
    found["facts:pair_mate"] = [_mates(tellings, tokens) for tellings in zip(*told.facts, strict=True)]
    found["facts:same_symbol"] = [(row(mention), earlier(mention)) for mention in mentions]
    return {name: _seen(pairs) for name, pairs in found.items()}


def _mates(tellings: Sequence[Fact], tokens: Mapping[Mention, list[int]]) -> Pair:
    """From the later mention of a fact, where it is told last, to its earlier ones in all tellings."""
    before: set[int] = set()
    for fact in tellings:
        *mates, later = sorted((*fact.given, fact.found), key=lambda each: each.start)
        before |= {n for mention in mates for n in tokens[mention]}
    return tokens[later][-1], tuple(sorted(before))


def _roles(
    told: _Told, tellings: Sequence[int], tokens: Mapping[Mention, list[int]], spans: Spans
) -> tuple[str, ...]:
    """Of each token: which step's line it stands in and as what, or how far from the end it is.

    Tokens of solved examples, which are the same before all questions, are told apart by their place.
    """
    if told.question.formulation == PASSAGE:
        return ("text",) * len(spans)
    part = {n: "given" for fact in told.all_facts for mention in fact.given for n in tokens[mention]}
    part |= {n: "found" for fact in told.all_facts for n in tokens[fact.found]}
    begins = [next(n for n, (_, end) in enumerate(spans) if end > start) for start in tellings]
    ends = [*begins[1:], len(spans)]
    roles: list[str] = []
    telling, line, others = 0, 0, 0
    for n, (start, end) in enumerate(spans):
        if telling + 1 < len(begins) and n == begins[telling + 1]:
            telling, line, others = telling + 1, 0, 0
        facts = told.facts[telling]
        # A problem that is told once needs no number.
        which = f"telling {telling + 1} " if len(begins) > 1 else ""
        while line < len(facts) and start > facts[line].end:
            line, others = line + 1, 0
        if end <= start or start < 0 or start >= len(told.text):
            roles.append(f"outside {n if start <= 0 else n - len(spans)}")
        elif n < begins[0]:
            roles.append(f"example {n}")
        elif line == len(facts):
            roles.append(f"{which}question {n - ends[telling]}")
        elif n in part:
            roles.append(f"{which}step {facts[line].step} {part[n]}")
        else:
            roles.append(f"{which}step {facts[line].step} other {others}")
            others += 1
    return (*roles[:-1], "answer")


def _seen(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    kept = [(row, tuple(n for n in targets if 0 <= n <= row)) for row, targets in pairs]
    return tuple((row, targets) for row, targets in kept if targets)
