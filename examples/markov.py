"""markov.py: Markov chains in context.  Do models become counters of pairs, and do they count single states first?

After Edelman, Edelman, Goel, Malach and Tsilivis, The Evolution of Statistical Induction Heads (arXiv 2402.11004).
They use relative positions; here positions are learned.
"""

import hopscope as hs

NEAR = 0.025  # divergence in nats under which a model counts as a predictor
PREDICTORS = ("uniform", "unigram", "bigram")


class MarkovChains(hs.Task):
    """Predict the next state of a Markov chain whose transition matrix has to be seen from the sequence itself.

    Each row of the matrix is uniform over all distributions, the first state uniform over states.  So the best
    predictor counts pairs: (times that s followed the current state + 1) / (times that anything followed it + S).
    """

    states: int = 3
    length: int = 64

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=self.states,
            positions=self.length,
            readout=tuple(range(self.length)),
            output_size=self.states,
        )

    def sample(self, draws):
        import torch

        weights = -torch.log1p(-draws.uniform("matrix", (self.states, self.states)))
        matrix = weights / weights.sum(-1, keepdim=True)  # [member, batch, state, next state]
        ends = matrix.cumsum(-1)[..., :-1]
        walk = [draws.integers("first", self.states)]
        for step in draws.uniform("steps", (self.length,)).unbind(-1):
            row = ends.gather(2, walk[-1][..., None, None].expand(-1, -1, 1, ends.shape[-1]))[:, :, 0]
            walk.append((step[..., None] >= row).sum(-1))
        states = torch.stack(walk, -1)
        previous = draws.constant(range(-1, self.length - 1), (self.length,))
        return hs.Batch(inputs=states[..., :-1], targets=states[..., 1:], relations={"previous": previous})

    def predictors(self, inputs):
        """Probabilities of the next state, `[member, batch, position, state]`, by what is counted so far.

        `uniform`: nothing; `unigram`: states; `bigram`: what followed the current state, which is the best.
        """
        import torch
        from torch.nn.functional import one_hot, pad

        seen = one_hot(inputs, self.states).float()
        pairs = pad(seen[..., :-1, :, None] * seen[..., 1:, None, :], (0, 0, 0, 0, 1, 0)).cumsum(-3)
        followed = (pairs * seen[..., None]).sum(-2)
        counts = {"uniform": torch.zeros_like(seen), "unigram": seen.cumsum(-2), "bigram": followed}
        return {name: (count + 1.0) / (count + 1.0).sum(-1, keepdim=True) for name, count in counts.items()}

    def parts(self, predictions, batch):
        """The loss in nats, and `from_NAME`: divergence of the model from a predictor, KL(predictor ‖ model)."""
        logs = predictions.log_softmax(-1)
        distances = {
            f"from_{name}": (given * (given.log() - logs)).sum(-1).mean((1, 2))
            for name, given in self.predictors(batch.inputs).items()
        }
        return {**super().parts(predictions, batch), **distances}


@hs.measure
def successors(context):
    """Attention of each head to positions that follow an earlier occurrence of the current state.

    Metric `to_successors`, and `to_successors_uniform` of attention that is even over all positions so far.
    """
    import torch

    states = context.held_out.inputs
    size = states.shape[-1]
    follows = torch.zeros(*states.shape, size, dtype=torch.bool)
    follows[..., 1:] = states[..., :, None] == states[..., None, :-1]
    follows &= torch.ones(size, size, dtype=torch.bool).tril()
    rows = follows.any(-1)
    cache = context.ensemble.cache(states)
    for layer in range(context.ensemble.config.layers):
        mass = (cache[f"blocks.{layer}.attn.hook_pattern"] * follows[:, :, None]).sum(-1)
        shares = (mass * rows[:, :, None]).sum((1, 3)) / rows.sum((1, 2))[:, None]
        for head in range(shares.shape[1]):
            yield {"metric": "to_successors", "layer": layer, "head": head, "value": shares[:, head]}
    even = (follows.sum(-1) / torch.arange(1, size + 1))[rows].mean()
    yield {"metric": "to_successors_uniform", "value": even.expand(len(context.members))}


def last(predictor, layers):
    """A function of the evidence: the last divergence from a predictor, `[member]`."""
    return lambda evidence: evidence.last(f"from_{predictor}", **{"model.layers": layers})


def phases(evidence):
    """Of two layers, by seed: the least divergence from unigrams on the way to bigrams, and training steps from there.

    Where a model never comes near bigrams, the steps are not known.
    """
    unigram, bigram = (
        evidence.curve(f"from_{name}", **{"model.layers": 2}) for name in ("unigram", "bigram")
    )
    least, lead = [], []
    for member in unigram.columns:
        near = bigram.index[bigram[member] < NEAR]
        before = unigram[member] if near.empty else unigram[member].loc[: near[0]]
        least.append(before.min())
        lead.append(near[0] - before.idxmin() if len(near) and before.notna().any() else None)
    return {"divergence": hs.Samples(least, unit="seed"), "lead": hs.Samples(lead, unit="seed")}


GIVEN = {
    "source": "Edelman et al., arXiv 2402.11004, section 3",
    "seeds_needed": 8,
    "rule": "mean",
    "at_scale": lambda evidence: "learned positions, not relative ones",
}
IS = hs.at_most(NEAR, unit="nats")

study = hs.Study(
    name="markov",
    question="Do models become counters of pairs in context, and do they count single states first?",
    task=MarkovChains(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=1, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=3000, batch_size=64, optimizer="adam", learning_rate=3e-3, weight_decay=0.0, evaluate_every=50
    ),
    vary={"model.layers": [1, 2]},
    seeds=8,
    measures=[successors, hs.measures.attention_to("previous")],
    claims=[
        hs.Claim(
            id="N3a",
            statement="Two layers become the best predictor, which counts pairs of states.",
            protocol="final divergence from the bigram predictor on held-out samples, in nats, mean over seeds; the "
            "control has one layer",
            value=last("bigram", 2),
            must=IS,
            controls={"one layer": last("bigram", 1)},
            **GIVEN,
        ),
        hs.Claim(
            id="N3b",
            statement="Before that, models predict by counts of single states.",
            protocol="two layers: least divergence from the unigram predictor before the model is near the bigram "
            f"predictor ({NEAR} nats), and training steps from there to it; the control is the divergence from the "
            "uniform predictor at the end",
            value=phases,
            must={"divergence": hs.at_most(0.05, unit="nats"), "lead": hs.at_least(1.0, unit="steps")},
            controls={"uniform": last("uniform", 2)},
            must_not=hs.at_most(0.05, unit="nats"),
            **GIVEN,
        ),
        hs.Claim(
            id="N3c",
            statement="One layer stays a counter of single states.",
            protocol="final divergence of models with one layer from the unigram predictor, in nats, mean over seeds; "
            "the control has two layers",
            value=last("unigram", 1),
            must=IS,
            controls={"two layers": last("unigram", 2)},
            **GIVEN,
        ),
    ],
    figures=[hs.figures.curves(f"from_{name}", by="model.layers") for name in PREDICTORS],
    presets={"smoke": {"seeds": 2, "training.steps": 20, "held_out": 64}},
)
