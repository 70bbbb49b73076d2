"""Patterns of rules equal plain loops over rows, see what the mask lets them see, and are shared out in full."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopscope.circuits.grammar import Grammar, Rows
from hopscope.circuits.rules import (
    History,
    Identity,
    Learned,
    OverRole,
    OwnChain,
    Related,
    TwoTargets,
    Uniform,
    description_length,
    patterns,
    said,
)
from hopscope.errors import UserError
from hopscope.tasks import Node, Permutation, Retrieval, draw

SAMPLES = 5
GRAPH = (Node(name="x"), Node(name="y", parents=("x",)), Node(name="z", parents=("x", "y")))
TASKS = {
    "chain": Retrieval(steps=3, chains=2),
    "any order": Retrieval(steps=2, chains=3, order="random"),
    "graph": Retrieval(nodes=GRAPH, chains=2),
    "permutation": Permutation(values=5, repeat_ratio=0.5),
}


def grammar(task, causal=True, samples=SAMPLES):
    seeds = torch.tensor([3])
    rows = Rows.drawn(task, 3, "cpu")
    return Grammar(task, rows, draw(task, seeds, "circuit", 0, samples), causal=causal)


def has(batch, roles, sample, position):
    return all(int(batch.roles[name][0, sample, position]) == value for name, value in roles.items())


def plain(batch, causal, rule, sample, row):
    """A row of a rule's pattern, by loops over keys; the row itself where the rule leads nowhere."""
    length = batch.inputs.shape[2]
    seen, chain = range(row + 1) if causal else range(length), batch.roles.get("chain")
    found = torch.zeros(length)
    if isinstance(rule, TwoTargets):
        parts = [plain(batch, causal, each, sample, row) for each in (rule.first, rule.second)]
        return rule.share * parts[0] + (1.0 - rule.share) * parts[1]
    keys = {
        Uniform: lambda key: True,
        Identity: lambda key: key == row,
        Related: lambda key: int(batch.relations[rule.relation][0, sample, row]) == key,
        OverRole: lambda key: has(batch, rule.keys, sample, key),
        OwnChain: lambda key: (
            has(batch, rule.keys, sample, key) and chain[0, sample, key] == chain[0, sample, row]
        ),
    }[type(rule)]
    chosen = [key for key in seen if keys(key)] or [row]
    found[chosen] = 1.0 / len(chosen)
    return found


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_every_rule_is_the_pattern_of_plain_loops(task, causal):
    found = grammar(TASKS[task], causal)
    assert (found.rows.sum(0) == 1).all()
    for role in range(len(found.roles)):
        rules = [rule for rule, _ in found.candidates(role)]
        if len(rules) > 2 and isinstance(rules[-1], OverRole | Related):
            rules.append(TwoTargets(first=rules[-1], second=Identity(), share=0.3))
        for rule in rules:
            pattern = patterns(rule, found.batch, causal)[0][0]
            for sample, row in found.rows[role].nonzero().tolist()[:7]:
                expected = plain(found.batch, causal, rule, sample, row)
                assert torch.allclose(pattern[sample, row], expected, atol=1e-6), rule


def test_mean_weights_of_alike_rows_are_those_of_plain_loops():
    found = grammar(TASKS["permutation"], samples=41)
    inputs, (samples, length) = found.batch.inputs[0], found.batch.inputs.shape[1:]
    generator = torch.Generator().manual_seed(1)
    hidden, values = torch.ones(length, length).triu(1).bool(), int(inputs.max()) + 1
    own = (
        torch.randn(samples, length, length, generator=generator).masked_fill(hidden, -torch.inf).softmax(-1)
    )
    # Scores of a row by its symbol and whether the key holds the same one, which "match" finds again.
    of_match = torch.randn(values, length, length, 2, generator=generator)
    alike = (inputs[:, :, None] == inputs[:, None]).long()
    keys = torch.arange(length)
    scores = of_match[inputs[:, :, None], keys[:, None], keys, alike]
    matched = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    for rows in found.rows:
        by_symbol = patterns(History(by="symbol"), found.batch, True, own[None], rows[None])[0][0]
        for sample, row in rows.nonzero().tolist()[:5]:
            weights = torch.zeros(length)
            for key in range(row + 1):
                same = [
                    at for at in range(samples) if rows[at, row] and inputs[at, key] == inputs[sample, key]
                ]
                weights[key] = own[same, row, key].mean()
            torch.testing.assert_close(by_symbol[sample, row], weights / weights.sum(), atol=1e-5, rtol=1e-4)
        by_match = patterns(History(by="match"), found.batch, True, matched[None], rows[None])[0][0]
        torch.testing.assert_close(by_match[rows], matched[rows], atol=1e-4, rtol=1e-3)


def test_what_is_on_no_chain_is_on_none_together():
    found = grammar(TASKS["graph"], causal=False)
    chain, words = found.batch.roles["chain"][0], [found.words(roles) for roles in found.roles]
    own = OwnChain(keys=found.roles[words.index("key1 z")])
    pattern, exists = (each[0] for each in patterns(own, found.batch, False))
    assert (chain < 0).any() and not exists[chain < 0].any() and exists[chain >= 0].all()
    assert ((pattern[chain >= 0] > 0).sum(-1) == 1).all()
    assert own in [rule for rule, _ in found.candidates(words.index("query x"))]


@given(st.integers(0, 2**31), st.sampled_from(["position", "symbol", "match"]), st.booleans())
def test_mean_weights_are_shared_out_over_what_is_seen(seed, by, causal):
    found = grammar(TASKS["permutation"], causal, 41)
    shape = found.batch.inputs.shape[1], *[found.batch.inputs.shape[2]] * 2
    scores = 3.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(shape[1:]).triu(1).bool() if causal else torch.zeros(shape[1:]).bool()
    own = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    rows = found.rows[seed % len(found.roles)]
    for rule in (History(by=by), History(keys={"kind": 0}, by=by)):
        pattern, exists = patterns(rule, found.batch, causal, own[None], rows[None])
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(exists, dtype=torch.float32))
        assert (pattern >= 0).all() and not pattern[0, :, hidden].any()
        chosen = pattern[0][rows & exists[0]]
        if rule.keys:
            outside = (found.batch.roles["kind"][0] != 0)[:, None].expand(shape)[rows & exists[0]]
            assert not chosen[outside].any()
    torch.testing.assert_close(patterns(Learned(), found.batch, causal, own[None], rows[None])[0][0], own)


@pytest.mark.parametrize("task", TASKS)
def test_each_read_has_one_name_the_simplest(task):
    found = grammar(TASKS[task])
    for role in range(len(found.roles)):
        candidates = found.candidates(role)
        assert [type(rule) for rule, _ in candidates[:1]] == [Uniform]
        for one, (_, pattern) in enumerate(candidates):
            assert not any(torch.equal(pattern, other) for _, other in candidates[:one])
    hops = [
        Related(relation=name)
        for name in ("previous", "pair_mate", "same_symbol", "hop_1", "hop_2", "hop_10", "own")
    ]
    order = [Uniform(), Identity(), *hops[:3], OverRole(keys={}), *hops[3:], OwnChain(keys={})]
    order += [
        TwoTargets(first=hops[0], second=hops[1], share=0.5),
        History(keys={"kind": 0}),
        History(),
        History(by="match"),
        Learned(),
    ]
    lengths = [description_length(rule) for rule in order]
    assert sorted(lengths) == lengths and len(set(lengths)) == len(lengths)


def words(task):
    found = grammar(task)
    return {
        found.words(roles): {said(rule): found.target(role, rule) for rule, _ in found.candidates(role)}
        for role, roles in enumerate(found.roles)
    }


def test_words_of_rows_and_targets():
    rows = words(TASKS["chain"])
    assert set(rows) == {"query", *(f"{kind} {step}" for kind in ("first", "second") for step in (1, 2, 3))}
    query = rows["query"]
    assert [query[f"hop_{hop}"] for hop in (1, 2, 3)] == ["second 1", "second 2", "second 3"]
    assert (query["same_symbol"], query["previous"]) == ("first 1", "any")
    assert "previous" in rows["second 2"] and "pair_mate" not in rows["second 2"]
    assert "hop_1" not in rows["first 2"]  # it stands later
    assert {"x 5", "x 5 repeat", "y 1"} <= set(words(TASKS["permutation"]))


def test_the_two_targets_that_a_head_mixes():
    found = grammar(TASKS["chain"])
    role = [found.words(roles) for roles in found.roles].index("query")
    (one, first), (two, second) = (
        {said(each[0]): each for each in found.candidates(role)}[f"hop_{n}"] for n in (1, 2)
    )
    mixed = found.two_targets(role, 0.7 * first + 0.3 * second)
    assert mixed == TwoTargets(first=one, second=two, share=0.7)
    assert (found.target(role, mixed), said(mixed)) == ("second 1 + second 2", "hop_1 70% + hop_2")
    assert found.two_targets(role, first) is None


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (OverRole(keys={"colour": 1}), r"role: expected one of \['chain', .*found 'colour'"),
        (Related(relation="next"), r"relation: expected one of \['hop_1', .*found 'next'"),
    ],
)
def test_what_a_batch_lacks_is_one_clear_line(rule, complaint):
    with pytest.raises(UserError, match=complaint):
        patterns(rule, grammar(TASKS["chain"]).batch, True)
