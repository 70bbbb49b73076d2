"""Probes on hand-made probabilities whose answers are known without any of the probes' own code."""

import math

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.probes import permutation as probes
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.theory import posteriors

MEMBERS = 2


def task(**changes):
    return PermutationTask(PermutationConfig(**changes))


def table(batch, row_of):
    """Probabilities `[1, batch, slot, output]` from `row_of(xs, ys, x)`, a list for the values 1 … V."""
    rows = []
    for inputs in batch.inputs[0].tolist():
        xs, ys = inputs[::2], inputs[1::2]
        rows.append([[0.0, *row_of(xs[:slot], ys[:slot], xs[slot])] for slot in range(len(xs))])
    return torch.tensor(rows)[None]


def ideal(values):
    return lambda xs, ys, x: posteriors.uniform_posterior(xs, ys, x, values)


def eliminator(values):
    """Never sees that an x comes back: uniform over the values not shown yet."""

    def row(xs, ys, x):
        free = [value not in ys for value in range(1, values + 1)]
        return [is_free / sum(free) for is_free in free]

    return row


def guesser(values):
    return lambda xs, ys, x: [1.0 / values] * values


def both(first, second):
    """Two members with different answers."""
    return torch.cat((first, second))


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
    assert found.recall.tolist() == [1.0, 0.0]
    assert found.trapped.tolist() == [0.0, 1.0]
    assert found.mass_recalled.tolist() == [1.0, 0.0]
    assert found.mass_unused.tolist() == [0.0, 1.0]
    expected = torch.tensor([[1.0] * 4 + [math.nan], [0.0] * 4 + [math.nan]], dtype=torch.float64)
    torch.testing.assert_close(found.recall_by_source, expected, equal_nan=True)


def test_a_share_is_not_rounded_across_a_threshold(repeats):
    """One of twenty is 5 %, which in float32 would be a little more."""
    few = repeats.take(slice(0, 20))
    predicted = table(few, eliminator(5))
    predicted[0, :1] = table(few, ideal(5))[0, :1]
    assert float(probes.repeat_probe(predicted, few).recall) == 0.05


def test_the_uniform_guesser(repeats):
    found = probes.repeat_probe(table(repeats, guesser(5)), repeats)
    # Four of the five values are used, one of them rightly recalled; one is left over.
    assert float(found.mass_recalled) == pytest.approx(1 / 5)
    assert float(found.mass_unused) == pytest.approx(1 / 5)


def test_where_a_repeat_stands_in_the_middle_several_values_are_unused():
    batch = task(values=5, repeat_slots=(3,)).evaluation("repeats").take(slice(None, None, 11))
    found = probes.repeat_probe(both(table(batch, guesser(5)), table(batch, eliminator(5))), batch)
    torch.testing.assert_close(found.mass_recalled, torch.tensor([1 / 5, 0.0]))
    torch.testing.assert_close(found.mass_unused, torch.tensor([3 / 5, 1.0]))
    torch.testing.assert_close(
        found.recall_by_source[1].float(), torch.tensor([0.0, 0.0] + [math.nan] * 3), equal_nan=True
    )


def test_recall_by_source_tells_slots_apart(repeats):
    """A member that recalls only what stood in slots 2 and 4 and is trapped by the unused value otherwise."""
    source = repeats.relations["same_symbol"][0, :, -1] // 2 + 1
    able = (source == 2) | (source == 4)
    predicted = table(repeats, eliminator(5))
    predicted[0, able] = table(repeats, ideal(5))[0, able]
    found = probes.repeat_probe(predicted, repeats)
    torch.testing.assert_close(
        found.recall_by_source.float(), torch.tensor([[0.0, 1.0, 0.0, 1.0, math.nan]]), equal_nan=True
    )
    share = float(able.float().mean())
    assert float(found.recall) == pytest.approx(share)
    assert float(found.trapped) == pytest.approx(1.0 - share)


def test_a_wrong_used_value_is_neither_recall_nor_trap(repeats):
    last = repeats.inputs[0, :, 1::2]
    recalled = repeats.targets[0, :, -1]
    other = torch.where(last[:, 0] == recalled, last[:, 1], last[:, 0])
    predicted = table(repeats, guesser(5))
    predicted[0, :, -1] = torch.nn.functional.one_hot(other, 6).float()
    found = probes.repeat_probe(predicted, repeats)
    assert (float(found.recall), float(found.trapped)) == (0.0, 0.0)


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
        init="torch",
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
    pieces = list(probes.chunks(few, chunk))
    assert all(piece.inputs.shape[1] <= chunk for piece in pieces)
    assert torch.equal(torch.cat([piece.targets for piece in pieces], 1), few.targets)
    torch.testing.assert_close(
        probes.predict(model, few, chunk), probes.predict(model, few), rtol=1e-5, atol=1e-6
    )


def test_mean_patterns_are_means_over_the_whole_batch(model, repeats, monkeypatch):
    few = repeats.take(slice(103))
    with torch.no_grad():
        _, captured = model.capture(few.inputs)
    expected = torch.stack([pattern.mean(1) for pattern in captured.patterns], 1)
    monkeypatch.setattr(probes, "CHUNK", 13)
    found = probes.mean_patterns(model, few)
    assert found.shape == (MEMBERS, 1, 3, 9, 9)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_mean_patterns_need_a_sample(model, repeats):
    with pytest.raises(ValueError, match="expected at least one sample, found none"):
        probes.mean_patterns(model, repeats.take(slice(0)))
