"""Patched passes, every finder on cases whose answer is known by hand, and scores that were worked out by hand."""

from functools import cache, partial

import pytest
import torch

from hopscope_next.circuits.finders import (
    FINDERS,
    Edge,
    Found,
    Patching,
    Receiver,
    attention,
    attributed,
    eap,
    eap_ig,
    edges_of,
    greedy,
    ranked,
    reader,
    smallest_faithful,
)
from hopscope_next.circuits.permutation_plants import permutation_plants
from hopscope_next.circuits.plants import Plant, chain_plants
from hopscope_next.circuits.scores import SHARES, area, auroc, benchmark, best_match, score, true_circuits
from hopscope_next.models.config import Model
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Permutation, Retrieval, held_out, losses

LAYERS, HEADS, SAMPLES = 3, 2, 5
CASES = [(norm, mlp) for norm in ("none", "pre", "post") for mlp in (0.0, 1.5)]
TRUE = {"a0.h1->a1.h0<k>", "a1.h0->logits"}


@cache
def patching(norm: str = "none", mlp: float = 0.0, causal: bool = True) -> Patching:
    """A model that nobody trained."""
    task = Retrieval(steps=1, chains=3, symbol_dim=4, position="pair")
    shape = Model(
        layers=LAYERS,
        heads=HEADS,
        width=14,
        head_dim=7,
        mlp_ratio=mlp,
        norm=norm,
        causal=causal,
        init="encoder",
    )
    model = Transformer.initial(shape.for_task(task.shape()), 3)
    return Patching(model, task, held_out(task, SAMPLES))


@cache
def plant(name: str = "doubling 2") -> Plant:
    """`doubling 2` (D = 1): heads 0.1 and 1.0 are true, the key of the second is found by what the first has read."""
    return next(each for each in chain_plants() if each.name == name)


@cache
def bench(name: str = "doubling 2") -> Patching:
    return Patching(plant(name).model, plant(name).task, held_out(plant(name).task, 16))


def found_by(finder, name: str = "doubling 2") -> Found:
    return finder(plant(name).model, plant(name).task, bench(name).batch)


def names(edges) -> set[str]:
    return set(map(str, edges))


# Edges and patching.


def test_the_edge_set_is_counted_by_hand():
    edges = edges_of(patching().model.config)
    # Layer 1 has 2 heads of 3 inputs that read 2 heads, layer 2 likewise 4 heads; the logits read 6.
    assert len(edges) == len(set(edges)) == 2 * 3 * 2 + 2 * 3 * 4 + 6
    assert (str(edges[0]), str(edges[-1])) == ("a0.h0->a1.h0<q>", "a2.h1->logits")
    assert edges[-1].heads == {(2, 1)} and edges[0].heads == {(0, 0), (1, 0)}


@pytest.mark.parametrize(("norm", "mlp"), CASES)
def test_with_every_edge_it_is_the_model(norm, mlp):
    found = patching(norm, mlp, norm != "pre")
    with torch.no_grad():
        expected = found.model(found.batch.inputs[0])
        torch.testing.assert_close(found.predictions(found.edges), expected, atol=1e-5, rtol=0)


def stream_seen(found: Patching, source: tuple[int, int], upto: int) -> torch.Tensor:
    """The stream before a layer if one head's output alone is that of the other samples."""
    inputs = found.batch.inputs[0]
    own, other = (found.model.cache(each) for each in (inputs, inputs.roll(1, 0)))
    stream = own["blocks.0.hook_resid_pre"]
    for number in range(upto):
        z = own[f"blocks.{number}.attn.hook_z"].clone()
        if number == source[0]:
            z[:, :, source[1]] = other[f"blocks.{number}.attn.hook_z"][:, :, source[1]]
        stream = found.model.layers[number].after_heads(stream, z.transpose(1, 2))
    return stream


@torch.no_grad()
@pytest.mark.parametrize(("norm", "mlp"), CASES)
@pytest.mark.parametrize(("part", "map_name"), [("q", "query"), ("k", "key"), ("v", "value")])
def test_one_ablated_edge_changes_one_input_of_one_head(norm, mlp, part, map_name):
    found, source, (layer, head) = patching(norm, mlp), (0, 1), (2, 0)
    there = found.model.layers[layer]
    given = getattr(there.attention, map_name)(there.read(stream_seen(found, source, layer)))[..., :7]

    def replaced(site: torch.Tensor) -> torch.Tensor:
        site[:, :, head] = given
        return site

    single = found.batch.changed(lambda tensor: tensor[0])
    expected = found.model.intervene(single, {f"blocks.{layer}.attn.hook_{part}": replaced})
    ablated = found.predictions(set(found.edges) - {Edge(source, Receiver(layer, head, part))})
    torch.testing.assert_close(ablated, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(ablated, found.predictions(found.edges), atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("norm", "mlp"), CASES)
def test_an_ablated_edge_to_the_logits_changes_the_last_stream_alone(norm, mlp):
    found = patching(norm, mlp)
    expected = found.model.read_out(stream_seen(found, (1, 0), LAYERS))[:, found.model.rows]
    ablated = found.predictions(set(found.edges) - {Edge((1, 0), Receiver(LAYERS))})
    torch.testing.assert_close(ablated, expected, atol=1e-5, rtol=0)


# Finders.


@torch.no_grad()
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_attribution_equals_finite_differences(norm):
    found = patching(norm, 1.5)
    targets, step, start = found.batch.targets[0].double(), 1e-3, found.start
    slopes = attributed(found, [1.0])
    for edge in found.edges[::3]:
        ends = []
        for sign in (1.0, -1.0):
            amounts = {each: torch.tensor(sign * step * (each == edge)) for each in found.edges}
            ends.append(
                (found.nudged(start, amounts).double() * (targets - targets.roll(1, 0))).sum(-1).mean()
            )
        assert slopes[edge] == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=0.02, abs=5e-4)


def test_attribution_is_exact_where_the_metric_is_linear_and_is_averaged_over_points():
    found = patching("none")
    targets, clean = found.batch.targets[0], attributed(found, [1.0])
    answers = targets - targets.roll(1, 0)
    edge = Edge((2, 1), Receiver(LAYERS))
    with torch.no_grad():
        metrics = [
            float((found.predictions(kept) * answers).sum(-1).mean())
            for kept in (found.edges, set(found.edges) - {edge})
        ]
    assert clean[edge] == pytest.approx(metrics[0] - metrics[1], rel=1e-3)
    both, half = attributed(found, [0.5, 1.0]), attributed(found, [0.5])
    assert all(both[each] == pytest.approx((half[each] + clean[each]) / 2, abs=1e-5) for each in found.edges)
    assert half != clean


@pytest.mark.parametrize("finder", [eap, eap_ig])
def test_attribution_sees_values_but_not_saturated_keys(finder):
    """Attention of the plants is so sharp that its derivative by keys is zero, though the key is needed."""
    scores = {str(edge): value for edge, value in found_by(finder).scores.items()}
    assert max(scores, key=scores.get) == "a1.h0->logits"
    assert abs(scores["a0.h1->a1.h0<k>"]) < 1e-3


@pytest.mark.parametrize("finder", [greedy, reader])
def test_searches_find_the_planted_edges_and_nothing_else(finder):
    assert names(found_by(finder).circuit) == TRUE


def test_greedy_search_scores_by_the_rise_when_an_edge_was_tried():
    found, whole = found_by(greedy), bench()
    # The edge of a decoy is tried first of all, and changes nothing.
    edge = Edge((1, 0), Receiver(2))
    assert found.scores[edge] == pytest.approx(whole.loss(set(whole.edges) - {edge}) - whole.full, rel=1e-3)


def test_a_circuit_of_a_ranking_is_the_shortest_that_keeps_the_loss():
    ranking = {edge: 2.0 * (str(edge) in TRUE) + (edge.source == (0, 1)) for edge in bench().edges}
    assert names(smallest_faithful(bench(), ranking).circuit) == TRUE
    backwards = smallest_faithful(bench(), {edge: -value for edge, value in ranking.items()})
    assert len(backwards.circuit) == len(ranking)


def test_a_threshold_on_attention_counts_sharp_heads_true_or_not():
    found = found_by(attention)
    sharp = {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert found.circuit == {edge for edge in bench().edges if edge.heads <= sharp}
    idle = found_by(attention, "doubling 3")  # 0.2 and 2.1 are true, 1.1 looks everywhere
    assert idle.scores[Edge((1, 1), Receiver(3))] < 0.5 < idle.scores[Edge((2, 1), Receiver(3))]


# Scores.


@pytest.mark.parametrize("name", ["doubling 2", "doubling 9", "walk 1", "copies 3", "leak 5"])
def test_the_truth_has_perfect_scores_and_nothing_has_none(name):
    whole = bench(name)
    truths = true_circuits(plant(name), whole)
    perfect = score(Found({edge: float(edge in truths[0]) for edge in whole.edges}, truths[0]), whole, truths)
    assert [perfect[each] for each in ("precision", "recall", "auroc", "head_precision", "head_recall")] == [
        1.0
    ] * 5
    assert perfect["faithfulness"] == pytest.approx(
        1.0, abs=0.09
    )  # interchange harms where a route is missing
    nothing = score(Found({}, frozenset()), whole, truths)
    assert (nothing["precision"], nothing["recall"], nothing["faithfulness"]) == (None, 0.0, 0.0)
    assert nothing["cpr"] < perfect["cpr"] and perfect["cmd"] < nothing["cmd"]


def test_the_truth_of_a_walk_is_its_plan():
    """The query hops by what it has read before, keys are found by their mates, and the logits want every symbol."""
    walk = plant("walk 1")
    mates, *hops = (
        f"a{read.layer}.h{read.head}" for read in sorted(walk.circuits[0]) if read.rows != "second 2"
    )
    one, two = hops
    expected = {
        f"{mates}->{one}<k>",
        f"{mates}->{two}<k>",
        f"{one}->{two}<q>",
        f"{one}->logits",
        f"{two}->logits",
    }
    assert [names(edges) for edges in true_circuits(walk, bench("walk 1"))] == [expected]


def test_curves_by_hand():
    """Two of five edges are true: at a share of 0.2 there is one, at 0.5 two, at 1 all."""
    whole, truth = bench("doubling 1"), true_circuits(plant("doubling 1"), bench("doubling 1"))
    key, last = sorted(truth[0])
    scores = {key: 0.5, last: 0.7}
    found = score(Found(scores, truth[0]), whole, truth)
    one = score(Found({}, frozenset([last])), whole, truth)["faithfulness"]
    assert found["cpr"] == pytest.approx(0.1 * one / 2 + 0.3 * (one + 1.0) / 2 + 0.5, abs=1e-6)
    rest = 0.1 * (1 + abs(1 - one)) / 2 + 0.3 * abs(1 - one) / 2
    assert found["cmd"] == pytest.approx(0.099 + rest, abs=1e-6)
    signed = score(Found({edge: -value for edge, value in scores.items()}, truth[0]), whole, truth)
    assert signed["cmd"] == found["cmd"] and signed["cpr"] < found["cpr"] and signed["auroc"] == 0.0


def test_measures_by_hand():
    assert auroc([0.9, 0.4], [0.5, 0.1, 0.4]) == pytest.approx((3 + 0 + 1 + 0.5) / 6)
    assert auroc([], [1.0]) is None and auroc([1.0], []) is None
    assert area([1.0] * len(SHARES)) == pytest.approx(0.999)
    assert area(SHARES) == pytest.approx((1.0 - 0.001**2) / 2.0)
    one, other = frozenset("abx"), frozenset("aby")
    match = partial(best_match, truths=[one, other])
    assert match(one) == match(one | other) == (1.0, 1.0)
    assert match(frozenset("abz")) == (2 / 3, 2 / 3)
    assert match(frozenset()) == (None, 0.0)


def test_ties_stand_in_an_order_that_is_always_the_same():
    edges = bench().edges
    assert ranked(dict.fromkeys(edges, 0.0)) == ranked(dict.fromkeys(reversed(edges), 0.0)) != edges
    values = {edge: float(number - 9) for number, edge in enumerate(edges)}
    assert ranked(values)[0] == edges[-1] and ranked(values, signed=False)[-1] == edges[9]


def test_the_benchmark_has_a_row_for_each_plant_and_finder():
    lookup = next(each for each in permutation_plants(4) if each.name.startswith("recall"))
    assert isinstance(lookup.task, Permutation)
    mine = {**FINDERS, "mine": lambda model, task, batch: Found({}, frozenset(edges_of(model.config)))}
    rows = benchmark([plant(), lookup], mine)
    assert [(row["plant"], row["finder"]) for row in rows] == [
        (each.name, finder) for each in (plant(), lookup) for finder in mine
    ]
    by_name = {(row["plant"], row["finder"]): row for row in rows}
    exact = by_name[lookup.name, "greedy"], by_name[lookup.name, "eap"], by_name["doubling 2", "greedy"]
    assert all((row["precision"], row["recall"]) == (1.0, 1.0) for row in exact)
    assert by_name["doubling 2", "mine"]["precision"] == 2 / 16
    assert by_name["doubling 2", "mine"]["faithfulness"] == pytest.approx(1.0)


def test_the_loss_is_that_of_the_task():
    found = bench()
    with torch.no_grad():
        predictions = found.model(found.batch.inputs[0])
    assert found.full == pytest.approx(
        float(losses(found.task, predictions[None], found.batch)["loss"]), abs=1e-6
    )
