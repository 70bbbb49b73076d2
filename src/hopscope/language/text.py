"""Questions in equations as tokens (paper, section 4 and Appendix A.1): what a small language model is trained on.

D rounds of N lines such as "b = a", the question sentence, and in training the answer and the lines once more.  The
model answers at the last token of the question.  No torch.
"""

import hashlib
import itertools
import math
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.language.words import LETTERS
from hopscope.tasks.task import Floors, Shape, Task, expect

if TYPE_CHECKING:
    from torch import Tensor, device

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws

PADDING, END = "<pad>", "<end>"
"""Tokens 0 and 1: behind the end of a text, and behind an answer."""

KINDS = ("padding", "given", "equals", "found", "word", "query", "answer", "end", "repeated")
"""What a token is: of a line its left name, the sign, its right name or value; of the question sentence a word, or the
name that is asked about; the answer and the mark behind it; a token of a repeated line."""

_PADDING, _GIVEN, _EQUALS, _FOUND, _WORD, _QUERY, _ANSWER, _END, _REPEATED = range(len(KINDS))

_SENTENCE = "What is the value of | ? Say directly only the numeric value , without any other words ."
BEFORE, BEHIND = (half.split() for half in _SENTENCE.split("|"))
"""Tokens of the question sentence before and behind the name that is asked about."""

_ROLES = ("kind", "step", "round", "slot", "chain")

LINE = 3
"""Tokens of a line: a name, the sign, a name or value."""


class Equations(Task):
    """Questions in equations.

    A training text is a question, its answer and an end mark, then the lines of the question once more in another
    order.  The model predicts the answer, the mark, and the right side of every repeated line.  Held-out questions are
    the paper's, with mappings of names to values that training never has.

    Attributes:
        chains: interleaved chains N.
        depths: how many rounds D a question may have, ascending.
        mixture: how often each of them is drawn: all alike, with a probability in proportion to 1 / D (Zipf), or in
            proportion to given weights, one for each depth.
        lines: what the right side of a line may be in training: a symbol of the round before, each once, as in the
            paper ("paper"), or any name of an earlier round or value ("earlier"), so that a question with D rounds
            takes 1 to D steps.
        asked: in training, what a question is about: a name of the last round, as in the paper, or any.
        repeated: whether the lines are repeated behind the answer in training.
        held_out_share: of all N! mappings of the last names to values, those that training never sees.
        split_seed: seed of that split.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "round", "slot")

    chains: int = Field(4, ge=2, le=6)
    depths: tuple[int, ...] = (1, 2)
    mixture: Literal["uniform", "zipf"] | tuple[float, ...] = "uniform"
    lines: Literal["paper", "earlier"] = "earlier"
    asked: Literal["last", "any"] = "any"
    repeated: bool = True
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Of each depth in the mixture."""
        named = {"uniform": [1.0] * len(self.depths), "zipf": [1.0 / depth for depth in self.depths]}
        weights = named[self.mixture] if isinstance(self.mixture, str) else self.mixture
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Words of the values 0 … N - 1, then of the N names of each round: a … z, then aa … zz."""
        return (*map(str, range(self.chains)), *LETTERS[: self.chains * self.depths[-1]])

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All tokens, in the order of their numbers; a name such as "a" may be a word of the question too."""
        values, names = self.symbols[: self.chains], self.symbols[self.chains :]
        return tuple(dict.fromkeys((PADDING, END, *values, "=", *names, *BEFORE, *BEHIND)))

    @property
    def held_out_mappings(self) -> list[tuple[int, ...]]:
        """Those whose hash ranks first: of each name of the last round its value; the same on any machine."""
        every = [*itertools.permutations(range(self.chains))]
        every.sort(key=lambda mapping: hashlib.sha256(f"{self.split_seed}/{mapping}".encode()).digest())
        return sorted(every[: min(max(1, round(self.held_out_share * len(every))), len(every) - 1)])

    def prompt_length(self, depth: int) -> int:
        """Tokens of a question with so many rounds: lines, and the question sentence."""
        return LINE * self.chains * depth + len(BEFORE) + 1 + len(BEHIND)

    def answered(self, depth: int) -> tuple[int, ...]:
        """Positions where something is to be predicted: the question's last, the answer, the = of repeated lines."""
        end = self.prompt_length(depth)
        repeated = range(end + 3, end + 2 + LINE * self.chains * depth, LINE) if self.repeated else ()
        return (end - 1, end, *repeated)

    def shape(self) -> Shape:
        """Tokens; asked are the answer, the end mark, and the right side of every repeated line."""
        size, readout = len(self.vocabulary), sorted({*itertools.chain(*map(self.answered, self.depths))})
        length, rows = readout[-1] + 1, tuple(readout)
        return Shape(inputs="tokens", input_size=size, positions=length, readout=rows, output_size=size)

    def sample(self, draws: "Draws") -> "Batch":
        """Training texts; held-out ones are the paper's questions, and so are those that circuits are looked for on.

        Roles: `kind` (`KINDS`), `step` (of a line: 1 is the round that the question asks for; 0 elsewhere), `round`
        (of a line: 1 is the first; behind the lines: the last), `slot` (of a word: its number in the sentence), `chain`
        (the value in which a line's symbols, the query, or the words behind it end; -1: none).  Relations: `previous`,
        `pair_mate` (the other symbol of a line), `same_symbol` (from a name on the right, and from the query, to the
        line that tells what it is), `query` (from the words behind it), `hop_k` (what stands on the right k lines on).
        """
        if draws.use == "held-out" or draws.stream == "circuit":
            return self.questions(draws, familiar=draws.use != "held-out")
        return _texts(self, draws.device).training(draws)

    def questions(self, draws: "Draws", depth: int | None = None, *, familiar: bool = False) -> "Batch":
        """The paper's questions, of one depth or mixed as in training; what stands behind them is padding.

        With mappings that are held out, or, `familiar`, with those that training may see.
        """
        return _texts(self, draws.device).questions(draws, depth, familiar)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats: over all tokens that are to be predicted, and mean over the answers."""
        from hopscope.tasks.batch import counted, terms, weighted

        found = terms(predictions, batch)
        first = counted(batch).int().argmax(-1)[..., None].expand(len(found), -1, 1)
        answer = found.gather(-1, first).mean((1, 2))
        return {"loss": weighted(found, batch).mean((1, 2)), "loss_answer": answer}

    def skills(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """The answer at each depth, which is the first that a text is asked for."""
        import torch

        from hopscope.tasks.batch import counted

        asked, readout = counted(batch), torch.tensor(self.shape().readout, device=batch.inputs.device)
        first = asked & (asked.cumsum(-1) == 1)
        return {f"D = {depth}": first & (readout == self.prompt_length(depth) - 1) for depth in self.depths}

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Each `value`, or `name K` of round K, exchanged for the next one of these, the last for the first."""
        import torch

        kind, vocabulary, found = batch.roles["kind"], self.vocabulary, dict[str, torch.Tensor]()
        symbols = torch.tensor([*map(vocabulary.index, self.symbols)], device=kind.device)
        is_symbol = (kind == _GIVEN) | (kind == _FOUND) | (kind == _QUERY)
        for number, of_round in enumerate(symbols.split(self.chains)):
            following = torch.arange(len(vocabulary), device=kind.device)
            following[of_round] = of_round.roll(-1)
            name = f"name {number}" if number else "value"
            found[name] = torch.where(is_symbol, following[batch.inputs], batch.inputs)
        return found

    def floors(self) -> Floors:
        """Of the answer: a guess among the values."""
        return {"loss_answer": {"guess": math.log(self.chains)}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`, and the vocabulary."""
        return {"roles": {"kind": KINDS}, "token": self.vocabulary.__getitem__}

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        depths = [*self.depths]
        ascending = bool(depths) and depths == sorted({*depths}) and depths[0] >= 1
        expect(ascending, "depths", "ascending numbers from 1", depths)
        # Texts of a task without its deepest questions would be drawn otherwise.
        weights = [1.0] * len(depths) if isinstance(self.mixture, str) else [*self.mixture]
        fit = len(weights) == len(depths) and min(weights) >= 0.0 and weights[-1] > 0.0
        wanted = f"a weight for each depth of {depths}, none below 0 and the last above"
        expect(fit, "mixture", wanted, weights)
        names = depths[-1] * self.chains
        fit = names <= len(LETTERS) and names**self.chains < 1 << 31
        wanted = f"depth · chains at most {len(LETTERS)}, and to the power of chains below 2^31"
        expect(fit, "depths", wanted, f"{depths[-1]} · {self.chains}; take less")
        return self


class _Drawn(NamedTuple):
    """The random choices of questions, for all rounds of the deepest; shallower questions have the first rounds.

    Names and values are numbers: values 0 … N - 1, the names of round r from r·N to r·N + N - 1.
    """

    depth: "Tensor"  # number of the depth in `depths`, [member, batch, 1]
    found: "Tensor"  # of each name: what stands on the right of its line
    given: "Tensor"  # of each line: the name on its left
    again: "Tensor"  # the same of each repeated line; those that a question has come first
    asked: "Tensor"  # name that is asked about, [member, batch, 1]


class _Texts:
    """Draws texts on a device; whatever is the same in all of them stands in tables.

    A text of any depth is a selection of *sources*: the lines of all rounds, the query, the words of the question
    sentence, the answer, the end mark, all lines once more, padding.
    """

    def __init__(self, task: Equations, device: "device"):
        import torch

        table, number, shape = partial(torch.tensor, device=device), task.vocabulary.index, task.shape()
        self.task, self.chains, self.deepest = task, task.chains, task.depths[-1]
        self.places, self.lines = torch.arange(self.chains, device=device), self.chains * self.deepest
        # Symbols are the values, the names, and whatever has a token of its own; `tokens` are those of all.
        words, line = [*map(number, (*BEFORE, *BEHIND))], [_GIVEN, _EQUALS, _FOUND] * self.lines
        self.named, self.depths = len(task.symbols), table([*task.depths])
        self.equals, self.end, self.padding = range(self.named, self.named + 3)
        self.tokens = table([*map(number, task.symbols), number("="), number(END), number(PADDING), *words])
        self.sentence = torch.arange(len(words), device=device) + self.padding + 1
        self.until = table([*itertools.accumulate(task.probabilities)][:-1])
        kinds = [*line, _QUERY, *[_WORD] * len(words), _ANSWER, _END]
        self.kinds = table([*kinds, *[_REPEATED] * len(line), _PADDING, _PADDING])
        texts, query, again = list[list[int]](), len(line), len(kinds)
        behind = query + 1 + len(BEFORE)
        for depth in task.depths:
            own = range(LINE * self.chains * depth)
            text = [*own, *range(query + 1, behind), query, *range(behind, again)]
            text += [again + place for place in own] if task.repeated else []
            # One more than the input: the last is only ever predicted.
            texts.append(text + [again + len(line)] * (shape.positions + 1 - len(text)))
        self.sources, self.readout = table(texts), table([*shape.readout])
        answered = [task.answered(depth) for depth in task.depths]
        self.asked = table([[position in each for position in shape.readout] for each in answered])
        # Divided by how many readouts a text has on average, not those of this batch: a loss is a mean over samples.
        average = sum(share * len(each) for share, each in zip(task.probabilities, answered, strict=True))
        self.weight = len(shape.readout) / average
        self.ends = table([each[0] + 1 for each in answered])
        every, held = itertools.permutations(range(self.chains)), task.held_out_mappings
        self.held, self.trained = table(held), table([each for each in every if each not in held])
        self.digits = self.chains**self.places
        numbers = torch.arange(self.chains**self.chains, device=device)
        self.allowed = numbers[:, None] // self.digits % self.chains
        # A held-out mapping that was drawn in training gives way to another one.
        instead = [number % len(self.trained) for number in range(len(held))]
        self.allowed[(self.held * self.digits).sum(-1)] = self.trained[instead]
        self.blocks = self.deepest + 1 + -(-self.lines // 4)
        hops = (f"hop_{hop}" for hop in range(1, self.deepest + 1))
        self.relations = ("previous", "pair_mate", "query", "same_symbol", *hops)

    def training(self, draws: "Draws") -> "Batch":
        drawn = self._draw(draws, self.task.lines == "paper", self.task.asked == "last", None)
        number = (self._value(drawn, self._last_names(drawn)) * self.digits).sum(-1)
        return self._batch(self._with_mapping(drawn, self.allowed[number]))

    def questions(self, draws: "Draws", depth: int | None, familiar: bool) -> "Batch":
        from hopscope import rng

        drawn, mappings = self._draw(draws, True, True, depth), self.trained if familiar else self.held
        words = draws.bits(self.blocks)
        mapping = mappings[rng.integers(words[..., 0], words[..., 1], len(mappings))]
        return self._batch(self._with_mapping(drawn, mapping), self.ends[drawn.depth])

    def _draw(self, draws: "Draws", paper: bool, last: bool, of_depth: int | None) -> _Drawn:
        import torch

        from hopscope import rng

        chains, blocks, found, orders = self.chains, [*map(draws.bits, range(self.blocks))], [], []
        for number, words in enumerate(blocks[: self.deepest]):
            choices = chains * (number + 1)
            if paper:
                rank = rng.integers(words[..., 0], words[..., 1], math.factorial(chains))
                found.append(rng.permutation_from_index(rank, chains) + choices - chains)
            else:
                tie = rng.integers(words[..., 0], words[..., 1], choices**chains)
                found.append(tie[..., None] // choices**self.places % choices)
            orders.append(rng.integers(words[..., 2], words[..., 3], math.factorial(chains)))
        words = blocks[self.deepest]
        depth = (rng.uniform(words[..., 2:3]) >= self.until).sum(-1, keepdim=True)
        if of_depth is not None:
            depth = torch.full_like(depth, self.task.depths.index(of_depth))
        names = chains * self.depths[depth]
        among = torch.full_like(names, chains) if last else names
        asked = chains + names - 1 - rng.integers(words[..., :1], words[..., 1:2], among)
        # Equal words, which hardly ever come, are told apart by their place.
        ranks = torch.cat(blocks[self.deepest + 1 :], -1)[..., : self.lines].argsort(dim=-1, stable=True)
        every = torch.arange(self.lines, device=draws.device)
        again = (ranks.argsort(-1) + self.lines * (every >= names)).argsort(-1) + chains
        shuffled = rng.permutation_from_index(torch.stack(orders, -1), chains).flatten(-2)
        return _Drawn(depth, torch.cat(found, -1), every - every % chains + chains + shuffled, again, asked)

    def _with_mapping(self, drawn: _Drawn, mapping: "Tensor") -> _Drawn:
        """Other values where the chains of the last round's names end, so that the names have these."""
        line = self._last_names(drawn)
        for _ in range(self.deepest - 1):
            following = self._follow(drawn, line)
            line = following.where(following >= self.chains, line)
        return drawn._replace(found=drawn.found.scatter(-1, line - self.chains, mapping))

    def _batch(self, drawn: _Drawn, ends: "Tensor | None" = None) -> "Batch":
        """Whole texts, or what stands before some ends, with padding behind it."""
        import torch

        from hopscope.tasks.batch import Batch

        depth = drawn.depth[..., 0]
        signs = (self.equals, self.end, self.padding)
        equals, end, padding = (torch.full_like(drawn.asked, each) for each in signs)

        def written(names: "Tensor") -> "Tensor":
            return torch.stack((names, equals.expand_as(names), self._follow(drawn, names)), -1).flatten(-2)

        sentence, answer = self.sentence.expand(*depth.shape, -1), self._value(drawn, drawn.asked)
        pieces = written(drawn.given), drawn.asked, sentence, answer, end, written(drawn.again), padding
        source, asked = self.sources[depth], self.asked[depth]
        symbol = torch.cat(pieces, -1).gather(-1, source)
        tokens = self.tokens[symbol]
        inputs, source, following = tokens[..., :-1], source[..., :-1], tokens[..., 1:]
        if ends is not None:
            behind = torch.arange(inputs.shape[-1], device=inputs.device) >= ends
            inputs, source = torch.where(behind, 0, inputs), torch.where(behind, len(self.kinds) - 1, source)
            asked = asked & ~behind[..., self.readout]
        notes = cache(lambda: self._annotations(drawn, source, symbol[..., :-1]))
        several = enumerate(self.task.depths if len(self.task.depths) > 1 else ())
        return Batch(
            inputs,
            torch.where(asked, following[..., self.readout], 0),
            # Of a question one token counts.
            weights=asked * (self.weight if ends is None else float(len(self.readout))),
            groups={f"D = {rounds}": partial(depth.eq, number) for number, rounds in several},
            roles={name: lambda name=name: notes()[name] for name in _ROLES},
            relations={name: lambda name=name: notes()[name] for name in self.relations},
        )

    def _follow(self, drawn: _Drawn, symbols: "Tensor") -> "Tensor":
        """What stands on the right of each name's line; values stay as they are."""
        found = drawn.found.gather(-1, (symbols - self.chains).clamp(min=0))
        return found.where(symbols >= self.chains, symbols)

    def _value(self, drawn: _Drawn, symbols: "Tensor") -> "Tensor":
        for _ in range(self.deepest):
            symbols = self._follow(drawn, symbols)
        return symbols

    def _last_names(self, drawn: _Drawn) -> "Tensor":
        return self.chains * self.depths[drawn.depth] + self.places

    def _annotations(self, drawn: _Drawn, source: "Tensor", symbol: "Tensor") -> "dict[str, Tensor]":
        import torch

        from hopscope.tasks.batch import NO_RELATION

        kind, depth, rounds = self.kinds[source], self.depths[drawn.depth], source // (LINE * self.chains)
        place = torch.arange(source.shape[-1], device=source.device).expand(source.shape)
        query, in_lines = (kind == _QUERY).int().argmax(-1, keepdim=True), source < LINE * self.lines
        behind = (kind == _WORD) & (place > query)
        # What each position speaks of.
        spoken = (symbol < self.named) & (in_lines | (kind == _QUERY))
        symbol = torch.where(behind, drawn.asked, torch.where(spoken, symbol, NO_RELATION))
        chain = torch.where(symbol >= 0, self._value(drawn, symbol.clamp(min=0)), NO_RELATION)
        mate = torch.where(kind == _GIVEN, place + 2, place - 2)
        found = {
            "kind": kind,
            "step": torch.where(in_lines, depth - rounds, 0),
            "round": torch.where(in_lines, rounds + 1, depth) * (source < len(self.kinds) - 1),
            "slot": torch.where(kind == _WORD, source - LINE * self.lines, 0),
            "chain": torch.where(kind == _EQUALS, chain.roll(1, -1), chain),  # the sign is its line's
            "previous": place - 1,
            "pair_mate": torch.where((kind == _GIVEN) | (kind == _FOUND), mate, NO_RELATION),
            "query": torch.where(behind, query, NO_RELATION),
        }
        line_of = drawn.given.argsort(-1)
        for hop in range(1, self.deepest + 1):
            line = line_of.gather(-1, (symbol - self.chains).clamp(min=0))
            line = torch.where(symbol >= self.chains, LINE * line, NO_RELATION)
            if hop == 1:
                found["same_symbol"] = torch.where((kind == _GIVEN) | behind, NO_RELATION, line)
            found[f"hop_{hop}"] = torch.where(line >= 0, line + 2, NO_RELATION)
            symbol = torch.where(line >= 0, self._follow(drawn, symbol.clamp(min=0)), NO_RELATION)
        return found


_texts = lru_cache(maxsize=32)(_Texts)
