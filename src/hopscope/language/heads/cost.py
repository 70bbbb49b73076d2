"""What it costs to take heads out: accuracy with and without them, with intervals over questions and draws."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hopscope.claims.intervals import Interval, bootstrap_mean, mean, wilson
from hopscope.language.heads.answers import Ablation, Head, Kept, Method, choose_each
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
        layers_cost: clean minus without any head of the layers that the top ones stand in.
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
    layers_cost: Estimate

    def record(self) -> dict[str, Any]:
        """One entry of `ablation`, see docs/heads.md: accuracies as shares, costs in points."""
        cost: dict[str, Any] = {}
        for name, (value, interval) in (
            ("top", self.top_cost),
            ("random", self.random_cost),
            ("layers", self.layers_cost),
        ):
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
    kept: Kept | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
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
        kept: passes of an earlier call.
        progress: is told how many passes are done, and of how many.

    Raises:
        UserError: a question is too long, or its answers cannot be told apart by tokens.
    """
    shape = len(model.layers), model.heads
    sets: list[list[frozenset[Head]]] = []
    for k in sizes:
        whole = frozenset(
            (layer, head) for layer in {layer for layer, _ in order[:k]} for head in range(shape[1])
        )
        sets.append([frozenset(order[:k]), whole, *matched(order[:k], shape, draws, seed)])
    out = [Ablation(heads, method, outputs, seed) for of_size in sets for heads in of_size]
    clean, *answers = choose_each(model, texts, [None, *out], kept, progress)
    found = []
    for k, of_size in zip(sizes, sets, strict=True):
        heads = order[:k]
        top, layers, *others = answers[: len(of_size)]
        del answers[: len(of_size)]
        accuracy = np.stack([other.correct for other in others])
        lost, most = clean.correct - top.correct, clean.correct - layers.correct
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
                layers_cost=Estimate(float(most.mean()), bootstrap_mean(most.tolist())),
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
