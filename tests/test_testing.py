"""Every kind of wrong task is caught, in one line that says what is wrong."""

import re
from pathlib import Path

import pytest
import torch

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch
from hopscope.tasks.task import Shape, Task
from hopscope.testing import check_task


class Right(Task):
    """Say which of the tokens is the largest: one answer that always counts, and one that sometimes does."""

    length: int = 5
    values: int = 7

    def shape(self):
        return Shape(
            inputs="tokens",
            input_size=self.values,
            positions=self.length,
            readout=(3, 4),
            output_size=self.length,
        )

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        first, last = tokens.argmax(-1), self.length - 1 - tokens.flip(-1).argmax(-1)
        counts = draws.uniform("counts") < 0.5
        return Batch(
            inputs=tokens,
            targets=torch.stack((first, last), -1),
            weights=torch.stack((torch.ones_like(tokens[..., 0]), 2 * counts.long()), -1).float(),
            groups={"one": first == last},
            roles={"parity": lambda: tokens % 2},
            relations={"largest": lambda: first[..., None].expand(tokens.shape)},
        )

    def floors(self):
        return {"guess": 1.6, "accuracy": {"guess": 0.2}}

    @property
    def words(self):
        return {"roles": {"parity": ("even", "odd")}, "token": "abcdefg".__getitem__}

    def reference(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        return {"inputs": tokens, "weights": [1.0, 2.0 if draws.uniform("counts") < 0.5 else 0.0]}


def test_a_right_task_passes():
    check_task(Right())
    check_task(Right(length=7, values=3))


def changed(**fields):
    """What a batch of the right task is with some fields changed."""

    def sample(self, draws):
        right = Right.sample(self, draws)
        same = {name: getattr(right, name) for name in vars(right)}
        new = {name: change(right, draws) for name, change in fields.items()}
        return Batch(**same | new)

    return {"sample": sample}


def with_parts(parts):
    return {
        "parts": lambda self, predictions, batch: parts(
            self, Task.parts(self, predictions, batch), predictions, batch
        )
    }


def noisy(tokens, noise):
    return (tokens + noise) % 7


# Wrong tasks, and how the complaint begins; "…" stands for any words.
WRONG = {
    "no sample": (
        {"sample": Task.sample},
        "Wrong.sample raised NotImplementedError: Wrong: … found none",
    ),
    "an error": (
        {"sample": lambda self, draws: draws.integers("a", 3)[..., 5, 5, 5]},
        "Wrong.sample raised IndexError: too many indices",
    ),
    "no shape": ({"shape": lambda self: (5, 7)}, "Wrong.shape: expected an hs.Shape, found tuple"),
    "ids": (
        changed(inputs=lambda batch, draws: batch.inputs + 1),
        "Wrong.sample: inputs: expected ids from 0 to 6, found 1 to 7",
    ),
    "names": (
        {"sample": lambda self, draws: [draws.uniform("a"), draws.normal("a")]},
        "draws: expected … name … found 'a' twice",
    ),
    "its own randomness": (
        changed(inputs=lambda batch, draws: noisy(batch.inputs, torch.randint(7, batch.inputs.shape))),
        "Wrong.sample: the same draws gave other samples (inputs)",
    ),
    "members": (
        changed(inputs=lambda batch, draws: batch.inputs.sort(0).values),
        "Wrong.sample: a member alone … (inputs)",
    ),
    "place in the batch": (
        changed(inputs=lambda batch, draws: noisy(batch.inputs, torch.arange(draws.size[1])[:, None])),
        "Wrong.sample: samples 1 to 16 … (inputs)",
    ),
    "normalised by the batch": (
        changed(weights=lambda batch, draws: batch.weights / batch.weights.mean(1, keepdim=True)),
        "Wrong.sample: samples 1 to 16 … (weights)",
    ),
    "the first step's number": (
        changed(inputs=lambda batch, draws: noisy(batch.inputs, draws.step[0])),
        "Wrong.sample: a step … alone (inputs)",
    ),
    "always the same": (
        changed(inputs=lambda batch, draws: torch.zeros_like(batch.inputs)),
        "Wrong.sample: expected samples that differ, found 17 equal ones",
    ),
    "members alike": (
        changed(inputs=lambda batch, draws: noisy(torch.zeros_like(batch.inputs), draws.index[:, None])),
        "Wrong.sample: expected members that differ, found equal ones",
    ),
    "relations out of range": (
        changed(relations=lambda batch, draws: {"largest": lambda: batch.relations["largest"] + 1}),
        "Wrong.sample: relations['largest']: expected key positions from -1 to 4, found 1 to 5",
    ),
    "relations of another shape": (
        changed(relations=lambda batch, draws: {"largest": lambda: batch.targets}),
        "Wrong.sample: relations['largest']: expected shape [2, 17, 5], found [2, 17, 2]",
    ),
    "relations that are no integers": (
        changed(relations=lambda batch, draws: {"largest": lambda: batch.inputs.float()}),
        "Wrong.sample: relations['largest']: expected torch.int64, found torch.float32",
    ),
    "relations that fail": (
        changed(relations=lambda batch, draws: {"largest": lambda: batch.inputs[9]}),
        "Wrong.sample: relations['largest'] raised IndexError: index 9 is out of bounds",
    ),
    "roles without a word": (
        changed(roles=lambda batch, draws: {"parity": batch.inputs % 3}),
        "Wrong.sample: roles['parity']: expected roles from -1 to 1, found 0 to 2",
    ),
    "words without a role": (
        changed(roles=lambda batch, draws: {}),
        "Wrong.words: expected roles of [], found ['parity']",
    ),
    "groups": (
        changed(groups=lambda batch, draws: {"one": lambda: batch.inputs[..., 0]}),
        "Wrong.sample: groups['one']: expected torch.bool, found torch.int64",
    ),
    "roles in training alone": (
        changed(
            roles=lambda batch, draws: (
                batch.roles if draws.use != "probe" else dict(batch.roles) | with_extra(batch)
            )
        ),
        "Wrong.sample for 'probe': roles: expected ['parity'] as in training, found ['extra', 'parity']",
    ),
    "no loss": (
        with_parts(lambda task, parts, predictions, batch: {"error": parts["loss"]}),
        "Wrong.parts: expected a 'loss' among the parts, found ['error']",
    ),
    "one loss of all": (
        with_parts(lambda task, parts, predictions, batch: {"loss": parts["loss"].mean()}),
        "Wrong.parts: 'loss': expected shape [2], one number for each member, found []",
    ),
    "a sum over samples": (
        with_parts(lambda task, parts, predictions, batch: {"loss": parts["loss"] * predictions.shape[1]}),
        "Wrong.parts: 'loss': expected the mean over samples",
    ),
    "members that share a loss": (
        with_parts(
            lambda task, parts, predictions, batch: {"loss": parts["loss"] + 0.1 * parts["loss"].sum()}
        ),
        "Wrong.parts: … a member axis of 1",
    ),
    "a constant": (
        with_parts(lambda task, parts, predictions, batch: {"loss": parts["loss"].detach()}),
        "Wrong.parts: 'loss': … found a constant",
    ),
    "a readout left out": (
        with_parts(
            lambda task, parts, predictions, batch: {"loss": predictions[:, :, 0].square().mean((1, 2))}
        ),
        "Wrong.parts: 'loss': … every readout",
    ),
    "the gradient": (
        {"loss_gradient": lambda self, predictions, batch: 2 * Task.loss_gradient(self, predictions, batch)},
        "Wrong.loss_gradient: expected the derivative",
    ),
    "a floor of nothing": (
        {"floors": lambda self: {"recall": {"guess": 0.5}}},
        "Wrong.floors: expected metrics of ['accuracy', 'loss'], found 'recall'",
    ),
    "a floor that is no number": (
        {"floors": lambda self: {"guess": "1.6"}},
        "Wrong.floors: expected numbers by name, found 'guess': '1.6'",
    ),
    "cases of several members": (
        {"cases": lambda self, use: Batch(torch.zeros(2, 3, 5).long(), torch.zeros(2, 3, 2).long())},
        "Wrong.cases('train'): inputs: expected shape [1, 3, 5], found [2, 3, 5]",
    ),
    "cases without relations": (
        {"cases": lambda self, use: Batch(torch.zeros(1, 3, 5).long(), torch.zeros(1, 3, 2).long())},
        "Wrong.words: expected roles of [], found ['parity']",
    ),
    "equal words": (
        {"words": property(lambda self: {"roles": {"parity": ("odd", "odd")}})},
        "Wrong.words: roles['parity']: expected words that differ, found ['odd'] twice",
    ),
    "a token without a word": (
        {"words": property(lambda self: {"token": "abc".__getitem__})},
        "Wrong.words: token 3 raised IndexError: string index out of range",
    ),
    "another reference": (
        {"reference": lambda self, draws: {"targets": [0, 0]}},
        "Wrong.reference: targets: expected the same as sample gives, found [0, 0] beside [",
    ),
    "a reference of another shape": (
        {"reference": lambda self, draws: {"targets": 0}},
        "Wrong.reference: targets: expected shape [2] as sample gives it, found []",
    ),
    "a reference of nothing": (
        {"reference": lambda self, draws: {"roles": {"colour": [0] * 5}}},
        "Wrong.reference: expected names of [",
    ),
}


def with_extra(batch):
    return {"extra": batch.inputs}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_task_is_caught(wrong):
    attributes, message = WRONG[wrong]
    # Annotated, so that pydantic does not take functions for fields.
    task = type("Wrong", (Right,), {**attributes, "__module__": __name__})()
    parts = ".*".join(re.escape(part) for part in message.split("…"))
    with pytest.raises((AssertionError, UserError), match=f"^{parts}") as caught:
        check_task(task)
    assert "\n" not in str(caught.value), "more than one line"


def test_what_is_no_task_is_refused():
    with pytest.raises(AssertionError, match=r"^PosixPath: expected a subclass of hs.Task, found"):
        check_task(Path("right.py"))


def test_steps_and_uses_that_change_nothing_are_caught():
    class Forgetful(Right):
        without: str

        def sample(self, draws):
            from hopscope.tasks.draws import Draws

            step = 3 if self.without == "step" else draws.step
            stream = "train" if self.without == "use" else draws.stream
            return super().sample(Draws(draws.seeds, stream, step, draws.index))

    for without, what in (("step", "steps"), ("use", "training and held-out samples")):
        with pytest.raises(AssertionError, match=f"expected {what} that differ, found equal ones"):
            check_task(Forgetful(without=without))


def test_a_draw_from_the_number_of_a_sample_is_more_than_the_examples():
    class Numbered(Right):
        def sample(self, draws):
            batch = super().sample(draws)
            number = draws.address[3] * 0 + torch.arange(draws.size[1])
            chosen = number if draws.address[1] == "pool" else number * 0
            return Batch(
                noisy(batch.inputs, chosen[..., None]),
                batch.targets,
                weights=batch.weights,
                groups=batch.groups,
                roles={"parity": batch.inputs % 2},
                relations=batch.relations,
            )

        def reference(self, draws):
            return None

    with pytest.raises(
        AssertionError, match=r"expected at most 5 different samples with hs.Training\(examples=5\)"
    ):
        check_task(Numbered())
