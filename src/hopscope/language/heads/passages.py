"""Natural text whose retrieval steps the user has marked, as questions like any other."""

from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.runs.files import read_json
from hopscope.tasks.text import Fact, Mention, Question, Structure

FORMULATION = "passage"
"""What a question made of marked text is called in records."""


class Occurrence(Config):
    """The n-th place where some characters stand, counted from 1."""

    text: str = Field(min_length=1)
    occurrence: int = Field(ge=1)


Mark = str | tuple[int, int] | Occurrence
"""Characters that stand in the text exactly once, or where they begin and end, or which occurrence is meant."""


class MarkedFact(Config):
    """Where the text says one fact.

    Attributes:
        given: what must be known, or a list of such where the step is conditional.
        found: what is learned.
        step: 1 is read first from the query.
    """

    given: Mark | list[Mark]
    found: Mark
    step: int = Field(ge=1)


class Passage(Config):
    """Text with its facts marked; it ends where the answer would follow.

    Attributes:
        text: what the model is given.
        query: mention of x_0, from which the retrieval starts.
        facts: of the one chain, at least one for each step 1 … D.
        answer: x_D, which the model should say next.
        acceptable: answers among which the model chooses, the right one among them, at least two.
    """

    text: str = Field(min_length=1)
    query: Mark
    facts: list[MarkedFact] = Field(min_length=1)
    answer: str = Field(min_length=1)
    acceptable: list[str] = Field(min_length=2)

    @model_validator(mode="after")
    def _consistent(self) -> "Passage":
        steps = sorted({fact.step for fact in self.facts})
        if steps != list(range(1, len(steps) + 1)):
            raise ValueError(f"facts: expected steps 1, 2, … without a gap, found {steps}")
        if self.answer not in self.acceptable or len(set(self.acceptable)) < len(self.acceptable):
            raise ValueError(
                f"acceptable: expected different answers, {self.answer!r} among them, found {self.acceptable}"
            )
        return self

    def question(self, id: str) -> Question:
        """The passage as a question of one chain.

        Raises:
            UserError: a mark is not in the text, or not in one place only.
        """

        def mention(mark: Mark, name: str, symbol: str | None = None) -> Mention:
            """The mention of a symbol; of one without a name, what is written, without capitals."""
            start, end = _span(self.text, mark, f"{id}, {name}")
            return Mention(symbol or self.text[start:end].casefold(), start, end)

        # Of each step, the name of its symbol, as it is found; None where several are found at once.
        names: dict[int, str | None] = {0: mention(self.query, "query").symbol}
        for number, fact in enumerate(self.facts, 1):
            name = mention(fact.found, f"fact {number}, found").symbol
            names[fact.step] = None if fact.step in names else name
        facts = []
        for number, fact in enumerate(self.facts, 1):
            marks = fact.given if isinstance(fact.given, list) else [fact.given]
            # What is given to a step is what the step before has found, in whatever form it is written.
            known = names[fact.step - 1] if len(marks) == 1 else None
            given = tuple(mention(mark, f"fact {number}, given", known) for mark in marks)
            found = mention(fact.found, f"fact {number}, found", names[fact.step])
            start, end = min(m.start for m in (*given, found)), max(m.end for m in (*given, found))
            facts.append(Fact(0, fact.step, given, found, start, end))
        depth = max(names)
        return Question(
            id=id,
            formulation=FORMULATION,
            depth=depth,
            chains=1,
            prompt=self.text,
            answer=self.answer,
            acceptable=tuple(self.acceptable),
            structure=Structure(
                chain=0,
                query=(mention(self.query, "query", names[0]),),
                facts=tuple(sorted(facts, key=lambda fact: fact.start)),
                symbols=(tuple(names[step] or "" for step in range(depth + 1)),),
                answers=(self.answer,),
                alternatives=(),
            ),
        )


_PASSAGES = TypeAdapter(list[Passage])


def read_passages(path: Path) -> list[Question]:
    """Read one passage, or a list of them.

    Raises:
        UserError: the file cannot be read, is no passage, a mark is not in its text, or passages differ in depth.
    """
    data = read_json(path, "name a passage file; see docs/heads.md")
    try:
        passages = _PASSAGES.validate_python(data if isinstance(data, list) else [data])
    except ValidationError as error:
        raise UserError(f"{path}: {validation_line(error)}; see docs/heads.md") from None
    if not passages:
        raise UserError(f"{path}: expected at least one passage, found an empty list; see docs/heads.md")
    found = [passage.question(f"{path.stem}-{number:06d}") for number, passage in enumerate(passages)]
    depths = sorted({question.depth for question in found})
    # What is compared must be alike.
    if len(depths) > 1:
        raise UserError(f"passages: expected one depth, found {depths}; put each depth in a file of its own")
    return found


def _span(text: str, mark: Mark, name: str) -> tuple[int, int]:
    """Where a mark stands in a text, as its first character and the one past its last."""
    if isinstance(mark, tuple):
        if not 0 <= mark[0] < mark[1] <= len(text):
            raise UserError(
                f"{name}: expected characters within 0 to {len(text)}, found {list(mark)}; count them in the text"
            )
        return mark
    wanted, place = (mark, None) if isinstance(mark, str) else (mark.text, mark.occurrence)
    starts = [at for at in range(len(text)) if wanted and text.startswith(wanted, at)]
    if place is None and len(starts) != 1:
        raise UserError(
            f"{name}: expected {wanted!r} once in the text, found it {len(starts)} times; "
            'write {"text": …, "occurrence": n}, or the first character and the one past the last'
        )
    if place is not None and len(starts) < place:
        raise UserError(
            f"{name}: expected occurrence {place} of {wanted!r} in the text, found {len(starts)}; "
            "count them in the text"
        )
    start = starts[(place or 1) - 1]
    return start, start + len(wanted)
