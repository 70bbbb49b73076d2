"""The study of shared information: what two positions share in each variant, and layers that an order saves."""

import math

import pytest
import torch

from hopscope.runs import Evidence
from hopscope.studies.curriculum.wide import at_depth
from hopscope.studies.sharing.study import (
    QUICK_ORDER,
    USUAL_ORDER,
    VARIANTS,
    Options,
    Sharing,
    configurations,
    lacks_of_unrelated,
    layers_saved,
)
from hopscope.tasks import check_task, draw

CHAINS, STEPS, SIZE = 3, 2, 4
SEEDS = torch.tensor([3, 5])


def drawn(**fields):
    task = Sharing(chains=CHAINS, steps=STEPS, symbol_dim=SIZE, **fields)
    return task, draw(task, SEEDS, "train", 7, 11)


@pytest.mark.parametrize("fields", [
    *({name.removeprefix("task."): value for name, value in each.items()} for each in VARIANTS.values()),
    {"order": (2, 1)}, {"targets": "last", "second": "turned"},
])  # fmt: skip
def test_every_variant_is_a_task(fields):
    task, batch = drawn(**fields)
    check_task(task)
    assert task.parts(batch.targets, batch)["loss"].eq(0.0).all()
    assert task.shape().input_size == SIZE + task.shape().position_size


@pytest.mark.parametrize(
    "codes, of_pairs, fixed",
    [("pair", True, True), ("token", False, True), ("one-hot", False, True), ("drawn for pairs", True, False),
     ("drawn for tokens", False, False)],
)  # fmt: skip
def test_what_the_tokens_of_a_pair_share(codes, of_pairs, fixed):
    _, batch = drawn(codes=codes)
    found = batch.inputs[..., SIZE:]
    pairs = found[:, :, : 2 * CHAINS * STEPS].unflatten(2, (-1, 2))
    assert torch.equal(pairs[..., 0, :], pairs[..., 1, :]) == of_pairs
    assert torch.equal(found[0, 0], found[1, 7]) == fixed
    if codes == "one-hot":
        assert torch.equal(found[0, 0] @ found[0, 0].T, torch.eye(found.shape[2]))


def occurrences(task, batch):
    """Symbols of the first step as second tokens, and as first tokens of the next pair; answers to it, by query."""
    kinds = task.words["roles"]["kind"]
    symbols, kind, step, chain = (
        batch.inputs[..., :SIZE],
        *(batch.roles[name] for name in ("kind", "step", "chain")),
    )

    def of(word, number, which):
        here = (kind == kinds.index(word)) & (step == number) & (chain == which)
        return symbols[here].reshape(2, 11, SIZE)

    second, first = (
        torch.stack([of(*place, n) for n in range(CHAINS)], 2) for place in (("second", 1), ("first", 2))
    )
    asked = chain[:, :, -CHAINS:, None].expand(-1, -1, -1, SIZE)
    return second, first, second.gather(2, asked)


@pytest.mark.parametrize("second", ["same", "turned", "turned anew", "unrelated"])
def test_what_one_pair_shares_with_the_next(second):
    task, batch = drawn(second=second)
    shown, key, answers = occurrences(task, batch)
    assert torch.equal(shown, key) == (second == "same")
    assert torch.equal(batch.targets[..., :SIZE], answers)
    lengths = torch.allclose(shown.norm(dim=-1), key.norm(dim=-1), rtol=1e-5)
    assert lengths == (second != "unrelated")
    if second == "turned":
        torch.testing.assert_close((shown * key).sum(-1), torch.zeros(2, 11, CHAINS), rtol=0.0, atol=1e-5)


def test_every_variant_at_every_depth_and_both_orders():
    options = Options(layers=(2, 5), order_layers=(3,))
    labels = [each.label for each in configurations(options)]
    assert len(labels) == len({*labels}) == 2 * len(VARIANTS) + 2


def test_layers_that_an_order_saves():
    final = {(QUICK_ORDER, 3): [0.1, 0.9, 0.9, None], (QUICK_ORDER, 5): [0.1, 0.1, 0.9, 0.1],
             (USUAL_ORDER, 3): [0.9, 0.1, 0.9, 0.1], (USUAL_ORDER, 5): [0.9, 0.1, 0.9, 0.1]}  # fmt: skip
    members, rows = [], []
    for (order, layers), values in final.items():
        for seed, loss in enumerate(values):
            name, number = at_depth(order, layers), len(members)
            members.append(
                {"member": number, "seed": seed, "configuration": name, "overrides": {}, "unit": name}
            )
            rows.append({"member": number, "metric": "loss_step_4", "step": 9, "value": loss})
    found = layers_saved(Options(order_layers=(3, 5)), Evidence.of(rows, members)).values
    assert found[:2].tolist() == [3.0, -2.0] and math.isnan(found[2]) and math.isnan(found[3])


@pytest.mark.parametrize("loss, lacks", [(0.6, False), (0.75, True), (0.95, True)])
def test_a_model_that_beats_position_refutes_it_whatever_the_run_lacks(loss, lacks):
    members = [{"member": 0, "seed": 0, "configuration": "a", "overrides": {}, "unit": "a"}]
    config = {"identity": {"training": {"steps": 400}, "model": {"width": 512}}}
    rows = [{"member": 0, "metric": "loss_step_2", "step": 400, "value": loss}]
    assert bool(lacks_of_unrelated("a", Evidence.of(rows, members, config))) == lacks
