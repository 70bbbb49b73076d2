"""Interventions equal plain loops over samples, heads and rows, on a single model and on an ensemble."""

import pytest
import torch

from hopscope.circuits.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    ReplacePattern,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.circuits.rules import History, Identity, Learned, Matrix, OverRole, Related, TwoTargets, Uniform
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch

MEMBERS, SAMPLES, LENGTH, HEADS, LAYERS = 2, 5, 7, 3, 2
MATRIX = tuple(tuple(float(key == (query + 1) % LENGTH) for key in range(LENGTH)) for query in range(LENGTH))
KIND, SLOT = {"kind": 1}, Site(roles={"slot": 2})
PARTNER = Site(roles={"slot": 5}, relation="past")


def model_of(**changes):
    fields = {
        "layers": LAYERS, "heads": HEADS, "width": 11, "head_dim": 4, "mlp_ratio": 2.0, "length": LENGTH,
        "input_size": 13, "output_size": 2, **changes,
    }  # fmt: skip
    model = Transformer(TransformerConfig(**fields), MEMBERS)
    generator = torch.Generator().manual_seed(17)
    for name, weight in model.weights().items():
        drawn = torch.randn(weight.shape, generator=generator)
        weight.copy_(drawn * 0.5 + ("norm" in name and name.endswith("weight")))
    return model


def batch_of(members=MEMBERS):
    generator = torch.Generator().manual_seed(5)
    slots = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(members * SAMPLES)])
    slots = slots.view(members, SAMPLES, LENGTH)
    past = torch.randint(-1, LENGTH, slots.shape, generator=generator)
    return Batch(
        torch.randint(13, slots.shape, generator=generator),
        torch.zeros(members, SAMPLES, LENGTH, dtype=torch.int64),
        roles={"kind": slots % 2, "slot": slots},
        relations={"past": past},
    )


def has(batch, roles, sample, row):
    return all(int(batch.roles[name][sample, row]) == value for name, value in roles.items())


def at(batch, site, sample):
    (row,) = [row for row in range(LENGTH) if has(batch, site.roles, sample, row)]
    return row if site.relation is None else int(batch.relations[site.relation][sample, row])


def patterns(value, batch, clean, causal):
    """Patterns of one model after an intervention on them, in plain loops."""
    found = clean.clone()
    for sample in range(SAMPLES):
        for head in range(HEADS) if value.heads is None else value.heads:
            for row in range(LENGTH):
                if has(batch, value.rows, sample, row):
                    new = row_of(
                        value, batch, clean[:, head], sample, row, range(row + 1 if causal else LENGTH)
                    )
                    found[sample, head, row] = new
    return found


def row_of(value, batch, clean, sample, row, seen):
    old, new = clean[sample, row], torch.zeros(LENGTH)
    if isinstance(value, SwapAttention):
        one, other = (at(batch, site, sample) for site in (value.first, value.second))
        new = old.clone()
        if one in seen and other in seen:
            new[one], new[other] = old[other], old[one]
        return new
    if isinstance(value, EqualizeAttention):
        keys = [key for key in seen if has(batch, value.keys, sample, key)]
        new = old.clone()
        new[keys] = old[keys].mean() if keys else 0.0
        return new
    alike = [other for other in range(SAMPLES) if has(batch, value.rows, other, row)]
    partner = int(batch.relations["past"][sample, row])
    if isinstance(value.by, Matrix | History | Learned):
        given = torch.tensor(MATRIX[row])
        given[[key for key in range(LENGTH) if key not in seen]] = 0.0
        given = given / given.sum() if given.any() else old
        whole = {"history": clean[alike, row].mean(0), "matrix": given, "learned": old}
        return whole[value.by.kind]
    if isinstance(value.by, TwoTargets):
        if partner not in seen:
            return old
        new[row] = value.by.share
        new[partner] += 1.0 - value.by.share
        return new
    keys = {
        Uniform: lambda key: True,
        OverRole: lambda key: has(batch, value.by.keys, sample, key),
        Identity: lambda key: key == row,
        Related: lambda key: key == partner,
    }[type(value.by)]
    keys = [key for key in seen if keys(key)]
    if keys:
        new[keys] = 1.0 / len(keys)
    return new if keys else old


ON_PATTERNS = [
    ReplacePattern(layer=0, by="uniform"),
    ReplacePattern(layer=1, heads=(0, 2), rows=KIND, by=OverRole(keys={"kind": 0})),
    ReplacePattern(layer=1, by="identity", heads=(1,)),
    ReplacePattern(layer=0, rows=KIND, by=Related(relation="past")),
    ReplacePattern(layer=1, heads=(2,), by="history"),
    ReplacePattern(layer=1, by=Matrix(weights=MATRIX)),
    ReplacePattern(layer=1, rows=KIND, by="history"),
    ReplacePattern(layer=1, by=Learned()),
    ReplacePattern(
        layer=0,
        by=TwoTargets.model_validate(
            {"first": {"kind": "identity"}, "second": {"kind": "related", "relation": "past"}, "share": 0.3}
        ),
    ),
    SwapAttention(layer=0, first=SLOT, second=Site(roles={"slot": 6})),
    SwapAttention(layer=1, heads=(0,), rows=KIND, first=SLOT, second=PARTNER),
    EqualizeAttention(layer=0, keys={}),
    EqualizeAttention(layer=1, heads=(1, 2), rows=KIND, keys={"kind": 0}),
]
SHAPES = {"pre-norm, causal": {}, "post-norm, all": {"norm": "post", "causal": False}}


def both(model, batch, values):
    """Predictions of the ensemble, which are those of its members."""
    found = model.intervene(batch, values)
    for member in range(MEMBERS):
        alone = batch.changed(lambda tensor, member=member: tensor[member])
        one = model.member(member).intervene(alone, values)
        torch.testing.assert_close(one, found[member], rtol=1e-4, atol=1e-5)
    return found


def expected(model, batch, member, site, made):
    alone = batch.changed(lambda tensor: tensor[member])
    return model.member(member).intervene(alone, {site: lambda tensor: made(alone, tensor)})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", range(len(ON_PATTERNS)))
def test_patterns(shape, number):
    value, model, batch = ON_PATTERNS[number], model_of(**SHAPES[shape]), batch_of()
    found, site = both(model, batch, [value]), f"blocks.{value.layer}.attn.hook_pattern"
    for member in range(MEMBERS):
        wanted = expected(
            model, batch, member, site, lambda some, clean: patterns(value, some, clean, model.config.causal)
        )
        torch.testing.assert_close(found[member], wanted, rtol=1e-4, atol=1e-5)
    same = isinstance(value, ReplacePattern) and isinstance(value.by, Learned)
    assert ((found - model.intervene(batch, [])).abs().max() > 1e-3) != same


@pytest.mark.parametrize("what", ["symbol", "position", "stream"])
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape, what):
    model, batch = model_of(**SHAPES[shape]), batch_of()
    value = SwapValues(layer=1, heads=(0, 2), what=what, first=SLOT, second=PARTNER)
    found = both(model, batch, [value])
    for member in range(MEMBERS):
        single = model.member(member)
        cache = single.cache(batch.inputs[member])
        part = {"symbol": "hook_embed", "position": "hook_pos_embed", "stream": "blocks.1.hook_resid_pre"}[
            what
        ]

        def swapped(some, clean, single=single, cache=cache, part=part):
            stream = cache["blocks.1.hook_resid_pre"].clone()
            for sample in range(SAMPLES):
                one, other = (at(some, site, sample) for site in (value.first, value.second))
                if other >= 0:
                    held = cache[part][sample]
                    stream[sample, one] += held[other] - held[one]
                    stream[sample, other] += held[one] - held[other]
            layer = single.layers[1]
            made = layer.attention.values(layer.read(stream)).transpose(1, 2)
            return torch.where(torch.tensor([True, False, True])[:, None], made, clean)

        wanted = expected(model, batch, member, "blocks.1.attn.hook_v", swapped)
        torch.testing.assert_close(found[member], wanted, rtol=1e-4, atol=1e-5)
    assert (found - model.intervene(batch, [])).abs().max() > 1e-3


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
@pytest.mark.parametrize("part", ["head", "MLP"])
def test_ablations(part, by):
    model, batch = model_of(), batch_of()
    site = f"blocks.1.{'attn.hook_z' if part == 'head' else 'hook_mlp_out'}"
    heads = {"heads": (1,)} if part == "head" else {}
    value = (AblateHead if part == "head" else AblateMLP)(layer=1, rows=KIND, by=by, **heads)
    found = both(model, batch, [value])
    for member in range(MEMBERS):
        mean = model.member(member).cache(batch.inputs[member])[site].mean(0)

        def ablated(some, clean, mean=mean):
            new = clean.clone()
            for sample in range(SAMPLES):
                for row in (row for row in range(LENGTH) if has(some, KIND, sample, row)):
                    place = (sample, row, 1) if part == "head" else (sample, row)
                    donor = ((sample + 1) % SAMPLES, *place[1:])
                    new[place] = {"zero": 0.0, "mean": mean[place[1:]], "resample": clean[donor]}[by]
            return new

        wanted = expected(model, batch, member, site, ablated)
        torch.testing.assert_close(found[member], wanted, rtol=1e-4, atol=1e-5)


def test_the_later_one_wins_and_shared_samples_serve_all_members():
    model, shared = model_of(), batch_of(1)
    first, second = ReplacePattern(layer=0, by="uniform"), ReplacePattern(layer=0, rows=KIND, by="identity")
    found = model.intervene(shared, [first, second])
    turned = model.intervene(shared, [second, first])
    torch.testing.assert_close(turned, model.intervene(shared, [first]))
    assert (found - turned).abs().max() > 1e-3
    plain = shared.changed(lambda tensor: tensor[0])
    assert torch.equal(model.intervene(plain, [first, second]), found)


@pytest.mark.parametrize("value", [*ON_PATTERNS, AblateMLP(layer=1, by="zero")])
def test_values_are_written_as_json(value):
    assert type(value).model_validate_json(value.model_dump_json()) == value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (AblateHead(layer=2, by="zero"), "layer: expected 0 to 1, found 2"),
        (AblateHead(layer=0, heads=(3,), by="zero"), r"heads: expected some of 0 to 2, found \(3,\)"),
        (EqualizeAttention(layer=0, heads=(), keys={}), r"heads: expected some of 0 to 2, found \(\)"),
        (AblateMLP(layer=0, rows={"colour": 1}, by="zero"), r"role: expected one of \['kind', 'slot'\]"),
        (ReplacePattern(layer=0, by=Related(relation="next")), r"relation: expected one of \['past'\]"),
        (
            ReplacePattern(layer=0, by=Matrix(weights=((1.0,), (1.0, 2.0)))),
            r"matrix: expected shape \(7, 7\), found rows of \[1, 2\] numbers",
        ),
        (
            SwapAttention(layer=0, first=Site(roles=KIND), second=SLOT),
            "site: expected roles .*found {'kind': 1}",
        ),
    ],
)
def test_what_does_not_exist_is_one_clear_line(value, complaint):
    for model, batch in (
        (model_of(), batch_of()),
        (model_of().member(0), batch_of().changed(lambda t: t[0])),
    ):
        with pytest.raises(UserError, match=complaint):
            model.intervene(batch, [value])


def test_a_missing_mlp_or_position_code():
    model, batch = model_of(mlp_ratio=0.0, positions="none"), batch_of()
    with pytest.raises(UserError, match="ablate_mlp: expected a model with an MLP, found mlp_ratio = 0"):
        model.intervene(batch, [AblateMLP(layer=0, by="zero")])
    with pytest.raises(UserError, match="site: expected a site of this model, found 'hook_pos_embed'"):
        model.intervene(batch, [SwapValues(layer=0, what="position", first=SLOT, second=PARTNER)])


def test_exchanges_of_other_positions_add_up():
    model, batch = model_of(), batch_of()
    sites = [Site(roles={"slot": number}) for number in range(4)]
    one, other = (SwapValues(layer=1, what="stream", first=a, second=b) for a, b in (sites[:2], sites[2:]))
    both_ways = [model.intervene(batch, each) for each in ([one, other], [other, one])]
    torch.testing.assert_close(*both_ways)
    for alone in (one, other):
        assert (both_ways[0] - model.intervene(batch, [alone])).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"layer": -1, "by": "uniform"},
            "ReplacePattern: layer: expected greater than or equal to 0, found -1",
        ),
        ({"layer": 0, "by": "related"}, "ReplacePattern: by.related.relation: expected a value, found none"),
        ({"layer": 0, "by": "identity", "head": 9}, "ReplacePattern: no field 'head'; did you mean 'heads'"),
    ],
)
def test_a_field_that_cannot_be_is_one_clear_line(fields, complaint):
    with pytest.raises(UserError, match=complaint):
        ReplacePattern(**fields)
