"""A run of an older results version stays readable: its claims, its evidence, its page; it is never continued."""

import json
import shutil
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.cli.main import main
from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.hashing import RESULTS_VERSION, config_hash

RESULTS = Path(__file__).parents[2] / "docs" / "results"
OLD = RESULTS / "permutation" / "paper"


def version_of(run: Path) -> int:
    return json.loads((run / "config.json").read_text("utf-8"))["results_version"]


def remade(run: Path, to: Path, version: int) -> Path:
    """The run as a program with another results version would have named it."""
    record = json.loads((run / "config.json").read_text("utf-8"))
    name = config_hash(record["study"], record["config"], version)
    copy = shutil.copytree(run, to / record["study"] / name)
    changed = record | {"results_version": version, "hash": name}
    (copy / "config.json").write_text(json.dumps(changed, indent=1), encoding="utf-8")
    (copy / "seals.jsonl").unlink(missing_ok=True)  # of what the file said
    return copy


def test_there_is_a_committed_run_of_an_older_version() -> None:
    assert version_of(OLD) < RESULTS_VERSION


@pytest.fixture(params=["committed", "the first", "a later one"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "committed":
        return shutil.copytree(OLD, tmp_path / "run")
    version = 1 if request.param == "the first" else RESULTS_VERSION + 1
    return remade(RESULTS / "first-steps" / "laptop", tmp_path, version)


def test_it_is_read(other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = json.loads((other / "claims.json").read_text("utf-8"))
    run = hs.open_run(other)
    assert [claim.id for claim in run.claims] == [claim["id"] for claim in kept]
    assert len(run.evidence.to_pandas()) > 100
    assert main(["claims", str(other), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {claim["id"]: claim["verdict"] for claim in shown} == {
        claim["id"]: claim["verdict"] for claim in kept
    }
    assert main(["report", str(other)]) == 0
    assert kept[0]["statement"][:20] in (other / "report.html").read_text("utf-8")
    assert json.loads((other / "claims.json").read_text("utf-8")) == kept


def test_it_is_not_the_run_of_todays_command(other: Path, tmp_path: Path) -> None:
    record = json.loads((other / "config.json").read_text("utf-8"))
    assert config_hash(record["study"], record["config"]) != record["hash"] == RunFolder.open(other).hash


def test_a_version_that_was_only_written_over_is_refused(other: Path) -> None:
    record = json.loads((other / "config.json").read_text("utf-8"))
    record["results_version"] = 99
    (other / "config.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(UserError, match="expected the configuration that the run is named after"):
        hs.open_run(other).claims  # noqa: B018
