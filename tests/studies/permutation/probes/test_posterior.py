"""The training posterior against plain counting, and its measurements on observers whose answers are known."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.posteriors import mappings_posterior

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.probes.retrieval import json_numbers
from hopscope.studies.permutation.probes import posterior as measured
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.theory import posteriors

from .observers import Observers, both, guesser, ideal, mixture, table, task, trained

SEED = 3


def counted(batch, mappings):
    """Posterior and mask by counting mappings, sequence by sequence."""
    values, known = batch.inputs.shape[-1] // 2 + 1, mappings.tolist()
    rows, defined = [], []
    for inputs in batch.inputs.flatten(0, 1).tolist():
        xs, ys = inputs[::2], inputs[1::2]
        found = [mappings_posterior(xs[:slot], ys[:slot], xs[slot], known, values) for slot in range(values)]
        rows.append([[math.nan] * (values + 1) if row is None else [0.0, *row] for row in found])
        defined.append([row is not None for row in found])
    shape = batch.inputs.shape[:2]
    return torch.tensor(rows).unflatten(0, shape), torch.tensor(defined).unflatten(0, shape)


def assert_counted(batch, mappings):
    found = measured.training_posterior(batch, mappings)
    probabilities, defined = counted(batch, mappings)
    assert torch.equal(found.defined, defined)
    torch.testing.assert_close(found.probabilities, probabilities, rtol=0, atol=1e-6, equal_nan=True)


# The posterior.


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize("data", ["plain", "repeats"])
@pytest.mark.parametrize(("values", "every"), [(3, 1), (4, 7), (5, 211)])
def test_the_training_posterior_equals_the_slow_reference(values, every, data, split):
    asked = task(values=values, repeat_slots=(2, values))
    batch = asked.evaluation(data, split).take(slice(None, None, every))
    assert_counted(batch, measured.training_mappings(asked))


@given(st.data())
def test_it_does_so_for_any_mappings_and_any_repeats(data):
    values = data.draw(st.integers(3, 5))
    every = list(itertools.permutations(range(1, values + 1)))
    mappings = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=17, unique=True))
    sequences = st.tuples(
        st.lists(st.integers(1, values), min_size=values, max_size=values), st.sampled_from(every)
    )
    drawn = data.draw(st.lists(sequences, min_size=6, max_size=6))
    orders, shown = (
        torch.tensor(part).unflatten(0, (2, 3)) for part in zip(*drawn, strict=True)
    )  # two members with different sequences
    assert_counted(task(values=values).batch(orders, shown), torch.tensor(mappings))


def test_memory_is_bounded_in_pieces_that_change_nothing(monkeypatch):
    asked = task(values=6)
    mappings = measured.training_mappings(asked)
    batch = asked.evaluation("plain").take(slice(10_000))
    halves = [measured.training_posterior(batch.take(part), mappings)
              for part in (slice(5000), slice(5000, None))]  # fmt: skip
    sizes = []
    count = measured._counts
    monkeypatch.setattr(
        measured, "_counts", lambda part, *rest: sizes.append(part.inputs.shape[1]) or count(part, *rest)
    )
    pieces = measured.training_posterior(batch, mappings)
    assert len(sizes) > 1 and sum(sizes) == 10_000 and max(sizes) * len(mappings) <= 1 << 22
    defined, probabilities = (
        torch.cat([getattr(half, name) for half in halves], 1) for name in ("defined", "probabilities")
    )
    assert torch.equal(pieces.defined, defined)
    torch.testing.assert_close(pieces.probabilities, probabilities, rtol=0, atol=0, equal_nan=True)


def test_all_mappings_together_make_the_uniform_posterior():
    batch = task(values=4, repeat_slots=(3,)).evaluation("repeats")
    every = torch.tensor(list(itertools.permutations(range(1, 5))))
    found = measured.training_posterior(batch, every)
    assert bool(found.defined.all())
    torch.testing.assert_close(found.probabilities, probes.uniform_posterior(batch))


def test_without_a_mapping_nothing_is_defined():
    batch = task(values=3).evaluation("plain")
    found = measured.training_posterior(batch, torch.zeros(0, 3, dtype=torch.int64))
    assert not found.defined.any() and bool(found.probabilities.isnan().all())


def test_mappings_of_another_size_are_refused():
    asked = task(values=4)
    with pytest.raises(ValueError, match="expected mappings of 5 values, found 4"):
        measured.training_posterior(task(values=5).evaluation("plain"), measured.training_mappings(asked))


def test_training_mappings_are_those_of_the_split():
    asked = task(values=4, split_seed=SEED)
    mappings = measured.training_mappings(asked)
    assert len({tuple(mapping) for mapping in mappings.tolist()}) == len(mappings) == 19
    assert bool(asked.split.is_training(mappings).all())


def test_it_is_always_defined_on_training_mappings_and_reaches_their_floor():
    asked = task(values=5)
    batch = asked.evaluation("plain", "train")
    found = measured.training_posterior(batch, measured.training_mappings(asked))
    assert not (~found.defined).any()
    loss = float(probes.cross_entropy(found.probabilities, batch))
    assert loss == pytest.approx(posteriors.training_floor(5, 96), abs=1e-5)


@pytest.mark.parametrize("split_seed", [0, 1, 2])
def test_on_held_out_mappings_a_late_prefix_may_fit_none(split_seed):
    """At step 4 of 5 two mappings are left: the shown one, held out, and the one with the two last values swapped."""
    asked = task(values=5, split_seed=split_seed)
    batch = asked.evaluation("plain")
    found = measured.training_posterior(batch, measured.training_mappings(asked))
    found = (~found.defined[0]).double().mean(0).tolist()
    held_out = asked.split.mapping(torch.arange(24), "held_out").tolist()
    swapped = []
    for mapping in held_out:
        for one, other in itertools.combinations(range(5), 2):
            changed = list(mapping)
            changed[one], changed[other] = mapping[other], mapping[one]
            swapped.append(changed in held_out)
    assert found[3] == pytest.approx(sum(swapped) / len(swapped), abs=1e-12)
    assert 0.1 < found[3] < 0.3
    assert found[4] == 1.0 and found[:2] == [0.0, 0.0]


# Tilt.


@pytest.fixture(scope="module")
def asked():
    return task(values=5)


@pytest.fixture(scope="module")
def held_out(asked):
    return asked.evaluation("plain")


@pytest.fixture(scope="module")
def training(asked, held_out):
    return measured.training_posterior(held_out, measured.training_mappings(asked))


def leaning(held_out, training, share):
    """Predictions that lean by a share from the uniform posterior towards the training one."""
    uniform = probes.uniform_posterior(held_out)
    target = torch.where(training.defined[..., None], training.probabilities, uniform)
    return uniform + share * (target - uniform)


SHARES = (1.0, 0.25, -0.125)


@pytest.fixture(scope="module")
def planted(held_out, training):
    members = torch.cat([leaning(held_out, training, share) for share in SHARES])
    return measured.tilt(members, held_out, training, SEED)


def test_members_that_lean_as_training_does_have_a_correlation_of_one(planted):
    signs = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(planted["tilt_correlation"], signs, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        planted["tilt_correlation_by_step"][:, :4], signs[:, None].expand(-1, 4), rtol=0, atol=1e-5
    )
    assert bool(planted["tilt_correlation_by_step"][:, 4].isnan().all())


def test_the_slope_says_how_far_members_lean(planted):
    torch.testing.assert_close(
        planted["tilt_slope"], torch.tensor(SHARES, dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_the_control_shows_nothing_even_where_members_know_everything(planted):
    assert bool((planted["tilt_control"].abs() < 0.03).all())
    assert bool(planted["tilt_control"].all())


def test_the_control_follows_from_its_seed(held_out, training):
    predicted = leaning(held_out, training, 1.0)
    again, other = (measured.tilt(predicted, held_out, training, seed) for seed in (SEED, SEED + 1))
    assert torch.equal(
        again["tilt_control"], measured.tilt(predicted, held_out, training, SEED)["tilt_control"]
    )
    assert not torch.equal(again["tilt_control"], other["tilt_control"])
    assert torch.equal(again["tilt_correlation"], other["tilt_correlation"])


def test_the_control_keeps_the_tilts_and_hands_them_to_other_sequences(held_out, training):
    order = measured._shuffle(2880, SEED, 0, held_out.inputs.device)
    assert torch.equal(order.sort().values, torch.arange(2880))
    assert float((order == torch.arange(2880)).double().mean()) < 0.01
    assert not torch.equal(order, measured._shuffle(2880, SEED, 1, held_out.inputs.device))


def test_a_member_without_tilt_has_a_slope_of_zero_and_no_correlation(held_out, training):
    exact = probes.uniform_posterior(held_out)
    rounded = torch.where(training.probabilities > exact, exact.nextafter(torch.tensor(1.0)), exact)
    assert not torch.equal(rounded, exact)
    found = measured.tilt(both(exact, rounded), held_out, training, SEED)
    for number in (found["tilt_correlation"], found["tilt_correlation_by_step"], found["tilt_control"]):
        assert bool(number.isnan().all())
    torch.testing.assert_close(found["tilt_slope"], torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-6)


def test_where_training_does_not_lean_there_is_nothing_to_compare_with(asked, held_out):
    every = torch.tensor(list(itertools.permutations(range(1, 6))))
    even = measured.training_posterior(held_out, every)
    predicted = table(held_out.take(slice(0, 97)), trained(measured.training_mappings(asked).tolist(), 5))
    few = measured.TrainingPosterior(even.probabilities[:, :97], even.defined[:, :97])
    found = measured.tilt(predicted, held_out.take(slice(0, 97)), few, SEED)
    for number in (
        found["tilt_correlation"],
        found["tilt_correlation_by_step"],
        found["tilt_slope"],
        found["tilt_control"],
    ):
        assert bool(number.isnan().all())


@pytest.fixture(scope="module")
def model():
    return small(5, members=3)


def small(values, members):
    config = TransformerConfig(
        width=17,
        heads=3,
        head_dim=7,
        length=2 * values - 1,
        input_size=values + 1,
        output_size=values + 1,
        readout=tuple(range(0, 2 * values - 1, 2)),
        init="encoder",
    )
    return Transformer.initial(config, torch.arange(19, 19 + members))


def looped(predicted, batch, training, slots):
    """Tilts of one member and of training, point by point."""
    points = []
    for sequence, inputs in enumerate(batch.inputs[0].tolist()):
        for slot in slots:
            free = set(range(1, 6)) - set(inputs[1 : 2 * slot : 2])
            if bool(training.defined[0, sequence, slot]):
                even = 1 / len(free)
                points += [
                    (
                        float(predicted[sequence, slot, value]) - even,
                        float(training.probabilities[0, sequence, slot, value]) - even,
                    )
                    for value in free
                ]
    return torch.tensor(points, dtype=torch.float64).T


def test_tilts_of_any_members_equal_a_plain_loop(model, held_out, training):
    some = slice(None, None, 29)
    few = held_out.take(some)
    theirs = measured.TrainingPosterior(training.probabilities[:, some], training.defined[:, some])
    predicted = probes.predict(model, few)
    found = measured.tilt(predicted, few, theirs, SEED)
    for member in range(3):
        points = looped(predicted[member], few, theirs, range(4))
        assert float(found["tilt_correlation"][member]) == pytest.approx(
            float(points.corrcoef()[0, 1]), abs=1e-6
        )
        covariance = points.cov()
        assert float(found["tilt_slope"][member]) == pytest.approx(
            float(covariance[0, 1] / covariance[1, 1]), abs=1e-6
        )
        for slot in range(4):
            alone = looped(predicted[member], few, theirs, [slot]).corrcoef()[0, 1]
            assert float(found["tilt_correlation_by_step"][member, slot]) == pytest.approx(
                float(alone), abs=1e-6
            )
    assert float(found["tilt_correlation"].abs().min()) > 1e-3


def test_tilts_are_measured_on_sequences_without_repeats_that_members_share(asked, held_out, training):
    repeats = asked.evaluation("repeats").take(slice(0, 13))
    posterior = measured.training_posterior(repeats, measured.training_mappings(asked))
    with pytest.raises(ValueError, match="tilt: expected sequences without a repeated x, found 13"):
        measured.tilt(probes.uniform_posterior(repeats), repeats, posterior, SEED)
    drawn = asked.sample(torch.tensor([2, 3]), "train", 0, 13)
    posterior = measured.training_posterior(drawn, measured.training_mappings(asked))
    with pytest.raises(ValueError, match="expected the same sequences for all members, found 2 sets"):
        measured.tilt(probes.uniform_posterior(drawn), drawn, posterior, SEED)


# Memorised share.


def test_the_memorised_share_is_one_for_the_training_floor_and_is_not_clipped():
    uniform, floor = math.log(120) / 5, math.log(96) / 5
    losses = torch.tensor([floor, uniform, (floor + uniform) / 2, 2 * floor - uniform, math.log(5)])
    found = measured.memorised_share(losses, 5, 96)
    worst = (uniform - math.log(5)) / (uniform - floor)
    expected = torch.tensor([1.0, 0.0, 0.5, 2.0, worst], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


# Everything of a unit.


@pytest.fixture(scope="module")
def four():
    """V = 4: 19 training mappings, 5 held-out ones."""
    return task(values=4, split_seed=SEED)


@pytest.fixture(scope="module")
def observers(four):
    knows = trained(measured.training_mappings(four).tolist(), 4)
    return Observers(knows, ideal(4), guesser(4), mixture(ideal(4), knows, 0.5))


@pytest.fixture(scope="module")
def record(four, observers):
    return measured.measure_posteriors(observers, four, 50_000)


def test_the_record_is_json_and_lists_every_member(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    for name, value in record.items():
        if isinstance(value, list):
            assert len(value) == 4, name
            rows = [row for row in value if isinstance(row, list)]
            assert all(len(row) == 4 for row in rows) and len(rows) in (0, 4), name


def test_the_record_says_what_was_measured(record):
    assert record["sequences"] == {"train": 19 * 24, "held_out": 5 * 24}
    assert record["exhaustive"] == {"train": True, "held_out": True}
    assert record["training_mappings"] == 19
    assert record["uniform_floor"] == pytest.approx(math.log(24) / 4)
    assert record["training_floor"] == pytest.approx(math.log(19) / 4)


def test_each_observer_is_no_distance_from_itself(record):
    for split, steps in (("train", 4), ("held_out", 3)):
        for measure in ("kl", "mae", "max_ae"):
            for observer, member in (("training", 0), ("uniform", 1)):
                found = record[f"{measure}_{observer}_{split}"][member]
                assert found[:steps] == pytest.approx([0.0] * steps, abs=1e-6)


def test_observers_differ_by_the_gap_of_their_floors(record):
    """Over training mappings the losses of two observers differ by the divergence of one from the other."""
    gap = math.log(24) / 4 - math.log(19) / 4
    assert sum(record["kl_training_train"][1]) / 4 == pytest.approx(gap, abs=1e-6)
    guess = sum(record["kl_uniform_held_out"][2]) / 4
    assert guess == pytest.approx(math.log(4) - math.log(24) / 4, abs=1e-6)


def test_nothing_is_compared_where_no_training_mapping_fits(record, four):
    assert record["undefined_share"]["train"] == [0.0] * 4
    shares = record["undefined_share"]["held_out"]
    assert shares[0] == 0.0 and 0.0 < shares[2] < 1.0 and shares[3] == 1.0
    for measure in ("kl", "mae", "max_ae"):
        for row in record[f"{measure}_training_held_out"]:
            assert row[3] is None and None not in row[:3]
        assert all(None not in row for row in record[f"{measure}_uniform_held_out"])


def test_held_out_distances_are_those_on_defined_prefixes_alone(record, four):
    batch = four.evaluation("plain")
    reference, defined = counted(batch, measured.training_mappings(four))
    for slot in range(3):
        rows = reference[0, defined[0, :, slot], slot, 1:].double()
        assert record["mae_training_held_out"][2][slot] == pytest.approx(
            float((rows - 1 / 4).abs().mean()), abs=1e-6
        )
        assert record["max_ae_training_held_out"][2][slot] == pytest.approx(
            float((rows - 1 / 4).abs().max()), abs=1e-6
        )
        kl = torch.special.xlogy(rows, rows * 4).sum(1).mean()
        assert record["kl_training_held_out"][2][slot] == pytest.approx(float(kl), abs=1e-6)


def test_losses_and_memorised_shares_of_observers(record):
    floors = (math.log(19) / 4, math.log(24) / 4, math.log(4))
    assert record["train_loss_exhaustive"][:3] == pytest.approx(floors, abs=1e-6)
    assert record["memorised_share"][:2] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert record["memorised_share"][2] < -1.0
    assert 0.5 < record["memorised_share"][3] < 1.0  # half of the way in probability is more in loss
    assert record["held_out_loss"][1:3] == pytest.approx(floors[1:], abs=1e-6)


def test_tilts_of_observers(record):
    assert record["tilt_correlation"][0] == pytest.approx(1.0, abs=1e-6)
    assert record["tilt_correlation"][3] == pytest.approx(1.0, abs=1e-6)
    assert record["tilt_slope"] == pytest.approx([1.0, 0.0, record["tilt_slope"][2], 0.5], abs=1e-6)
    assert record["tilt_correlation"][1] is None and record["tilt_control"][1] is None
    assert record["tilt_correlation_by_step"][0] == pytest.approx([1.0, 1.0, 1.0, None], abs=1e-6)
    assert record["tilt_correlation_by_step"][1] == [None] * 4
    assert abs(record["tilt_control"][0]) < 0.2  # 120 sequences


def test_who_knows_the_training_mappings_is_worse_on_held_out_ones(record, four, observers):
    by_hand = {}
    for split in ("train", "held_out"):
        batch = four.evaluation("plain", split)
        best = table(batch, observers.observers[0])[0].argmax(-1)
        right = batch.targets[0]
        count = batch.inputs.shape[1]
        by_hand[split] = [
            sum(int(best[n, slot]) == int(right[n, slot]) for n in range(count)) / count for slot in range(4)
        ]
    assert record["accuracy_train_by_step"][0] == pytest.approx(by_hand["train"])
    assert record["accuracy_held_out_by_step"][0] == pytest.approx(by_hand["held_out"])
    gaps = [train - held_out for train, held_out in zip(*by_hand.values(), strict=True)]
    assert record["train_minus_held_out_by_step"][0] == pytest.approx(gaps)
    assert record["train_minus_held_out"][0] == pytest.approx(sum(gaps[:3]) / 3)
    assert record["train_minus_held_out"][0] > 0.05
    assert by_hand["held_out"][2] < 1 / 2 < by_hand["train"][2]


def test_used_values_of_observers(record):
    for name in ("used_mass_mean", "used_mass_largest"):
        assert record[name][1] == pytest.approx([0.0] * 4, abs=1e-6)
        assert record[name][2] == pytest.approx([0.0, 1 / 4, 2 / 4, 3 / 4], abs=1e-6)


NEEDS_POSTERIOR = {
    *(f"{measure}_training_{split}" for measure in ("kl", "mae", "max_ae") for split in measured.SPLITS),
    *("tilt_correlation", "tilt_correlation_by_step", "tilt_slope", "tilt_control"),
}


@pytest.mark.parametrize(("held_out_share", "listed"), [(0.2, False), (0.9, True)])
def test_seven_values_are_sampled_and_listed_only_where_few_are_trained(held_out_share, listed):
    asked = task(values=7, held_out_share=held_out_share)
    found = measured.measure_posteriors(small(7, members=2), asked, 23)
    assert found["sequences"] == {"train": 23, "held_out": 23}
    assert found["exhaustive"] == {"train": False, "held_out": False}
    lacking = {name for name, value in found.items() if value is None}
    assert lacking == (set() if listed else NEEDS_POSTERIOR)
    assert [share is None for share in found["undefined_share"].values()] == [not listed] * 2
    assert all(share is not None and share < 0.0 for share in found["memorised_share"])


def test_tilts_and_used_values_are_those_of_held_out_sequences(model, asked):
    record = measured.measure_posteriors(model, asked, 211)
    batch = asked.evaluation("plain", "held_out", limit=211)
    predicted = probes.predict(model, batch)
    posterior = measured.training_posterior(batch, measured.training_mappings(asked))
    tilt = measured.tilt(predicted, batch, posterior, asked.config.split_seed)
    used = probes.used_mass(predicted, batch)
    for name, numbers in {
        **tilt,
        "used_mass_mean": used.mean,
        "used_mass_largest": used.largest,
    }.items():
        assert record[name] == json_numbers(numbers), name


def test_a_member_is_measured_alike_alone_and_among_others(model, asked):
    limit = 211
    together = measured.measure_posteriors(model, asked, limit)
    alone = measured.measure_posteriors(model.select([1]), asked, limit)
    for name, value in together.items():
        if isinstance(value, list):
            assert alone[name][0] == pytest.approx(value[1], abs=2e-5), name
        else:
            assert alone[name] == value
