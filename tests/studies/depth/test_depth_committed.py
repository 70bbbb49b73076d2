"""The claims say of the committed runs what their ledgers say, and the figures show the same data."""

import csv
import json
from pathlib import Path

import pytest

from hopscope.claims import judge
from hopscope.figures import write_figures
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures import figures

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "depth"


@pytest.fixture(scope="module")
def committed():
    """Folder, configuration and evidence of a committed run."""
    run = RunFolder(RESULTS / "laptop")
    config = DepthStudyConfig.model_validate(run.config)
    return run, config, Evidence.read(run)


def close(found, expected):
    """Equal numbers, lists of them, or objects of these, up to the last digits."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            close(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list | float):
        return found == pytest.approx(expected, abs=1e-12)
    return found == expected


def test_verdicts_and_numbers_are_those_of_the_ledger(committed):
    run, config, evidence = committed
    ledger = {entry["id"]: entry for entry in json.loads((run.path / "claims.json").read_text("utf-8"))}
    assert [claim.id for claim in claims(config)] == list(ledger)
    for claim in claims(config):
        found, expected = judge(claim, evidence).to_json(), ledger[claim.id]
        for key in ("statement", "source", "threshold", "value", "interval", "n", "verdict", "trust"):
            assert close(found[key], expected[key]), (claim.id, key)


def table(path):
    """Rows of a figure's data, in a fixed order."""
    with path.open(encoding="utf-8", newline="") as file:
        return sorted(tuple(sorted(row.items())) for row in csv.DictReader(file))


def test_figures_show_the_committed_data(committed, tmp_path):
    run, config, evidence = committed
    copy = RunFolder(tmp_path)
    write_figures(copy, figures(config), evidence)
    names = [figure.name for figure in figures(config)]
    assert sorted(names) == sorted(path.stem for path in (run.path / "figures").glob("*.csv"))
    for name in names:
        now, before = (table(place.path / "figures" / f"{name}.csv") for place in (copy, run))
        assert now == before, name


def test_every_number_of_the_analyses_has_a_row(depth_run):
    run = RunFolder.open(depth_run)
    config, evidence = DepthStudyConfig.model_validate(run.config), Evidence.read(run)
    rows = evidence.rows(measure="retrieval")
    assert set(rows["step"]) == {config.training_steps} and rows["value"].notna().all()
    for record in run.members:
        of_member = rows[rows["member"] == record.member]
        (file,) = set(of_member["file"])
        found = json.loads((run.path / file).read_text("utf-8"))
        assert found["members"][record.index] == record.member
        values = of_member.set_index(["metric", "part"])["value"]
        for name, metric in (("partial", "checkpoint_loss"), ("partial_error", "checkpoint_loss_error"),
                             ("accuracy", "accuracy")):  # fmt: skip
            expected = dict(zip(found["names"], found[name][record.index], strict=True))
            assert {part: values[metric, part] for part in expected} == expected
        whole = of_member[of_member["part"].isna()].set_index("metric")["value"]
        assert whole["checkpoint_loss"] == found["loss"][record.index]
        assert whole["checkpoint_loss_error"] == found["loss_error"][record.index]
