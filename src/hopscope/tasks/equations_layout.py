"""How drawn equations are written down as tokens, and what each token is.

A *symbol* is a number: values are 0 … N - 1, the names of round r are r·N … r·N + N - 1.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.equations_config import KINDS as KINDS
from hopscope.tasks.equations_config import LINE, EquationsConfig
from hopscope.tasks.text.linear import equations
from hopscope.tasks.text.tokens import END, PADDING, numbered, question_words

_PADDING, _GIVEN, _EQUALS, _FOUND, _WORD, _QUERY, _ANSWER, _END, _REPEATED = range(len(KINDS))


class Drawn(NamedTuple):
    """The random choices of questions, for all rounds of the deepest; shallower questions have the first rounds.

    Attributes:
        depth: number of each question's depth in `depths`.
        found: of each name, in the order of symbols: the symbol on the right of its line.
        orders: of each line: the name on its left, counted within its round.
        asked: name that is asked about.
        repeats: ranks by which lines are repeated: those that a question has, in this order.
    """

    depth: Int[Tensor, "member batch"]
    found: Int[Tensor, "member batch name"]
    orders: Int[Tensor, "member batch round chain"]
    asked: Int[Tensor, "member batch"]
    repeats: Int[Tensor, "member batch name"]


class Layout:
    """Tables for one configuration on one device.

    A question of any depth is a selection of *sources*: the lines of all rounds, the query, the words of the question
    sentence, the answer, the end mark, all lines once more, padding.

    Attributes:
        roles, relations: names of what `annotations` returns.
    """

    def __init__(self, config: EquationsConfig, device: torch.device):
        self.config, self.device = config, device
        self.roles = ("kind", "step", "round", "slot", "chain")
        hops = (f"hop_{hop}" for hop in range(1, config.depths[-1] + 1))
        self.relations = ("previous", "pair_mate", "query", "same_symbol", *hops)
        numbers = numbered(config.vocabulary)
        levels = equations(config.depths[-1], config.chains).levels
        before, behind = question_words(config.chains, config.depths[-1])
        self.tokens_of = self.table([numbers[word] for level in levels for word in level])
        self._equals, self._end, self._padding = numbers["="], numbers[END], numbers[PADDING]
        self._words = self.table([numbers[word] for word in (*before, *behind)])
        self._before = len(before)
        self._lines = config.chains * config.depths[-1]
        self._query = LINE * self._lines
        self._first_word = self._query + 1
        self._answer = self._first_word + len(self._words)
        self._sources = self.table([self._of_depth(depth) for depth in config.depths])
        self._depths = self.table(list(config.depths))

    def table(self, values: object) -> Tensor:
        """Nested numbers as a tensor on the device."""
        return torch.tensor(values, device=self.device)

    def _of_depth(self, depth: int) -> list[int]:
        """Sources of a text of one depth, position by position."""
        words = list(range(self._first_word, self._answer))
        lines = list(range(LINE * self.config.chains * depth))
        text = [*lines, *words[: self._before], self._query, *words[self._before :]]
        text += [self._answer, self._answer + 1]
        if self.config.repeated:
            text += [self._answer + 2 + token for token in lines]
        padding = self._answer + 2 + LINE * self._lines
        # One more than the input: the last is only ever predicted.
        return text + [padding] * (self.config.positions + 1 - len(text))

    def tokens(
        self, drawn: Drawn
    ) -> tuple[Int[Tensor, "member batch position"], Int[Tensor, "member batch position"]]:
        """Token numbers of whole texts, one more than the input has, and the source of each."""
        given = self._given(drawn)
        lines = self._written(given, self.follow(drawn, given))
        query = self.tokens_of[drawn.asked][..., None]
        words = self._words.expand(*query.shape[:2], -1)
        answer = self.tokens_of[self.value(drawn, drawn.asked[..., None])]
        again = self.repeated(drawn)
        repeated = self._written(again, self.follow(drawn, again))
        end, padding = torch.full_like(query, self._end), torch.full_like(query, self._padding)
        source = self._sources[drawn.depth]
        return torch.cat((lines, query, words, answer, end, repeated, padding), -1).gather(-1, source), source

    def _written(
        self, names: Int[Tensor, "member batch line"], found: Int[Tensor, "member batch line"]
    ) -> Int[Tensor, "member batch token"]:
        """Lines that tell what names are, as tokens."""
        equals = torch.full_like(names, self._equals)
        return torch.stack((self.tokens_of[names], equals, self.tokens_of[found]), -1).flatten(-2)

    # Symbols.

    def follow(
        self, drawn: Drawn, symbols: Int[Tensor, "member batch any"]
    ) -> Int[Tensor, "member batch any"]:
        """The symbol on the right of each name's line; values stay as they are."""
        found = drawn.found.gather(-1, (symbols - self.config.chains).clamp(min=0))
        return torch.where(symbols >= self.config.chains, found, symbols)

    def value(
        self, drawn: Drawn, symbols: Int[Tensor, "member batch any"]
    ) -> Int[Tensor, "member batch any"]:
        """The value that each symbol has in the end."""
        for _ in range(self.config.depths[-1]):
            symbols = self.follow(drawn, symbols)
        return symbols

    def last_names(self, drawn: Drawn) -> Int[Tensor, "member batch chain"]:
        """The names of the last round."""
        first = self._depths[drawn.depth] * self.config.chains
        return first[..., None] + torch.arange(self.config.chains, device=self.device)

    def _given(self, drawn: Drawn) -> Int[Tensor, "member batch line"]:
        """The name on the left of each line."""
        rounds = torch.arange(1, self.config.depths[-1] + 1, device=self.device)[:, None]
        return (rounds * self.config.chains + drawn.orders).flatten(-2)

    def repeated(self, drawn: Drawn) -> Int[Tensor, "member batch line"]:
        """The name of each repeated line: those of the text's rounds first."""
        rounds = torch.arange(self._lines, device=self.device) // self.config.chains
        beyond = rounds >= self._depths[drawn.depth][..., None]
        return (drawn.repeats + self._lines * beyond).argsort(-1) + self.config.chains

    # What each token is.

    def annotations(
        self, drawn: Drawn, source: Int[Tensor, "member batch position"]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Roles and relations; see `EquationsTask`."""
        kind = self._kinds(source)
        position = torch.arange(source.shape[-1], device=self.device).expand(source.shape)
        query = (kind == _QUERY).int().argmax(-1, keepdim=True)
        behind = (kind == _WORD) & (position > query)
        symbol = self._symbols(drawn, source, kind, behind)
        roles = {
            "kind": kind,
            "step": self._steps(drawn, source),
            "round": self._rounds(drawn, source),
            "slot": torch.where(kind == _WORD, source - self._first_word + 1, 0),
            "chain": torch.where(symbol >= 0, self.value(drawn, symbol.clamp(min=0)), NO_RELATION),
        }
        # The sign is its line's.
        roles["chain"] = torch.where(kind == _EQUALS, roles["chain"].roll(1, -1), roles["chain"])
        return roles, self._relations(drawn, kind, position, query, behind, symbol)

    def _kinds(self, source: Tensor) -> Tensor:
        kind = torch.full_like(source, _PADDING)
        repeated = (source > self._answer + 1) & (source <= self._answer + 1 + LINE * self._lines)
        kinds = (
            (source < self._query, _GIVEN + source % LINE),
            (source == self._query, _QUERY),
            ((source >= self._first_word) & (source < self._answer), _WORD),
            (source == self._answer, _ANSWER),
            (source == self._answer + 1, _END),
            (repeated, _REPEATED),
        )
        for here, number in kinds:
            kind = torch.where(here, number, kind)
        return kind

    def _steps(self, drawn: Drawn, source: Tensor) -> Tensor:
        """1 for lines of the last round, which is read first."""
        rounds = source // (LINE * self.config.chains)
        return torch.where(source < self._query, self._depths[drawn.depth][..., None] - rounds, 0)

    def _rounds(self, drawn: Drawn, source: Tensor) -> Tensor:
        """The round that a line is of, counted from the text's beginning; behind the lines the last one."""
        rounds = source // (LINE * self.config.chains) + 1
        return torch.where(source < self._query, rounds, self._depths[drawn.depth][..., None])

    def _symbols(self, drawn: Drawn, source: Tensor, kind: Tensor, behind: Bool[Tensor, "..."]) -> Tensor:
        """The symbol that each position speaks of; `NO_RELATION` where there is none."""
        given = self._given(drawn)
        lines = torch.stack((given, torch.full_like(given, NO_RELATION), self.follow(drawn, given)), -1)
        of_lines = lines.flatten(-2).gather(-1, source.clamp(max=self._query - 1))
        asked = torch.where(behind | (kind == _QUERY), drawn.asked[..., None], NO_RELATION)
        return torch.where(source < self._query, of_lines, asked)

    def _relations(
        self, drawn: Drawn, kind: Tensor, position: Tensor, query: Tensor, behind: Tensor, symbol: Tensor
    ) -> dict[str, Tensor]:
        none = torch.full_like(position, NO_RELATION)
        mate = torch.where(kind == _GIVEN, position + 2, position - 2)
        relations = {
            "previous": position - 1,
            "pair_mate": torch.where((kind == _GIVEN) | (kind == _FOUND), mate, none),
            "query": torch.where(behind, query, none),
        }
        line_of = self._given(drawn).argsort(-1)
        for hop in range(1, self.config.depths[-1] + 1):
            named = symbol >= self.config.chains
            line = line_of.gather(-1, (symbol - self.config.chains).clamp(min=0))
            if hop == 1:
                told = torch.where(named & (kind != _GIVEN) & ~behind, LINE * line, none)
                relations["same_symbol"] = told
            relations[f"hop_{hop}"] = torch.where(named, LINE * line + 2, none)
            symbol = torch.where(named, self.follow(drawn, symbol.clamp(min=0)), NO_RELATION)
        return relations
