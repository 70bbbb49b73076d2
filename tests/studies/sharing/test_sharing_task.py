"""The task of the sharing study: what ties two positions of a sample together, and what does not."""

import pytest
import torch

import hopscope as hs
from hopscope.studies.sharing.task import Sharing
from hopscope.tasks.draws import Draws
from hopscope.tasks.retrieval import FIRST, QUERY, SECOND

CODES = ("pair", "token", "one-hot", "drawn for pairs", "drawn for tokens")
SECONDS = ("same", "turned", "turned anew", "unrelated")
MEMBERS, SAMPLES, CHAINS, STEPS, DIM = 2, 7, 5, 3, 4


def task(**fields):
    return Sharing(**{"steps": STEPS, "chains": CHAINS, "symbol_dim": DIM, **fields})


def drawn(given):
    return given.sample(Draws.of(torch.tensor([3, 11]), "train", 2, SAMPLES))


def tokens(batch, member, sample):
    """Kind, step and chain → position."""
    roles = {name: batch.roles[name][member, sample].tolist() for name in ("kind", "step", "chain")}
    return {key: position for position, key in enumerate(zip(*roles.values(), strict=True))}


def every_sample(batch):
    for member in range(MEMBERS):
        for sample in range(SAMPLES):
            yield batch.inputs[member, sample], batch.targets[member, sample], tokens(batch, member, sample)


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("second", SECONDS)
def test_it_keeps_the_contract(codes, second):
    hs.testing.check_task(task(codes=codes, second=second))
    hs.testing.check_task(task(codes=codes, second=second, targets=(1, 3)))


@pytest.mark.parametrize("position", ["pair", "token"])
def test_where_nothing_is_changed_it_is_the_retrieval_problem(position):
    ours = drawn(task(codes=position))
    plain = hs.tasks.Retrieval(steps=STEPS, chains=CHAINS, symbol_dim=DIM, position=position)
    theirs = plain.sample(Draws.of(torch.tensor([3, 11]), "train", 2, SAMPLES))
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.targets, theirs.targets)


@pytest.mark.parametrize("codes", CODES)
def test_who_shares_a_code(codes):
    batch = drawn(task(codes=codes))
    together = codes in ("pair", "drawn for pairs")
    for inputs, _, places in every_sample(batch):
        own = inputs[:, DIM:]
        for (kind, step, chain), position in places.items():
            if kind != FIRST:
                continue
            mate = places[SECOND, step, chain]
            assert torch.equal(own[position], own[mate]) == together
            equal = (own == own[position]).all(-1).sum()
            assert equal == (2 if together else 1)
    if codes == "one-hot":
        assert torch.equal(batch.inputs[0, 0, :, DIM:], torch.eye(batch.inputs.shape[2]))
    new = not torch.equal(batch.inputs[0, 0, :, DIM:], batch.inputs[0, 1, :, DIM:])
    assert new == codes.startswith("drawn")


@pytest.mark.parametrize("second", SECONDS)
def test_how_a_symbol_looks_as_a_second_token(second):
    batch, plain = drawn(task(second=second)), drawn(task())
    others = zip(every_sample(batch), every_sample(plain), strict=True)
    turns = []
    for (inputs, targets, places), (as_usual, _, same_places) in others:
        assert places == same_places
        shown, before = [], []
        for (kind, _, _), position in places.items():
            symbol, usual = inputs[position, :DIM], as_usual[position, :DIM]
            if kind != SECOND:
                assert torch.equal(symbol, usual)
                continue
            shown.append(symbol)
            before.append(usual)
            if second == "same":
                assert torch.equal(symbol, usual)
            if second == "turned":
                assert abs(float(symbol @ usual)) < 1e-5
            if second in ("turned", "turned anew"):
                torch.testing.assert_close(symbol.norm(), usual.norm())
        turns.append(torch.linalg.lstsq(torch.stack(before), torch.stack(shown), driver="gelsd").solution)
        queries = [position for (kind, _, _), position in places.items() if kind == QUERY]
        for (kind, _, chain), position in places.items():
            if kind == QUERY:
                answers = torch.stack([inputs[places[SECOND, step, chain], :DIM] for step in (1, 2, 3)])
                asked = targets[position - min(queries)].view(STEPS, DIM)
                torch.testing.assert_close(asked, answers)
    orthogonal = torch.stack([turn @ turn.T for turn in turns])
    is_turn = torch.allclose(orthogonal, torch.eye(DIM).expand_as(orthogonal), atol=1e-3)
    assert is_turn == (second != "unrelated")
    fixed = torch.allclose(turns[0], turns[1], atol=1e-3)
    assert fixed == (second in ("same", "turned"))


def test_losses_are_those_of_a_loop():
    given = task(targets=(1, 3), second="unrelated")
    batch = drawn(given)
    predictions = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0))
    squared = (predictions - batch.targets).square()
    found = given.parts(predictions, batch)
    torch.testing.assert_close(found["loss"], squared.mean((1, 2, 3)))
    for place, step in enumerate((1, 3)):
        part = squared[..., place * DIM : (place + 1) * DIM].mean((1, 2, 3))
        torch.testing.assert_close(found[f"loss_step_{step}"], part)
