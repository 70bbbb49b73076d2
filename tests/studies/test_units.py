"""A study whose options alone decide its units, with analyses that keep files of their own and a page in two parts."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import UserError
from hopscope.studies import find_study
from hopscope.studies.analysis import UnitAnalysis

EVALUATED = UnitAnalysis(
    files=lambda options, job: {},
    work=lambda *arguments: None,
    rows=lambda run, options: (),
    evaluate=lambda options, task: lambda model, members: {},
)
STUDY = """
from pydantic import BaseModel

import hopscope as hs
from hopscope.runs import Row
from hopscope.studies.analysis import RunAnalysis, UnitAnalysis
from hopscope.training.config import MemberPlan, TrainJob


class Options(BaseModel):
    widths: tuple[int, ...] = (5, 7)
    seeds: int = 2
    steps: int = 3


def units(options):
    task = hs.tasks.Permutation(values=3)
    members = iter(range(100))
    return [
        TrainJob(
            label=f"width {width}",
            task=task,
            model=hs.Model(layers=1, heads=1, width=width).for_task(task.shape()),
            training=hs.Training(steps=options.steps, batch_size=11, checkpoint_every=options.steps),
            members=tuple(MemberPlan(member=next(members), seed=seed) for seed in range(options.seeds)),
        )
        for width in options.widths
    ]


def files(options, job):
    return {"widths": "json"}


def work(options, unit, job, task, budget, device):
    if not unit.analysis_path("widths", job.training.steps).is_file():
        unit.write_analysis("widths", job.training.steps, {"width": job.model.width})


def rows(run, options):
    for record in run.members:
        unit = run.unit(record.unit)
        width = unit.read_analysis("widths", options.steps)["width"]
        yield Row(record.member, "widths", "width", float(width), step=options.steps,
                  file=unit.file_of("widths", options.steps))


def evaluate(options, task):
    import torch

    return lambda model, members: {("held_out", "seven"): torch.full((len(members),), 7.0)}


def count(run, options, budget, say):
    say("counting")
    run.write_json("counted.json", {"members": len(run.members)})


def counted(run, options):
    yield Row(None, "count", "counted", float(run.read_json("counted.json")["members"]), file="counted.json")


study = hs.Study(
    name="widths",
    question="How wide?",
    options=Options(),
    units=units,
    analyses=(UnitAnalysis(files, work, rows, evaluate), RunAnalysis(("counted.json",), count, counted)),
    claims=lambda options: [
        hs.Claim(id="W1", statement="Wide.", source="here", protocol="look",
                 value=lambda evidence: evidence.last("width"), must=hs.at_least(5.0), rule="always")
    ],
    figures=lambda options: [hs.figures.bars("width")] if len(options.widths) > 1 else [],
    presets={"one": {"widths": (5,)}},
    page="widths.md.j2",
    page_names=lambda page, options: {"widest": max(options.widths)},
    member_name=lambda options, member: f"model {member}",
)
"""
PAGE = '# Widths\n\n{% include "numbers.md.j2" %}\n'
PART = """## Numbers

{{ members[0] }} is one of {{ value('counted') }}; the widest has {{ widest }} of {{ options.widths | length }}.
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "widths.py").write_text(STUDY, encoding="utf-8")
    (tmp_path / "widths.md.j2").write_text(PAGE, encoding="utf-8")
    (tmp_path / "numbers.md.j2").write_text(PART, encoding="utf-8")
    return tmp_path


def hopscope(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopscope", *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)


@pytest.mark.extras
def test_it_runs_from_the_command_line(place: Path) -> None:
    done = hopscope(place, "run", "widths.py", "--seeds", "3")
    assert done.returncode == 0, done.stderr
    run = hs.open_run(Path(place / done.stdout.splitlines()[-1]))
    assert run.config == {"widths": [5, 7], "seeds": 3, "steps": 3}
    assert run.evidence.last("width").to_dict() == {0: 5.0, 1: 5.0, 2: 5.0, 3: 7.0, 4: 7.0, 5: 7.0}
    assert set(run.evidence.last("seven")) == {7.0}
    story = json.dumps(json.loads((run.path / "story.json").read_text(encoding="utf-8")))
    assert "model 0 is one of" in story and "the widest has 7 of 2" in story
    assert [(claim.verdict.value, claim.leaning) for claim in run.claims] == [("inconclusive", "agrees")]
    assert (run.path / "figures" / "final-width.svg").is_file()
    again = hopscope(place, "run", "widths.py", "--seeds", "3")
    assert again.returncode == 0 and "counting" not in again.stderr


def test_presets_and_fields_are_those_of_the_options(place: Path) -> None:
    program = find_study(str(place / "widths.py"))
    assert program.configured("one", {"steps": 5}).model_dump() == {"widths": (5,), "seeds": 2, "steps": 5}
    assert [len(job.members) for job in program.jobs(program.configured("one", {"seeds": 4}))] == [4]
    assert program.figures(program.configured("one", {})) == ()
    with pytest.raises(
        UserError, match=r"no field 'held_out'; expected one of the fields widths, seeds, steps"
    ):
        program.configured(None, {"held_out": 3})
    with pytest.raises(UserError, match=r"steps: expected a valid integer, .*, found 'many'"):
        program.configured(None, {"steps": "many"})


def test_a_missing_part_of_the_page_is_named(place: Path) -> None:
    (place / "numbers.md.j2").unlink()
    done = hopscope(place, "run", "widths.py", "--preset", "one", "--seeds", "1")
    assert done.returncode == 2 and "numbers.md.j2" in done.stderr and "Traceback" not in done.stderr


def test_a_part_of_the_page_stands_beside_it(place: Path) -> None:
    (place / "widths.md.j2").write_text(PAGE.replace("numbers.md", "../numbers.md"), encoding="utf-8")
    (place.parent / "numbers.md.j2").write_text("secret", encoding="utf-8")
    done = hopscope(place, "run", "widths.py", "--preset", "one", "--seeds", "1")
    assert done.returncode == 2 and "../numbers.md.j2" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"units": lambda options: []}, "expected options, and neither a task nor vary"),
        ({"analyses": [3]}, "expected values of hopscope.studies.analysis, found 3"),
        ({"analyses": [EVALUATED, EVALUATED]}, "expected one analysis at most that says .* found 2"),
        ({"figures": [3]}, "expected figures such as"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        hs.Study(name="odd", **fields)


def test_figures_of_a_function_are_checked(place: Path) -> None:
    odd = hs.Study(name="odd", figures=lambda options: ["loss"])
    with pytest.raises(UserError, match=r"figures: expected figures such as .* found 'loss'"):
        odd.all_figures()


def test_work_for_the_whole_run_is_told_by_its_files() -> None:
    assert find_study("llm").gathered == ("llm/answers.json",)


@pytest.mark.parametrize("name", ["permutation", "circuits", "emergence", "tiny-lm", "llm"])
def test_every_deferred_function_is_there(name: str) -> None:
    """Its name is a string, so that nothing else sees that it exists."""
    study = find_study(name).study
    parts = [getattr(each, part, None) for each in study.analyses for part in ("work", "evaluate")]
    parts += [getattr(figure.function, "func", None) for figure in study.all_figures()]
    places = [part.__name__ for part in parts if ":" in getattr(part, "__name__", "")]
    assert places
    for place in places:
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
