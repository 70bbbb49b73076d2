"""given_links.py: is the last symbol of a chain learned alone where pairs are linked from the start?

Asked for x_D alone, no model learns anything.  Here every second token of a pair carries the symbol of its first token
as well: what a frozen first layer that links pairs would leave there.  A control carries the symbol of another pair.
"""

from typing import Literal

import hopscope as hs
from hopscope.claims import as_large_as

DEPTHS, LEARNED = (2, 3), 0.5
WITHOUT, GIVEN, OTHER = "no links", "links given", "links to another pair"
MOST, FEW = hs.at_least(0.75, unit="fraction"), hs.at_most(0.25, unit="fraction")


class Linked(hs.tasks.Retrieval):
    """The retrieval problem; a token is its symbol, a symbol that it is given (zeros where none is), its position.

    Attributes:
        given: to second tokens: nothing, the symbol of the first token of their pair, or that of the next pair.
    """

    given: Literal["nothing", "own", "other"] = "nothing"

    def shape(self):
        return super().shape().model_copy(update={"input_size": 3 * self.symbol_dim})

    def sample(self, draws):
        import torch

        batch = super().sample(draws)
        symbols, codes = batch.inputs.tensor_split((self.symbol_dim,), -1)
        first = batch.relations["pair_mate"].clamp(min=0)  # [member, batch, position]
        if self.given == "other":  # within the block of N pairs, the last one has the first
            last = batch.roles["place"] == self.chains - 1
            first = (first + torch.where(last, 2 - 2 * self.chains, 2)).clamp(0, first.shape[-1] - 1)
        second = batch.roles["kind"] == self.words["roles"]["kind"].index("second")
        shown = symbols.take_along_dim(first[..., None], 2) * second[..., None]
        shown = shown * (self.given != "nothing")
        return hs.Batch(
            inputs=torch.cat((symbols, shown, codes), -1),
            targets=batch.targets,
            weights=batch.weights,
            roles={name: batch.roles[name] for name in ("kind", "step", "chain", "place")},
            relations={name: batch.relations[name] for name in ("previous", "pair_mate")},
        )

    def counterfactuals(self, batch):
        return None


def label(steps, name):
    return f"D = {steps}, {name}"


def configurations(options):
    given = {WITHOUT: "nothing", GIVEN: "own", OTHER: "other"}
    return [
        hs.Configuration(label=label(steps, name), overrides={"task.steps": steps, "task.given": word})
        for steps in DEPTHS
        for name, word in given.items()
    ]


def learned(name):
    """A function of the evidence: by chain, 1 for each seed that learned x_D alone, else 0."""

    def share(evidence):
        found = {}
        for steps in DEPTHS:
            loss = evidence.last(f"loss_step_{steps}", configuration=label(steps, name))
            found[label(steps, name)] = (loss < LEARNED).astype(float).where(loss.notna())
        return found

    return share


def both(evidence):
    return {**learned(GIVEN)(evidence), **learned(WITHOUT)(evidence)}


def control(evidence):
    return {
        label(steps, GIVEN): own for steps, own in zip(DEPTHS, learned(OTHER)(evidence).values(), strict=True)
    }


study = hs.Study(
    name="given-links",
    question="Is the last symbol of a chain learned alone where the tokens of a pair are linked from the start?",
    task=Linked(steps=2, chains=4, position="pair", targets="last"),
    model=hs.Model(layers=4, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=1000, batch_size=64, learning_rate=4e-3, evaluate_every=20, checkpoint_every=1000
    ),
    configurations=configurations,
    seeds=16,
    held_out=256,
    claims=[
        hs.Claim(
            id="N20",
            statement="What makes x_D alone learnable is the first layer that links pairs, given and frozen.",
            source="docs/protocols.md, Revision 3",
            protocol="asked for x_D alone, D = 2 and 3: share of seeds with a held-out loss under 0.5 at the end, "
            "exact interval: at least 75 % where second tokens are given the symbol of their first, at most 25 % "
            "where not; the control is given the symbol of another pair",
            value=both,
            must={
                **{label(steps, GIVEN): MOST for steps in DEPTHS},
                **{label(steps, WITHOUT): FEW for steps in DEPTHS},
            },
            rule="share",
            seeds_needed=16,
            at_scale=as_large_as(
                {"model.layers": 4, "model.heads": 8, "model.width": 128, "training.steps": 1000}
            ),
            controls={OTHER: control},
            must_not={label(steps, GIVEN): MOST for steps in DEPTHS},
        )
    ],
    figures=[
        hs.figures.bars("loss", by="configuration", title="final held-out loss of x_D"),
        hs.figures.curves("loss", by="configuration", title="held-out loss of x_D"),
    ],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "model.width": 32, "held_out": 64}},
    costs={"": "96 models"},
)
