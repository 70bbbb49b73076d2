"""Claims of committed runs, judged by both houses: the same verdicts, numbers and leanings, but for what is meant.

Value functions are the first house's, called once each; `python tests_next/parity/test_claims.py` compares every run.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from hopscope import claims as old
from hopscope.claims.completions import Completed
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.record import program_of
from hopscope_next import claims as new
from hopscope_next.claims.judge import judge

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
RUNS = ["permutation/no-positions", "depth/workstation", "depth/details", "circuits/laptop", "circuits/workstation",
        "emergence/laptop", "curriculum/workstation", "curriculum/circuits", "recipes/laptop", "recipes/details",
        "sharing/workstation", "llm/smollm2-sampled", "campaign/transformers-abc", "natural/laptop"]  # fmt: skip
SAME = ("id", "statement", "source", "protocol", "need", "source_n", "seeds_needed", "at_scale", "readings_agree",
        "untried", "kind", "structural", "trust")  # fmt: skip


def every(function, found):
    """Apply a function to what stands alone, or under the names of parts."""
    return (
        {name: function(each) for name, each in found.items()}
        if isinstance(found, Mapping)
        else function(found)
    )


def as_criterion(criterion):
    return new.Criterion(*criterion.bounds, criterion.unit)


def as_samples(found):
    if not isinstance(found, old.Samples):
        return found
    names = ("unit", "cluster", "interval", "note", "missing", "members", "excluded")
    return new.Samples(
        found.values, error=found.error or 0.0, **{name: getattr(found, name) for name in names}
    )


def both(claim):
    """A claim of the first house whose functions remember what they gave, and the same claim of ours."""
    cached = {
        name: every(cache, found) if found else None
        for name in ("value", "controls")
        for found in [getattr(claim, name)]
    }
    readings = claim.readings
    if callable(readings):
        listed = cache(lambda evidence: every(cache, readings(evidence)))
        ours = lambda evidence: every(ask, listed(evidence))  # noqa: E731
    else:
        listed = every(cache, readings) if readings else readings
        ours = every(ask, listed) if listed else None
    claim = replace(claim, **cached, readings=listed)
    return claim, new.Claim(
        **{name: getattr(claim, name) for name in SAME},
        rule=every(lambda rule: rule, claim.rule),
        value=claim.value and ask(claim.value),
        must=every(as_criterion, claim.must),
        must_not=claim.must_not and every(as_criterion, claim.must_not),
        controls=every(ask, claim.controls or {}),
        readings=ours,
    )


def ask(function):
    return lambda evidence: every(as_samples, function(evidence))


def facts(verdict):
    """What both must say of a verdict, of a reading, or of a run at its own scale."""
    return verdict and (str(verdict.verdict), verdict.value, verdict.interval, verdict.n)


def near(one, other):
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(near(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(near, one, other))
    return (
        math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        if isinstance(one, float) and other is not None
        else one == other
    )


def meant(mine):
    """Where too few numbers are there, or a part was not measured, nothing leans any more."""
    judgements = (mine, *mine.parts.values(), *mine.readings.values())
    unmeasured = any(part.verdict == "not run" for part in (*mine.parts.values(), *mine.readings.values()))
    few = any(isinstance(samples, list) and samples.count(None) > len(samples) / 4
              for samples in (mine.values.values() if isinstance(mine.values, dict) else [mine.values]))  # fmt: skip
    return mine.leaning == "mixed" and (
        few or unmeasured or any("without a number" in each.words for each in judgements)
    )


def differences(run):
    """(claim's id, field, theirs, ours) of whatever differs, and whether that is meant; and the number of claims."""
    folder = RunFolder.open(RESULTS / run)
    program, evidence = program_of(folder), Evidence.read(folder)
    claims, found = program.claims(program.recorded(folder)), []
    completed = Completed.of(evidence) if any(claim.kind for claim in claims) else None
    for first, second in map(both, claims):
        theirs, ours = (
            old.judge(first, evidence),
            judge(second, evidence, completion=completed and completed.words),
        )
        shows = {"reproduced": True, "not run": None}
        pairs = {
            "numbers": (facts(theirs), facts(ours)),
            "here": (facts(theirs.here), facts(ours.here)),
            "leaning": (theirs.leaning, ours.leaning),
            "what": [(each.n_counts, each.completion, each.structural) for each in (theirs, ours)],
            "values": (theirs.samples, ours.values),
            "readings": ({name: facts(each) for name, each in house.readings.items()} for house in (theirs, ours)),
            "controls": (
                {name: (each.value, each.interval, each.n, each.shows) for name, each in theirs.controls.items()},
                {name: (each.value, each.interval, each.n, shows.get(each.verdict, False) if first.must_not else None)
                 for name, each in ours.controls.items()},
            ),
        }  # fmt: skip
        for field, (one, other) in pairs.items():
            if not near(one, other):
                found.append((ours.id, field, one, other, field == "leaning" and meant(ours)))
        ledger = new.Ledger([ours])
        assert new.Ledger.from_json(ledger.to_json()) == ledger and ledger.text(long=True)
    return found, len(claims)


@pytest.mark.parametrize("run", RUNS)
def test_the_same_verdicts(run):
    found, count = differences(run)
    assert count > 0 and [each for each in found if not each[-1]] == []


@pytest.mark.long
def test_the_same_verdicts_of_the_page():
    """Twelve seconds, for its value functions read a table of half a million rows."""
    assert differences("permutation/paper") == ([], 14)


if __name__ == "__main__":
    total, differing = 0, []
    for path in sorted(path.parent for path in RESULTS.rglob("claims.json")):
        if path.parent.name == "quick-shapes":
            continue  # its study's file is not kept
        found, count = differences(path.relative_to(RESULTS))
        total, differing = (
            total + count,
            [*differing, *((str(path.relative_to(RESULTS)), *each) for each in found)],
        )
    print(
        f"{total} claims; {len(differing)} fields differ, {sum(each[-1] for each in differing)} of them as meant"
    )
    print(*differing, sep="\n")
    sys.exit(not all(each[-1] for each in differing))
