"""Probes on features whose content is planted, and the fast fit against plain modules."""

import math

import pytest
import torch
from torch import nn

from hopscope import rng
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import decoding
from hopscope.studies.permutation.probes.decoding import Fit, fit_probes
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask

from .recallers import BY_CONTENT, HEAD_DIM, HIDDEN, ORDERED, UNORDERED, by_module, recallers

FEATURES, CLASSES = 7, 3
QUICK = Fit(steps=300, batch=64)


def normal(*shape, seed=0):
    return rng.normal_tensor(torch.tensor([seed]), "test", 0, shape)[0]


def whole(count, below, seed=0):
    words = rng.bits(seed, "test", 1, torch.arange(count))
    return rng.integers(words[:, 0], words[:, 1], below)


# Activations.


def small_model(**changes):
    shape = {
        "heads": 2,
        "head_dim": 5,
        "width": 11,
        "mlp_ratio": 2.0,
        "length": 7,
        "input_size": 5,
        "output_size": 5,
        "readout": (0, 2, 4, 6),
    }
    config = TransformerConfig(**{**shape, "init": "encoder", **changes})
    return Transformer.initial(config, torch.tensor([19, 23, 29]))


@pytest.mark.parametrize("row", [6, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "post", "activation": "relu"},
        {"norm": "pre"},
        {"norm": "none", "positions": "none"},
        {"norm": "post", "mlp_ratio": 0.0},
        {"norm": "pre", "mlp_ratio": 0.0, "causal": False},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_activations_are_those_of_the_plain_module(changes, row):
    model = small_model(**changes)
    inputs = PermutationTask(PermutationConfig(values=4)).evaluation("repeats").inputs[:, ::7]
    found = decoding.row_activations(model, inputs, row)
    with torch.no_grad():
        for member in range(3):
            module = model.member(member)
            before, after = by_module(module, inputs[0])
            torch.testing.assert_close(found.before[member], before[:, row], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found.after[member], after[:, row], rtol=1e-4, atol=1e-5)
            logits = module.readout(found.after[member])
            torch.testing.assert_close(logits, module(inputs[0])[:, row], rtol=1e-4, atol=1e-4)


def test_activations_need_one_layer_of_tokens():
    with pytest.raises(ValueError, match="expected a one-layer model of tokens, found 2 layers of tokens"):
        decoding.row_activations(small_model(layers=2), torch.ones(1, 3, 7, dtype=torch.long), 6)


# The fit against plain modules.


def by_torch(features, labels, hidden, fit):
    """One probe of one member: the slow obvious reference of `fit_probes`."""
    x = (features - features.mean(0)) / features.std(0, correction=0)
    if hidden is None:
        module = nn.Sequential(nn.Linear(FEATURES, CLASSES))
        starts = [torch.zeros(FEATURES, CLASSES)]
    else:
        module = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))
        seed = torch.tensor([fit.seed])
        starts = [
            rng.normal_tensor(seed, "probe", 0, (FEATURES, hidden), 1)[0] * math.sqrt(2 / FEATURES),
            rng.normal_tensor(seed, "probe", 0, (hidden, CLASSES), 2)[0] / math.sqrt(hidden),
        ]
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, start in zip(layers, starts, strict=True):
            layer.weight.copy_(start.T)
            layer.bias.zero_()
    optimizer = torch.optim.Adam(module.parameters(), lr=1.0)
    picks = fit.picks(len(labels), torch.device("cpu"))
    for step in range(fit.steps):
        optimizer.param_groups[0]["lr"] = fit.rate_at(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[picks[step]]), labels[picks[step]]).backward()
        optimizer.step()
    return layers


@pytest.mark.parametrize("hidden", [None, 5], ids=["linear", "mlp"])
def test_the_fit_equals_plain_modules_and_torchs_adam(hidden):
    fit = Fit(steps=23, batch=13, warmup=7, seed=3)
    first, second = normal(2, 101, FEATURES) * 3.0 + 1.0, normal(2, 71, FEATURES, seed=1)
    features = [first, second, first]
    labels = [whole(101, CLASSES), whole(71, CLASSES, seed=1), whole(101, CLASSES, seed=2)]
    found = fit_probes(features, labels, CLASSES, hidden, fit)
    for question in range(3):
        for member in range(2):
            layers = by_torch(features[question][member], labels[question], hidden, fit)
            for number, layer in enumerate(layers):
                weight, bias = (found.weights[2 * number + k][question, member] for k in (0, 1))
                torch.testing.assert_close(weight, layer.weight.detach().T, rtol=1e-3, atol=1e-5)
                torch.testing.assert_close(bias[0], layer.bias.detach(), rtol=1e-3, atol=1e-5)


def test_a_probe_depends_neither_on_other_members_nor_on_other_questions():
    features = [normal(3, 101, FEATURES), normal(3, 71, FEATURES, seed=1)]
    labels = [whole(101, CLASSES), whole(71, CLASSES, seed=1)]
    fit = Fit(steps=17, batch=11)
    together = fit_probes(features, labels, CLASSES, 5, fit)
    alone = fit_probes([features[1][2:]], labels[1:], CLASSES, 5, fit)
    for one, all_ in zip(alone.weights, together.weights, strict=True):
        torch.testing.assert_close(one[0, 0], all_[1, 2], rtol=1e-4, atol=1e-6)


def test_a_linear_probe_comes_close_to_the_best_one():
    """Logistic regression is convex: its least loss is known from another optimiser."""
    x, y = normal(1, 211, FEATURES), whole(211, CLASSES)
    y = torch.where(x[0, :, 0] + normal(211, seed=5) > 0.3, 0, y)
    probe = fit_probes([x], [y], CLASSES, None, Fit(steps=400, batch=101))
    scaled = ((x - probe.means[0]) / probe.deviations[0])[0]
    weight, bias = (
        torch.zeros(FEATURES, CLASSES, requires_grad=True),
        torch.zeros(CLASSES, requires_grad=True),
    )
    best = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss(weight, bias):
        return nn.functional.cross_entropy(scaled @ weight + bias, y)

    def closure():
        best.zero_grad()
        value = loss(weight, bias)
        value.backward()
        return value

    best.step(closure)
    least = float(loss(weight, bias).detach())
    reached = float(loss(probe.weights[0][0, 0], probe.weights[1][0, 0]))
    assert least < float(loss(torch.zeros(FEATURES, CLASSES), torch.zeros(CLASSES))) - 0.1
    assert least <= reached < least + 0.005


def test_the_rate_rises_and_falls():
    fit = Fit(steps=101, warmup=11, rate=0.5)
    rates = [fit.rate_at(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.5 / 11) and max(rates) > 0.48 and rates[-1] < 0.001
    assert rates[:11] == sorted(rates[:11]) and rates[11:] == sorted(rates[11:], reverse=True)
    assert Fit(steps=7, warmup=0).rate_at(0) == 0.01


def test_every_sequence_is_picked_about_equally_often():
    picks = Fit(steps=200, batch=100).picks(7, torch.device("cpu"))
    counts = picks.flatten().bincount()
    assert picks.shape == (200, 100) and counts.numel() == 7
    expected = 200 * 100 / 7
    assert (
        float(((counts - expected) ** 2 / expected).sum()) < 22.5
    )  # χ² with 6 degrees of freedom, p = 0.001
    assert not torch.equal(picks, Fit(steps=200, batch=100, seed=1).picks(7, torch.device("cpu")))


# Planted features.


def planted(content, count=2003, seed=0):
    """Features of two members, which hold the same content in different directions, and labels."""
    x = normal(count, FEATURES, seed=seed)
    y = {
        "separable": lambda: x[:, :CLASSES].argmax(-1),
        "exclusive": lambda: (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long(),
        "noise": lambda: whole(count, CLASSES, seed=seed),
    }[content]()
    x[:, :4] += x[:, :4].sign()  # a margin, so that no sample lies on a border
    if content == "separable":
        x = x + 4.0 * nn.functional.one_hot(y, FEATURES)
    directions = [torch.linalg.qr(normal(FEATURES, FEATURES, seed=5 + member))[0] for member in range(2)]
    return torch.stack([x @ direction for direction in directions]), y


def scores(content, hidden):
    (x, y), (new_x, new_y) = planted(content, seed=1), planted(content, seed=2)
    probes = fit_probes([x], [y], CLASSES, hidden, QUICK)
    return probes.accuracy(0, new_x, new_y).tolist(), float(new_y.bincount().max() / len(new_y))


@pytest.mark.parametrize("hidden", [None, 31], ids=["linear", "mlp"])
def test_both_probes_read_what_is_linearly_there(hidden):
    found, majority = scores("separable", hidden)
    assert min(found) > 0.99 and majority < 0.4


def test_only_the_mlp_reads_an_exclusive_or():
    linear, majority = scores("exclusive", None)
    mlp, _ = scores("exclusive", 31)
    assert majority < 0.53 and max(linear) < majority + 0.05
    assert min(mlp) > 0.98


@pytest.mark.parametrize("hidden", [None, 31], ids=["linear", "mlp"])
def test_neither_reads_noise(hidden):
    found, _ = scores("noise", hidden)
    # Four standard errors of a share of 1/3 in 2003 samples.
    assert all(abs(score - 1 / 3) < 4 * math.sqrt(2 / 9 / 2003) for score in found)


def test_a_feature_that_never_varies_does_no_harm():
    x, y = planted("separable")
    x = torch.cat((x, torch.full_like(x[..., :1], 7.0)), -1)
    probes = fit_probes([x], [y], CLASSES, None, QUICK)
    assert probes.accuracy(0, x, y).min() > 0.99


def test_a_member_that_is_not_finite_has_no_score_and_spoils_no_other():
    x, y = planted("separable")
    broken = torch.cat((torch.full_like(x[:1], torch.inf), x[:1]))
    found = fit_probes([broken], [y], CLASSES, 5, QUICK).accuracy(0, broken, y)
    alone = fit_probes([x[:1]], [y], CLASSES, 5, QUICK).accuracy(0, x[:1], y)
    assert found[0].isnan() and float(found[1]) == pytest.approx(float(alone[0]), abs=0.002)


# Sequences.


def test_chosen_sequences_repeat_at_the_last_slot_whatever_training_repeats():
    task = PermutationTask(PermutationConfig(values=4, repeat_slots=(3,), repeat_sources=(1,)))
    batch = decoding.chosen_sequences(task, "repeats", "held_out", 211)
    assert batch.inputs.shape == (1, 211, 7) and len({tuple(row) for row in batch.inputs[0].tolist()}) == 211
    sources = batch.relations["same_symbol"][0, :, -1]
    assert sorted(set(sources.tolist())) == [0, 2, 4]
    # Every held-out mapping, and none of the training ones.
    everything = decoding.chosen_sequences(task, "repeats", "held_out", 10_000)
    assert everything.inputs.shape[1] == task.split.count("held_out") * 24 * 3
    plain = decoding.chosen_sequences(task, "plain", "held_out", 10_000)
    order = plain.inputs[0, :, ::2].argsort(-1)
    values = torch.cat((plain.inputs[0, :, 1::2], plain.targets[0, :, -1:]), -1)
    assert not task.split.is_training(values.gather(-1, order)).any()


# The whole measurement on hand-built models.


@pytest.fixture(scope="module")
def measured():
    task = PermutationTask(PermutationConfig(values=4, repeat_ratio=0.3))
    return decoding.measure_decoding(recallers(), task, fit=Fit(steps=500, batch=128))


def held_out(pair, kind, member):
    return pair[kind]["held_out"][member]


def test_selection_is_found_in_the_mlp_of_the_model_that_selects(measured):
    """Before its MLP the right value is there, but not linearly; after it, linearly."""
    answer = measured["answer"]["repeats"]
    assert held_out(answer["before"], "linear", ORDERED) < 0.5
    assert held_out(answer["before"], "mlp", ORDERED) > 0.99
    assert held_out(answer["after"], "linear", ORDERED) > 0.99


@pytest.mark.parametrize("member", [UNORDERED, BY_CONTENT])
def test_where_only_the_set_is_kept_no_probe_recalls(measured, member):
    for site in ("before", "after"):
        for kind in ("linear", "mlp"):
            assert held_out(measured["answer"]["repeats"][site], kind, member) < 1 / 3 + 0.1
    for pair in measured["history"]:
        assert all(held_out(pair, kind, member) < 1 / 3 + 0.1 for kind in pair)


@pytest.mark.parametrize("member", [ORDERED, UNORDERED, BY_CONTENT])
def test_the_unused_value_is_read_from_the_set(measured, member):
    for site in ("before", "after"):
        for kind in ("linear", "mlp"):
            assert held_out(measured["answer"]["plain"][site], kind, member) > 0.99


def test_history_and_pointer_are_found_where_they_were_planted(measured):
    for pair in measured["history"]:
        assert held_out(pair, "linear", ORDERED) > 0.99 and held_out(pair, "mlp", ORDERED) > 0.99
    pointer = measured["pointer"]
    assert all(held_out(pointer, kind, member) > 0.99 for kind in pointer for member in (ORDERED, UNORDERED))
    assert all(held_out(pointer, kind, BY_CONTENT) < 0.35 for kind in pointer)


def test_each_slot_is_asked_for_its_own_value():
    """A model that does not read its third value can at best say which two are left."""
    model = recallers().select([ORDERED])
    model.weights["layers.0.attention.output.weight"][0, 2 * HEAD_DIM : 3 * HEAD_DIM] = 0.0
    task = PermutationTask(PermutationConfig(values=4))
    history = decoding.measure_decoding(model, task, fit=Fit(steps=150, batch=64))["history"]
    first, second, third = (held_out(pair, "linear", 0) for pair in history)
    assert min(first, second) > 0.99 and third < 1 / 2 + 0.1


def test_controls_show_nothing(measured):
    """Four standard errors, of 360 held-out sequences with a repeat."""
    error = 4 * math.sqrt(2 / 9 / 360)
    for member in range(3):
        for kind in ("linear", "mlp"):
            earlier = held_out(measured["answer"]["repeats"]["earlier_row"], kind, member)
            assert earlier < measured["floors"]["earlier_row"]["repeats"] + error
            assert held_out(measured["shuffled"], kind, member) < 1 / 4 + 2 * error


def test_floors_and_sizes(measured):
    floors = measured["floors"]
    assert (floors["uniform"], floors["used"]) == (1 / 4, 1 / 3)
    assert floors["earlier_row"] == {"repeats": 1 / 3, "plain": 1 / 2}
    assert measured["sequences"] == {
        "repeats": {"train": 19 * 24 * 3, "held_out": 5 * 24 * 3},
        "plain": {"train": 19 * 24, "held_out": 5 * 24},
    }
    assert measured["hidden"] == HIDDEN
    assert floors["majority"]["pointer"] == 1 / 4
    assert all(1 / 4 <= share < 0.4 for share in floors["majority"]["history"])


@pytest.mark.parametrize("values", [4, 3])
def test_the_answer_alone_has_the_same_numbers(values):
    task = PermutationTask(PermutationConfig(values=values))
    length = 2 * values - 1
    shape = {"length": length, "input_size": values + 1, "output_size": values + 1}
    model = small_model(**shape, readout=tuple(range(0, length, 2)))
    fit = Fit(steps=5, batch=7)
    answer = decoding.measure_answer(model, task, fit=fit)
    assert answer == decoding.measure_decoding(model, task, fit=fit)["answer"]


def test_the_measurement_repeats_itself_and_knows_a_broken_member():
    model = recallers()
    model.weights["embed.token.weight"][BY_CONTENT] = math.nan
    task = PermutationTask(PermutationConfig(values=4))
    few = {"training": 101, "held_out": 53, "hidden": 3, "fit": Fit(steps=5, batch=7)}
    first, second = (decoding.measure_decoding(model, task, **few) for _ in range(2))
    assert first == second
    assert first["hidden"] == 3 and first["sequences"]["repeats"] == {"train": 101, "held_out": 53}
    assert first["pointer"]["mlp"]["held_out"][BY_CONTENT] is None
    assert None not in first["pointer"]["mlp"]["held_out"][:BY_CONTENT]
