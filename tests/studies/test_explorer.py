"""Where a reader of the page's explorer begins: at something that the model is asked."""

import torch

from hopscope.studies.explorer import EXAMPLES, _asked_targets, _examples, _last_asked
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.equations_config import EquationsConfig


def test_what_is_not_asked_has_no_target():
    task = TaskOnDevice(EquationsConfig(chains=3, depths=(1, 2)))
    batch = task.evaluation(EXAMPLES)
    for at, example in enumerate(_examples(task)):
        known = zip(batch.targets[0, at].tolist(), batch.weights[0, at].tolist(), strict=True)
        assert example["targets"] == [target if weight > 0 else -1 for target, weight in known]
        # No row of padding is asked; the answer is.
        asked = [
            row for row, target in zip(task.shape.readout, example["targets"], strict=True) if target >= 0
        ]
        assert asked and all(example["roles"][row] != "padding" for row in asked)


def test_vectors_are_asked_at_their_last_readout():
    targets = torch.zeros(1, 2, 3, 5)
    assert _last_asked(targets).tolist() == [2, 2]
    batch = Batch(torch.zeros(1, 2, 7, 11), targets, weights=torch.zeros(1, 2, 3))
    assert _asked_targets(batch) is batch.targets


def test_the_last_target_of_each_sample():
    targets = torch.tensor([[[4, -1, -1], [2, 3, -1], [-1, -1, 0], [-1, -1, -1]]])
    assert _last_asked(targets).tolist() == [0, 1, 2, 2]
