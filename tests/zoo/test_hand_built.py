"""Designs become the heads that they describe; what witnesses make of them is tested with the witnesses."""

import pytest
import torch

from hopscope.models.resolving import visible_keys
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import SECOND, RetrievalTask
from hopscope.zoo.hand_built import MATE, OWN_CODE, OWN_SYMBOL, Copy, Design, HeadDesign, build

UNREAD = 200
MATES = HeadDesign((OWN_CODE, OWN_CODE), (Copy(MATE, OWN_SYMBOL),), "own symbol")
HOP = HeadDesign((OWN_SYMBOL, MATE), (Copy(2, OWN_SYMBOL),), "unpaired")
ANSWER = (((2, 1.0),),)
ASKED_NOTHING = (((OWN_SYMBOL, 1.0),),) * 2
"""Of two steps, where only patterns matter."""


def config(**changes) -> RetrievalConfig:
    return RetrievalConfig.model_validate({"steps": 1, "chains": 5, "position": "pair", **changes})


def run(task: RetrievalConfig, *layers, answers=ANSWER, mask="causal"):
    """Loss on held-out samples, patterns of every layer, and the batch."""
    made = RetrievalTask(task)
    batch, model = made.evaluation(31), build(task, Design(mask, layers, answers))
    with torch.no_grad():
        _, captured = model.capture(batch.inputs)
        loss = float(made.losses(model(batch.inputs), batch)["loss"])
    return loss, captured.patterns, batch


def to_second(shift: int, task: RetrievalConfig, patterns) -> torch.Tensor:
    """Mean attention `[pair]` of the second token of each pair to the second token of the pair `shift` places on."""
    pairs = torch.arange(task.chains * task.steps)
    weights = patterns[0, :, 0][:, 2 * pairs + 1, (2 * (pairs + shift) + 1).clamp(0, 2 * len(pairs) - 1)]
    return weights.mean(0)[max(0, -shift) : len(pairs) - max(0, shift)]


def test_a_hop_takes_two_layers():
    loss, _, _ = run(config(), (MATES,), (HOP,))
    assert loss < 0.001


@pytest.mark.parametrize("frequencies", ["harmonic", "geometric"])
@pytest.mark.parametrize("shift", [-3, -1, 0])
def test_rows_find_the_pair_at_a_shifted_place(shift, frequencies):
    task = config(steps=2, chains=3, frequencies=frequencies, frequency_base=50.0)
    reader = HeadDesign((OWN_CODE, OWN_CODE), (Copy(UNREAD, OWN_SYMBOL),), "unpaired", shift)
    _, patterns, _ = run(task, (MATES,), (reader,), answers=ASKED_NOTHING)
    assert to_second(shift, task, patterns[1]).min() > 0.9
    assert to_second(shift - 1, task, patterns[1]).max() < 0.1


def test_shifts_go_forward_without_a_mask():
    task = config(steps=2, chains=3)
    reader = HeadDesign((OWN_CODE, OWN_CODE), (Copy(UNREAD, OWN_SYMBOL),), None, 2)
    _, patterns, _ = run(task, (reader,), answers=ASKED_NOTHING, mask="none")
    # Nothing tells the two tokens of a pair apart.
    torch.testing.assert_close(to_second(2, task, patterns[0]), torch.full((4,), 0.5), atol=0.01, rtol=0)


def test_rows_of_one_kind_read_keys_of_their_kind():
    task = config(steps=2, chains=3)
    reader = HeadDesign((OWN_CODE, OWN_CODE), (Copy(UNREAD, OWN_SYMBOL),), "other kind", -1)
    _, patterns, batch = run(task, (MATES,), (reader,), answers=ASKED_NOTHING)
    kind = batch.roles["kind"][0]
    alike = kind[:, 2:12, None] == kind[:, None, :12]
    seconds = kind[:, 2:12] == SECOND
    mass = torch.where(alike, patterns[1][0, :, 0, 2:12, :12], 0.0).sum(-1)
    assert float(mass[seconds].mean()) > 0.99 and float(mass[~seconds].mean()) > 0.99


def test_heads_that_compare_nothing_or_are_not_there_attend_uniformly():
    diffuse = HeadDesign(None, (Copy(UNREAD, OWN_SYMBOL),))
    loss, patterns, batch = run(config(), (diffuse, MATES), (None, HOP))
    assert loss < 0.001
    visible = visible_keys(batch.inputs.shape[2], True, batch.inputs.device)
    expected = (visible / visible.sum(-1, keepdim=True)).expand_as(patterns[0][:, :, 0])
    torch.testing.assert_close(patterns[0][:, :, 0], expected)
    torch.testing.assert_close(patterns[1][:, :, 0], expected)


def test_rows_can_be_kept_to_themselves():
    alone = HeadDesign((OWN_CODE, OWN_CODE), (Copy(UNREAD, OWN_SYMBOL),), "other symbol")
    for layers in [(alone, MATES), (None, HOP)], [(None, MATES), (alone, HOP)]:
        loss, patterns, _ = run(config(), *layers)
        assert loss < 0.001
        pattern = next(each[:, :, 0] for each, heads in zip(patterns, layers, strict=True) if heads[0])
        assert float(pattern.diagonal(dim1=-2, dim2=-1).mean()) > 0.95


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_idle_layers_may_stand_anywhere(idle):
    layers = [(MATES,), (HOP,)]
    layers.insert(idle, (None,))
    loss, _, _ = run(config(), *layers)
    assert loss < 0.001


def test_copies_and_answers_have_weights():
    """Three halves of two thirds; and twice the half of a symbol that is known anyway, less that symbol."""
    head = HeadDesign((OWN_SYMBOL, MATE), (Copy(2, OWN_SYMBOL, 2 / 3), Copy(4, MATE, 0.5)), "unpaired")
    answer = ((2, 1.5), (4, 2.0), (OWN_SYMBOL, -1.0))
    loss, _, _ = run(config(), (MATES,), (head,), answers=(answer,))
    assert loss < 0.001
    wrong, _, _ = run(config(), (MATES,), (head,), answers=(answer[:2],))
    assert wrong == pytest.approx(1.0, abs=0.2)


def test_what_nobody_reads_is_not_squared():
    loud = HeadDesign(None, (Copy(UNREAD, OWN_SYMBOL),))
    read, unread = (
        build(config(), Design("causal", ((loud, MATES), (last, HOP)), ANSWER))
        for last in (HeadDesign((OWN_SYMBOL, UNREAD), (Copy(UNREAD + 2, OWN_SYMBOL),)), None)
    )
    assert read.config.mlp_size == unread.config.mlp_size + 2 * 4
