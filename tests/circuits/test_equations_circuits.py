"""Questions in equations as the reader sees them: who is asked what, what may be lost, and the exchanges."""

import math
from typing import get_args

import pytest
import torch

from hopscope.circuits.built_in_tasks import (
    LOST,
    EquationsCircuits,
    EquationsSkills,
    circuit_task_of,
    task_of,
)
from hopscope.circuits.circuit_task import NO_ANSWER, CircuitTask, Use
from hopscope.circuits.criteria import SkillCriterion, Skills
from hopscope.circuits.grammar import Grammar
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations_layout import KINDS

CONFIG = EquationsConfig(chains=3, depths=(1, 2))


@pytest.fixture
def setting() -> EquationsCircuits:
    found = circuit_task_of(task_of(CONFIG))
    assert isinstance(found, EquationsCircuits)
    return found


def right(setting, batch, sharpness=11.0):
    """Predictions that are sharply right wherever something is asked."""
    return sharpness * torch.nn.functional.one_hot(batch.targets, len(setting.task.vocabulary)).float()


def prompts(setting, batch):
    """The questions in words, sample by sample."""
    return [
        " ".join(setting.task.vocabulary[token] for token in tokens if token)
        for tokens in batch.inputs[0].tolist()
    ]


def test_the_protocols_are_met(setting):
    batch = setting.batch(0, 5, "search")
    assert isinstance(setting, CircuitTask)
    assert isinstance(setting.skills, Skills)
    assert isinstance(setting.criterion(right(setting, batch), batch, None), SkillCriterion)


def test_uses_have_questions_of_their_own_and_only_the_search_sees_familiar_ones(setting):
    found = {use: set(prompts(setting, setting.batch(0, 101, use))) for use in get_args(Use)}
    assert (found["search"] | found["check"]).isdisjoint(found["report"] | found["watch"])
    assert len(set(map(frozenset, found.values()))) == len(found)
    held_out = setting.task.evaluation(101, 1)
    known = {tuple(row) for row in held_out.inputs[0].tolist()}
    length = setting.skills.ends[-1] + 1
    report = {tuple(row) for row in setting.batch(0, 101, "report").inputs[0].tolist()}
    assert {row[:length] for row in known} & report


def test_the_deepest_question_comes_first_and_each_is_read_out_where_it_ends(setting):
    batch = setting.batch(0, 7, "report")
    asked = setting.skills.asked(batch)[0]
    assert asked.sum(-1).tolist() == [1] * 14
    assert asked[:7, 1].all() and asked[7:, 0].all()
    assert batch.inputs.shape[-1] == setting.skills.ends[-1] + 1
    assert "step" not in batch.roles


def test_each_depth_is_a_skill(setting):
    batch = setting.batch(0, 7, "report")
    found = right(setting, batch)
    skills = EquationsSkills(setting.task)
    assert [skills.accuracy(name, found, batch) for name in skills.names] == [1.0, 1.0]
    found[:, 0] = 0.0  # one of seven questions of depth 2
    assert skills.accuracy("D = 2", found, batch) == pytest.approx(6 / 7)
    assert skills.accuracy("D = 1", found, batch) == 1.0
    vocabulary = torch.tensor(float(len(setting.task.vocabulary)))
    lost = skills.loss("D = 2", found, batch) - skills.loss("D = 2", right(setting, batch), batch)
    assert lost == pytest.approx(float(vocabulary.log()) / 7, abs=1e-3)
    goal = setting.criterion(found, batch, None)
    assert goal.names == ("D = 1",)
    assert goal.threshold == pytest.approx(goal.full + LOST * math.log(3))


def test_a_row_is_told_by_the_round_of_its_line(setting):
    batch = setting.batch(0, 5, "report")
    grammar = Grammar(batch, causal=True, words=setting.words)
    words = [grammar.words(roles) for roles in grammar.roles]
    lines = {f"{kind} {number}" for kind in ("given", "equals", "found") for number in (1, 2)}
    assert lines | {"query 1", "query 2"} <= set(words)
    assert len(set(words)) == len(words)
    kind, number = batch.roles["kind"][0], batch.roles["round"][0]
    # The first lines of any text are of the first round, however many follow.
    assert (number[:, : 3 * 3] == 1).all()
    assert (number[kind == KINDS.index("query")].unique() == torch.tensor([1, 2])).all()


def test_the_cut_model_says_the_same(setting):
    task = task_of(CONFIG)
    shape = TransformerConfig(
        layers=2, heads=3, width=33, mlp_ratio=0.0, norm="pre", positions="learned", length=task.positions,
        input_kind="tokens", input_size=task.input_size, output_size=task.output_size, readout=task.readout,
    )  # fmt: skip
    model = Transformer.initial(shape, torch.tensor([5]))
    batch = setting.batch(0, 7, "report")
    whole = torch.nn.functional.pad(batch.inputs, (0, task.positions - batch.inputs.shape[-1]))
    expected = model(whole, every_position=True)[:, :, setting.skills.ends]
    torch.testing.assert_close(setting.model(model)(batch.inputs), expected)
    with pytest.raises(ValueError, match="length: expected at most"):
        model.cut(task.positions + 1, (0,))


def one_layer(setting):
    """A fresh model of the setting's questions, whose embeddings tell tokens and positions apart."""
    shape = TransformerConfig(
        layers=1, heads=1, width=31, mlp_ratio=0.0, norm="pre", positions="learned",
        length=setting.skills.ends[-1] + 1, input_kind="tokens", input_size=setting.task.input_size,
        output_size=setting.task.output_size, readout=tuple(setting.skills.ends),
    )  # fmt: skip
    return Transformer.initial(shape, torch.tensor([0]))


def follow(prompt):
    """The value that a question in words asks for, by following its equations."""
    words = prompt.split()
    known = {words[at - 1]: words[at + 1] for at, word in enumerate(words) if word == "="}
    return known, words


def test_exchanges_are_the_same_questions_with_one_thing_changed(setting):
    model = one_layer(setting)
    batch = setting.batch(0, 13, "report")
    exchanges = {each.name: each for each in setting.counterfactuals(model, batch)}
    assert list(exchanges) == ["value", "name 1", "name 2", "position"]
    embeds = model.weights["embed.token.weight"][0]
    codes = model.weights["embed.position.weight"][0]
    values = setting.task.symbols[:3].tolist()
    asked = setting.skills.asked(batch)[0]
    for name, exchange in exchanges.items():
        if name == "position":
            continue
        tokens = torch.cdist(exchange.stream[0] - codes, embeds).argmin(-1)
        changed = (tokens != batch.inputs[0]).sum(-1)
        # Each name stands on the left once, and on the right or in the question.
        assert (changed[:13] > 0).all()
        for sample in range(26):
            known, words = follow(
                " ".join(setting.task.vocabulary[token] for token in tokens[sample] if token)
            )
            readout = int(asked[sample].int().argmax())
            query = batch.roles["kind"][0, sample].tolist().index(KINDS.index("query"))
            symbol = words[query]
            while symbol in known:
                symbol = known[symbol]
            wanted = exchange.follows if exchange.follows is not None else exchange.right
            assert setting.task.vocabulary[int(wanted[0, sample, readout])] == symbol
            if name == "value":
                right_one = int(exchange.right[0, sample, readout])
                assert values.index(int(wanted[0, sample, readout])) == (values.index(right_one) + 1) % 3
    assert (exchanges["value"].right[0][~asked] == NO_ANSWER).all()


def test_position_codes_move_by_one_line_within_a_round(setting):
    model = one_layer(setting)
    batch = setting.batch(0, 2, "report")
    moved = [*setting.counterfactuals(model, batch)][-1].stream[0, 0]
    codes = model.weights["embed.position.weight"][0]
    found = torch.cdist(moved - model.weights["embed.token.weight"][0][batch.inputs[0, 0]], codes).argmin(-1)
    first = [3, 4, 5, 6, 7, 8, 0, 1, 2]
    assert found.tolist() == [*first, *(9 + at for at in first), *range(18, batch.inputs.shape[-1])]
