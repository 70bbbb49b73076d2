"""A small task, and a study of it."""

import pytest

from hopscope import tasks
from hopscope.models.config import Model
from hopscope.study.study import Study
from hopscope.training.config import Training


class Echo(tasks.Task):
    """Repeat the first token."""

    length: int = 3
    values: int = 5

    def shape(self):
        size = self.values
        return tasks.Shape(
            inputs="tokens",
            input_size=size,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=size,
        )

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        relations = {"first": draws.constant(0, (self.length,))}
        return tasks.Batch(tokens, tokens[..., :1], relations=relations, groups={"zero": tokens[..., 0] == 0})


@pytest.fixture
def study():
    """A function that makes a study of `Echo`, with other fields."""

    def make(**fields):
        training = Training(steps=7, batch_size=11, checkpoint_every=4, evaluate_every=2)
        usual = {"name": "echo", "task": Echo(), "model": Model(width=8, mlp_ratio=0.0), "training": training}
        return Study(**{**usual, "seeds": 2, "held_out": 13, **fields})

    return make
