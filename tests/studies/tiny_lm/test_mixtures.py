"""Mixtures that a run may have beside uniform and Zipf's: of a text, and the control's; from option to page."""

import json

import pytest
from pydantic import ValidationError
from tests.story.user_run import texts
from tests.studies.stories import table

from hopscope.claims import Verdict
from hopscope.claims.wording import remarks
from hopscope.cli.run import read_options
from hopscope.errors import UserError
from hopscope.language.corpus.file import StepCounts
from hopscope.runs import content_hash
from hopscope.studies import find_study
from hopscope.studies.tiny_lm.config import PRESETS, TinyLmConfig, jobs

from .made_up import diverged, judged, members_of, presented, record

TEXT = "Anna knows Bert. Bert paints ships. Ships need tar. Anna tar. Bert tar. Anna ships."
COUNTS = StepCounts(text="ships.txt", tokens=29, counts=(7, 0, 5, 3))


def options(*words):
    return read_options(find_study("tiny-lm"), [str(word) for word in words])[1]


# The options.


def test_a_run_without_them_has_its_mixtures_alone():
    for config in (*PRESETS.values(), options(), options("--corpus", "None")):
        assert list(config.drawn) == list(config.mixtures)
        assert [each.task.mixture for each in jobs(config)] == [each.label for each in jobs(config)]


def test_a_file_is_read_once_and_its_numbers_are_on_record(tmp_path):
    file = tmp_path / "ships.txt"
    file.write_text(TEXT, encoding="utf-8")
    config = options("--corpus", file, "--control", "--depths", 1, 2, 3)
    file.unlink()
    assert record(config)["corpus"] == {"text": "ships.txt", "tokens": 14, "counts": [2, 3, 1, 0, 0]}
    assert record(config)["control"] is True
    again = TinyLmConfig.model_validate(json.loads(json.dumps(record(config))))
    assert again == config
    assert [record(each) for each in jobs(again)] == [record(each) for each in jobs(config)]


def test_from_python_a_path_does_too(tmp_path):
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    expected = StepCounts(text="text", tokens=14, counts=(2, 3, 1, 0, 0))
    assert TinyLmConfig(corpus=tmp_path / "text").corpus == expected
    assert TinyLmConfig(corpus=str(tmp_path / "text")).corpus == expected


def test_units_are_trained_on_the_shares_of_the_text_and_on_the_deepest_alone():
    config = TinyLmConfig(corpus=COUNTS, control=True, depths=(1, 2, 3), seeds=3, members_per_unit=2)
    units = jobs(config)
    members = [member for unit in units for member in unit.members]
    assert [member.member for member in members] == list(range(12))
    assert [member.overrides["mixture"] for member in members] == [
        name for name in ("uniform", "zipf", "corpus", "deepest") for _ in range(3)
    ]
    found = {unit.label: unit.task.shares for unit in units}
    assert found["corpus"] == pytest.approx((7 / 12, 0, 5 / 12))
    assert found["deepest"] == (0, 0, 1)
    assert len({content_hash(record(unit)) for unit in units}) == len(units)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"corpus": COUNTS, "depths": (1, 2)},
            "that need 2 steps, the largest depth, found 7 of 1, 0 of 2 steps",
        ),
        (
            {"corpus": COUNTS, "depths": (3, 6)},
            "that need 6 steps, the largest depth, found 5 of 3, 0 of 6 steps",
        ),
        ({"corpus": COUNTS, "depths": ()}, "depths: expected ascending numbers"),
        ({"control": True, "depths": (2,)}, "control: expected several depths, .* found 2 alone"),
    ],
)
def test_what_cannot_be_trained_is_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        TinyLmConfig(**fields)


def test_refusals_are_one_line_before_anything_is_written(tmp_path, monkeypatch, capsys):
    from hopscope.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "shallow.txt").write_text("Anna knows Bert. Anna Bert.", encoding="utf-8")
    for words, said in (
        (["--corpus", "nothing.txt"], "nothing.txt: expected a readable file"),
        (["--corpus", "shallow.txt"], "corpus: expected words of shallow.txt that need 2 steps"),
    ):
        assert main(["run", "tiny-lm", *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and said in printed.err and printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["shallow.txt"]


# The ledger and the page.


WIDE = TinyLmConfig(
    corpus=COUNTS, control=True, depths=(1, 2, 3), seeds=10, members_per_unit=5, training_steps=30_000
)
ALL_RIGHT = {"uniform": 97, "zipf": 96, "corpus": 95, "deepest": 13}


CONTROL = "deepest, texts of depth 3 alone"


def test_a_text_is_a_part_of_its_own_and_the_control_must_not_show_it():
    claim = judged(members_of(WIDE, ALL_RIGHT), WIDE)
    assert claim.verdict is Verdict.REPRODUCED
    assert claim.threshold == {each: {"at_least": 0.9} for each in ("zipf", "uniform", "corpus")}
    assert claim.value == pytest.approx({"zipf": 96 / 97, "uniform": 1.0, "corpus": 95 / 97})
    assert (claim.n, claim.n_counts) == (10, "seed")
    (control,) = claim.controls.values()
    assert control.samples == [13 / 97] * 10 and control.shows is False
    assert f"control {CONTROL}: 13.4 % [13.4 %, 13.4 %]" in remarks(claim)
    # Where deep texts alone are enough, a mixture supplies nothing.
    taken_back = judged(members_of(WIDE, {**ALL_RIGHT, "deepest": 97}), WIDE)
    assert (
        taken_back.verdict is Verdict.INCONCLUSIVE
        and f"the control {CONTROL} shows it too" in taken_back.words
    )


def test_one_text_that_does_not_suffice_refutes():
    claim = judged(members_of(WIDE, {**ALL_RIGHT, "corpus": 50}), WIDE)
    assert claim.verdict is Verdict.REFUTED


def test_only_the_largest_depth_counts():
    claim = judged(members_of(WIDE, {**ALL_RIGHT, "zipf": 89}), WIDE)  # shallower ones are at 89 of 97 too
    assert claim.verdict is Verdict.REPRODUCED
    assert judged(members_of(WIDE, {**ALL_RIGHT, "zipf": 87}), WIDE).verdict is Verdict.REFUTED  # 89.7 %


def test_without_a_control_nothing_is_decided(tmp_path, monkeypatch):
    config = WIDE.model_copy(update={"corpus": None, "control": False})
    claim = judged(members_of(config, ALL_RIGHT), config)
    assert set(claim.threshold) == set(claim.samples) == {"zipf", "uniform"}
    assert claim.controls == {}
    assert claim.verdict is Verdict.INCONCLUSIVE and "no control" in claim.words
    assert claim.here.verdict is Verdict.REPRODUCED
    config = config.model_copy(update={"seeds": 1})
    run = presented(tmp_path, members_of(config, ALL_RIGHT), config, monkeypatch)
    headings = [section["heading"] for section in run.read_json("story.json")["sections"]]
    assert "How often each depth is trained" not in headings and "What they answer" in headings


def test_shorter_trainings_decide_nothing_but_here():
    config = WIDE.model_copy(update={"training_steps": 2_000})
    claim = judged(members_of(config, ALL_RIGHT), config)
    assert (claim.verdict, claim.leaning) == (Verdict.INCONCLUSIVE, "agrees")
    assert claim.words.startswith(
        "zipf: below the protocol's scale: 2,000 of 30,000 steps; 10 of 10 seeds meet it"
    )
    assert claim.here.verdict is Verdict.REPRODUCED


def test_a_mixture_that_was_not_trained_is_not_run():
    config = WIDE.model_copy(update={"corpus": None, "control": False, "mixtures": ("uniform",)})
    claim = judged(members_of(config, ALL_RIGHT), config)
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert claim.value == {"uniform": 1.0} and claim.words.startswith("zipf: not run · uniform: below")


def test_a_model_that_diverged_has_no_score_and_keeps_the_claim_open():
    members = members_of(WIDE, ALL_RIGHT)
    first = members.index(next(each for each in members if each.mixture == "zipf"))
    members[first] = diverged(members[first])
    claim = judged(members, WIDE)
    assert claim.samples["zipf"] == [None] + [96 / 97] * 9
    assert claim.verdict is Verdict.INCONCLUSIVE and "1 of 10 seeds has no number" in claim.words


def test_a_control_that_diverged_is_said_to_have_no_number():
    members = [diverged(each) if each.mixture == "deepest" else each for each in members_of(WIDE, ALL_RIGHT)]
    claim = judged(members, WIDE)
    assert claim.verdict is Verdict.INCONCLUSIVE and f"the control {CONTROL} was not measured" in claim.words
    assert any("none of 10 seeds has a number" in line for line in remarks(claim))


def test_the_page_tells_the_text_and_compares_with_the_control(tmp_path, monkeypatch):
    config = WIDE.model_copy(update={"seeds": 2})
    run = presented(tmp_path, members_of(config, ALL_RIGHT), config, monkeypatch)
    story = run.read_json("story.json")
    words = texts(story).replace("\u00a0", " ")
    assert "The mixture *corpus* follows a text, ships.txt. It has 29 content words." in words
    assert "No word needs 2 steps: under this mixture, no text has that depth." in words
    assert "The control, *deepest*, is trained on texts of depth 3 alone." in words
    assert [list(row.values()) for row in table(story, "How often each depth")] == [
        ["1", "7", "58.3 %"], ["2", "0", "0 %"], ["3", "5", "41.7 %"],
    ]  # fmt: skip
    compared = [list(row.values()) for row in table(story, "How often each depth", 1)]
    assert [row[0] for row in compared] == ["uniform", "zipf", "corpus", "deepest"]
    assert compared[0][1:] == ["100 %"] * 2 and compared[3][1:] == ["13.4 %"] * 2
    assert {number["file"] for number in story["numbers"].values()} == {"config.json", "evidence.parquet"}
    chart = json.loads((run.path / "figures" / "accuracy.vl.json").read_text())
    assert json.dumps(list(config.drawn)) in json.dumps(chart)
    rows = (run.path / "figures" / "accuracy.csv").read_text()
    assert all(f",{mixture}," in rows for mixture in config.drawn)


def test_a_training_that_was_not_asked_for_has_no_shares():
    with pytest.raises(KeyError):
        TinyLmConfig().task("corpus")


def test_a_file_that_is_none_is_an_error_of_the_user():
    with pytest.raises(UserError, match="expected a readable file"):
        TinyLmConfig(corpus="nothing/at/all")
