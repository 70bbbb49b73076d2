"""Seals: what was written is read, and nothing else."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopscope.runs import seals
from hopscope.runs.files import FileAltered, read_bytes, seal, write_atomic
from hopscope.runs.seals import SEALS, altered, begin, missing


@pytest.fixture
def folder(tmp_path):
    begin(tmp_path / "run")
    return tmp_path / "run"


def noted(folder):
    return [json.loads(line)["file"] for line in (folder / SEALS).read_text().splitlines()]


def test_what_is_written_is_read_and_noted_once(folder):
    path = folder / "figures" / "loss.csv"
    for content in (b"2,3", b"2,3", b"5,7"):
        write_atomic(path, content)
        assert read_bytes(path, "mend") == content
    assert noted(folder) == ["figures/loss.csv", "figures/loss.csv"]
    assert altered(folder) == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 8 * 11 - 1))
def test_no_bit_can_be_turned(folder, place):
    path = folder / "claims.json"
    write_atomic(path, b"[2, 3, 5] 7")
    content = bytearray(path.read_bytes())
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    with pytest.raises(FileAltered, match=r"claims\.json: expected the content that was written .* mend"):
        read_bytes(path, "mend")
    assert altered(folder) == [path]


def test_a_process_that_is_killed_between_note_and_file_leaves_what_was_there(folder):
    path = folder / "claims.json"
    write_atomic(path, b"old")
    seals.note(path, b"new")
    assert read_bytes(path, "") == b"old"
    write_atomic(path, b"newer")
    assert read_bytes(path, "") == b"newer"


def test_a_line_that_was_cut_short_seals_nothing_and_spoils_no_other(folder):
    write_atomic(folder / "one.json", b"2")
    with (folder / SEALS).open("ab") as file:
        file.write(b'{"file": "two.json", "sha')
    write_atomic(folder / "three.json", b"3")
    (folder / "two.json").write_bytes(b"5")
    assert [read_bytes(folder / name, "") for name in ("one.json", "three.json")] == [b"2", b"3"]
    with pytest.raises(FileAltered):
        read_bytes(folder / "two.json", "")


def test_every_line_that_is_damaged_is_noticed(folder):
    path = folder / "claims.json"
    write_atomic(path, b"2")
    whole = (folder / SEALS).read_bytes()
    for place in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (folder / SEALS).write_bytes(damaged)
        try:
            assert read_bytes(path, "") == b"2"
        except FileAltered:
            continue
        # What still reads names the same file and the same digest.
        assert json.loads(damaged)["file"] == "claims.json"


def test_a_file_that_nobody_wrote_is_refused(folder):
    (folder / "claims.json").write_bytes(b"[]")
    with pytest.raises(FileAltered):
        read_bytes(folder / "claims.json", "")


def test_logs_checkpoints_and_drawings_look_after_themselves(folder):
    names = (
        "events.jsonl",
        "step-000000007.safetensors",
        "figures/loss.svg",
        "figures/loss.png",
        "report.html",
    )
    (folder / "figures").mkdir()
    for name in names:
        (folder / name).write_bytes(b"2")
        assert read_bytes(folder / name, "") == b"2"
        write_atomic(folder / name, b"3")
    assert noted(folder) == []


def test_notes_on_drawings_from_before_they_were_left_out_say_nothing(folder):
    (folder / SEALS).write_text(json.dumps({"file": "loss.svg", "sha256": "2" * 64}) + "\n")
    (folder / "loss.svg").write_bytes(b"3")
    assert altered(folder) == []
    assert read_bytes(folder / "loss.svg", "") == b"3"


def test_folders_without_a_seal_are_read_unchecked(tmp_path):
    write_atomic(tmp_path / "claims.json", b"2")
    (tmp_path / "claims.json").write_bytes(b"3")
    assert read_bytes(tmp_path / "claims.json", "") == b"3"
    assert altered(tmp_path) == []


def test_a_units_files_are_noted_by_the_unit_or_by_nobody(folder):
    old, new = folder / "units" / "a", folder / "units" / "b"
    seal(new)
    for unit in (old, new):
        write_atomic(unit / "analysis" / "one.json", b"2")
    assert (noted(folder), noted(new)) == ([], ["analysis/one.json"])
    (old / "analysis" / "one.json").write_bytes(b"3")
    assert read_bytes(old / "analysis" / "one.json", "") == b"3"


def test_a_disk_that_is_full_while_noting_writes_nothing(folder, monkeypatch):
    write_atomic(folder / "claims.json", b"2")
    monkeypatch.setattr("hopscope.runs.lines.os.write", lambda descriptor, content: len(content) - 1)
    with pytest.raises(Exception, match="free some disk space"):
        write_atomic(folder / "claims.json", b"3")
    assert (folder / "claims.json").read_bytes() == b"2"


def test_what_was_noted_and_is_gone_is_missing(folder):
    assert missing(folder) == []
    for name in ("a.json", "b.json"):
        write_atomic(folder / name, name)
    (folder / "a.json").unlink()
    assert missing(folder) == [folder / "a.json"]


@pytest.mark.parametrize("name", ["../../thesis.txt", "/{outside}", "a/../../../thesis.txt", "{outside}"])
def test_a_seal_that_names_a_file_outside_names_nothing(tmp_path, name):
    folder, outside = tmp_path / "study" / "run", tmp_path / "thesis.txt"
    begin(folder)
    outside.write_text("mine")
    name = name.format(outside=outside)
    (folder / SEALS).write_text(json.dumps({"file": name, "sha256": "2" * 64}) + "\n")
    assert altered(folder) == missing(folder) == []


def test_a_file_that_a_link_leads_out_to_is_not_taken_for_one_of_the_folder(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.txt").write_text("mine")
    (folder / "figures").symlink_to(tmp_path / "elsewhere")
    (folder / SEALS).write_text(json.dumps({"file": "figures/thesis.txt", "sha256": "2" * 64}) + "\n")
    assert altered(folder) == []


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000 + "b", "\ud800", "a\0b", "DONE/b", ""])
def test_a_name_that_no_file_can_have_is_passed_over(folder, name):
    write_atomic(folder / "DONE", b"")
    with (folder / SEALS).open("a") as file:
        file.write(json.dumps({"file": name, "sha256": "2" * 64}) + "\n")
    assert altered(folder) == []
    assert missing(folder) in ([], [folder / "DONE" / "b"])
    assert read_bytes(folder / "DONE", "") == b""


@pytest.fixture
def parsed(monkeypatch):
    """Lengths of what was parsed."""
    lengths, parse = [], seals.parse_json
    monkeypatch.setattr(seals, "parse_json", lambda text: lengths.append(len(text)) or parse(text))
    return lengths


def test_what_was_read_of_a_seal_is_not_read_again(folder, parsed):
    for number in range(97):
        write_atomic(folder / f"{number}.json", b"2")
        assert read_bytes(folder / f"{number}.json", "") == b"2"
    assert len(seals._read) <= seals._MOST and [path for path in seals._read if path.parent == folder]
    assert sum(parsed) < 2 * (folder / SEALS).stat().st_size
    # A line without an end is not read at every look either.
    with (folder / SEALS).open("ab") as file:
        file.write(b'{"file": "torn.json", "sha')
    parsed.clear()
    for number in range(97):
        assert read_bytes(folder / f"{number}.json", "") == b"2"
    assert sum(parsed) < 200


@pytest.mark.parametrize("anew", [True, False], ids=["another file", "the same file"])
def test_a_seal_that_was_edited_is_read_anew(folder, anew):
    for name in ("a.json", "b.json"):
        write_atomic(folder / name, b"2")
    seal = folder / SEALS
    first, second = seal.read_text().splitlines(keepends=True)
    edited = (first.replace("a.json", "longer.json"), first.replace("a.json", "c.json"), second)
    if anew:
        seal.unlink()
    seal.write_text("".join(edited))
    assert missing(folder) == [folder / "longer.json", folder / "c.json"]
    with pytest.raises(FileAltered):
        read_bytes(folder / "a.json", "")
    seal.write_text(second)
    assert missing(folder) == []
    with pytest.raises(FileAltered):
        read_bytes(folder / "a.json", "")


def test_a_line_that_is_seen_half_written_counts_once_it_is_whole(folder):
    write_atomic(folder / "a.json", b"2")
    line = (folder / SEALS).read_bytes().replace(b"a.json", b"b.json")
    for part in (line[:20], line[20:-1], line[-1:]):
        with (folder / SEALS).open("ab") as file:
            file.write(part)
        assert missing(folder) == ([] if part == line[:20] else [folder / "b.json"])
