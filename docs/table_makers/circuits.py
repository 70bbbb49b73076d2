"""Tables of circuits that were read, and of finders of circuits."""

from collections import Counter
from itertools import groupby
from statistics import fmean
from typing import Any

from table_makers.common import markdown, read_json


def permutation_circuits() -> str:
    """What was read of the members of the permutation study, by configuration."""
    found, rows = read_json("permutation/repeat_rows.json"), []
    for name, group in groupby(found, lambda each: each["configuration"]):
        members = list(group)
        read = [each["verdict"] == "read" for each in members]
        rules = Counter(
            f"{rule} {target or ''}".strip()
            for each in members
            for query, _, rule, target in each["paths"]
            if query in ("x 5", "x 5 repeat")
        )
        loss = {part: [each["loss"][part] for each in members] for part in members[0]["loss"]}
        rows.append(
            [
                name,
                ", ".join(members[0]["learned"]),
                f"{sum(read)} of {len(read)}",
                "; ".join(f"{rule} ({count})" for rule, count in rules.most_common()),
                *(
                    f"{fmean(loss[part]):.3f}"
                    for part in ("full", "rules", "recomputed", "complement", "random_circuits")
                ),
            ]
        )
    columns = ["configuration", "learned", "members read", "rules of the rows x 5 (how often)",
               "model", "rules", "recomputed", "complement", "random"]  # fmt: skip
    return markdown(columns, rows)


def rereadings(study: str) -> str:
    """Distances between readings of one model, and to the nearest other one, by configuration and proof."""

    def spread(values: Any) -> str:
        known = [value for value in values if value is not None]
        return f"{fmean(known):.2f} ({min(known):.2f} to {max(known):.2f})" if known else "–"

    rows = []
    members = [each for each in read_json("rereadings.json") if each["study"] == study]
    for (name, proof), group in groupby(members, lambda each: (each["configuration"], each["proof"])):
        of = list(group)
        verdicts = [verdict == "read" for each in of for verdict in each["verdicts"]]
        rows.append(
            [
                name,
                {"both": "both proofs", "rules": "rules alone"}[proof],
                str(len(of)),
                f"{sum(verdicts)} of {len(verdicts)}",
                *(
                    spread(each[kind][what] for each in of)
                    for kind in ("by_paths", "whole")
                    for what in ("own", "nearest_other")
                ),
            ]
        )
    columns = ["model", "proof", "models", "readings with every row explained", "its own readings (paths)",
               "the nearest other model (paths)", "its own readings (whole circuits)",
               "the nearest other model (whole circuits)"]  # fmt: skip
    return markdown(columns, rows)
