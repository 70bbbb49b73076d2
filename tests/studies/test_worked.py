import pytest

from hopscope.report.record import WorkedBlock
from hopscope.runs.evidence import Row
from hopscope.story.worked import worked_block, worked_steps
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.published import PLAIN, PLAIN_PROBE, PROBABILITIES, SEQUENCES, TITLES
from hopscope.theory.sequences import read_sequence

from .page_evidence import page_evidence, run_folder

TOKENS = [1, 2, 2, 3, 1, 2]
ROWS = [[0.3, 0.4, 0.3], [0.5, 0.01, 0.49], [0.97, 0.02, 0.01]]


@pytest.fixture
def entry():
    reading = read_sequence(TOKENS, 3)
    names = ("x", "seen", "used", "target", "recall", "elimination", "ideal")
    questions = [{name: getattr(question, name) for name in names} for question in reading.questions]
    return {"tokens": TOKENS, "questions": questions, "probabilities": [ROWS, [[0.0] * 3] * 3]}


def test_the_block_is_one_of_the_page(entry):
    block = worked_block(
        entry,
        file="units/7/analysis/worked.json",
        key="sequences.0.probabilities.0",
        title="a probe",
        caption="words",
        published=[None, [0.51, None, 0.49], None],
    )
    checked = WorkedBlock.model_validate(block)
    assert (checked.title, checked.caption, checked.sequence) == ("a probe", "words", TOKENS)
    assert (checked.file, checked.key) == ("units/7/analysis/worked.json", "sequences.0.probabilities.0")
    assert [step.probabilities for step in checked.steps] == ROWS
    assert [step.ideal for step in checked.steps] == [[1 / 3] * 3, [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    assert [step.note for step in checked.steps] == ["", "", ""]
    assert [[bar.published for bar in step.bars] for step in checked.steps] == [
        [None] * 3,
        [0.51, None, 0.49],
        [None] * 3,
    ]
    last = checked.steps[2]
    assert (last.x, last.seen, last.used) == (1, TOKENS[:5], [2, 3])
    assert (last.target, last.recall, last.elimination) == (2, 2, 1)


@pytest.mark.parametrize("wrong", [{"published": [None] * 2}, {"published": [[0.5] * 2] * 3}])
def test_published_numbers_must_fit(entry, wrong):
    with pytest.raises(ValueError, match="zip"):
        worked_steps(entry, **wrong)


# On the page.

CONFIG = PermutationStudyConfig(configurations=("d16/1 plain",), seeds=4)


def record(members, split):
    """What the analysis writes of a unit: equal probabilities, told apart by the unit's first member."""
    names = ("x", "seen", "used", "target", "recall", "elimination", "ideal")
    sequences = {}
    for name in (PLAIN, PLAIN_PROBE):
        reading = read_sequence(SEQUENCES[name], 5)
        questions = [{name: getattr(question, name) for name in names} for question in reading.questions]
        sequences[name] = {"tokens": SEQUENCES[name], "split": split, "questions": questions,
                           "probabilities": [[[0.01 * member] * 5] * 5 for member in members]}  # fmt: skip
    return {"members": members, "sequences": sequences}


@pytest.fixture
def story(tmp_path):
    """The page of four seeds in two units, some of whom diverged."""

    def told(diverged=(), files=("a.json", "b.json")):
        rows = [
            Row(
                member,
                "worked",
                "probability",
                None if member in diverged else 0.5,
                part="p",
                file=files[member // 2],
            )
            for member in range(4)
        ]
        evidence = page_evidence(CONFIG, diverged=diverged, more=rows)
        run = run_folder(tmp_path, CONFIG, evidence)
        run.write_json("a.json", record([0, 1], "train"))
        run.write_json("b.json", record([2, 3], "held_out"))
        return find_study("permutation").story(run, CONFIG, evidence, [])

    return told


def of_kind(story, kind):
    return [block for section in story["sections"] for block in section["blocks"] if block["kind"] == kind]


def test_the_page_shows_the_first_seed_beside_the_published_numbers(story):
    found = story()
    blocks = of_kind(found, "worked")
    assert [(block["title"], block["file"]) for block in blocks] == [
        (f"Sequence: {TITLES[PLAIN]}", "a.json"),
        (f"Sequence: {TITLES[PLAIN_PROBE]}", "a.json"),
    ]
    assert blocks[0]["key"] == f"sequences.{PLAIN}.probabilities.0"
    assert "d16/1 plain, seed 0 of this run, for which this is a training mapping" in blocks[0]["caption"]
    for block, name in zip(blocks, (PLAIN, PLAIN_PROBE), strict=True):
        published = [[bar["published"] for bar in step["bars"]] for step in block["steps"]]
        assert published == [list(row) for row in PROBABILITIES[name]]


def test_a_seed_that_diverged_is_not_shown(story):
    found = story(diverged=(0,))
    blocks = of_kind(found, "worked")
    assert {block["file"] for block in blocks} == {"b.json"}
    assert all(
        "seed 2 of this run, for which this is a held-out mapping" in block["caption"] for block in blocks
    )
    assert {bar["probability"] for step in blocks[0]["steps"] for bar in step["bars"]} == {0.02}


@pytest.mark.parametrize("told", [{"diverged": (0, 2)}, {"files": ("gone.json", "gone.json")}])
def test_without_a_record_there_is_nothing_to_watch(story, told):
    found = story(**told)
    assert not of_kind(found, "worked")
    assert "Watch it answer" not in [section["heading"] for section in found["sections"]]


def test_the_example_is_the_presentations(story):
    """Its last x copies the first: recall says 3, and elimination the only value not used yet."""
    (block,) = of_kind(story(), "sequence")
    tokens = [cell["token"] for cell in block["cells"]]
    assert tokens == ["3", "3", "4", "5", "2", "1", "1", "4", "3", "?"]
    assert [cell["role"] for cell in block["cells"]] == ["x", "y"] * 5
    assert ({1, 2, 3, 4, 5} - {int(token) for token in tokens[1:-1:2]}) == {2}
