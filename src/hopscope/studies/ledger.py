"""What a story says of the claims."""

from collections.abc import Sequence
from typing import Any

from hopscope.claims import JudgedClaim


def told(ledger: Sequence[JudgedClaim]) -> dict[str, dict[str, Any]]:
    """What a story says of each claim: the words, and the values one by one."""
    return {claim.id: {"words": claim.words or "", "per_seed": _by_part(claim)} for claim in ledger}


def _by_part(claim: JudgedClaim) -> dict[str, list[Any]]:
    """The samples of each part; those of a claim without parts are called `value`."""
    if isinstance(claim.samples, dict):
        return {part: list(values) for part, values in claim.samples.items() if values}
    return {"value": list(claim.samples)} if claim.samples else {}
