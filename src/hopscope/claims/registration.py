"""Rules of claims, written down before training: a rule that was changed afterwards is reported."""

from collections.abc import Iterable, Mapping

from hopscope.claims.claim import Claim
from hopscope.claims.source import hash_of, text_of
from hopscope.claims.verdict import Judgement, Registration, Verdict


def registered(claims: Iterable[Claim]) -> dict[str, str]:
    """Id of a claim → hash of everything that decides it: its record, and the text of its functions with their helpers.

    Statement, source, trust and summary are words about a claim, and may change.
    """
    found = {}
    for claim in claims:
        record = {**dict(claim), "structural": bool(claim.structural)}
        for words in ("statement", "source", "trust", "summary"):
            del record[words]
        found[claim.id] = hash_of(text_of(record))
    return found


def registration_of(claim: Claim, rules: Mapping[str, str] | None, before: Iterable[Verdict]) -> Registration:
    """How a claim stands to the rules that were registered; `before` is the ledger that the run had."""
    if rules is None:
        return Registration()
    found, known, under = registered([claim])[claim.id], rules.get(claim.id), None
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
