"""Annotations are checked while tests run, in every room that has any; otherwise their shapes would be mere words."""

import pytest
import torch

from hopscope import rng
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer

from .samples import SEEDS, config


def wrong_rng():
    rng.normal_tensor(SEEDS.float(), "test", 0, (3,))


def wrong_task():
    PermutationTask(PermutationConfig()).sample(SEEDS[None], "train", 0, 3)


def wrong_model():
    Transformer.initial(config(), SEEDS[None])


def wrong_training():
    optimizer = Optimizer(Transformer.initial(config(), SEEDS).parameters, TrainingConfig(steps=3))
    optimizer.step(0, torch.zeros(2, 3), {})


def wrong_probe():
    probes.posterior_error(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 7, 5))


@pytest.mark.parametrize("call", [wrong_rng, wrong_task, wrong_model, wrong_training, wrong_probe])
def test_a_wrong_shape_is_refused(call):
    with pytest.raises(TypeError, match="violates type hint"):
        call()
