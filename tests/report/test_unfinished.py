import json

import pytest

from hopscope.errors import UserError
from hopscope.report.page import build_report, render_all
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.metrics import write_part

HASHES = ("5a" * 6, "7b" * 6)


@pytest.fixture
def begun(tmp_path):
    """A run of five models in two units: one is done, of the other nothing is recorded."""
    members = [
        {"member": number, "unit": HASHES[number // 3], "index": number % 3, "seed": number, "overrides": {}}
        for number in range(5)
    ]
    run = RunFolder.create(
        tmp_path / "runs", study="chains", preset="smoke", config={"seeds": 5}, members=members
    )
    first = UnitFolder(run.path / "units" / HASHES[0])
    first.path.mkdir(parents=True)
    steps = (0, 10, 20)
    rows = [(member, step, 1.0 / (1 + step + member)) for step in steps for member in range(3)]
    write_part(first.path, 0, 20, {
        "member": [row[0] for row in rows], "step": [row[1] for row in rows],
        "samples": [7 * row[1] for row in rows], "split": ["held_out"] * len(rows),
        "metric": ["loss"] * len(rows), "value": [row[2] for row in rows],
    })  # fmt: skip
    first.mark_done()
    return run


def test_what_is_missing_is_said_and_the_rest_is_shown(begun):
    render_all(begun.path)
    build_report([begun.path], begun.path / "report.html")
    page = (begun.path / "report.html").read_text(encoding="utf-8")
    assert "<h1" in page and "chains: not finished" in page
    assert "1 of 2 units of models are trained and measured. There are no verdicts" in page
    assert page.count("<td>done</td>") == 1 and page.count("<td>not begun</td>") == 1
    spec = json.loads(page.split('id="run-1-spec-progress">')[1].split("</script>")[0])
    lines = spec["data"]["values"].splitlines()
    assert len(lines) == 1 + 9 and lines[1] == "member 0,0,1"


def test_without_a_loss_no_chart_is_drawn(begun):
    for part in (begun.path / "units" / HASHES[0] / "metrics").glob("*.parquet"):
        part.unlink()
    build_report([begun.path], begun.path / "report.html")
    page = (begun.path / "report.html").read_text(encoding="utf-8")
    assert "No loss has been measured during training yet." in page and "spec-progress" not in page


def test_a_run_that_is_done_must_have_its_story(begun):
    begun.mark_done()
    with pytest.raises(UserError, match=r"story\.json"):
        build_report([begun.path], begun.path / "report.html")
