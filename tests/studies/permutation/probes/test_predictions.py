"""Probes on hand-made probabilities whose answers are known without any of the probes' own code."""

import itertools
import math

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.theory import posteriors

from .observers import both, eliminator, guesser, ideal, table, task

MEMBERS = 2


@pytest.fixture(scope="module")
def repeats():
    return task(values=5).evaluation("repeats").take(slice(None, None, 7))


@pytest.fixture(scope="module")
def plain():
    return task(values=5).evaluation("plain").take(slice(None, None, 7))


# Posteriors.


@pytest.mark.parametrize(("values", "every"), [(3, 1), (4, 1), (5, 1)])
@pytest.mark.parametrize("data", ["plain", "repeats"])
def test_the_uniform_posterior_equals_the_slow_reference(values, every, data):
    batch = task(values=values).evaluation(data).take(slice(None, None, every))
    expected = table(batch, ideal(values))
    torch.testing.assert_close(probes.uniform_posterior(batch), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("slots", [(2, 4), (3,)])
def test_it_does_so_with_repeats_in_the_middle(slots):
    batch = task(values=4, repeat_slots=slots).evaluation("repeats")
    torch.testing.assert_close(probes.uniform_posterior(batch), table(batch, ideal(4)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("data", ["plain", "repeats"])
def test_the_ideal_observer_reaches_the_elimination_floor(data):
    batch = task(values=5).evaluation(data)
    loss = float(probes.cross_entropy(probes.uniform_posterior(batch), batch))
    assert loss == pytest.approx(posteriors.elimination_floor(5), abs=1e-5)
    assert loss == pytest.approx(0.9575, abs=5e-5)


def test_used_values_by_hand():
    asked = task(values=3)
    batch = asked.batch(torch.tensor([[[2, 1, 2]]]), torch.tensor([[[3, 1, 2]]]))
    found = [[value for value in range(4) if row[value]] for row in probes.used_values(batch)[0, 0].tolist()]
    assert found == [[], [1], [1, 3]]
    assert probes.answers(batch)[0, 0].tolist() == [1, 3, 1]


def test_errors_against_a_posterior_by_hand():
    posterior = torch.zeros(1, 3, 2, 6)
    predicted = torch.zeros(MEMBERS, 3, 2, 6)
    predicted[0, 0, 0, 1], predicted[0, 2, 0, 5] = 0.5, -0.25
    predicted[1, 1, 1, 2] = 1.0
    predicted[..., 0] = 9.0
    error = probes.posterior_error(predicted, posterior)
    torch.testing.assert_close(error.mean, torch.tensor([[0.75 / 15, 0.0], [0.0, 1.0 / 15]]))
    torch.testing.assert_close(error.largest, torch.tensor([[0.5, 0.0], [0.0, 1.0]]))


def test_the_largest_error_is_the_true_maximum(repeats):
    posterior = probes.uniform_posterior(repeats)
    predicted = posterior.repeat(MEMBERS, 1, 1, 1)
    sample, slot, value = 11, 3, 2
    predicted[1, sample, slot, value] += 0.625
    error = probes.posterior_error(predicted, posterior)
    expected = torch.zeros(MEMBERS, 5)
    expected[1, slot] = 0.625
    torch.testing.assert_close(error.largest, expected)
    torch.testing.assert_close(error.mean, expected / (5 * repeats.inputs.shape[1]))


def test_the_ideal_observer_has_no_error_and_a_guesser_a_known_one(plain):
    posterior = probes.uniform_posterior(plain)
    error = probes.posterior_error(both(posterior, table(plain, guesser(5))), posterior)
    assert not error.mean[0].any() and not error.largest[0].any()
    for slot in range(5):
        unused = 5 - slot
        mean = (unused * abs(1 / unused - 1 / 5) + slot / 5) / 5
        largest = max(abs(1 / unused - 1 / 5), 1 / 5 if slot else 0.0)
        assert float(error.mean[1, slot]) == pytest.approx(mean, abs=1e-6)
        assert float(error.largest[1, slot]) == pytest.approx(largest, abs=1e-6)


def test_a_mask_leaves_out_sequences_slot_by_slot():
    posterior = torch.zeros(1, 3, 2, 6)
    posterior[0, 1, 0] = torch.nan
    posterior[0, :, 1] = torch.nan
    predicted = torch.zeros(MEMBERS, 3, 2, 6)
    predicted[0, 0, 0, 1], predicted[0, 2, 0, 5], predicted[1, 1, 0, 2] = 0.5, 0.25, 1.0
    defined = torch.tensor([[[True, False], [False, False], [True, False]]])
    error = probes.posterior_error(predicted, posterior, defined)
    nothing = math.nan
    torch.testing.assert_close(
        error.mean, torch.tensor([[0.75 / 10, nothing], [0.0, nothing]]), equal_nan=True
    )
    torch.testing.assert_close(error.largest, torch.tensor([[0.5, nothing], [0.0, nothing]]), equal_nan=True)


def test_a_mask_that_leaves_nothing_out_changes_no_error(model, plain):
    predicted, posterior = probes.predict(model, plain), probes.uniform_posterior(plain)
    every = torch.ones(posterior.shape[:-1], dtype=torch.bool)
    without, masked = (probes.posterior_error(predicted, posterior, mask) for mask in (None, every))
    torch.testing.assert_close(masked.mean, without.mean)
    assert torch.equal(masked.largest, without.largest)
    torch.testing.assert_close(
        probes.kl_divergence(posterior, predicted, every), probes.kl_divergence(posterior, predicted)
    )


# Divergence.


def test_kl_divergence_by_hand():
    reference = torch.tensor([[[[0.0, 0.5, 0.5, 0.0]], [[0.0, 0.25, 0.0, 0.75]]]])
    first = torch.tensor([[[[0.0, 0.25, 0.25, 0.5]], [[0.25, 0.25, 0.25, 0.25]]]])
    found = probes.kl_divergence(reference, both(first, reference))
    expected = (math.log(2) + 0.75 * math.log(3)) / 2
    torch.testing.assert_close(found, torch.tensor([[expected], [0.0]], dtype=torch.float64))


def test_kl_divergence_equals_a_plain_loop(model, plain):
    few = plain.take(slice(13))
    reference, predicted = probes.uniform_posterior(few), probes.predict(model, few)
    for member in range(MEMBERS):
        for slot in range(5):
            total = 0.0
            for r, p in zip(reference[0, :, slot].tolist(), predicted[member, :, slot].tolist(), strict=True):
                total += sum(a * math.log(a / b) for a, b in zip(r, p, strict=True) if a > 0)
            found = float(probes.kl_divergence(reference, predicted)[member, slot])
            assert found == pytest.approx(total / 13, abs=1e-6)


def test_a_guesser_diverges_by_what_elimination_is_worth(plain):
    found = probes.kl_divergence(probes.uniform_posterior(plain), table(plain, guesser(5)))
    expected = [[math.log(5 / (5 - slot)) for slot in range(5)]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6)


def test_kl_divergence_leaves_out_what_is_not_defined():
    reference = torch.tensor([[[[0.0, 1.0], [0.0, math.nan]], [[math.nan, 0.0], [math.nan, 1.0]]]])
    predicted = torch.full((1, 2, 2, 2), 0.5)
    defined = torch.tensor([[[True, False], [False, False]]])
    found = probes.kl_divergence(reference, predicted, defined)
    torch.testing.assert_close(
        found, torch.tensor([[math.log(2), math.nan]], dtype=torch.float64), equal_nan=True
    )


@pytest.mark.usefixtures("_subnormals")
def test_what_was_called_impossible_diverges_far_and_finitely(plain):
    never = torch.zeros(1, plain.inputs.shape[1], 5, 6)
    never[..., 0] = 1.0
    found = probes.kl_divergence(probes.uniform_posterior(plain), never)
    assert bool((found > 80.0).all()) and bool(found.isfinite().all())


# Used values.


def test_used_mass_by_hand():
    asked = task(values=3)
    batch = asked.batch(torch.tensor([[[2, 1, 3], [3, 2, 1]]]), torch.tensor([[[3, 1, 2], [3, 1, 2]]]))
    # Values in order: 1 3 2 and 2 1 3.
    predicted = torch.zeros(1, 2, 3, 4)
    predicted[0, 0, 0, 1] = 1.0
    predicted[0, 0, 1] = torch.tensor([0.0, 0.5, 0.25, 0.25])
    predicted[0, 1, 1] = torch.tensor([0.0, 0.5, 0.25, 0.25])
    predicted[0, 0, 2] = torch.tensor([0.5, 0.125, 0.25, 0.125])
    found = probes.used_mass(predicted, batch)
    torch.testing.assert_close(found.mean, torch.tensor([[0.0, 0.375, 0.125]], dtype=torch.float64))
    torch.testing.assert_close(found.largest, torch.tensor([[0.0, 0.5, 0.25]], dtype=torch.float64))


def test_an_eliminator_gives_used_values_nothing_and_a_guesser_their_share(plain):
    found = probes.used_mass(both(table(plain, eliminator(5)), table(plain, guesser(5))), plain)
    expected = torch.tensor([[0.0] * 5, [slot / 5 for slot in range(5)]], dtype=torch.float64)
    torch.testing.assert_close(found.mean, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.largest, expected, rtol=0, atol=1e-6)


def test_used_mass_refuses_sequences_in_which_a_used_value_is_right(repeats):
    with pytest.raises(ValueError, match=f"without a repeated x, found {repeats.inputs.shape[1]} with one"):
        probes.used_mass(probes.uniform_posterior(repeats), repeats)


# Accuracy and loss.


def test_accuracy_by_slot_by_hand(plain):
    right = torch.nn.functional.one_hot(probes.answers(plain), 6).float()
    wrong_at = right.clone()
    half = torch.arange(plain.inputs.shape[1]) % 2 == 0
    wrong_at[:, half, 3] = right[:, half, 3].roll(1, -1)
    found = probes.accuracy_by_slot(both(right, wrong_at), plain)
    share = 1.0 - float(half.float().mean())
    torch.testing.assert_close(
        found, torch.tensor([[1.0] * 5, [1.0, 1.0, 1.0, share, 1.0]], dtype=torch.float64)
    )


def test_a_guess_of_no_value_is_wrong(plain):
    nothing = torch.zeros(1, plain.inputs.shape[1], 5, 6)
    nothing[..., 0] = 1.0
    assert not probes.accuracy_by_slot(nothing, plain).any()


def test_cross_entropy_by_hand(plain):
    predicted = both(table(plain, guesser(5)), table(plain, ideal(5)))
    found = probes.cross_entropy(predicted, plain)
    expected = torch.tensor([math.log(5), math.log(math.factorial(5)) / 5])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.fixture(params=[False, True], ids=["subnormals kept", "subnormals flushed"])
def _subnormals(request):
    """Workers flush them."""
    torch.set_flush_denormal(request.param)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("_subnormals")
def test_cross_entropy_of_an_impossible_answer_is_large_and_finite(plain):
    never = torch.zeros(1, plain.inputs.shape[1], 5, 6)
    never[..., 0] = 1.0
    assert 80.0 < float(probes.cross_entropy(never, plain)) < math.inf


# Recall.


def test_the_perfect_recaller_and_the_perfect_eliminator(repeats):
    found = probes.repeat_probe(both(table(repeats, ideal(5)), table(repeats, eliminator(5))), repeats)
    assert found["recall"].tolist() == [1.0, 0.0]
    assert found["trapped"].tolist() == [0.0, 1.0]
    assert found["mass_recalled"].tolist() == [1.0, 0.0]
    assert found["mass_unused"].tolist() == [0.0, 1.0]
    expected = torch.tensor([[1.0] * 4 + [math.nan], [0.0] * 4 + [math.nan]], dtype=torch.float64)
    torch.testing.assert_close(found["recall_by_slot"], expected, equal_nan=True)


def test_a_share_is_not_rounded_across_a_threshold(repeats):
    """One of twenty is 5 %, which in float32 would be a little more."""
    few = repeats.take(slice(0, 20))
    predicted = table(few, eliminator(5))
    predicted[0, :1] = table(few, ideal(5))[0, :1]
    assert float(probes.repeat_probe(predicted, few)["recall"]) == 0.05


def test_the_uniform_guesser(repeats):
    found = probes.repeat_probe(table(repeats, guesser(5)), repeats)
    # Four of the five values are used, one of them rightly recalled; one is left over.
    assert float(found["mass_recalled"]) == pytest.approx(1 / 5)
    assert float(found["mass_unused"]) == pytest.approx(1 / 5)


def test_where_a_repeat_stands_in_the_middle_several_values_are_unused():
    batch = task(values=5, repeat_slots=(3,)).evaluation("repeats").take(slice(None, None, 11))
    found = probes.repeat_probe(both(table(batch, guesser(5)), table(batch, eliminator(5))), batch)
    torch.testing.assert_close(found["mass_recalled"], torch.tensor([1 / 5, 0.0]))
    torch.testing.assert_close(found["mass_unused"], torch.tensor([3 / 5, 1.0]))
    torch.testing.assert_close(
        found["recall_by_slot"][1].float(), torch.tensor([0.0, 0.0] + [math.nan] * 3), equal_nan=True
    )


def test_recall_by_source_tells_slots_apart(repeats):
    """A member that recalls only what stood in slots 2 and 4 and is trapped by the unused value otherwise."""
    source = repeats.relations["same_symbol"][0, :, -1] // 2 + 1
    able = (source == 2) | (source == 4)
    predicted = table(repeats, eliminator(5))
    predicted[0, able] = table(repeats, ideal(5))[0, able]
    found = probes.repeat_probe(predicted, repeats)
    torch.testing.assert_close(
        found["recall_by_slot"].float(), torch.tensor([[0.0, 1.0, 0.0, 1.0, math.nan]]), equal_nan=True
    )
    share = float(able.float().mean())
    assert float(found["recall"]) == pytest.approx(share)
    assert float(found["trapped"]) == pytest.approx(1.0 - share)


def test_a_wrong_used_value_is_neither_recall_nor_trap(repeats):
    last = repeats.inputs[0, :, 1::2]
    recalled = repeats.targets[0, :, -1]
    other = torch.where(last[:, 0] == recalled, last[:, 1], last[:, 0])
    predicted = table(repeats, guesser(5))
    predicted[0, :, -1] = torch.nn.functional.one_hot(other, 6).float()
    found = probes.repeat_probe(predicted, repeats)
    assert (float(found["recall"]), float(found["trapped"])) == (0.0, 0.0)


def test_the_probe_refuses_sequences_without_one_repeat(plain, repeats):
    with pytest.raises(ValueError, match="expected one repeated x in every sequence"):
        probes.repeat_probe(probes.uniform_posterior(plain), plain)
    twice = task(values=3).batch(torch.tensor([[[2, 2, 2]]]), torch.tensor([[[3, 1, 2]]]))
    with pytest.raises(ValueError, match="expected one repeated x in every sequence"):
        probes.repeat_probe(probes.uniform_posterior(twice), twice)


# Running models.


@pytest.fixture(scope="module")
def model():
    config = TransformerConfig(
        width=17,
        heads=3,
        head_dim=7,
        length=9,
        input_size=6,
        output_size=6,
        readout=(0, 2, 4, 6, 8),
        init="encoder",
    )
    return Transformer.initial(config, torch.tensor([19, 23]))


def test_predictions_are_probabilities_of_the_readout_rows(model, repeats):
    found = probes.predict(model, repeats)
    assert found.shape == (MEMBERS, repeats.inputs.shape[1], 5, 6) and not found.requires_grad
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
    for member in range(MEMBERS):
        logits = model.member(member)(repeats.inputs[0])[:, ::2]
        torch.testing.assert_close(found[member], logits.softmax(-1).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 13, 101, 10_007])
def test_the_size_of_a_chunk_changes_nothing(model, repeats, chunk):
    few = repeats.take(slice(103))
    pieces = list(few.pieces(chunk))
    assert all(piece.inputs.shape[1] <= chunk for piece in pieces)
    assert torch.equal(torch.cat([piece.targets for piece in pieces], 1), few.targets)
    torch.testing.assert_close(
        probes.predict(model, few, chunk), probes.predict(model, few), rtol=1e-5, atol=1e-6
    )


def test_mean_patterns_are_means_over_the_whole_batch(model):
    many = task(values=5).evaluation("repeats").take(slice(probes.CHUNK + 103))
    assert many.inputs.shape[1] > probes.CHUNK
    with torch.no_grad():
        _, captured = model.capture(many.inputs)
    expected = torch.stack([pattern.mean(1) for pattern in captured.patterns], 1)
    found = probes.mean_patterns(model, many)
    assert found.shape == (MEMBERS, 1, 3, 9, 9)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_mean_patterns_need_a_sample(model, repeats):
    with pytest.raises(ValueError, match="expected at least one sample, found none"):
        probes.mean_patterns(model, repeats.take(slice(0)))


# Records.


@pytest.mark.parametrize("sample", [1, 2, 3, 5])
def test_the_expected_maximum_is_the_mean_over_all_subsets(sample):
    values = torch.tensor([[0.3, 0.1, 0.7, 0.2, 0.5], [0.0, 0.0, 1.0, 0.0, 0.0]])
    expected = [
        sum(max(subset) for subset in itertools.combinations(row, sample)) / math.comb(5, sample)
        for row in values.tolist()
    ]
    assert probes.expected_maximum(values, sample).tolist() == pytest.approx(expected)


def test_a_sample_of_more_than_all_has_the_largest():
    assert probes.expected_maximum(torch.tensor([[0.3, 0.9]]), 7).tolist() == pytest.approx([0.9])
