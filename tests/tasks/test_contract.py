"""What every task keeps, ours and a user's: samples are functions of their addresses, annotations and floors true."""

import pickle
import random
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.language import Equations
from hopscope.tasks import (
    Batch,
    Permutation,
    Retrieval,
    Shape,
    Task,
    check_task,
    default_gradient,
    default_parts,
    draw,
    has_standard_loss,
    held_out,
    losses,
    permutation,
    retrieval,
)


class Copy(Task):
    length: int = 11
    values: int = 7
    back: int = 3

    def shape(self):
        readout = (self.length - 1,)
        sizes = {"input_size": self.values, "output_size": self.values}
        return Shape(inputs="tokens", positions=self.length, readout=readout, **sizes)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        source = self.length - 1 - self.back
        return Batch(
            tokens,
            tokens[..., source : source + 1],
            groups={"even": tokens[..., 0] % 2 == 0},
            relations={"source": draws.constant(source, (self.length,))},
        )


GRAPH = ({"name": "a"}, {"name": "x", "parents": ["a"]}, {"name": "y", "parents": ["a"]})
GRAPH = (*GRAPH, {"name": "z", "parents": ["x", "y"]})
TASKS = [
    Copy(), Retrieval(), Retrieval(position="pair", steps=2, targets="last", schedule=((2, "ic"),)),
    Retrieval(nodes=GRAPH, chains=3, order="random"), Permutation(values=4, repeat_ratio=0.5), Permutation(values=9),
    Retrieval(shares=(0.3, 0.3, 0.4), emphasis="one"), Equations(), Equations(depths=(1, 3), repeated=False),
]  # fmt: skip
SEEDS = torch.tensor([2, 3, 5])


def equal(first, second):
    assert torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets)
    for kind in ("groups", "roles", "relations"):
        one, other = getattr(first, kind), getattr(second, kind)
        assert set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(params=TASKS, ids=lambda task: repr(task)[:40])
def task(request):
    return request.param


def test_samples_are_functions_of_their_addresses(task):
    check_task(task)
    for use in ("train", "held-out", "probe"):
        together = draw(task, SEEDS, use, range(1, 4), 7)
        equal(draw(task, SEEDS[1:2], use, range(1, 4), 7), together.member(1))
        equal(draw(task, SEEDS, use, torch.tensor(2), 7), together.take(slice(7, 14)))
        equal(draw(task, SEEDS, use, 3, 4, start=3), together.take(torch.arange(17, 21)))
        for number, piece in enumerate(together.pieces(5)):
            equal(piece, together.take(slice(5 * number, 5 * number + 5)))
        uses = [draw(task, SEEDS, other, 1, 7) for other in ("train", "held-out", "probe") if other != use]
        assert not any(torch.equal(together.inputs[:, :7], other.inputs) for other in uses)
    first = held_out(task, 5)
    assert first.inputs.shape[0] == 1 and first.inputs.shape[2] == task.shape().positions
    equal(first.take(slice(5)), held_out(task, 7).take(slice(5)))
    pool = draw(task, SEEDS, "train", 0, 64, examples=2)
    assert all(len(member.unique(dim=0)) <= 2 for member in pool.inputs.flatten(2))


def test_the_loss_is_the_default_one_and_groups_are_apart(task):
    batch = draw(task, SEEDS, "train", 5, 13)
    shape = (*batch.targets.shape[:3], task.shape().output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(7)).requires_grad_()
    found = losses(task, predictions, batch)
    assert has_standard_loss(task)
    torch.testing.assert_close(found["loss"], default_parts(predictions, batch)["loss"])
    (slope,) = torch.autograd.grad(found["loss"].sum(), predictions)
    torch.testing.assert_close(slope, default_gradient(predictions, batch), rtol=1e-5, atol=1e-8)
    for group in batch.groups:
        here = batch.groups[group]
        for member in range(len(SEEDS)):
            if here[member].any():
                some = batch.member(member).take(here[member])
                alone = task.parts(predictions[member : member + 1, here[member]], some)["loss"][0]
                torch.testing.assert_close(found[f"loss@{group}"][member], alone)
            else:
                assert found[f"loss@{group}"][member].isnan()


def test_annotations_are_true(task):
    batch = draw(task, SEEDS, "probe", 3, 17)
    inputs = batch.inputs if batch.inputs.ndim == 4 else batch.inputs[..., None]
    inputs = inputs[..., : task.symbol_dim] if isinstance(task, Retrieval) else inputs
    for name, partner in ((name, batch.relations[name]) for name in batch.relations):
        assert (partner >= -1).all() and (partner < inputs.shape[2]).all()
        if name == "same_symbol":
            there = inputs.gather(2, partner.clamp(min=0)[..., None].expand_as(inputs))
            assert (there == inputs)[partner >= 0].all()
            assert (partner >= 0).any() == (getattr(task, "repeat_ratio", 1.0) > 0.0)
        if "chain" in batch.roles and name.startswith(("hop", "to_", "pair", "query")):
            chain, mate = batch.roles["chain"], batch.roles["chain"].gather(2, partner.clamp(min=0))
            on_one = (chain < task.chains) & (partner >= 0)
            assert (chain == mate)[on_one].all() and on_one.any()


def test_exchanges_change_one_thing_and_skills_are_asked(task):
    batch = draw(task, SEEDS[:1], "probe", 3, 17)
    for name, inputs in (task.counterfactuals(batch) or {}).items():
        changed = (inputs != batch.inputs).reshape(*batch.inputs.shape[:3], -1).any(-1)
        assert inputs.shape == batch.inputs.shape and changed.any()
        words = {task.words["roles"]["kind"][each] for each in batch.roles["kind"][changed].tolist()}
        assert not isinstance(task, Permutation) or words == {name}
        assert not isinstance(task, Equations) or words <= {"given", "found", "query"}
        assert not name.startswith("x_") or (batch.roles["holds"][changed] == int(name[2:])).all()
    skills = task.skills(batch)
    asked = torch.ones_like(batch.targets) > 0 if batch.weights is None else batch.weights > 0
    assert all(mask.any() and not (mask & ~asked).any() for mask in skills.values())
    assert not skills or (sum(mask.int() for mask in skills.values()) <= 1).all()


def test_answers_follow_the_chain():
    task = Retrieval(steps=3, order="random")
    batch = draw(task, SEEDS, "train", 0, 5)
    symbols = batch.inputs[..., : task.symbol_dim]
    for place, row in enumerate(task.shape().readout):
        for step in range(1, 4):
            here = batch.relations[f"hop_{step}"][:, :, row, None, None].expand(-1, -1, 1, task.symbol_dim)
            answer = batch.targets[:, :, place].unflatten(-1, (3, -1))[:, :, step - 1]
            assert torch.equal(symbols.gather(2, here)[:, :, 0], answer)


def only(classes, task, batch):
    """Predictions that give some classes the same probability, and all others none."""
    allowed = torch.zeros(*batch.targets.shape, task.shape().output_size).scatter(-1, classes, 1.0)
    return (allowed - 1.0) * 1e4


@settings(max_examples=20)
@given(values=st.integers(3, 12), ratio=st.sampled_from([0.0, 0.3, 1.0]), chains=st.integers(2, 5))
def test_floors_of_classes_are_reached_by_what_they_name(values, ratio, chains):
    task, questions = Permutation(values=values, repeat_ratio=ratio), Equations(chains=chains, depths=(2, 3))
    batch, floors = draw(task, SEEDS, "probe", 0, 5), task.floors()
    found = task.parts(only(torch.arange(1, values + 1).expand(3, 5, values, -1), task, batch), batch)
    assert all(value.allclose(torch.tensor(floors["guess"])) for value in found.values())
    if ratio == 0.0:
        unseen = torch.ones(values, values).triu() > 0
        left = torch.where(unseen, batch.targets[:, :, None], batch.targets[..., None])
        found = task.parts(only(left, task, batch), batch)["loss"]
        assert found.allclose(torch.tensor(floors["elimination"]))
    batch, tokens = (
        draw(questions, SEEDS, "held-out", 0, 5),
        [*map(questions.vocabulary.index, map(str, range(chains)))],
    )
    predictions = only(torch.tensor(tokens).expand(*batch.targets.shape, -1), questions, batch)
    found = questions.parts(predictions, batch)["loss_answer"]
    assert found.allclose(torch.tensor(questions.floors()["loss_answer"]["guess"]))


@settings(max_examples=20)
@given(chains=st.integers(2, 4), data=st.data(), order=st.sampled_from(["deepest-first", "random"]))
def test_floors_of_graphs_are_reached_by_what_they_name(chains, data, order):
    nodes = [{"name": "n0"}]
    for number in range(1, data.draw(st.integers(2, 4))):
        earlier = st.sets(st.sampled_from([node["name"] for node in nodes]), min_size=1, max_size=2)
        nodes.append({"name": f"n{number}", "parents": sorted(data.draw(earlier))})
    task = Retrieval(nodes=nodes, chains=chains, order=order)
    check_task(task)
    batch, floors = draw(task, torch.tensor([3]), "probe", 0, 700), task.floors()
    zero = task.parts(torch.zeros_like(batch.targets), batch)
    assert zero["loss"].item() == pytest.approx(floors["zero"], rel=0.1)
    kinds, symbols = task.words["roles"]["kind"], batch.inputs[..., : task.symbol_dim]
    of_value = [kinds.index(word) for word in ("value", "second") if word in kinds]
    is_value = torch.isin(batch.roles["kind"], torch.tensor(of_value))
    mate = batch.relations["pair_mate"].clamp(min=0)[..., None].expand_as(symbols)
    first_keys, sizes = symbols.gather(2, mate), (len(task.asked), -1)
    right = dict(zip(task.asked, batch.targets.unflatten(-1, sizes).unbind(-2), strict=True))
    for name, node in task.asked.items():
        here = (is_value & (batch.roles["node"] == node))[:, :, None]
        known, parents = {"position": here}, nodes[node]["parents"]
        if parents[0] in right and len(parents) == 2:
            known["keys_1"] = here & (first_keys[:, :, None] == right[parents[0]][:, :, :, None]).all(-1)
        for floor, values in known.items():
            mean = (symbols[:, :, None] * values[..., None]).sum(3) / values.sum(3)[..., None]
            error = (right[name] - mean).square().mean().item()
            assert error == pytest.approx(floors[f"loss_{name}"][floor], rel=0.15)


@pytest.mark.parametrize(
    ("fields", "floor"),
    [
        ({"shares": (1.0, 0.1)}, 0.767),
        ({"targets": ("y",), "schedule": ((100, ("z",)),)}, 0.75),
        ({}, 0.84375),
    ],
)
def test_a_floor_counts_symbols_as_the_loss_does(fields, floor):
    nodes = [{"name": "x"}, {"name": "y", "parents": ["x"]}, {"name": "z", "parents": ["x", "y"]}]
    assert Retrieval(nodes=nodes, chains=4, **fields).floors()["position"] == pytest.approx(floor, abs=1e-3)


@pytest.mark.parametrize(
    "task", [Permutation(values=5), Retrieval(steps=2, chains=3)], ids=["classes", "vectors"]
)
def test_weights_count_in_tasks_made_of_ours(task):
    batch = draw(task, SEEDS, "probe", 0, 7)
    weights = torch.rand(*batch.targets.shape[:2], len(task.shape().readout))
    weighted, predictions = (
        replace(batch, weights=weights),
        torch.randn(*batch.targets.shape[:3], task.shape().output_size),
    )
    found = task.parts(predictions, weighted)["loss"]
    torch.testing.assert_close(found, default_parts(predictions, weighted)["loss"])


@settings(max_examples=25)
@given(
    values=st.integers(3, 12),
    ratio=st.sampled_from([0.0, 0.3, 1.0]),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
)
def test_held_out_mappings_are_never_trained(values, ratio, share, seed):
    task = Permutation(values=values, repeat_ratio=ratio, held_out_share=share, split_seed=seed)

    def mappings(use):
        batch = draw(task, SEEDS, use, 0, 50).plain()
        whole = torch.cat((batch.inputs, batch.targets[..., -1:]), -1).unflatten(-1, (-1, 2))
        assert bool((batch.targets == whole[..., 1]).all())
        seen = torch.zeros(*whole.shape[:2], values, dtype=torch.int64)
        seen.scatter_(2, whole[..., 0] - 1, whole[..., 1])
        return {tuple(each) for each in seen.flatten(0, 1).tolist() if ratio == 0.0}

    assert not mappings("train") & mappings("held-out")
    assert task.mappings(True) + task.mappings(False) == int(np.prod(range(1, values + 1)))


class Bad(Copy):
    fault: str = ""

    def sample(self, draws):
        batch = super().sample(draws)
        inputs, targets = batch.inputs, batch.targets
        match self.fault:
            case "torch":
                return Batch(torch.randint_like(inputs, 7), targets)
            case "numpy":
                return Batch(inputs, torch.full_like(targets, np.random.randint(0, 7)))  # noqa: NPY002
            case "random":
                return Batch(inputs, targets, weights=torch.full(targets.shape, random.random()))
            case "shape":
                return Batch(inputs[..., 1:], targets)
            case "range":
                return Batch(inputs + 7, targets)
            case "role":
                return Batch(inputs, targets, roles={"kind": inputs.float()})
            case "relation":
                return Batch(inputs, targets, relations={"source": lambda: inputs + self.length})
            case "weights":
                return Batch(inputs, targets, weights=torch.full(targets.shape, -1.0))
            case "sample":
                return Batch(inputs.roll(1, 1), targets)
            case "member":
                return Batch(inputs.roll(1, 0), targets)
            case "step":
                return Batch(inputs, (targets + draws.step[0]) % 7)
            case "twice":
                draws.uniform("tokens")
            case "empty" | "axis":
                return batch
        return 3

    def cases(self, use):
        tokens = torch.zeros(5, 11, dtype=torch.int64)
        made = {"empty": tokens[None, :0], "axis": tokens}.get(self.fault)
        return None if made is None else Batch(made, made[..., :1])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        *((name, "none from torch, numpy or random") for name in ("torch", "numpy", "random")),
        (
            "shape",
            r"inputs: expected torch.int64 \[2, 10, 11\] on cpu, found torch.int64 \[2, 10, 10\] on cpu",
        ),
        ("range", "inputs: expected numbers from 0 to 6"),
        ("role", r"roles\['kind'\]: .* found torch.float32"),
        ("relation", r"relations\['source'\]: expected numbers from -1 to 10"),
        ("weights", "weights: expected numbers from 0"),
        ("sample", "nothing depend on the other samples"),
        ("member", "nothing depend on the other samples"),
        ("step", "nothing depend on .* their steps"),
        ("twice", "twice"),
        ("none", "an hs.Batch, found int"),
        (
            "empty",
            r"cases\('held-out'\): inputs: expected torch.int64 \[1, 1, 11\] .* found torch.int64 \[1, 0, 11\]",
        ),
        ("axis", r"cases\('held-out'\): inputs: expected .* found torch.int64 \[5, 11\]"),
    ],
)
def test_a_task_that_breaks_the_contract_is_refused_when_it_is_drawn(fault, words):
    for _ in range(2):
        with pytest.raises(UserError, match=f"(Bad|draws).*{words}"):
            draw(Bad(fault=fault), SEEDS, "held-out", 0, 3)


def test_an_unknown_use_is_told_in_one_line():
    words = (
        r": expected samples for a use \('train', 'held-out', 'probe'\) or a stream of rng, found 'test set'"
    )
    with pytest.raises(UserError, match=f"draws{words}"):
        draw(Copy(), SEEDS, "test set", 0, 3)
    equal(draw(Copy(), SEEDS, "evaluate", 0, 3), draw(Copy(), SEEDS, "held-out", 0, 3))


def test_tables_of_few_tasks_are_kept_and_a_field_may_be_a_list():
    class Listed(Permutation):
        notes: list[int] = [1]

    for seed in range(11):
        draw(Listed(split_seed=seed), SEEDS, "train", 0, 3)
        draw(Retrieval(split_seed=seed), SEEDS, "train", 0, 3)
    for made in (permutation._tables, retrieval._sampler):
        assert 1 < made.cache_info().currsize < 11


@pytest.mark.filterwarnings("ignore:Field name:UserWarning")
def test_a_field_may_not_hide_what_a_task_does():
    with pytest.raises(
        UserError, match="Hiding: expected fields with names of their own, found 'skills'; rename it"
    ):

        class Hiding(Copy):
            skills: int = 3


def test_a_task_in_another_process_is_the_same():
    task = Retrieval(steps=2)
    draw(task, SEEDS, "train", 0, 3)
    again = pickle.loads(pickle.dumps(task))  # noqa: S301
    assert again == task and hash(again) == hash(task)


def test_a_member_s_samples():
    task = Retrieval(steps=2)
    batch, shared = draw(task, SEEDS, "train", 0, 3), held_out(task, 3)
    assert torch.equal(batch.member(1).inputs, batch.inputs[1:2]) and shared.member(4) is shared
    for wrong in (-1, len(SEEDS)):
        with pytest.raises(UserError, match="member: expected 0 to"):
            batch.member(wrong)


def test_what_a_batch_holds_is_its_own_and_a_single_model_has_losses():
    task = Retrieval(steps=2, shares=(1.0, 0.5))
    batch, alone = held_out(task, 5), held_out(task, 5).changed(lambda tensor: tensor[0])
    before = losses(task, torch.zeros(1, *batch.targets.shape[1:]), batch)
    assert losses(task, torch.zeros(alone.targets.shape), alone) == before
    alone.weights.zero_()
    assert losses(task, torch.zeros(1, *batch.targets.shape[1:]), held_out(task, 5)) == before


def test_samples_of_a_task_and_a_use_are_checked_once():
    class Counted(Copy):
        shifts: list[int] = [1]  # which has no hash
        uses: ClassVar[list[str]] = []

        def sample(self, draws):
            self.uses.append(draws.use)
            return super().sample(draws)

    task = Counted()
    for _ in range(3):
        draw(task, SEEDS, "train", 0, 3)
    looked_at = len(task.uses) - 3
    assert looked_at > 1 and {*task.uses} == {"train"}
    held_out(task, 3)
    assert task.uses.count("held-out") == looked_at + 1
    draw(task.model_copy(update={"back": 1}), SEEDS, "train", 0, 3)
    assert task.uses.count("train") == 2 * (looked_at + 1) + 2


def test_steps_may_be_told_as_words():
    named, numbered = (
        Retrieval(order=("2", "3", "1"), targets=("3",)),
        Retrieval(order=(2, 3, 1), targets=(3,)),
    )
    equal(draw(named, SEEDS, "train", 0, 3), draw(numbered, SEEDS, "train", 0, 3))


def test_what_a_copy_of_a_task_works_out_is_its_own():
    task = Retrieval(steps=3)
    assert [*task.asked] == ["step_1", "step_2", "step_3"]
    other = task.model_copy(update={"steps": 2})
    assert [*other.asked] == ["step_1", "step_2"] and other == Retrieval(steps=2)


def test_a_loss_of_ones_own_is_not_the_standard_one():
    class Own(Permutation):
        def parts(self, predictions, batch):
            return {"loss": predictions.square().mean((1, 2, 3))}

    assert not has_standard_loss(Own())


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Retrieval, {"symbol_dim": 5}, "multiple of 2"),
        (Retrieval, {"order": (1, 2)}, "permutation of 1, 2, 3"),
        (Retrieval, {"targets": (4,)}, "different ones"),
        (Retrieval, {"schedule": ((0, "ic"),)}, "ascending"),
        (Retrieval, {"shares": (0.5,)}, "a number for each of"),
        (Retrieval, {"nodes": GRAPH[1:]}, "nodes before it"),
        (Retrieval, {"nodes": GRAPH, "chains": 40}, "at most 4096 positions"),
        (Retrieval, {"nodes": GRAPH[:1]}, "with parents"),
        (Permutation, {"repeat_slots": (6,)}, "slots from 1 to 5"),
        (Permutation, {"repeat_sources": (5,)}, "before a slot"),
        (Equations, {"depths": (2, 1)}, "ascending"),
        (Equations, {"mixture": (1.0, 0.0)}, "the last above"),
        (Equations, {"chains": 2, "depths": (400,)}, "take less"),
    ],
)
def test_bad_fields_are_told(kind, fields, words):
    with pytest.raises(UserError, match=words):
        kind(**fields)
