"""A judged claim in words, from its record alone: the terminal and the page say the same."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hopscope.claims.intervals import Interval
from hopscope.claims.judged import Bound, Found, JsonSample, JudgedClaim
from hopscope.claims.numbers import format_estimate, format_number, format_value
from hopscope.claims.verdicts import UNTRIED, Verdict

_MOST_LINES = 6
"""Thresholds that are told one by one though they are the same."""

_MOST_SAMPLES, _FEW_SAMPLES = 50, 4
"""Numbers of a part that are told one by one, and how few different ones are counted where there are more."""

_SHORT = 40
"""Letters of a threshold in words that a line about a claim has room for."""

_SIGNS = {"at_least": "≥ ", "at_most": "≤ ", "between": ""}
_LEANINGS = {
    "agrees": "agrees so far",
    "disagrees": "disagrees so far",
    "mixed": "mixed so far",
}

SYMBOLS = {"reproduced": "✓", "refuted": "✕", "inconclusive": "?", "not run": "–"}
"""A symbol per verdict, so that none is told by colour alone; in the order in which they are counted."""


def unit_of(claim: JudgedClaim, part: str = "") -> str:
    """Unit of a part's numbers; ledgers of before do not say, and have plain numbers."""
    return _of_part(claim.unit, part) or "number"


def _of_part(told: Any, part: str) -> Any:
    """What is told of a part: by its name, or of all parts alike."""
    return told.get(part) if isinstance(told, dict) else told


def threshold_lines(claim: JudgedClaim) -> list[str]:
    """Return a line for the threshold of each part, ``recall ≥ 99 %``; one line if many parts share a threshold."""
    if isinstance(claim.threshold, str):
        return [claim.threshold]
    lines = []
    for name, bound in claim.threshold.items():
        if isinstance(bound, dict):
            bounds = ", ".join(_bound(*each, unit_of(claim, name)) for each in bound.items())
            lines.append((_title(name), bounds))
        else:
            lines.append(("", _bound(name, bound, unit_of(claim))))
    if len(lines) > _MOST_LINES and len({bounds for _, bounds in lines}) == 1:
        return [f"each of {len(lines)} {lines[0][1]}"]
    return [f"{title} {bounds}".strip() for title, bounds in lines]


def estimates(claim: JudgedClaim) -> list[tuple[str, str]]:
    """Part and value with interval; the name is empty where there is only one."""
    return _estimates(claim, claim.value, claim.interval)


def brief(claim: JudgedClaim) -> tuple[str, str, str]:
    """Part, value with interval, and what was asked of it, for one line about a claim.

    Of several parts it is the first.  Of a claim that is not reproduced it is the first whose value misses its
    threshold, or else the first of which a number, under the rule `always`, or an end of the interval does; of numbers
    the worst is told beside the value.  Names are empty where there is only one part; what was asked is empty where the
    threshold is a long text.
    """
    names = [*claim.value] if isinstance(claim.value, dict) else [""]
    if not names:
        return "", format_value(None, None, "number"), ""
    in_doubt = [] if claim.verdict is Verdict.REPRODUCED else names
    by_value = [n for n in in_doubt if _misses(claim, n, [_of_part(claim.value, n)])]
    by_numbers = [n for n in in_doubt if _misses(claim, n, _numbers(claim, n))]
    shown = (by_value or by_numbers or names)[0]
    title, text = estimates(claim)[names.index(shown)]
    if by_numbers and not by_value:
        text += _worst(claim, shown)
    asked = _asked(claim, shown)
    if asked and len({each.verdict for each in claim.readings.values()} - {Verdict.NOT_RUN}) > 1:
        asked += "; readings disagree"
    return title, text, asked


def values(claim: JudgedClaim) -> list[tuple[str, str]]:
    """Part and value alone, with as many digits as beside its interval."""
    return _estimates(claim, claim.value, claim.interval, format_value)


def sample_lists(claim: JudgedClaim) -> list[tuple[str, list[str]]]:
    """Part and its numbers one by one: a dash is missing; many numbers that are few are counted: ``464 × 1``."""
    samples = claim.samples or {}
    named = {"": samples} if isinstance(samples, list) else samples
    return [
        (_title(name), _together([sample_text(value, unit_of(claim, name)) for value in values]))
        for name, values in named.items()
    ]


def _together(texts: list[str]) -> list[str]:
    """Count equal texts if there are many texts but few different ones."""
    counts = Counter(texts)
    if len(texts) <= _MOST_SAMPLES or len(counts) > _FEW_SAMPLES:
        return texts
    return [f"{count} × {text}" for text, count in counts.most_common()]


def sample_text(value: JsonSample, unit: str = "number") -> str:
    """Write one sample: a number, a pair of numbers, or a dash."""
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return f"({sample_text(value[0])}, {sample_text(value[1])})"
    return format_number(float(value), unit)


def counted(claim: JudgedClaim) -> str:
    """Return the noun for one number of a claim, such as ``seed``."""
    if isinstance(claim.n_counts, dict):
        return " or ".join(dict.fromkeys(claim.n_counts.values()))
    return claim.n_counts or "seed"


def leaning_words(claim: JudgedClaim) -> str:
    """Return the direction of an inconclusive claim in words; empty for other verdicts."""
    return "" if claim.leaning is None else _LEANINGS[claim.leaning]


def verdict_words(claim: JudgedClaim) -> str:
    """The verdict; what follows from a theorem, or from how things are built, was not reproduced but is true by it."""
    if not claim.structural or claim.verdict is not Verdict.REPRODUCED:
        return claim.verdict.value
    return claim.structural if isinstance(claim.structural, str) else "true by construction"


def outcome(claim: JudgedClaim) -> str:
    """The verdict, or where an inconclusive one points."""
    return leaning_words(claim) or verdict_words(claim)


def completion_of(claims: Iterable[JudgedClaim]) -> str:
    """The completion of the recipe that a run's verdicts rest on, in words; empty where it does not matter to any."""
    named = dict.fromkeys(claim.completion for claim in claims if claim.completion)
    return f"completion {', '.join(named)}" if named else ""


def closing_line(claims: Iterable[JudgedClaim]) -> str:
    """Return the number of claims with each outcome: ``4 reproduced · 6 refuted · 2 agree so far``."""
    counts = Counter(map(outcome, claims))
    known = [Verdict.REPRODUCED, Verdict.REFUTED, *_LEANINGS.values(), Verdict.INCONCLUSIVE, Verdict.NOT_RUN]
    order = [known[0], *(each for each in counts if each not in known), *known[1:]]
    words = [
        f"{counts[each]} {each if counts[each] == 1 else each.replace('agrees', 'agree')}"
        for each in order
        if counts[each]
    ]
    return " · ".join(words) or "no claims"


def reason(claim: JudgedClaim) -> str:
    """Return why the verdict is what it is, in words; empty for ledgers of before.

    A claim that every tried reading refutes stays open as long as others were not tried: first comes what the tried
    ones give, then how the verdict follows.
    """
    words = claim.words or ""
    found, sign, others = words.partition(UNTRIED)
    if not sign or claim.verdict is not Verdict.INCONCLUSIVE:
        return words
    tried = [name for name, each in claim.readings.items() if each.verdict is not Verdict.NOT_RUN]
    if len(tried) == 1:
        start = f"the one reading that was tried ({tried[0]}) refutes it"
    else:
        every = "both" if len(tried) == 2 else f"all {len(tried)}"
        start = f"{every} readings that were tried refute it" if tried else "what was tried refutes it"
    numbers = found.partition("): ")[2] or found if tried else found
    return (
        f"{start}: {numbers}. But the claim counts as refuted only if every reading of the source refutes it, and "
        f"some were not tried: {others}. So it stays inconclusive"
    )


def remarks(claim: JudgedClaim) -> list[str]:
    """Return the remarks on a verdict: the one at the run's own scale, controls, and a changed rule."""
    lines = []
    if UNTRIED in (claim.words or "") and claim.here is not None:
        lines.append(f"here, by what this run tried alone: {claim.here.verdict.value}")
    elif claim.here is not None and (claim.here.verdict, claim.here.words) != (claim.verdict, claim.words):
        lines.append(
            f"here, at the scale of this run: {claim.here.verdict.value} ({_here(claim, claim.here)})"
        )
    lines += [f"control {name}: {control.words}" for name, control in claim.controls.items()]
    if claim.structural:
        lines.append("structural: it follows from how things are built, not from what was learned")
    if claim.registration.words:
        lines.append(claim.registration.words)
    return lines


def _here(claim: JudgedClaim, here: Found) -> str:
    return here.words or "; ".join(
        f"{n} {text}".strip() for n, text in _estimates(claim, here.value, here.interval)
    )


def _estimates(
    claim: JudgedClaim,
    value: float | dict[str, float | None] | None,
    interval: Interval | dict[str, Interval | None] | None,
    write: Callable[[float | None, Interval | None, str], str] = format_estimate,
) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        of_value = None if isinstance(interval, dict) else interval
        return [("", write(value, of_value, unit_of(claim)))]
    intervals = interval if isinstance(interval, dict) else {}
    return [
        (_title(name), write(each, intervals.get(name), unit_of(claim, name))) for name, each in value.items()
    ]


def _bounds_of(claim: JudgedClaim, part: str) -> dict[str, Bound]:
    """The threshold of a part by its kind; empty where it is told in other words."""
    if isinstance(claim.threshold, str):
        return {}
    found = claim.threshold.get(part) if part else claim.threshold
    bounds = found if isinstance(found, dict) else {}
    return {kind: bound for kind, bound in bounds.items() if not isinstance(bound, dict)}


def _asked(claim: JudgedClaim, part: str) -> str:
    if isinstance(claim.threshold, str):
        return claim.threshold if len(claim.threshold) <= _SHORT else ""
    bounds = [_bound(*each, unit_of(claim, part)) for each in _bounds_of(claim, part).items()]
    always = bool(bounds) and _always(claim, part)
    scope = [f"every {_of_part(claim.n_counts, part) or 'seed'}"] if always else []
    return ", ".join([*bounds, *scope])


def _always(claim: JudgedClaim, part: str) -> bool:
    return bool(_of_part(claim.rule, part) == "always")


def _numbers(claim: JudgedClaim, part: str) -> list[float]:
    """What must meet the threshold of a part beside its value: all its numbers, or the ends of its interval."""
    of_part = claim.samples if _always(claim, part) else claim.interval
    return [float(each) for each in _of_part(of_part, part) or [] if isinstance(each, int | float | str)]


def _misses(claim: JudgedClaim, part: str, numbers: Iterable[float | None]) -> bool:
    """Whether one of some numbers lies beyond a threshold of a part."""
    return any(_beyond(claim, part, each) > 0.0 for each in numbers if each is not None)


def _worst(claim: JudgedClaim, part: str) -> str:
    """The number of a part farthest beyond its threshold, in words; empty where the rule is not about each number."""
    if not _always(claim, part):
        return ""
    found = max(_numbers(claim, part), key=lambda number: _beyond(claim, part, number))
    return f", worst {_of_part(claim.n_counts, part) or 'seed'} {format_number(found, unit_of(claim, part))}"


def _beyond(claim: JudgedClaim, part: str, number: float) -> float:
    """How far a number lies beyond the thresholds of a part; 0 where it meets them."""
    far = [0.0]
    for kind, bound in _bounds_of(claim, part).items():
        low, high = bound if isinstance(bound, list) else (bound, bound)
        far += [low - number] * (kind != "at_most") + [number - high] * (kind != "at_least")
    return max(far)


def _bound(kind: str, bound: Bound, unit: str) -> str:
    ends: Sequence[float] = bound if isinstance(bound, list) else [bound]
    # Of two ends only the last has a unit behind it; percent stands behind both.
    first = unit if unit == "fraction" else "number"
    texts = [*(format_number(end, first) for end in ends[:-1]), format_number(ends[-1], unit)]
    return _SIGNS.get(kind, f"{_title(kind)} ") + " to ".join(texts)


def _title(name: str) -> str:
    return name.replace("_", " ")
