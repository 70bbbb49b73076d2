"""The table of every claim: its verdict in the largest committed run under each completion, and why."""

import re
from collections.abc import Iterator
from typing import Any

from table_makers.common import RESULTS, markdown, read_json
from table_makers.runs import HERE

Row = dict[str, Any]


def ledger() -> str:
    """By claim: verdict about the source, verdict at the run's own scale and n, under each completion.

    Of several runs under one completion the one with the largest n counts, whatever it says; of equal ones the last by
    name.
    """
    largest = dict[str, dict[str, tuple[str, Row]]]()
    for run, claim in committed():
        of_claim, under = largest.setdefault(claim["id"], {}), claim.get("completion") or "own recipe"
        if under not in of_claim or claim["n"] >= of_claim[under][1]["n"]:
            of_claim[under] = run, claim
    rows = []
    for name in sorted(largest, key=_place):
        of_claim = largest[name]
        verdicts = [f"{under}: {_verdict(claim)}" for under, (_, claim) in sorted(of_claim.items())]
        run, claim = max(of_claim.values(), key=lambda each: each[1]["n"])
        why = claim.get("words", "–").split("; ")[0]
        rows.append([name, claim["statement"], "; ".join(verdicts), f"{why} ([{run}](results/{run}))"])
    return markdown(["claim", "statement", "verdict under each recipe", "why, in the largest run"], rows)


def committed() -> Iterator[tuple[str, Row]]:
    """Every claim that a committed run has judged, with the name of the run."""
    for file in sorted(RESULTS.rglob("claims.json")):
        run = file.parent.relative_to(RESULTS).as_posix()
        yield from (
            (run, claim) for claim in read_json(f"{run}/claims.json") if claim["verdict"] != "not run"
        )


def _verdict(claim: Row) -> str:
    here = HERE.get((claim.get("here") or {}).get("verdict"))
    return f"**{claim['verdict']}** ({f'{here} here, ' if here else ''}n {claim['n']})"


def _place(name: str) -> tuple[str, int, str]:
    """By the letters of an id, then by its number."""
    letters, number = re.match(r"([A-Z]+)(\d+)", name).groups()  # type: ignore[union-attr]
    return letters, int(number), name
