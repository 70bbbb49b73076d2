"""The claims say of the committed runs what their ledgers say, and the figures show the same data."""

import csv
import json
from pathlib import Path

import pytest

from hopscope.claims import judge
from hopscope.claims.intervals import bootstrap_mean
from hopscope.figures import write_figures
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures import BELOW_BOUND, BELOW_EXACT, NEVER, SEEN, figures
from hopscope.studies.depth.values import losses_below_bound, losses_without_curriculum

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "depth"
RUNS = ("laptop-gpt2-base", "steps", "specification")

BY_SEED = {("laptop-gpt2-base", "R1"): losses_without_curriculum, ("steps", "R9b"): losses_below_bound}
"""Values of one seed at several depths are resampled together; these ledgers were made when each stood alone."""


@pytest.fixture(scope="module", params=RUNS)
def committed(request):
    """Folder, configuration and evidence of a committed run."""
    run = RunFolder(RESULTS / request.param)
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
        for key in ("statement", "source", "threshold", "value", "n", "verdict", "trust"):
            assert close(found[key], expected[key]), (claim.id, key)
        by_seed = BY_SEED.get((run.path.name, claim.id))
        interval = expected["interval"]
        if by_seed is not None:
            samples = by_seed(evidence)
            seeds = list(samples.cluster)
            assert len(set(seeds)) < len(seeds)
            interval = list(bootstrap_mean(samples.values, clusters=seeds))
        assert close(found["interval"], interval), claim.id


COLUMNS = {
    "loss_by_depth": {"task": "name", "layers": "x"},
    "partial_by_depth": {"symbol": "name", "layers": "x"},
    "partial_curves": {"seed": "panel", "symbol": "name", "step": "at", "loss": "value"},
    "specification": {"reading": "y", "what": "name"},
    "steps_by_depth": {"steps": "y", "layers": "x", "loss": "value", "theory": "outline"},
}
"""Columns that have another name in the committed figures than now: old → new."""

NOT_NOW = {"lowest", "seeds"}
"""Columns that the table of depths and steps had beside what it showed."""

WORDS = {
    "crossed": SEEN, "not within training": NEVER,
    "enough layers": "", "below the exact minimum": BELOW_EXACT, "below log₃(2D)": BELOW_BOUND,
}  # fmt: skip
"""What was said otherwise: old → new."""


def table(path, names=None):
    """Rows of a figure's data with the committed columns, in a fixed order; lines of theory have no rows now."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("kind") not in ("bound", "exact")]
    columns = sorted({*rows[0]} - NOT_NOW) if names is None else sorted(names)
    return columns, sorted(
        tuple(cell(row[column if names is None else names[column]]) for column in columns) for row in rows
    )


def cell(text):
    """A number in one way of writing, or words without their line breaks."""
    try:
        return f"{float(text):.5g}"
    except ValueError:
        return WORDS.get(text, text.replace("|", " "))


def test_figures_show_the_committed_data(committed, tmp_path):
    run, config, evidence = committed
    copy = RunFolder(tmp_path)
    write_figures(copy, figures(config), evidence)
    names = [figure.name for figure in figures(config)]
    assert sorted(names) == sorted(path.stem for path in (run.path / "figures").glob("*.csv"))
    for name in names:
        columns, before = table(run.path / "figures" / f"{name}.csv")
        renamed = COLUMNS.get(name, {})
        _, now = table(
            copy.path / "figures" / f"{name}.csv", {column: renamed.get(column, column) for column in columns}
        )
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
