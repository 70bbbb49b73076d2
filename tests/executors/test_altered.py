"""Altered records: no byte changes a number without a word.

Every row here once ended with another number and exit status 0.
"""

import json
import random
from pathlib import Path

import pytest

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.seals import SEALS
from hopscope.training.config import job_of

pytestmark = pytest.mark.usefixtures("units_here")


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record, indent=1))


PLAN = {
    "learning rate": lambda record: record["plan"]["training"].update(learning_rate=0.7),
    "seed": lambda record: record["plan"]["members"][0].update(seed=11),
    "engine": lambda record: record["layout"].update(engine="general"),
    "invalid": lambda record: record["plan"]["training"].update(steps=-3),
    "a list": lambda record: record.update(plan=[2, 3]),
}


@pytest.mark.parametrize("change", PLAN.values(), ids=PLAN)
def test_a_unit_that_says_another_thing_than_its_name_is_not_trained(unfinished, refusal, change):
    (path,) = unfinished.glob("units/*/unit.json")
    edit(path, change)
    assert f"{path}: expected" in refusal()


@pytest.mark.parametrize("name", [name for name in PLAN if name != "engine"])
def test_nor_is_one_from_before_there_were_seals(unfinished, rerun, name):
    (path,) = unfinished.glob("units/*/unit.json")
    (path.parent / SEALS).unlink()
    edit(path, PLAN[name])
    with pytest.raises(UserError, match=r"unit\.json: expected the plan that the unit is named after"):
        job_of(RunFolder(unfinished).units[0])
    ended = rerun()
    assert ended.status == 2 and "named after" in ended.complaint
    assert not list(unfinished.glob("units/*/analysis/*"))


@pytest.mark.parametrize(
    ("place", "finished", "sealed"),
    [
        (0, True, True),
        (2, True, True),
        (-1, True, True),
        (2, False, True),
        (2, True, False),
        (-1, False, False),
    ],
)
def test_a_missing_part_of_the_training_record_is_trained_anew(
    copy, finished, place, sealed, rerun, processes_module, expected
):
    (unit,) = (copy / "units").iterdir()
    if not finished:
        (copy / "DONE").unlink()
        (unit / "DONE").unlink()
        (copy / "metrics.parquet").unlink()
    if not sealed:
        (unit / SEALS).unlink()
    sorted((unit / "metrics").iterdir())[place].unlink()
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert "expected the training record of every step" in ended.stderr
    assert "starting from the beginning" in ended.stderr
    assert processes_module.record(copy) == expected


DERIVED = ["metrics.parquet", "evidence.parquet", "claims.json", "story.json", "figures/*.csv", "figures/*.vl.json",
           "figures/*.svg", "report.html", "units/*/analysis/*.npz", "units/*/metrics/part-000000003-*"]  # fmt: skip


@pytest.mark.parametrize("pattern", DERIVED)
def test_a_turned_bit_is_healed_with_a_word(copy, pattern, rerun, processes_module, expected):
    path = min(copy.glob(pattern))
    content = bytearray(path.read_bytes())
    place = random.Random(pattern).randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert str(path) in ended.stderr
    assert processes_module.record(copy) == expected


@pytest.mark.parametrize("name", ["config.json", "members.json", "registration.json"])
def test_what_nothing_gives_back_is_refused(copy, name, here):
    path = copy / name
    text = path.read_text()
    path.write_text(text.replace("repeats", "repeatz", 1) if "repeats" in text else text.replace("1", "2", 1))
    (copy / "claims.json").unlink()
    ended = here("claims", copy)
    assert ended.status == 2
    assert f"{path}: expected" in ended.complaint


def test_rules_that_were_altered_or_deleted_are_missed_before_training(unfinished, refusal, processes_module):
    path = unfinished / "registration.json"
    path.write_text(path.read_text().replace("repeats", "repeatz", 1))
    before = processes_module.record(unfinished)
    assert f"{path}: expected the content that was written" in refusal()
    path.unlink()
    assert f"{path}: expected the rules that were registered before training" in refusal()
    assert processes_module.record(unfinished) == {
        name: digest for name, digest in before.items() if name != "registration.json"
    }


def test_rules_that_were_deleted_once_a_run_was_judged_are_told(copy, rerun):
    (copy / "registration.json").unlink()
    (copy / "DONE").unlink()
    ended = rerun()
    assert ended.status == 0
    assert (
        f"{copy / 'registration.json'}: expected the rules that were registered before training"
        in ended.stderr
    )
    claims = json.loads((copy / "claims.json").read_text())
    assert all("registration.json was deleted" in claim["registration"]["words"] for claim in claims)


def test_an_empty_ledger_is_made_again(copy, here):
    before = here("claims", copy, "--json").stdout
    (copy / SEALS).unlink()  # as in a run from before
    (copy / "claims.json").write_text("[]\n")
    ended = here("claims", copy, "--json")
    assert ended.status == 0 and "made again from the evidence" in ended.stderr
    assert json.loads(ended.stdout) == json.loads(before)


def test_a_deleted_last_checkpoint_is_said(copy, here):
    last = max(copy.glob("units/*/checkpoints/*.safetensors"))
    last.unlink()
    for command in (
        ["circuit", copy, "--member", 0],
        ["export", copy, "--member", 0, "--to", copy / "model"],
    ):
        ended = here(*command)
        assert ended.status == 2
        assert "expected the checkpoint of the last step 8, found it gone" in ended.complaint


def test_a_deleted_earlier_checkpoint_is_said_by_the_command(copy, rerun):
    (path,) = copy.glob("units/*/checkpoints/step-000000001.safetensors")
    path.unlink()
    ended = rerun()
    assert ended.status == 0
    assert (
        f"{path.parent}: expected the checkpoints of every interval, found those of steps 1 gone"
        in ended.stderr
    )


@pytest.mark.parametrize("unit", ["../../../outside", "/tmp", "a/b", "..", "", "a\nb"])
def test_no_unit_lies_outside_its_run(copy, here, unit, tmp_path):
    (copy / SEALS).unlink()
    edit(copy / "members.json", lambda members: [member.update(unit=unit) for member in members])
    before = sorted(Path(tmp_path).rglob("*"))
    for command in (["circuit", copy], ["export", copy, "--to", tmp_path / "model"]):
        ended = here(*command, "--member", 0)
        assert ended.status == 2
        assert "members.json: expected a list of members" in ended.complaint
    assert sorted(Path(tmp_path).rglob("*")) == before


def test_a_seal_that_names_files_elsewhere_costs_nobody_a_file(copy, rerun, processes_module, expected):
    thesis = copy.parents[1] / "thesis.txt"
    thesis.write_text("chapter 1")
    (unit,) = (copy / "units").iterdir()
    for folder, name in ((copy, "../../thesis.txt"), (unit, "../../../../thesis.txt"), (copy, "x" * 300)):
        with (folder / SEALS).open("a") as file:
            file.write(json.dumps({"file": name, "sha256": "2" * 64}) + "\n")
    ended = rerun()
    assert ended.status == 0 and "thesis" not in ended.stderr
    assert thesis.read_text() == "chapter 1"
    assert processes_module.record(copy) == expected
