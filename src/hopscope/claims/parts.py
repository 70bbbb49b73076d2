"""One part of a claim: from its samples to a verdict, with what is missing counted against it."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from hopscope.claims.claim import Rule
from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval, mean
from hopscope.claims.nulls import LEAST_SHARE, LEAST_WORDS, holds_with_missing
from hopscope.claims.samples import Pair, Samples
from hopscope.claims.verdicts import (
    Judgement,
    Verdict,
    effect_verdict,
    judge_always,
    judge_effect,
    judge_interval,
    judge_mean,
    not_run,
)
from hopscope.words import counted

Leaning = Literal["agrees", "disagrees", "mixed"]


@dataclass(frozen=True)
class Scale:
    """The scale that a verdict needs.

    Attributes:
        source_n, seeds_needed: as in `Claim`.
        missing: what the run lacks of the protocol's scale.
        here: whether the run is judged at its own scale, whatever it lacks.
    """

    source_n: int
    seeds_needed: int
    missing: str = ""
    here: bool = False

    def lacks(self, samples: Samples) -> list[str]:
        """Return what the run and these samples lack of the protocol's scale."""
        return [] if self.here else [each for each in (self.missing, samples.missing) if each]


@dataclass(frozen=True)
class Part:
    """One part of a claim, judged.

    Attributes:
        judgement: verdict, value, interval, n and words.
        leaning: where the numbers point, whatever the verdict is; None if there are none.
        counts: what one number stands for.
    """

    judgement: Judgement
    leaning: Leaning | None
    counts: str


def judge_part(
    samples: Samples,
    criterion: Criterion,
    rule: Rule,
    scale: Scale,
    *,
    seeds: Mapping[int, int],
    structural: bool = False,
    say_missing: bool = True,
) -> Part:
    """Judge one part by its rule; see `hopscope.claims.nulls` for missing numbers.

    Args:
        samples: what was measured.
        criterion: what it must satisfy.
        rule: as in `Claim`.
        scale: what a verdict needs.
        seeds: member → seed, for samples over members.
        structural: whether n counts cases.
        say_missing: whether the words say what the *run* lacks; of several parts only the first does.
    """
    counts = "case" if structural else _counts(samples, seeds)
    measured = _measured(samples)
    if not measured.values:
        return Part(not_run(_no_numbers(samples, counts)), None, counts)
    clusters, cluster_noun = _clusters(measured, seeds, counts)
    lacks = scale.lacks(samples)
    said = lacks if say_missing or scale.missing not in lacks else lacks[1:]
    judging = _Judging(
        measured, criterion, rule, scale, clusters, cluster_noun, counts, not lacks, ", ".join(said)
    )
    judgement = judging.judgement()
    leaning = judging.leaning(judgement)
    judgement = _count_missing(judgement, judging, samples, seeds)
    words = "; ".join(filter(None, [judgement.words, samples.note]))
    return Part(judgement.model_copy(update={"words": words}), leaning, counts)


@dataclass(frozen=True)
class _Judging:
    """The measured values of a part, with everything that its rule needs."""

    samples: Samples
    criterion: Criterion
    rule: Rule
    scale: Scale
    clusters: Sequence[Hashable] | None
    cluster_noun: str
    counts: str
    at_scale: bool
    missing: str

    @property
    def numbers(self) -> list[float]:
        return cast(list[float], list(self.samples.values))

    @property
    def censored(self) -> int:
        return self.samples.censored

    def judgement(self) -> Judgement:
        if self.rule == "always":
            return self._always()
        if self.samples.interval is not None:
            return self._by_interval(self.samples.interval)
        if self.censored:
            n = len(self.numbers)
            none = "correlation" if self.samples.paired else "mean"
            words = f"in {self.censored} of {counted(n, self.counts)} it never happened: there is no {none}"
            return Judgement(verdict=Verdict.INCONCLUSIVE, n=n, words=words)
        if self.rule == "mean":
            return judge_mean(
                self.numbers, self.criterion, clusters=self.clusters, min_seeds=self.scale.seeds_needed,
                at_scale=self.at_scale, missing=self.missing, noun=self.cluster_noun,
            )  # fmt: skip
        return judge_effect(
            cast(list[Pair], list(self.samples.values)), self.criterion, clusters=self.clusters,
            min_seeds=self.scale.seeds_needed, at_scale=self.at_scale, missing=self.missing, noun=self.cluster_noun,
        )  # fmt: skip

    def _always(self) -> Judgement:
        values = self.numbers
        errors = 0.0 if self.samples.error is None else self.samples.error
        found = judge_always(
            values, self.criterion, source_n=self.scale.source_n, evaluation_error=errors, at_scale=self.at_scale,
            missing=self.missing, noun=self.counts, least=self.scale.seeds_needed, clusters=self.clusters,
            cluster_noun=self.cluster_noun, count_values=self.counts in ("run", "case"), censored=True,
        )  # fmt: skip
        if self.samples.unit == "case":
            # These are all cases that there are, not a sample of some.
            found = found.model_copy(update={"interval": None})
            if found.verdict is Verdict.REPRODUCED:
                n = len(values)
                words = f"{n} of {counted(n, self.counts)} meet it, counted through one by one"
                found = found.model_copy(update={"words": words})
        if self.samples.interval is not None and found.value is not None:
            found = found.model_copy(update={"interval": self.samples.interval})
        return found

    def _by_interval(self, interval: Interval) -> Judgement:
        count = len(self.numbers) if self.clusters is None else len(set(self.clusters))
        found = judge_interval(
            self._middle(interval), interval, self.criterion, n=count, least=self.scale.seeds_needed,
            at_scale=self.at_scale, missing=self.missing, noun=self.cluster_noun, effect=self.rule == "effect",
        )  # fmt: skip
        return found.model_copy(update={"n": len(self.numbers)})

    def _middle(self, interval: Interval) -> float:
        """The mean; with censored values, which have none, the median, or the interval's middle."""
        if self.samples.paired:
            return sum(interval) / 2
        middle = statistics.median(self.numbers) if self.censored else mean(self.numbers)
        return middle if math.isfinite(middle) else sum(interval) / 2

    def leaning(self, judgement: Judgement) -> Leaning:
        """Return the direction of the measured numbers, even if something is lacking for a verdict."""
        if judgement.verdict is not Verdict.INCONCLUSIVE:
            return "agrees" if judgement.verdict is Verdict.REPRODUCED else "disagrees"
        if self.rule == "always" or (
            self.censored and self.samples.interval is None and not self.samples.paired
        ):
            meeting = [self.criterion.distance(value) == 0.0 for value in self.numbers]
            return "agrees" if all(meeting) else "mixed" if any(meeting) else "disagrees"
        value, interval = judgement.value, judgement.interval
        if not isinstance(value, float) or isinstance(interval, dict):
            return "mixed"
        if interval is None:
            return "agrees" if self.criterion.holds(value) else "disagrees"
        if self.criterion.failed_by(interval):
            return "disagrees"
        verdict = effect_verdict(value, interval, self.criterion)[0]
        agrees = verdict is Verdict.REPRODUCED if self.rule == "effect" else self.criterion.met_by(interval)
        return "agrees" if agrees else "mixed"


def _count_missing(
    judgement: Judgement, judging: _Judging, samples: Samples, seeds: Mapping[int, int]
) -> Judgement:
    """The judgement once the missing numbers are counted against the claim."""
    total, n = len(samples.values), len(judging.samples.values)
    if n == total:
        return judgement
    missing = without_number(n, total, judging.counts)
    if judgement.verdict is not Verdict.REPRODUCED:
        return judgement.model_copy(update={"words": f"{judgement.words}; {missing}"})
    if n < LEAST_SHARE * total:
        why = f"{missing}: {LEAST_WORDS}"
    elif judging.rule == "always":
        why = f"{missing}, which counts as a violation"
    else:
        interval = judgement.interval if isinstance(judgement.interval, tuple) else None
        if holds_with_missing(
            samples, judging.criterion, judging.rule, _clusters(samples, seeds, "")[0], interval
        ):
            words = f"{judgement.words}; {missing}, and it holds with {_those(total - n)} counted against it"
            return judgement.model_copy(update={"words": words})
        why = f"{missing}, and it does not hold with {_those(total - n)} counted against it"
    return judgement.model_copy(
        update={"verdict": Verdict.INCONCLUSIVE, "words": f"{judgement.words}; but {why}"}
    )


def without_number(n: int, total: int, counts: str) -> str:
    """Return the number of missing values in words."""
    return f"{total - n} of {counted(total, counts)} {'has' if total - n == 1 else 'have'} no number"


def _measured(samples: Samples) -> Samples:
    """The samples without those that are missing."""
    kept = [place for place, value in enumerate(samples.values) if value is not None]

    def of(values: Sequence[object] | None) -> list[object] | None:
        return None if values is None else [values[place] for place in kept]

    errors = samples.error if isinstance(samples.error, tuple) else None
    members = of(samples.members)
    return Samples(
        of(samples.values),
        samples.unit,
        of(samples.cluster),
        error=cast("list[float] | None", of(errors)),
        interval=samples.interval,
        members=None if members is None else tuple(cast(list[int], members)),
    )


def _clusters(
    samples: Samples, seeds: Mapping[int, int], counts: str
) -> tuple[Sequence[Hashable] | None, str]:
    """Return the cluster of each value (None: every value is resampled alone), and the noun for a cluster."""
    if samples.cluster is not None:
        return samples.cluster, "cluster"
    if samples.members is not None:
        found = [seeds[member] for member in samples.members]
        if len(set(found)) < len(found):
            return found, "seed"
    return None, counts


def _counts(samples: Samples, seeds: Mapping[int, int]) -> str:
    """A member whose seed no other member has is called by its seed."""
    if samples.unit != "member" or samples.members is None:
        return samples.unit
    found = [seeds[member] for member in samples.members]
    return "seed" if len(set(found)) == len(found) else "member"


def _no_numbers(samples: Samples, counts: str) -> str:
    total = len(samples.values)
    words = f"none of {counted(total, counts)} has a number" if total else ""
    return "; ".join(filter(None, [words, samples.note])) or "not run"


def _those(missing: int) -> str:
    return "that one" if missing == 1 else "those"
