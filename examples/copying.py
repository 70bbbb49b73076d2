"""copying.py: how many layers does it take to copy from a fixed distance?"""

import hopscope as hs
from hopscope.claims import as_large_as


class Copy(hs.Task):
    """Repeat the token that stands `back` places before the last one."""

    length: int = 11
    values: int = 7
    back: int = 3

    def shape(self) -> hs.Shape:
        return hs.Shape(
            inputs="tokens",
            input_size=self.values,
            positions=self.length,
            readout=(self.length - 1,),
            output_size=self.values,
        )

    def sample(self, draws: hs.Draws) -> hs.Batch:
        tokens = draws.integers("tokens", self.values, (self.length,))  # [member, batch, position]
        source = self.length - 1 - self.back
        return hs.Batch(
            inputs=tokens,
            targets=tokens[..., source : source + 1],  # [member, batch, readout]
            relations={"source": draws.constant(source, (self.length,))},  # key position of every row
        )

    def floors(self):
        return {"accuracy": {"guess": 1 / self.values}}


study = hs.Study(
    name="copying",
    question="How many layers does it take to copy from a fixed distance?",
    task=Copy(),
    model=hs.Model(layers=1, heads=1, width=32),
    training=hs.Training(steps=1500, batch_size=64, learning_rate=1e-3),
    vary={"model.layers": [1, 2], "task.back": [1, 3]},
    seeds=10,
    measures=[hs.measures.accuracy, hs.measures.attention_to("source")],
    claims=[
        hs.Claim(
            id="C1",
            statement="One layer copies from a fixed distance in every seed.",
            source="this file",
            protocol="held-out accuracy at the last checkpoint",
            value=lambda evidence: evidence.last("accuracy", **{"model.layers": 1}),  # one number a member
            must=hs.at_least(0.99, unit="fraction"),
            rule="always",
            at_scale=as_large_as({"training.steps": 1500}),
        ),
    ],
    figures=[
        hs.figures.curves("loss", by="model.layers"),
        hs.figures.bars("accuracy", by="configuration"),
        hs.figures.heads("attention_to_source"),
    ],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)
