import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from tests.oracles.tasks import reference_sample

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import FIRST, KINDS, QUERY, SECOND, RetrievalTask

from .reading import asked_symbols, readings, symbols_of

SEEDS = torch.tensor([19, 23])


def task(**changes):
    return RetrievalTask(RetrievalConfig(**changes))


def samples_of(batch, symbol_dim, member=0):
    """Each sample as something to compare: all its symbols."""
    return [tuple(row) for row in batch.inputs[member, ..., :symbol_dim].flatten(1).tolist()]


orders = ["deepest-first", "shallowest-first", "random"]


@st.composite
def configs(draw):
    steps = draw(st.integers(1, 5))
    every = range(1, steps + 1)
    chosen = draw(st.sets(st.sampled_from(every), min_size=1))
    return RetrievalConfig(
        chains=draw(st.integers(1, 6)),
        steps=steps,
        symbol_dim=draw(st.sampled_from([2, 4, 6])),
        order=draw(st.one_of(st.sampled_from(orders), st.permutations(every).map(tuple))),
        targets=draw(st.sampled_from(["ic", "last", tuple(chosen)])),
        position=draw(st.sampled_from(["token", "pair"])),
        pool=draw(st.sampled_from([None, 7])),
    )


# What a sample is.


@settings(max_examples=40)
@given(config=configs(), seed=st.integers(0, 2**63 - 1))
def test_who_follows_equal_vectors_finds_every_target(config, seed):
    batch = RetrievalTask(config).sample(torch.tensor([seed]), "train", 5, 3)
    assert batch.inputs.shape == (1, 3, config.positions, 2 * config.symbol_dim)
    for inputs, targets in zip(batch.inputs[0], batch.targets[0], strict=True):
        (reading,) = readings(config, symbols_of(config, inputs))
        assert asked_symbols(config, reading) == targets.tolist()


def test_roles_and_relations_of_the_papers_sequence():
    """Paper, section 3.1: … x₂ x₃ … x₁ x₂ … x₀ x₁ … x₀, here for one chain alone."""
    batch = task(chains=1, steps=3).sample(SEEDS[:1], "train", 3, 1)
    none = NO_RELATION
    roles = {name: role[0, 0].tolist() for name, role in batch.roles.items()}
    relations = {name: relation[0, 0].tolist() for name, relation in batch.relations.items()}
    assert [KINDS[kind] for kind in roles["kind"]] == ["first", "second"] * 3 + ["query"]
    assert roles == {
        "kind": [FIRST, SECOND] * 3 + [QUERY],
        "step": [3, 3, 2, 2, 1, 1, 0],
        "chain": [0] * 7,
        "place": [0] * 7,
        "holds": [2, 3, 1, 2, 0, 1, 0],
    }
    assert relations == {
        "previous": [none, 0, 1, 2, 3, 4, 5],
        "pair_mate": [1, 0, 3, 2, 5, 4, none],
        "same_symbol": [3, none, 5, 0, 6, 2, 4],
        "hop_1": [1, none, 3, 1, 5, 3, 5],
        "hop_2": [none, none, 1, none, 3, 1, 3],
        "hop_3": [none, none, none, none, 1, none, 1],
    }


def test_relations_point_at_the_symbols_that_they_name():
    asked = task(chains=5, steps=3, order="random")
    batch = asked.sample(SEEDS, "train", 3, 11)
    symbols = batch.inputs[..., :4]
    for name, relation in batch.relations.items():
        has = relation >= 0
        there = torch.take_along_dim(symbols, relation.clamp(min=0)[..., None], 2)
        if name == "same_symbol":
            assert torch.equal(there[has], symbols[has])
        elif name.startswith("hop"):
            step = int(name[-1]) - 1
            right = batch.targets.unflatten(-1, (3, 4))[..., step, :]
            assert torch.equal(there[:, :, -5:], right)
            chain, level = batch.roles["chain"], batch.roles["step"] - (batch.roles["kind"] == FIRST).long()
            assert torch.equal(chain.gather(-1, relation.clamp(min=0))[has], chain[has])
            there_level = batch.roles["step"].gather(-1, relation.clamp(min=0))
            assert torch.equal(there_level[has], level[has] + step + 1)
            assert torch.equal(has, level + step + 1 <= 3)


def test_queries_and_pairs_are_shuffled_independently_and_evenly():
    chain = task(chains=3, steps=2).sample(SEEDS[:1], "train", 3, 4001).roles["chain"][0]
    blocks = {2: chain[:, 0:6:2], 1: chain[:, 6:12:2], 0: chain[:, 12:]}
    # The first two of a block tell its order: 0 1, 0 2, 1 0, 1 2, 2 0 or 2 1, numbered as 3·first + second.
    order = {step: 3 * block[:, 0] + block[:, 1] for step, block in blocks.items()}
    every = [1, 2, 3, 5, 6, 7]
    for step in order:
        counts = order[step].bincount(minlength=9)[every]
        assert counts.sum() == 4001 and stats.chisquare(counts.tolist()).pvalue > 1e-3
        together = (9 * order[step] + order[(step + 1) % 3]).bincount(minlength=81).reshape(9, 9)
        assert stats.chi2_contingency(together[every][:, every].numpy()).pvalue > 1e-3


def test_a_random_order_is_any_order_of_the_steps():
    steps = task(chains=2, steps=3, order="random").sample(SEEDS[:1], "train", 3, 3001).roles["step"]
    orders = [tuple(row) for row in steps[0, :, :12:4].tolist()]
    assert len(set(orders)) == 6
    assert stats.chisquare([orders.count(order) for order in set(orders)]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("order", "expected"),
    [("deepest-first", [3, 2, 1]), ("shallowest-first", [1, 2, 3]), ((2, 3, 1), [2, 3, 1])],
)
def test_a_chosen_order_is_the_order_of_time(order, expected):
    steps = task(chains=2, steps=3, order=order).sample(SEEDS, "train", 3, 5).roles["step"]
    assert (steps[..., :12:4] == torch.tensor(expected)).all() and (steps[..., 12:] == 0).all()


def test_both_tokens_of_a_pair_share_a_code_and_queries_have_their_own():
    inputs = task(chains=3, steps=2, position="pair").sample(SEEDS, "train", 3, 5).inputs
    codes = inputs[0, 0, :, 4:]
    assert torch.equal(inputs[..., 4:], codes.expand(2, 5, -1, -1))
    assert torch.equal(codes[:12:2], codes[1:12:2])
    assert len(codes.unique(dim=0)) == 6 + 3
    by_token = task(chains=3, steps=2).sample(SEEDS, "train", 3, 5).inputs[0, 0, :, 4:]
    assert len(by_token.unique(dim=0)) == 15


# Training data and held-out data.


@pytest.mark.parametrize("pool", [None, 13])
def test_held_out_samples_are_not_among_the_training_samples(pool):
    asked = task(chains=3, steps=1, pool=pool, split_seed=int(SEEDS[0]))
    held_out = samples_of(asked.evaluation(101), 4)
    assert len(set(held_out)) == 101
    trained = asked.sample(SEEDS, "train", range(7), 31, annotate=False)
    for member in range(2):
        assert not set(held_out) & set(samples_of(trained, 4, member))


def test_held_out_samples_are_those_of_the_split_seed():
    first, again = task(pool=7).evaluation(11), task(targets="last").evaluation(11, annotate=False)
    assert first.inputs.shape[0] == 1 and torch.equal(first.inputs, again.inputs) and not again.roles
    assert not torch.equal(first.inputs, task(split_seed=1).evaluation(11).inputs)
    assert torch.equal(first.take(slice(5)).inputs, task().evaluation(5).inputs)


def test_a_pool_is_seen_again_and_every_member_has_its_own():
    batch = task(chains=3, steps=1, pool=13).sample(SEEDS, "train", range(5), 31, annotate=False)
    first, second = (set(samples_of(batch, 4, member)) for member in range(2))
    # 155 draws miss one of 13 with a chance of about 5 in 100,000.
    assert len(first) == len(second) == 13 and not first & second
    fresh = task(chains=3, steps=1).sample(SEEDS, "train", range(5), 31, annotate=False)
    assert len(set(samples_of(fresh, 4))) == 155


def test_a_step_that_is_known_on_the_device_only():
    for changes in ({}, {"pool": 13}, {"schedule": ((5, "last"),)}):
        asked = task(chains=3, **changes)
        for step in (4, 5):
            known, unknown = (asked.sample(SEEDS, "train", s, 7) for s in (step, torch.tensor(step)))
            assert torch.equal(known.inputs, unknown.inputs) and torch.equal(known.targets, unknown.targets)
            if changes.get("schedule"):
                assert torch.equal(known.weights, unknown.weights)


# What is asked.


def weights_of(samples):
    """Weights of samples, the same for every member and readout."""
    return [[[weights] for weights in samples]]


def test_a_schedule_changes_what_counts_and_not_what_is_predicted():
    asked = task(chains=3, steps=3, symbol_dim=2, targets=(1,), schedule=((5, "last"), (7, (3, 1))))
    assert asked.names == ("step_1", "step_3") and asked.output_size == 4
    # However many count, they are 1 on average.
    expected = {1: [2, 2, 0, 0], 4: [2, 2, 0, 0], 5: [0, 0, 2, 2], 6: [0, 0, 2, 2], 7: [1] * 4, 99: [1] * 4}
    for step, weights in expected.items():
        for given_step in (step, torch.tensor(step), range(step, step + 1)):
            batch = asked.sample(SEEDS, "train", given_step, 2, annotate=False)
            assert batch.weights.tolist() == weights_of([weights] * len(batch.weights[0]))
    several = asked.sample(SEEDS, "train", range(4, 8), 2).weights
    assert several.tolist() == weights_of([expected[step] for step in (4, 5, 6, 7) for _ in range(2)])
    assert asked.evaluation(2).weights.tolist() == weights_of([[2, 2, 0, 0]])
    for stream in ("evaluate", "probe", "test"):
        assert asked.sample(SEEDS, stream, 6, 2).weights.tolist() == weights_of([[2, 2, 0, 0]])
    # Half of the prediction is off by one, the other half by three.
    batch = asked.sample(SEEDS, "train", 5, 2)
    losses = asked.losses(batch.targets + torch.tensor([1.0, 1.0, 3.0, 3.0]), batch)
    assert [float(losses[name][0]) for name in ("loss", "loss_step_1", "loss_step_3")] == pytest.approx(
        [9, 1, 9]
    )


def test_without_a_change_of_targets_all_count_alike():
    assert task().sample(SEEDS, "train", 3, 2).weights is None
    assert task(schedule=((3, "ic"),)).sample(SEEDS, "train", 3, 2).weights is None
    assert task(targets=(2, 1)).names == ("step_1", "step_2")


def test_shares_weigh_the_losses_and_not_the_predictions():
    asked = task(chains=3, steps=3, symbol_dim=2, shares=(0.0, 0.5, 1.0))
    assert asked.names == ("step_1", "step_2", "step_3")
    for batch in (asked.sample(SEEDS, "train", 5, 3), asked.evaluation(3)):
        assert all(weights == [0, 0, 1, 1, 2, 2] for weights in batch.weights[0, :, 0].tolist())


@pytest.mark.parametrize(
    ("emphasis", "shares"),
    [("subsets", (0.25, 0.5, 1.0)), ("one", (0.125, 0.25, 0.625)), ("one", (0.0, 0.3, 0.7))],
)
def test_each_sample_asks_for_steps_of_its_own(emphasis, shares):
    """As often as the shares say; the loss is the same on average, and samples of two members differ."""
    asked = task(chains=3, steps=3, symbol_dim=2, shares=shares, emphasis=emphasis)
    weights = asked.sample(SEEDS, "train", 5, 4001, annotate=False).weights[:, :, 0]
    assert weights.shape == (2, 4001, 6) and torch.equal(weights[..., 0::2], weights[..., 1::2])
    drawn = weights[..., ::2] * (sum(shares) / 3)
    assert ((drawn == 0) | ((drawn - 1).abs() < 1e-6)).all()
    assert not torch.equal(drawn[0], drawn[1])
    for found, share in zip(drawn.mean((0, 1)).tolist(), shares, strict=True):
        assert found == pytest.approx(share, abs=4 * (share * (1 - share) / 8002) ** 0.5 + 1e-6)
    if emphasis == "one":
        assert (drawn.sum(-1) - 1).abs().max() < 1e-6
    # What is held out is weighed by the shares themselves.
    assert asked.evaluation(2).weights[0, 0, 0, ::2].tolist() == pytest.approx(
        [3 * share / sum(shares) for share in shares]
    )


def test_shares_that_are_not_given_are_not_on_record():
    assert {"shares", "emphasis"}.isdisjoint(RetrievalConfig().model_dump())
    assert RetrievalConfig(shares=(0.5, 0.5, 0.0), emphasis="one").model_dump()["emphasis"] == "one"


def test_floors_are_what_such_predictions_cost():
    config = RetrievalConfig(chains=5, steps=2)
    asked = RetrievalTask(config)
    batch = asked.evaluation(2003)
    zero = asked.losses(torch.zeros_like(batch.targets), batch)
    mean = asked.losses(batch.targets.mean(2, keepdim=True).expand_as(batch.targets), batch)
    assert config.floors_by_name == {
        f"step_{k}": {"zero": 1.0, "position": pytest.approx(0.8)} for k in (1, 2)
    }
    for step, floors in config.floors_by_name.items():
        assert float(zero[f"loss_{step}"]) == pytest.approx(floors["zero"], abs=0.02)
        assert float(mean[f"loss_{step}"]) == pytest.approx(floors["position"], abs=0.02)
    floors = config.floors()
    assert floors["zero"] == config.zero_floor and floors["position"] == pytest.approx(config.plateau)
    assert floors["loss_step_2"]["position"] == pytest.approx(0.8)
    assert floors["accuracy_step_1"] == {"guess": 0.2}
    assert float(zero["loss"]) == pytest.approx(config.zero_floor, abs=0.02)
    assert float(mean["loss"]) == pytest.approx(config.plateau, abs=0.02)


def test_accuracies_are_named_after_the_steps():
    asked = task(chains=5, targets=(1, 3))
    batch = asked.evaluation(2003)
    # x₁ right, x₃ a guess.
    noise = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(31))
    found = asked.accuracies(torch.cat((batch.targets[..., :4], noise[..., 4:]), -1), batch)
    assert set(found) == {"accuracy_step_1", "accuracy_step_3"}
    assert float(found["accuracy_step_1"]) == 1.0
    guess = asked.config.guess
    assert abs(float(found["accuracy_step_3"]) - guess) < 4 * math.sqrt(guess * (1 - guess) / (5 * 2003))


# Configurations.


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"chains": 0}, "chains"),
        ({"chains": 65}, "chains"),
        ({"steps": 0}, "steps"),
        ({"symbol_dim": 3}, "symbol_dim: expected an even number, .*found 3"),
        ({"order": (1, 2)}, r"order: expected a permutation of 1 to 3, found \[1, 2\]"),
        ({"order": (1, 2, 2)}, "order: expected a permutation of 1 to 3"),
        ({"targets": ()}, "targets: expected 'ic', 'last' or different steps from 1 to 3"),
        ({"targets": (0,)}, r"from 1 to 3, found \(0,\)"),
        ({"targets": (2, 2)}, r"found \(2, 2\)"),
        ({"targets": (4,)}, r"found \(4,\)"),
        ({"schedule": ((5, (4,)),)}, r"targets: .*found \(4,\)"),
        ({"schedule": ((0, "ic"),)}, r"schedule: expected ascending training steps from 1, found \[0\]"),
        ({"schedule": ((5, "ic"), (5, "last"))}, r"found \[5, 5\]"),
        ({"schedule": ((7, "ic"), (5, "last"))}, r"found \[7, 5\]"),
        ({"shares": (0.5, 1.0)}, r"shares: expected a number for each step that is asked for \(3\)"),
        ({"shares": (0.0, 0.0, 0.0)}, "not all 0"),
        ({"shares": (0.5, 0.5, 1.5)}, "shares"),
        ({"emphasis": "one"}, r"shares: .*found \[\]"),
        ({"shares": (0.5, 0.5, 1.0), "emphasis": "one"}, "whose sum is 1"),
        ({"shares": (0.5, 0.5, 1.0), "schedule": ((5, "last"),)}, "schedule: expected none beside shares"),
        ({"pool": 0}, "pool"),
        # 4 chains of 4 symbols of 4 numbers take 16 indices each, of 2³².
        (
            {"pool": 2**28 + 1},
            f"pool: expected at most {2**28} samples of 64 numbers each, found {2**28 + 1}",
        ),
        ({"pool": 2**31, "chains": 1, "steps": 1, "symbol_dim": 2}, f"at most {2**31 - 1} samples"),
        ({"frequency_base": 1.0}, "frequency_base"),
        ({"nodes": ()}, "nodes"),
    ],
)
def test_what_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        RetrievalConfig(**changes)


def test_the_largest_pool_can_be_drawn_from():
    asked = task(pool=2**28)
    batch = asked.sample(SEEDS, "train", 3, 2)
    expected = reference_sample(asked.config, 19, "train", 3, 1)
    assert expected["roles"]["chain"] == batch.roles["chain"][0, 1].tolist()


def test_the_papers_sizes():
    """Paper, section 6: N(2D + 1) vectors of 2K dimensions, targets of D·N = D·K dimensions."""
    asked = task(steps=5)
    assert (asked.positions, asked.input_size, asked.output_size) == (44, 8, 20)
    assert asked.readout == (40, 41, 42, 43) and asked.config.plateau == 0.75
    assert task(targets="last").output_size == 4
