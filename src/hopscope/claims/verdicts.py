"""From per-seed values to a verdict, by one rule for every claim: nobody types a verdict in.

*Always, never, 100 %* (`judge_always`): refuted if one seed violates the threshold by more than its
evaluation error; reproduced if no seed violates it at all and there are at least max(10, the source's number
of) seeds; inconclusive otherwise.  Several values of one seed count as one seed, except where the source counts runs or
cases (units `run` and `case`): there n counts values.  *Means* (`judge_bootstrap`): the 95 % bootstrap interval over
seeds, or the exact one where the mean is a share of seeds, wholly meets the threshold, wholly fails it, or neither.
*Effects*, differences and correlations: the same, but an interval that holds 0 reproduces nothing.

A run below the protocol's scale (fewer samples, a smaller model, too few seeds for an interval) can neither
reproduce nor refute: its numbers are shown, its verdict is inconclusive, and the words say what is missing.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, cast

from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import (
    Interval,
    bootstrap_correlation,
    bootstrap_mean,
    clopper_pearson,
    correlation,
    mean,
    share_interval,
)
from hopscope.config import Config
from hopscope.words import counted

LEAST_SEEDS = 10
"""Seeds that a sentence with "always" needs; with fewer, a bootstrap interval is much too short as well."""

UNTRIED = "; refuted only if every reading of the source refutes it, not tried: "
"""Stands in the words of a claim that everything tried refutes, before the names of what was not."""


Need = Literal["all", "any", "agreement"]
"""How the parts of a claim decide together."""


class Verdict(StrEnum):
    """The outcome of a claim in a run."""

    REPRODUCED = "reproduced"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


class Judgement(Config):
    """A verdict with the numbers it rests on.

    Attributes:
        verdict: what the numbers say about the claim.
        value: mean over seeds, or one for each named part; None if nothing was measured.
        interval: 95 % bootstrap interval of that mean, or one for each part; None below two seeds.
        n: number of seeds; of parts with different numbers, the smallest that ran.
        words: the verdict's reason in one plain sentence.
    """

    verdict: Verdict
    value: float | dict[str, float] | None = None
    interval: Interval | dict[str, Interval | None] | None = None
    n: int = 0
    words: str


def not_run(words: str = "not run") -> Judgement:
    """Return the judgement of a claim for which nothing was measured."""
    return Judgement(verdict=Verdict.NOT_RUN, words=words)


def judge_always(
    values: Sequence[float],
    criterion: Criterion,
    *,
    source_n: int,
    errors: Sequence[float] | None = None,
    least: int = LEAST_SEEDS,
    lacks: str | None = None,
    noun: str = "seed",
    clusters: Sequence[Hashable] | None = None,
    cluster_noun: str = "seed",
    count_values: bool = False,
) -> Judgement:
    """Judge a claim about every seed.

    Reproduced needs max(`least`, `source_n`) clusters, each of which meets the criterion with all its values.

    Args:
        values: one number for each seed; none means not run.  An infinite one is an event that was watched for and
            never happened: then there is neither a mean nor an interval.
        criterion: what every one of them must satisfy.
        source_n: number of seeds in the source.
        errors: how far each measured value may lie from the truth; by default they are exact.
        least: seeds that the claim needs even if the source had fewer.
        lacks: what the run lacks of the protocol's scale, in words that may be empty; `None` if nothing.
        noun: what one number stands for, where that is not a seed but a run, or a case.
        clusters: what each value belongs to, where several values belong to one seed: for the interval they are
            resampled together, and each counts once; by default each value counts.
        cluster_noun: what a cluster is called.
        count_values: whether values are counted even so: for unit `run`, n counts runs, since that is what the source
            counts; and so for cases.
    """
    n = len(values)
    if n == 0:
        return not_run()
    independent = _count(values, clusters)
    errors = [0.0] * n if errors is None else errors
    shortfalls = [criterion.distance(value) for value in values]
    violating = sum(shortfall > 0 for shortfall in shortfalls)
    refuting = sum(shortfall > error for shortfall, error in zip(shortfalls, errors, strict=True))
    needed = max(least, source_n)
    count = n if count_values else independent
    unit = noun if count == n else cluster_noun
    of_clusters = "" if independent == n else f" ({counted(independent, cluster_noun)})"
    verdict = Verdict.INCONCLUSIVE
    if lacks is not None:
        meeting = f"{n - violating} of {counted(n, noun)} {'meets' if n == 1 else 'meet'} it"
        words = _below_scale(lacks, meeting)
    elif refuting:
        worst = values[max(range(n), key=shortfalls.__getitem__)]
        violate = f"{refuting} of {counted(n, noun)} {'violates' if refuting == 1 else 'violate'} it"
        beyond = " beyond evaluation error" if any(errors) else ""
        place = f"is at {criterion.show(worst)}" if math.isfinite(worst) else "never happened"
        verdict, words = Verdict.REFUTED, f"{violate}{beyond}; the worst {place}"
    elif not violating and count >= needed:
        # Runs of one seed are no independent cases, also where runs are counted.
        bound = clopper_pearson(independent, independent, sided="lower")[0]
        of = noun if independent == n else cluster_noun
        share = f"at least {100 * bound:.1f} % of such {of}s do (95 % Clopper–Pearson, one-sided)"
        verdict, words = Verdict.REPRODUCED, f"all {n} of {n} {noun}s meet it{of_clusters}; {share}"
    elif of_clusters:
        agreeing = _undecided(n, violating, 0, noun) if violating else f"all {n} of {n} {noun}s meet it"
        words = agreeing + of_clusters + (f"; needs {needed} {unit}s" if count < needed else "")
    else:
        words = _undecided(n, violating, needed, noun)
    if not all(map(math.isfinite, values)):
        return Judgement(verdict=verdict, n=n, words=words)
    interval = bootstrap_mean(values, clusters=clusters)
    return Judgement(verdict=verdict, value=mean(values), interval=interval, n=n, words=words)


def judge_bootstrap(
    values: Sequence[float] | Sequence[tuple[float, float]],
    criterion: Criterion,
    *,
    effect: bool = False,
    least: int = LEAST_SEEDS,
    lacks: str | None = None,
    noun: str = "seed",
    clusters: Sequence[Hashable] | None = None,
) -> Judgement:
    """Judge a claim about a mean, or about Pearson's correlation of pairs, by its 95 % bootstrap interval.

    Args:
        values: a number for each seed, or a pair whose correlation over seeds is judged; none means not run.
        criterion: what the mean or the correlation must satisfy.
        effect: whether the interval must also exclude 0, the null of a difference and of a correlation.
        least: seeds in the protocol, at least 2; with fewer the run is below the protocol's scale.
        lacks: what the run lacks of the protocol's scale in everything else, in words that may be empty; `None` if
            nothing.
        noun: what is counted against `least`, where that is not a seed.
        clusters: what each value belongs to, where several values belong to one seed: clusters are resampled, with
            all their values, and counted against `least`.

    Raises:
        ValueError: a value is not finite, or `clusters` has another length than `values`.
    """
    if len(values) == 0:
        return not_run()
    pairs = [value for value in values if isinstance(value, tuple)]
    numbers = [value for value in values if not isinstance(value, tuple)]
    n, count = len(values), _count(values, clusters)
    value = correlation(pairs) if pairs else mean(numbers)
    if value is None:
        same = f"one of the two numbers is the same in all {counted(n, noun)}: there is no correlation"
        verdict, words = _at_scale(Verdict.INCONCLUSIVE, same, count, least, lacks, noun)
        return Judgement(verdict=verdict, n=n, words=words)
    interval = (
        bootstrap_correlation(pairs, clusters=clusters)
        if pairs
        else bootstrap_mean(numbers, clusters=clusters)
        if effect
        else mean_interval(numbers, criterion, clusters)
    )
    return judge_interval(
        value, interval, criterion, n=n, count=count, effect=effect, least=least, lacks=lacks, noun=noun
    )


def are_shares(values: Sequence[float], criterion: Criterion) -> bool:
    """Whether each value says yes or no of one seed, so that their mean is a share of seeds."""
    return criterion.unit == "fraction" and {*values} <= {0.0, 1.0}


def mean_interval(
    values: Sequence[float], criterion: Criterion, clusters: Sequence[Hashable] | None = None
) -> Interval | None:
    """The 95 % interval of a mean over seeds: exact for a share of them, the bootstrap's for all else."""
    if are_shares(values, criterion):
        return share_interval(values, clusters=clusters)
    return bootstrap_mean(values, clusters=clusters)


def judge_interval(
    value: float,
    interval: Interval | None,
    criterion: Criterion,
    *,
    n: int,
    count: int | None = None,
    effect: bool = False,
    least: int = 1,
    lacks: str | None = None,
    noun: str = "seed",
) -> Judgement:
    """Judge a number by its 95 % interval, such as a Wilson interval of a share.

    Args:
        value: the measured number.
        interval: its 95 % interval; `None` where one seed gives none.
        criterion: what it must satisfy.
        n: number of observations behind it; 0 means not run.
        count: what is counted against `least`; by default the observations.
        effect, lacks, noun: as in `judge_bootstrap`.
        least: how many a verdict needs.
    """
    if n == 0:
        return not_run()
    verdict, words = interval_verdict(value, interval, criterion, effect, noun)
    verdict, words = _at_scale(verdict, words, n if count is None else count, least, lacks, noun)
    return Judgement(verdict=verdict, value=value, interval=interval, n=n, words=words)


def interval_verdict(
    value: float, interval: Interval | None, criterion: Criterion, effect: bool, noun: str = "seed"
) -> tuple[Verdict, str]:
    """The verdict of an interval, whatever the run lacks, and its reason; one of an effect must exclude 0 too."""
    if interval is None:
        meets = "meets" if criterion.holds(value) else "fails"
        reason = f"{criterion.show(value)} {meets} the threshold, but one {noun} gives no interval"
        return Verdict.INCONCLUSIVE, reason
    shown = f"95 % interval {criterion.show(interval[0])} to {criterion.show(interval[1])}"
    if criterion.met_by(interval):
        if effect and interval[0] <= 0.0 <= interval[1]:
            return Verdict.INCONCLUSIVE, f"{shown} wholly meets the threshold, but does not exclude 0"
        return Verdict.REPRODUCED, f"{shown} wholly meets the threshold"
    if criterion.failed_by(interval):
        side = "below" if interval[1] < criterion.bounds[0] else "above"
        return Verdict.REFUTED, f"{shown} lies wholly {side} the threshold"
    return Verdict.INCONCLUSIVE, f"{shown} reaches across the threshold"


def combine_parts(
    parts: Mapping[str, Judgement], *, need: Need = "all", aside: Collection[str] = ()
) -> Judgement:
    """Combine the named thresholds of one claim.

    With need = ``all`` the claim is refuted if any part is, and reproduced if every part is.  With
    need = ``any`` (a claim that only *all* failures together refute) it is reproduced if any part is, and
    refuted if every part is.  With need = ``agreement`` (parts that measure one thing) it is what all of them are.
    Not run if no part ran; inconclusive otherwise.

    Args:
        parts: judgements of one number each, under the names that value, interval and words will use.
        need: whether the claim says that all parts hold, that at least one does, or the same of all.
        aside: parts that the claim is not about: the words name them, and they decide nothing.
    """
    ran = {name: part for name, part in parts.items() if part.verdict is not Verdict.NOT_RUN}
    if not ran:
        return not_run(_joined(parts))
    values = {name: part.value for name, part in ran.items() if isinstance(part.value, float)}
    intervals = {name: cast(Interval | None, ran[name].interval) for name in values}
    return Judgement(
        verdict=_combined_verdict([part.verdict for name, part in parts.items() if name not in aside], need),
        value=values or None,
        interval=intervals or None,
        n=min(part.n for part in ran.values()),
        words=_joined(parts),
    )


def agreed_readings(readings: Mapping[str, Judgement]) -> Judgement:
    """Combine ways to measure one thing: their common verdict, or inconclusive where they differ.

    Value, interval and n are those of the first way that ran.
    """
    ran = [each for each in readings.values() if each.verdict is not Verdict.NOT_RUN]
    shown = ran[0] if ran else next(iter(readings.values()))
    agree = len({each.verdict for each in readings.values()}) == 1
    found = "; ".join(f"{name}: {each.words}" for name, each in readings.items())
    words = found if agree else f"the ways to measure it disagree: {_by_verdict(readings)}; {found}"
    verdict = shown.verdict if agree else Verdict.INCONCLUSIVE
    return shown.model_copy(update={"verdict": verdict, "words": words})


def combine_readings(readings: Mapping[str, Judgement]) -> Judgement:
    """Combine the readings of a detail that the source leaves open; the first is the declared default.

    A reading that did not run was not tried.  The rule, in order:

    1. none was tried: not run;
    2. every tried reading refutes: refuted;
    3. some tried reading refutes, but not every one: inconclusive, naming the readings, *also* where the
       default reproduces, because then the verdict hangs on a detail that the source does not state;
    4. none refutes: the verdict of the default reading (inconclusive if it was not tried: a reading picked
       after the fact, because it works, reproduces nothing).

    Value, interval and n are those of the default, or else of the first reading tried.
    """
    tried = {name: each for name, each in readings.items() if each.verdict is not Verdict.NOT_RUN}
    default = next(iter(readings))
    if not tried:
        return readings[default]
    shown_name, shown = next(iter(tried.items()))
    verdicts = {each.verdict for each in tried.values()}
    if verdicts == {Verdict.REFUTED}:
        scope = "every tried reading" if len(tried) > 1 else "the only tried reading"
        verdict, words = Verdict.REFUTED, f"refuted under {scope} ({', '.join(tried)}): {shown.words}"
    elif Verdict.REFUTED in verdicts:
        verdict, words = Verdict.INCONCLUSIVE, f"the readings disagree: {_by_verdict(tried)}"
    elif default not in tried:
        verdict = Verdict.INCONCLUSIVE
        words = f"the default reading ({default}) was not run; {_by_verdict(tried)}"
    else:
        verdict = shown.verdict
        others = {name: each for name, each in tried.items() if name != default}
        words = f"under the reading {shown_name}: {shown.words}"
        words += f"; {_by_verdict(others)}" if others else ""
    return shown.model_copy(update={"verdict": verdict, "words": words})


def _count(values: Sequence[object], clusters: Sequence[Hashable] | None) -> int:
    return len(values) if clusters is None else len(set(clusters))


def _at_scale(
    verdict: Verdict, words: str, count: int, least: int, lacks: str | None, noun: str
) -> tuple[Verdict, str]:
    if lacks is not None:
        return Verdict.INCONCLUSIVE, _below_scale(lacks, words)
    if count < least:
        return Verdict.INCONCLUSIVE, f"{words}; {counted(count, noun)}, needs {least}"
    return verdict, words


def _combined_verdict(verdicts: Sequence[Verdict], need: Need) -> Verdict:
    if need == "agreement":
        return verdicts[0] if len({*verdicts}) == 1 else Verdict.INCONCLUSIVE
    # One failure settles a conjunction, one success a disjunction; the reverse takes agreement.
    settling, agreeing = Verdict.REFUTED, Verdict.REPRODUCED
    if need == "any":
        settling, agreeing = agreeing, settling
    if settling in verdicts:
        return settling
    return agreeing if all(verdict is agreeing for verdict in verdicts) else Verdict.INCONCLUSIVE


def _undecided(n: int, violating: int, needed: int, noun: str) -> str:
    words = f"{n - violating} of {counted(n, noun)} {'agrees' if n == 1 else 'agree'}"
    if violating:
        words += f", {violating} {'violates' if violating == 1 else 'violate'} it within evaluation error"
    return words if n >= needed else f"{words}; needs {needed}"


def _below_scale(lacks: str, words: str) -> str:
    return f"below the protocol's scale{': ' if lacks else ''}{lacks}; {words}"


def _joined(parts: Mapping[str, Judgement]) -> str:
    words = [part.words for part in parts.values()]
    if len(set(words)) == 1:
        return words[0]
    return " · ".join(f"{name}: {each}" for name, each in zip(parts, words, strict=True))


def _by_verdict(readings: Mapping[str, Judgement]) -> str:
    phrases = []
    for verdict in Verdict:
        names = [name for name, each in readings.items() if each.verdict is verdict]
        if names:
            phrases.append(f"{verdict.value} under {', '.join(names)}")
    return "; ".join(phrases)
