"""Rules resolve to the patterns that their words say; reads that are the same have one name."""

import pytest
import torch

from hopscope.circuits.grammar import Grammar
from hopscope.models.patterns import (
    Identity,
    Learned,
    OverRole,
    OwnChain,
    Related,
    TwoTargets,
    Uniform,
    description_length,
    said,
)
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, PermutationConfig, RetrievalConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import FIRST, QUERY, SECOND, RetrievalTask

from .plain import weights

SAMPLES = 5


def grammar(task, causal=True, seed=3) -> Grammar:
    batch = task.sample(torch.tensor([seed]), "test", 0, SAMPLES)
    return Grammar(batch, causal=causal, words=task.role_values)


def chain(**changes) -> RetrievalTask:
    return RetrievalTask(RetrievalConfig.model_validate({"steps": 3, "chains": 2, **changes}))


def role(found: Grammar, kind: int, step: int) -> int:
    return found.roles.index({"kind": kind, "step": step})


TASKS = {
    "chain": chain(),
    "any order": chain(order="random"),
    "graph": ConditionalTask(ConditionalConfig(chains=2)),
    "permutation": PermutationTask(PermutationConfig(values=5, repeat_ratio=0.5)),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_every_rule_is_the_pattern_of_plain_loops(task, causal):
    found = grammar(TASKS[task], causal)
    for number in range(len(found.roles)):
        rules = found.rules(number)
        assert rules[0] == Uniform()
        if len(rules) > 2:  # the very first position sees itself only
            rules = [*rules, TwoTargets(first=rules[-1], second=Identity(), share=0.3)]
        for rule in rules:
            pattern = found.pattern(rule)
            for sample, row in found.rows[number].nonzero().tolist()[:7]:
                expected = weights(found.batch, causal, rule, sample, row)
                assert torch.allclose(pattern[sample, row], expected, atol=1e-6), rule


@pytest.mark.parametrize("task", TASKS)
def test_rows_have_one_role_each(task):
    found = grammar(TASKS[task])
    assert (found.rows.sum(0) == 1).all()


@pytest.mark.parametrize("task", TASKS)
def test_rules_are_distinct_and_ordered(task):
    found = grammar(TASKS[task])
    for number in range(len(found.roles)):
        rules = found.rules(number)
        patterns = [found.pattern(rule)[found.rows[number]] for rule in rules]
        for one in range(len(rules)):
            assert not any(torch.equal(patterns[one], patterns[other]) for other in range(one))
        lengths = [description_length(rule) for rule in rules]
        assert lengths == sorted(lengths)


def test_previous_and_pair_mate_are_one_read_on_second_tokens():
    found = grammar(chain())
    names = [said(rule) for rule in found.rules(role(found, SECOND, 2))]
    assert "previous" in names
    assert "pair_mate" not in names
    names = [said(rule) for rule in found.rules(role(found, FIRST, 2))]
    assert "previous" in names


def test_hops_have_their_names_and_targets():
    found = grammar(chain())
    query = role(found, QUERY, 0)
    targets = {said(rule): found.target(query, rule) for rule in found.rules(query)}
    assert targets["same_symbol"] == "first 1"
    assert [targets[f"hop_{hop}"] for hop in (1, 2, 3)] == ["second 1", "second 2", "second 3"]
    assert targets["previous"] == "any"
    assert found.words(found.roles[query]) == "query"
    own = {found.target(query, rule) for rule in found.rules(query) if isinstance(rule, OwnChain)}
    assert own == {"first 2", "first 3"}


def test_masked_targets_are_no_rules():
    found = grammar(chain())
    names = [said(rule) for rule in found.rules(role(found, FIRST, 2))]
    assert "hop_1" not in names
    free = grammar(chain(), causal=False)
    assert "pair_mate" in [said(rule) for rule in free.rules(role(free, FIRST, 2))]


def test_distance_and_two_targets():
    found = grammar(chain())
    query = role(found, QUERY, 0)
    one, other = Related(relation="hop_1"), Related(relation="hop_2")
    own = 0.7 * found.pattern(one) + 0.3 * found.pattern(other)
    assert found.distance(query, one, own) == pytest.approx(0.3)
    assert found.distance(query, other, own) == pytest.approx(0.7)
    two = found.two_targets(query, own, found.rules(query))
    assert two == TwoTargets(first=one, second=other, share=0.7)
    assert found.target(query, two) == "second 1 + second 2"
    assert said(two) == "hop_1 70% + hop_2"
    assert found.two_targets(query, found.pattern(one), [Uniform(), one]) is None


def test_rules_of_a_head_have_no_pattern_of_their_own():
    with pytest.raises(ValueError, match="expected one that roles and relations tell, found 'learned'"):
        grammar(chain()).pattern(Learned())


def test_uniform_over_a_role():
    found = grammar(chain())
    rule = OverRole(keys={"kind": SECOND, "step": 1})
    assert rule in found.rules(role(found, QUERY, 0))
    assert found.target(role(found, QUERY, 0), rule) == "all second 1"
    assert rule not in found.rules(role(found, SECOND, 3))
