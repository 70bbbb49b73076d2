import pytest
from pydantic import ValidationError

from hopscope.report.circuits import PackedBytes
from hopscope.report.record import WorkedSequence, WorkedStep
from hopscope.report.shown import ShownSequence
from hopscope.report.worked import as_text, format_probability, format_published, in_words, marks


def bars(*rows):
    names = ("probability", "ideal", "published")
    return [
        {"value": value, **dict(zip(names, row, strict=False))} for value, row in enumerate(rows, start=1)
    ]


PLAIN = {
    "x": 3,
    "seen": [1, 2, 3],
    "used": [2],
    "target": 1,
    "bars": bars((0.5, 0.5), (0.0, 0.0), (0.5, 0.5)),
}
REPEAT = {
    "x": 1, "seen": [1, 2, 3, 1, 1], "used": [2, 1], "target": 2, "recall": 2, "elimination": 3,
    "bars": bars((0.0004, 0.0, 0.0), (0.0006, 1.0, 0.0), (0.999, 0.0, 0.9991)), "note": "It falls into the trap.",
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (1e-9, "<0.001"),
        (0.00049, "<0.001"),
        (0.0006, "0.001"),
        (0.2142, "0.214"),
        (0.9894, "0.989"),
        (0.9991, "0.9991"),
        (0.99996, "0.99996"),
        (0.9999996, ">0.999999"),
        (1.0, "1.000"),
    ],
)
def test_probabilities_never_read_as_certain_where_they_are_not(value, text):
    assert format_probability(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.000"), (0.26, "0.260"), (0.9991, "0.9991"), (1.0, "1.000")]
)
def test_published_numbers_keep_their_digits(value, text):
    assert format_published(value) == text


def test_marks_say_what_a_value_is():
    step = WorkedStep.model_validate(REPEAT)
    found = {value: [f"{sign} {kind}" for kind, sign in marks(step, value).items()] for value in (1, 2, 3)}
    assert found == {1: ["✕ used"], 2: ["✓ target", "✕ used", "← recall"], 3: ["← elimination"]}
    plain = WorkedStep.model_validate(PLAIN)
    assert [len(marks(plain, value)) for value in (1, 2, 3)] == [1, 1, 0]


def test_text_is_a_bar_for_each_value():
    worked = WorkedSequence.model_validate(
        {
            "title": "a model",
            "sequence": [1, 2, 3, 1, 1, 2],
            "steps": [PLAIN, REPEAT],
            "caption": "That is all.",
        }
    )
    half, none, missed = "█" * 18 + "|" + " " * 17, "|" + " " * 35, " " * 35 + "|"
    assert as_text(worked).splitlines() == [
        "a model",
        "",
        "Step 1.  Seen 1→2 3→?  Used 2.  Target 1.",
        f"  y=1  0.500     {half}  ✓ target",
        f"  y=2  0.000     {none}  ✕ used",
        f"  y=3  0.500     {half}".rstrip(),
        "",
        "Step 2.  Seen 1→2 3→1 1→?  Used 2, 1.  Target 2.",
        f"  y=1  <0.001    {none}  (published 0.000)  ✕ used",
        f"  y=2  0.001     {missed}  (published 0.000)  ✓ target  ✕ used  ← recall",
        f"  y=3  0.9990    |{'█' * 35}  (published 0.9991)  ← elimination",
        "  It falls into the trap.",
        "",
        "Bar: the model's probability.  |: the ideal observer, all mappings equally likely.",
        "That is all.",
    ]


def test_text_of_the_largest_task_keeps_to_a_terminal():
    tokens = list(range(1, 13))
    seen = [token for x in tokens for token in (x, x)][:-1]
    step = {
        "x": 12, "seen": seen, "used": tokens[:11], "target": 12, "elimination": 12,
        "bars": bars(*[(0.05, 0.0, 0.9999)] * 11, (0.45, 1.0, 0.9999)), "note": "words " * 40,
    }  # fmt: skip
    text = as_text(
        WorkedSequence.model_validate({"sequence": seen, "steps": [step], "caption": "more " * 60})
    )
    assert max(map(len, text.splitlines())) <= 100
    assert "y=12 0.450" in text
    assert " ".join(text.split()).startswith(f"Step 1. Seen {in_words(seen)} Used 1, 2, 3")


def test_the_target_may_be_open():
    step = {**PLAIN, "target": None}
    assert "Target not known." in as_text(WorkedSequence.model_validate({"sequence": [1], "steps": [step]}))


def test_notebooks_get_the_same_elements_without_the_page():
    shown = ShownSequence.model_validate(
        {
            "title": "<b>model</b>",
            "sequence": [1, 2, 3, 1, 1, 2],
            "steps": [PLAIN, REPEAT],
            "run": "7",
            "member": 3,
            "checkpoint": 5,
            "mapping": None,
            "split": None,
        }
    )
    drawn = shown._repr_html_()
    assert "&lt;b&gt;model&lt;/b&gt;" in drawn
    assert '<tr class="bar is-target is-used is-recall">' in drawn
    assert '<td class="theirs">0.9991</td>' in drawn
    assert "width: 99.90%" in drawn
    assert "Probabilities from" not in drawn
    selectors = [
        line.split("{")[0] for line in drawn.partition("<style>")[2].partition("</style>")[0].splitlines()
    ]
    # A style sheet in a notebook applies to the whole notebook: nothing may match beyond our own elements.
    rules = [
        part
        for line in selectors
        for part in line.split(",")
        if part.strip() and not line.startswith(("/*", "@"))
    ]
    assert [part for part in rules if not part.strip().startswith((".worked", ".hopscope-worked", "}"))] == []


@pytest.mark.parametrize(
    "change",
    [{"target": 4}, {"used": [7]}, {"recall": 0}, {"elimination": 4}, {"bars": []}, {"bars": bars((1.1,))}],
)
def test_steps_that_contradict_themselves_are_refused(change):
    with pytest.raises(ValidationError):
        WorkedStep.model_validate({**REPEAT, **change})


@pytest.mark.parametrize(
    ("shape", "data"), [([2], "AAA="), ([3], "AAAAAAA="), ([1], "****"), ([], "AAAA"), ([0], "")]
)
def test_packed_arrays_fill_their_shape(shape, data):
    # The first is right, so that what refuses the others is not what refuses all.
    if shape == [2]:
        assert PackedBytes(shape=shape, data=data).shape == [2]
    else:
        with pytest.raises(ValidationError):
            PackedBytes.model_validate({"shape": shape, "data": data})
