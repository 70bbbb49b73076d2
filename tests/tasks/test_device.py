"""Any task on a device: its batches are checked once, its losses reported, its held-out samples the same for all."""

import re

import pytest
import torch
from torch.nn import functional

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch, given
from hopscope.tasks.config import ConditionalConfig, EquationsConfig, PermutationConfig, RetrievalConfig
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.task import Shape

from .declared import Average, Copy

SEEDS = torch.tensor([19, 23])


def predictions(on, batch=7, members=2):
    shape = (members, batch, len(on.readout), on.output_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(41))


@pytest.mark.parametrize(
    "task", [Copy(), Average(), PermutationConfig()], ids=lambda task: type(task).__name__
)
def test_it_is_what_the_trainer_expects(task):
    on = task.on() if isinstance(task, (Copy, Average)) else TaskOnDevice(task)
    assert isinstance(on, TaskOnDevice)
    shape = task.shape()
    declared = (shape.positions, shape.readout, shape.input_size, shape.output_size, shape.inputs)
    assert (on.positions, on.readout, on.input_size, on.output_size, on.input_kind) == declared


def test_unannotated_samples_are_the_same_without_groups_roles_and_relations():
    on = Copy().on()
    whole, plain = (on.sample(SEEDS, "train", range(3, 5), 7, annotate=each) for each in (True, False))
    assert torch.equal(whole.inputs, plain.inputs) and torch.equal(whole.targets, plain.targets)
    assert whole.groups and whole.relations and not plain.groups and not plain.relations
    assert torch.equal(whole.member(1).inputs, on.sample(SEEDS[1:], "train", range(3, 5), 7).inputs)


def test_held_out_samples_are_the_same_for_all_members():
    on = Copy().on()
    held_out = on.evaluation(11)
    assert held_out.inputs.shape == (1, 11, 11) and held_out.groups
    assert torch.equal(held_out.inputs, on.sample(torch.tensor([0]), "held-out", 0, 11).inputs)
    assert not on.evaluation(11, annotate=False).groups
    assert not torch.equal(held_out.inputs, on.sample(torch.tensor([0]), "train", 0, 11).inputs)


def test_an_exhaustive_set_takes_the_place_of_samples():
    class All(Copy):
        length: int = 2
        values: int = 3
        back: int = 1

        def cases(self, use):
            if use != "held-out":
                return None
            tokens = torch.cartesian_prod(torch.arange(3), torch.arange(3))[None]
            return Batch(tokens, tokens[..., :1], relations={"source": torch.zeros_like(tokens)})

    on = All().on()
    assert on.evaluation(1024).inputs.shape == (1, 9, 2) and on.cases("probe") is None
    assert not on.evaluation(1024, annotate=False).relations


# Losses.


def test_default_losses_of_classes_by_hand():
    on = Copy().on()
    batch, found = on.sample(SEEDS, "train", 3, 7), predictions(Copy().on())
    losses = on.losses(found, batch)
    expected = functional.cross_entropy(found.flatten(0, 2), batch.targets.flatten(), reduction="none")
    torch.testing.assert_close(losses["loss"], expected.view(2, 7).mean(1))
    right = (found.argmax(-1) == batch.targets).double()
    torch.testing.assert_close(losses["accuracy"].double(), right.mean((1, 2)))


def test_groups_are_reported_apart():
    on = Copy(values=2).on()
    batch = on.sample(SEEDS, "train", 3, 31)
    found = predictions(on, 31)
    losses = on.losses(found, batch)
    assert set(losses) == {"loss", "accuracy", "loss@doubled", "accuracy@doubled"}
    for member in range(2):
        here = batch.groups["doubled"][member]
        alone = on.losses(found[member, None][:, here], batch.member(member).take(here).plain())
        for name in ("loss", "accuracy"):
            torch.testing.assert_close(losses[f"{name}@doubled"][member], alone[name][0])
    shared = batch.member(0)
    of_shared = on.losses(found, shared)
    torch.testing.assert_close(of_shared["loss@doubled"][0], losses["loss@doubled"][0])
    assert of_shared["loss@doubled"].shape == (2,)
    assert set(on.losses(found, batch.plain())) == {"loss", "accuracy"}


def test_a_group_without_samples_has_no_number():
    on = Copy().on()
    batch = on.sample(SEEDS, "train", 3, 7)
    none = Batch(batch.inputs, batch.targets, groups={"none": torch.zeros(2, 7, dtype=torch.bool)})
    losses = on.losses(predictions(on), none)
    assert losses["loss@none"].isnan().all() and losses["accuracy@none"].isnan().all()
    assert losses["loss"].isfinite().all()


class Weighted(Copy):
    """Two answers, of which the second counts three times as much, and in odd samples alone."""

    vectors: bool = False
    dims: bool = False

    def shape(self):
        kind = {"outputs": "vectors", "output_size": 3} if self.vectors else {"output_size": self.values}
        return Shape(inputs="tokens", input_size=self.values, positions=self.length, readout=(2, 5), **kind)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        counts = torch.stack((1 - tokens[..., 0] % 2, 3 * (tokens[..., 0] % 2)), -1).float()
        targets = draws.normal("targets", (2, 3)) if self.vectors else tokens[..., :2]
        return Batch(tokens, targets, weights=counts[..., None].repeat(1, 1, 1, 3) if self.dims else counts)


@pytest.mark.parametrize("fields", [{}, {"vectors": True}, {"vectors": True, "dims": True}])
def test_weighted_terms_are_divided_by_how_many_there_are(fields):
    on = Weighted(**fields).on()
    batch, found = on.sample(SEEDS, "train", 3, 7), predictions(on)
    odd = batch.inputs[..., 0] % 2 == 1
    if fields:
        terms = (found - batch.targets).square().mean(-1)
    else:
        terms = functional.cross_entropy(found.movedim(-1, 1), batch.targets, reduction="none")
    expected = torch.where(odd, 3 * terms[..., 1], terms[..., 0]).sum(1) / 14
    losses = on.losses(found.requires_grad_(), batch)
    torch.testing.assert_close(losses["loss"], expected)
    (gradient,) = torch.autograd.grad(losses["loss"].sum(), found)
    torch.testing.assert_close(on.slope(found.detach(), batch), gradient)
    assert ("accuracy" in losses) == (not fields)
    if not fields:
        right = (found.argmax(-1) == batch.targets).double()
        counted = torch.where(odd, right[..., 1], right[..., 0]).mean(1)
        torch.testing.assert_close(losses["accuracy"].double(), counted)


def test_the_derivative_is_that_of_the_loss():
    for task in (
        Copy(),
        Average(),
        PermutationConfig(),
        RetrievalConfig(steps=2),
        ConditionalConfig(chains=2),
    ):
        on = TaskOnDevice(task)
        batch, found = on.sample(SEEDS, "train", 17, 7), predictions(on).requires_grad_()
        (expected,) = torch.autograd.grad(on.losses(found, batch)["loss"].sum(), found)
        torch.testing.assert_close(on.slope(found.detach(), batch), expected, rtol=1e-4, atol=1e-7)


# The tasks of the package.


@pytest.mark.parametrize(
    "task",
    [
        PermutationConfig(repeat_ratio=0.3),
        RetrievalConfig(steps=2, targets=(1,), schedule=((7, "last"),), pool=31),
        ConditionalConfig(chains=2),
        EquationsConfig(chains=3),
    ],
    ids=lambda task: task.kind,
)
def test_the_general_view_has_the_samples_of_the_own_class(task):
    own, general = task.on(), TaskOnDevice(task)
    for step in (5, range(6, 9)):
        expected, found = (each.sample(SEEDS, "train", step, 7) for each in (own, general))
        assert torch.equal(found.inputs, expected.inputs) and torch.equal(found.targets, expected.targets)
        assert (found.weights is None) == (expected.weights is None)
        if found.weights is not None:
            assert torch.equal(found.weights, expected.weights)
    losses, parts = (
        each.losses(predictions(own), own.sample(SEEDS, "train", 5, 7)) for each in (own, general)
    )
    assert all(torch.equal(parts[name], values) for name, values in losses.items())
    assert any(name.startswith("accuracy") for name in parts)


def test_held_out_permutations_have_held_out_mappings():
    task = PermutationConfig(repeat_ratio=0.3)
    split = task.on().split
    for use, training in (("train", True), ("probe", True), ("held-out", False)):
        batch = TaskOnDevice(task).sample(SEEDS, use, 3, 101)
        plain = batch.groups["plain"]
        assert torch.equal(plain, ~batch.groups["repeat"]) and 0 < plain.sum() < plain.numel()
        order = batch.inputs[plain][:, ::2]
        mapping = torch.zeros_like(order).scatter(-1, order - 1, batch.targets[plain])
        assert bool((split.is_training(mapping) == training).all())


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 24 * 120), (0.3, None), (1.0, 24 * 120 * 4)])
def test_all_held_out_permutations_of_one_sort_are_listed(ratio, expected):
    on = TaskOnDevice(PermutationConfig(repeat_ratio=ratio))
    cases = on.cases("held-out")
    assert on.cases("train") is None and (cases is None) == (expected is None)
    if expected is not None:
        assert cases.inputs.shape == (1, expected, 9) and len(cases.inputs[0].unique(dim=0)) == expected
    assert TaskOnDevice(PermutationConfig(values=8)).cases("held-out") is None


def test_held_out_questions_are_the_papers_of_every_depth():
    task = EquationsConfig(chains=3, depths=(1, 2), held_out_share=0.5)
    batch = TaskOnDevice(task).evaluation(101)
    own = task.on()
    every = {
        depth: {tuple(row) for row in own.evaluation(2003, depth).inputs[0].tolist()} for depth in (1, 2)
    }
    for depth, known in every.items():
        rows = batch.inputs[0, batch.groups[f"D = {depth}"][0]].tolist()
        assert len(rows) > 30 and sum(tuple(row) in known for row in rows) > 0.9 * len(rows)


@pytest.mark.parametrize(
    "task",
    [PermutationConfig(), RetrievalConfig(), ConditionalConfig(chains=2), EquationsConfig(chains=3), Copy()],
    ids=lambda task: type(task).__name__,
)
def test_a_pool_of_examples(task):
    for on in (task.on(examples=5), TaskOnDevice(task, examples=5)):
        several = [on.sample(SEEDS, "train", step, 101).inputs for step in (3, 4)]
        for member in range(2):
            first, second = (set(map(repr, inputs[member].tolist())) for inputs in several)
            assert len(first) == 5 and first == second
        assert len(on.sample(SEEDS, "probe", 3, 101).inputs[0].unique(dim=0)) > 50


# What a task may get wrong.


class Wrong(Copy):
    """A batch with one thing changed."""

    changes: dict = {}

    def sample(self, draws):
        right = super().sample(draws)
        fields = {"inputs": right.inputs, "targets": right.targets, "relations": dict(right.relations)}
        return Batch(
            **fields | {name: change(right) for name, change in CHANGES[self.changes["kind"]].items()}
        )


CHANGES = {
    "positions": {"inputs": lambda batch: batch.inputs[..., 1:]},
    "floats": {"inputs": lambda batch: batch.inputs.float()},
    "ids": {"inputs": lambda batch: batch.inputs + 3},
    "negative": {"targets": lambda batch: batch.targets - 1},
    "readouts": {"targets": lambda batch: batch.targets.repeat(1, 1, 2)},
    "weights": {"weights": lambda batch: torch.ones(2, 7, 1).double()},
    "weight axes": {"weights": lambda batch: torch.ones(2, 3, 1)},
    "weight signs": {"weights": lambda batch: torch.full((2, 7, 1), -0.5)},
    "group": {"groups": lambda batch: {"some": torch.ones(2, 7, dtype=torch.int64)}},
    "relation": {"relations": lambda batch: {"source": batch.inputs[..., 1:]}},
    "role": {"roles": lambda batch: {"kind": 3}},
}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("positions", r"inputs: expected shape [2, 7, 11], found [2, 7, 10]"),
        ("floats", r"inputs: expected torch.int64, found torch.float32"),
        ("ids", r"inputs: expected ids from 0 to 6, found 3 to 9"),
        ("negative", r"targets: expected ids from 0 to 6, found -1 to 5"),
        ("readouts", r"targets: expected shape [2, 7, 1], found [2, 7, 2]"),
        ("weights", r"weights: expected float32 weights that broadcast to [2, 7, 1], found torch.float64"),
        (
            "weight axes",
            r"weights: expected float32 weights that broadcast to [2, 7, 1], found shape [2, 3, 1]",
        ),
        ("weight signs", r"weights: expected finite numbers from 0, found -0.5 to -0.5"),
        ("group", r"groups['some']: expected torch.bool, found torch.int64"),
        ("relation", r"relations['source']: expected shape [2, 7, 11], found [2, 7, 10]"),
        ("role", r"roles['kind']: expected a tensor of shape [2, 7, 11], found int"),
    ],
)
def test_a_wrong_batch_is_said_in_one_line(monkeypatch, kind, message):
    # As outside the tests, where nothing checks annotated shapes before this does.
    monkeypatch.setattr(Batch, "__init__", _plain_init)
    with pytest.raises(UserError, match="^" + re.escape(f"Wrong.sample: {message}") + "$"):
        Wrong(changes={"kind": kind}).on().sample(SEEDS, "train", 3, 7)


def _plain_init(self, inputs, targets, **named):
    fields = {"weights": None, "groups": {}, "roles": {}, "relations": {}} | named
    for name, value in {"inputs": inputs, "targets": targets, **fields}.items():
        object.__setattr__(self, name, value)
    self.__post_init__()


def test_what_is_no_batch_is_said_in_one_line():
    class Nothing(Copy):
        def sample(self, draws):
            return None

        def cases(self, use):
            return {"inputs": None}

    class Shapeless(Copy):
        def shape(self):
            return (11, 7)

    class Endless(Average):
        def sample(self, draws):
            batch = super().sample(draws)
            return Batch(batch.inputs, batch.targets / 0.0, weights=batch.weights)

    with pytest.raises(UserError, match=r"^Nothing.sample: expected an hs.Batch, found NoneType$"):
        Nothing().on().sample(SEEDS, "train", 3, 7)
    with pytest.raises(
        UserError, match=r"^Nothing.cases\('held-out'\): expected an hs.Batch or None, found dict"
    ):
        Nothing().on().evaluation(7)
    with pytest.raises(UserError, match=r"^Shapeless.shape: expected an hs.Shape, found tuple$"):
        Shapeless().on()
    with pytest.raises(
        UserError, match=r"^Endless.sample: targets: expected finite numbers, found NaN or infinity$"
    ):
        Endless().on().sample(SEEDS, "train", 3, 7)


def test_only_the_first_batch_is_looked_at_and_no_function_called():
    calls = []

    class Late(Copy):
        def sample(self, draws):
            right = super().sample(draws)
            calls.append(draws.step)
            inputs = right.inputs + (3 if len(calls) > 1 else 0)
            return Batch(inputs, right.targets, relations={"source": lambda: calls.append("read")})

    on = Late().on()
    assert list(given(on.sample(SEEDS, "train", 3, 7).relations)) == []
    assert on.sample(SEEDS, "train", 4, 7).inputs.max() == 9
    assert "read" not in calls
