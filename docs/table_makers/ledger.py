"""The table of every claim: its verdict in the run that decides most under each completion, and why."""

import re
from collections.abc import Iterable
from textwrap import shorten
from typing import Any

from hopscope.claims.claim import COMPLETIONS
from hopscope.claims.judge import ENOUGH, counts, joined
from hopscope.study.load import BUILT_IN
from table_makers.common import RESULTS, markdown, read_json
from table_makers.runs import HERE, judged, of_source

Row = dict[str, Any]


def ledger() -> str:
    """By claim: verdict about the source by today's rules, verdict at the run's own scale and n, by completion.

    Runs under several completions have a verdict together as well.

    Of several runs under one completion the one that `counts` most stands, and of equal ones the last by name (see
    `_standing`).  What the others say stands beside it where it is something else.
    """
    found = dict[str, dict[str, list[tuple[str, Row]]]]()
    runs = sorted(file.parent.relative_to(RESULTS).as_posix() for file in RESULTS.rglob("claims.json"))
    together = joined(judged(run) for run in runs if _is_built_in(run))
    for run in runs:
        for claim in (each.model_dump(mode="json") for each in judged(run)):
            under = claim.get("completion") or "own recipe"
            found.setdefault(claim["id"], {}).setdefault(under, []).append((run, claim))
    rows = []
    for name in sorted(found, key=_place):
        told = {
            under: sorted(several, key=lambda each: _weight(each[1]))
            for under, several in found[name].items()
        }
        of_claim = {under: _standing(several) for under, several in told.items()}
        ran = {under: each for under, each in of_claim.items() if each[1]["verdict"] != "not run"} or of_claim
        verdicts = [
            f"{under}: {_verdict(claim)}{_others(claim, told[under])}"
            for under, (_, claim) in sorted(ran.items())
        ]
        verdicts += [f"together: **{together[name].verdict}**"] if name in together else []
        # Of equal ones that of a registered completion.
        _, (run, claim) = max(
            ran.items(), key=lambda each: (*_weight(each[1][1])[2:], each[0] in COMPLETIONS)
        )
        why = claim.get("words", "–").split("; ")[0]
        why += " …)" * (why.count("(") > why.count(")"))
        why = "; ".join(filter(None, [why, _lacking(claim, ran)]))
        rows.append([name, claim["statement"], "; ".join(verdicts), f"{why} ([{run}](results/{run}))"])
    return markdown(["claim", "statement", "verdict under each recipe", "why"], rows)


def _standing(told: list[tuple[str, Row]]) -> tuple[str, Row]:
    """The last of several runs; of a general claim one that refutes it, of one of existence one that reproduces it.

    Runs of an example differ in fields, which are readings: all refute its other claims, or none.
    """
    if settling := [each for each in told if each[1]["verdict"] == ENOUGH.get(each[1].get("kind"))]:
        return settling[-1]
    run, claim = told[-1]
    verdicts = {each["verdict"] for _, each in told} - {"not run"}
    if _is_built_in(run) or "refuted" not in verdicts or len(verdicts) == 1:
        return run, claim
    return run, {**claim, "verdict": "inconclusive", "lacks": ["its runs disagree"]}


def _lacking(claim: Row, ran: Iterable[str]) -> str:
    """The first that an inconclusive verdict lacks; of completions those that no run has."""
    first = next(iter(claim.get("lacks", ())), "")
    before, told, names = first.rpartition("not run under ")
    if told:
        left = [name for name in names.split(", ") if name not in ran]
        return before + told + ", ".join(left) if left else before.rstrip("; ")
    return shorten(first, 160, placeholder=" …")


def _is_built_in(run: str) -> bool:
    return read_json(f"{run}/config.json")["study"] in BUILT_IN


def _weight(claim: Row) -> tuple[Any, ...]:
    verdict, lacks = claim["verdict"], claim.get("lacks", ())
    return verdict != "not run", *counts(len(claim["readings"]), verdict, lacks, claim["n"])


def _others(chosen: Row, told: list[tuple[str, Row]]) -> str:
    """Other verdicts of runs under one completion."""
    others = {claim["verdict"] for _, claim in told} - {chosen["verdict"], "not run"}
    return f", another run {' and '.join(sorted(others))}" if others else ""


def _verdict(claim: Row) -> str:
    if claim["verdict"] == "not run":
        return "not run"
    here = HERE.get((claim.get("here") or {}).get("verdict"))
    return f"**{of_source(claim)}** ({f'{here} here, ' if here else ''}n {claim['n']})"


def _place(name: str) -> tuple[str, int, str]:
    """By the letters of an id, then by its number."""
    letters, number = re.match(r"([A-Z]+)(\d+)", name).groups()  # type: ignore[union-attr]
    return letters, int(number), name
