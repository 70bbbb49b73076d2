"""When a symbol is learned, as a function of the batch size: a small model of the dynamics, and what it must beat.

The model has one order parameter m, how far the circuit has formed, which grows from its own product:

    dm/dt = r m (1 - m) / (1 + B* / B)

The divisor is the slowing by gradient noise of McCandlish and others (arXiv 1812.06162, section 2): with B samples, a
step makes the progress of a step without noise over 1 + B*/B, with a noise scale B* in samples.  Growth from its start
to the value at which the loss falls then takes T = T∞ (1 + B*/B) steps.  Rate, start and end of the growth come into T∞
alone, so that two constants are fitted, and what is tested is the law of the noise, not the form of the growth.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Predictor = Callable[[float], float]
"""From a batch size to training steps."""

NOISE = (1e-2, 1e5)
"""Noise scales, in samples, among which the fit searches."""


class Run(NamedTuple):
    """A trained model, as the predictors see it.

    Attributes:
        batch: samples of a training step.
        time: training step at which it learned; infinite where it never did.
        end: last step of its training.
    """

    batch: float
    time: float
    end: float

    @property
    def logarithm(self) -> float:
        """Of the time; a run that never learned counts with the last step of its training."""
        return math.log(min(self.time, self.end))


def emergence(fastest: float, noise: float, batch: float) -> float:
    """Training steps until the symbol is learned, T∞ (1 + B*/B).

    Args:
        fastest: T∞, the steps that it takes without gradient noise.
        noise: B*, the noise scale in samples.
        batch: B, the samples of a training step.
    """
    return fastest * (1.0 + noise / batch)


class Surrogate(NamedTuple):
    """The constants of the model: `fastest` (T∞, in steps) and `noise` (B*, in samples)."""

    fastest: float
    noise: float

    def at(self, batch: float) -> float:
        """Predicted training steps at a batch size."""
        return emergence(self.fastest, self.noise, batch)


def fitted(runs: Sequence[Run]) -> Surrogate:
    """The surrogate with the least squared error of the logarithms of times.

    For a given noise scale the best T∞ is a mean, so that one number is searched for.
    """
    from scipy.optimize import minimize_scalar

    logs = np.array([run.logarithm for run in runs])
    batches = np.array([run.batch for run in runs])

    def left(noise: float) -> NDArray[np.float64]:
        found: NDArray[np.float64] = logs - np.log1p(math.exp(noise) / batches)
        return found

    low, high = math.log(NOISE[0]), math.log(NOISE[1])
    # The error has one valley in the noise scale of true times, but shuffled ones may have more: look at many first.
    grid = np.linspace(low, high, 65)
    at = int(np.argmin([left(noise).var() for noise in grid]))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
    best = float(minimize_scalar(lambda noise: left(noise).var(), bounds=around, method="bounded").x)
    return Surrogate(math.exp(left(best).mean()), math.exp(best))


def mean_time(runs: Sequence[Run]) -> Predictor:
    """One constant: the mean of the logarithms of times, whatever the batch size."""
    mean = math.exp(float(np.mean([run.logarithm for run in runs])))
    return lambda batch: mean


def power_law(runs: Sequence[Run], exponent: float | None = -1.0) -> Predictor:
    """Time = a · batch^exponent.

    Args:
        runs: what it is fitted on, by least squares of logarithms.
        exponent: given; by default -1, which says that a number of samples is needed.  `None`: it is fitted too.
    """
    logs, sizes = np.array([(run.logarithm, math.log(run.batch)) for run in runs]).T
    slope = float(np.polyfit(sizes, logs, 1)[0]) if exponent is None else exponent
    constant = float((logs - slope * sizes).mean())
    return lambda batch: math.exp(constant + slope * math.log(batch))


def between(runs: Sequence[Run]) -> Predictor:
    """Straight lines between the mean log times of neighbouring batch sizes; flat beyond the last ones."""
    sizes = sorted({run.batch for run in runs})
    means = [float(np.mean([run.logarithm for run in runs if run.batch == size])) for size in sizes]
    return lambda batch: math.exp(float(np.interp(math.log(batch), np.log(sizes), means)))


def shuffled(runs: Sequence[Run]) -> list[Run]:
    """The runs with their batch sizes exchanged: each value takes the place of the one half the list further on."""
    sizes = sorted({run.batch for run in runs})
    other = dict(zip(sizes, sizes[len(sizes) // 2 :] + sizes[: len(sizes) // 2], strict=True))
    return [run._replace(batch=other[run.batch]) for run in runs]


SURROGATE, MEAN, POWER, FREE_POWER = "surrogate", "mean", "power law, exponent −1", "power law, free exponent"
BETWEEN, SHUFFLED = "lines between fitted sizes", "surrogate, batch sizes shuffled"

PREDICTORS: dict[str, tuple[int, Callable[[Sequence[Run]], Predictor]]] = {
    SURROGATE: (2, lambda runs: fitted(runs).at),
    MEAN: (1, mean_time),
    POWER: (1, power_law),
    FREE_POWER: (2, lambda runs: power_law(runs, None)),
    BETWEEN: (4, between),
    SHUFFLED: (2, lambda runs: fitted(shuffled(runs)).at),
}
"""Name → number of constants (of lines: one for each of four sizes), and how it is fitted."""


def median_interval(
    values: Sequence[float], clusters: Sequence[int], resamples: int = 4_000
) -> tuple[float, float]:
    """95 % bootstrap interval of a median; values of one cluster, such as a seed, are resampled together."""
    by_cluster = [[value for value, own in zip(values, clusters, strict=True) if own == cluster]
                  for cluster in dict.fromkeys(clusters)]  # fmt: skip
    generator = np.random.Generator(np.random.Philox(key=0))
    drawn = generator.integers(len(by_cluster), size=(resamples, len(by_cluster)))
    medians = [np.median([value for place in row for value in by_cluster[place]]) for row in drawn]
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)
