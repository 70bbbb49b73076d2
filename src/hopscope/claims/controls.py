"""Controls of a claim: what should show nothing, measured by the claim's own rule."""

from hopscope.claims.claim import Claim, Rule
from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval
from hopscope.claims.judged import Control, JsonSample, samples_json
from hopscope.claims.measuring import measured_control
from hopscope.claims.nulls import LEAST_SHARE, LEAST_WORDS
from hopscope.claims.parts import Part, Scale, judge_part, without_number
from hopscope.claims.samples import MembersOfARun, Samples
from hopscope.claims.verdicts import Judgement, Verdict


def controls_of(claim: Claim, evidence: MembersOfARun) -> dict[str, Control]:
    """Measure every control of a claim.

    Raises:
        UserError: a control's function fails, or returns something else than numbers.
    """
    found = {}
    for name, function in (claim.controls or {}).items():
        samples = measured_control(claim, name, function, evidence)
        found[name] = _control(claim, samples, evidence)
    return found


def with_controls(judgement: Judgement, controls: dict[str, Control], claim: Claim) -> tuple[Judgement, bool]:
    """Take a reproduced verdict back where a control shows what it must not, or was not measured.

    Returns:
        The judgement, and whether it was taken back.
    """
    if judgement.verdict is not Verdict.REPRODUCED or claim.must_not is None:
        return judgement, False
    faults = [
        f"the control {name} was not measured"
        if control.shows is None
        else f"the control {name} shows it too"
        for name, control in controls.items()
        if control.shows is not False
    ]
    if not faults:
        return judgement, False
    words = f"{judgement.words}; but {', and '.join(faults)}"
    return judgement.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "words": words}), True


def _control(claim: Claim, samples: dict[str, Samples], evidence: MembersOfARun) -> Control:
    parts = {
        name: judge_part(
            each, _criterion(claim, name), _rule(claim, name), Scale(1, 2, here=True),
            seeds=evidence.seeds, structural=bool(claim.structural),
        )
        for name, each in samples.items()
    }  # fmt: skip
    ran = {name: part for name, part in parts.items() if part.judgement.verdict is not Verdict.NOT_RUN}
    written: dict[str, list[JsonSample]] = {name: samples_json(each.values) for name, each in samples.items()}
    said = {name: _words(claim, name, part, samples[name]) for name, part in parts.items()}
    words = " · ".join(f"{name}: {each}" if name else each for name, each in said.items())
    single = [*parts] == [""]
    values = {name: part.judgement.value for name, part in ran.items()}
    intervals = {name: part.judgement.interval for name, part in ran.items()}
    counts = {name: part.counts for name, part in parts.items()}
    return Control.model_validate(
        {
            "value": values.get("") if single else values or None,
            "interval": intervals.get("") if single else intervals or None,
            "n": min((part.judgement.n for part in ran.values()), default=0),
            "n_counts": next(iter(counts.values())) if len({*counts.values()}) == 1 else counts,
            "words": words,
            "samples": written[""] if single else written,
            "shows": _shows(claim, parts, samples),
        }
    )


def _shows(claim: Claim, parts: dict[str, Part], samples: dict[str, Samples]) -> bool | None:
    """Whether any part wholly meets `must_not`; without an interval, whether each of its numbers does."""
    if claim.must_not is None:
        return None
    found = [_part_shows(claim, name, part, samples[name]) for name, part in parts.items()]
    if True in found:
        return True
    return None if None in found else False


def _part_shows(claim: Claim, name: str, part: Part, samples: Samples) -> bool | None:
    value, interval = part.judgement.value, part.judgement.interval
    if part.judgement.verdict is Verdict.NOT_RUN or _too_few(part, samples):
        return None
    if samples.paired and samples.censored:
        return None  # there is no correlation
    if isinstance(interval, tuple):
        return _criterion(claim, name).met_by(interval)
    if isinstance(value, float):
        return _criterion(claim, name).holds(value)
    if samples.paired:
        return False  # a constant correlates with nothing
    # Times that never came have no mean; they show it if they do one by one.
    known = [each for each in samples.values if isinstance(each, float)]
    return all(_criterion(claim, name).distance(each) == 0.0 for each in known)


def _too_few(part: Part, samples: Samples) -> bool:
    return part.judgement.n < LEAST_SHARE * len(samples.values)


def _words(claim: Claim, name: str, part: Part, samples: Samples) -> str:
    n, total = part.judgement.n, len(samples.values)
    few = f"; {without_number(n, total, part.counts)}: {LEAST_WORDS}" if n and _too_few(part, samples) else ""
    value, interval = part.judgement.value, part.judgement.interval
    if not isinstance(value, float):
        return part.judgement.words
    criterion = _criterion(claim, name)
    shown = criterion.show(value)
    return (f"{shown} {_interval(criterion, interval)}" if isinstance(interval, tuple) else shown) + few


def _interval(criterion: Criterion, interval: Interval) -> str:
    return f"[{criterion.show(interval[0])}, {criterion.show(interval[1])}]"


def _criterion(claim: Claim, name: str) -> Criterion:
    """Return the criterion of a control: `must_not`, or the claim's own, only to write its numbers."""
    must = claim.must if claim.must_not is None else claim.must_not
    if isinstance(must, Criterion):
        return must
    return must.get(name) or next(iter(must.values()))


def _rule(claim: Claim, name: str) -> Rule:
    return claim.rules.get(name, next(iter(claim.rules.values())))
