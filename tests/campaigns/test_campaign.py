"""A small study in two slices on two machines' worth of folders, beside the same study in one go."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.runs import RunFolder, load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
RESERVE = 400.0
LIMITS = {"files": 3, "file_mib": 0.75, "total_mib": 2.5}


@pytest.fixture(scope="module")
def first_pack(campaign, packing, processes_module, tmp_path_factory):
    """What a slice left that ended after its first interval."""
    folder = tmp_path_factory.mktemp("first")
    study, *passed = map(str, processes_module.SMALL)
    slice_ = ["--slice", "500", "--reserve", str(RESERVE)]
    places = ["--out", str(folder / "runs"), "--pack", str(folder / "pack")]
    options, passed = campaign.read_options([study, *places, *slice_, *passed])
    # Half a second is left: less than a worker takes to begin.
    began = time.monotonic() - (options.slice - RESERVE - 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        status, complaint = campaign.run_slice(options, passed, began)
    assert (status, complaint) == (campaign.GOES_ON, "")
    provenance = campaign.provenance_of(status, complaint, began)
    packing.pack(options.out, options.pack, packing.Limits(**LIMITS), 1, provenance)
    shutil.rmtree(options.out)
    return options.pack


@pytest.fixture(scope="module")
def second_pack(first_pack, processes_module, tmp_path_factory):
    """What the slice after it left, somewhere else: the end of the run."""
    folder = tmp_path_factory.mktemp("second")
    command = [sys.executable, ROOT / "campaigns" / "run.py", *processes_module.SMALL]
    command += ["--slice", "500", "--from", first_pack, "--out", folder / "runs", "--pack", folder / "pack"]
    done = subprocess.run(map(str, command), capture_output=True, text=True, check=False, timeout=480)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder / "pack")
    return folder / "pack"


@pytest.fixture
def unpacked(packing, second_pack, tmp_path):
    """The finished run, unpacked."""
    (run,) = packing.unpack(second_pack, tmp_path / "runs")
    return RunFolder.open(tmp_path / "runs" / run)


def hopscope(*arguments):
    command = [sys.executable, "-m", "hopscope", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.extras
def test_a_slice_leaves_what_the_next_one_needs(first_pack):
    provenance = json.loads((first_pack / "provenance.json").read_text())
    assert provenance["state"] == "goes on"
    assert provenance["source_hash"] and provenance["versions"]["torch"]
    contents = provenance["contents"]
    assert len(contents["resumable"]) == 1 and contents["restarting"] == contents["weights"] == []
    kinds = {Path(name).suffix for name in contents["names"]}
    assert kinds == {".json", ".jsonl", ".parquet", ".safetensors"}
    (checkpoint,) = [name for name in contents["names"] if name.endswith(".safetensors")]
    assert "step-000000000" not in checkpoint


@pytest.mark.extras
def test_slices_end_where_one_go_does(unpacked, small_run):
    whole = RunFolder.open(small_run)
    assert unpacked.is_done and unpacked.hash == whole.hash
    same = ["config.json", "members.json", "metrics.parquet", "claims.json", "DONE"]
    same += [str(path.relative_to(small_run)) for path in small_run.glob("units/*/analysis/*")]
    assert any("analysis" in name for name in same)
    for name in same:
        assert (unpacked.path / name).read_bytes() == (small_run / name).read_bytes(), name
    starts = [event["kind"] for event in unpacked.events()].count("unit started")
    assert starts == 2


@pytest.mark.extras
def test_weights_travel_with_fewer_digits(unpacked, small_run):
    (unit,) = unpacked.units
    (full,) = RunFolder.open(small_run).units
    (step, path), *others = unit.checkpoints()
    assert (step, others) == (8, [])
    found, metadata = load_checkpoint(path)
    expected, _ = load_checkpoint(full.checkpoint_path(8))
    weights = {name for name in expected if name.startswith("weights/")}
    assert set(found) == set(metadata["rounded"]) == weights
    for name in weights:
        assert found[name].dtype == np.float16
        np.testing.assert_allclose(found[name], expected[name], rtol=2.0**-11, atol=1e-7)
    note = json.loads((unit.path / "thinned.json").read_text())
    assert note == {"schema_version": 1, "rounded": [8], "left_out": [0, 1, 2, 4], "frozen": []}


@pytest.mark.extras
def test_claims_and_page_come_from_a_pack(unpacked):
    ledger = hopscope("claims", unpacked.path, "--json")
    assert (ledger.returncode, ledger.stderr) == (0, "")
    assert json.loads(ledger.stdout)
    page = hopscope("report", unpacked.path)
    assert page.returncode == 0, page.stderr
    assert (unpacked.path / "report.html").stat().st_size > 10_000


@pytest.mark.extras
def test_what_was_left_out_on_purpose_is_not_trained_again(packing, unpacked, processes_module, tmp_path):
    bare = tmp_path / "bare"
    packed = packing.pack(unpacked.path.parents[1], bare, packing.Limits(), 0, {})
    assert packed.weights == [] and packed.left_out == 1
    (run,) = packing.unpack(bare, tmp_path / "again")
    run = RunFolder.open(tmp_path / "again" / run)
    assert not list(run.path.rglob("*.safetensors"))
    before = len(run.events())
    ended = hopscope("run", *processes_module.SMALL, "--out", tmp_path / "again")
    assert ended.returncode == 0, ended.stderr
    assert len(run.events()) == before
    assert (run.path / "report.html").is_file()
    note = json.loads((run.units[0].path / "thinned.json").read_text())
    assert note["left_out"] == [0, 1, 2, 4, 8]


# Packs.


def made_up(root, units=1, size=11, done=True):
    """A run whose units have checkpoints of three steps with so many random numbers each."""
    from hopscope.runs import save_checkpoint

    hashes = [f"{n:012x}" for n in range(units)]
    members = [
        {"member": n, "unit": unit, "index": 0, "seed": n, "overrides": {}} for n, unit in enumerate(hashes)
    ]
    run = RunFolder.create(root, "permutation", {"seeds": units}, members, None)
    generator = np.random.default_rng(7)
    for unit in (run.unit(each) for each in hashes):
        unit.create({"label": "made up"})
        for step in (0, 5, 9):
            numbers = generator.normal(size=(1, size)).astype(np.float32)
            tensors = {"weights/x": numbers, "optimiser/first_moment": numbers * 2}
            save_checkpoint(unit.checkpoint_path(step), tensors, {"step": step, "frozen_at": [3]})
        if done:
            unit.mark_done()
    return run


def test_parts_keep_to_the_limits_and_are_filled_in_order(packing, tmp_path):
    made_up(tmp_path / "runs", units=7, size=110_000)
    limits = packing.Limits(files=4, file_mib=0.5, total_mib=9.0)
    packed = packing.pack(tmp_path / "runs", tmp_path / "pack", limits, 3, {"state": "finished"})
    files = {path.name: path.stat().st_size for path in (tmp_path / "pack").iterdir()}
    assert sorted(files) == ["pack.tar.gz.0", "pack.tar.gz.1", "pack.tar.gz.2", "provenance.json"]
    assert max(files.values()) <= packing.MIB // 2
    # Seven last checkpoints of 0.2 MiB each fit 1.5 MiB, no others do.
    assert len(packed.weights) == 7 and packed.left_out == 14
    names = [name for name in packed.names if name.endswith(".safetensors")]
    assert {Path(name).name for name in names} == {"step-000000009.safetensors"}
    assert packing.Limits(files=8, file_mib=16, total_mib=60).room == 59 * packing.MIB


def test_more_checkpoints_are_spread_over_training(packing, tmp_path):
    made_up(tmp_path / "runs", units=2)
    packed = packing.pack(tmp_path / "runs", tmp_path / "pack", packing.Limits(), 2, {})
    kept = [Path(name).name for name in packed.names if name.endswith(".safetensors")]
    assert kept == ["step-000000000.safetensors", "step-000000009.safetensors"] * 2
    assert packed.left_out == 2
    assert packing._spread([3, 4, 5, 6, 7], 3) == [7, 5, 3]
    assert packing._spread([3, 4], 5) == [4, 3] and packing._spread([], 2) == []


def test_a_state_that_does_not_fit_begins_again(packing, tmp_path):
    run = made_up(tmp_path / "runs", units=2, size=200_000, done=False)
    limits = packing.Limits(files=3, file_mib=1.0, total_mib=4.0)
    packed = packing.pack(tmp_path / "runs", tmp_path / "pack", limits, 1, {})
    assert packed.resumable == [run.units[0].hash] and packed.restarting == [run.units[1].hash]
    (path,) = packing.unpack(tmp_path / "pack", tmp_path / "there")
    first, second = RunFolder.open(tmp_path / "there" / path).units
    step, tensors, _ = first.resume_point()
    assert step == 9 and tensors["optimiser/first_moment"].dtype == np.float32
    assert second.resume_point() is None


@pytest.mark.parametrize("what", ["no run", "too large", "a pack there", "damaged", "a run there", "no pack"])
def test_what_cannot_be_packed_or_unpacked_is_one_clear_line(packing, tmp_path, what):
    root, to = tmp_path / "runs", tmp_path / "pack"
    if what != "no run":
        run = made_up(root)
        noise = np.random.default_rng(11).bytes(packing.MIB)
        (run.path / "claims.json").write_bytes(noise if what == "too large" else b"[]")
    limits = packing.Limits(files=2, file_mib=0.5, total_mib=9.0)
    words = {
        "no run": "expected runs, found none",
        "too large": r"expected records of at most 0\.5 MiB, found 1\.0 MiB; .*--total-mib",
        "a pack there": "expected a folder without a pack",
        "damaged": "expected parts with SHA-256 .*; copy it again",
        "a run there": "expected no run there yet",
        "no pack": "expected a pack, found",
    }[what]
    if what in ("a pack there", "damaged", "a run there"):
        packing.pack(root, to, limits, 1, {})
    if what == "damaged":
        part = to / "pack.tar.gz.0"
        part.write_bytes(part.read_bytes()[:-3])
    with pytest.raises(UserError, match=words) as raised:
        if what in ("damaged", "a run there", "no pack"):
            packing.unpack(to, root if what == "a run there" else tmp_path / "there")
        else:
            packing.pack(root, to, limits, 1, {})
    assert "\n" not in str(raised.value)


# The machine.


@pytest.fixture
def paths(monkeypatch):
    """The search path, put back afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")


def test_wheels_are_carried(campaign, tmp_path, paths):
    wheel = tmp_path / "hopscope_tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hopscope_tiny.py", "VALUE = 7\n")
        archive.writestr(
            "hopscope_tiny-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: hopscope-tiny\nVersion: 1.0\n",
        )
        archive.writestr(
            "hopscope_tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("hopscope_tiny-1.0.dist-info/RECORD", "")
    campaign.add_wheels(tmp_path)
    command = [sys.executable, "-c", "import hopscope_tiny, hopscope; print(hopscope_tiny.VALUE)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "7\n", done.stderr


@pytest.mark.parametrize(
    ("folder", "words"),
    [(None, "found no hopscope_absent; install them, or carry"), ("empty", "wheels: expected a folder with")],
)
def test_what_a_machine_lacks_is_one_clear_line(
    campaign, tmp_path, paths, monkeypatch, capsys, folder, words
):
    monkeypatch.setattr(campaign, "NEEDED", ("torch", "hopscope_absent"))
    options = [] if folder is None else ["--wheels", str(tmp_path / folder)]
    assert campaign.main(["permutation", "--slice", "9", "--pack", str(tmp_path / "pack"), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("campaign: ") and words in said and said.count("\n") == 1
    assert not (tmp_path / "pack").exists()


def test_a_slice_without_time_is_refused(campaign, tmp_path):
    options, passed = campaign.read_options(
        ["depth", "--slice", "60", "--pack", str(tmp_path), "--preset", "paper", "--width", "7"]
    )
    assert passed == ["--preset", "paper", "--width", "7"]
    with pytest.raises(campaign.Refused, match="expected more than 45 s after the start, found 30"):
        campaign.run_slice(options, passed, time.monotonic() - 30.0)


def _link(archive):
    entry = tarfile.TarInfo("depth/aaaa/config.json")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(entry)


def _named(name):
    def add(archive):
        entry = tarfile.TarInfo(name)
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))

    return add


@pytest.mark.parametrize(
    "add", [_link, _named("config.json"), _named("../a/b/config.json"), _named("/a/b/c/config.json"), None]
)
def test_no_entry_of_a_pack_leaves_its_root(packing, tmp_path, add):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        if add is not None:
            add(archive)
    data = content.getvalue() if add is not None else b"no archive"
    write_pack(tmp_path / "pack", data)
    with pytest.raises(UserError, match=r"pack: expected (files|an archive) of runs"):
        packing.unpack(tmp_path / "pack", tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("**/*"))


def write_pack(folder, data, **changes):
    """A pack of one part, whose record may say something else."""
    folder.mkdir()
    (folder / "pack.tar.gz.0").write_bytes(data)
    note = {"parts": ["pack.tar.gz.0"], "sha256": hashlib.sha256(data).hexdigest(), **changes}
    (folder / "provenance.json").write_text(
        json.dumps({key: value for key, value in note.items() if value is not None})
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": None}, {"parts": None}, {"parts": 7}, {"parts": [7]}, {"parts": ["../../etc/passwd"]},
        {"parts": ["/dev/zero"]}, {"parts": ["pack.tar.gz.0", "provenance.json"]}, {"sha256": "a\nb"},
    ],
)  # fmt: skip
def test_a_record_of_a_pack_names_parts_of_the_pack_alone(packing, tmp_path, changes):
    write_pack(tmp_path / "pack", b"no archive", **changes)
    with pytest.raises(UserError, match=r"pack: expected (a pack|parts with SHA-256)") as caught:
        packing.unpack(tmp_path / "pack", tmp_path / "runs")
    assert "\n" not in str(caught.value)


def test_a_header_of_a_pack_cannot_ask_for_any_amount_of_memory(packing, tmp_path):
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.XHDTYPE, 256 << 20
    zeros = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(256 << 20), 1)
    write_pack(tmp_path / "pack", zeros)
    tracemalloc.start()
    try:
        with pytest.raises(
            UserError, match=r"expected an archive of runs, found a part of .* where a MiB is the most"
        ):
            packing.unpack(tmp_path / "pack", tmp_path / "runs")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_the_record_of_a_pack_may_be_nested_as_it_will(packing, tmp_path):
    write_pack(tmp_path / "pack", b"")
    (tmp_path / "pack" / "provenance.json").write_bytes(b"[" * 20_000)
    with pytest.raises(UserError, match="expected a pack, found nested too deeply"):
        packing.unpack(tmp_path / "pack", tmp_path / "runs")
