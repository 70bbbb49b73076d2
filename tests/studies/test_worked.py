import pytest

from hopscope.report.record import WorkedBlock
from hopscope.studies.permutation.worked import worked_block, worked_steps
from hopscope.theory.sequences import read_sequence

TOKENS = [1, 2, 2, 3, 1, 2]
ROWS = [[0.3, 0.4, 0.3], [0.5, 0.01, 0.49], [0.97, 0.02, 0.01]]


@pytest.fixture
def entry():
    reading = read_sequence(TOKENS, 3)
    names = ("x", "seen", "used", "target", "recall", "elimination", "ideal")
    questions = [{name: getattr(question, name) for name in names} for question in reading.questions]
    return {"tokens": TOKENS, "questions": questions, "probabilities": [[[0.0] * 3] * 3, ROWS]}


def test_the_block_is_one_of_the_page(entry):
    block = worked_block(
        entry,
        1,
        file="units/7/analysis/worked.json",
        key="sequences.0.probabilities.1",
        title="a probe",
        caption="words",
        published=[None, [0.51, None, 0.49], None],
        notes=["", "", "trapped"],
    )
    checked = WorkedBlock.model_validate(block)
    assert (checked.title, checked.caption, checked.sequence) == ("a probe", "words", TOKENS)
    assert (checked.file, checked.key) == ("units/7/analysis/worked.json", "sequences.0.probabilities.1")
    assert [step.probabilities for step in checked.steps] == ROWS
    assert [step.ideal for step in checked.steps] == [[1 / 3] * 3, [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    assert [step.note for step in checked.steps] == ["", "", "trapped"]
    assert [[bar.published for bar in step.bars] for step in checked.steps] == [
        [None] * 3,
        [0.51, None, 0.49],
        [None] * 3,
    ]
    last = checked.steps[2]
    assert (last.x, last.seen, last.used) == (1, TOKENS[:5], [2, 3])
    assert (last.target, last.recall, last.elimination) == (2, 2, 1)


def test_members_do_not_mix(entry):
    assert [bar["probability"] for step in worked_steps(entry, 0) for bar in step["bars"]] == [0.0] * 9


@pytest.mark.parametrize(
    "wrong", [{"published": [None] * 2}, {"published": [[0.5] * 2] * 3}, {"notes": [""] * 4}]
)
def test_published_numbers_must_fit(entry, wrong):
    with pytest.raises(ValueError, match="zip"):
        worked_steps(entry, 1, **wrong)
