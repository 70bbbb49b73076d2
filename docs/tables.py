"""Tables of the documentation, made from committed results or counted anew: `python docs/tables.py` rewrites them.

A page marks where a table goes with `<!-- table: NAME -->` and `<!-- end -->`; a test fails if a page says anything
else than its results do.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby, permutations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
BENCH = RESULTS / "bench"

_PLACE = re.compile(
    r"(<!-- table: (?P<name>[a-z-]+)(?P<what>( [\w/.-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL
)
_NUMBER = re.compile(r"\{(n\d+)\}")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _number(value: float) -> str:
    return f"{value:.4f}"


def _estimates(value: Any, interval: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_estimates(value[name], interval[name])}" for name in value)
    shown = _number(value)
    return f"{shown} [{_number(interval[0])}, {_number(interval[1])}]" if interval else shown


def verdicts(run: str) -> str:
    """Every claim of a run that was run."""
    # Runs of before a claim was one record have its words in the story.
    told = _json(RESULTS / run / "story.json")["claims"]
    rows = [
        [
            claim["id"],
            claim["statement"],
            _estimates(claim["value"], claim["interval"]),
            str(claim["n"]),
            claim["verdict"],
            claim["words"] if "words" in claim else told[claim["id"]]["words"],
        ]
        for claim in _json(RESULTS / run / "claims.json")
        if claim["verdict"] != "not run"
    ]
    return _markdown(["claim", "statement", "value [95 % interval]", "n", "verdict", "in words"], rows)


def judged_anew(run: str) -> str:
    """Every claim of a run as it was judged then, and by the rules of now from the same evidence table."""
    from hopscope.claims import judge
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.record import program_of

    folder = RunFolder.open(RESULTS / run)
    program, evidence = program_of(folder), Evidence.read(folder)
    then = {claim["id"]: claim["verdict"] for claim in _json(RESULTS / run / "claims.json")}
    rows = []
    for claim in program.claims(program.recorded(folder)):
        now = judge(claim, evidence).to_json()
        here = "not run" if now["here"] is None else now["here"]["verdict"]
        values = _estimates(now["value"], now["interval"])
        rows.append(
            [
                now["id"],
                now["statement"],
                values,
                str(now["n"]),
                then.get(now["id"], "–"),
                now["verdict"],
                here,
            ]
        )
    head = [
        "claim",
        "statement",
        "value [95 % interval]",
        "n",
        "verdict then",
        "verdict now",
        "in this run alone",
    ]
    return _markdown(head, rows)


def story(run: str, section: str, number: str) -> str:
    """A table of a run's page: its numbers come from the run's files, which the page names one by one."""
    told = _json(RESULTS / run / "story.json")
    (found,) = [each for each in told["sections"] if each["id"] == section]
    table = [block for block in found["blocks"] if block["kind"] == "table"][int(number)]

    def filled_in(words: str) -> str:
        return _NUMBER.sub(lambda place: str(told["numbers"][place[1]]["text"]), words)

    columns = [filled_in(cell) for cell in table["columns"]]
    rows = _markdown(columns, [[filled_in(cell) for cell in row] for row in table["rows"]])
    return f"{rows}\n*{filled_in(table['caption'])}*\n" if table["caption"] else rows


def speed(file: str = "cpu", measure: str = "samples") -> str:
    """A committed speed comparison, in members' samples or steps per second."""
    result = _json(BENCH / f"{file}.json")
    rows = []
    for each in result["contestants"]:
        spread, ratio = each[f"{measure}_per_second"], result["ratios"].get(each["name"])
        reported = each["reported"] or {}
        engine = {"engine": reported["engine"]} if "engine" in reported else {}
        settings = " ".join(f"{name} {value}" for name, value in {**each["settings"], **engine}.items())
        digits = 1 if measure == "steps" else 0
        median, least, most = (
            f"{spread[name]:,.{digits}f}" if spread else "" for name in ("median", "min", "max")
        )
        speeds = f"{median} ({least} to {most})" if spread else each["status"]
        against = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""
        peak = f"{each['peak_memory_mb']:,.0f}" if each["peak_memory_mb"] else "–"
        rows.append([each["name"], settings, speeds, against, *_rate(each), peak])
    rates = ["GFLOP/s", "of the machine's peak"] if any(map(_rate, result["contestants"])) else []
    columns = ["contestant", "tuned settings", f"member-{measure}/s", "ours ÷ this", *rates, "peak MiB"]
    return _markdown(columns, rows)


def _rate(contestant: dict[str, Any]) -> list[str]:
    """Arithmetic per second and its share of the machine's, where they were measured."""
    rate, share = contestant.get("gflops_per_second"), contestant.get("share_of_peak")
    if not rate or not share:
        return []
    return [
        f"{rate['median']:.0f} ({rate['min']:.0f} to {rate['max']:.0f})",
        f"{share['median']:.0%} ({share['min']:.0%} to {share['max']:.0%})",
    ]


_AXES = {"members": "members", "values": "V", "steps": "D", "layers": "layers", "width": "width"}


def growth(file: str = "growth") -> str:
    """What training costs as the work grows: a table for each axis."""
    result = _json(BENCH / f"{file}.json")
    tables = []
    for axis, heading in _AXES.items():
        rows = [row for row in result["rows"] if row["axis"] == axis]
        if rows:
            others = [f"{_AXES.get(n, n)} {v}" for n, v in rows[0]["settings"].items() if n != axis]
            columns = [heading, "engine", "member-samples/s", "µs per member-sample", "peak MiB"]
            caption = f"By {heading}, with {', '.join(others)}, batch {result['batch']}, one thread:"
            tables.append(f"{caption}\n\n{_markdown(columns, [_cost(row) for row in rows])}")
    return "\n".join(tables)


def _cost(row: dict[str, Any]) -> list[str]:
    speed, micros, peak = row["samples_per_second"], row["microseconds_per_sample"], row["peak_memory_mb"]
    if speed is None:
        return [str(row["value"]), "–", row["status"], "–", "–"]
    return [
        str(row["value"]),
        row["engine"],
        f"{speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f})",
        f"{micros['median']:.2f} ({micros['min']:.2f} to {micros['max']:.2f})",
        f"{peak:,.0f}",
    ]


def reading(file: str = "reading") -> str:
    """What it costs to read the circuit of a deep model."""
    result = _json(BENCH / f"{file}.json")

    def seconds(spread: dict[str, Any]) -> str:
        return f"{spread['median']:.1f} ({spread['min']:.1f} to {spread['max']:.1f})"

    searches = [("search, lower layers kept", "kept"), ("search, every pass from the bottom", "afresh")]
    passes, layers = result["search_passes"], result["search_layers"]
    rows = [
        ["whole reading", seconds(result["seconds"]), seconds(result["cpu_seconds"]), "", ""],
        *(
            [
                words,
                seconds(result["search_seconds"][way]),
                seconds(result["search_cpu_seconds"][way]),
                f"{passes[way]:,}",
                f"{layers[way]:,}",
            ]
            for words, way in searches
        ),
    ]
    gain = result["search_afresh_over_kept"]
    ratio = f"{gain['median']:.2f} ({gain['min']:.2f} to {gain['max']:.2f})"
    table = _markdown(["what", "seconds", "of a core", "passes", "layers run"], rows)
    return f"{table}\nFrom the bottom ÷ kept, within a round: {ratio}.\n"


def _rows_of_repeats() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _json(RESULTS / "permutation/repeat_rows.json")
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
    return _markdown(columns, rows)


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
    return _markdown(["member", "verdict", *of, "follow the position"], rows)


def external_plants(file: str = "external_plants") -> str:
    """What the reader says of models that other code has set."""
    rows = []
    for each in _json(RESULTS / f"{file}.json"):
        cells = [_number(each[name]) if not each["outside"] else "–" for name in ("precision", "recall")]
        said = each["verdict"].partition(":")[0]
        right = "yes" if each["right"] else "no"
        truth = "no rule" if each["outside"] else "rules"
        size = f"{each['layers']} × {each['heads']}"
        rows.append([each["plant"], each["task"], size, truth, said, right, *cells, f"{each['seconds']:.0f}"])
    columns = ["plant", "task", "layers × heads", "truth", "verdict", "right"]
    return _markdown([*columns, "precision", "recall", "seconds"], rows)


_FINDER_COLUMNS = {
    "precision": "precision", "recall": "recall", "auroc": "AUROC", "head_precision": "precision of heads",
    "head_recall": "recall of heads", "faithfulness": "faithfulness", "cpr": "CPR ↑", "cmd": "CMD ↓",
    "seconds": "CPU s",
}  # fmt: skip


def finders(file: str = "zoo/scores") -> str:
    """Every finder of circuits on every group of planted models: means with their intervals."""
    record, rows = _json(RESULTS / f"{file}.json"), []
    for group, found in record["summary"].items():
        for name, measures in found.items():
            cells = [_mean(measures.get(measure)) for measure in _FINDER_COLUMNS]
            rows.append([group, name, str(measures["faithfulness"]["n"]), *cells])
    return _markdown(["models", "finder", "n", *_FINDER_COLUMNS.values()], rows)


def _mean(measure: dict[str, Any] | None) -> str:
    if measure is None:
        return "–"
    shown = f"{measure['mean']:.2f}"
    interval = measure["interval"]
    return f"{shown} [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else shown


def finder_truth(file: str = "zoo/scores") -> str:
    """How far true edges are from others, over all circuits: of models set by hand, and of trained ones."""
    models, rows = _json(RESULTS / f"{file}.json")["truth"], []
    for words, trained in (("set by hand", False), ("trained under clamps", True)):
        circuits = [
            circuit
            for model in models.values()
            for circuit in model["circuits"]
            if model["title"].startswith("trained") == trained
        ]
        least = min(each["least_true"] for each in circuits)
        most = max(each["most_false"] for each in circuits if each["most_false"] is not None)
        faithful = min(each["faithfulness"] for each in circuits)
        rows.append([words, str(len(circuits)), f"{least:.4f}", f"{most:.4f}", f"{faithful:.3f}"])
    columns = [
        "models",
        "circuits",
        "smallest rise of a true edge",
        "largest rise of another",
        "least faithful circuit",
    ]
    return _markdown(columns, rows)


def members(folder: str = "zoo/members") -> str:
    """Every configuration of the collection of trained members."""
    from hopscope.collection.card import span
    from hopscope.collection.index import by_configuration, read_index

    rows = []
    for row, of in by_configuration(read_index(RESULTS / folder)):
        counts = [str(of[name]) for name in ("members", "learned", "partly", "read", "holds")]
        spans = [span(of["heads"], "%d"), span(of["loss"], "%.3f"), f"{of['parameters']:,}"]
        rows.append([row.study, row.configuration, *counts, *spans])
    columns = [
        "study",
        "configuration",
        "members",
        "learned all",
        "a part",
        "circuit read",
        "holds in float16",
    ]
    return _markdown([*columns, "heads of a circuit", "held-out loss", "weights"], rows)


def members_rounded(folder: str = "zoo/members") -> str:
    """What rounding to float16 changes, over all members of the collection."""
    from statistics import median

    from hopscope.collection.index import read_index

    rows = read_index(RESULTS / folder)
    changes, read = [row.change for row in rows], [row for row in rows if row.was_read]
    cells = [
        str(len(rows)), f"{median(changes):.1e}", f"{max(changes):.1e}", str(len(read)),
        str(sum(bool(row.holds_in_float16) for row in read)),
    ]  # fmt: skip
    columns = ["members", "median change of the loss", "largest", "circuits read", "hold in float16"]
    return _markdown(columns, [cells])


def controls() -> str:
    """What must not be there, for every claim of the built-in studies."""
    from hopscope.claims import Criterion
    from hopscope.studies import find_study
    from hopscope.studies.llm.config import LanguageModelConfig
    from hopscope.studies.loading import BUILT_IN
    from hopscope.studies.tiny_lm.config import TinyLmConfig

    chosen: dict[str, Any] = {
        "llm": LanguageModelConfig(model=("a/b",), formulations=("kingdoms",)),
        "tiny-lm": TinyLmConfig(control=True),
    }
    rows: dict[str, list[str]] = {}
    for name in BUILT_IN:
        program = find_study(name)
        claims = program.claims(chosen[name]) if name in chosen else program.study.all_claims()
        for claim in claims:
            must_not = claim.must_not
            several = {} if must_not is None or isinstance(must_not, Criterion) else must_not
            if isinstance(must_not, Criterion):
                words = must_not.words()
            elif len({each.words() for each in several.values()}) == 1:
                words = next(iter(several.values())).words()
            else:
                words = "; ".join(f"{part} {each.words()}" for part, each in several.items())
            # R12 is in two studies.
            words = re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.4f}", words)
            rows.setdefault(claim.id, [claim.id, ", ".join(claim.controls or {}) or "–", words or "–"])
    return _markdown(["claim", "control", "which must not be"], [*rows.values()])


def memoriser() -> str:
    """How far the model that was set by hand knows the training mappings of four values, by split."""
    from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
    from hopscope.studies.permutation.probes.posterior import measure_posteriors, training_mappings
    from hopscope.tasks.permutation import PermutationTask
    from hopscope.zoo import memoriser as by_hand

    rows = []
    for split in range(10):
        config = PermutationStudyConfig(split_seed=split)
        task = PermutationTask(config.task(Configuration.parse("d32/2 plain V=4")))
        known = {tuple(mapping) for mapping in training_mappings(task).tolist()}
        held_out = [mapping for mapping in permutations(range(1, 5)) if mapping not in known]
        found = measure_posteriors(by_hand.memoriser(held_out), task, config.evaluation_limit)
        floors = (f"{found[name]:.4f}" for name in ("uniform_floor", "training_floor"))
        loss, share = (found[name][0] for name in ("train_loss_exhaustive", "memorised_share"))
        rows.append([str(split), *floors, f"{loss:.4f}", f"{share:.3f}"])
    head = [
        "split",
        "loss of the uniform observer",
        "of the one that knows",
        "of the model",
        "share of the way",
    ]
    return _markdown(head, rows)


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
    return _markdown(["run in the model of", *(f"circuit of {part}" for part in table.columns)], rows)


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
    return _markdown(heads, rows)


def rereadings(study: str, file: str = "rereadings") -> str:
    """Distances between readings of one model, and to the nearest other one, by configuration and proof."""

    def spread(values: Any) -> str:
        known = [value for value in values if value is not None]
        return f"{fmean(known):.2f} ({min(known):.2f} to {max(known):.2f})" if known else "–"

    rows = []
    members = [each for each in _json(RESULTS / f"{file}.json") if each["study"] == study]
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
    return _markdown(columns, rows)


def bounds(run: str) -> str:
    """What the paths of each member's circuit cost, beside the same rows in heads that the circuit does not name."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence

    evidence = Evidence.read(RunFolder.open(RESULTS / run))
    full = evidence.last("circuit_loss", part="full")
    places = ["member", "layer", "head", "part"]
    names = {
        "own": "loss_if_ablated",
        "middle": "loss_if_others_ablated",
        "most": "loss_if_others_ablated_high",
    }
    frames = [evidence.rows(metric).set_index(places)["value"].rename(name) for name, metric in names.items()]
    table = frames[0].to_frame().join(frames[1:])
    rows = []
    for member, paths in table.groupby("member"):
        rise = paths.sub(full[member])
        rows.append(
            [
                str(member),
                f"{len(paths)}",
                f"{(paths['own'] > paths['most']).sum()}",
                *(
                    f"{rise[name].median():.3f} ({rise[name].min():.3f} to {rise[name].max():.3f})"
                    for name in names
                ),
            ]
        )
    return _markdown(
        [
            "member",
            "paths",
            "cost more than in any head outside",
            "rise of the loss without a path",
            "the same rows in a head outside",
            "in the costliest head outside",
        ],
        rows,
    )


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
    return _markdown(
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


def theory() -> str:
    """Layers that a chain of D steps needs: the published bound and the counted minima."""
    from hopscope.theory.information_flow import (
        bound_layers,
        exact_layers,
        exact_layers_single_target,
        theorem_bound,
    )

    columns = [
        "D",
        "theorem 1: log₃(2D)",
        "layers it allows",
        "exact, no mask",
        "exact, causal, deepest-first",
        "exact, causal, shallowest-first",
        "exact, one target, any mask and order",
    ]
    rows = [
        [
            steps,
            f"{theorem_bound(steps):.3f}",
            bound_layers(steps),
            exact_layers(steps, "none", "deepest-first"),
            exact_layers(steps, "causal", "deepest-first"),
            exact_layers(steps, "causal", "shallowest-first"),
            exact_layers_single_target(steps),
        ]
        for steps in range(1, 17)
    ]
    return _markdown(columns, [[str(cell) for cell in row] for row in rows])


def theory_orders() -> str:
    """The layers of every order of the pairs, counted one by one."""
    from hopscope.theory.information_flow import exact_layers

    rows = []
    for steps in range(1, 9):
        needed = Counter(exact_layers(steps, "causal", order) for order in permutations(range(1, steps + 1)))
        orders = permutations(range(1, steps + 1))
        first = next(order for order in orders if exact_layers(steps, "causal", order) == min(needed))
        counts = "; ".join(f"{layers} layers: {count}" for layers, count in sorted(needed.items()))
        without = exact_layers(steps, "none", "deepest-first")
        rows.append([str(steps), str(without), counts, ",".join(map(str, first))])
    return _markdown(["D", "no mask", "orders that need so many, causal", "one that needs fewest"], rows)


def witnesses() -> str:
    """Losses of the hand-built transformers, which are made and measured on the spot."""
    columns = ["D", "mask", "layers", "heads", "width", "MSE", "worst"]
    return _markdown(columns, [_witness(steps, mask) for mask in ("causal", "none") for steps in range(1, 9)])


def _witness(steps: int, mask: Literal["causal", "none"]) -> list[str]:
    # Other tables do without torch.
    import torch

    from hopscope.tasks.config import RetrievalConfig
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.zoo.witnesses import witness

    task = RetrievalTask(RetrievalConfig(steps=steps, position="pair"))
    model, batch = witness(task.config, mask=mask), task.evaluation(250, annotate=False)
    with torch.no_grad():
        found = [float(loss) for loss in task.losses(model(batch.inputs), batch).values()]
    shape = model.config
    sizes = [str(size) for size in (shape.layers, shape.heads, shape.width)]
    return [str(steps), mask, *sizes, *(_small(loss) for loss in (found[0], max(found)))]


def heads(file: str) -> str:
    """What ablating a model's heads costs, as `hopscope heads --json` printed it."""
    rows = [
        [
            str(row["depth"]),
            ", ".join(f"{layer}.{head}" for layer, head in row["heads"]),
            f"{row['accuracy']:.0%} (guess {row['guess']:.0%})",
            *(_points(row["cost"][which], row["cost"][f"{which}_interval"]) for which in ("top", "random")),
        ]
        for row in _json(RESULTS / "heads" / f"{file}.json")["ablation"]
    ]
    return _markdown(["D", "layer.head", "accuracy with all", "cost of these", "of random ones"], rows)


def pretrained_heads(*files: str) -> str:
    """What ablating the heads of several models costs, beside as many others and all heads of their layers."""
    rows = []
    for file in files:
        found = _json(RESULTS / "heads" / f"{file}.json")
        for row in found["ablation"]:
            costs = (
                "–"
                if row["cost"][f"{which}_interval"] is None
                else _points(row["cost"][which], row["cost"][f"{which}_interval"])
                for which in ("top", "random", "layers")
            )
            rows.append(
                [
                    found["model"],
                    _way(found),
                    ", ".join(f"{layer}.{head}" for layer, head in row["heads"]),
                    f"{row['accuracy']:.0%} (guess {row['guess']:.0%})",
                    *costs,
                    found["claims"][0]["verdict"],
                ]
            )
    columns = ["model", "questions", "layer.head", "accuracy with all", "cost of these", "of random ones",
               "of all heads of their layers", "S2"]  # fmt: skip
    return _markdown(columns, rows)


def _way(found: dict[str, Any]) -> str:
    """How a question is put, in a few words."""
    words = [f"{found['formulation'].replace('_', ' ')} D = {found['depth']}"]
    words += ["completion"] if found.get("complete") else ["chat"] if found.get("chat") else []
    words += [f"told {found['repeats']} times"] if found.get("repeats", 1) > 1 else []
    words += [f"{found['few_shot']} examples"] if found.get("few_shot") else []
    return ", ".join(words)


def head_targets(*files: str) -> str:
    """Of each target the head that pays it the most attention, of several models side by side."""
    models = [_json(RESULTS / "heads" / f"{file}.json") for file in files]
    names = list(dict.fromkeys(name for model in models for name in model["targets"]))
    rows = [
        [name.replace(":", " → "), *(_best_head(model["targets"].get(name)) for model in models)]
        for name in names
    ]
    return _markdown(["row → target", *(Path(model["model"]).name for model in models)], rows)


def _best_head(target: dict[str, Any] | None) -> str:
    if target is None:
        return "–"
    heads = [
        (value, layer, head) for layer, row in enumerate(target["scores"]) for head, value in enumerate(row)
    ]
    value, layer, head = max(heads, key=lambda each: (each[0], -each[1], -each[2]))
    ends = target["interval"] and target["interval"][layer][head]
    within = f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else ""
    return f"{layer}.{head}: {value:.2f}{within}, uniform {target['floor']:.2f}"


def ways_to_ask(*files: str) -> str:
    """How often models are right in each of the ways to ask of which `--formulation best` takes one."""
    models = [_json(RESULTS / "heads" / f"{file}.json") for file in files]
    told: dict[str, dict[str, str]] = {}
    for model in models:
        for way in model["settings"]:
            low, high = way["interval"]
            told.setdefault(_way(way), {})[model["model"]] = f"{way['accuracy']:.2f} [{low:.2f}, {high:.2f}]"
    names = [model["model"] for model in models]
    rows = [[way, *(found.get(name, "–") for name in names)] for way, found in told.items()]
    return _markdown(["way to ask", *names], rows)


def language_models(*runs: str) -> str:
    """What language models answered or chose, by kind of question, and which symbol came first."""
    rows = []
    for run in runs:
        config, cells = _answered(run)
        for cell in cells:
            right = cell.accuracy
            said = sorted(cell.said.items(), key=lambda each: -each[1])
            share = (
                "–"
                if right.value is None
                else f"{right.value:.2f} [{right.low:.2f}, {right.high:.2f}] of {right.of}"
            )
            rows.append(
                [
                    cell.model,
                    "forced choice" if config.measure == "choice" else f"answers, {_sampling(config)}",
                    _kind(cell),
                    share,
                    f"{cell.guess:.2f}",
                    "; ".join(f"{symbol}: {count}" for symbol, count in said),
                ]
            )
    columns = ["model", "measure", "questions", "accuracy [95 % interval]", "by guessing", "likeliest symbol"]
    return _markdown(columns, rows)


def language_answers(*runs: str) -> str:
    """How models that were asked for answers failed."""
    rows = []
    for run in runs:
        config, cells = _answered(run)
        for cell in cells:
            rejected = sorted(cell.rejected.items(), key=lambda each: -each[1])
            rows.append(
                [
                    _sampling(config),
                    _kind(cell),
                    f"{cell.acceptance.count} of {cell.questions}",
                    f"{cell.answered.count} of {cell.questions}",
                    f"{cell.accuracy.count} of {cell.accuracy.of}",
                    f"{cell.attempts:.1f}",
                    "; ".join(f"{kind}: {count}" for kind, count in rejected),
                ]
            )
    columns = ["sampling", "questions", "acceptable at once", "in the end", "of these right", "answers asked for",
               "rejected answers"]  # fmt: skip
    return _markdown(columns, rows)


def language_changes(*runs: str) -> str:
    """What another way to put the same questions changes: differences over questions, in points, with a bootstrap.

    Runs whose questions are put as they are come first: the others are compared with them.
    """
    from hopscope.claims.intervals import bootstrap_mean

    before: dict[tuple[str, str], list[float]] = {}
    rows = []
    for run in runs:
        (config, cells), now = _answered(run), _correct(run)
        way = [f"told {config.repeats} times"] if config.repeats > 1 else []
        way += [f"{config.few_shot} solved examples"] if config.few_shot else []
        way += [f"{config.filler} dots"] if config.filler else []
        if not way:
            before |= now
            continue
        for cell in cells:
            key, right = (cell.model, _kind(cell)), cell.accuracy
            change = [100 * (b - a) for a, b in zip(before[key], now[key], strict=True)]
            low, high = bootstrap_mean(change) or (0.0, 0.0)
            rows.append(
                [
                    cell.model,
                    ", ".join(way),
                    _kind(cell),
                    f"{fmean(before[key]):.2f}",
                    f"{right.value:.2f} [{right.low:.2f}, {right.high:.2f}]",
                    f"{fmean(change):+.0f} [{low:+.0f}, {high:+.0f}]",
                    f"{cell.said.get('asked chain, hop 1', 0)} of {cell.questions}",
                ]
            )
    columns = ["model", "change", "questions", "as they are", "changed [95 % interval]", "difference in points",
               "likeliest symbol: the asked chain's hop 1"]  # fmt: skip
    return _markdown(columns, rows)


def _answered(run: str) -> tuple[Any, list[Any]]:
    """What was asked in a run of language models, and the counts."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.llm.config import LanguageModelConfig
    from hopscope.studies.llm.measurements import cells

    evidence = Evidence.read(RunFolder.open(RESULTS / "llm" / run))
    config = LanguageModelConfig.model_validate(dict(evidence.config))
    return config, cells(evidence, config)


def _correct(run: str) -> dict[tuple[str, str], list[float]]:
    """By model and kind, whether each question was answered rightly, in the order of the questions."""
    from hopscope.runs import RunFolder
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.llm.measurements import part_of

    evidence, (_, cells) = Evidence.read(RunFolder.open(RESULTS / "llm" / run)), _answered(run)
    return {
        (cell.model, _kind(cell)): evidence.rows(
            "correct", part=part_of(cell.model, cell.formulation, cell.depth)
        )["value"].tolist()
        for cell in cells
    }


def _kind(cell: Any) -> str:
    from hopscope.studies.llm.config import Kind

    return Kind(cell.formulation, cell.depth).words


def _sampling(config: Any) -> str:
    return "greedy" if config.temperature == 0 else f"temperature {config.temperature or 1:g}"


def _points(cost: float, interval: list[float]) -> str:
    return f"{cost:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"


def _small(loss: float) -> str:
    return f"{loss:.4f}" if loss >= 0.0001 else "< 0.0001"


def witness_plan(steps: str, mask: Literal["causal", "none"]) -> str:
    """Who reads whom in a hand-built transformer."""
    from hopscope.zoo.witnesses import plan

    return f"```\n{plan(int(steps), mask=mask)}\n```\n"


def quick_shapes(run: str) -> str:
    """Of each shape and seed: the evaluation from which on a loss is under 0.5, and the final loss of the last step."""
    rows = []
    for shape, of_shape in _partial_losses(run).groupby("configuration", sort=False):
        cells, last = _crossings(of_shape)
        rows.append([str(shape), *cells, last])
    return _markdown(["shape", "x₁ under 0.5", "x₂", "x₃", "final loss of x₃"], rows)


def details(run: str) -> str:
    """Of each open detail of the depth study and each seed: when its models learned each symbol, and final losses."""
    from hopscope.words import symbol

    table = _partial_losses(run)
    steps = table["metric"].nunique()
    words = table["configuration"].str.split(", ", n=2).str
    table = table.assign(asked=words[0], reading=words[2].fillna("as configured"))
    rows = []
    for reading, of_reading in table.groupby("reading", sort=False):
        whole, alone = (of_reading[of_reading["asked"] == f"{asked} D={steps}"] for asked in ("IC", "non-IC"))
        cells, last = _crossings(whole)
        rows.append([str(reading), *cells, last, _crossings(alone)[1]])
    symbols = [symbol(step) for step in range(1, steps + 1)]
    columns = [
        f"{symbols[0]} under 0.5",
        *symbols[1:],
        f"final loss of {symbols[-1]}",
        f"asked for {symbols[-1]} alone",
    ]
    return _markdown(["detail", *columns], rows)


def _partial_losses(run: str) -> "pd.DataFrame":
    """Rows of the held-out loss of each symbol of a chain."""
    import pandas as pd

    table = pd.read_parquet(RESULTS / run / "evidence.parquet")
    wanted = (table["split"] == "held_out") & table["metric"].str.fullmatch(r"loss_step_\d")
    return table[wanted & (table["measure"] == "training")]


def _crossings(curves: "pd.DataFrame") -> tuple[list[str], str]:
    """Of each symbol the first evaluation with a loss under 0.5, seed by seed; and final losses of the last symbol."""
    import pandas as pd

    from hopscope.studies.depth.values import LEARNED

    cells = []
    for _, of_step in curves.groupby("metric"):
        seeds = [each.sort_values("step") for _, each in of_step.groupby("member")]
        under = [each.loc[each["value"] < LEARNED, "step"].min() for each in seeds]
        cells.append(" / ".join("–" if pd.isna(step) else f"{step:,.0f}" for step in under))
    return cells, " / ".join(f"{each['value'].iloc[-1]:.2f}" for each in seeds)


def campaign(reading: str, what: str = "training") -> str:
    """Of each model of the paper's size that was trained and read: losses and times, or its circuits by both proofs."""
    collected = (RESULTS / "campaign" / reading / "units").glob("*/collected.json")
    units = {_json(path)["member"]: path.parent for path in collected}
    rows = _trained if what == "training" else _read_by_both
    columns = {
        "training": [
            "seed", "loss at the end", "mean loss of the last 100 steps", "x₁ … x₄ first under 0.5 at step",
            "all last back under 0.5 at step", "jumps (longest)",
        ],
        "circuits": [
            "seed", "loss of the model", "heads, paper's proof", "loss under its rules", "recomputed",
            "heads, stricter proof", "loss under its rules", "recomputed",
        ],
    }[what]  # fmt: skip
    return _markdown(columns, [[str(seed), *rows(units[seed])] for seed in sorted(units)])


def _trained(unit: Path) -> list[str]:
    import pandas as pd

    from hopscope.claims.crossings import first_crossing, last_crossing

    steps = _json(unit / "unit.json")["plan"]["training"]["steps"]
    table = pd.concat(map(pd.read_parquet, sorted(unit.glob("metrics/*.parquet"))))
    curves = table[table["split"] == "held_out"].pivot(index="step", columns="metric", values="value")
    late, symbols = curves["loss"][curves.index > steps - 100].mean(), curves.filter(like="loss_step_")
    fell, stayed = (
        [crossing(list(curve.index), list(curve), 0.5, rising=False).time for _, curve in symbols.items()]
        for crossing in (first_crossing, last_crossing)
    )
    ((end,),) = (_json(path)["loss"] for path in unit.glob("analysis/retrieval-*.json"))
    last = None if None in stayed else max(time for time in stayed if time is not None)
    return [f"{end:.3f}", f"{late:.3f}", ", ".join(map(_at, fell)), _at(last), _jumps(symbols.max(axis=1))]


def _jumps(worst: "pd.Series[float]") -> str:
    """How often the worst symbol's loss is at 0.5 or above again, once it was below, and for how many steps at most."""
    if (worst >= 0.5).all():
        return "–"
    over = (worst >= 0.5).loc[(worst < 0.5).idxmax() :]
    spans = [list(steps) for is_over, steps in groupby(over.index, over.get) if is_over]
    longest = max(spans, key=lambda span: span[-1] - span[0], default=None)
    if longest is None:
        return "0"
    back = over.index[over.index > longest[-1]]
    length = f"{back[0] - longest[0]:,}" if len(back) else f"{longest[-1] - longest[0]:,}, to the end"
    return f"{len(spans)} ({length})"


def _read_by_both(unit: Path) -> list[str]:
    from hopscope.circuits.config import reads_one_token

    (proofs,) = unit.glob("analysis/proofs-*.json")
    read = [_json(path)["circuit"] for path in unit.glob("analysis/circuit-*.json")]
    whole, cells = "–", []
    for proof in ("rules", "both"):
        found = _json(proofs)["unseen"][proof]
        circuit = found.get("circuit")
        if circuit is None:  # of a model that learned nothing that lasted
            cells += ["–"] * 3
            continue
        heads = {
            (path["layer"], path["head"])
            for path in circuit["paths"]
            if proof == "both" or reads_one_token(path["target"])
        }
        whole, loss = f"{found['loss']['full']:.3f}", found["loss"]
        accepted = "" if circuit in read else " (not accepted)"
        cells += [f"{len(heads)}{accepted}", f"{loss['rules']:.3f}", f"{loss['recomputed']:.3f}"]
    return [whole, *cells]


def _at(step: float | None) -> str:
    return "never" if step is None else f"{step:,.0f}"


def _joined(part: str) -> str:
    """What a read of a single token joins, such as `second 2 → first 2`."""
    query, target = (side.split() for side in part.split(" → "))
    hops = int(target[1]) - (0 if query == ["query"] else int(query[1]))
    if target[0] == "first":
        return {0: "a pair", 1: "equal symbols"}.get(hops, part)
    return f"{hops} hops" if hops > 1 else {1: "one hop"}.get(hops, part)


def formation_order(run: str) -> str:
    """Of each model and proof: when the first and the last head for each symbol formed, and what the lowest reads."""
    import pandas as pd

    table = pd.read_parquet(RESULTS / run / "evidence.parquet")
    steps, rows = table[table["metric"] == "fell"]["part"].nunique(), []
    for member in sorted(set(table["member"].dropna())):
        of_member = table[table["member"] == member]
        for proof, prefix in (("the paper's", "rules_"), ("the stricter", "")):
            values = {
                name: of_member[of_member["metric"] == prefix + name] for name in ("needed_for", "formed_at")
            }
            if values["needed_for"].empty:
                continue
            places = ["layer", "head", "part"]
            paths = values["needed_for"].merge(values["formed_at"], on=places, suffixes=("", "_at"))
            single = of_member[(of_member["metric"] == f"{prefix}to_one_token") & (of_member["value"] == 1)]
            times = paths.merge(single[places], on=places).groupby("value")["value_at"]
            cells = [
                ", ".join(_at(found.get(step)) if step in found else "–" for step in range(1, steps + 1))
                for found in (times.min(), times.max())
            ]
            lowest = single[single["layer"] == single["layer"].min()]
            joined = ", ".join(sorted({_joined(part) for part in lowest["part"]}))
            rows.append([f"{member:.0f}", proof, f"{lowest['layer'].iloc[0]:.0f}", joined, *cells])
    columns = [
        "seed", "proof", "lowest layer that reads", "what it joins", "first head for x₁ … x₄ at step",
        "all heads for x₁ … x₄ at step",
    ]  # fmt: skip
    return _markdown(columns, rows)


def faults(part: str = "rows") -> str:
    """What came of the faults that were injected: by fault, or of damage by the kind of file."""
    result = _json(RESULTS / "faults.json")
    verdicts = ["healed", "refused", "harmless", "lost", "wrong"]
    if part == "files":
        found = [
            {"fault": f"`{name}`", "tried": sum(of.values()), **of} for name, of in result["files"].items()
        ]
    else:
        found = result["rows"]
        whole = {name: sum(row[name] for row in found) for name in ("tried", *verdicts)}
        found = [*found, {"fault": "all", **whole}]
    rows = [[str(row["fault"]), *(f"{row.get(name, 0):,}" for name in ("tried", *verdicts))] for row in found]
    table = _markdown(["damaged file" if part == "files" else "fault", "tried", *verdicts], rows)
    if part == "files":
        return table
    minutes = f"in {result['cpu_minutes']:.0f} minutes of a core"
    return f"{table}\n{result['done']:,} of {result['cases']:,} planned cases, {minutes}.\n"


def atheris() -> str:
    """What a fuzzer that is guided by branches made of each reader."""
    result = _json(RESULTS / "atheris.json")
    names = ["inputs", "right", "refused", "branches_at_first", "branches", "growth_mib"]
    rows = [
        [row["reader"], *(f"{row[name]:,}" for name in names[:3]), str(len(row["faults"])),
         *(f"{row[name]:,}" for name in names[3:])]
        for row in result["rows"]
    ]  # fmt: skip
    whole = {name: sum(row[name] for row in result["rows"]) for name in (*names, "seconds")}
    faults = sum(len(row["faults"]) for row in result["rows"])
    most = max(row["growth_mib"] for row in result["rows"])
    rows.append(["all", *(f"{whole[name]:,}" for name in names[:3]), str(faults), "", "", f"{most:,}"])
    table = _markdown(
        ["reader", "inputs", "right", "refused", "faults", "branches at first", "at last", "MiB"], rows
    )
    return f"{table}\nAtheris {result['atheris']}, {whole['seconds'] / 60:.1f} minutes of a core.\n"


TABLES: dict[str, Callable[..., str]] = {
    "atheris": atheris,
    "faults": faults,
    "campaign": campaign,
    "formation-order": formation_order,
    "quick-shapes": quick_shapes,
    "details": details,
    "verdicts": verdicts,
    "judged-anew": judged_anew,
    "two-proofs": two_proofs,
    "bounds": bounds,
    "transfers": transfers,
    "reread": reread,
    "controls": controls,
    "memoriser": memoriser,
    "story": story,
    "rereadings": rereadings,
    "speed": speed,
    "growth": growth,
    "heads": heads,
    "head-targets": head_targets,
    "pretrained-heads": pretrained_heads,
    "ways-to-ask": ways_to_ask,
    "language-answers": language_answers,
    "language-changes": language_changes,
    "language-models": language_models,
    "reading": reading,
    "permutation-circuits": permutation_circuits,
    "repeat-rows": repeat_rows,
    "external-plants": external_plants,
    "finders": finders,
    "finder-truth": finder_truth,
    "members": members,
    "members-rounded": members_rounded,
    "witnesses": witnesses,
    "witness-plan": witness_plan,
    "theory": theory,
    "theory-orders": theory_orders,
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(
        lambda place: f"{place[1]}\n{TABLES[place['name']](*place['what'].split())}\n{place[5]}", page
    )


def main() -> int:
    """Rewrite the tables of every page."""
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
