"""What it costs to take heads out: accuracy with and without them, with intervals over questions and draws."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hopscope.claims.intervals import Interval, bootstrap_mean, mean, wilson
from hopscope.language.heads.answers import Ablation, Head, Method, choose
from hopscope.language.heads.attention import Outputs
from hopscope.language.heads.model import Attentive
from hopscope.language.heads.ranking import matched
from hopscope.language.heads.tokens import Tokenized

RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A share with its 95 % interval, which one question alone does not have."""

    value: float
    interval: Interval | None


class Cost(NamedTuple):
    """What taking `k` heads out costs at one depth.

    Attributes:
        heads: the top ones.
        questions: how many.
        guess: mean chance of a blind guess.
        clean, top: accuracy with all heads, and without the top ones (Wilson intervals).
        random: mean accuracy without as many others (bootstrap over questions and draws).
        draws: sets of others.
        top_cost, random_cost: clean minus top (bootstrap over questions), and minus random (as `random`).
        margins: mean log-odds of the right answer against the best other one: clean, without the top heads, without
            others.
    """

    depth: int
    k: int
    heads: tuple[Head, ...]
    questions: int
    guess: float
    clean: Estimate
    top: Estimate
    random: Estimate
    draws: int
    top_cost: Estimate
    random_cost: Estimate
    margins: tuple[float, float, float]

    def record(self) -> dict[str, Any]:
        """One entry of `ablation`, see docs/heads.md: accuracies as shares, costs in points."""
        cost: dict[str, Any] = {}
        for name, (value, interval) in (("top", self.top_cost), ("random", self.random_cost)):
            cost[name] = 100 * value
            cost[f"{name}_interval"] = None if interval is None else [100 * end for end in interval]
        return {
            "depth": self.depth,
            "k": self.k,
            "heads": [list(head) for head in self.heads],
            "questions": self.questions,
            "guess": self.guess,
            **_accuracy(self.clean),
            "top": _accuracy(self.top),
            "random": {**_accuracy(self.random), "draws": self.draws},
            "cost": cost,
            "margin": dict(zip(("clean", "top", "random"), self.margins, strict=True)),
        }


def _accuracy(found: Estimate) -> dict[str, Any]:
    return {"accuracy": found.value, "interval": found.interval and list(found.interval)}


def costs(
    model: Attentive,
    texts: Sequence[Tokenized],
    depth: int,
    order: Sequence[Head],
    sizes: Sequence[int],
    outputs: Outputs,
    *,
    method: Method = "mean",
    draws: int = 8,
    seed: int = 0,
) -> list[Cost]:
    """Take the first of the ranked heads out, and as many others, for every size.

    Args:
        model: whose heads.
        texts: questions of one depth.
        depth: theirs.
        order: all heads, in the order in which they are taken out.
        sizes: how many at once.
        outputs: of other questions, for what stands in a head's place.
        method: what stands there.
        draws: sets of other heads.
        seed: of the draws.

    Raises:
        UserError: a question is too long, or its answers cannot be told apart by tokens.
    """
    clean = choose(model, texts)
    found = []
    for k in sizes:
        heads = order[:k]
        sets = matched(heads, (len(model.layers), model.heads), draws, seed)
        top, *others = (
            choose(model, texts, Ablation(frozenset(each), method, outputs, seed)) for each in (heads, *sets)
        )
        accuracy = np.stack([other.correct for other in others])
        lost = clean.correct - top.correct
        found.append(
            Cost(
                depth,
                k=len(heads),
                heads=tuple(heads),
                questions=len(texts),
                guess=mean([1 / len(text.continuations) for text in texts]),
                clean=_share(clean.correct),
                top=_share(top.correct),
                random=Estimate(float(accuracy.mean()), two_way(accuracy)),
                draws=len(others),
                top_cost=Estimate(float(lost.mean()), bootstrap_mean(lost.tolist())),
                random_cost=Estimate(
                    float((clean.correct - accuracy).mean()), two_way(clean.correct - accuracy)
                ),
                margins=(
                    float(clean.margin.mean()),
                    float(top.margin.mean()),
                    float(np.mean([other.margin for other in others])),
                ),
            )
        )
    return found


def _share(correct: NDArray[np.float64]) -> Estimate:
    n = len(correct)
    return Estimate(float(correct.mean()), wilson(int(correct.sum()), n) if n > 1 else None)


def two_way(values: NDArray[np.float64], seed: int = 0) -> Interval | None:
    """95 % percentile bootstrap interval of a mean over [draw, question], both resampled (Owen 2007, "pigeonhole").

    Returns:
        (low, high), or None for a single question.
    """
    draws, questions = values.shape
    if questions < 2:
        return None
    generator = np.random.Generator(np.random.Philox(key=seed))
    rows = generator.multinomial(draws, np.full(draws, 1 / draws), size=RESAMPLES) / draws
    columns = generator.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions
    means = ((rows @ values) * columns).sum(axis=1)
    low, high = np.clip(np.quantile(means, [0.025, 0.975]), values.min(), values.max())
    return float(low), float(high)
