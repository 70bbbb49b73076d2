"""What a circuit of a user's task must keep: learned parts, their floors, groups, and what may be lost of them."""

import math
from dataclasses import replace

import pytest
import torch

import hopscope as hs
from hopscope.circuits.any_task import PartsCriterion, guessed, lowest_floors
from hopscope.errors import UserError

from .any_tasks import Lookup, Sum, on_device

SAMPLES = 61


class Letters(hs.Task):
    """Class ids: repeat the tokens of three places; the last counts half, and the floors are those given."""

    given: dict[str, float | dict[str, float]] = {}

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=7, positions=5, readout=(1, 2, 4), output_size=7)

    def sample(self, draws):
        tokens = draws.integers("tokens", 7, (5,))
        return hs.Batch(
            inputs=tokens, targets=tokens[..., [1, 2, 4]], weights=torch.tensor([[[1.0, 1.0, 0.5]]])
        )

    def floors(self):
        return self.given


class Named(Letters):
    """Parts of its own."""

    def parts(self, predictions, batch):
        loss = super().parts(predictions, batch)["loss"]
        right = (predictions.argmax(-1) == batch.targets).float().mean((1, 2))
        return {"loss": loss, "half": loss / 2, "right": right, "size": predictions.square().mean((1, 2, 3))}


def drawn(task, samples=SAMPLES, seed=3):
    return on_device(task).sample(torch.tensor([seed]), "probe", 0, samples)


def almost(batch, errors):
    """Predictions that miss the targets of a `Sum` by so much, in the first dimension and in the second."""
    return batch.targets + torch.tensor(errors)


# Floors.


def test_without_floors_a_guess_among_all_classes_is_one():
    batch = drawn(Letters())
    assert torch.equal(guessed(on_device(Letters()), batch), torch.zeros(1, SAMPLES, 3, 7))
    assert lowest_floors(on_device(Letters()), batch) == {
        "loss": pytest.approx(math.log(7) * 2.5 / 3, rel=1e-5)
    }


def test_without_floors_the_variance_of_vectors_is_one():
    task, batch = Sum(scale=0.1), drawn(Sum(scale=0.1))
    first, second = batch.targets[0, :, 0].unbind(-1)
    found = lowest_floors(on_device(task), batch)
    assert found["first"] == pytest.approx(float(first.var(correction=0)), rel=1e-5)
    assert found["second"] == pytest.approx(float(second.var(correction=0)), rel=1e-5)
    third = first[torch.arange(SAMPLES) % 3 == 0]
    # The guess is of all samples, also where it is measured on some.
    assert found["first@third"] == pytest.approx(float((third - first.mean()).square().mean()), rel=1e-5)


def test_the_lowest_floor_of_the_loss_above_zero():
    given = {"guess": 1.7, "position": 0.9, "best": 0.0, "accuracy": {"guess": 0.1}}
    assert lowest_floors(on_device(Letters(given=given)), drawn(Letters())) == {"loss": 0.9}
    nested = {"guess": 1.7, "loss": {"position": 0.8}}
    assert lowest_floors(on_device(Letters(given=nested)), drawn(Letters())) == {"loss": 0.8}
    none = lowest_floors(on_device(Letters(given={"best": 0.0, "other": -1.0})), drawn(Letters()))
    assert none["loss"] == pytest.approx(math.log(7) * 2.5 / 3, rel=1e-5)


def test_a_part_takes_the_floors_of_the_loss_where_it_has_none():
    batch = drawn(Named())
    # What is higher for the right answers, or has nothing to do with them, is no loss.
    assert list(lowest_floors(on_device(Named()), batch)) == ["half"]
    assert lowest_floors(on_device(Named(given={"guess": 1.3})), batch) == {"half": 1.3}
    given = {"guess": 1.3, "half": {"guess": 0.65, "less": 0.6}}
    assert lowest_floors(on_device(Named(given=given)), batch) == {"half": 0.6}


# What was learned.


def test_a_part_is_learned_below_a_quarter_of_its_floor():
    task = Lookup()
    batch = drawn(task)
    for share, learned in ((0.24, ("loss",)), (0.26, ())):
        off = batch.targets + math.sqrt(share * 0.8)
        goal = PartsCriterion.of_task(on_device(task), off, batch, None)
        assert goal.names == learned
    assert PartsCriterion.of_task(on_device(task), batch.targets * math.nan, batch, None).names == ()


def test_tau_is_a_twentieth_of_the_floor_or_more_than_the_model_s_own_loss():
    task = Lookup()
    batch = drawn(task)
    for own, expected in ((0.01, 0.04), (0.1, 0.15)):
        goal = PartsCriterion.of_task(on_device(task), batch.targets + math.sqrt(own), batch, None)
        assert (goal.full, goal.threshold) == (
            pytest.approx(own, rel=1e-4),
            pytest.approx(expected, rel=1e-4),
        )
        assert goal.full_worst == pytest.approx(own / 0.8, rel=1e-4)
    off = batch.targets + 0.3
    assert PartsCriterion.of_task(on_device(task), off, batch, 0.1).threshold == 0.1
    with pytest.raises(UserError, match=r"tau: expected at least the loss of the unablated model, 0\.09"):
        PartsCriterion.of_task(on_device(task), off, batch, 0.08)
    assert goal.least_effect == pytest.approx(0.02 * 0.8)


def test_parts_of_different_size_count_alike():
    task = Sum(scale=0.1)
    batch = drawn(task)
    goal = PartsCriterion.of_task(on_device(task), almost(batch, [0.0, 0.0]), batch, None)
    assert goal.names == ("first", "second", "first@third", "second@third")
    floors = list(goal.floors.values())
    assert floors[1] < 0.02 < 0.5 < floors[0]
    one, other = math.sqrt(0.1 * floors[0]), math.sqrt(0.1 * floors[1])
    alone = [goal.loss(almost(batch, errors), batch) for errors in ([one, 0.0], [0.0, other])]
    assert alone[0] == pytest.approx(alone[1], rel=0.3)
    assert alone[0] == pytest.approx(goal.scale * (0.1 + 0.1 * floors[0] / floors[2]) / 4, rel=1e-3)
    assert goal.worst(almost(batch, [0.0, other]), batch) == pytest.approx(
        max(0.1, 0.1 * floors[1] / floors[3]), rel=1e-3
    )


def test_what_is_lost_is_half_way_to_its_floor():
    task = Sum()
    batch = drawn(task)
    exact = almost(batch, [0.0, 0.0])
    goal = PartsCriterion.of_task(on_device(task), exact, batch, None)
    floors = goal.floors
    near, far = math.sqrt(0.45 * floors["second"]), math.sqrt(0.55 * floors["second"])
    assert "second" not in goal.lost(almost(batch, [0.0, near]), exact, batch)
    lost = goal.lost(almost(batch, [0.0, far]), exact, batch)
    assert "second" in lost
    assert not {"first", "first@third"} & set(lost)
    # Against a pass that is no better itself, less is lost.
    assert "second" not in goal.lost(almost(batch, [0.0, far]), almost(batch, [0.0, near]), batch)


def test_the_same_goal_on_other_samples_leaves_the_same_room():
    task = Lookup()
    batch, other = drawn(task), drawn(task, seed=5)
    goal = PartsCriterion.of_task(on_device(task), batch.targets + 0.1, batch, None)
    moved = goal.on(other.targets + 0.2, other)
    assert moved.full == pytest.approx(0.04, rel=1e-4)
    assert moved.threshold - moved.full == pytest.approx(goal.threshold - goal.full, rel=1e-4)
    assert moved.names == goal.names


def test_what_a_pass_may_lose_in_each_mode():
    task = Lookup()
    batch = drawn(task)
    goal = PartsCriterion.of_task(on_device(task), batch.targets, batch, None)

    def off(error):
        return batch.targets + math.sqrt(error)

    assert goal.reached("rules", off(0.039), batch)
    assert not goal.reached("rules", off(0.041), batch)
    assert not goal.reached("rules", off(0.039), batch, share=0.9)
    assert goal.reached("recomputed", off(0.24 * 0.8), batch)
    assert not goal.reached("recomputed", off(0.26 * 0.8), batch)
    assert goal.fault({"rules": off(0.039), "recomputed": off(0.49 * 0.8)}, batch) is None
    assert goal.fault({"rules": off(0.041), "recomputed": off(0.0)}, batch) == (
        "loss 0.041 on fresh samples under the rules, τ is 0.04"
    )
    assert goal.fault({"rules": off(0.0), "recomputed": off(0.51 * 0.8)}, batch) == (
        "a learned part has 51% of its floor on fresh samples when recomputed"
    )
    # What is no number is under no bound.
    assert goal.fault({"rules": off(math.nan), "recomputed": off(0.0)}, batch) is not None
    assert goal.fault({"rules": off(0.0), "recomputed": off(math.nan)}, batch) is not None


# Groups.


def test_groups_that_hold_every_sample_stand_in_place_of_the_whole():
    task = on_device(Lookup())
    batch = drawn(Lookup())
    some = torch.arange(SAMPLES)[None] % 5 == 0
    for groups, names in (
        ({"some": some}, ["loss", "loss@some"]),
        ({"some": some, "others": ~some}, ["loss@some", "loss@others"]),
        ({"some": some, "none": torch.zeros_like(some)}, ["loss", "loss@some"]),
    ):
        assert list(lowest_floors(task, replace(batch, groups=groups))) == names


def test_a_group_that_was_not_learned_is_not_asked_for():
    task = on_device(Lookup())
    some = torch.arange(SAMPLES)[None] % 5 == 0
    batch = replace(drawn(Lookup()), groups={"some": some, "others": ~some})
    predictions = torch.where(some[..., None, None], torch.zeros_like(batch.targets), batch.targets)
    goal = PartsCriterion.of_task(task, predictions, batch, None)
    assert goal.names == ("loss@others",)
    assert goal.loss(predictions, batch) == 0.0


def test_a_group_without_samples_is_left_out():
    task = on_device(Lookup())
    some = torch.arange(SAMPLES)[None] % 5 == 0
    whole = replace(drawn(Lookup()), groups={"some": some, "others": ~some})
    goal = PartsCriterion.of_task(task, whole.targets, whole, None)
    part = whole.take(~some[0])
    assert goal.names == ("loss@some", "loss@others")
    assert goal.on(part.targets + 0.1, part).full == pytest.approx(0.01, rel=1e-4)
    assert goal.worst(part.targets + 0.1, part) == pytest.approx(0.01 / 0.8, rel=1e-4)
    assert goal.lost(part.targets * 0.0, part.targets, part) == ["loss@others"]
