"""`many_runs.py`: its copies are runs that every command takes for such, and its commands run."""

import json

import pytest

from hopscope.errors import UserError
from hopscope.runs import RunFolder, find_run, seals
from hopscope.runs.evidence import Evidence


@pytest.fixture(scope="module")
def many(load):
    return load("many_runs")


def test_copies_are_runs_of_different_configurations(many, small_run, tmp_path):
    whole = find_run(small_run)
    made = [RunFolder.open(path) for path in many.copies(whole, tmp_path / "root", 3)]
    assert len({run.path for run in made}) == len({run.hash for run in made}) == 3
    assert [run.config[many.FIELD] for run in made] == [0, 1, 2]
    claims = json.loads((small_run / "claims.json").read_text())
    for run in made:
        assert seals.altered(run.path) == [] and run.is_done
        assert run.read_json("claims.json") == claims
        assert Evidence.read(run).metrics == Evidence.read(whole).metrics
        assert {each.name for each in run.path.iterdir()} >= {"figures", "story.json", "seals.jsonl"}


def test_a_run_of_another_study_is_refused(many, depth_run, tmp_path):
    with pytest.raises(UserError, match="expected a run of the permutation study, found one of depth"):
        many.copies(find_run(depth_run), tmp_path / "root", 2)


def test_every_command_is_timed(many, small_run, tmp_path, monkeypatch):
    calls = []

    def called(command, **_):
        calls.append(list(map(str, command[1:])))

    monkeypatch.setattr(many.subprocess, "run", called)
    found = many.measure(tmp_path, [tmp_path / "permutation" / str(number) for number in range(13)])
    texts = [" ".join(call) for call in calls]
    assert any("claims ." in text for text in texts) and any("report --index ." in text for text in texts)
    pages = [call for call in calls if "few.html" in call]
    assert len(pages) == 2 and pages[0] == pages[1]
    assert sum(part.startswith("permutation") for part in pages[0]) == many.ON_ONE_PAGE
    assert {each.allowed for each in found} == {2.0, 5.0, None}
    assert many.table(found).row_count == len(calls)
