"""nearest_key.py: a task on vectors with roles, and the circuit that a member learned for it."""

import hopscope as hs
from hopscope.claims import as_large_as


class NearestKey(hs.Task):
    """Items with a key and a value each, then a query that repeats one key: answer the value beside it."""

    items: int = 5
    size: int = 3

    def shape(self):
        return hs.Shape(
            inputs="vectors",
            input_size=2 * self.size,  # key, then value
            positions=self.items + 1,
            readout=(self.items,),  # the query is the last position
            output_size=self.size,
        )

    def sample(self, draws):
        import torch

        pairs = draws.normal("pairs", (self.items, 2 * self.size))  # [member, batch, item, feature]
        asked = draws.integers("asked", self.items, (1,))  # [member, batch, 1]
        item = pairs.gather(2, asked[..., None].expand(*asked.shape, 2 * self.size))
        key, value = item.split(self.size, -1)  # [member, batch, 1, size]
        query = torch.cat((key, torch.zeros_like(key)), -1)
        match = draws.constant(-1, (self.items + 1,))
        match[..., -1:] = asked
        return hs.Batch(
            inputs=torch.cat((pairs, query), 2),
            targets=value,  # [member, batch, readout, output]
            roles={"kind": draws.constant([0] * self.items + [1], (self.items + 1,))},
            relations={"match": match},
        )

    def floors(self):
        return {"zero": 1.0, "mean of the values": 1 - 1 / self.items}

    @property
    def words(self):
        return {"roles": {"kind": ("item", "query")}}


def best_head(evidence):
    """Attention of the query to its item, by the head of each member that pays most."""
    rows = evidence.rows("attention_to_match")
    return rows[rows["step"] == rows["step"].max()].groupby("member")["value"].max()


study = hs.Study(
    name="nearest-key",
    question="Does a head learn to match a query with the item that has its key?",
    task=NearestKey(),
    model=hs.Model(layers=2, heads=1, width=32, mlp_ratio=0.0, positions="none"),
    training=hs.Training(steps=1500, batch_size=64, learning_rate=3e-3, checkpoint_every=500),
    seeds=4,
    measures=[hs.measures.attention_to("match"), hs.measures.head_ablation],
    claims=[
        hs.Claim(
            id="N1",
            statement="The query attends to the item that has its key.",
            source="this file",
            protocol="attention to the matching item at the last checkpoint, of the head that pays most",
            value=best_head,
            must=hs.at_least(0.5, unit="fraction"),
            rule="mean",
            at_scale=as_large_as({"training.steps": 1500}),
        )
    ],
    figures=[hs.figures.curves("loss"), hs.figures.heads("attention_to_match")],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)

if __name__ == "__main__":
    run = hs.run(study)
    print(run.claims)
    print(run.circuit(0))
