"""recall.py: multi-query associative recall.  Does attention need a wider stream to recall more pairs?

After Arora, Eyuboglu, Timalsina, Johnson, Poli, Zou, Rudra and Ré, Zoology (arXiv 2312.04927, figure 2).  They have a
vocabulary of 8,192, widths to 512 and 64 pairs; this file is smaller in each, and its queries stand at uniform places.
"""

import hopscope as hs

RECALLED = 0.99  # accuracy from which a model recalls its pairs
WIDTHS, PAIRS = (32, 64), (4, 8, 16)
CELLS = [(2, width, pairs) for width in WIDTHS for pairs in PAIRS] + [
    (1, max(WIDTHS), pairs) for pairs in PAIRS
]


def label(layers, width, pairs):
    return f"{layers} layer{'s' * (layers > 1)}, width {width}, {pairs} pairs"


def woven(first, second):
    """Two tensors by turns along the last axis."""
    import torch

    return torch.stack((first, second), -1).flatten(-2)


class MultiQueryRecall(hs.Task):
    """Pairs of a key and a value, then each key again at every second position, in random order: answer its value.

    Of V tokens 0 is the blank, 1 … V/2 - 1 are keys and the rest are values; all keys and values of a sample differ.
    """

    pairs: int = 8
    vocabulary: int = 64

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=self.vocabulary,
            positions=4 * self.pairs,
            readout=tuple(range(2 * self.pairs, 4 * self.pairs, 2)),
            output_size=self.vocabulary,
        )

    def sample(self, draws):
        import torch

        half, pairs = self.vocabulary // 2, self.pairs
        keys = 1 + draws.permutation("keys", half - 1)[..., :pairs]  # [member, batch, pair]
        values = half + draws.permutation("values", half)[..., :pairs]
        asked = draws.permutation("asked", pairs)  # which pair each query asks for
        queries = keys.gather(-1, asked)
        nothing, nowhere = torch.zeros_like(queries), draws.constant(-1, (pairs,))
        before = [key for pair in range(pairs) for key in (-1, 2 * pair)] + [-1] * (2 * pairs)
        return hs.Batch(
            inputs=torch.cat((woven(keys, values), woven(queries, nothing)), -1),
            targets=values.gather(-1, asked),
            roles={"kind": draws.constant([0, 1] * pairs + [2, 3] * pairs, (4 * pairs,))},
            relations={
                "value": torch.cat((nowhere, nowhere, woven(2 * asked + 1, nowhere)), -1),
                "key": draws.constant(before, (4 * pairs,)),
            },
        )

    def floors(self):
        return {"accuracy": {"any value of the sample": 1 / self.pairs}}

    @property
    def words(self):
        return {"roles": {"kind": ("key", "value", "query", "blank")}}


def last(*cell):
    """A function of the evidence: the accuracy at the end, `[member]`."""
    return lambda evidence: evidence.last("accuracy", configuration=label(*cell))


def lost(layers, width):
    """A function of the evidence: by seed, accuracy with the most pairs less that with the fewest."""

    def found(evidence):
        few, many = (last(layers, width, pairs)(evidence) for pairs in (min(PAIRS), max(PAIRS)))
        return hs.Samples(many.to_numpy() - few.to_numpy(), unit="seed")

    return found


def strongest(metric, layers, layer):
    """A function of the evidence: attention of the widest models' head in a layer, with the most pairs."""
    cell = label(layers, max(WIDTHS), max(PAIRS))
    return lambda evidence: evidence.last(f"attention_to_{metric}", configuration=cell, layer=layer, head=0)


def parts(functions):
    """A function of the evidence: part → what its function says."""
    return lambda evidence: {name: function(evidence) for name, function in functions.items()}


@hs.measure
def key_attention(context):
    """Attention from values to the keys before them, a row for each head; metric `attention_to_key`."""
    keys = context.held_out.relations["key"][0, 0]
    rows = (keys >= 0).nonzero()[:, 0]
    cache = context.ensemble.cache(context.batch(64).inputs)
    for layer in range(context.ensemble.config.layers):
        found = cache[f"blocks.{layer}.attn.hook_pattern"][..., rows, keys[rows]].mean((1, 3))
        for head in range(found.shape[1]):
            yield {"metric": "attention_to_key", "layer": layer, "head": head, "value": found[:, head]}


RECALLS, WIDEST = hs.at_least(RECALLED, unit="fraction"), max(WIDTHS)
TWO = {f"{pairs} pairs": last(2, WIDEST, pairs) for pairs in PAIRS}
ONE = {f"{pairs} pairs": last(1, WIDEST, pairs) for pairs in PAIRS}
HEADS = {"first layer to keys": strongest("key", 2, 0), "last layer to values": strongest("value", 2, 1)}
BELOW = "queries at uniform places, 64 tokens, not 8,192, 2,000 steps of one rate, not 64 passes"
GIVEN = {
    "source": "Arora et al., arXiv 2312.04927, figure 2, at the size of this file",
    "seeds_needed": 8,
    "rule": "mean",
    "at_scale": lambda evidence: BELOW,
}

study = hs.Study(
    name="recall",
    question="Does attention need a wider stream to recall more pairs?",
    task=MultiQueryRecall(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=1, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=2000, batch_size=64, learning_rate=1e-3, betas=(0.9, 0.95), weight_decay=0.0, evaluate_every=100
    ),
    configurations=lambda options: [
        hs.Configuration(
            label=label(*cell),
            overrides=dict(zip(("model.layers", "model.width", "task.pairs"), cell, strict=True)),
        )
        for cell in CELLS
    ],
    seeds=4,
    measures=[key_attention, hs.measures.attention_to("value")],
    claims=[
        hs.Claim(
            id="N2a",
            statement="Two layers of attention recall every pair.",
            protocol="held-out accuracy at the end with two layers, mean over seeds; the controls have one",
            value=parts(TWO),
            must=dict.fromkeys(TWO, RECALLS),
            controls=ONE,
            must_not=RECALLS,
            **GIVEN,
        ),
        hs.Claim(
            id="N2b",
            statement="The width that is needed does not grow with the number of pairs.",
            protocol=f"by seed, two layers: accuracy with {max(PAIRS)} pairs less that with {min(PAIRS)}",
            value=parts({f"width {width}": lost(2, width) for width in WIDTHS}),
            must={f"width {width}": hs.at_least(-0.01, unit="fraction") for width in WIDTHS},
            controls={"one layer": lost(1, WIDEST)},
            must_not=hs.at_least(-0.01, unit="fraction"),
            **GIVEN,
        ),
        hs.Claim(
            id="N2d",
            statement="Two heads in a row recall: values read their keys, then queries read the values.",
            protocol=f"two layers, {max(PAIRS)} pairs: mean attention from values to the keys before them in the first "
            "layer, and from queries to their values in the last; the control: the latter with one layer",
            value=parts(HEADS),
            must=dict.fromkeys(HEADS, hs.at_least(0.9, unit="fraction")),
            controls={"one layer to values": strongest("value", 1, 0)},
            must_not=hs.at_least(0.9, unit="fraction"),
            **GIVEN,
        ),
    ],
    figures=[hs.figures.bars("accuracy"), hs.figures.curves("accuracy")],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
    held_out=512,
)
