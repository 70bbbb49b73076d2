"""Studies of the examples run as their presets `smoke` say, and the script as it is."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hopscope
from hopscope.runs import Evidence
from hopscope.study import jobs
from hopscope.study.load import load
from hopscope.tasks import held_out

ROOT = Path(__file__).resolve().parent.parent


OTHERS = {"copying.py", "layers_and_speed.py", "nearest_key.py", "quick_shapes.py"}
"""Lessons, whose claims are of no source; a search without claims."""

STUDIES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if "hs.Study(" in path.read_text())


@pytest.mark.extras
@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_of_one_file(name, tmp_path):
    run = hopscope.run(str(ROOT / "examples" / name), "smoke", members_per_unit=2, out=tmp_path)
    assert (run.path / "report.html").is_file() and not run.evidence.rows("loss").empty
    assert all(claim.verdict in ("inconclusive", "not run") for claim in run.claims), (
        "two seeds of a short run decide nothing"
    )


@pytest.mark.parametrize("name", sorted({*STUDIES} - OTHERS))
def test_a_smaller_run_decides_nothing(name):
    small = load(str(ROOT / "examples" / name)).study.chosen("smoke")
    evidence = Evidence.of([], [], {"identity": jobs.identity(small)})
    for claim in small.all_claims():
        assert claim.at_scale is not None and claim.at_scale(evidence), claim.id


@pytest.mark.parametrize("diverged", [0, 3])
def test_a_time_that_never_came_may_be_any_from_the_last_step_on(diverged):
    study = load(str(ROOT / "examples" / "width_or_start.py")).study
    members = [each.model_dump() for job in jobs.plan(study) for each in job.members]
    rows = [
        {
            "member": each["member"],
            "metric": "loss_step_3",
            "step": step,
            "value": 0.2 if step >= falls else 0.8,
        }
        for each in members
        for falls in [4000 if "width 64" in each["configuration"] and each["seed"] % 2 else 400]
        for step in (0, 400, 1000)
    ]
    for row in rows:
        seed, step = members[row["member"]]["seed"], row["step"]
        row["value"] = math.nan if step == 1000 and seed < diverged else row["value"]
    found = study.claims[0].value(Evidence.of(rows, members, {"identity": jobs.identity(study)}))
    ratio = {0: 1.75, 3: 2.5}[diverged]  # four of eight narrow seeds learn as wide ones do, then two of five
    for each in found.values():
        assert each.interval[0] == 1.0 and each.interval[1] > 1e5
        assert np.isnan(each.values).sum() == diverged and {*each.values[~np.isnan(each.values)]} == {ratio}


def test_without_codes_and_mask_nothing_but_means_can_be_known():
    task = load(str(ROOT / "examples" / "by_place.py")).study.task
    batch = held_out(task, 4096)
    symbols, size = batch.inputs[0, ..., : task.symbol_dim], task.chains
    equal = (symbols[:, :, None] - symbols[:, None]).abs().amax(-1) < 1e-6
    often, queries = equal.sum(-1), torch.arange(symbols.shape[1])[-size:]
    # x₁ stands twice, as all symbols do but the last ones; it is not the query's own.
    first = ((often == 2)[:, None] & ~equal[:, queries]).float()
    last = (often == 1)[:, None].expand_as(first).float()
    assert {*first.sum(-1).flatten().tolist()} == {14.0} and {*last.sum(-1).flatten().tolist()} == {4.0}
    means = torch.cat([each @ symbols / each.sum(-1, keepdim=True) for each in (first, last)], -1)
    found = task.parts(means[None], batch)
    assert found["loss_step_1"].item() == pytest.approx(6 / 7, abs=0.015)
    assert found["loss_step_2"].item() == pytest.approx(3 / 4, abs=0.015)


def test_three_hops(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "three_hops.py"), "2", "7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300, env=environment
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("seed")] == [
        f"seed {seed}: no circuit: above plateau; loss nan" for seed in (0, 1)
    ]
