"""Committed results: their claims judged anew, their size, and the tables that pages make of them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from hopscope.runs import Evidence, RunFolder

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "results"
RUNS = sorted(path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("claims.json"))
MOST_BYTES, MOST_FILES = 20_000_000, 250

OPENED = {"verdict": ("refuted", "inconclusive")}
LAST_SEEN = {"value": ..., "interval": ...}
RANKED = {"interval": ...}  # resamples of a rank correlation have ranks of their own (2026-11-30)
CHANGED = {
    # Nothing is refuted before every reading of the source was tried (docs/protocol_log.md, 2026-11-26).
    "permutation/readings": {"P8": OPENED},
    # Circuits that no proof accepts count no longer.
    "campaign/transformers-abc": {
        "N14": {"n": (2, 1), "interval": ...},
        "N17": {"n": (5, 4), **LAST_SEEN},
        "N23": "added",
    },
    # One seed of eight decides half of N10, whether or not the other half was run (2026-11-29).
    "campaign/transformers-abc-torch-schedule": {
        "N10": {"verdict": ("inconclusive", "refuted")},
        "N14": {"n": (6, 5), "interval": ..., "value": ...},
        "N17": RANKED,
        "N23": "added",
    },
    # What never came took all steps or more (2026-11-30); of the uniform mixture S6 says nothing.
    "width-or-start/quick": {"N19": LAST_SEEN},
    "width-or-start/lower-rate": {"N19": {"interval": ...}},
    "width-or-start/own-rates": {"N19": {"verdict": ("reproduced", "inconclusive"), "interval": ...}},
    "tiny_lm/seeds": {"S6": LAST_SEEN},
    # That too few models learn is known only when losses have settled (2026-11-30).
    "curriculum/gpt2-base": {"S1b": OPENED},
    "curriculum/laptop": {"S1b": OPENED},
    "curriculum/torch-schedule": {"S1b": OPENED},
    "sharing/torch-schedule": {"S3a": OPENED},
    # Seeds are drawn in both sums of R² (2026-11-30).
    # A read that other heads did was not held (2026-11-30).
    "emergence/needs": {"N21": {"verdict": OPENED["verdict"], **LAST_SEEN}, "N22": {"interval": ...}},
    # A publication of larger models that trained longer is not refuted by these (2026-11-30).
    "recall/quick": dict.fromkeys(("N2a", "N2b", "N2d"), OPENED),
    "khop/quick": {"N1a": OPENED},
    "khop/torch-schedule": {"N1a": OPENED},
    # A random walk meets it as well; one power does not fit all batches (2026-11-30).
    "reduced/quick": {"D1": {"verdict": ("reproduced", "inconclusive")}, "D4": {"n": (16, 14), **LAST_SEEN}},
    "formation/quick": {"I1b": OPENED},
    # N13b speaks of every trained model (2026-11-30).
    "below-the-minimum/quick": {"N13b": "added"},
    # No model has as many layers as the minimum.
    "depth/details": {"N13a": {"verdict": ("inconclusive", "not run"), "n": (2, 0), "value": ...}},
    # N23 was written down after circuits/five-steps (2026-11-29).
    "circuits/laptop": {"N23": "added"},
    "circuits/five-steps": {"N17": RANKED, "N23": "added"},
    "circuits/four-steps": {"N17": RANKED, "N23": RANKED},
    "circuits/eight-layers": {"N17": RANKED, "N23": RANKED},
    "circuits/workstation": {"N17": RANKED, "N23": RANKED},
    "recipes/starts": {"N16": {"verdict": OPENED["verdict"], "n": (4, 1), "interval": ...}},
    # A model and its steps are no cases of which there are no others.
    # A gain counts at the depth at which other seeds gain the most (2026-11-30).
    "depth/workstation": {"N13b": {"interval": ...}, "R11": LAST_SEEN},
    "depth/with-mlps": {"R11": {"verdict": ("inconclusive", "not run"), "n": (8, 0), **LAST_SEEN}},
}
"""Run → claim → what its committed verdict and today's rules say; `...`: numbers that follow from another n."""


@pytest.fixture(autouse=True)
def _docs_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)


def near(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and other is not None:
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-12)  # fits end where a processor rounds
    return one == other


def differences(run):
    from table_makers.runs import judged

    committed = {each["id"]: each for each in json.loads((RESULTS / run / "claims.json").read_text())}
    found = {}
    for claim in judged(run):
        now, then = claim.model_dump(mode="json"), committed.pop(claim.id, None)
        if then is None:
            found[claim.id] = "added"
            continue
        fields = ("verdict", "value", "interval", "n")
        own = {name: (then[name], now[name]) for name in fields if not near(then[name], now[name])}
        found |= {claim.id: own} if own else {}
    assert not committed, "claims that no study makes any more"
    return found


@pytest.mark.parametrize("run", RUNS)
def test_a_committed_run_is_judged_as_it_was(run):
    meant, found = CHANGED.get(run, {}), differences(run)
    assert found.keys() == meant.keys()
    for claim, fields in found.items():
        if meant[claim] != "added":
            assert fields.keys() == meant[claim].keys()
            assert all(meant[claim][name] in (..., each) for name, each in fields.items()), fields


def test_models_below_the_minimum_refute_that_there_are_none():
    from table_makers.runs import judged

    found = {each.id: each for each in judged("below-the-minimum/quick")}["N13b"]
    assert (found.kind, found.verdict, found.completion) == ("general", "refuted", "torch-schedule")


def test_results_are_few_small_and_told_of():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert len(files) <= MOST_FILES and sum(path.stat().st_size for path in files) <= MOST_BYTES
    allowed = {".json", ".jsonl", ".parquet", ".csv", ".png", ".svg", ".txt", ".md"}
    assert {path.suffix for path in files} <= allowed
    told = (RESULTS / "README.md").read_text()
    for path in files:
        name = path.relative_to(RESULTS).as_posix()
        run = next((run for run in RUNS if name.startswith(f"{run}/")), None)
        assert run or name == "README.md" or name.startswith("bench/") or f"({name})" in told, name
    assert all(f"({run})" in told for run in RUNS)


def test_every_figure_of_a_run_is_shown():
    pages = "\n".join(path.read_text() for path in (DOCS.parent / "README.md", *DOCS.glob("*.md")))
    drawn = [path for path in RESULTS.rglob("figures/*") if path.suffix != ".csv"]
    unused = [path.name for path in drawn if path.relative_to(DOCS).as_posix() not in pages]
    assert not unused


@pytest.mark.parametrize(
    "page", [path.name for path in sorted(DOCS.glob("*.md")) if "<!-- table:" in path.read_text()]
)
def test_a_page_says_what_its_results_do(page):
    import tables

    text = (DOCS / page).read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run python docs/tables.py"


def test_every_table_has_a_page():
    import tables

    used = {found[2] for path in DOCS.glob("*.md") for found in tables._PLACE.finditer(path.read_text())}
    assert used == {*tables.TABLES}


def test_the_ledger_shows_what_runs_say_together(monkeypatch):
    from table_makers import ledger
    from table_makers.runs import of_source

    monkeypatch.setattr(ledger, "_is_built_in", lambda run: run == "own")
    refuted, open_ = ({"verdict": each, "lacks": []} for each in ("refuted", "inconclusive"))
    for run, other, said in (
        ("own", open_, "refuted"), ("file", open_, "inconclusive"), ("file", refuted, "refuted"),
        ("file", {"verdict": "reproduced"}, "inconclusive"), ("file", {"verdict": "not run"}, "refuted"),
    ):  # fmt: skip
        assert ledger._standing([("other", other), (run, refuted)])[1]["verdict"] == said
    for kind, one, said in (("general", refuted, "refuted"), ("existence", refuted, "inconclusive")):
        told = [("file", {**each, "kind": kind}) for each in (one, open_)]
        assert ledger._standing(told)[1]["verdict"] == said
    claim = {"lacks": ["not run under gpt2-base, torch-base", "8 seeds are needed"]}
    assert ledger._lacking(claim, ["gpt2-base"]) == "not run under torch-base"
    assert ledger._lacking(claim, ["gpt2-base", "torch-base"]) == "" == ledger._lacking({}, [])
    claim = {"lacks": ["another is no registered completion; not run under gpt2-base"]}
    assert ledger._lacking(claim, ["gpt2-base"]) == "another is no registered completion"
    theorem = {"structural": "true by the theorem"}
    said = [of_source({**theorem, "verdict": each}) for each in ("reproduced", "refuted", "inconclusive")]
    assert said == ["true by the theorem", "refuted, by construction", "inconclusive"]
    assert of_source({"structural": False, "verdict": "refuted"}) == "refuted"


def test_collecting_a_run(tmp_path, monkeypatch):
    import collect

    members = [
        {"member": number, "seed": number, "configuration": "a", "overrides": {}} for number in range(2)
    ]
    config = {"study": "first-steps", "preset": "smoke", "question": "?", "identity": {}, "units": []}
    run = RunFolder(tmp_path / "runs" / "first-steps" / "0123456789ab").create({**config, "members": members})
    rows = [{"metric": name, "value": [0.25, None], "step": 7} for name in ("loss", "explorer", "circuit")]
    Evidence.of(rows, run.members, run.config).write(run.path / "evidence.parquet")
    run.write("claims.json", "[]")
    (tmp_path / "README.md").write_text("no figure")
    monkeypatch.setattr(collect, "DOCS", tmp_path / "docs")
    assert collect.main([str(run.path), "first-steps/smoke"]) == 2  # it is not finished
    run.finish()
    assert collect.main([str(run.path), "first-steps/smoke"]) == 0
    kept = tmp_path / "docs" / "results" / "first-steps" / "smoke"
    assert {path.name for path in kept.iterdir()} == {"config.json", "evidence.parquet", "claims.json"}
    found = Evidence.read(kept)
    assert {*found.metrics} == {"loss"} and found.last("loss").dropna().to_dict() == {0: 0.25}
    assert collect.main([str(tmp_path / "nothing"), "x"]) == 2
    asked = subprocess.run([sys.executable, DOCS / "collect.py"], capture_output=True, text=True, check=False)
    assert asked.returncode == 2 and asked.stderr.startswith("collect: expected RUN and NAME")
