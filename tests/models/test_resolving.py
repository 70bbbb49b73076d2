"""A head's mean weights by match: scores for the row's symbol, the key's place, and whether both symbols are one."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from hopscope.circuits.grammar import Grammar
from hopscope.models.patterns import History, MeanMap
from hopscope.models.resolving import mean_weights
from hopscope.tasks.batch import Batch

SAMPLES, LENGTH, SYMBOLS = 97, 7, 3
ROW = 5
"""The row that is looked at; a key after it is not seen."""


def drawn(seed):
    """Tokens, and which rows are looked at: one row of two thirds of the samples."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SYMBOLS, (SAMPLES, LENGTH), generator=generator)
    rows = torch.zeros(SAMPLES, LENGTH, dtype=torch.bool)
    rows[torch.rand(SAMPLES, generator=generator) < 2 / 3, ROW] = True
    return generator, tokens, rows


def attention(scores):
    """Patterns `[sample, query, key]` that have these scores `[sample, key]` at the row."""
    own = torch.full((SAMPLES, LENGTH, LENGTH), 1.0 / LENGTH)
    hidden = torch.arange(LENGTH) > ROW
    own[:, ROW] = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
    return own


@given(st.integers(0, 1000))
def test_scores_by_match_are_found_whatever_they_are(seed):
    generator, tokens, rows = drawn(seed)
    table = 2 * torch.randn(SYMBOLS, LENGTH, 2, generator=generator)
    symbol = tokens[:, ROW]
    same = (tokens == symbol[:, None]).long()
    own = attention(table[symbol[:, None], torch.arange(LENGTH), same])
    found = mean_weights("match", own, rows, tokens)
    assert torch.allclose(found[rows], own[rows], atol=1e-6)
    assert not found[~rows].any()
    assert not torch.allclose(mean_weights("position", own, rows, tokens)[rows], own[rows], atol=1e-2)


def test_what_hangs_on_both_symbols_otherwise_is_not_found():
    _, tokens, rows = drawn(5)
    own = attention(9.0 * (tokens == (tokens[:, ROW, None] + 1) % SYMBOLS))
    for by in ("position", "symbol", "match"):
        found = mean_weights(by, own, rows, tokens)
        found = found / found.sum(-1, keepdim=True).clamp(min=1e-9)
        assert float((found[rows] - own[rows]).abs().sum(-1).mean()) / 2.0 > 0.2, by


def test_few_rows_of_a_symbol_are_no_grounds_for_weights_by_match():
    """With a row or two for each symbol any pattern at all would follow the rule."""

    def offered(samples):
        tokens = torch.arange(LENGTH).repeat(samples, 1) + torch.arange(samples)[:, None]
        tokens = tokens % SYMBOLS
        roles = {"kind": torch.arange(LENGTH).expand(1, samples, -1)}
        batch = Batch(inputs=tokens[None], targets=tokens[None, :, :1], roles=roles, relations={})
        grammar = Grammar(batch, causal=True, words={})
        own = attention(torch.zeros(SAMPLES, LENGTH))[:1].expand(samples, -1, -1)
        return grammar.weighted(ROW, own)

    assert MeanMap(by="match") in offered(3 * 8) and History(keys={"kind": 2}, by="match") in offered(3 * 8)
    assert not [rule for rule in offered(3 * 8 - 1) if rule.by == "match"]
    assert [rule for rule in offered(3 * 8 - 1) if rule.by == "symbol"]
