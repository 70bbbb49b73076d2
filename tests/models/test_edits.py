"""Interventions as a visit of the ensemble and of a member, against plain loops over one member's rows."""

from dataclasses import replace

import pytest
import torch
from tests.oracles.edits import Edited

from hopscope.models.edits import Edits, Means
from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    ReplacePattern,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.models.patterns import Identity, Learned, MeanMap, OverRole, Related, TwoTargets, Uniform

from .planted import POSITION, SYMBOL, WRITTEN, Planted, shown
from .planted import POSITIONS as LENGTH
from .samples import BATCH, MEMBERS, OUTPUT, POSITIONS, TABLES, batch, config, inputs, lively, only, under


def matrix():
    rows = torch.rand(POSITIONS, POSITIONS, generator=torch.Generator().manual_seed(59)).softmax(-1)
    return tuple(tuple(row) for row in rows.tolist())


def site(slot, relation=None):
    return Site(roles={"slot": slot}, relation=relation)


KIND = {"kind": 1}
REPLACE = {
    "uniform": ReplacePattern(layer=0, by="uniform"),
    "uniform over some keys": ReplacePattern(layer=1, rows=KIND, by="uniform", keys={"kind": 0}),
    "uniform over one key": ReplacePattern(layer=2, heads=(1, 4), by="uniform", keys={"slot": 3}),
    "identity": ReplacePattern(layer=1, heads=(0,), by="identity"),
    "one-hot": ReplacePattern(layer=0, by="one_hot", relation="past"),
    "one-hot, partly masked": ReplacePattern(layer=2, rows=KIND, by="one_hot", relation="partner"),
    "mean pattern": ReplacePattern(layer=1, heads=(2, 3), rows=KIND, by="mean"),
    "matrix": ReplacePattern(layer=2, heads=(4,), by="matrix", matrix=matrix()),
}
WEIGHTS = {
    "exchanged weights": SwapAttention(layer=0, first=site(2), second=site(7)),
    "exchanged weights of some": SwapAttention(
        layer=1, heads=(0, 3), rows=KIND, first=site(4), second=site(1)
    ),
    "exchanged weights of a partner": SwapAttention(
        layer=2, heads=(2,), first=site(5), second=site(3, "past")
    ),
    "equal weights": EqualizeAttention(layer=0, keys={}),
    "equal weights of some": EqualizeAttention(layer=2, heads=(1, 4), rows=KIND, keys={"kind": 0}),
    "equal weights of kept mass": EqualizeAttention(layer=1, rows={"kind": 0}, keys=KIND),
}
SWAP = {
    "symbols": SwapValues(layer=0, what="symbol", first=site(2), second=site(7)),
    "symbols later": SwapValues(layer=2, heads=(1,), what="symbol", first=site(0), second=site(5, "partner")),
    "positions": SwapValues(layer=1, heads=(0, 3), what="position", first=site(1), second=site(4)),
    "streams": SwapValues(layer=1, what="stream", first=site(3, "past"), second=site(6)),
}
ABLATE = {
    "zero head": AblateHead(layer=0, heads=(3,), by="zero"),
    "mean heads": AblateHead(layer=1, rows=KIND, by="mean"),
    "resampled heads": AblateHead(layer=2, heads=(0, 2), by="resample"),
    "zero MLP": AblateMLP(layer=0, rows=KIND, by="zero"),
    "mean MLP": AblateMLP(layer=2, by="mean"),
    "resampled MLP": AblateMLP(layer=1, rows={"slot": 2}, by="resample"),
}
SINGLE = REPLACE | WEIGHTS | SWAP | ABLATE
VARIANTS = {"clean": []} | {name: [intervention] for name, intervention in SINGLE.items()}
VARIANTS |= {
    "everything in one layer": [
        ReplacePattern(layer=1, heads=(0,), by="uniform"),
        AblateHead(layer=1, heads=(4,), by="zero"),
        AblateMLP(layer=1, by="resample"),
        SwapValues(layer=1, heads=(2,), what="stream", first=site(1), second=site(9)),
    ],
    "one kind in every layer": [AblateHead(layer=layer, heads=(layer,), by="resample") for layer in range(3)],
    "swaps of every part": [
        SwapValues(layer=2, heads=(1, 2), what=what, first=site(slot), second=site(slot + 3))
        for slot, what in enumerate(("symbol", "position", "stream"))
    ],
    "three symbols in turn": [
        SwapValues(layer=0, what="symbol", first=site(0), second=site(4)),
        SwapValues(layer=0, what="symbol", first=site(4), second=site(8)),
    ],
    "a later pattern wins where it has rows": [
        ReplacePattern(layer=0, by="uniform"),
        ReplacePattern(layer=0, heads=(1, 2), rows=KIND, by="identity"),
        ReplacePattern(layer=0, heads=(2,), by="one_hot", relation="past"),
    ],
    "three weights in turn": [
        SwapAttention(layer=1, first=site(0), second=site(4)),
        SwapAttention(layer=1, heads=(0, 1, 2), first=site(4), second=site(8)),
    ],
    "later equal weights win where there are keys": [
        EqualizeAttention(layer=0, keys=KIND),
        EqualizeAttention(layer=0, heads=(1, 2), rows=KIND, keys={"kind": 0}),
        EqualizeAttention(layer=0, heads=(2,), keys={"slot": 6}),
    ],
    "patterns are replaced, then swapped, then made equal, in whatever order": [
        EqualizeAttention(layer=2, rows=KIND, keys={"kind": 0}),
        SwapAttention(layer=2, heads=(0, 1, 2), first=site(3), second=site(9)),
        ReplacePattern(layer=2, heads=(1, 2, 3), by="matrix", matrix=matrix()),
    ],
    "a later ablation wins": [
        AblateHead(layer=0, heads=(0, 1), by="zero"),
        AblateHead(layer=0, heads=(1,), by="mean"),
        AblateMLP(layer=2, by="mean"),
        AblateMLP(layer=2, by="zero"),
    ],
    "ablations of different rows in different ways": [
        AblateHead(layer=0, heads=(1,), rows={"kind": 0}, by="zero"),
        AblateHead(layer=0, heads=(1,), rows={"kind": 1}, by="resample"),
        AblateHead(layer=2, rows={"kind": 0}, by="mean"),
        AblateHead(layer=2, rows={"slot": 3}, by="zero"),
        AblateMLP(layer=1, rows={"kind": 0}, by="resample"),
        AblateMLP(layer=1, rows={"kind": 1}, by="mean"),
    ],
}

CONFIGS = {
    "pre-norm": {},
    "post-norm, not causal": {"norm": "post", "causal": False},
    "no norm, no positions": {"norm": "none", "positions": "none"},
    "last rows only": {"readout": (0, 6, 10)},
    "vectors with a position part": {"input_kind": "vectors", "positions": "carried", "position_size": 3},
}


@pytest.fixture(params=CONFIGS)
def model(request):
    return lively(config(**CONFIGS[request.param]))


@pytest.fixture
def means(model):
    """Of another batch than the one that is edited."""
    return model.means(inputs(model.config).roll(1, 2))


def reference(model, member, interventions, data, means=None, donor=None):
    """The plain module's predictions `[batch, position, output]` by plain loops."""
    own = None if means is None else (means.patterns[member], means.heads[member], means.mlps[member])
    alone = only(data, member)
    module = model.member(member)
    edited = Edited(interventions, alone, own, donor, causal=model.config.causal, module=module)
    return module(alone.inputs[0], edited)


def assert_every_variant_equals_plain_loops(model, means, data):
    rows = list(model.config.readout_positions)
    for name, interventions in VARIANTS.items():
        (found,) = under(model, data, interventions, means=means)
        assert found.shape == (MEMBERS, BATCH, len(rows), OUTPUT)
        for member in range(MEMBERS):
            expected = reference(model, member, interventions, data, means)[:, rows]
            torch.testing.assert_close(found[member], expected, rtol=1e-5, atol=1e-5, msg=name)


@torch.no_grad()
def test_every_variant_equals_plain_loops(model, means):
    assert_every_variant_equals_plain_loops(model, means, batch(model.config))


@torch.no_grad()
def test_every_variant_equals_plain_loops_on_a_shared_batch():
    model = lively(config())
    means = model.means(inputs(model.config).roll(1, 2))
    assert_every_variant_equals_plain_loops(model, means, batch(model.config, members=1))


@torch.no_grad()
def test_every_position_too(model, means):
    data = batch(model.config)
    rows = list(model.config.readout_positions)
    for interventions in VARIANTS.values():
        edits = Edits(model, interventions, data, means=means)
        everywhere = model(data.inputs, edits, every_position=True)
        torch.testing.assert_close(everywhere[:, :, rows], model(data.inputs, edits), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "clean"])
def test_every_variant_matters_in_a_model_where_all_weights_do(name):
    """Otherwise the equalities of this file would hold for edits that do nothing."""
    model = lively(config())
    data = batch(model.config)
    (found,) = under(model, data, VARIANTS[name], means=model.means(inputs(model.config).roll(1, 2)))
    change = (found - model(data.inputs)).abs().amax((1, 2, 3))
    assert (change > 1e-3).all()


@torch.no_grad()
def test_the_clean_variant_is_the_model_itself(model, means):
    data = batch(model.config)
    (found,) = under(model, data, [], means=means)
    torch.testing.assert_close(found, model(data.inputs), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("members", [1, MEMBERS], ids=["shared donors", "own donors"])
def test_resampling_reads_from_the_given_donor(members):
    model = lively(config())
    data = batch(model.config)
    donor = torch.randint(BATCH, (members, BATCH), generator=torch.Generator().manual_seed(61))
    interventions = [AblateHead(layer=0, heads=(1,), by="resample"), AblateMLP(layer=2, by="resample")]
    (found,) = under(model, data, interventions, donor=donor)
    for member in range(MEMBERS):
        chosen = donor[min(member, members - 1)].tolist()
        expected = reference(model, member, interventions, data, donor=chosen)
        torch.testing.assert_close(found[member], expected, rtol=1e-5, atol=1e-5)
    (own,) = under(model, data, interventions, donor=torch.arange(BATCH)[None])
    torch.testing.assert_close(own, model(data.inputs), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_captured_tensors_are_those_after_the_edits():
    model = lively(config())
    data = batch(model.config)
    silent = [AblateHead(layer=2, by="zero"), AblateMLP(layer=0, by="zero")]
    variants = [[], [ReplacePattern(layer=1, by="identity")], silent]
    clean, itself, without = (model.capture(data.inputs, Edits(model, each, data))[1] for each in variants)
    assert itself.patterns[1].shape == (MEMBERS, BATCH, model.config.heads, POSITIONS, POSITIONS)
    assert torch.equal(itself.patterns[1], torch.eye(POSITIONS).expand_as(itself.patterns[1]))
    assert not torch.equal(clean.patterns[1], itself.patterns[1])
    assert not without.heads[2].any() and itself.heads[2].any()
    assert not without.mlps[0].any() and itself.mlps[0].any()
    torch.testing.assert_close(clean.streams[0], without.streams[0])


@torch.no_grad()
def test_a_model_without_mlp_or_position_code_can_be_edited():
    model = lively(config(mlp_ratio=0.0, positions="none"))
    data, means = batch(model.config), model.means(inputs(model.config))
    names = [name for name in SINGLE if "MLP" not in name]
    for name in names:
        (found,) = under(model, data, [SINGLE[name]], means=means)
        expected = reference(model, 1, [SINGLE[name]], data, means)
        torch.testing.assert_close(found[1], expected, rtol=1e-5, atol=1e-5, msg=name)


# Attention weights.


def weights_of(planted, *interventions):
    """The last row's pattern of head 0, `[member, key]`, and the answers there, before and after."""
    data = shown((2, 0, 3, 3, 3, 4, 1))
    found = [
        planted.model.capture(data.inputs, Edits(planted.model, each, data)) for each in ([], interventions)
    ]
    patterns = torch.stack([captured.patterns[0][:, 0, 0, -1] for _, captured in found])
    return patterns, [predicted[:, 0, -1].argmax(-1).tolist() for predicted, _ in found]


def reader(source=5):
    """Member 0 answers with the token at `source`, member 1 with the position it looked at."""
    planted = Planted(members=2)
    for member, part in enumerate((SYMBOL, POSITION)):
        planted.attend_to_position(member, 0, 0, source).copy(member, 0, 0, part).answer(member, WRITTEN)
    return planted


@torch.no_grad()
def test_exchanged_weights_make_a_reader_read_elsewhere():
    (before, after), answers = weights_of(
        reader(), SwapAttention(layer=0, heads=(0,), first=site(0), second=site(5))
    )
    assert answers == [[4, 5], [2, 0]]
    assert torch.equal(after, before[:, [5, 1, 2, 3, 4, 0, 6]]) and (before[:, 5] > 0.99).all()


@torch.no_grad()
@pytest.mark.parametrize(
    "edit",
    [
        SwapAttention(layer=0, first=site(0), second=site(3)),
        SwapAttention(layer=0, heads=(1, 2), first=site(0), second=site(5)),
        SwapAttention(layer=0, rows={"slot": 4}, first=site(0), second=site(3)),
        EqualizeAttention(layer=0, keys={"slot": 5}),
        EqualizeAttention(layer=0, heads=(1, 2), keys={}),
    ],
    ids=["other keys", "idle heads", "another row", "one key", "idle heads, equal"],
)
def test_weights_exchanged_or_equal_elsewhere_change_no_answer(edit):
    _, answers = weights_of(reader(), edit)
    assert answers == [[4, 5], [4, 5]]


@torch.no_grad()
def test_equal_weights_keep_the_mass_and_share_it():
    def weights(roles):
        return weights_of(reader(), EqualizeAttention(layer=0, rows={"slot": LENGTH - 1}, keys=roles))[0]

    before, after = weights({})
    torch.testing.assert_close(after, torch.full((2, LENGTH), 1 / LENGTH), rtol=0, atol=1e-6)
    before, after = weights({"slot": 3})
    assert torch.equal(before, after)
    model = lively(config())
    data = batch(model.config)
    edits = Edits(model, [EqualizeAttention(layer=1, rows=KIND, keys={"kind": 0})], data)
    before, after = (model.capture(data.inputs, visit)[1].patterns[1] for visit in (None, edits))
    torch.testing.assert_close(after.sum(-1), before.sum(-1), rtol=0, atol=1e-5)
    rows, keys = data.roles["kind"] == 1, data.roles["kind"] == 0
    untouched = (~rows[:, :, None, :, None] | ~keys[:, :, None, None, :]).expand_as(after)
    torch.testing.assert_close(after[untouched], before[untouched], rtol=1e-5, atol=1e-6)
    assert (after - before).abs().max() > 0.1


@torch.no_grad()
def test_a_row_that_does_not_see_both_keys_keeps_its_weights():
    model = lively(config())
    data = batch(model.config)
    here = torch.arange(POSITIONS).expand_as(data.roles["slot"])
    data = replace(data, roles={**data.roles, "place": here})
    first, second = Site(roles={"place": 2}), Site(roles={"place": 7})
    edits = Edits(model, [SwapAttention(layer=0, first=first, second=second)], data)
    before, after = (model.capture(data.inputs, visit)[1].patterns[0] for visit in (None, edits))
    expected = before.clone()
    expected[..., 7:, 2], expected[..., 7:, 7] = before[..., 7:, 7], before[..., 7:, 2]
    torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-6)
    assert (after - before).abs().max() > 0.1


@pytest.mark.parametrize("name", WEIGHTS)
def test_gradients_under_edited_weights_equal_those_of_the_plain_module(name):
    model = lively(config())
    data = batch(model.config)
    weights = [view.requires_grad_() for view in model.weights.values()]
    loss = under(model, data, [WEIGHTS[name]])[0].pow(2).mean((1, 2, 3)).sum()
    found = dict(zip(model.weights, torch.autograd.grad(loss, weights), strict=True))
    for member in range(MEMBERS):
        module, alone = model.member(member), only(data, member)
        module(alone.inputs[0], Edited([WEIGHTS[name]], alone)).pow(2).mean().backward()
        for part, parameter in module.named_parameters():
            theirs = parameter.grad.T if parameter.ndim == 2 and part not in TABLES else parameter.grad
            torch.testing.assert_close(found[part][member], theirs, rtol=1e-4, atol=1e-5, msg=part)


# Rules.


SHORT = {
    "uniform": ({"by": "uniform"}, Uniform()),
    "uniform over some keys": ({"by": "uniform", "keys": {"kind": 0}}, OverRole(keys={"kind": 0})),
    "identity": ({"by": "identity"}, Identity()),
    "one-hot": ({"by": "one_hot", "relation": "partner"}, Related(relation="partner")),
}


@torch.no_grad()
@pytest.mark.parametrize("name", SHORT)
def test_a_short_name_is_its_rule(name):
    model = lively(config())
    short, rule = SHORT[name]
    long = ReplacePattern(layer=1, heads=(1, 3), rows=KIND, by=rule)
    assert ReplacePattern.model_validate_json(long.model_dump_json()) == long
    found = under(
        model, batch(model.config), [ReplacePattern(layer=1, heads=(1, 3), rows=KIND, **short)], [long]
    )
    assert torch.equal(*found)
    assert not torch.equal(found[0], model(batch(model.config).inputs))


def replaced(model, data, rule):
    """The pattern that stands in at layer 1, and those of the model as it is, `[member, batch, head, query, key]`."""
    edits = Edits(model, [ReplacePattern(layer=1, rows=KIND, by=rule)], data)
    return edits.replaced[1][1], model.cache(data.inputs)["blocks.1.attn.hook_pattern"]


@torch.no_grad()
def test_two_targets_share_the_attention():
    model = lively(config())
    data = batch(model.config)
    rule = TwoTargets(first=Identity(), second=Related(relation="past"), share=0.3)
    found, _ = replaced(model, data, rule)
    past = data.relations["past"][0, 0].tolist()
    query = next(row for row, key in enumerate(past) if 0 <= key < row and data.roles["kind"][0, 0, row] == 1)
    expected = torch.zeros(POSITIONS)
    expected[query], expected[past[query]] = 0.3, 0.7
    torch.testing.assert_close(found[0, 0, 2, query], expected)


@torch.no_grad()
@pytest.mark.parametrize("shared", [False, True], ids=["own samples", "shared samples"])
def test_mean_weights_are_those_of_the_rows_that_are_meant(shared):
    model = lively(config())
    data = batch(model.config, members=1 if shared else MEMBERS)
    found, own = replaced(model, data, MeanMap())
    kinds = data.roles["kind"].expand(MEMBERS, -1, -1)
    for member, head, query in ((0, 1, 4), (1, 3, 9)):
        samples = [sample for sample in range(BATCH) if kinds[member, sample, query] == 1]
        expected = torch.stack([own[member, sample, head, query] for sample in samples]).mean(0)
        for sample in samples:
            torch.testing.assert_close(found[member, sample, head, query], expected)


@torch.no_grad()
def test_a_head_may_keep_the_pattern_of_the_unedited_model():
    model = lively(config())
    data = batch(model.config)
    interventions = [AblateHead(layer=0, by="zero"), ReplacePattern(layer=2, heads=(1,), by=Learned())]
    edits = Edits(model, interventions, data)
    (_, clean), (_, edited) = (model.capture(data.inputs, visit) for visit in (None, edits))
    torch.testing.assert_close(edited.patterns[2][:, :, 1], clean.patterns[2][:, :, 1])
    assert (edited.patterns[2][:, :, 2] - clean.patterns[2][:, :, 2]).abs().max() > 0.01


# Sites.


SITES = {
    "replace": (REPLACE["identity"], {"attn.hook_pattern"}),
    "swap weights": (WEIGHTS["exchanged weights"], {"attn.hook_pattern"}),
    "equal weights": (WEIGHTS["equal weights"], {"attn.hook_pattern"}),
    "swap values": (SWAP["symbols"], {"hook_embed", "hook_pos_embed", "hook_resid_pre", "attn.hook_v"}),
    "head": (ABLATE["zero head"], {"attn.hook_z"}),
    "MLP": (ABLATE["zero MLP"], {"hook_mlp_out"}),
}


@pytest.mark.parametrize("name", SITES)
def test_nothing_is_called_where_nothing_is_changed(name):
    intervention, expected = SITES[name]
    model = lively(config())
    edits = Edits(model, [intervention], batch(model.config))
    assert {site.removeprefix(f"blocks.{intervention.layer}.") for site in edits.sites} == expected
    elsewhere = torch.randn(3)
    assert edits("blocks.2.hook_resid_post", elsewhere) is elsewhere


# What cannot be done.


def refused(*interventions, means: Means | None = None, **changes):
    shape = config(**changes)
    return Edits(lively(shape), interventions, batch(shape), means=means)


@pytest.mark.parametrize(
    ("interventions", "complaint"),
    [
        ([AblateHead(layer=3, by="zero")], "layer: expected 0 to 2, found 3"),
        ([AblateHead(layer=0, heads=(5,), by="zero")], r"heads: expected some of 0 to 4, found \(5,\)"),
        (
            [ReplacePattern(layer=0, heads=(-1,), by="identity")],
            r"heads: expected some of 0 to 4, found \(-1,\)",
        ),
        ([AblateHead(layer=0, heads=(), by="zero")], r"heads: expected some of 0 to 4, found \(\)"),
        (
            [AblateMLP(layer=0, rows={"colour": 1}, by="zero")],
            r"role: expected one of \['kind', 'slot'\], found 'colour'",
        ),
        (
            [ReplacePattern(layer=0, by="one_hot", relation="next")],
            r"relation: expected one of \['partner', 'past'\], found 'next'",
        ),
        ([ReplacePattern(layer=0, by="mean")], "by = 'mean': expected means .*found none"),
        ([AblateHead(layer=0, by="mean")], "by = 'mean': expected means .*found none"),
        ([AblateMLP(layer=0, by="mean")], "by = 'mean': expected means .*found none"),
        (
            [ReplacePattern(layer=0, by="matrix", matrix=((1.0, 0.0), (0.0, 1.0)))],
            r"matrix: expected shape \(11, 11\), found \(2, 2\)",
        ),
        (
            [SwapValues(layer=0, what="symbol", first=Site(roles={"kind": 0}), second=site(1))],
            "site: expected roles .*found {'kind': 0}",
        ),
        (
            [SwapValues(layer=0, what="symbol", first=site(1), second=site(11))],
            "site: expected roles .*found {'slot': 11}",
        ),
        (
            [SwapValues(layer=0, what="symbol", first=site(1), second=site(2, "next"))],
            "relation: expected one of",
        ),
        ([SwapAttention(layer=4, first=site(1), second=site(2))], "layer: expected 0 to 2, found 4"),
        (
            [SwapAttention(layer=0, heads=(6,), first=site(1), second=site(2))],
            r"heads: expected some of 0 to 4, found \(6,\)",
        ),
        (
            [SwapAttention(layer=0, rows={"colour": 1}, first=site(1), second=site(2))],
            r"role: expected one of \['kind', 'slot'\], found 'colour'",
        ),
        (
            [SwapAttention(layer=0, first=Site(roles={"kind": 1}), second=site(2))],
            "site: expected roles .*found {'kind': 1}",
        ),
        ([EqualizeAttention(layer=3, keys={})], "layer: expected 0 to 2, found 3"),
        (
            [EqualizeAttention(layer=0, heads=(-2,), keys={})],
            r"heads: expected some of 0 to 4, found \(-2,\)",
        ),
        (
            [EqualizeAttention(layer=0, keys={"colour": 1})],
            r"role: expected one of \['kind', 'slot'\], found 'colour'",
        ),
        (
            [
                SwapValues(layer=0, heads=(0,), what="symbol", first=site(1), second=site(2)),
                SwapValues(layer=0, heads=(1,), what="stream", first=site(1), second=site(2)),
            ],
            r"swap_values: expected the same heads for every swap of layer 0, found \[1\]",
        ),
    ],
)
def test_what_does_not_exist_is_refused(interventions, complaint):
    with pytest.raises(ValueError, match=complaint):
        refused(*interventions)


def test_a_missing_mlp_cannot_be_ablated():
    with pytest.raises(ValueError, match="ablate_mlp: expected a model with an MLP, found mlp_ratio = 0"):
        refused(AblateMLP(layer=0, by="zero"), mlp_ratio=0.0)
