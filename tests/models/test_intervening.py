"""Interventions on a member and on an ensemble: values and functions, two forward passes, one meaning."""

from dataclasses import replace

import pytest
import torch
from tests.oracles.edits import Edited
from tests.oracles.sites import site_shape

from hopscope.errors import UserError
from hopscope.models import intervening
from hopscope.models.interventions import AblateHead, AblateMLP, ReplacePattern, Site, SwapValues
from hopscope.models.sites import site_names
from hopscope.models.transformer import Transformer

from .samples import (
    BATCH,
    HEADS,
    MEMBERS,
    OUTPUT,
    POSITIONS,
    SEEDS,
    VARIANTS,
    batch,
    config,
    inputs,
    lively,
    only,
)

KIND = {"kind": 1}
PATTERN = "blocks.0.attn.hook_pattern"


def site(slot, relation=None):
    return Site(roles={"slot": slot}, relation=relation)


VALUES = {
    "nothing": [],
    "uniform": [ReplacePattern(layer=0, by="uniform")],
    "one-hot": [ReplacePattern(layer=0, heads=(0,), rows=KIND, by="one_hot", relation="past")],
    "mean pattern": [ReplacePattern(layer=0, rows=KIND, by="mean")],
    "symbols": [SwapValues(layer=0, heads=(0,), what="symbol", first=site(2), second=site(7))],
    "streams": [SwapValues(layer=0, what="stream", first=site(3, "past"), second=site(6))],
    "mean heads": [AblateHead(layer=0, by="mean")],
    "resampled heads": [AblateHead(layer=0, heads=(0,), by="resample")],
    "several": [
        AblateHead(layer=0, heads=(0,), rows=KIND, by="zero"),
        ReplacePattern(layer=0, by="identity"),
        SwapValues(layer=0, what="position", first=site(1), second=site(9)),
    ],
}
"""Every model has what these ask for."""


@pytest.fixture(params=VARIANTS)
def model(request):
    return lively(config(**VARIANTS[request.param]))


DIFFERENT = [
    "as it is",
    "post-norm",
    "no MLP",
    "not causal",
    "no positions",
    "some positions read out",
    "vectors with a position part",
]
"""Models in which a value is applied differently."""


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


def alone(data, member):
    """The batch of one member, without a member axis."""
    return data.changed(lambda tensor: tensor[member if len(tensor) > 1 else 0])


def both(model, data, interventions, **options):
    """Predictions of the ensemble, which must be those of its members."""
    found = model.intervene(data, interventions, **options)
    assert found.shape == (MEMBERS, BATCH, len(model.config.readout_positions), OUTPUT)
    assert not found.requires_grad
    for member in range(MEMBERS):
        close(model.member(member).intervene(alone(data, member), interventions, **options), found[member])
    return found


# Values.


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("model", DIFFERENT, indirect=True)
def test_values_are_those_of_plain_loops_over_samples_and_rows(model, name):
    data, rows = batch(model.config), list(model.config.readout_positions)
    found = both(model, data, VALUES[name])
    means = model.means(data.inputs)
    for member in range(MEMBERS):
        own = (means.patterns[member], means.heads[member], means.mlps[member])
        module = model.member(member)
        edited = Edited(VALUES[name], only(data, member), own, causal=model.config.causal, module=module)
        with torch.no_grad():
            expected = module(data.inputs[member], edited)[:, rows]
        close(found[member], expected)


@pytest.mark.parametrize("name", [name for name in VALUES if name != "nothing"])
def test_values_change_something_where_every_weight_matters(name):
    model = lively(config())
    data = batch(model.config)
    clean, found = model.intervene(data, []), model.intervene(data, VALUES[name])
    assert ((found - clean).abs().amax((1, 2, 3)) > 1e-3).all()
    close(clean, model(data.inputs).detach())


def test_a_fresh_member_agrees_to_a_millionth():
    model = Transformer.initial(config(), SEEDS)
    data = batch(model.config)
    interventions = [ReplacePattern(layer=1, by="uniform"), AblateMLP(layer=2, by="mean"), {PATTERN: later}]
    found = model.intervene(data, interventions)
    for member in range(MEMBERS):
        expected = model.member(member).intervene(alone(data, member), interventions)
        close(found[member], expected, rtol=1e-6, atol=1e-6)


def test_means_are_over_the_batch_itself_or_over_given_samples():
    model = lively(config())
    data = batch(model.config)
    interventions = [
        AblateHead(layer=1, by="mean"),
        AblateMLP(layer=0, by="mean"),
        ReplacePattern(layer=2, by="mean"),
    ]
    itself = both(model, data, interventions)
    other = inputs(model.config, members=1).roll(1, 2)
    found = both(model, data, interventions, means=other)
    assert (found - itself).abs().max() > 0.01
    close(both(model, data, interventions, means=other[0]), found)
    close(
        both(model, data, interventions, means=replace(batch(model.config, members=1), inputs=other)), found
    )
    with pytest.raises(
        UserError, match=r"means: expected samples of 11 positions, as the batch has, found 5"
    ):
        model.intervene(data, interventions, means=other[..., :5])


def test_a_batch_may_come_without_a_member_axis_or_with_one_of_1():
    model = lively(config())
    shared = batch(model.config, members=1)
    interventions = [ReplacePattern(layer=0, rows=KIND, by="one_hot", relation="past"), {PATTERN: later}]
    plain = alone(shared, 0)
    assert plain.inputs.shape == plain.roles["kind"].shape == (BATCH, POSITIONS)
    found = model.intervene(shared, interventions)
    assert torch.equal(model.intervene(plain, interventions), found)
    for member in range(MEMBERS):
        module = model.member(member)
        assert torch.equal(module.intervene(shared, interventions), module.intervene(plain, interventions))
        close(module.intervene(plain, interventions), found[member])


def test_roles_are_read_only_where_an_intervention_names_them():
    def unread():
        raise AssertionError("read")

    model = lively(config())
    data = replace(batch(model.config), roles={"kind": unread}, relations={"past": unread})
    for given in (data, alone(data, 0)):
        model.intervene(given, [ReplacePattern(layer=0, by="uniform"), {PATTERN: later}])
    with pytest.raises(AssertionError, match="read"):
        model.intervene(data, [ReplacePattern(layer=0, rows=KIND, by="uniform")])


# Functions.


def later(pattern):
    return pattern.roll(1, -1)


def shifted(tensor):
    """A change of any tensor that its softmax, or the norm after it, cannot undo."""
    return torch.where(
        tensor.isfinite(), tensor * 0.7 + tensor.roll(1, -1).nan_to_num(neginf=0.0) * 0.2, tensor
    )


def test_a_function_at_any_site_changes_both_forward_passes_alike(model):
    data = batch(model.config)
    clean = model.intervene(data, [])
    for name in site_names(model.config):
        shape = site_shape(name, model.config, BATCH)
        seen = []

        def watched(tensor, seen=seen):
            seen.append(tuple(tensor.shape))
            return shifted(tensor)

        found = both(model, data, {name: watched})
        assert seen == [(MEMBERS, *shape), *[shape] * MEMBERS], name
        assert ((found - clean).abs().amax((1, 2, 3)) > 1e-4).all(), name


def test_a_function_sees_what_the_cache_holds(model):
    data = batch(model.config)
    cache, seen = model.cache(data.inputs), {}

    def looking(name):
        def function(tensor):
            seen[name] = tensor
            return tensor

        return function

    found = model.intervene(data, {name: looking(name) for name in cache})
    assert list(seen) == list(cache)
    for name, tensor in cache.items():
        assert torch.equal(seen[name], tensor), name
    assert torch.equal(found, cache["predictions"])


@pytest.mark.parametrize("causal", [True, False])
def test_the_uniform_pattern_as_a_value_is_the_function_that_writes_it(causal):
    model = lively(config(causal=causal))
    data = batch(model.config)
    visible = torch.ones(POSITIONS, POSITIONS).tril() if causal else torch.ones(POSITIONS, POSITIONS)
    uniform = visible / visible.sum(-1, keepdim=True)
    by_value = both(model, data, [ReplacePattern(layer=1, by="uniform")])
    by_function = both(model, data, {"blocks.1.attn.hook_pattern": uniform.expand_as})
    close(by_value, by_function, rtol=1e-6, atol=1e-6)
    assert (by_value - model.intervene(data, [])).abs().max() > 0.1


def test_a_zeroed_head_as_a_value_is_the_function_that_zeroes_it():
    def without_two(z):
        z[..., 2, :] = 0.0
        return z

    model = lively(config())
    data = batch(model.config)
    by_value = both(model, data, [AblateHead(layer=2, heads=(2,), by="zero")])
    close(both(model, data, {"blocks.2.attn.hook_z": without_two}), by_value)
    assert (by_value - model.intervene(data, [])).abs().max() > 0.01


def test_values_come_before_functions_and_functions_in_their_order():
    model = lively(config())
    data = batch(model.config)
    uniform, seen = ReplacePattern(layer=0, by="uniform"), []

    def halved(pattern):
        seen.append(pattern.clone())
        return pattern / 2.0

    found = model.intervene(data, [{PATTERN: halved}, uniform, {PATTERN: torch.sqrt}])
    assert torch.equal(model.cache(data.inputs)[PATTERN].new_tensor(1 / 2), seen[0][0, 0, 0, 1, 1])
    close(found, model.intervene(data, [uniform, {PATTERN: lambda pattern: (pattern / 2.0).sqrt()}]))
    other_order = model.intervene(data, [uniform, {PATTERN: torch.sqrt}, {PATTERN: halved}])
    assert (found - other_order).abs().max() > 0.01


def test_exchanged_values_come_from_the_stream_that_a_function_has_changed():
    model = lively(config())
    data = batch(model.config)
    swap = SwapValues(layer=1, what="stream", first=site(2), second=site(7))
    found = both(model, data, [swap, {"blocks.1.hook_resid_pre": torch.sin}])
    assert (found - both(model, data, [swap])).abs().max() > 0.01
    assert (found - both(model, data, {"blocks.1.hook_resid_pre": torch.sin})).abs().max() > 0.01


def test_a_function_may_change_its_tensor_in_place_and_nothing_else_changes(model):
    data, weights = batch(model.config, members=1), model.parameters.flat.clone()
    before = data.inputs.clone()
    names = site_names(model.config)
    changed = model.intervene(data, {name: lambda tensor: tensor.mul_(0.5) for name in names})
    replaced = model.intervene(data, {name: lambda tensor: tensor * 0.5 for name in names})
    assert torch.equal(changed, replaced)
    assert torch.equal(model.parameters.flat, weights) and torch.equal(data.inputs, before)


def test_functions_run_in_the_general_pass_of_models_that_have_a_faster_one():
    shape = config(layers=1, input_size=7)
    looked_up, fused = lively(shape), lively(config())
    fused = Transformer(fused.config, fused.parameters, attention="fused")
    for model in (looked_up, fused):
        data = batch(model.config)
        assert (both(model, data, {PATTERN: later}) - model.intervene(data, [])).abs().max() > 0.01


# What is refused.


def refusal(model, data, interventions, **options):
    """The complaint, which member and ensemble must have in common."""
    with pytest.raises(UserError) as caught:
        model.intervene(data, interventions, **options)
    with pytest.raises(UserError) as of_member:
        model.member(0).intervene(alone(data, 0), interventions, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value), str(of_member.value)


@pytest.mark.parametrize(
    ("interventions", "complaint"),
    [
        (
            {"blocks.0.attn.hook_paterns": later},
            "found 'blocks.0.attn.hook_paterns'; close to it: blocks.0.attn.hook_pattern",
        ),
        (
            [{"blocks.3.hook_resid_pre": later}],
            "site: expected a site of this model (3 layers, counted from 0), found 'blocks.3.hook_resid_pre'",
        ),
        (
            {"xyz": later},
            "close to it: hook_embed, hook_pos_embed, blocks.L.hook_resid_pre, blocks.L.attn.hook_q",
        ),
        ([AblateHead(layer=3, by="zero")], "layer: expected 0 to 2, found 3"),
        ([AblateHead(layer=0, heads=(HEADS,), by="zero")], "heads: expected some of 0 to 4, found (5,)"),
        (
            [AblateHead(layer=0, rows={"colour": 1}, by="zero")],
            "role: expected one of ['kind', 'slot'], found 'colour'",
        ),
    ],
)
def test_what_does_not_exist_is_one_clear_line(interventions, complaint):
    model = lively(config())
    for found in refusal(model, batch(model.config), interventions):
        assert complaint in found


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda z: z[..., :3], "float32 [{lead}13, 11, 5, 3]"),
        (lambda z: z.double(), "float64 [{lead}13, 11, 5, 7]"),
        (lambda z: None, "None"),
        (lambda z: 0.5, "float"),
    ],
)
def test_a_function_must_return_a_tensor_of_the_same_shape(function, found):
    model = lively(config())
    name = "blocks.1.attn.hook_z"
    ensemble, member = refusal(model, batch(model.config), {name: function})
    for complaint, lead in ((ensemble, "2, "), (member, "")):
        assert complaint.startswith(f"{name}: expected a function")
        assert f"float32 [{lead}13, 11, 5, 7], found {found.format(lead=lead)}; " in complaint


@pytest.mark.parametrize(
    ("interventions", "complaint"),
    [
        (ReplacePattern(layer=0, by="uniform"), "found ReplacePattern; put it into a list"),
        (later, "found function; put it into a list"),
        ({PATTERN: 3}, "hook_pattern: expected a function of the tensor at this site, found 3"),
        (["uniform"], "and dicts from site to function, found 'uniform'"),
        ("uniform", "and dicts from site to function, found 'u'"),
    ],
)
def test_what_is_no_intervention_is_one_clear_line(interventions, complaint):
    with pytest.raises(UserError, match=complaint):
        intervening.parted(interventions, config())


@pytest.mark.parametrize(
    ("changes", "given", "complaint"),
    [
        (
            {},
            torch.zeros(3, dtype=torch.int64),
            "expected tokens [batch, position], with or without a member axis",
        ),
        (
            {},
            torch.zeros(3, 2, 11, dtype=torch.int64),
            "expected no member axis, or one of 1 or 2, found one of 3",
        ),
        ({}, torch.zeros(3, 12, dtype=torch.int64), "expected 1 to 11 positions, found 12"),
        ({}, torch.zeros(3, 11), "expected token ids as int64, found float32 [1, 3, 11]"),
        ({}, torch.full((3, 11), 23), "expected token ids from 0 to 22, found 23 to 23"),
        ({}, torch.full((3, 11), -1), "expected token ids from 0 to 22, found -1 to -1"),
        (
            {"input_kind": "vectors"},
            torch.zeros(3, 11, 7),
            "float32 vectors of 23 features, found float32 [1, 3, 11, 7]",
        ),
        ({"input_kind": "vectors"}, torch.zeros(3, 11, 23).double(), "found float64 [1, 3, 11, 23]"),
        ({"input_kind": "vectors"}, torch.zeros(3, 11), "expected vectors [batch, position, feature]"),
        ({}, "tokens", "found str"),
    ],
)
def test_inputs_that_a_model_cannot_read_are_one_clear_line(changes, given, complaint):
    with pytest.raises(UserError) as caught:
        intervening.checked(given, config(**changes), MEMBERS)
    assert complaint in str(caught.value) and str(caught.value).startswith("inputs: ")


def test_a_member_refuses_the_samples_of_several():
    model = lively(config())
    data = batch(model.config)
    with pytest.raises(UserError, match="inputs: expected no member axis, or one of 1, found one of 2"):
        model.member(0).intervene(data, [])
    with pytest.raises(UserError, match="inputs: expected no member axis, or one of 1, found one of 2"):
        model.member(0).cache(data.inputs)
    with pytest.raises(UserError, match=r"batch: expected a Batch, such as .* gives, found Tensor"):
        intervening.checked_batch(data.inputs, model.config, 1)
