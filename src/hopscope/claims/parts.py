"""One part of a claim: from its samples to a verdict, with what is missing counted against it."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from hopscope.claims.claim import Rule
from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval, mean
from hopscope.claims.nulls import LEAST_SHARE, LEAST_WORDS, fails_with_missing, holds_with_missing, is_share
from hopscope.claims.samples import Samples
from hopscope.claims.verdicts import (
    Judgement,
    Verdict,
    interval_verdict,
    judge_always,
    judge_bootstrap,
    judge_interval,
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
        excluded: whether the claim is not about what was measured.
    """

    judgement: Judgement
    leaning: Leaning | None
    counts: str
    excluded: bool = False


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
    if samples.excluded:
        return Part(not_run(samples.excluded), None, counts, excluded=True)
    measured = _measured(samples)
    if not measured.values:
        return Part(not_run(_no_numbers(samples, counts)), None, counts)
    clusters, cluster_noun = _clusters(measured, seeds, counts)
    lacks = scale.lacks(samples)
    said = lacks if say_missing or scale.missing not in lacks else lacks[1:]
    lacking = ", ".join(said) if lacks else None
    judging = _Judging(measured, criterion, rule, scale, clusters, cluster_noun, counts, lacking)
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
    lacks: str | None

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
        return judge_bootstrap(
            self.numbers, self.criterion, effect=self.rule == "effect", least=self.scale.seeds_needed,
            lacks=self.lacks, noun=self.cluster_noun, clusters=self.clusters,
        )  # fmt: skip

    def _always(self) -> Judgement:
        values, errors = self.numbers, cast("tuple[float, ...] | None", self.samples.error)
        found = judge_always(
            values, self.criterion, source_n=self.scale.source_n, errors=errors,
            least=self.scale.seeds_needed, lacks=self.lacks, noun=self.counts, clusters=self.clusters,
            cluster_noun=self.cluster_noun, count_values=self.counts in ("run", "case"),
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
        n = len(self.numbers)
        return judge_interval(
            self._middle(interval), interval, self.criterion, n=n,
            count=n if self.clusters is None else len(set(self.clusters)), effect=self.rule == "effect",
            least=self.scale.seeds_needed, lacks=self.lacks, noun=self.cluster_noun,
        )  # fmt: skip

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
        verdict, _ = interval_verdict(value, interval, self.criterion, self.rule == "effect")
        if verdict is Verdict.INCONCLUSIVE:
            return "mixed"
        return "agrees" if verdict is Verdict.REPRODUCED else "disagrees"


def _count_missing(
    judgement: Judgement, judging: _Judging, samples: Samples, seeds: Mapping[int, int]
) -> Judgement:
    """The judgement once the missing numbers are counted against it."""
    total, n = len(samples.values), len(judging.samples.values)
    if n == total:
        return judgement
    missing = without_number(n, total, judging.counts)
    always, refuted = judging.rule == "always", judgement.verdict is Verdict.REFUTED
    if judgement.verdict is Verdict.INCONCLUSIVE or (always and refuted):
        return judgement.model_copy(update={"words": f"{judgement.words}; {missing}"})
    holds, counted_ = ("fail", "for") if refuted else ("hold", "against")
    enough = n >= LEAST_SHARE * total or (refuted and is_share(samples, judging.criterion))
    if not enough:
        why = f"{missing}: {LEAST_WORDS}"
    elif always:
        why = f"{missing}, which counts as a violation"
    else:
        interval = judgement.interval if isinstance(judgement.interval, tuple) else None
        stands = (fails_with_missing if refuted else holds_with_missing)(
            samples, judging.criterion, judging.rule, _clusters(samples, seeds, "")[0], interval
        )
        those = f"{_those(total - n)} counted {counted_} it"
        if stands:
            words = f"{judgement.words}; {missing}, and it {holds}s with {those}"
            return judgement.model_copy(update={"words": words})
        why = f"{missing}, and it does not {holds} with {those}"
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
    """Return the cluster of each value (None: every value is resampled alone), and the noun for a cluster.

    Clusters may join seeds, but not part one: where one of them holds a part of a seed and of no other, whatever a
    cluster or a seed joins stays together.
    """
    of_seeds = None if samples.members is None else [seeds[member] for member in samples.members]
    if samples.cluster is not None:
        if of_seeds is None:
            return samples.cluster, "cluster"
        joined = _joined(samples.cluster, of_seeds)
        seeds_alone = len(set(joined)) == len(set(of_seeds))
        return joined, "seed" if seeds_alone and joined != list(samples.cluster) else "cluster"
    if of_seeds is not None and len(set(of_seeds)) < len(of_seeds):
        return of_seeds, "seed"
    return None, counts


def _joined(clusters: Sequence[Hashable], seeds: Sequence[int]) -> Sequence[Hashable]:
    """The clusters, where each is of several seeds or of one whole seed; else what clusters and seeds join."""
    of_cluster: dict[Hashable, set[int]] = {}
    of_seed: dict[int, set[Hashable]] = {}
    for cluster, seed in zip(clusters, seeds, strict=True):
        of_cluster.setdefault(cluster, set()).add(seed)
        of_seed.setdefault(seed, set()).add(cluster)
    if all(len(found) > 1 or len(of_seed[min(found)]) == 1 for found in of_cluster.values()):
        return list(clusters)
    names: dict[int, int] = {}
    for first in of_seed:
        waiting = [first] if first not in names else []
        while waiting:
            seed = waiting.pop()
            if seed not in names:
                names[seed] = first
                waiting += [other for cluster in of_seed[seed] for other in of_cluster[cluster]]
    return [names[seed] for seed in seeds]


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
