"""formation.py: when do induction heads form?  Two published laws point opposite ways.

Aoyama, Wilcox and Schneider (arXiv 2511.16893): after tokens ∝ √(batch · context).  Musat et al. (arXiv 2511.01033):
after a time ∝ context².  Here models are small, and contexts are short.  The rate is constant, without warm-up: a
schedule stretches with the length of the training, which differs between batches, and would change the fitted times.
"""

import math

from pydantic import BaseModel

import hopscope as hs
from hopscope.claims import as_large_as

ONE, REPEATS = "one answer", "repeats"  # the task has one question, or as many as keys happen to come back
CONTEXTS = {ONE: (8, 12, 16, 24), REPEATS: (12, 24, 48)}
STEPS = {ONE: {32: 1500, 64: 800, 128: 450}, REPEATS: {32: 800, 64: 400, 128: 250}}  # batch → training steps
EVERY = {32: 20, 64: 10, 128: 5}  # batch → steps between evaluations


def matches(tokens):
    """Whether value v answers key row r: v < r, with the same key before it, `[member, batch, row, value]`."""
    keys = tokens[..., ::2]
    return (keys[..., :, None] == keys[..., None, :]).tril(-1)[..., :-1]


class Induction(hs.Task):
    """Pairs of a key and a value, then one key more; a key asks for the value that followed it before.

    In every sample each key has a new value: nothing can be learned by heart.  With `repeats` every key is drawn from
    all keys, and each that stood before asks; without, all keys differ but for the last one, which alone asks.
    """

    context: int = 16
    kinds: int = 16
    repeats: bool = False

    def shape(self):
        return hs.Shape(
            inputs="tokens",
            input_size=2 * self.kinds,
            positions=self.context + 1,
            readout=tuple(range(2 if self.repeats else self.context, self.context + 1, 2)),
            output_size=self.kinds,
        )

    def sample(self, draws):
        import torch

        pairs = self.context // 2
        values = draws.permutation("values", self.kinds)  # [member, batch, key]
        if self.repeats:
            keys = draws.integers("keys", self.kinds, (pairs + 1,))
        else:
            keys = draws.permutation("keys", self.kinds)[..., :pairs]
            keys = torch.cat((keys, keys.gather(-1, draws.integers("asked", pairs, (1,)))), -1)
        shown = values.gather(-1, keys)
        tokens = torch.stack((keys, self.kinds + shown), -1).flatten(-2)[..., :-1]
        asked = range(1, pairs + 1) if self.repeats else [pairs]
        places, latest = torch.full_like(tokens, -1), 2 * torch.arange(pairs, device=tokens.device) + 1
        places[..., ::2] = torch.where(matches(tokens), latest, -1).amax(-1)
        return hs.Batch(
            inputs=tokens,
            targets=shown[..., asked],
            weights=matches(tokens)[:, :, asked].any(-1).float() if self.repeats else None,
            relations={"answer": places},
        )

    def floors(self):
        """Accuracy of guessing any of the different values so far (where questions repeat: of all, a lower bound)."""
        return {"accuracy": {"any value": 1.0 / (self.kinds if self.repeats else self.context // 2)}}


def label(variant, context, batch):
    return f"{variant}, context {context}, batch {batch}"


CELLS = [(variant, context, batch) for variant in STEPS for context in CONTEXTS[variant] for batch in EVERY]


class Options(BaseModel, frozen=True):
    """Training steps of a model at most, and batch sizes."""

    longest: int = 1500
    batches: tuple[int, ...] = (32, 64, 128)


def configurations(options):
    return [
        hs.Configuration(
            label=label(variant, context, batch),
            overrides={
                "task.repeats": variant == REPEATS,
                "task.context": context,
                "training.batch_size": batch,
                "training.steps": min(STEPS[variant][batch], options.longest),
                "training.evaluate_every": EVERY[batch],
                "training.checkpoint_every": options.longest,
            },
        )
        for variant, context, batch in CELLS
        if batch in options.batches
    ]


def formed(evidence, cell):
    """Seed → last evaluation before half of the way from the floor to 1, first one there (infinite: never)."""
    variant, context, _ = cell
    floor = Induction(context=context, repeats=variant == REPEATS).floors()["accuracy"]["any value"]
    found = {}
    for member, curve in evidence.curve("accuracy", configuration=label(*cell)).items():
        there = curve.index[curve >= (1 + floor) / 2]
        first = float(there[0]) if len(there) else math.inf
        before = float(curve.index[curve.index < first].max()) if first else 0.0
        found[evidence.seeds[member]] = (before, first) if curve.notna().all() else (math.nan, math.nan)
    return found


def exponents(evidence, variant, batches):
    """For each seed the exponents (a, b) of steps ∝ context^a · batch^b, by maximum likelihood, over some batches.

    Log times are normal around a plane; a model that formed between two evaluations adds the probability of between.
    """
    import numpy as np
    from scipy.optimize import minimize
    from scipy.stats import norm

    trained = set(evidence.configurations.values())
    cells = [cell for cell in CELLS if cell[0] == variant and cell[2] in batches and label(*cell) in trained]
    times = [formed(evidence, cell) for cell in cells]
    plane = np.array([[1.0, math.log(context), math.log(batch)] for _, context, batch in cells])
    found = []
    for seed in times[0]:
        with np.errstate(divide="ignore"):
            low, high = np.log([of_cell[seed] for of_cell in times]).T
        seen = np.isfinite(high)
        if np.isnan(high).any() or seen.sum() < 4 or min(len({*plane[seen, at]}) for at in (1, 2)) < 2:
            found.append((math.nan, math.nan))
            continue

        def surprise(parameters, low=low, high=high):
            middle, spread = plane @ parameters[:3], math.exp(parameters[3])
            chance = norm.cdf(high, middle, spread) - norm.cdf(low, middle, spread)
            return -np.log(np.maximum(chance, 1e-30)).sum()

        start = np.linalg.lstsq(plane[seen], high[seen], rcond=None)[0]
        bounds = [(None, None)] * 3 + [(math.log(0.05), math.log(10.0))]
        fit = minimize(surprise, [*start, math.log(0.3)], method="L-BFGS-B", bounds=bounds)
        found.append((float(fit.x[1]), float(fit.x[2])))
    return found


def law(size, added, batches):
    """A function of the evidence: variant → exponent by context (0) or batch (1), by seed."""
    return lambda evidence: {
        variant: hs.Samples(
            [each[size] + added for each in exponents(evidence, variant, batches)], unit="seed"
        )
        for variant in STEPS
    }


TOKENS, TIME = "arXiv 2511.16893, in small models", "arXiv 2511.01033, in small models"
LAWS = (
    ("I1a", "Tokens until the head forms grow as the root of the context.", TOKENS, 0, 1, (0.25, 0.75)),
    ("I1b", "Tokens until the head forms grow as the root of the batch.", TOKENS, 1, 1, (0.25, 0.75)),
    ("I2", "Steps until the head forms grow as the square of the context.", TIME, 0, 0, (1.5, 2.5)),
)
READINGS = {"all batches": tuple(EVERY), "batches of 64 and more": tuple(EVERY)[1:]}
PROTOCOL = (
    "by seed, a censored log-normal fit of the first evaluation past half of the way from the floor to 1, over all "
    "contexts and batches of a variant; a model that never got there counts as later than the end; another reading "
    "leaves the smallest batch out, as one power need not hold over all"
)

study = hs.Study(
    name="formation",
    question="How does the time until an induction head forms depend on context and batch?",
    task=Induction(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=1, width=64, mlp_ratio=0.0, init="encoder"),
    training=hs.Training(steps=1500, batch_size=64, optimizer="adam", learning_rate=3e-3, weight_decay=0.0),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[hs.measures.attention_to("answer")],
    claims=[
        hs.Claim(
            id=id,
            statement=statement,
            source=source,
            protocol=PROTOCOL,
            readings={words: law(size, added, batches) for words, batches in READINGS.items()},
            must=dict.fromkeys(STEPS, hs.between(*band)),
            rule="mean",
            seeds_needed=8,
            at_scale=as_large_as({"model.layers": 2, "model.width": 64}),
        )
        for id, statement, source, size, added, band in LAWS
    ],
    figures=[hs.figures.curves("accuracy")],
    presets={"smoke": {"seeds": 2, "model.width": 16, "options.longest": 40, "options.batches": (64,)}},
    held_out=128,
)
