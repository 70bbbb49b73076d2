"""Skills, what may be lost of them, and the exchanges, on sequences that can be followed by hand."""

import pytest
import torch

from hopscope.circuits.built_in_tasks import (
    PermutationCircuits,
    PermutationSkills,
)
from hopscope.circuits.circuit_task import NO_ANSWER, CircuitTask
from hopscope.circuits.criteria import FaithfulnessCriterion
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

VALUES = 5
ORDER = torch.tensor([[2, 4, 1, 5, 3], [2, 4, 1, 5, 4], [3, 1, 2, 5, 4]])
MAPPING = torch.tensor([[3, 1, 5, 2, 4], [3, 1, 5, 2, 4], [2, 3, 4, 5, 1]])
"""The second sequence repeats its second x: recall answers 2, where elimination would answer 5."""

accuracy = PermutationSkills().accuracy
EXCESS, MOST_LOST = PermutationSkills.excess, PermutationSkills.most_lost
SEARCHED = PermutationSkills.searched


def setting(ratio: float = 0.5) -> PermutationCircuits:
    return PermutationCircuits(PermutationTask(PermutationConfig(values=VALUES, repeat_ratio=ratio)))


def batch():
    return setting().task.batch(ORDER[None], MAPPING[None])


def answers(given: torch.Tensor, sharpness: float = 9.0) -> torch.Tensor:
    """Predictions that are sharply these answers, `[1, batch, readout, output]`."""
    return sharpness * torch.nn.functional.one_hot(given, VALUES + 1).float()[None]


def right() -> torch.Tensor:
    return batch().targets[0].clone()


def test_the_protocols_are_met():
    found = setting()
    assert isinstance(found, CircuitTask)
    assert isinstance(found.criterion(answers(right()), batch(), None), FaithfulnessCriterion)


def test_accuracies_are_of_one_row_of_each_sequence():
    given = right()
    assert (
        accuracy("elimination", answers(given), batch()),
        accuracy("recall", answers(given), batch()),
    ) == (1, 1)
    given[:, :4] = 0
    assert accuracy("elimination", answers(given), batch()) == 1.0
    given[0, 4] = 0
    assert (
        accuracy("elimination", answers(given), batch()),
        accuracy("recall", answers(given), batch()),
    ) == (0.5, 1)
    given[1, 4] = 5
    assert accuracy("recall", answers(given), batch()) == 0.0


def test_what_was_not_learned_does_not_count():
    given = right()
    given[1] = 0
    goal = setting().criterion(answers(given), batch(), None)
    assert goal.names == ("elimination",)
    assert goal.full == pytest.approx(goal.loss(answers(right()), batch()))
    assert goal.threshold == pytest.approx(goal.full + EXCESS)


def test_sequences_of_both_skills_count_alike():
    goal = setting().criterion(answers(right()), batch(), None)
    assert goal.names == ("elimination", "recall")
    once = goal.full
    given = right()
    given[1, 0] = 0  # one of five answers of the only sequence with a repeat
    assert goal.loss(answers(given), batch()) - once == pytest.approx(9.0 / 5 / 2, rel=1e-4)
    given = right()
    given[0, 0] = 0  # of one of the two sequences without
    assert goal.loss(answers(given), batch()) - once == pytest.approx(9.0 / 5 / 2 / 2, rel=1e-4)


def test_what_may_be_lost():
    goal = setting().criterion(answers(right()), batch(), None)
    again = goal.on(answers(right()), batch())
    assert again.searched == SEARCHED
    blurred = answers(right())
    assert goal.reached("rules", blurred, batch())
    assert goal.fault({"rules": blurred, "recomputed": blurred}, batch()) is None
    for share in (0.5, 0.9, 1.1, 1.9, 2.1):
        extra = _with_excess(goal, share * EXCESS)
        assert goal.reached("rules", extra, batch()) == (share < 1.0)
        assert goal.reached("recomputed", extra, batch()) == (share < 2.0)
        assert again.reached("rules", extra, batch(), SEARCHED) == (share < SEARCHED)
    lost = right()
    lost[0, 4] = 0
    wide = setting().criterion(answers(right()), batch(), 50.0)
    assert wide.worst(answers(lost), batch()) == 0.5 > MOST_LOST
    assert not wide.reached("rules", answers(lost), batch())
    fault = wide.fault({"rules": answers(right()), "recomputed": answers(lost)}, batch())
    assert "50.0 points" in fault and "when recomputed" in fault


def _with_excess(goal, nats: float) -> torch.Tensor:
    """The right answers, less sharply, so that the loss is larger by so much."""
    low, high = 0.0, 9.0
    for _ in range(40):
        middle = (low + high) / 2
        more = goal.loss(answers(right(), middle), batch()) - goal.full > nats
        low, high = (middle, high) if more else (low, middle)
    return answers(right(), high)


def test_a_threshold_that_the_model_does_not_meet():
    with pytest.raises(UserError, match="tau: expected at least the loss of the unablated model"):
        setting().criterion(answers(right()), batch(), 1e-9)


# Exchanges.


def model() -> Transformer:
    config = TransformerConfig(
        layers=1, heads=1, width=7, norm="post", length=9, input_size=VALUES + 1, output_size=VALUES + 1,
        readout=(0, 2, 4, 6, 8), init="encoder",
    )  # fmt: skip
    return Transformer.initial(config, torch.tensor([11]))


def test_exchanged_streams_are_those_of_other_tokens_and_codes():
    made = model()
    found = {each.name: each.stream[0] for each in setting().counterfactuals(made, batch())}
    tokens = batch().inputs[0]
    symbol, code = made.weights["embed.token.weight"][0], made.weights["embed.position.weight"][0]
    for sample in range(3):
        for place in range(9):
            kind, other = "xy"[place % 2], tokens[sample, place] % VALUES + 1
            for name in ("x", "y"):
                token = other if name == kind else tokens[sample, place]
                assert torch.allclose(found[name][sample, place], symbol[token] + code[place])
            for name in ("x", "y"):
                # Codes of the four earlier pairs go round, those of the last x stay.
                given = (place + 2) % 8 if name == kind and place < 8 else place
                moved = found[f"{name} position"][sample, place]
                assert torch.allclose(moved, symbol[tokens[sample, place]] + code[given])


def test_what_would_follow_from_an_exchange():
    found = {each.name: each for each in setting().counterfactuals(model(), batch())}
    none = NO_ANSWER
    for each in found.values():
        assert each.right[0, :, :4].eq(none).all()
        assert each.right[0, :, 4].tolist() == [5, 2, 5]
    assert found["x"].follows is found["y position"].follows is None
    assert found["y"].follows[0, :, 4].tolist() == [1, 3, 1]
    # The repeat copies the second x, whose code becomes the third's: y₃ is the answer that would follow.
    assert found["x position"].follows[0, :, 4].tolist() == [none, 3, none]


def test_sequences_to_search_on_and_fresh_ones():
    both, plain = setting(), setting(0.0)
    assert plain.batch(3, 17, "search").inputs.shape == (1, 17, 9)
    searched = both.batch(3, 17, "search")
    assert searched.inputs.shape == (1, 34, 9)
    assert searched.roles["repeat"][0].any(-1).tolist() == [False] * 17 + [True] * 17
    assert not torch.equal(searched.inputs, both.batch(4, 17, "search").inputs)
    checked = both.batch(3, 17, "check")
    assert checked.inputs.shape == searched.inputs.shape
    assert not torch.equal(checked.inputs, searched.inputs)
    fresh = both.batch(3, 13, "report")
    assert torch.equal(fresh.inputs, both.batch(4, 13, "report").inputs)
    assert fresh.inputs.shape == (1, 26, 9)
    split = both.task.split
    count = split.count("held_out")
    tables = {tuple(split.mapping(torch.tensor(number), "held_out").tolist()) for number in range(count)}
    for sequence in fresh.inputs[0, :13].tolist():
        told = dict(zip(sequence[:-1:2], sequence[1::2], strict=False))
        assert any(all(table[x - 1] == y for x, y in told.items()) for table in tables)
