"""The page's words and figures: every number can be found where the story says it is."""

import ast
import csv
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from hopscope.claims import Verdict
from hopscope.claims.intervals import bootstrap_mean
from hopscope.probes.onsets import transition
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.evidence import curve, last_epoch_loss
from hopscope.studies.permutation.story.closing import WHY, closing_section

PAPER = Path(__file__).parents[2] / "docs" / "results" / "permutation" / "paper"


@pytest.fixture(scope="module", params=["whole_run", "small_run"])
def run(request):
    return RunFolder(request.getfixturevalue(request.param))


@pytest.fixture
def story(run):
    return json.loads((run.path / "story.json").read_text(encoding="utf-8"))


def placeholders(value):
    if isinstance(value, str):
        return set(re.findall(r"\{(\w+)\}", value))
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return set().union(*map(placeholders, entries))


def inside(value, path):
    """Follow keys and places joined by dots."""
    for part in path.split("."):
        value = value[part] if isinstance(value, dict) else value[int(part)]
    return value


@cache
def record(path):
    """What a file holds; no test changes one, and hundreds of numbers are from the same few."""
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def metrics(path):
    return RunFolder(path).metrics().to_pylist()


def values_of(run, files, path, members=None):
    """The value of each member (or of all) under a path, from the files that the story names, without missing ones."""
    before, _, after = path.partition(".[m]")
    found = {}
    for file in run.path.glob(files):
        analysis = record(file)
        for index, member in enumerate(analysis["members"]):
            if members is not None and member not in members:
                continue  # the pattern may match other configurations, with other shapes
            value = inside(analysis, before)[index]
            found[member] = inside(value, after[1:]) if after and value is not None else value
    chosen = found if members is None else members
    return [found[member] for member in chosen if found[member] is not None]


MEMBERS = r"over members (?P<first>\d+)–(?P<last>\d+)"


def look_up(run, file, key):
    """What a reader finds who follows file and key."""
    if match := re.fullmatch(
        rf"(?P<interval>95 % interval of )?mean of (?P<path>\S+) {MEMBERS}(: (?P<end>\w+))?", key
    ):
        members = range(int(match["first"]), int(match["last"]) + 1)
        known = values_of(run, file, match["path"], [m for m in members if in_file(run, file, m)])
        if match["interval"]:
            return bootstrap_mean(known)[("low", "high").index(match["end"])]
        return sum(known) / len(known)
    if match := re.fullmatch(rf"number of members with (?P<what>.+) at (?P<path>\S+) {MEMBERS}", key):
        members = range(int(match["first"]), int(match["last"]) + 1)
        what = ast.literal_eval(match["what"])
        return sum(value == what for value in values_of(run, file, match["path"], members))
    if match := re.fullmatch(rf"(lowest|highest) of late held_out/recall {MEMBERS}", key):
        table = metrics(run.path)
        members = range(int(match["first"]), int(match["last"]) + 1)
        end = max(row["step"] for row in table if row["member"] in members)
        late = [
            row["value"]
            for row in table
            if row["member"] in members
            and (row["split"], row["metric"]) == ("held_out", "recall")
            and row["step"] > 0.8 * end
        ]
        return {"lowest": min, "highest": max}[match[1]](late)
    if match := re.fullmatch(r"(.+) of (\w+)\.(\S+) of the transition", key):
        return of_transition(run, *match.groups())
    if match := re.fullmatch(r"last epoch of train/loss of member (\d+)", key):
        assert file == "metrics.parquet"
        return last_epoch_loss(run, PermutationStudyConfig.model_validate(run.config))[int(match[1])]
    if match := re.fullmatch(r"(\S+) of member (\d+)", key):
        return values_of(run, file, match[1], [int(match[2])])[0]
    if match := re.fullmatch(r"loss where kind is '(.+)'", key):
        with (run.path / file).open(newline="") as rows:
            (value,) = {float(row["loss"]) for row in csv.DictReader(rows) if row["kind"] == match[1]}
        return value
    assert re.fullmatch(r"\S+", key), f"expected a key that can be followed, found {key!r}"
    return inside(record(run.path / file), key)


def in_file(run, files, member):
    return any(member in record(file)["members"] for file in run.path.glob(files))


@cache
def transitions(path, levels):
    """Of every member of the configuration that recalls, or none."""
    run = RunFolder(path)
    config = PermutationStudyConfig.model_validate(run.config)
    recall, loss = curve(run, "held_out", "recall"), curve(run, "train", "loss")
    found = []
    for member in run.members:
        if Configuration.from_overrides(member.overrides).name == "d32/2 repeats":
            here, there = recall["member"] == member.member, loss["member"] == member.member
            by_time = dict(zip(loss["samples"][there].tolist(), loss["value"][there].tolist(), strict=True))
            samples = recall["samples"][here].tolist()
            losses = [by_time.get(time) for time in samples]
            chance = 1 / (config.values - 1)
            found.append(transition(samples, recall["value"][here].tolist(), losses, chance=chance)[levels])
    return found


def of_transition(run, which, levels, path):
    values = [None if part is None else inside(part, path) for part in transitions(run.path, levels)]
    known = [value for value in values if value is not None]
    ends = bootstrap_mean(known)
    return {"mean": sum(known) / len(known), "lowest": min(known), "highest": max(known),
            "interval low": ends and ends[0], "interval high": ends and ends[1]}[which]  # fmt: skip


def test_every_number_is_where_it_is_said_to_be(run, story):
    assert len(story["numbers"]) > 20
    for name, number in story["numbers"].items():
        assert set(number) == {"value", "text", "file", "key"}
        assert list(run.path.glob(number["file"])), name
        assert look_up(run, number["file"], number["key"]) == pytest.approx(number["value"], abs=5e-6), name


@pytest.mark.parametrize(
    "every", [pytest.param(7, id="every seventh"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
def test_every_number_of_the_committed_results_is_where_it_is_said_to_be(every):
    run = RunFolder(PAPER)
    numbers = run.read_json("story.json")["numbers"]
    assert len(numbers) > 500
    for name, number in list(numbers.items())[::every]:
        assert look_up(run, number["file"], number["key"]) == pytest.approx(number["value"], abs=5e-6), name


def test_texts_are_the_values_rounded(story):
    for name, number in story["numbers"].items():
        text = number["text"].replace("−", "-").replace(",", "")
        if text.startswith(("<", ">")):
            assert (number["value"] < 1e-4) if text.startswith("<") else (number["value"] > 0.9999)
            continue
        shown = float(text.rstrip("%\N{NO-BREAK SPACE} "))
        scale = 100 if text.endswith("%") else 1
        decimals = len(text.rstrip("%\N{NO-BREAK SPACE} ").partition(".")[2])
        rounding = 0.51 * 10.0**-decimals if decimals or scale == 1 else 0.51
        assert shown == pytest.approx(scale * number["value"], abs=rounding), name


def test_every_placeholder_has_its_number_and_is_used(story):
    assert placeholders(story["sections"]) == set(story["numbers"])


def test_no_other_measured_number_is_written_into_the_text(story):
    """Digits with decimals come from `numbers`; what remains are constants of the protocol."""
    texts = " ".join(block.get("text", "") for section in story["sections"] for block in section["blocks"])
    assert not re.search(r"(?<![\d{])0\.\d{3,}", re.sub(r"[\d.]+ of \d+ epochs", "", texts))


def test_blocks_name_what_is_there(run, story):
    kinds = {"text", "sequence", "figure", "table", "verdicts", "worked", "explorer"}
    identifiers = [section["id"] for section in story["sections"]]
    assert len(set(identifiers)) == len(identifiers)
    for section in story["sections"]:
        assert section["heading"]
        for block in section["blocks"]:
            assert block["kind"] in kinds
            if block["kind"] == "figure":
                assert (run.path / "figures" / f"{block['name']}.vl.json").is_file()
                assert block["alt"] and block["caption"]
            if block["kind"] == "table":
                assert block["rows"]
                assert {len(row) for row in block["rows"]} == {len(block["columns"])}


def test_claims_of_the_story_are_those_of_the_ledger(run, story):
    ledger = json.loads((run.path / "claims.json").read_text())
    assert list(story["claims"]) == [claim["id"] for claim in ledger]
    for claim in ledger:
        entry = story["claims"][claim["id"]]
        assert entry["words"]
        for values in entry["per_seed"].values():
            assert len(values) >= claim["n"] > 0


@pytest.mark.parametrize("verdict", ["reproduced", "refuted", "inconclusive"])
def test_an_explanation_stands_only_beside_the_verdict_that_it_explains(verdict):
    claims = [
        SimpleNamespace(id=id, statement=f"claim {id}", verdict=Verdict(verdict))
        for id in (*WHY, "of one's own")
    ]
    rows = closing_section(claims)["blocks"][1]["rows"]
    assert [row[1] for row in rows] == [claim.id for claim in claims]
    told = {row[1] for row in rows if row[3]}
    assert told == {id for id, (explained, _) in WHY.items() if explained.value == verdict}
    assert bool(told) is (verdict != "inconclusive")


def test_a_small_run_says_what_it_lacks(story):
    words = json.dumps(story, ensure_ascii=False)
    assert re.search(r"[\d.]+ of (20|50) epochs", words)
    assert "ten" in words  # seeds that a sentence about every seed needs


# Figures.


def rows_of(run, name):
    with (run.path / "figures" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fields_of(value):
    """Columns that a Vega-Lite specification reads."""
    if isinstance(value, dict):
        own = {value["field"]} if isinstance(value.get("field"), str) else set()
        return own.union(*(fields_of(entry) for entry in value.values()))
    return set().union(*map(fields_of, value)) if isinstance(value, list) else set()


def calculated(value):
    if isinstance(value, dict):
        own = {value["as"]} if "calculate" in value else set(value["as"]) if "fold" in value else set()
        return own.union(*(calculated(entry) for entry in value.values()))
    return set().union(*map(calculated, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", ["loss", "skills", "recall_by_slot", "attention"])
def test_figures_have_their_data(run, name):
    chart = json.loads((run.path / "figures" / f"{name}.vl.json").read_text(encoding="utf-8"))
    assert chart["data"]["url"] == f"{name}.csv"
    assert "vega-lite" in chart["$schema"]
    rows = rows_of(run, name)
    assert len(rows) > 1
    assert fields_of(chart) - calculated(chart) <= set(rows[0])
    assert fields_of(chart) & set(rows[0])
    for suffix, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        content = (run.path / "figures" / f"{name}.{suffix}").read_bytes()
        assert start in content[:300]
        assert len(content) > 2000


def test_loss_figure_holds_every_record(run):
    """All of them, because so small a run is not thinned."""
    rows = [row for row in rows_of(run, "loss") if row["kind"] == "loss"]
    table = [row for row in run.metrics().to_pylist() if (row["split"], row["metric"]) == ("train", "loss")]
    drawn = sorted(float(row["loss"]) for row in rows)
    assert drawn == pytest.approx(sorted(row["value"] for row in table), abs=6e-5)


def test_maps_are_attention_patterns(run):
    """Each row of a map adds up to one, whichever sequences are chosen."""
    chosen = ["plain", *(f"repeat_of_{slot}" for slot in range(1, 5))]
    sums = {}
    for row in rows_of(run, "attention"):
        for sequences in chosen:
            place = row["map"], row["seed"], row["query"], sequences
            sums[place] = sums.get(place, 0.0) + float(row[sequences])
    assert len(sums) >= 2 * 9 * len(chosen)
    assert all(total == pytest.approx(1.0, abs=9 * 5e-4 + 1e-9) for total in sums.values())
