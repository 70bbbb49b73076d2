"""Rules of claims, registered before training: a rule that was changed afterwards is reported.

``registration.json`` of a run holds for every claim the hash of everything that decides it, the same in readable form,
and, once the claim was judged by that rule, the verdict.  Rules share most of their source, so each function, class and
constant stands once, under ``sources``, and a rule has the list of its ``blocks``, which joined are its text.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from hopscope.claims.claim import Claim
from hopscope.claims.judged import Found, JudgedClaim, Registration, criterion_json
from hopscope.errors import UserError
from hopscope.sources import normalised_source

VERSION = 2
"""1, before sources were shared, is read too."""


def register(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the ``registration.json`` of these claims before training: the hash and the readable rule of each."""
    rules = {claim.id: rule_of(claim) for claim in claims}
    sources: dict[str, str] = {}
    entries = {name: {"hash": _hash(rule), "rule": _packed(rule, sources)} for name, rule in rules.items()}
    return {"version": VERSION, "claims": entries, "sources": sources}


def registered_rule(registered: Mapping[str, Any], claim: str) -> Any:
    """Return the rule of a claim as it was registered, whole.

    Raises:
        UserError: that is no registration, or it has no such claim.
    """
    entry = _entries(registered).get(claim)
    if entry is None:
        raise UserError(f"registration.json: expected a claim {claim!r}, found none")
    return _unpacked(entry.get("rule"), registered.get("sources"))


def _packed(rule: Any, sources: dict[str, str]) -> Any:
    """The rule with the blocks of its source texts in `sources`, each under a part of its hash."""
    if isinstance(rule, Mapping):
        return {name: _packed(each, sources) for name, each in rule.items()}
    blocks = _BLOCKS.split(rule) if isinstance(rule, str) else []
    if len(blocks) < 2:
        return rule
    names = [sha256(block.encode("utf-8", "backslashreplace")).hexdigest()[:12] for block in blocks]
    sources.update(zip(names, blocks, strict=True))
    return {"blocks": names}


def _unpacked(rule: Any, sources: Any) -> Any:
    """The rule with its source texts joined again; a block that is gone changes the text, so that no hash fits."""
    if not isinstance(rule, Mapping):
        return rule
    if isinstance(sources, Mapping) and [*rule] == ["blocks"] and isinstance(rule["blocks"], list):
        return "".join(str(sources.get(str(name))) for name in rule["blocks"])
    return {name: _unpacked(each, sources) for name, each in rule.items()}


_BLOCKS = re.compile(r"(?=\n\n# )")


def rule_of(claim: Claim) -> dict[str, Any]:
    """Everything that decides a claim, as JSON; statement, source and trust do not."""
    readings = claim.readings
    # Only where a claim has them: the hash of one that has not is what it was before there were these choices.
    further: dict[str, Any] = {"readings_agree": True} if claim.readings_agree else {}
    if claim.untried is not None:
        further["untried"] = _source(claim.untried)
    if claim.kind is not None:
        further["kind"] = claim.kind
    return {
        "criteria": criterion_json(claim.must),
        "protocol": claim.protocol,
        "rule": claim.rule if isinstance(claim.rule, str) else dict(claim.rule),
        "need": claim.need,
        "source_n": claim.source_n,
        "seeds_needed": claim.seeds_needed,
        "structural": bool(claim.structural),
        "value": _source(claim.value),
        "at_scale": _source(claim.at_scale),
        "readings": _sources(readings) if isinstance(readings, Mapping) else _source(readings),
        "controls": _sources(claim.controls or {}),
        "must_not": None if claim.must_not is None else criterion_json(claim.must_not),
        **further,
    }


def state_of(claim: Claim, registered: Mapping[str, Any] | None) -> Registration:
    """Compare a claim's rule with the registered one.

    Args:
        claim: the claim as it is now.
        registered: what the run's ``registration.json`` holds; None if the run has none.

    Raises:
        UserError: that is no registration.
    """
    if registered is None:
        return Registration(state="none")
    entry = _entries(registered).get(claim.id)
    found = _hash(rule_of(claim))
    if entry is None:
        words = "this claim was added after the run had begun"
        return Registration(state="added", hash=found, words=words)
    edited = entry["hash"] != _hash(registered_rule(registered, claim.id))
    if entry["hash"] == found and not edited:
        return Registration(state="registered", hash=found, registered=found)
    before = None if edited else _judged(entry)
    verdict = "never judged" if before is None else f"was {before.verdict.value}"
    words = f"judged by a rule that was changed after the run: {verdict} under the rule registered with it"
    return Registration(
        state="changed",
        hash=found,
        registered=entry["hash"],
        words=_EDITED if edited else words,
        under_registered=before,
    )


def noted(registered: Mapping[str, Any], judged: Sequence[JudgedClaim]) -> dict[str, Any]:
    """The registration with the verdicts of those claims that were judged by their registered rule.

    Args:
        registered: what the run's ``registration.json`` holds.
        judged: the ledger.

    Raises:
        UserError: that is no registration.
    """
    entries = {name: dict(entry) for name, entry in _entries(registered).items()}
    for claim in judged:
        if claim.registration.state == "registered" and claim.id in entries:
            entries[claim.id]["judged"] = Found.of(claim).model_dump(mode="json")
    return {**registered, "claims": entries}


def deleted(judged: Sequence[JudgedClaim], before: Sequence[JudgedClaim]) -> list[JudgedClaim]:
    """Say of each claim of a run without registration that it had one, if its ledger of before tells of one.

    Args:
        judged: the ledger, whose claims have no registration.
        before: the ledger that the run had.
    """
    if not any(claim.registration.state != "none" or claim.registration.words for claim in before):
        return [*judged]
    lost = {claim.id: claim.registration.model_copy(update={"words": _DELETED}) for claim in judged}
    return [claim.model_copy(update={"registration": lost[claim.id]}) for claim in judged]


def _source(function: Callable[..., Any] | None) -> str | None:
    return None if function is None else normalised_source(function)


def _sources(functions: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    return {str(name): normalised_source(function) for name, function in functions.items()}


def _hash(rule: Mapping[str, Any]) -> str:
    text = json.dumps(rule, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _judged(entry: Mapping[str, Any]) -> Found | None:
    """The verdict under the registered rule, if there is one."""
    if entry.get("judged") is None:
        return None
    try:
        return Found.model_validate(entry["judged"])
    except ValidationError:
        raise UserError(_DAMAGED) from None


_EDITED = (
    "registration.json was edited after it was written: the registered rule and its hash do not belong together, so "
    "nothing is known of the rule that was registered"
)

_DELETED = (
    "registration.json was deleted after this run had been judged: nothing is known of the registered rule"
)

_DAMAGED = (
    "registration.json: expected the registered claims of a run, found another record; delete the file (the run then "
    "counts as one without registration)"
)


def _entries(registered: Mapping[str, Any]) -> Mapping[str, Any]:
    entries = registered.get("claims") if isinstance(registered, Mapping) else None
    if not isinstance(entries, Mapping) or not all(
        isinstance(entry, Mapping) and isinstance(entry.get("hash"), str) for entry in entries.values()
    ):
        raise UserError(_DAMAGED)
    return entries
