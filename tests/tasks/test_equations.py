"""Equations as tokens: the fast way against texts written in plain Python, the split, and what each token is."""

import pytest
import torch
from pydantic import ValidationError
from tests.oracles.equations import reference_text

from hopscope.errors import UserError
from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.equations_layout import KINDS
from hopscope.tasks.losses import counted
from hopscope.tasks.text.split import held_out_mappings
from hopscope.tasks.text.tokens import END

SHAPES = [
    {"chains": 4, "depths": (1, 2, 3), "mixture": "zipf"},
    {"chains": 3, "depths": (2,), "repeated": False},
    {"chains": 5, "depths": (1, 3), "lines": "paper", "asked": "last"},
    {"chains": 2, "depths": (1, 2), "lines": "paper", "repeated": False},
    {"chains": 3, "depths": (1, 2, 4), "mixture": (7.0, 0.0, 5.0)},
]


def task_of(**changes):
    return EquationsTask(EquationsConfig(**changes))


def words(task, tokens):
    return [task.vocabulary[token] for token in tokens]


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_are_the_texts_that_plain_python_writes(shape):
    task = task_of(**shape)
    batch = task.sample(torch.tensor([5, 7]), "train", 3, 23, start=2)
    for member, seed in enumerate((5, 7)):
        for place in range(23):
            text = reference_text(task.config, seed, "train", 3, place + 2)
            tokens = [*task.read(text["prompt"]).tolist(), task.vocabulary.index(text["answer"])]
            asked = [len(tokens) - 2, len(tokens) - 1]
            tokens.append(task.vocabulary.index(END))
            if task.config.repeated:
                asked += [len(tokens) + 3 * line + 1 for line in range(len(text["repeated"]))]
                tokens += task.read("\n".join(text["repeated"])).tolist()
            padded = (tokens + [0] * task.positions)[: task.positions]
            assert batch.inputs[member, place].tolist() == padded
            assert asked_at(task, batch)[member][place] == asked
            readouts = [task.readout.index(at) for at in asked]
            assert batch.targets[member, place, readouts].tolist() == [tokens[at + 1] for at in asked]


def test_every_member_and_step_stands_alone():
    task = task_of()
    together = task.sample(torch.tensor([3, 11]), "train", range(4, 7), 5)
    alone = task.sample(torch.tensor([11]), "train", 6, 2, start=3)
    assert torch.equal(together.inputs[1:, 13:15], alone.inputs)
    assert torch.equal(together.targets[1:, 13:15], alone.targets)


def asked_at(task, batch):
    """Positions where each sample is asked something, by member and sample."""
    readout = torch.tensor(task.readout)
    return [[readout[here].tolist() for here in member] for member in counted(batch)]


def follow(known, name):
    while name in known:
        name = known[name]
    return name


def said(task, tokens):
    """Lines of a text as a mapping, and the name that is asked about."""
    text = words(task, tokens)
    question = text.index("What")
    return dict(zip(text[:question:3], text[2:question:3], strict=True)), text[question + 5]


@pytest.mark.parametrize("shape", SHAPES)
def test_training_never_sees_a_held_out_mapping(shape):
    task = task_of(**shape)
    held = held_out_mappings(task.config.chains, 0.2, 0)
    for tokens in task.sample(torch.tensor([1]), "train", 0, 307).inputs[0].tolist():
        known, _ = said(task, tokens)
        last = list(known)[-task.config.chains :]
        mapping = tuple(int(follow(known, name)) for name in sorted(last))
        assert mapping not in held


def test_evaluation_asks_held_out_mappings_as_the_paper_does():
    task = task_of(chains=3, depths=(1, 2), held_out_share=0.5)
    held, seen = set(held_out_mappings(3, 0.5, 0)), set()
    batch = task.evaluation(211, 2)
    for tokens, asked, targets in zip(
        batch.inputs[0].tolist(), asked_at(task, batch)[0], batch.targets[0].tolist(), strict=True
    ):
        known, query = said(task, tokens)
        assert sorted(known) == list("abcdef")
        assert sorted(known[name] for name in "abc") == list("012")
        assert sorted(known[name] for name in "def") == list("abc")
        assert query in "def"
        seen.add(tuple(int(follow(known, name)) for name in "def"))
        assert asked == [task.config.prompt_length(2) - 1]
        assert task.vocabulary[targets[task.readout.index(asked[0])]] == follow(known, query)
        assert set(tokens[asked[0] + 1 :]) == {0}
    assert seen == held


def test_depths_are_drawn_as_the_mixture_says():
    for mixture, shares in (
        ("uniform", (1 / 3, 1 / 3, 1 / 3)),
        ("zipf", (6 / 11, 3 / 11, 2 / 11)),
        ((3.0, 5.0, 11.0), (3 / 19, 5 / 19, 11 / 19)),
        ((0.3, 0.0, 0.1), (3 / 4, 0, 1 / 4)),
        ((0.0, 0.0, 1.0), (0, 0, 1)),
    ):
        task = task_of(depths=(1, 2, 3), mixture=mixture)
        batch = task.sample(torch.tensor([0]), "train", 0, 4001, annotate=False)
        first = torch.tensor(task.readout)[counted(batch)[0].int().argmax(-1)]
        counts = [
            (first == task.config.prompt_length(depth) - 1).float().mean().item() for depth in (1, 2, 3)
        ]
        assert counts == pytest.approx(shares, abs=0.03)
        assert [count > 0 for count in counts] == [share > 0 for share in shares]


def test_roles_and_relations_say_what_the_words_say():
    task = task_of(chains=3, depths=(1, 3))
    batch = task.evaluation(17, 3)
    for place in range(17):
        text = words(task, batch.inputs[0, place].tolist())
        known, query = said(task, batch.inputs[0, place].tolist())
        role = {name: values[0, place].tolist() for name, values in batch.roles.items()}
        to = {name: values[0, place].tolist() for name, values in batch.relations.items()}
        at_query = role["kind"].index(KINDS.index("query"))
        assert text[at_query] == query
        line_of = {text[at]: at for at in range(0, 27, 3)}
        for at, word in enumerate(text[: task.config.prompt_length(3)]):
            kind = KINDS[role["kind"][at]]
            speaks_of = query if at > at_query else word
            if kind in ("given", "found", "query") or at > at_query:
                assert role["chain"][at] == int(follow(known, speaks_of))
                name, hop = speaks_of, 1
                while name in known:
                    assert to[f"hop_{hop}"][at] == line_of[name] + 2
                    name, hop = known[name], hop + 1
                assert all(to[f"hop_{beyond}"][at] == NO_RELATION for beyond in range(hop, 4))
            if kind in ("found", "query") and word in known:
                assert to["same_symbol"][at] == line_of[word]
            assert to["query"][at] == (at_query if at > at_query else NO_RELATION)
            if kind in ("given", "found"):
                assert text[to["pair_mate"][at]] == (known[word] if kind == "given" else text[at - 2])
                assert role["step"][at] == 3 - at // 9
            assert to["previous"][at] == at - 1
            assert (role["slot"][at] > 0) == (kind == "word")


@pytest.mark.parametrize("repeated", [False, True])
def test_the_slope_is_the_gradient_of_the_loss(repeated):
    task = task_of(chains=3, depths=(1, 2), repeated=repeated)
    batch = task.sample(torch.tensor([2, 3]), "train", 0, 7)
    shape = (2, 7, len(task.readout), task.output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    losses = task.losses(predictions, batch)
    (expected,) = torch.autograd.grad(losses["loss"].sum(), predictions)
    torch.testing.assert_close(task.slope(predictions.detach(), batch), expected)


def test_every_member_is_asked_the_same_held_out_questions():
    task = task_of(chains=3, depths=(1, 2))
    batch = task.evaluation(5, 2)
    shape = (2, 5, len(task.readout), task.output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found, answers = task.answered(predictions, batch)
    place = task.readout.index(task.config.prompt_length(2) - 1)
    torch.testing.assert_close(found, predictions[:, :, place])
    assert torch.equal(answers, batch.targets[..., place])


def test_every_predicted_token_counts_alike():
    task = task_of(chains=3, depths=(1, 2))
    batch = task.sample(torch.tensor([2, 3]), "train", 0, 5)
    asked = counted(batch)
    right = torch.nn.functional.one_hot(batch.targets, task.output_size) * 60.0
    wrong = right.clone()
    wrong[:, 1] = 0.0  # all of one text: an answer, the end, and the lines of one or two rounds
    found = task.losses(wrong, batch)
    floor = torch.tensor(task.output_size).log()
    torch.testing.assert_close(
        # Texts of one round have 5 tokens to predict, of two rounds 8, and as many of each are drawn.
        found["loss"],
        floor * asked[:, 1].sum(-1) / 6.5 / 5,
        rtol=1e-4,
        atol=1e-4,
    )
    torch.testing.assert_close(found["loss_answer"], floor.expand(2) / 5, rtol=1e-4, atol=1e-4)


def test_bad_input_is_said_in_one_line():
    for changes, message in (
        ({"depths": ()}, "depths: expected ascending numbers from 1"),
        ({"depths": (2, 1)}, "depths: expected ascending numbers from 1"),
        ({"depths": (0, 1)}, "depths: expected ascending numbers from 1"),
        ({"mixture": (1.0,)}, r"mixture: expected a weight for each depth of .1, 2., .*, found .1.0."),
        ({"mixture": (1.0, 0.0)}, "none below 0 and the last above"),
        ({"mixture": (-1.0, 2.0)}, "none below 0 and the last above"),
        ({"chains": 6, "depths": (40,)}, r"depths: expected .depth . chains.\^chains below 2\^31"),
    ):
        with pytest.raises(ValidationError, match=message):
            EquationsConfig(**changes)
    task = task_of()
    with pytest.raises(UserError, match="found 'zebra'"):
        task.read("What is zebra")
    with pytest.raises(ValueError, match="depth: expected one of"):
        task.evaluation(3, 5)
