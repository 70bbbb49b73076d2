"""Every finder on cases whose answer is known by hand."""

from functools import cache

import pytest
import torch
from tests.zoo.suites import suite

from hopscope.circuits.built_in_tasks import task_of
from hopscope.finders import Budget, Edge, Patching, ScoredEdge, smallest_faithful
from hopscope.finders.attention import attention_mass
from hopscope.finders.attribution import answer_difference, attributed, eap, eap_ig
from hopscope.finders.edges import Receiver
from hopscope.finders.greedy import acdc
from hopscope.finders.reader import read

DECOYED = "doubling, D = 1: N = 3, K = 4; 2 layers of 2"
"""Heads 0.1 and 1.0 are true: keys of the second are found by what the first has read."""

TRUE = {"a0.h1->a1.h0<k>", "a1.h0->logits"}


@cache
def plant(beginning: str):
    (found,) = [each for each in suite() if each.name.startswith(beginning)]
    return found


def found_by(finder, beginning: str = DECOYED, samples: int = 16) -> dict[str, ScoredEdge]:
    model = plant(beginning)
    return {each.edge: each for each in finder(model.model, task_of(model.task), Budget(samples))}


def inside(found: dict[str, ScoredEdge]) -> set[str]:
    return {name for name, each in found.items() if each.in_circuit}


@pytest.mark.parametrize("finder", [acdc, read])
def test_searches_find_the_planted_edges_and_nothing_else(finder):
    assert inside(found_by(finder)) == TRUE


def test_greedy_search_scores_by_the_rise_when_an_edge_was_tried():
    found = found_by(acdc)
    patching = Patching.drawn(plant(DECOYED).model, task_of(plant(DECOYED).task), Budget(16))
    # The edge from the last head is tried first of all, on the whole model.
    edge = Edge((1, 0), Receiver(2))
    rise = patching.loss(set(patching.edges) - {edge}) - patching.full
    tried_before = [name for name in found if name == "a1.h1->logits"]
    assert tried_before and found[str(edge)].score == pytest.approx(rise, rel=1e-3)
    assert abs(found["a1.h1->logits"].score) < 1e-3


def test_attribution_is_exact_where_the_metric_is_linear():
    """An edge to the logits of a model without norms and MLPs: ablating it changes the metric by its first order."""
    from .test_edges import patching

    found = patching("none")
    scores = attributed(found, [1.0])
    answers = answer_difference(found)
    whole = (found.predictions(found.edges) * answers).sum(-1).mean()
    for edge in (each for each in found.edges if each.receiver.part is None):
        ablated = (found.predictions(set(found.edges) - {edge}) * answers).sum(-1).mean()
        assert scores[edge] == pytest.approx(float(whole - ablated), rel=1e-3, abs=1e-6)


def test_integrated_gradients_are_the_mean_of_the_points():
    from .test_edges import patching

    found = patching("pre", 1.5)
    points = [attributed(found, [share]) for share in (0.5, 1.0)]
    both = attributed(found, [0.5, 1.0])
    for edge in found.edges:
        assert both[edge] == pytest.approx((points[0][edge] + points[1][edge]) / 2, abs=1e-6)
    assert points[0] != points[1]


@pytest.mark.parametrize("finder", [eap, eap_ig])
def test_attribution_sees_values_but_not_saturated_keys(finder):
    """Attention of the plants is so sharp that its derivative by keys is zero, though the key is needed."""
    scores = {name: each.score for name, each in found_by(finder).items()}
    assert max(scores, key=scores.get) == "a1.h0->logits"
    assert abs(scores["a0.h1->a1.h0<k>"]) < 1e-3


def test_a_circuit_of_a_ranking_is_the_shortest_that_keeps_the_loss():
    model = plant(DECOYED)
    patching = Patching.drawn(model.model, task_of(model.task), Budget(16))
    ranking = {edge: 2.0 * (str(edge) in TRUE) + (edge.source == (0, 1)) for edge in patching.edges}
    assert inside({each.edge: each for each in smallest_faithful(patching, ranking)}) == TRUE
    backwards = {edge: -score for edge, score in ranking.items()}
    assert len(inside({each.edge: each for each in smallest_faithful(patching, backwards)})) == len(ranking)


def test_attention_mass_counts_sharp_heads_true_or_not():
    found = found_by(attention_mass)
    sharp = {"a0.h0", "a0.h1", "a1.h0", "a1.h1"}  # decoys attend as sharply as true heads
    assert inside(found) == {name for name in found if name.partition("->")[0] in sharp}
    idle = plant("doubling, D = 1: N = 2, K = 4; 3 layers of 3")  # 0.2 and 2.1 are true, 1.1 looks everywhere
    masses = found_by(attention_mass, idle.name)
    assert masses["a1.h1->logits"].score < 0.5 < masses["a2.h1->logits"].score
    assert not masses["a1.h1->logits"].in_circuit


def test_answers_of_tokens_are_compared_as_one_hot_vectors():
    from hopscope.zoo.permutations import planted_permutations

    first = next(planted_permutations())
    patching = Patching.drawn(first.model, task_of(first.task), Budget(3))
    found = answer_difference(patching)
    targets = patching.batch.targets[0]
    assert found[1, 2, targets[1, 2]] - found[1, 2, targets[0, 2]] == 2.0 * (targets[1, 2] != targets[0, 2])
    assert torch.equal(found.sum(-1), torch.zeros_like(found.sum(-1)))
