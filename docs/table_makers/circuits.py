"""Tables of circuits that were read."""

import json
from collections import Counter
from itertools import groupby
from statistics import fmean
from typing import Any

from table_makers.common import RESULTS, markdown, read_json


def _rows_of_repeats() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(RESULTS / "permutation/repeat_rows.json")
    return found


def permutation_circuits() -> str:
    """What was read of the members of the permutation study, by configuration."""
    rows = []
    for name, group in groupby(_rows_of_repeats(), lambda each: each["configuration"]):
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


def repeat_rows() -> str:
    """Recall of every member that has it, where the row of the repeat attends by some terms of its scores alone."""
    members = [each for each in _rows_of_repeats() if each["recall"]]
    rows = [
        [
            f"{each['configuration']}, seed {each['seed']}",
            each["verdict"].partition(":")[0],
            *(f"{recall:.3f}" for recall in each["recall"].values()),
            f"{max(share for _, what, share in each['exchanges'] if what == 'x position'):.2f}",
        ]
        for each in members
    ]
    of = [f"{name}" for name in members[0]["recall"]]
    return markdown(["member", "verdict", *of, "follow the position"], rows)


def transfers(run: str) -> str:
    """What share of what a member learned is kept by the circuit of every member, run in it by rules."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence

    found = Evidence.read(RunFolder.open(RESULTS / run)).rows("transferred_share")
    table = found.pivot(index="member", columns="part", values="value")
    table = table[sorted(table.columns, key=lambda part: int(part.split()[-1]))]
    rows = [
        [f"member {member}", *(f"{share:.2f}" for share in shares)] for member, *shares in table.itertuples()
    ]
    return markdown(["run in the model of", *(f"circuit of {part}" for part in table.columns)], rows)


def reread(run: str) -> str:
    """How far the circuits of one member's readings are apart, beside those of the nearest other member."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence

    evidence, of = (
        Evidence.read(RunFolder.open(RESULTS / run)),
        ("its own readings", "the nearest other member"),
    )
    columns, heads = [], ["member"]
    for proof, by in (("", "both proofs"), ("rules_", "rules alone")):
        for distance, what in (("_path", "paths"), ("", "whole circuits")):
            columns.append(evidence.rows(f"{proof}reread{distance}_distance").set_index("member")["value"])
            others = evidence.rows(f"{proof}circuit{distance}_distance")
            columns.append(others.groupby("member")["value"].min())
            heads += [f"{each} ({what}, {by})" for each in of]
    rows = [[str(member), *(f"{each[member]:.2f}" for each in columns)] for member in columns[1].index]
    return markdown(heads, rows)


def rereadings(study: str, file: str = "rereadings") -> str:
    """Distances between readings of one model, and to the nearest other one, by configuration and proof."""

    def spread(values: Any) -> str:
        known = [value for value in values if value is not None]
        return f"{fmean(known):.2f} ({min(known):.2f} to {max(known):.2f})" if known else "–"

    rows = []
    members = [each for each in read_json(RESULTS / f"{file}.json") if each["study"] == study]
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


def two_proofs(run: str) -> str:
    """How many heads the circuits of a run have by each proof, and what the heads that one of them counts alone do."""
    from hopscope.circuits.config import LEAST_EFFECT
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence

    evidence = Evidence.read(RunFolder.open(RESULTS / run))
    counts = [evidence.last(name) for name in ("learned_all", "rules_reading_heads", "heads")]
    columns = ["layer", "head", "part", "loss_without_rules", "loss_without_recomputed", "to_one_token"]
    rows = []
    for member, (learned, by_rules, both) in enumerate(zip(*counts, strict=True)):
        if learned != 1:
            continue
        paths = {name: evidence.rows(name, measure="circuit", member=member) for name in columns[3:]}
        table = _wide(paths)
        losses = {
            mode: float(
                evidence.rows("circuit_loss", measure="reading", member=member, part=mode)["value"].iloc[0]
            )
            for mode in ("rules", "recomputed")
        }
        fixed = table["loss_without_rules"] - losses["rules"]
        follows = table["loss_without_recomputed"] - losses["recomputed"]
        unseen = fixed < LEAST_EFFECT
        heads = {*zip(table["layer"], table["head"], strict=True)}
        seen = {*zip(table["layer"][~unseen], table["head"][~unseen], strict=True)}
        rows.append(
            [
                str(member),
                f"{by_rules:.0f}",
                f"{both:.0f}",
                f"{unseen.sum()} of {len(table)}",
                f"{int((unseen & (table['to_one_token'] == 1)).sum())}",
                _range(follows[unseen]),
                f"{len(heads - seen)}",
            ]
        )
    return markdown(
        [
            "member",
            "heads that read one token, rules alone",
            "heads, also recomputed",
            f"paths that cost under {LEAST_EFFECT} where patterns are fixed",
            "of these, reads of one token",
            "what these paths cost where later attention follows",
            "heads with no other path",
        ],
        rows,
    )


def _wide(paths: dict[str, Any]) -> Any:
    """Rows of several metrics of the same paths, as one table with a column for each."""
    import pandas as pd

    of = ["layer", "head", "part"]
    columns = [rows.set_index(of)["value"].rename(name) for name, rows in paths.items()]
    return pd.concat(columns, axis=1).dropna().reset_index()


def _range(values: Any) -> str:
    return f"{values.median():.2f} ({values.min():.2f} to {values.max():.2f})" if len(values) else "–"


def old_beside_new(file: str = "bench/second-house-circuits") -> str:
    """Circuits of the same members by two versions of the reader."""
    groups: dict[str, list[Any]] = {}
    for line in (RESULTS / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        label = each["member"].rpartition(", seed")[0] or each["member"].partition("-d")[0]
        groups.setdefault(label.removesuffix(": all on"), []).append(each)
    rows = []
    for label, of in groups.items():
        verdicts = [[verdict.partition(":")[0] for verdict in each["verdict"]] for each in of]
        seconds = zip(*(each["seconds"] for each in of), strict=True)
        paths = zip(*(each["paths"] for each in of), strict=True)
        rows.append(
            [
                label,
                str(len(of)),
                f"{sum(old == new for old, new in verdicts)} of {len(of)}",
                f"{sum(new == 'read' for _, new in verdicts)}",
                f"{sum(not each['only_old'] and not each['only_new'] for each in of)} of {len(of)}",
                f"{sum(each['same_reads'] for each in of)} of {len(of)}",
                " / ".join(f"{fmean(each):.1f}" for each in paths),
                " / ".join(f"{fmean(each):.1f} ({max(each):.1f})" for each in seconds),
            ]
        )
    columns = ["members", "number", "same verdict", "read", "same paths", "same reads", "paths, old / new"]
    return markdown([*columns, "seconds of a core, old / new (most)"], rows)
