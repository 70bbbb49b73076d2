"""Patched passes, every finder on cases whose answer is known by hand, and scores that were worked out by hand."""

from functools import cache, partial

import pytest
import torch

from hopscope.circuits.finders import (
    FINDERS,
    SHARES,
    Edge,
    Found,
    Patching,
    attention,
    auroc,
    benchmark,
    best_match,
    eap,
    eap_ig,
    edges_of,
    greedy,
    ranked,
    reader,
    score,
    smallest_faithful,
    true_circuits,
)
from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.circuits.plants import Plant, chain_plants
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Retrieval, held_out, losses

LAYERS, HEADS, SAMPLES = 3, 2, 5
CASES = [(norm, mlp) for norm in ("none", "pre", "post") for mlp in (0.0, 1.5)]
TRUE = {"a0.h1->a1.h0<k>", "a1.h0->logits"}


@cache
def patching(norm: str = "none", mlp: float = 0.0, causal: bool = True) -> Patching:
    """A model that nobody trained."""
    task, shape = (
        Retrieval(steps=1, chains=3, symbol_dim=4, position="pair"),
        {"norm": norm, "causal": causal},
    )
    model = Model(layers=LAYERS, heads=HEADS, width=14, head_dim=7, mlp_ratio=mlp, init="encoder", **shape)
    return Patching(Transformer.initial(model.for_task(task.shape()), 3), task, held_out(task, SAMPLES))


@cache
def plants() -> dict[str, Plant]:
    return {plant.name: plant for plant in (*chain_plants(), *permutation_plants(4))}


def plant(name: str = "doubling 2") -> Plant:
    """`doubling 2` (D = 1): heads 0.1 and 1.0 are true, the key of the second is found by what the first has read."""
    return plants()[name]


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
        computed = found.predictions(
            found.edges, found.start.clone()
        )  # a start of one's own: nothing is reused
    torch.testing.assert_close(computed, expected, atol=1e-5, rtol=0)
    loss = losses(found.task, expected[None], found.batch)["loss"]
    assert found.full == pytest.approx(float(loss), abs=1e-6)


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
def test_one_ablated_edge_changes_one_input_of_one_receiver(norm, mlp):
    found, source, (layer, head) = patching(norm, mlp), (0, 1), (2, 0)
    there, single = found.model.layers[layer], found.batch.changed(lambda tensor: tensor[0])
    for part, map_name in (("q", "query"), ("k", "key"), ("v", "value")):
        given = getattr(there.attention, map_name)(there.read(stream_seen(found, source, layer)))[..., :7]

        def replaced(site: torch.Tensor, given: torch.Tensor = given) -> torch.Tensor:
            site[:, :, head] = given
            return site

        expected = found.model.intervene(single, {f"blocks.{layer}.attn.hook_{part}": replaced})
        ablated = found.predictions(set(found.edges) - {Edge(*source, layer, head, part)})
        torch.testing.assert_close(ablated, expected, atol=1e-5, rtol=0)
        assert not torch.allclose(ablated, found.predictions(found.edges), atol=1e-4)
    expected = found.model.read_out(stream_seen(found, (1, 0), LAYERS))[:, found.model.rows]
    ablated = found.predictions(set(found.edges) - {Edge(1, 0, LAYERS)})
    torch.testing.assert_close(ablated, expected, atol=1e-5, rtol=0)


# Finders.


def effects(found: Patching, *points: float) -> dict[Edge, float]:
    return eap(found.model, found.task, found.batch, points).scores


@torch.no_grad()
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_attribution_equals_finite_differences(norm):
    found, step = patching(norm, 1.5), 1e-3
    targets, slopes = found.batch.targets[0].double(), effects(found, 1.0)
    for place in range(0, len(found.edges), 5):
        ends = []
        for sign in (1.0, -1.0):
            amounts = torch.zeros(len(found.edges))
            amounts[place] = sign * step
            predicted = found.predictions(found.edges, found.start, amounts).double()
            ends.append(float((predicted * (targets - targets.roll(1, 0))).sum(-1).mean()))
        expected = (ends[0] - ends[1]) / (2 * step)
        assert slopes[found.edges[place]] == pytest.approx(expected, rel=0.02, abs=5e-4)


def test_attribution_is_exact_where_the_metric_is_linear_and_is_averaged_over_points():
    found, edge = patching("none"), Edge(2, 1, LAYERS)
    targets, clean = found.batch.targets[0], effects(found, 1.0)
    with torch.no_grad():
        change = found.predictions(found.edges) - found.predictions(set(found.edges) - {edge})
    expected = float((change * (targets - targets.roll(1, 0))).sum(-1).mean())
    assert clean[edge] == pytest.approx(expected, rel=1e-3)
    both, half = effects(found, 0.5, 1.0), effects(found, 0.5)
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
    whole, edge = bench(), Edge(1, 0, 2)  # the edge of a decoy is tried first of all, and changes nothing
    rise = whole.loss(set(whole.edges) - {edge}) - whole.full
    assert found_by(greedy).scores[edge] == pytest.approx(rise, rel=1e-3)


def test_a_circuit_of_a_ranking_is_the_shortest_that_keeps_the_loss():
    ranking = {edge: 2.0 * (str(edge) in TRUE) + (edge[:2] == (0, 1)) for edge in bench().edges}
    assert names(smallest_faithful(bench(), ranking).circuit) == TRUE
    backwards = smallest_faithful(bench(), {edge: -value for edge, value in ranking.items()})
    assert len(backwards.circuit) == len(ranking)


def test_a_threshold_on_attention_counts_sharp_heads_true_or_not():
    sharp = {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert found_by(attention).circuit == {edge for edge in bench().edges if edge.heads <= sharp}
    idle = found_by(attention, "doubling 3")  # 0.2 and 2.1 are true, 1.1 looks everywhere
    assert idle.scores[Edge(1, 1, 3)] < 0.5 < idle.scores[Edge(2, 1, 3)]
    short = Retrieval(steps=1, chains=1, symbol_dim=4)  # three positions, fewer than a row must see to count
    model = Transformer.initial(Model(layers=2, heads=1, width=8).for_task(short.shape()), 3)
    assert len(attention(model, short, held_out(short, SAMPLES)).scores) == len(edges_of(model.config))


# Scores.


@pytest.mark.parametrize("name", ["doubling 2", "walk 1", "copies 8", "leak 1"])
def test_the_truth_has_perfect_scores_and_nothing_has_none(name):
    whole = bench(name)
    truths = true_circuits(plant(name), whole)
    perfect = score(Found({edge: float(edge in truths[0]) for edge in whole.edges}, truths[0]), whole, truths)
    assert {perfect[each] for each in ("precision", "recall", "auroc")} == {1.0}
    assert perfect["faithfulness"] == pytest.approx(
        1.0, abs=0.09
    )  # interchange harms where a route is missing
    nothing = score(Found({}, frozenset()), whole, truths)
    assert (nothing["precision"], nothing["recall"], nothing["faithfulness"]) == (None, 0.0, 0.0)
    assert nothing["cpr"] < perfect["cpr"] and perfect["cmd"] < nothing["cmd"]


def test_the_truth_of_a_walk_is_its_plan():
    """The query hops by what it has read before, keys are found by their mates, and the logits want every symbol."""
    reads = sorted(read for read in plant("walk 1").circuits[0] if read.rows != "second 2")
    mates, one, two = (f"a{read.layer}.h{read.head}" for read in reads)
    expected = {f"{mates}->{hop}<k>" for hop in (one, two)} | {f"{hop}->logits" for hop in (one, two)}
    truths = true_circuits(plant("walk 1"), bench("walk 1"))
    assert [names(edges) for edges in truths] == [expected | {f"{one}->{two}<q>"}]


def test_curves_by_hand():
    """Two of five edges are true: at a share of 0.2 there is one, at 0.5 two, at 1 all."""
    whole, truth = bench("doubling 1"), true_circuits(plant("doubling 1"), bench("doubling 1"))
    key, last = sorted(truth[0])
    scores = {key: 0.5, last: 0.7}
    found = score(Found(scores, truth[0]), whole, truth)
    one = score(Found({}, frozenset([last])), whole, truth)["faithfulness"]
    assert found["cpr"] == pytest.approx(0.1 * one / 2 + 0.3 * (one + 1.0) / 2 + 0.5, abs=1e-6)
    rest = 0.1 * (1 + abs(1 - one)) / 2 + 0.3 * abs(1 - one) / 2
    assert found["cmd"] == pytest.approx(SHARES[6] - SHARES[0] + rest, abs=1e-6)
    signed = score(Found({edge: -value for edge, value in scores.items()}, truth[0]), whole, truth)
    assert signed["cmd"] == found["cmd"] and signed["cpr"] < found["cpr"] and signed["auroc"] == 0.0


def test_measures_by_hand():
    assert auroc([0.9, 0.4], [0.5, 0.1, 0.4]) == pytest.approx((3 + 0 + 1 + 0.5) / 6)
    assert auroc([], [1.0]) is None and auroc([1.0], []) is None
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
    lookup = plant("recall by head 0, V = 4")
    mine = {**FINDERS, "mine": lambda model, task, batch: Found({}, frozenset(edges_of(model.config)))}
    rows = {(row["plant"], row["finder"]): row for row in benchmark([plant(), lookup], mine)}
    assert list(rows) == [(each.name, finder) for each in (plant(), lookup) for finder in mine]
    for exact in ((lookup.name, "greedy"), (lookup.name, "eap"), ("doubling 2", "greedy")):
        assert (rows[exact]["precision"], rows[exact]["recall"]) == (1.0, 1.0)
    assert rows["doubling 2", "mine"]["precision"] == 2 / 16
    assert rows["doubling 2", "mine"]["faithfulness"] == pytest.approx(1.0)
