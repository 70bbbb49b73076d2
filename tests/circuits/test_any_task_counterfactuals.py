"""What is exchanged in samples of a user's task: the inputs of one role, from the next sample, and position codes."""

import pytest
import torch

import hopscope as hs
from hopscope.circuits.any_task import AnyTask, resampled
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer

from .any_tasks import Lookup, Pairs, Sum, lookup_model, on_device, pairs_model, sum_model

SAMPLES = 5


def exchanged(task, model, samples=SAMPLES):
    setting = AnyTask(on_device(task))
    batch = setting.batch(3, samples, "report")
    return batch, {each.name: each.stream for each in setting.counterfactuals(model, batch)}


def plain(inputs, here, carried):
    """The same in plain loops."""
    found = inputs.clone()
    samples, positions = here.shape[1:]
    for sample in range(samples):
        following = (sample + 1) % samples
        there = [position for position in range(positions) if here[0, following, position]]
        mine = [position for position in range(positions) if here[0, sample, position]]
        for rank, position in enumerate(mine):
            if there:
                taken = inputs[0, following, there[rank % len(there)]].clone()
                if carried:
                    taken[-carried:] = inputs[0, sample, position, -carried:]
                found[0, sample, position] = taken
    return found


@pytest.mark.parametrize("carried", [0, 2])
def test_resampling_is_that_of_plain_loops(carried):
    generator = torch.Generator().manual_seed(11)
    here = torch.rand(1, 7, 11, generator=generator) < 0.3
    here[0, 3] = False  # a sample without such a position
    assert len({int(count) for count in here[0].sum(-1)}) > 1
    vectors = torch.randn(1, 7, 11, 5, generator=generator)
    assert torch.equal(resampled(vectors, here, carried), plain(vectors, here, carried))
    tokens = torch.randint(13, (1, 7, 11), generator=generator)
    assert torch.equal(resampled(tokens, here, 0), plain(tokens, here, 0))


def test_the_inputs_of_each_role_are_those_of_the_next_sample():
    task = Lookup()
    model = lookup_model(task)
    batch, found = exchanged(task, model)
    assert list(found) == ["item", "query"]
    other = batch.inputs.roll(-1, 1)
    items = torch.cat((other[:, :, :-1], batch.inputs[:, :, -1:]), 2)
    assert torch.equal(found["item"], model.embedded(items))
    assert not torch.equal(found["query"], found["item"])


def test_carried_codes_stay_and_are_exchanged_by_themselves():
    task = Pairs()
    model = pairs_model(task)
    batch, found = exchanged(task, model)
    assert list(found) == ["key", "value", "query", "position"]
    content, codes = batch.inputs[..., : task.size], batch.inputs[..., task.size :]
    keys = content.clone()
    keys[:, :, 0:-1:2] = content.roll(-1, 1)[:, :, 0:-1:2]
    assert torch.equal(found["key"], model.embedded(torch.cat((keys, codes), -1)))
    assert torch.equal(found["position"], model.embedded(torch.cat((content, codes.roll(-1, 2)), -1)))


@pytest.mark.parametrize(("positions", "by"), [("learned", 1), ("pair", 2)])
def test_learned_codes_are_those_of_other_positions(positions, by):
    task = Sum()
    config = sum_model(task).config.model_copy(update={"positions": positions})
    model = Transformer.initial(config, torch.tensor([7]))
    batch, found = exchanged(task, model)
    assert list(found) == [*(f"position {number}" for number in range(5)), "position"]
    symbol, code = model.member(0).embed(batch.inputs[0])
    code = code.expand_as(symbol)
    assert torch.allclose(found["position"][0], symbol + code[:, [(p + by) % 5 for p in range(5)]], atol=1e-6)
    assert not torch.allclose(found["position"][0], symbol + code, atol=1e-2)


def test_without_roles_of_few_values_everything_is_exchanged():
    class Many(Lookup):
        items: int = 29

        def sample(self, draws):
            found = super().sample(draws)
            return hs.Batch(inputs=found.inputs, targets=found.targets)

    batch, found = exchanged(Many(), lookup_model(Many()))
    assert list(found) == ["inputs"]
    assert torch.equal(found["inputs"], lookup_model(Many()).embedded(batch.inputs.roll(-1, 1)))


class Told(Lookup):
    """Says what can be exchanged."""

    what: str = "values"

    def counterfactuals(self, batch):
        changed = batch.inputs.clone()
        changed[..., self.size : 2 * self.size] *= -1.0
        wrong = {"shape": changed[:, :-1], "type": changed.double(), "list": [1.0]}
        return 7 if self.what == "number" else {self.what: wrong.get(self.what, changed)}


def test_a_task_may_say_what_can_be_exchanged():
    task = Told()
    model = lookup_model(task)
    batch, found = exchanged(task, model)
    assert list(found) == ["values"]
    assert torch.equal(found["values"], model.embedded(task.counterfactuals(batch)["values"]))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "shape",
            r"'shape': expected inputs as those of the batch, torch.float32 of shape \[1, 5, 6, 7\], found torch",
        ),
        ("type", r"found torch.float64 of shape \[1, 5, 6, 7\]"),
        ("list", "found list"),
        ("number", "expected a mapping from name to inputs, found int"),
    ],
)
def test_exchanges_unlike_the_inputs_are_one_clear_line(what, words):
    with pytest.raises(UserError, match=rf"^Told\.counterfactuals: .*{words}"):
        exchanged(Told(what=what), lookup_model(Told()))
