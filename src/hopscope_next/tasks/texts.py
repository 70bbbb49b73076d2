"""Texts of equations as tokens, drawn on a device by the thousand; see `Equations`.

A *symbol* is a number: values are 0 … N - 1, the names of round r are r·N … r·N + N - 1.  A question of any depth is a
selection of *sources*: the lines of all rounds, the query, the words of the question sentence, the answer, the end
mark, all lines once more, padding.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope_next import rng
from hopscope_next.tasks.batch import NO_RELATION, Batch
from hopscope_next.tasks.draws import Address
from hopscope_next.tasks.loss import counted

_PADDING, _GIVEN, _EQUALS, _FOUND, _WORD, _QUERY, _ANSWER, _END, _REPEATED = range(9)
_PADDING_TOKEN, _END_TOKEN, _LINE = 0, 1, 3

_ROLES = ("kind", "step", "round", "slot", "chain")


class _Drawn(NamedTuple):
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


class Texts:
    """Draws texts on a device; whatever is the same in all of them stands in tables."""

    def __init__(
        self,
        device: torch.device,
        *,
        chains: int,
        depths: Sequence[int],
        probabilities: Sequence[float],
        earlier: bool,
        any_name: bool,
        answered: Sequence[Sequence[int]],
        symbols: Sequence[int],
        sentence: tuple[Sequence[int], Sequence[int]],
        equals: int,
        held_out: Sequence[Sequence[int]],
        trained: Sequence[Sequence[int]],
    ):
        """Work out the tables: tokens by number, and positions that are answered, at each depth."""
        self.device, self.chains, self.deepest = device, chains, depths[-1]
        self.earlier, self.any_name, self.equals = earlier, any_name, equals
        self.depths, self.until = (
            self._table(depths),
            self._table([*itertools.accumulate(probabilities)][:-1]),
        )
        self.tokens_of, self.words = self._table(symbols), self._table([*sentence[0], *sentence[1]])
        self.lines = chains * self.deepest
        self.query = _LINE * self.lines
        self.first_word = self.query + 1
        self.answer = self.first_word + len(self.words)
        readout = sorted({*itertools.chain(*answered)})
        self.positions, self.readout = readout[-1] + 1, self._table(readout)
        self.asked = self._table([[position in each for position in readout] for each in answered])
        # Divided by how many readouts a text has on average, not those of this batch: a loss is a mean over samples.
        average = sum(share * len(each) for share, each in zip(probabilities, answered, strict=True))
        self.weight = len(readout) / average
        self.ends = self._table([each[0] + 1 for each in answered])
        before, repeated = len(sentence[0]), len(answered[0]) > 2
        self.sources = self._table([self._sources(depth, before, repeated) for depth in depths])
        self.held, self.trained = self._table(held_out), self._table(trained)
        self.digits = self._table([chains**place for place in range(chains)])
        # A held-out mapping that was drawn in training gives way to another one.
        self.instead = torch.full((chains**chains,), -1, device=device)
        self.instead[(self.held * self.digits).sum(-1)] = torch.arange(len(held_out), device=device) % len(
            trained
        )
        self.blocks = self.deepest + 1 + -(-self.lines // 4)
        hops = (f"hop_{hop}" for hop in range(1, self.deepest + 1))
        self.relations = ("previous", "pair_mate", "query", "same_symbol", *hops)

    def _table(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self.device)

    def _sources(self, depth: int, before: int, repeated: bool) -> list[int]:
        words, lines = [*range(self.first_word, self.answer)], [*range(_LINE * self.chains * depth)]
        text = [*lines, *words[:before], self.query, *words[before:], self.answer, self.answer + 1]
        text += [self.answer + 2 + token for token in lines] if repeated else []
        padding = self.answer + 2 + _LINE * self.lines
        # One more than the input: the last is only ever predicted.
        return text + [padding] * (self.positions + 1 - len(text))

    def training(self, address: Address) -> Batch:
        """Training texts."""
        drawn = self._draw(address, self.earlier, self.any_name)
        mapping = self._value(drawn, self._last_names(drawn))
        instead = self.instead[(mapping * self.digits).sum(-1)]
        mapping = torch.where((instead >= 0)[..., None], self.trained[instead], mapping)
        return self._batch(self._with_mapping(drawn, mapping))

    def questions(self, address: Address, depth: int | None = None, *, familiar: bool = False) -> Batch:
        """The paper's questions, of one depth or mixed as in training; what stands behind them becomes padding."""
        drawn = self._draw(address, False, False, depth)
        mappings = self.trained if familiar else self.held
        words = rng.bits(*address, self.blocks)
        which = rng.integers(words[..., 0], words[..., 1], len(mappings))
        batch = self._batch(self._with_mapping(drawn, mappings[which]))
        behind = torch.arange(self.positions, device=self.device) >= self.ends[drawn.depth][..., None]
        unasked, weights = behind[..., self.readout], batch.weights
        assert weights is not None

        def role(name: str) -> Tensor:
            return torch.where(behind, NO_RELATION if name == "chain" else 0, batch.roles[name])

        return replace(
            batch,
            inputs=torch.where(behind, 0, batch.inputs),
            targets=torch.where(unasked, 0, batch.targets),
            weights=torch.where(unasked, 0.0, weights),
            roles={name: partial(role, name) for name in _ROLES},
        )

    def _draw(self, address: Address, earlier: bool, any_name: bool, rounds: int | None = None) -> _Drawn:
        chains, deepest = self.chains, self.deepest
        blocks = [rng.bits(*address, block) for block in range(self.blocks)]
        places = torch.arange(chains, device=self.device)
        found, orders = [], []
        for number, words in enumerate(blocks[:deepest]):
            choices = chains * (number + 1)
            if earlier:
                tie = rng.integers(words[..., 0], words[..., 1], choices**chains)
                found.append(tie[..., None] // choices**places % choices)
            else:
                rank = rng.permutation_index(words[..., 0], words[..., 1], chains)
                found.append(rng.permutation_from_index(rank, chains) + chains * number)
            orders.append(rng.permutation_index(words[..., 2], words[..., 3], chains))
        words = blocks[deepest]
        depth = (rng.uniform(words[..., 2])[..., None] >= self.until).sum(-1)
        depth = depth if rounds is None else torch.full_like(depth, rounds)
        names = chains * self.depths[depth]
        among = names if any_name else torch.full_like(names, chains)
        asked = chains + names - 1 - rng.integers(words[..., 0], words[..., 1], among)
        # Equal words, which hardly ever come, are told apart by their place.
        ranks = torch.cat(blocks[deepest + 1 :], -1)[..., : self.lines]
        repeats = ranks.argsort(dim=-1, stable=True).argsort(-1)
        shuffled = rng.permutation_from_index(torch.stack(orders, -1), chains)
        return _Drawn(depth, torch.cat(found, -1), shuffled, asked, repeats)

    def _with_mapping(self, drawn: _Drawn, mapping: Int[Tensor, "member batch chain"]) -> _Drawn:
        """Other values where the chains of the last round's names end, so that the names have these."""
        line = self._last_names(drawn)
        for _ in range(self.deepest - 1):
            following = self._follow(drawn, line)
            line = torch.where(following >= self.chains, following, line)
        return drawn._replace(found=drawn.found.scatter(-1, line - self.chains, mapping))

    def _batch(self, drawn: _Drawn) -> Batch:
        tokens, source = self._tokens(drawn)
        inputs, source, following = tokens[..., :-1], source[..., :-1], tokens[..., 1:]
        asked = self.asked[drawn.depth]
        annotations = cache(lambda: self._annotations(drawn, source))
        several = enumerate(self.depths.tolist() if len(self.depths) > 1 else ())
        return Batch(
            inputs,
            torch.where(asked, following[..., self.readout], 0),
            weights=asked * self.weight,
            groups={f"D = {depth}": partial(drawn.depth.eq, number) for number, depth in several},
            roles={name: lambda name=name: annotations()[0][name] for name in _ROLES},
            relations={name: lambda name=name: annotations()[1][name] for name in self.relations},
        )

    def _tokens(self, drawn: _Drawn) -> tuple[Tensor, Tensor]:
        """Token numbers of whole texts, one more than the input has, and the source of each."""
        given = self._given(drawn)
        rounds = torch.arange(self.lines, device=self.device) // self.chains
        beyond = rounds >= self.depths[drawn.depth][..., None]
        again = (drawn.repeats + self.lines * beyond).argsort(-1) + self.chains
        query = self.tokens_of[drawn.asked][..., None]
        pieces = (
            self._written(drawn, given),
            query,
            self.words.expand(*query.shape[:2], -1),
            self.tokens_of[self._value(drawn, drawn.asked[..., None])],
            torch.full_like(query, _END_TOKEN),
            self._written(drawn, again),
            torch.full_like(query, _PADDING_TOKEN),
        )
        source = self.sources[drawn.depth]
        return torch.cat(pieces, -1).gather(-1, source), source

    def _written(self, drawn: _Drawn, names: Tensor) -> Tensor:
        """Lines that tell what names are, as tokens."""
        found = self.tokens_of[self._follow(drawn, names)]
        equals = torch.full_like(names, self.equals)
        return torch.stack((self.tokens_of[names], equals, found), -1).flatten(-2)

    # Symbols.

    def _follow(self, drawn: _Drawn, symbols: Tensor) -> Tensor:
        """The symbol on the right of each name's line; values stay as they are."""
        found = drawn.found.gather(-1, (symbols - self.chains).clamp(min=0))
        return torch.where(symbols >= self.chains, found, symbols)

    def _value(self, drawn: _Drawn, symbols: Tensor) -> Tensor:
        for _ in range(self.deepest):
            symbols = self._follow(drawn, symbols)
        return symbols

    def _last_names(self, drawn: _Drawn) -> Tensor:
        return (self.depths[drawn.depth] * self.chains)[..., None] + torch.arange(
            self.chains, device=self.device
        )

    def _given(self, drawn: _Drawn) -> Tensor:
        """The name on the left of each line."""
        rounds = torch.arange(1, self.deepest + 1, device=self.device)[:, None]
        return (rounds * self.chains + drawn.orders).flatten(-2)

    # What each token is.

    def _annotations(self, drawn: _Drawn, source: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        kind = self._kinds(source)
        position = torch.arange(source.shape[-1], device=self.device).expand(source.shape)
        query = (kind == _QUERY).int().argmax(-1, keepdim=True)
        behind = (kind == _WORD) & (position > query)
        symbol = self._symbols(drawn, source, kind, behind)
        depth, rounds = self.depths[drawn.depth][..., None], source // (_LINE * self.chains)
        in_lines = source < self.query
        chain = torch.where(symbol >= 0, self._value(drawn, symbol.clamp(min=0)), NO_RELATION)
        roles = {
            "kind": kind,
            "step": torch.where(in_lines, depth - rounds, 0),
            "round": torch.where(in_lines, rounds + 1, depth),
            "slot": torch.where(kind == _WORD, source - self.first_word + 1, 0),
            "chain": torch.where(kind == _EQUALS, chain.roll(1, -1), chain),  # the sign is its line's
        }
        mate = torch.where(kind == _GIVEN, position + 2, position - 2)
        relations = {
            "previous": position - 1,
            "pair_mate": torch.where((kind == _GIVEN) | (kind == _FOUND), mate, NO_RELATION),
            "query": torch.where(behind, query, NO_RELATION),
        }
        line_of = self._given(drawn).argsort(-1)
        for hop in range(1, self.deepest + 1):
            named = symbol >= self.chains
            line = line_of.gather(-1, (symbol - self.chains).clamp(min=0))
            if hop == 1:
                told = named & (kind != _GIVEN) & ~behind
                relations["same_symbol"] = torch.where(told, _LINE * line, NO_RELATION)
            relations[f"hop_{hop}"] = torch.where(named, _LINE * line + 2, NO_RELATION)
            symbol = torch.where(named, self._follow(drawn, symbol.clamp(min=0)), NO_RELATION)
        return roles, relations

    def _kinds(self, source: Tensor) -> Tensor:
        behind = self.answer + 1
        kinds = (
            (source < self.query, _GIVEN + source % _LINE),
            (source == self.query, _QUERY),
            ((source >= self.first_word) & (source < self.answer), _WORD),
            (source == self.answer, _ANSWER),
            (source == behind, _END),
            ((source > behind) & (source <= behind + _LINE * self.lines), _REPEATED),
        )
        kind = torch.full_like(source, _PADDING)
        for here, number in kinds:
            kind = torch.where(here, number, kind)
        return kind

    def _symbols(self, drawn: _Drawn, source: Tensor, kind: Tensor, behind: Tensor) -> Tensor:
        """The symbol that each position speaks of; `NO_RELATION` where there is none."""
        given = self._given(drawn)
        lines = torch.stack((given, torch.full_like(given, NO_RELATION), self._follow(drawn, given)), -1)
        of_lines = lines.flatten(-2).gather(-1, source.clamp(max=self.query - 1))
        asked = torch.where(behind | (kind == _QUERY), drawn.asked[..., None], NO_RELATION)
        return torch.where(source < self.query, of_lines, asked)


def answer_loss(
    predictions: Float[Tensor, "member batch readout output"], batch: Batch
) -> Float[Tensor, " member"]:
    """Mean cross-entropy in nats at each sample's first readout that counts."""
    targets = batch.targets.expand(predictions.shape[:-1])
    found = functional.cross_entropy(predictions.movedim(-1, 1), targets, reduction="none")
    first = counted(batch).int().argmax(-1)[..., None].expand(len(found), -1, 1)
    return found.gather(-1, first)[..., 0].mean(-1)
