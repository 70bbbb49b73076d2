"""A model set by hand knows the training mappings of four values: the size of the presentation is enough (P11)."""

import itertools

import pytest

from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.studies.permutation.probes.posterior import measure_posteriors, training_mappings
from hopscope.tasks.permutation import PermutationTask
from hopscope.zoo.memoriser import HIDDEN, memoriser

CONFIGURATION = Configuration.parse("d32/2 plain V=4")


def split(seed):
    """The task with one split of the mappings, and those that are held out."""
    config = PermutationStudyConfig(split_seed=seed)
    task = PermutationTask(config.task(CONFIGURATION))
    known = {tuple(mapping) for mapping in training_mappings(task).tolist()}
    held_out = [mapping for mapping in itertools.permutations((1, 2, 3, 4)) if mapping not in known]
    assert len(known) == 19 and len(held_out) == 5
    return config, task, held_out


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_it_answers_as_the_observer_who_knows_the_training_mappings(seed):
    _, task, held_out = split(seed)
    found = measure_posteriors(memoriser(held_out), task, 50_000)
    assert found["exhaustive"]["train"] is True
    (share,) = found["memorised_share"]
    # Where two held-out mappings rule out one answer at the second step, it keeps a part; split 0 has no such pair.
    assert 0.9 < share <= 1.0
    assert max(found["mae_training_train"][0]) < 0.02
    assert seed or (share > 0.999 and max(found["mae_training_train"][0]) < 0.001)
    # On held-out mappings it is lost, as whoever has memorised is.
    assert found["held_out_loss"][0] > found["uniform_floor"] + 0.5


def test_another_split_is_not_known():
    """What it knows are the mappings that it was made of, and no general skill."""
    found = measure_posteriors(memoriser(split(1)[2]), split(0)[1], 50_000)
    assert found["memorised_share"][0] < 0.0


def test_it_has_the_shape_of_the_trained_models():
    config, _, held_out = split(0)
    trained, built = config.model(CONFIGURATION), memoriser(held_out).config
    same = (
        "layers",
        "heads",
        "width",
        "mlp_ratio",
        "activation",
        "norm",
        "positions",
        "length",
        "causal",
        "input_size",
    )
    assert {name: getattr(built, name) for name in same} == {name: getattr(trained, name) for name in same}
    assert built.output_size == trained.output_size and built.readout == trained.readout
    assert built.mlp_ratio * built.width == HIDDEN


def test_more_mappings_than_it_has_units_for_are_refused():
    with pytest.raises(ValueError, match="expected at most 5 mappings, found 6"):
        memoriser([(1, 2, 3, 4)] * 6)
