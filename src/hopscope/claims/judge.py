"""From a claim and the evidence of a run to a verdict, by one rule for all: the only way to one (docs/claims.md)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hopscope.claims.claim import COMPLETIONS, Claim, Criterion, Function, Samples, is_series, shown
from hopscope.claims.part import BELOW, LEAST_SHARE, Scale, judged_part
from hopscope.claims.source import registered as rules_of
from hopscope.claims.verdict import Judgement, Outcome, Registration, Verdict, counted, pointing
from hopscope.config import in_words
from hopscope.errors import NoMembers, UserError

ENOUGH: Any = {"all": "refuted", "general": "refuted", "any": "reproduced", "existence": "reproduced"}
"""The verdict that one part, or one completion, is enough for; the other takes all."""

_Judgements = Mapping[str, Judgement]


def judge(
    claim: Claim,
    evidence: Any,
    *,
    registered: Mapping[str, str] | None = None,
    completion: str | None = None,
    before: Iterable[Verdict] = (),
) -> Verdict:
    """Judge a claim by its rule on the evidence of a run, which the claim's functions are called with.

    `UserError`: one of these fails, or returns something else than numbers for the members or parts.

    Args:
        registered: rules that were written down before training, as `registered` gives them; None if there are none.
        completion: of the run's recipe: one of `COMPLETIONS`, or other words where it departs from them; None where
            the run has none.
        before: the ledger that the run had, if it was judged before: a changed claim shows that verdict too.
    """
    found = {
        name: _measured(claim, f"reading {name!r}" if name else "value", function, evidence, claim.parts)
        for name, function in _readings(claim, evidence).items()
    }
    controls = {name: _control(claim, name, function, evidence) for name, function in claim.controls.items()}
    lacks, untried = (_words(claim, name, evidence) for name in ("at_scale", "untried"))
    here = Scale(evidence.seeds, 1, claim.seeds_needed, structural=bool(claim.structural))
    scale = here._replace(source_n=claim.source_n, here=False, lacking=bool(lacks))
    own, *_ = _judged(claim, found, controls, here, "")
    whole, name, parts, readings = _judged(claim, found, controls, scale, lacks)
    if untried and whole.verdict == "refuted":
        whole = _with(whole, "inconclusive", whole.words, f"not every reading was tried: {untried}")
    alone = whole
    if claim.kind and completion and not {*found} <= {*COMPLETIONS}:
        whole = _under(claim.kind, whole, completion)
    values = {part: _json(samples.values.tolist()) for part, samples in found[name].items()}
    same = ("id", "statement", "source", "protocol", "rule", "need", "structural", "trust", "kind")
    return Verdict(
        **dict(_told(whole)),
        **{each: getattr(claim, each) for each in same},
        threshold=_each(claim.must, Criterion.to_json),
        unit=_each(claim.must, lambda criterion: criterion.unit),
        must_not=claim.must_not and _each(claim.must_not, Criterion.to_json),
        parts={part: _told(each) for part, each in parts.items() if part},
        values=values.get("", values),
        here=None if own.verdict == "not run" else _told(own),
        readings={each: _told(judged) for each, judged in readings.items() if each},
        controls=controls,
        completion=completion if claim.kind else None,
        alone=_told(alone) if claim.kind and completion else None,
        registration=_registration(claim, registered, before),
    )


def counts(readings: int, verdict: str, lacks: Iterable[str], n: int) -> tuple[int, bool, int, int]:
    """What a verdict counts: by readings tried, then whether it decides, how little of the protocol lacks, and n."""
    below = [each for each in lacks if each.startswith(BELOW)]
    return readings, verdict in ENOUGH.values(), -sum(each.count(",") + 1 for each in below), n


def joined(ledgers: Iterable[Iterable[Verdict]]) -> dict[str, Judgement]:
    """Id → what several runs say together, of the claims that they judged under several completions.

    Claims of other studies with the same id and statement are the same; with another statement none is told.  Of
    several verdicts under one completion the one that `counts` most stands, and of equal ones the last.
    """
    every: dict[tuple[str, str], list[tuple[Verdict, str, Judgement]]] = {}
    for verdict in (each for ledger in ledgers for each in ledger):
        under = [(verdict, name, own) for name, own in _by_completion(verdict) if own.verdict != "not run"]
        every.setdefault((verdict.id, verdict.statement), []).extend(under)
    found = {}
    for (claim, statement), told in every.items():
        if any(other == claim and words != statement for other, words in every):
            continue  # claims of two studies that have one id
        told.sort(key=lambda each: counts(len(each[0].readings), each[2].verdict, each[2].lacks, each[2].n))
        ran = {name: own for _, name, own in told}
        if len(ran) < 2 or all(verdict is told[0][0] for verdict, *_ in told):
            continue
        last = told[-1][0]
        asked, key = ([*last.parts], last.need) if last.kind is None else ([*COMPLETIONS], last.kind)
        silent = [name for name in COMPLETIONS if name not in asked]
        settling = [own for own in ran.values() if own.verdict == ENOUGH.get(key)]
        # What each run found, and what it lacks, stands in its own ledger.
        shown = [*settling, *ran.values()][0].model_copy(update={"words": "", "lacks": ()})
        whole = _over_completions(key, shown, ran, silent)
        found[claim] = _told(whole).model_copy(update={"leaning": None})
    return found


def _by_completion(verdict: Verdict) -> Iterable[tuple[str, Judgement]]:
    """What a verdict says under each completion; of a claim without a kind, those are its parts."""
    found = verdict.readings if verdict.kind else verdict.parts
    if found and {*found} <= {*COMPLETIONS}:
        return found.items()
    own, name = verdict.alone, verdict.completion or ""
    refutes = verdict.kind == "general" and own is not None and own.verdict == "refuted"
    return [(name, own)] if own and (name in COMPLETIONS or refutes) else []


def _judged(
    claim: Claim, found: Mapping[str, dict[str, Samples]], controls: _Judgements, scale: Scale, lacks: str
) -> tuple[Judgement, str, _Judgements, _Judgements]:
    """The judgement of all readings, the name of the one that is shown, its parts, and each reading's judgement."""
    rules, criteria, kind = claim.by_part(claim.rule), claim.by_part(claim.must), claim.kind
    parts: dict[str, _Judgements] = {}
    readings: dict[str, Judgement] = {}
    for name, samples in found.items():
        left = [part for part in samples if not samples[part].excluded] or [*samples]
        order = dict.fromkeys([*left, *samples])
        parts[name] = {part: judged_part(samples[part], criteria[part], rules[part], scale) for part in order}
        whole = _whole(parts[name], left, claim.need)
        if whole.verdict != "not run":
            words, more = whole.words, [f"{BELOW}: {lacks}"] if lacks else []
            if claim.summary:
                said = _words(claim, "summary", {part: _told(each) for part, each in parts[name].items()})
                aside = [f"{part}: {each.words}" for part, each in parts[name].items() if part not in left]
                words = " · ".join([said, *aside])
            whole = _with(whole, whole.verdict, words, *more)
        readings[name] = whole
    ran = {name: each for name, each in readings.items() if each.verdict != "not run"}
    named = kind is not None and {*readings} <= {*COMPLETIONS}
    settling = [name for name in ran if named and ran[name].verdict == ENOUGH[kind]]
    name = [*settling, *ran, *readings][0]
    whole = readings[name]
    if ran and named:
        nothing = [name for name, of in found.items() if all(each.excluded for each in of.values())]
        silent = COMPLETIONS if scale.here else nothing if kind == "general" else []
        whole = _over_completions(kind, whole, ran, silent)
    elif ran and name:
        whole = _over_readings(readings, ran, claim.readings_agree)
    leaning = _common(ran) if ran else None
    faults = {name: each for name, each in controls.items() if each.verdict != "refuted"}
    holds = whole.verdict == "reproduced" or leaning == "agrees"
    if holds and claim.must_not is not None and faults:
        shows = {"reproduced": "shows it too", "not run": "was not measured"}
        said = ", ".join(f"{name} {shows[each.verdict]}" for name, each in faults.items())
        whole, leaning = _with(whole, "inconclusive", whole.words), "mixed"
        whole = whole.model_copy(update={"lacks": (*whole.lacks, f"the control {said}")})
    return whole.model_copy(update={"leaning": leaning}), name, parts[name], readings


def _whole(parts: _Judgements, left: Sequence[str], need: str = "all") -> Judgement:
    """Parts together; those that are not `left` are shown, and decide nothing."""
    ran = {name: each for name, each in parts.items() if each.verdict != "not run"}
    words = " · ".join(f"{name}: {each.words}" for name, each in parts.items())
    counts: Any = {name: each.n_counts for name, each in parts.items()}
    counts = counts if len({*counts.values()}) > 1 else counts[left[0]]
    if "" in parts or not ran:
        alike = len({each.words for each in parts.values()}) == 1
        return parts[left[0]] if alike else Judgement(verdict="not run", words=words, n_counts=counts)
    verdicts, holding = [parts[name].verdict for name in left], [pointing(each) for each in ran.values()]
    values = {name: each.value for name, each in ran.items() if isinstance(each.value, float)}
    # A part that was not measured may still fail.
    leaning = "mixed" if _common(ran) == "agrees" and "not run" in verdicts else _common(ran)
    enough, same = ENOUGH.get(need), verdicts[0] if len({*verdicts}) == 1 else "inconclusive"
    return Judgement(
        verdict=enough if enough in verdicts else same, value=values or None,
        interval={name: ran[name].interval for name in values} or None,
        n=min(each.n for each in ran.values()), n_counts=counts,
        words=f"holds in {holding.count('agrees')} of {counted(len(left), 'part')} ({words})",
        leaning="agrees" if need == "any" and "agrees" in holding else leaning,
        lacks=tuple(dict.fromkeys(each for name in left for each in parts[name].lacks)),
    )  # fmt: skip


def _over_readings(readings: _Judgements, ran: _Judgements, agree: bool) -> Judgement:
    default, (name, shown) = next(iter(readings)), next(iter(ran.items()))
    verdicts = {each.verdict for each in (readings if agree else ran).values()}
    words, lacks = "; ".join([shown.words, f"these are numbers of {name}", _by_verdict(ran)]), []
    if len(verdicts) > 1 and (agree or "refuted" in verdicts):
        lacks = [f"the readings disagree: {_by_verdict(readings)}"]
    elif not agree and default not in ran and verdicts != {"refuted"}:
        lacks = [f"the default reading ({default}) was not run"]
    return _with(shown, "inconclusive" if lacks else shown.verdict, words, *lacks)


def _over_completions(kind: Any, shown: Judgement, ran: _Judgements, silent: Sequence[str]) -> Judgement:
    """Completions together; under the `silent` ones nothing was learned, or nobody asks for them."""
    verdicts = {each.verdict for each in ran.values()}
    left = [name for name in COMPLETIONS if name not in {*ran, *silent}]
    words = "; ".join(filter(None, [shown.words, _by_verdict(ran)]))
    lacks = [f"not run under {', '.join(left)}"] if left else []
    if ENOUGH.get(kind) in verdicts:
        return _with(shown, ENOUGH[kind], "; ".join([words, *lacks]))
    return _with(shown, "inconclusive" if left or len(verdicts) > 1 else verdicts.pop(), words, *lacks)


def _under(kind: str, whole: Judgement, completion: str) -> Judgement:
    """What a run under one completion says; one that departs from all of them can only refute a general claim."""
    if whole.verdict == "inconclusive" or whole.verdict == "not run":
        return whole
    if completion in COMPLETIONS or whole.verdict == ENOUGH[kind] == "refuted":
        return _over_completions(kind, whole, {completion: whole}, ())
    lacks = f"{completion} is no registered completion; not run under {', '.join(COMPLETIONS)}"
    return _with(whole, "inconclusive", whole.words, lacks)


def _common(found: _Judgements) -> Any:
    leanings = {each.leaning for each in found.values()}
    return leanings.pop() if len(leanings) == 1 else "mixed"


def _by_verdict(readings: _Judgements) -> str:
    verdicts = dict.fromkeys(each.verdict for each in readings.values())
    names = {of: [name for name, each in readings.items() if each.verdict == of] for of in verdicts}
    return "; ".join(f"{verdict} under {', '.join(each)}" for verdict, each in names.items())


def _with(found: Judgement, verdict: Outcome, words: str, *lacks: str) -> Judgement:
    own = (*lacks, *(found.lacks if found.verdict == "inconclusive" else ()))
    new = {"verdict": verdict, "words": words, "lacks": own if verdict == "inconclusive" else ()}
    return found.model_copy(update=new)


def _told(found: Judgement) -> Judgement:
    """For readers: words say what lacks, and only an inconclusive verdict leans."""
    leaning = found.leaning if found.verdict == "inconclusive" else None
    return found.model_copy(update={"words": "; ".join([found.words, *found.lacks]), "leaning": leaning})


def _control(claim: Claim, name: str, function: Function, evidence: Any) -> Judgement:
    criteria, rules = claim.by_part(claim.must_not or claim.must), claim.by_part(claim.rule)
    known = [*criteria] if isinstance(claim.must_not, dict) else ["", *claim.parts]
    parts, shows = {}, []
    for part, samples in _measured(claim, f"control {name!r}", function, evidence, known, some=True).items():
        must, rule = (of.get(part, next(iter(of.values()))) for of in (criteria, rules))
        judged = judged_part(samples, must, rule, Scale(evidence.seeds, structural=bool(claim.structural)))
        never, paired = np.isinf(samples.values).any(), samples.values.ndim == 2
        few = judged.n < LEAST_SHARE * len(samples.values)
        # Times that never came have no mean; they show it if they do one by one.  A constant correlates with nothing.
        one_by_one = samples.values[~np.isnan(samples.values)] if not paired else [math.nan]
        numbers: Any = one_by_one if judged.value is None else [judged.value]
        unsaid = judged.verdict == "not run" or few or (paired and never)
        shows.append("not run" if unsaid else "reproduced" if must.holds(*numbers) else "refuted")
        parts[part] = judged
    verdict = next(each for each in ("reproduced", "not run", "refuted") if each in shows)
    return _whole(parts, [*parts]).model_copy(update={"verdict": verdict, "leaning": None, "lacks": ()})


def _registration(claim: Claim, rules: Mapping[str, str] | None, before: Iterable[Verdict]) -> Registration:
    """How a claim stands to the rules that were registered."""
    if rules is None:
        return Registration()
    found, known, under = rules_of([claim])[claim.id], rules.get(claim.id), None
    if known is None:
        return Registration(state="added", hash=found, words="this claim was added after the run had begun")
    if known == found:
        return Registration(state="registered", hash=found, registered=known)
    for earlier in (each for each in before if each.id == claim.id):
        own = earlier.registration
        under = own.under_registered if own.registered == known else None
        if own.hash == known:
            under = Judgement(**{name: getattr(earlier, name) for name in Judgement.model_fields})
    was = "never judged" if under is None else f"was {under.verdict}"
    words = f"judged by a rule that was changed after the run: {was} under the rule registered with it"
    return Registration(state="changed", hash=found, registered=known, under_registered=under, words=words)


def _each(must: Criterion | Mapping[str, Criterion], function: Any) -> Any:
    return function(must) if isinstance(must, Criterion) else {part: function(must[part]) for part in must}


def _json(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_json, value)]
    return None if math.isnan(value) else str(value) if math.isinf(value) else value


# The claim's own functions: whatever goes wrong in one is a line that names the claim and the place.


def _readings(claim: Claim, evidence: Any) -> dict[str, Function]:
    found = claim.readings or {}
    if callable(found):
        found = _called(claim, "readings", found, evidence)
        if not isinstance(found, Mapping) or not found or not all(map(callable, found.values())):
            raise _refused(claim, "readings", "a mapping from names to functions of the evidence", found)
    stated = {"as stated" if found else "": claim.value} if claim.value else {}
    return {**stated, **found}


def _words(claim: Claim, field: str, given: Any) -> str:
    function = getattr(claim, field)
    try:
        found = "" if function is None else _called(claim, field, function, given)
    except UserError as error:
        found = _no_members(error)
    if not isinstance(found, str):
        raise _refused(claim, field, "words, or an empty string where there is nothing to say", found)
    return found


def _measured(
    claim: Claim, what: str, function: Function, evidence: Any, parts: Sequence[str], some: bool = False
) -> dict[str, Samples]:
    try:
        found = _called(claim, what, function, evidence)
    except UserError as error:
        found = dict.fromkeys(parts, Samples([], note=_no_members(error)))
    found = found if isinstance(found, Mapping) else {"": found}
    if not found or not {*found} <= {*parts} or (not some and len(found) < len(parts)):
        names = ", ".join(filter(None, parts))
        expected = f"numbers for the parts {names}" if names else "numbers, without parts"
        raise _refused(claim, what, expected, [*found] if any(found) else found.get(""))
    return {part: _samples(claim, what, part, each, evidence) for part, each in found.items()}


def _samples(claim: Claim, what: str, part: str, found: Any, evidence: Any) -> Samples:
    members, rules = [*evidence.members], claim.by_part(claim.rule)
    what += f", part {part!r}" if part else ""
    try:
        if not isinstance(found, Samples):
            found = Samples(found, members=None if is_series(found) else members)
        elif found.unit == "member" and found.members is None and len(found.values) == len(members):
            found = replace(found, members=members)
    except UserError as error:
        raise UserError(f"claim {claim.id!r}: {what}: {error}") from None
    n, own = len(found.values), found.members or ()
    most = {"seed": len({*evidence.seeds.values()}), "run": len(members), "member": len(members)}
    if n > most.get(found.unit, n):
        expected = f"at most {counted(most[found.unit], found.unit)}, as many as the run has"
        raise _refused(claim, what, expected, f"{n} of them")
    if len({*members} & {*own}) < len(own):
        raise _refused(claim, what, f"members of the run ({members[0]} to {members[-1]}), each once", own)
    rule = rules.get(part, next(iter(rules.values())))
    if found.values.ndim == 2 and rule != "effect":
        raise _refused(claim, what, "numbers, because pairs are for the rule 'effect'", found.values)
    if rule == "share" and not {*found.values[~np.isnan(found.values)]} <= {0.0, 1.0}:
        raise _refused(claim, what, "0 or 1 for each seed, because the rule is 'share'", found.values)
    return found


def _called(claim: Claim, what: str, function: Any, given: Any) -> Any:
    try:
        return function(given)
    except Exception as error:
        words = str(error) if isinstance(error, UserError) else f"expected numbers, found {in_words(error)}"
        raise UserError(f"claim {claim.id!r}: {what}: {words}") from error


def _no_members(error: UserError) -> str:
    """Which members a function asked for that the run lacks; any other error is raised again."""
    if not isinstance(error.__cause__, NoMembers):
        raise error
    return str(error.__cause__).partition(";")[0]


def _refused(claim: Claim, what: str, expected: str, found: object) -> UserError:
    return UserError(f"claim {claim.id!r}: {what}: expected {expected}, found {shown(found)}")
