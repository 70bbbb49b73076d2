"""PATH: a run folder, or a root of runs.  And what the commands that take one say of it."""

import html
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hopscope.runs import RunFolder, seals, slim_copy

KEYS = [
    *("id", "statement", "source", "protocol", "threshold", "value", "interval", "n", "verdict", "trust"),
    *("unit", "n_counts", "words", "samples", "leaning", "here", "structural", "rule", "need"),
    *("completion", "readings", "controls", "must_not", "registration"),
]
IDS = ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P9b", "P10a", "P10b", "P11", "P12"]
VERDICTS = {"reproduced", "refuted", "inconclusive", "not run"}


@pytest.fixture
def two_runs(whole_copy, small_run):
    """A root with two runs."""
    shutil.copytree(small_run, whole_copy.parent / small_run.name)
    return whole_copy, whole_copy.parent / small_run.name


# Claims.


def test_ledger_as_json(hopscope, whole_run):
    said = hopscope("claims", whole_run, "--json")
    assert (said.status, said.err) == (0, "")
    ledger = json.loads(said.out)
    assert [claim["id"] for claim in ledger] == IDS
    assert all(list(claim) == KEYS for claim in ledger)
    assert {claim["verdict"] for claim in ledger} <= VERDICTS
    assert ledger == json.loads((whole_run / "claims.json").read_text())
    by_id = {claim["id"]: claim for claim in ledger}
    # One epoch of three seeds decides nothing, but it was run.
    assert by_id["P1"]["verdict"] == "inconclusive"
    assert by_id["P1"]["n"] == 3
    assert by_id["P11"]["verdict"] == "not run"
    assert by_id["P11"]["value"] is None


def test_ledger_as_a_table(hopscope, whole_run):
    said = hopscope("claims", whole_run)
    assert said.status == 0
    assert said.out.splitlines()[0] == f"permutation {whole_run}"
    for name in IDS:
        assert f"\n{name} " in said.out
    assert "so far" in said.out.splitlines()[-1]


def test_refuted_is_no_failure(hopscope, whole_copy):
    ledger = json.loads((whole_copy / "claims.json").read_text())
    ledger[0]["verdict"] = "refuted"
    (whole_copy / "claims.json").write_text(json.dumps(ledger))
    said = hopscope("claims", whole_copy)
    assert said.status == 0
    assert "refuted" in said.out


@pytest.mark.parametrize("where", [".", "..", "../.."])
def test_root_with_one_run(hopscope, whole_copy, where):
    (whole_copy.parents[1] / "notes.txt").write_text("foreign")
    (whole_copy.parents[1] / "another folder").mkdir()
    said = hopscope("claims", whole_copy / where, "--json")
    assert [claim["id"] for claim in json.loads(said.out)] == IDS


def test_default_root(hopscope, whole_copy, monkeypatch):
    monkeypatch.chdir(whole_copy.parents[2])
    assert hopscope("claims").out.splitlines()[0] == f"permutation runs/permutation/{whole_copy.name}"


@pytest.mark.parametrize("command", [["report"], ["export", "--member", 0, "--to", "x"]])
def test_root_with_two_runs(hopscope, two_runs, command):
    said = hopscope(command[0], two_runs[0].parents[1], *command[1:])
    assert "expected exactly one run, found 2" in said.complaint
    for run in two_runs:
        assert str(run) in said.complaint


def test_several_runs(hopscope, two_runs):
    said = hopscope("claims", *two_runs, "--json")
    entries = json.loads(said.out)
    assert [entry.pop("run") for entry in entries] == [str(run) for run in two_runs for _ in IDS]
    assert all(list(entry) == KEYS for entry in entries)
    table = hopscope("claims", *two_runs).out
    assert all(f"permutation {run}" in table for run in two_runs)
    assert [
        claim["id"] for claim in json.loads(hopscope("claims", two_runs[0], two_runs[0], "--json").out)
    ] == IDS


def test_a_root_with_several_runs_is_a_list(hopscope, two_runs):
    root = two_runs[0].parents[1]
    said = hopscope("claims", root)
    assert (said.status, said.err) == (0, "")
    headings, closing = said.out.splitlines()[::2], said.out.splitlines()[1::2]
    assert sorted(headings) == sorted(f"permutation {run}" for run in two_runs)
    assert all(line.startswith("  ") and "so far" in line for line in closing)
    entries = json.loads(hopscope("claims", root, "--json").out)
    assert len(entries) == 2 * len(IDS) and {entry["run"] for entry in entries} == set(map(str, two_runs))


def test_a_list_of_runs_goes_on_after_one_that_cannot_be_read(hopscope, two_runs):
    broken, other = two_runs
    for name in ("claims.json", "evidence.parquet", "DONE"):
        (broken / name).unlink()
    said = hopscope("claims", broken.parent)
    assert said.status == 0
    assert f"permutation {broken}\n  not finished: run the same study again\n" in said.out
    (broken / "claims.json").write_text("[")
    said = hopscope("claims", broken.parent)
    assert said.status == 2 and f"permutation {other}\n" in said.out
    assert f"{broken}: expected a finished run" in said.err and len(said.err.splitlines()) == 1


def test_unfinished_run(hopscope, whole_copy):
    for name in ("claims.json", "story.json", "DONE"):
        (whole_copy / name).unlink()
    assert "expected a finished run" in hopscope("claims", whole_copy).complaint
    assert hopscope("report", whole_copy).status == 0  # it was trained: claims, story and page are made
    assert all((whole_copy / name).is_file() for name in ("claims.json", "story.json", "DONE"))


def test_run_that_was_not_trained(hopscope, whole_copy):
    for name in ("story.json", "DONE", "units/*/DONE", "units/*/checkpoints/*"):
        for path in whole_copy.glob(name):
            path.unlink()
    said = hopscope("report", whole_copy)
    assert (said.status, said.err) == (0, "")
    page = (whole_copy / "report.html").read_text(encoding="utf-8")
    assert "This run was begun and has not come to its end." in page


@pytest.mark.parametrize("content", ["", "{", "{}", "[3]", '[{"id": "P1"}]', "\x00"])
def test_damaged_ledger(hopscope, whole_copy, content):
    path = whole_copy / "claims.json"
    whole = judged(path)
    path.write_text(content)
    said = hopscope("claims", whole_copy)
    assert said.status == 0 and "\nP1 " in said.out
    (line,) = said.err.splitlines()
    assert line.startswith(f"hopscope: {path}: made again from the evidence (")
    assert judged(path) == whole
    assert hopscope("claims", whole_copy).err == ""


def judged(path):
    """The claims of a ledger without their registration: in this process the types of functions are checked, which
    changes the source that is registered."""
    return [{**claim, "registration": None} for claim in json.loads(path.read_text())]


def test_a_ledger_that_is_gone_is_made_again_as_it_was(whole_copy):
    path = whole_copy / "claims.json"
    whole = path.read_bytes()
    path.unlink()
    command = [sys.executable, "-m", "hopscope", "claims", str(whole_copy), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    (line,) = done.stderr.splitlines()
    assert str(path) in line and "gone" in line
    assert path.read_bytes() == whole and json.loads(done.stdout) == json.loads(whole)


def test_a_damaged_ledger_without_evidence_is_one_line(hopscope, whole_copy):
    (whole_copy / "claims.json").write_text("[")
    (whole_copy / "evidence.parquet").unlink()
    assert "expected a finished run" in hopscope("claims", whole_copy).complaint
    assert (whole_copy / "claims.json").read_text() == "["


def test_a_folder_without_a_run(hopscope, tmp_path):
    assert "found no run" in hopscope("claims", tmp_path).complaint
    (tmp_path / "file").write_text("")
    assert "found a file" in hopscope("claims", tmp_path / "file").complaint


# Report.


def test_report_is_built_anew(hopscope, whole_copy):
    page = (whole_copy / "report.html").read_bytes()
    for name in ("report.html", "figures/loss.svg", "figures/loss.png"):
        (whole_copy / name).unlink()
    said = hopscope("report", whole_copy.parents[1])
    assert (said.status, said.err) == (0, "")
    assert said.out == f"{whole_copy / 'report.html'}\n"
    assert (whole_copy / "report.html").read_bytes() == page


def test_two_runs_on_one_page(hopscope, two_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = [len((run / "report.html").read_bytes()) for run in two_runs]
    assert hopscope("report", *two_runs).out == "report.html\n"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for run in two_runs:
        assert run.name in page
        assert json.loads((run / "story.json").read_text())["subtitle"] in page
    assert len(page) > max(alone)
    assert hopscope("report", *two_runs, "--to", "here.html").out == "here.html\n"
    assert (tmp_path / "here.html").read_text(encoding="utf-8") == page


def test_report_on_a_folder(hopscope, whole_copy, tmp_path):
    said = hopscope("report", whole_copy, "--to", tmp_path)
    assert str(tmp_path) in said.complaint


# A run folder without units.


@pytest.fixture
def slim(whole_copy, tmp_path):
    slim_copy(RunFolder.open(whole_copy), tmp_path / "slim")
    return tmp_path / "slim"


def test_a_slim_run_is_read_and_reported_and_its_page_says_what_is_not_there(hopscope, whole_copy, slim):
    whole, said = hopscope("claims", whole_copy, "--json"), hopscope("claims", slim, "--json")
    assert (said.status, said.out) == (0, whole.out)
    said = hopscope("report", slim)
    assert (said.status, said.err) == (0, "")
    page = (slim / "report.html").read_text(encoding="utf-8")
    words = "It has no checkpoints, attention maps and other files under <code>units/</code>"
    assert words in page and words not in (whole_copy / "report.html").read_text(encoding="utf-8")
    assert (slim / "figures" / "loss.png").is_file()


@pytest.mark.parametrize("command", [["circuit", "--member", 0], ["export", "--member", 0, "--to", "x"]])
def test_what_needs_checkpoints_asks_for_the_whole_run(hopscope, slim, command):
    complaint = hopscope(command[0], slim, *command[1:]).complaint
    assert "expected a run with its checkpoints" in complaint and "make the run again" in complaint


# Export.


def test_export(hopscope, whole_run, tmp_path):
    import torch

    from hopscope import load_member, load_module

    said = hopscope("export", whole_run, "--member", 4, "--to", tmp_path / "member")
    assert (said.status, said.out, said.err) == (0, f"{tmp_path / 'member'}\n", "")
    module = load_module(tmp_path / "member")
    tokens = torch.tensor(
        [[1, 2, 3, 4, 5, 1, 2, 3, 4], [5, 5, 4, 4, 3, 3, 2, 2, 1], [3, 1, 3, 1, 3, 1, 3, 1, 3]]
    )
    with torch.no_grad():
        logits = module(tokens)
        expected = load_member(whole_run, 4)(tokens)
    assert logits.shape == (3, 9, 6)
    assert torch.equal(logits, expected)
    assert bool(logits.isfinite().all())
    origin = json.loads((tmp_path / "member" / "config.json").read_text())["origin"]
    record = json.loads((whole_run / "members.json").read_text())[4]
    assert origin["run"] == whole_run.name
    assert (origin["member"], origin["seed"], origin["step"]) == (4, record["seed"], 24)


def test_export_of_an_earlier_checkpoint(hopscope, whole_run, tmp_path):
    import torch

    from hopscope import load_member, load_module

    tokens = torch.tensor([[1, 2, 3, 4, 5, 1, 2, 3, 4]])
    assert hopscope("export", whole_run, "--member", 0, "--checkpoint", 8, "--to", tmp_path / "a").status == 0
    with torch.no_grad():
        found = load_module(tmp_path / "a")(tokens)
        assert torch.equal(found, load_member(whole_run, 0, 8)(tokens))
        assert not torch.equal(found, load_member(whole_run, 0)(tokens))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--member", 6], ["member", "0 to 5", "found 6", "members.json"]),
        (["--member", -1], ["member", "0 to 5", "found -1"]),
        (["--member", 0, "--checkpoint", 3], ["step 3", "found steps 0, 1, 2, 4, 8, 10, 16"]),
    ],
)
def test_export_of_what_is_not_there(hopscope, whole_run, tmp_path, arguments, words):
    complaint = hopscope("export", whole_run, *arguments, "--to", tmp_path / "x").complaint
    assert all(word in complaint for word in words)
    assert not (tmp_path / "x").exists()


def test_export_onto_something_else(hopscope, whole_run, tmp_path):
    (tmp_path / "file").write_text("foreign")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("foreign")
    for name in ("file", "folder"):
        said = hopscope("export", whole_run, "--member", 0, "--to", tmp_path / name)
        assert str(tmp_path / name) in said.complaint
    assert (tmp_path / "file").read_text() == "foreign"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.tex"]


def test_damaged_checkpoint_is_not_exported(hopscope, whole_copy, tmp_path):
    for path in whole_copy.rglob("step-000000016.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    complaint = hopscope("export", whole_copy, "--member", 0, "--to", tmp_path / "x").complaint
    assert "expected a whole checkpoint" in complaint
    assert not (tmp_path / "x").exists()


# Many runs.


@pytest.fixture
def reads(monkeypatch):
    """How often each file of a record is read, by name."""
    counts = Counter()
    original, grown = Path.read_bytes, seals._grown

    def counted(path):
        content = original(path)
        counts[path.name] += 1
        return content

    def counted_seal(path, *given):
        counts[path.name] += 1
        return grown(path, *given)

    monkeypatch.setattr(Path, "read_bytes", counted)
    monkeypatch.setattr(seals, "_grown", counted_seal)  # which reads what was appended
    return counts


@pytest.mark.parametrize("command", [["claims"], ["report", "--index"]])
def test_a_list_reads_each_record_once(hopscope, two_runs, reads, command):
    """Of a thousand runs every further look at a file is seconds."""
    assert hopscope(*command, two_runs[0].parents[1]).status == 0
    records = {name: count for name, count in reads.items() if not name.startswith("index")}
    assert records == {"config.json": 2, "claims.json": 2, "seals.jsonl": 2}


def test_an_index_lists_every_run_and_leads_to_its_page(hopscope, two_runs):
    root = two_runs[0].parents[1]
    (two_runs[1] / "report.html").unlink()
    said = hopscope("report", "--index", root)
    assert (said.status, said.err, said.out) == (0, "", f"{root / 'index.html'}\n")
    page = (root / "index.html").read_text(encoding="utf-8")
    assert f'<a href="permutation/{two_runs[0].name}/report.html">' in page
    assert f"<td>{two_runs[1]}</td>" in page and "2 runs" in page
    for run in two_runs:
        closing = hopscope("claims", run).out.splitlines()[-1]
        assert all(f">{part}</span>" in page for part in closing.split(" · "))
    assert "<script" not in page and "default-src 'none'" in html.unescape(page)


def test_an_index_from_elsewhere_leads_there_too(hopscope, two_runs, tmp_path):
    (tmp_path / "a b").mkdir()
    assert hopscope("report", *two_runs, "--index", "--to", tmp_path / "a b" / "i.html").status == 0
    page = (tmp_path / "a b" / "i.html").read_text(encoding="utf-8")
    assert f'<a href="../runs/permutation/{two_runs[0].name}/report.html">' in page


@pytest.mark.parametrize("name", ["config.json", "claims.json"])
def test_a_run_that_cannot_be_read_stands_in_the_list(hopscope, two_runs, name):
    broken, other = two_runs
    root = broken.parents[1]
    for gone in ("claims.json", "evidence.parquet"):
        (broken / gone).unlink()
    (broken / name).write_text('{"<u>": 2}' if name == "config.json" else "[")
    lacks = "no configuration" if name == "config.json" else "no ledger"
    said = hopscope("claims", root)
    assert said.status == 2 and f"{broken}\n  {lacks} that can be read\n" in said.out
    assert f"permutation {other}\n" in said.out and len(said.err.splitlines()) == 1
    said = hopscope("report", "--index", root)
    page = (root / "index.html").read_text(encoding="utf-8")
    assert said.status == 2 and str(broken) in said.err
    assert f"{lacks} that can be read" in page and other.name in page and "<u>" not in page


def test_a_report_draws_nothing_twice_and_leaves_the_record(hopscope, whole_copy, monkeypatch):
    before = (whole_copy / "seals.jsonl").read_bytes()
    monkeypatch.setattr("vl_convert.vegalite_to_svg", None)  # to draw would be a fault
    monkeypatch.setattr("vl_convert.svg_to_png", None)
    assert hopscope("report", whole_copy).status == 0
    assert (whole_copy / "seals.jsonl").read_bytes() == before
