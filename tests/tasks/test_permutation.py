import itertools
import math

import pytest
import torch
from scipy import stats

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

SEEDS = torch.tensor([19, 23])


def task(**changes):
    return PermutationTask(PermutationConfig(**changes))


def sequences(batch, member=0):
    """The whole sequences x₁ y₁ … x_V y_V of a member."""
    whole = torch.cat((batch.inputs[member], batch.targets[member, :, -1:]), dim=1)
    assert torch.equal(whole[:, 1::2], batch.targets[member]), "targets are not what stands behind each x"
    return [tuple(row) for row in whole.tolist()]


def pairs_of(sequence):
    return list(zip(sequence[::2], sequence[1::2], strict=True))


def expected_set(asked, data, split):
    """The exhaustive set, written out from its definition."""
    values = asked.config.values
    everything = list(itertools.permutations(range(1, values + 1)))
    training = {
        tuple(row) for row in asked.split.mapping(torch.arange(asked.split.training), "train").tolist()
    }
    mappings = [mapping for mapping in everything if (mapping in training) == (split == "train")]
    repeats = asked.config.repeat_pairs() if data == "repeats" else [None]
    found = []
    for mapping, order, repeat in itertools.product(mappings, everything, repeats):
        xs = list(order)
        if repeat is not None:
            xs[repeat[0] - 1] = xs[repeat[1] - 1]
        found.append(tuple(token for x in xs for token in (x, mapping[x - 1])))
    return found


# The page's numbers.


def test_the_published_coverage_counts():
    asked = task(values=5)
    assert math.factorial(5) ** 2 == 14_400
    assert asked.evaluation_count("plain", "train") == 11_520
    assert asked.evaluation_count("plain", "held_out") == 2_880
    assert asked.evaluation_count("repeats", "held_out") == 2_880 * 4
    for data, split in (("plain", "train"), ("plain", "held_out"), ("repeats", "held_out")):
        listed = sequences(asked.evaluation(data, split, annotate=False))
        assert len(listed) == len(set(listed)) == asked.evaluation_count(data, split)
    together = {
        *sequences(asked.evaluation("plain", "train")),
        *sequences(asked.evaluation("plain", "held_out")),
    }
    assert len(together) == 14_400


def test_a_sequence_by_hand():
    """The published repeated sequence 33 45 21 14 33: the last x comes back, its value stands at position 1."""
    order, mapping = torch.tensor([[[3, 4, 2, 1, 3]]]), torch.tensor([[[4, 1, 3, 5, 2]]])
    batch = task(values=5).batch(order, mapping)
    assert sequences(batch) == [(3, 3, 4, 5, 2, 1, 1, 4, 3, 3)]
    none = NO_RELATION
    assert batch.weights is None and batch.targets[0, 0].tolist() == [3, 5, 1, 4, 3]
    assert batch.roles["kind"][0, 0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert batch.roles["step"][0, 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert batch.roles["repeat"][0, 0].tolist() == [0] * 8 + [1]
    assert batch.relations["previous"][0, 0].tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, 7]
    assert batch.relations["pair_mate"][0, 0].tolist() == [1, 0, 3, 2, 5, 4, 7, 6, none]
    assert batch.relations["same_symbol"][0, 0].tolist() == [none] * 8 + [0]
    assert batch.relations["recall"][0, 0].tolist() == [none] * 8 + [1]


# Training samples.


@pytest.mark.parametrize("values", range(3, 13))
def test_training_shows_training_mappings_only(values):
    asked = task(values=values, split_seed=3)
    batch = asked.sample(SEEDS, "train", 29, 257, annotate=False)
    assert (asked.input_size, asked.output_size, asked.input_kind) == (values + 1, values + 1, "tokens")
    for member in range(len(SEEDS)):
        shown = [sorted(pairs_of(sequence)) for sequence in sequences(batch, member)]
        assert all([x for x, _ in pairs] == list(range(1, values + 1)) for pairs in shown)
        assert asked.split.is_training(torch.tensor([[y for _, y in pairs] for pairs in shown])).all()


def test_orders_and_mappings_are_uniform_and_independent():
    asked = task(values=3)
    drawn = sequences(asked.sample(SEEDS[:1], "train", 31, 6007, annotate=False))
    counts = [drawn.count(sequence) for sequence in set(expected_set(asked, "plain", "train"))]
    assert sum(counts) == len(drawn)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_repeats_come_as_often_as_asked_and_copy_every_slot_alike():
    asked = task(values=5, repeat_ratio=0.3)
    batch = asked.sample(SEEDS[:1], "train", 37, 6007)
    repeated = batch.roles["repeat"][0, :, -1].bool()
    assert stats.binomtest(int(repeated.sum()), len(repeated), 0.3).pvalue > 1e-3
    sources = batch.relations["same_symbol"][0, repeated, -1] // 2
    assert stats.chisquare(sources.bincount(minlength=4).tolist()).pvalue > 1e-3


@pytest.mark.parametrize(("ratio", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_never_and_always(ratio, share):
    batch = task(values=5, repeat_ratio=ratio).sample(SEEDS, "train", 41, 257)
    assert batch.roles["repeat"][..., -1].float().mean() == share


def test_only_chosen_slots_copy_only_chosen_sources():
    chosen = {"values": 7, "repeat_slots": (3, 5), "repeat_sources": (2, 4)}
    repeats = task(repeat_ratio=1.0, **chosen).sample(SEEDS, "train", 43, 257)
    plain = task(repeat_ratio=0.0, **chosen).sample(SEEDS, "train", 43, 257)
    found = set()
    for member in range(len(SEEDS)):
        for copied, original in zip(sequences(repeats, member), sequences(plain, member), strict=True):
            changed = [slot for slot in range(7) if copied[2 * slot] != original[2 * slot]]
            assert len(changed) == 1, "more than one slot was changed, or none"
            (slot,) = changed
            source = [s for s in range(7) if s != slot and copied[2 * s] == copied[2 * slot]]
            assert len(source) == 1 and copied[2 * slot + 1] == copied[2 * source[0] + 1]
            found.add((slot + 1, source[0] + 1))
    assert found == {(3, 2), (5, 2), (5, 4)}


def test_another_split_seed_gives_other_data():
    first, second = (task(values=5, split_seed=seed).evaluation("plain") for seed in (0, 1))
    assert set(sequences(first)) != set(sequences(second))


# Held-out evaluation.


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize("data", ["plain", "repeats"])
@pytest.mark.parametrize("chosen", [{}, {"repeat_slots": (2, 3), "repeat_sources": (1, 2)}])
@pytest.mark.parametrize("values", [3, 4])
def test_exhaustive_sets_are_all_there_is(values, chosen, data, split):
    asked = task(values=values, split_seed=5, **chosen)
    listed, expected = sequences(asked.evaluation(data, split)), expected_set(asked, data, split)
    assert len(listed) == len(expected) == asked.evaluation_count(data, split)
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(expected)


def test_every_repeat_sequence_has_exactly_one_repeat():
    asked = task(values=5, repeat_slots=(2, 4, 5))
    batch = asked.evaluation("repeats")
    assert batch.inputs.shape == (1, 2_880 * (1 + 3 + 4), 9)
    assert (batch.roles["repeat"][..., ::2].sum(-1) == 1).all()
    assert ((batch.relations["recall"] >= 0).sum(-1) == 1).all()
    assert not task(values=5).evaluation("plain").roles["repeat"].any()


def test_the_answer_to_a_repeat_stands_where_recall_points():
    batch = task(values=5).evaluation("repeats")
    shown = batch.inputs.gather(-1, batch.relations["recall"][..., -1:])[..., 0]
    assert torch.equal(shown, batch.targets[..., -1])


@pytest.mark.parametrize("data", ["plain", "repeats"])
def test_a_set_at_the_limit_is_listed_and_one_beyond_is_drawn(data):
    asked = task(values=4)
    total = asked.evaluation_count(data)
    listed, drawn = (asked.evaluation(data, limit=limit) for limit in (total, total - 1))
    assert len(set(sequences(listed))) == total
    assert drawn.inputs.shape[1] == total - 1
    assert set(sequences(drawn)) <= set(sequences(listed))
    assert len(set(sequences(drawn))) > total / 2


@pytest.mark.parametrize("values", [5, 11])
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_drawn_sets_belong_to_their_split_and_never_change(values, split):
    changes = {"values": values, "split_seed": 7}
    batch = task(**changes).evaluation("plain", split, limit=503)
    assert batch.inputs.shape == (1, 503, 2 * values - 1)
    mappings = [[y for _, y in sorted(pairs_of(sequence))] for sequence in sequences(batch)]
    belongs = task(**changes).split.is_training(torch.tensor(mappings))
    assert (belongs == (split == "train")).all()
    # The training data's options must not change what is asked in an evaluation.
    again = task(repeat_ratio=0.5, **changes).evaluation("plain", split, limit=503, annotate=False)
    assert torch.equal(batch.inputs, again.inputs) and not again.roles


def test_drawn_repeats_copy_every_allowed_slot():
    batch = task(values=7).evaluation("repeats", limit=1009)
    assert (batch.roles["repeat"][..., ::2].sum(-1) == 1).all()
    assert stats.chisquare((batch.relations["same_symbol"][0, :, -1] // 2).bincount().tolist()).pvalue > 1e-3


# Losses.


def test_floors_by_hand():
    floors = PermutationConfig(values=5).floors()
    # A guess among 5 values, and among those that are left: 5, 4, 3, 2 and 1.
    assert floors["guess"] == pytest.approx(math.log(5))
    assert floors["elimination"] == pytest.approx(sum(math.log(left) for left in range(1, 6)) / 5)
    assert floors["loss_step_5"] == {"guess": floors["guess"]} and floors["accuracy"] == {"guess": 0.2}
    assert "elimination" not in PermutationConfig(values=5, repeat_ratio=0.3).floors()


def test_losses_by_hand():
    asked = task(values=3)
    batch = asked.sample(SEEDS, "train", 47, 5)
    logits = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(53))
    losses = asked.losses(logits, batch)
    assert set(losses) == {"loss", "loss_step_1", "loss_step_2", "loss_step_3"}
    for member in range(2):
        by_step = []
        for step in range(3):
            terms = []
            for sample in range(5):
                row = [math.exp(float(logit)) for logit in logits[member, sample, step]]
                terms.append(-math.log(row[int(batch.targets[member, sample, step])] / sum(row)))
            by_step.append(sum(terms) / 5)
            assert float(losses[f"loss_step_{step + 1}"][member]) == pytest.approx(by_step[step], abs=1e-5)
        assert float(losses["loss"][member]) == pytest.approx(sum(by_step) / 3, abs=1e-5)
