"""One part of a claim: from its numbers to a judgement, with what is missing counted against it."""

import math
from typing import Any, NamedTuple

import numpy as np

from hopscope.claims.claim import Criterion, Interval, Rule, Samples
from hopscope.claims.intervals import estimate, mean, places, rank_correlation, share_interval, wilson
from hopscope.claims.verdict import Judgement, Leaning, Outcome, counted

BELOW = "below the protocol's scale"
"""How words begin that say what a run lacks of the source's size."""

LEAST_SHARE = 0.75
"""Share of the numbers that must be there before they decide anything, or lean anywhere."""


class Scale(NamedTuple):
    """What a verdict needs: member → seed, numbers of seeds, and whether the run lacks anything else."""

    seeds: dict[int, int]
    source_n: int = 1
    least: int = 2
    here: bool = True
    lacking: bool = False
    structural: bool = False


class _Found(NamedTuple):
    verdict: Outcome
    leaning: Leaning
    words: str
    value: float | None = None
    interval: Interval | None = None


def judged_part(samples: Samples, must: Criterion, rule: Rule, scale: Scale) -> Judgement:
    """Judge one part by its rule; its leaning is where the numbers point, whatever the verdict is."""
    seeds = [] if samples.members is None else [scale.seeds[member] for member in samples.members]
    total, part, always = len(samples.values), _Part(samples, must, rule, seeds), rule == "always"
    n, groups, alone = len(part.values), len({*part.groups}), len({*seeds}) == total > 0
    counts = "case" if scale.structural else "seed" if alone and samples.unit == "member" else samples.unit
    if samples.excluded or not n:
        none = f"none of {counted(total, counts)} has a number" if total else ""
        words = samples.excluded or "; ".join(filter(None, [none, samples.note])) or "not run"
        return Judgement(verdict="not run", n_counts=counts, words=words)
    noun = counts if groups == n else "seed" if groups == len({*seeds}) else "cluster"
    found = part.always() if always else part.average()
    words = f"holds in {part.holding} of {counted(total, counts)}{found.words}" if always else found.words
    words += f" ({counted(groups, noun)})" if groups < n else ""
    lacks = [f"{BELOW}: {samples.missing}"] if samples.missing and not scale.here else []
    count = n if always and counts in ("run", "case") else groups
    needed = max(scale.least, scale.source_n) if always else scale.least
    if count < needed and not (always and found.verdict == "refuted"):
        lacks.append(f"{needed} {counts if count == n else noun}s are needed")
    verdict = "inconclusive" if lacks or scale.lacking else found.verdict
    leaning: Any = {"reproduced": "agrees", "refuted": "disagrees"}.get(verdict, found.leaning)
    if n < total:
        few, missing = n < LEAST_SHARE * total, f"{total - n} of {counted(total, counts)} without a number"
        if verdict != "inconclusive" and part.stands(found, few):
            words += f"; {missing}, which changes nothing"
        else:
            why = "" if verdict == "inconclusive" else ": 75 % are needed" if few else ", which may change it"
            lacks.append(missing + why)
            verdict, leaning = "inconclusive", "mixed" if few else leaning
    return Judgement(
        verdict=verdict, value=found.value, interval=found.interval, n=n, n_counts=counts, lacks=tuple(lacks),
        words="; ".join(filter(None, [words, samples.note])), leaning=leaning,
    )  # fmt: skip


class _Part:
    def __init__(self, samples: Samples, must: Criterion, rule: Rule, seeds: list[int]) -> None:
        self.samples, self.must, self.rule, self.paired = samples, must, rule, samples.values.ndim == 2
        self.known = ~(np.isnan(samples.values).any(1) if self.paired else np.isnan(samples.values))
        self.values: Any = samples.values[self.known]
        self.clusters = _clusters(len(samples.values), samples.cluster, seeds)
        self.groups = self.clusters[self.known]
        self.holding = 0 if self.paired else sum(map(must.holds, self.values))
        every, some = self.holding == len(self.values), self.holding or self.paired
        self.leaning: Leaning = "agrees" if every else "mixed" if some else "disagrees"  # one by one
        # An interval of the claim's own, of cases or questions that hold or do not, is that of a share as well.
        own = samples.interval is not None and samples.unit in ("case", "question")
        whole = must.unit == "fraction" and {*self.values.flat} <= {0.0, 1.0}
        self.share = rule == "share" or (own and whole)

    def always(self) -> _Found:
        values, unit, k = self.values, self.samples.unit, len({*self.groups})
        low, high, holds = self.must.low, self.must.high, self.must.holds
        off = np.array([0.0 if holds(value) else max(low - value, value - high) for value in values])
        errors = np.broadcast_to(self.samples.error, self.known.shape)[self.known]
        verdict: Outcome = "inconclusive" if off.any() else "reproduced"
        words = ", the others within evaluation error" if off.any() else ", counted through one by one"
        if (off > errors).any():
            verdict, words = "refuted", f", the worst {self.must.show(values[off.argmax()])}"
        elif verdict == "reproduced" and unit != "case":
            # Runs of one seed are no independent cases, also where runs are counted.
            bound = 100 * share_interval(k, k, tail=0.05)[0]
            words = f"; in at least {bound:.1f} % of such (95 % Clopper–Pearson, one-sided)"
        if np.isinf(values).any():
            return _Found(verdict, self.leaning, words)
        value, interval = estimate(values, self.groups)
        interval = None if unit == "case" else self.samples.interval or interval
        return _Found(verdict, self.leaning, words, value, interval)

    def average(self, fill: Any = None) -> _Found:
        """What the mean or the correlation says, of known numbers alone or with `fill` in place of missing ones."""
        own, values, groups = self.samples.interval, self.values, self.groups
        never = np.isinf(values).any()
        if never and own is None:
            return _Found("inconclusive", self.leaning, "no mean, because some never came")
        middle = math.nan if self.paired else float(np.median(values)) if never else mean(values)
        if fill is not None:
            known = self.known[:, None] if self.paired else self.known
            values, groups = np.where(known, self.samples.values, fill), self.clusters
        if own is None or (self.paired and fill is not None):
            n = len({*groups})
            if not self.share:
                found = rank_correlation if self.paired and self.samples.ranks else estimate
                return self.settled(*found(values, groups))
            return self.settled(mean(values), share_interval(n * mean(values), n) if n > 1 else None)
        if fill is not None:
            by, middle = mean(values) - middle, math.nan
            own = wilson(int(values.sum()), len(values)) if self.share else (own[0] + by, own[1] + by)
        return self.settled(middle if math.isfinite(middle) else sum(own) / 2, own)

    def settled(self, value: float | None, interval: Interval | None) -> _Found:
        must = self.must
        if value is None:
            return _Found("inconclusive", "mixed", "no correlation, because a number never varies")
        if interval is None:
            leaning: Leaning = "agrees" if must.holds(value) else "disagrees"
            return _Found("inconclusive", leaning, f"{must.show(value)}, without interval", value)
        words = f"{must.show(value)}, 95 % interval [{must.show(*interval)}]"
        if (interval[1] < must.low or interval[0] > must.high) and not must.holds(value):
            return _Found("refuted", "disagrees", words, value, interval)
        nothing = self.rule == "effect" and interval[0] <= 0 <= interval[1]
        if must.holds(value, *interval) and not nothing:
            return _Found("reproduced", "agrees", words, value, interval)
        return _Found("inconclusive", "mixed", words, value, interval)

    def stands(self, found: _Found, few: bool) -> bool:
        """Whether a verdict stays with every missing number counted against it (docs/claims.md, *Missing numbers*)."""
        refuted, effect = found.verdict == "refuted", self.rule == "effect"
        if self.rule == "always":
            return refuted
        share_of_all = refuted and self.share and self.samples.interval is not None
        if np.isinf(self.values).any() or (few and not share_of_all):
            return False
        value, free = found.value or 0.0, refuted or not effect  # an effect must keep its side of 0
        again = [self.average(fill) for fill in self.against(refuted, value)]
        return all(one.verdict == found.verdict and (free or (one.value or 0.0) * value > 0) for one in again)

    def against(self, refuted: bool, value: float) -> list[Any]:
        """Numbers that speak against a verdict: as far beyond a bound as the mean is on its side, or the worst."""
        values, low, high, effect = self.values, self.must.low, self.must.high, self.rule == "effect"
        if self.paired:
            (left, bottom), (right, top) = values.min(0), values.max(0)
            rising, falling = [(left, bottom), (right, top)], [(right, bottom), (left, top)]
            if refuted:
                return rising if value < low else falling
            return falling * math.isfinite(low) + rising * math.isfinite(high)
        middle, fills = mean(values), []
        if effect and not refuted:
            low, high = (max(low, 0.0), high) if middle > 0 else (low, min(high, 0.0))
        for bound, down in ((low, not refuted), (high, refuted)):
            if math.isfinite(bound) and not (refuted and down == (middle < low)):
                number = 2 * bound - middle
                if self.must.unit == "fraction":
                    number = min(max(number, -1.0 if effect else 0.0), 1.0)
                fills.append(float(not down) if self.share else (min if down else max)(*values, number))
        return fills


def _clusters(total: int, cluster: Any, seeds: Any) -> Any:
    """What each value is resampled with: whatever a seed, or a cluster that the claim names, joins."""
    before, labels = None, np.arange(total)
    while before is None or (labels != before).any():
        before = labels
        for names in filter(None, (cluster, seeds)):
            least = np.full(total, total)
            np.minimum.at(least, places(names), labels)
            labels = least[places(names)]
    return labels
