"""Calls of a claim's functions: a mistake in one is reported in a line that names the claim and the expected value."""

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hopscope.claims.claim import Claim, ValueFunction
from hopscope.claims.samples import MembersOfARun, Samples, is_series
from hopscope.claims.verdicts import Judgement
from hopscope.config import in_words
from hopscope.errors import UserError
from hopscope.words import counted

Measured = dict[str, Samples]
"""Part → what was measured; a claim without parts has one, whose name is empty."""


def readings_of(claim: Claim, evidence: MembersOfARun) -> dict[str, ValueFunction]:
    """Reading → value function; a claim without readings has one, whose name is empty.

    Raises:
        UserError: the function of readings fails, or gives no mapping of functions.
    """
    readings = claim.readings
    if readings is None:
        return {"": claim.value} if claim.value is not None else {}
    if not isinstance(readings, Mapping):
        readings = called(claim, "readings", readings, evidence)
        if not isinstance(readings, Mapping) or not readings or not all(map(callable, readings.values())):
            raise _expected(claim, "readings", "a mapping from names to functions of the evidence", readings)
    found = {str(name): value for name, value in readings.items()}
    return found if claim.value is None else {"as stated": claim.value, **found}


_WORDS = {
    "at_scale": "words that say what is missing, or an empty string",
    "untried": "words that name readings, or an empty string",
    "summary": "words that say what was seen",
}


def words_of(
    claim: Claim,
    field: Literal["at_scale", "untried", "summary"],
    given: MembersOfARun | Mapping[str, Judgement],
) -> str:
    """Call the function of a claim that returns words; without a function they are empty.

    Args:
        claim: the claim.
        field: the claim's field that holds the function.
        given: the function's argument: the evidence, or for `summary` the judgements of the parts.

    Raises:
        UserError: the function fails, or returns something else than words.
    """
    function = getattr(claim, field)
    if function is None:
        return ""
    found = called(claim, field, function, given)
    if not isinstance(found, str) or (field == "summary" and not found):
        raise _expected(claim, field, _WORDS[field], found)
    return found


def measured(claim: Claim, what: str, function: ValueFunction, evidence: MembersOfARun) -> Measured:
    """Call a value function of a claim whose parts must be those of `must`.

    Args:
        claim: the claim.
        what: what the function is called in errors.
        function: the function.
        evidence: the evidence table.

    Raises:
        UserError: it fails, or returns something else than numbers for each part.
    """
    found = called(claim, what, function, evidence)
    parts = None if {*claim.criteria} == {""} else [*claim.criteria]
    if parts is None:
        if isinstance(found, Mapping):
            raise _expected(claim, what, "numbers, since `must` has no parts", found)
        return {"": _samples(claim, what, "", found, evidence)}
    if not isinstance(found, Mapping) or {*found} != {*parts}:
        raise _expected(claim, what, f"numbers for each part of `must` ({', '.join(parts)})", found)
    return {part: _samples(claim, what, part, found[part], evidence) for part in parts}


def measured_control(claim: Claim, name: str, function: ValueFunction, evidence: MembersOfARun) -> Measured:
    """Call the value function of a control: one number, or parts among those of `must` or `must_not`.

    Raises:
        UserError: as in `measured`.
    """
    what = f"control {name!r}"
    found = called(claim, what, function, evidence)
    named = [*claim.must_not] if isinstance(claim.must_not, Mapping) else []
    if not isinstance(found, Mapping):
        if named:
            raise _expected(claim, what, f"numbers for each part of `must_not` ({', '.join(named)})", found)
        return {"": _samples(claim, what, "", found, evidence)}
    known = named or [part for part in claim.criteria if part]
    if not found or not {*found} <= {*known}:
        expected = (
            f"numbers for parts among {', '.join(known)}" if known else "numbers, since `must` has no parts"
        )
        raise _expected(claim, what, expected, found)
    return {part: _samples(claim, what, part, each, evidence) for part, each in found.items()}


def called(claim: Claim, what: str, function: Callable[[Any], Any], evidence: Any) -> Any:
    """Call a function of a claim; whatever goes wrong in it is a line that says where."""
    try:
        return function(evidence)
    except UserError as error:
        raise UserError(f"claim {claim.id!r}: {what}: {error}{_place(function, error)}") from error
    except Exception as error:
        words = in_words(error)
        raise UserError(
            f"claim {claim.id!r}: {what}: expected numbers, found {words}{_place(function, error)}; "
            "mend the function and run the same command again"
        ) from error


def _place(function: Any, error: BaseException) -> str:
    """File and line of the innermost call in the file of the function, as far as they are known."""
    while hasattr(function, "func"):
        function = function.func  # functools.partial
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if not own:
        return ""
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})"


def _samples(claim: Claim, what: str, part: str, found: Any, evidence: MembersOfARun) -> Samples:
    """Check and return the samples of one part."""
    what = f"{what}, part {part!r}" if part else what
    samples = _read(claim, what, found, evidence)
    rule = claim.rules.get(part, next(iter(claim.rules.values())))
    if samples.paired and rule != "effect":
        raise _expected(claim, what, f"numbers under the rule {rule!r}", "pairs of numbers")
    _check_count(claim, what, samples, evidence)
    return samples


def _check_count(claim: Claim, what: str, samples: Samples, evidence: MembersOfARun) -> None:
    """A run cannot give more seeds than it has, nor more members and runs than it has members."""
    members = len(evidence.members)
    there = {"seed": len({*evidence.seeds.values()}), "run": members, "member": members}.get(samples.unit)
    if there is not None and len(samples.values) > there:
        expected = f"at most {counted(there, samples.unit)}, as many as the run has"
        raise _expected(claim, what, expected, f"{len(samples.values)} of them")


def _read(claim: Claim, what: str, found: Any, evidence: MembersOfARun) -> Samples:
    try:
        samples = found if isinstance(found, Samples) else Samples(found)
    except UserError as error:
        raise UserError(f"claim {claim.id!r}: {what}: {error}") from None
    if samples.members is not None:
        _check_members(claim, what, samples.members, evidence)
    if isinstance(found, Samples) or is_series(found):
        return samples
    if len(samples.values) != len(evidence.members):
        raise _expected(
            claim,
            what,
            f"one number for each of {len(evidence.members)} members (a series names its members)",
            f"{len(samples.values)} numbers",
        )
    return Samples(samples.values, members=tuple(evidence.members))


def _check_members(claim: Claim, what: str, members: Sequence[Any], evidence: MembersOfARun) -> None:
    known = {*evidence.members}
    unknown = [member for member in members if member not in known]
    if unknown:
        raise _expected(
            claim, what, f"members of the run ({_few(evidence.members)})", f"member {unknown[0]!r}"
        )
    twice = [member for member, times in Counter(members).items() if times > 1]
    if twice:
        raise _expected(claim, what, "each member once", f"member {twice[0]!r} twice")


def _few(members: Sequence[int]) -> str:
    return ", ".join(map(str, members)) if len(members) <= 5 else f"{members[0]} to {members[-1]}"


def _expected(claim: Claim, what: str, expected: str, found: object) -> UserError:
    if isinstance(found, Mapping):
        shown = f"parts {', '.join(map(repr, found))}" if found else "an empty mapping"
    elif isinstance(found, str):
        shown = found
    else:
        shown = f"{type(found).__name__} {found!r}".replace("\n", " ")[:80]
    return UserError(f"claim {claim.id!r}: {what}: expected {expected}, found {shown}")
