"""renaming.py: chains of renamed values.  Does each further layer double the number of renamings that are followed?

After M. Lutz, Transformer Depth Unlocks Effective Context Size with Divide and Conquer (2025,
github.com/michael-lutz/iluvattnshun): a value is renamed again and again (`2>l; l>o; o>e`), and at every name the model
says which value it stands for.  There, eight models of two to five layers with one or two heads were trained for eight
days on texts of 150 lines.  Here a text has fewer lines and values, no name comes back, both names of a line share a
position code, and models start mimetically: equal tokens attend to each other before anything is learned.
"""

import math

import hopscope as hs
from hopscope.claims import as_large_as

FOLLOWED = 0.9  # accuracy from which a number of renamings is followed
LAYERS, HEADS = (2, 3, 4, 5), (1, 2)
SIZE = {"model.width": 128, "training.steps": 2500}
COUNTED = range(1, 13)  # renamings that enough lines of a text have


class Renaming(hs.Task):
    """Say at every new name which value it stands for.

    A text has lines of two tokens, a known name and a new one.  The first lines name each value; every further line
    renames the newest name of a chain, which is drawn uniformly.
    """

    values: int = 2
    lines: int = 24

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=self.values + self.lines,
            positions=2 * self.lines,
            readout=tuple(range(1, 2 * self.lines, 2)),
            output_size=self.values,
        )

    def sample(self, draws):
        import torch

        first = draws.permutation("first", self.values)
        chain = torch.cat((first, draws.integers("chain", self.values, (self.lines - self.values,))), -1)
        names = self.values + draws.permutation("names", self.lines)
        before = previous(chain)
        old = torch.where(before < 0, chain, names.gather(-1, before.clamp(min=0)))
        inputs = torch.stack((old, names), -1).flatten(-2)  # [member, batch, position]
        told = torch.stack((2 * before + 1, torch.full_like(before, -1)), -1).flatten(-2)
        return hs.Batch(
            inputs=inputs,
            targets=chain,
            roles={"kind": draws.constant([0, 1] * self.lines, (2 * self.lines,))},
            relations={"told": told.where(told > 0, -1)},
        )

    def floors(self):
        return {"accuracy": {"a guess": 1 / self.values}}

    @property
    def words(self):
        return {"roles": {"kind": ("known name", "new name")}}


def previous(chain):
    """The line before in the same chain, `[…, line]`; -1: it is the chain's first."""
    import torch

    lines = chain.shape[-1]
    same = (chain[..., :, None] == chain[..., None, :]).tril(-1)
    return (same * torch.arange(1, 1 + lines, device=chain.device)).amax(-1) - 1


@hs.measure
def by_renamings(context):
    """Accuracy on the names that so many renamings lie behind; metric `followed`, the part is their number."""
    batch = context.held_out
    chain = batch.targets
    hops = (chain[..., :, None] == chain[..., None, :]).tril(-1).sum(-1)
    right = context.ensemble(batch.inputs).argmax(-1) == chain
    for count in COUNTED:
        asked = hops == count
        share = (right & asked).sum((1, 2)) / asked.sum((1, 2))
        yield {"metric": "followed", "part": str(count), "value": share}


def reach(evidence, layers, heads):
    """By member: the largest number of renamings up to which all are followed."""
    where = {"model.layers": layers, "model.heads": heads}
    shares = [evidence.last("followed", part=str(count), **where) for count in COUNTED]
    lost = [(share < FOLLOWED).where(share.notna()) for share in shares]
    return sum(1.0 - sum(lost[: count + 1]).clip(upper=1.0) for count in range(len(lost)))


def doublings(evidence):
    """By depth and seed, of two heads: how often one layer more doubles the lines of a chain that are joined."""
    found = {}
    for layers in LAYERS[:-1]:
        less, more = (
            reach(evidence, each, HEADS[-1]).rename(evidence.seeds) for each in (layers, layers + 1)
        )
        found[f"{layers} to {layers + 1} layers"] = hs.Samples(
            (1.0 + more).map(math.log2) - (1.0 + less).map(math.log2), unit="seed"
        )
    return found


def second_head(evidence):
    """By depth and seed: accuracy with two heads less that with one."""
    found = {}
    for layers in LAYERS:
        one, two = (
            evidence.last("accuracy", **{"model.layers": layers, "model.heads": heads}).rename(evidence.seeds)
            for heads in HEADS
        )
        found[f"{layers} layers"] = hs.Samples(two - one, unit="seed")
    return found


SOURCE = "M. Lutz 2025, at the size of this file"

study = hs.Study(
    name="renaming",
    question="Does each further layer double the number of renamings that a model follows?",
    task=Renaming(),
    model=hs.Model(
        layers=2, heads=2, width=128, head_dim=32, mlp_ratio=0.0, positions="pair", init="mimetic"
    ),
    training=hs.Training(
        steps=2500, batch_size=64, learning_rate=2e-3, evaluate_every=50, checkpoint_every=2500
    ),
    vary={"model.layers": LAYERS, "model.heads": HEADS},
    seeds=8,
    held_out=512,
    measures=[by_renamings],
    claims=[
        hs.Claim(
            id="V1",
            statement="At this size and training, each layer from the third to the fifth doubles what is followed.",
            source=SOURCE,
            protocol="two heads a layer; log2 of one more layer's number of joined lines (renamings followed at 90 % "
            "accuracy or more, and the line itself) over that without it, mean over seeds, for each depth",
            value=doublings,
            must=dict.fromkeys(
                (f"{n} to {n + 1} layers" for n in LAYERS[:-1]), hs.at_least(1.0, unit="doublings")
            ),
            rule="mean",
            seeds_needed=8,
            at_scale=as_large_as(SIZE),
        ),
        hs.Claim(
            id="V2",
            statement="At this size a second head helps at every depth.",
            source=SOURCE,
            protocol="held-out accuracy with two heads less that with one, mean over seeds, for each depth",
            value=second_head,
            must=dict.fromkeys((f"{n} layers" for n in LAYERS), hs.at_least(0.0, unit="fraction")),
            rule="effect",
            seeds_needed=8,
            at_scale=as_large_as(SIZE),
        ),
    ],
    figures=[
        hs.figures.cells("accuracy", "model.heads", "model.layers", title="accuracy over all names"),
        hs.figures.sweep(
            "followed",
            "part",
            by="model.layers",
            panel="model.heads",
            name="followed",
            title="accuracy by renamings",
            levels={"a guess": 1 / Renaming().values},
            caption="Accuracy on names that so many renamings lie behind, by depth, with one head a layer and two.",
        ),
    ],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)
