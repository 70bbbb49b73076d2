"""A model card: what a folder with one trained member says of it, from the run's record alone.

The card is the README.md of a Hugging Face folder: front matter that the hub reads, then Markdown.  Every sentence
stands under a condition on the record, so that none can contradict the run; a model that learned nothing is said to
have learned nothing.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import ValidationError

from hopscope.claims.numbers import format_number
from hopscope.report.circuit_words import path_words
from hopscope.report.circuits import ListedPath
from hopscope.report.record import read_ledger
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.files import is_file

Layout = Literal["gpt2", "hopscope"]

LEARNED, NOTHING = 0.25, 0.95
"""Shares of the lowest floor: a loss below the first counts as learned, one from the second on as nothing learned."""

MOST_ROWS = 60
"""Rows of the table of results; further ones stand in the run's evidence."""


@dataclass(frozen=True)
class CardFacts:
    """What a card says and the run's files do not, or not in words.

    Attributes:
        layout: of the folder.
        why_not: why the model is not in GPT-2's layout, in words; empty where it is, or was not to be.
        tokenizer: whether the folder has one.
        weights: number of them.
        finite: whether all weights are finite.
        version: of Hopscope.
        question: of the study.
        task: name of the task, and what it is in a sentence or two.
        floors: gives the floors of a metric, name → value; `None` where the task cannot be asked.
        command: that trains the run again, one line; empty where none is known.
        python: the same in Python; likewise.
    """

    layout: Layout
    why_not: str
    tokenizer: bool
    weights: int
    finite: bool
    version: str
    question: str = ""
    task: tuple[str, str] = ("", "")
    floors: Callable[[str], Mapping[str, float]] | None = None
    command: str = ""
    python: str = ""


@dataclass(frozen=True)
class _Result:
    """The last values of one metric up to the card's step; floors are those of its loss or share."""

    name: str
    unit: str
    held_out: tuple[int, float] | None
    train: tuple[int, float] | None
    floors: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The held-out loss as a share of the lowest floor, where there is one."""
        lowest = min(self.floors.values(), default=0.0)
        if self.held_out is None or not self.name.startswith("loss") or not lowest > 0:
            return None
        return self.held_out[1] / lowest

    def said(self, value: float) -> str:
        return format_number(value, self.unit)


def model_card(run: RunFolder, member: int, step: int, facts: CardFacts) -> str:
    """The card of a member at a checkpoint, as Markdown with the hub's front matter.

    Args:
        run: the run.
        member: number of the member in it.
        step: of the checkpoint.
        facts: what the run's files do not say.

    Raises:
        UserError: a record of the run is damaged.
    """
    record = next(each for each in run.members if each.member == member)
    unit = run.unit(record.unit)
    results = _results(run, member, step, facts)
    title = f"{run.study}, member {member} (seed {record.seed}), step {step:,}"
    parts = [
        _front_matter(run, title, results, facts),
        f"# {title}",
        _model(run, unit, facts),
        _section("Task", _task(unit, facts)),
        _section(
            "What it learned",
            _learned(results, step, _diverged(unit, record.index, step), facts),
            _table(results),
        ),
        _section("Circuit", *_circuit(unit, run, member, step)),
        _section("Claims of the run", *_claims(run)),
        _section("How to open it", *_opening(unit.record["plan"]["model"], facts)),
        _section("How to make it again", *_again(run, unit, member, step, facts)),
        _section("Configuration", _fenced("json", json.dumps(_configuration(unit, record), indent=1))),
    ]
    return "\n\n".join(parts) + "\n"


# Front matter.


def _front_matter(run: RunFolder, title: str, results: Sequence[_Result], facts: CardFacts) -> str:
    """YAML that the hub reads; strings are written as JSON, which is YAML too.  The licence is the author's to name."""
    gpt2 = facts.layout == "gpt2"
    tags = [
        "hopscope",
        "mechanistic-interpretability",
        "interpretability",
        run.study,
        *(["gpt2"] if gpt2 else []),
    ]
    lines = [
        "---",
        f"library_name: {'transformers' if gpt2 else 'hopscope'}",
        *(["pipeline_tag: text-generation"] if gpt2 and facts.tokenizer else []),
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in tags),
    ]
    told = [each for each in results if each.held_out is not None]
    if told:
        lines += [
            "model-index:",
            f"- name: {json.dumps(title)}",
            "  results:",
            "  - task:",
            f"      type: {json.dumps('in-context-retrieval')}",
            "    dataset:",
            f"      name: {json.dumps(f'held-out samples of the study {run.study}')}",
            f"      type: {json.dumps(f'hopscope-{run.study}'.lower())}",
            "    metrics:",
        ]
        for each in told:
            assert each.held_out is not None
            kind = "accuracy" if each.unit == "fraction" else "loss"
            lines += [
                f"    - type: {kind}",
                f"      name: {json.dumps(each.name)}",
                f"      value: {each.held_out[1]!r}",
            ]
    return "\n".join([*lines, "---"])


# Sections.


def _section(heading: str, *parts: str) -> str:
    return "\n\n".join([f"## {heading}", *(part for part in parts if part)])


def _model(run: RunFolder, unit: UnitFolder, facts: CardFacts) -> str:
    model = unit.record["plan"]["model"]
    mlp = round(model["mlp_ratio"] * model["width"])
    shape = (
        f"{_count(model['layers'], 'layer')} of {_count(model['heads'], 'head')}, width {model['width']}, "
        f"{f'an MLP of {mlp}' if mlp else 'no MLP'}, {facts.weights:,} weights"
    )
    asks = f" The study asks: {plain(facts.question)}" if facts.question else ""
    return f"A small transformer ({shape}), trained by the study `{run.study}` of Hopscope.{asks}"


def _task(unit: UnitFolder, facts: CardFacts) -> str:
    model = unit.record["plan"]["model"]
    name, words = facts.task
    reads = (
        f"{model['input_size']} different tokens, as numbers from 0"
        if model["input_kind"] == "tokens"
        else f"vectors of {model['input_size']} features"
    )
    readout = model["readout"]
    asked = "every position" if readout is None else f"{_count(len(readout), 'position')} of them"
    said = f"`{name}`: {plain(words)}" if name and words else f"`{name}`." if name else ""
    return f"{said}\n\nIt reads {model['length']} positions with {reads}, and is asked at {asked}.".strip()


def _learned(results: Sequence[_Result], step: int, diverged: int | None, facts: CardFacts) -> str:
    """What the losses say, by one rule for every study; no word about what is not on record."""
    if diverged is not None:
        gone = "" if facts.finite else " Some of its weights are not finite: it answers nothing."
        return (
            f"Its training diverged by step {diverged:,} and ended there, so it does not count as trained.{gone} What "
            "was measured was measured before."
        )
    if not facts.finite:
        return "Some of its weights are not finite: it answers nothing."
    if step == 0:
        return "These are its weights before any training: it has learned nothing."
    whole = next((each for each in results if each.name == "loss" and each.held_out), None)
    parts = [each for each in results if each is not whole and each.ratio is not None]
    if whole is None and not parts:
        return "No held-out loss is on record up to this step: this card cannot say what it learned."
    first = whole or parts[0]
    assert first.held_out is not None
    late = "" if first.held_out[0] == step else f"It was measured last at step {first.held_out[0]:,}. "
    if whole is not None and (whole.ratio is not None or not parts):
        return late + _of_the_whole(whole, parts, facts)
    return late + _of_parts(parts)


def _of_the_whole(whole: _Result, parts: Sequence[_Result], facts: CardFacts) -> str:
    assert whole.held_out is not None
    ratio, loss = whole.ratio, whole.said(whole.held_out[1])
    if ratio is None:
        why = (
            "could not be asked for its floors"
            if facts.floors is None
            else "names no positive floor of the loss"
        )
        return f"Its held-out loss is {loss}. Its task {why}, so this card cannot say whether it learned."
    name = min(whole.floors, key=whole.floors.__getitem__)
    lowest = f"the lowest floor, `{name}` ({whole.said(whole.floors[name])})"
    if ratio < LEARNED:
        return f"It counts as learned: its held-out loss of {loss} is below a quarter of {lowest}."
    known = [each for each in parts if each.ratio is not None and each.ratio < LEARNED]
    if known:
        share = f"{ratio:.0%} of {lowest}"
        return f"A part counts as learned: {_below(known)}. Its whole held-out loss of {loss} is {share}."
    if ratio < NOTHING:
        return (
            f"It does not count as learned, for which its held-out loss would have to be below a quarter of {lowest}: "
            f"the loss of {loss} is {ratio:.0%} of it."
        )
    beaten = [each for each, floor in whole.floors.items() if whole.held_out[1] < NOTHING * floor]
    if beaten:
        others = ", ".join(f"`{each}` ({whole.said(whole.floors[each])})" for each in beaten)
        return (
            f"It has learned nothing beyond {lowest}: its held-out loss of {loss} is {ratio:.0%} of it, and clearly "
            f"below {others}."
        )
    return f"It has learned nothing: its held-out loss of {loss} is {ratio:.0%} of {lowest}."


def _of_parts(parts: Sequence[_Result]) -> str:
    """Of a model whose parts alone have floors."""
    known = [each for each in parts if each.ratio is not None and each.ratio < LEARNED]
    if len(known) == len(parts):
        return f"It counts as learned: {_below(known)}."
    if known:
        return f"A part counts as learned: {_below(known)}; others are not."
    if all(each.ratio is not None and each.ratio >= NOTHING for each in parts):
        bound = f"{NOTHING:.0%} of the part's lowest floor"
        return f"It has learned nothing: no part of its held-out loss is below {bound}."
    return "It does not count as learned: no part of its held-out loss is below a quarter of the part's lowest floor."


def _below(known: Sequence[_Result]) -> str:
    names = ", ".join(f"`{each.name}`" for each in known)
    return f"{names} {_are(known)} below a quarter of {'its' if len(known) == 1 else 'their'} lowest floor"


def _are(known: Sequence[_Result]) -> str:
    return "is" if len(known) == 1 else "are"


def _table(results: Sequence[_Result]) -> str:
    if not results:
        return ""
    rows = ["| metric | held-out | last training batch | floors |", "| --- | --- | --- | --- |"]
    for each in results[:MOST_ROWS]:
        cells = [
            "–" if found is None else f"{each.said(found[1])} (step {found[0]:,})"
            for found in (each.held_out, each.train)
        ]
        floors = ", ".join(
            f"{plain(name)}: {each.said(value)}" for name, value in sorted(each.floors.items())
        )
        rows.append(f"| `{each.name}` | {cells[0]} | {cells[1]} | {floors or '–'} |")
    more = len(results) - MOST_ROWS
    note = f"\n\nand {more} further metrics in the run's evidence." if more > 0 else ""
    return "\n".join(rows) + note


def _circuit(unit: UnitFolder, run: RunFolder, member: int, step: int) -> list[str]:
    """What was read, if anything was at this checkpoint; several readings may differ, and each is said."""
    readings = _readings(unit, member, step)
    if not readings:
        command = f"`hopscope circuit RUN --member {member}`"
        return [f"No circuit of it is on record at this step; {command} reads the one of the last step."]
    said = []
    for number, reading in enumerate(readings, 1):
        title = f"Reading {number}: " if len(readings) > 1 else "As read and tested by ablation: "
        lines = [f"{title}**{plain(str(reading['verdict']))}**."]
        for path in reading["paths"]:
            lines.append(f"- {plain(_path_words(path))}")
        said.append("\n".join(lines) if not reading["paths"] else "\n".join([lines[0], "", *lines[1:]]))
    return said


def _readings(unit: UnitFolder, member: int, step: int) -> list[dict[str, Any]]:
    """Different readings on record; those that only repeat another with new sequences are left out."""
    ending = f"-step-{step:09d}"
    found: list[dict[str, Any]] = []
    for path in sorted((unit.path / "analysis").glob(f"circuit-{member}-*{ending}.json")):
        name = path.stem.removesuffix(ending)
        if name.endswith("-stages"):
            continue
        reading = unit.read_analysis(name, step)
        whole = isinstance(reading.get("paths"), list) and "verdict" in reading
        if whole and not any(_same(reading, other) for other in found):
            found.append(reading)
    main = [each for each in found if "random_circuits" in (each.get("loss") or {}) or not each["paths"]]
    return main or found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    places = ("layer", "head", "query_role", "rule", "target_role")
    return one["verdict"] == other["verdict"] and [[p.get(x) for x in places] for p in one["paths"]] == [
        [p.get(x) for x in places] for p in other["paths"]
    ]


def _path_words(path: Mapping[str, Any]) -> str:
    try:
        return path_words(ListedPath.model_validate({name: path[name] for name in ListedPath.model_fields}))
    except (KeyError, ValidationError):  # of an older reader
        layer, head, row, read = (path.get(name) for name in ("layer", "head", "query_role", "target_role"))
        return f"Layer {layer}, head {head}: {row} reads {read}."


def _claims(run: RunFolder) -> list[str]:
    """Verdicts are of all members of a run together; a card of one says so."""
    if not is_file(run.path / "claims.json"):
        return ["The run is not judged yet."]
    ledger = [claim for claim in read_ledger(run.path) if claim.verdict.value != "not run"]
    if not ledger:
        return ["No claim was tested in this run."]
    rows = ["| id | claim | verdict | n | in words |", "| --- | --- | --- | --- | --- |"]
    for claim in ledger:
        words = plain(claim.words or "")
        rows.append(
            f"| {plain(claim.id)} | {plain(claim.statement)} | {claim.verdict.value} | {claim.n} | {words} |"
        )
    every = _count(len(run.members), "model")
    return [
        f"A verdict is of all {every} of the run that a claim is about, not of this one alone.",
        "\n".join(rows),
    ]


def _opening(model: Mapping[str, Any], facts: CardFacts) -> list[str]:
    inputs = "[batch, position]" if model["input_kind"] == "tokens" else "[batch, position, feature]"
    shape = (
        (1, model["length"]) if model["input_kind"] == "tokens" else (1, model["length"], model["input_size"])
    )
    given = (
        f"torch.randint({model['input_size']}, {shape})"
        if model["input_kind"] == "tokens"
        else f"torch.randn{shape}"
    )
    ours = _fenced(
        "python",
        "import hopscope, torch\n\n"
        'model = hopscope.load("FOLDER")  # a plain torch.nn.Module\n'
        f"inputs = {given}  # {inputs}\n"
        "predictions = model(inputs)  # [batch, position, output]\n"
        'pattern = model.cache(inputs)["blocks.0.attn.hook_pattern"]  # [batch, head, query, key]',
    )
    if facts.layout == "hopscope":
        why = f" It is not in a layout of transformers: {plain(facts.why_not)}." if facts.why_not else ""
        return [f"With Hopscope {facts.version}.{why}", ours]
    text = (
        ', AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        if facts.tokenizer
        else "\n\n"
    )
    theirs = _fenced(
        "python",
        f"from transformers import AutoModelForCausalLM{text}"
        'model = AutoModelForCausalLM.from_pretrained("FOLDER", attn_implementation="eager")',
    )
    note = "GPT-2 has no bias of the readout, so the last norm carries it: logits agree up to 1e-4."
    if not facts.tokenizer:
        note = f"Its tokens are numbers, so there is no tokenizer. {note}"
    return [
        "It has the layout of GPT-2. With transformers:",
        theirs,
        note,
        "With Hopscope, to the last bit:",
        ours,
    ]


def _again(run: RunFolder, unit: UnitFolder, member: int, step: int, facts: CardFacts) -> list[str]:
    export = f"hopscope export RUN --member {member} --step {step} --to FOLDER"
    said = []
    if facts.command:
        said.append(_fenced("", f"{facts.command}\n{export}"))
    elif facts.python:
        said += [_fenced("python", facts.python), _fenced("", export)]
    else:
        said.append(
            "No command is known that makes this configuration with this version; the configuration is below, and "
            f"`config.json` of the run {run.hash} holds all of it."
        )
    versions = ", ".join(
        f"{name} {number}" for name, number in sorted(unit.record.get("versions", {}).items())
    )
    layout = unit.record.get("layout", {})
    made = f"Run `{run.hash}` of the study `{run.study}`, card written by Hopscope {facts.version}."
    where = layout.get("device", "an unknown device")
    return [*said, f"{made} Trained on {where} with {versions or 'unknown versions'}."]


def _configuration(unit: UnitFolder, record: Any) -> dict[str, Any]:
    plan = unit.record["plan"]
    seeds = plan["members"][record.index]
    return {
        "task": plan["task"],
        "model": plan["model"],
        "training": plan["training"],
        "overrides": record.overrides,
        "seeds": {name: seeds[name] for name in ("seed", "init_seed", "data_seed") if name in seeds},
    }


# From the record.


def _results(run: RunFolder, member: int, step: int, facts: CardFacts) -> list[_Result]:
    """Every recorded metric of the whole model, with its last values up to a step; losses first, then shares."""
    table = run.metrics()
    for name in ("layer", "head"):
        if name in table.schema.names:
            table = table.filter(pc.is_null(table[name]))
    table = table.filter(pc.and_(pc.equal(table["member"], member), pc.less_equal(table["step"], step)))
    last: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
    for row in table.select(
        [n for n in ("step", "split", "metric", "value", "part") if n in table.schema.names]
    ).to_pylist():
        if row["value"] is not None and math.isfinite(row["value"]):
            key = (row["metric"], row.get("part") or "")
            before = last.setdefault(key, {}).get(row["split"])
            if before is None or row["step"] >= before[0]:
                last[key][row["split"]] = (row["step"], row["value"])
    found = []
    for (metric, part), splits in last.items():
        floors = {} if facts.floors is None or part else dict(facts.floors(metric))
        unit = "fraction" if metric.startswith("accuracy") else "number"
        name = f"{metric} ({part})" if part else metric
        found.append(_Result(name, unit, splits.get("held_out"), splits.get("train"), floors))
    kinds = ("loss", "accuracy")
    return sorted(
        found,
        key=lambda each: (
            next((place for place, kind in enumerate(kinds) if each.name.startswith(kind)), len(kinds)),
            each.name,
        ),
    )


def _diverged(unit: UnitFolder, index: int, step: int) -> int | None:
    """The step by which a member was no longer finite, if that was by this checkpoint."""
    frozen = unit.checkpoint(step)[2].get("frozen_at")
    if not isinstance(frozen, list) or index >= len(frozen) or frozen[index] < 0:
        return None
    return int(frozen[index])


# Words.


def plain(text: str) -> str:
    """Text of a run as it stands in Markdown: on one line, no HTML, no end of a table's cell."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _fenced(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```"
