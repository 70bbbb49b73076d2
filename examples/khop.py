"""khop.py: k-hop induction.  Does following twice as many hops cost one more layer?

After Sanford, Hsu and Telgarsky, Transformers, Parallel Computation, and Logarithmic Depth (arXiv 2402.09268).  They
follow up to 16 hops through 100 letters with models of width 128; this file is smaller in each.
"""

import hopscope as hs
from hopscope.claims import as_large_as

FOLLOWED = 0.95  # accuracy from which a model follows k hops
LAYERS, HOPS = (1, 2, 3, 4), (1, 2, 3, 4)
LETTERS, WIDTH = 100, 128  # of the publication


def named(hops):
    return f"{hops} hop{'s' * (hops > 1)}"


def one_hop(inputs):
    """The position after the last earlier occurrence of each token, `[…, position]`; 0: it did not occur before."""
    import torch

    size = inputs.shape[-1]
    same = (inputs[..., :, None] == inputs[..., None, :]).tril(-1)
    return (same * torch.arange(1, 1 + size, device=inputs.device)).amax(-1)


def follow(hop, times):
    """Where `times` `[member, batch]` hops lead, `[member, batch, position]`; 0: nowhere."""
    import torch

    found = torch.arange(hop.shape[-1], device=hop.device).expand_as(hop)
    for done in range(int(times.max())):
        found = torch.where((done < times)[..., None], hop.gather(-1, found), found)
    return found


class Hops(hs.Task):
    """Say at every letter of a text which letter is k hops back; k stands in front of the text.

    One hop goes from position i to the position after the last j < i with the same letter.  Letters are uniform, but
    none follows itself.  Where k hops lead nowhere, nothing is asked (weight 0).
    """

    letters: int = 4
    length: int = 32
    hops: tuple[int, ...] = HOPS

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=self.letters + len(self.hops),
            positions=1 + self.length,
            readout=tuple(range(1, 1 + self.length)),
            output_size=self.letters,
        )

    def sample(self, draws):
        import torch

        asked = draws.integers("hops", len(self.hops))
        first = draws.integers("first", self.letters, (1,))
        turns = 1 + draws.integers("turns", self.letters - 1, (self.length - 1,))
        text = torch.cat((first, turns), -1).cumsum(-1) % self.letters
        inputs = torch.cat((self.letters + asked[..., None], text), -1)  # [member, batch, position]
        hop = one_hop(inputs)
        ends = follow(hop, torch.tensor(self.hops, device=asked.device)[asked])
        reached = ends[..., 1:] > 0
        return hs.Batch(
            inputs=inputs,
            targets=inputs.gather(-1, ends)[..., 1:] * reached,
            weights=reached.float(),
            groups={named(hops): asked == number for number, hops in enumerate(self.hops)},
            roles={"kind": draws.constant([0] + [1] * self.length, (1 + self.length,))},
            relations={"answer": ends.where(ends > 0, -1), "one_hop": hop.where(hop > 0, -1)},
        )

    def floors(self):
        """In a long text k hops end at the same letter as k - 2 do in a share of 2 / letters."""
        return {"accuracy": {"a guess": 1 / self.letters, "two hops fewer": 2 / self.letters}}

    @property
    def words(self):
        return {"roles": {"kind": ("hops", "letter")}}


@hs.measure
def shortcut(context):
    """How often two hops fewer lead to the right letter, by number of hops: what a model may do instead."""
    import torch

    task, batch = Hops(), context.held_out
    hop, places = one_hop(batch.inputs), torch.arange(batch.inputs.shape[-1])
    for hops in task.hops:
        group = batch.groups[named(hops)]
        fewer = torch.full_like(group, hops - 2, dtype=torch.int64)
        ends = places.expand_as(hop) - 1 if hops == 1 else follow(hop, fewer)
        right = batch.inputs.gather(-1, ends.clamp(min=0))[..., 1:] == batch.targets
        counts = (batch.relations["answer"][..., 1:] >= 0) & group[..., None]
        share = (right & counts).sum((1, 2)) / counts.sum((1, 2))
        yield {"metric": "two_fewer", "part": named(hops), "value": share.expand(len(context.members))}


def enough(hops):
    """Layers that can follow so many hops: ⌊log2 k⌋ + 2 (theorem 4.2)."""
    return hops.bit_length() + 1


def accuracy(layers, hops):
    """A function of the evidence: accuracy of so many hops at the end, of the models with so many layers."""
    return lambda evidence: evidence.last("accuracy", part=named(hops), **{"model.layers": layers})


def by_hops(fewer):
    """Number of hops → its accuracy with as many layers as are enough, or fewer."""
    depths = {hops: enough(hops) - fewer for hops in HOPS}
    return {named(hops): accuracy(layers, hops) for hops, layers in depths.items() if layers in LAYERS}


def smaller(evidence):
    """What a run lacks of the publication's texts and models."""
    letters = evidence.config["identity"]["task"]["fields"]["letters"]
    words = [f"{letters} letters, not {LETTERS}"] * (letters < LETTERS)
    return ", ".join(filter(None, [*words, as_large_as({"model.width": WIDTH})(evidence)]))


def claim(id, statement, fewer, criterion):
    values, controls = by_hops(fewer), by_hops(1 - fewer)
    return hs.Claim(
        id=id,
        statement=statement,
        source="Sanford et al., arXiv 2402.09268, theorem 4.2 and section 5",
        protocol=f"held-out accuracy of k hops at the end, mean over seeds, for every k, with ⌊log2 k⌋ + {2 - fewer} "
        f"layers; the controls have ⌊log2 k⌋ + {1 + fewer}",
        value=lambda evidence: {name: value(evidence) for name, value in values.items()},
        must=dict.fromkeys(values, criterion),
        rule="mean",
        seeds_needed=8,
        at_scale=smaller,
        controls=controls,
        must_not=criterion,
    )


study = hs.Study(
    name="khop",
    question="Does following twice as many hops cost one more layer?",
    task=Hops(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=2, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=3000, batch_size=64, learning_rate=1e-3, betas=(0.9, 0.95), weight_decay=0.0, evaluate_every=100
    ),
    vary={"model.layers": LAYERS},
    seeds=4,
    measures=[shortcut, hs.measures.attention_to("one_hop")],
    claims=[
        claim(
            "N1a",
            "⌊log2 k⌋ + 2 layers learn k hops.",
            0,
            hs.at_least(FOLLOWED, unit="fraction"),
        ),
        claim("N1b", "One layer less is not enough.", 1, hs.at_most(FOLLOWED, unit="fraction")),
    ],
    figures=[hs.figures.curves("accuracy", by="model.layers", part=named(hops)) for hops in HOPS],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)
