"""`docs/collect.py` keeps what a finished run concluded."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pyarrow import parquet

from hopscope.runs import is_slim

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def collect(tmp_path):
    spec = importlib.util.spec_from_file_location("collect", DOCS / "collect.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs" / "results" / "permutation").mkdir(parents=True)
    (tmp_path / "README.md").write_text("![Loss](docs/results/permutation/small/figures/loss.png)")
    (tmp_path / "docs" / "page.md").write_text("![Skills](results/permutation/other/figures/skills.png)")
    return module


def test_a_run_is_kept_with_the_pictures_that_a_page_shows(collect, small_run, tmp_path):
    assert collect.main([str(small_run), "permutation/small"], tmp_path / "docs") == 0
    kept = tmp_path / "docs" / "results" / "permutation" / "small"
    assert is_slim(kept)
    assert [path.name for path in kept.rglob("*.png")] == ["loss.png"]
    assert not list(kept.rglob("*.svg")) and not (kept / "units").exists()
    claims = json.loads((small_run / "claims.json").read_text(encoding="utf-8"))
    assert json.loads((kept / "claims.json").read_text(encoding="utf-8")) == claims


def test_a_picture_is_kept_small_and_looks_as_before(collect, small_run, tmp_path):
    assert collect.main([str(small_run), "permutation/small"], tmp_path / "docs") == 0
    drawn = small_run / "figures" / "loss.png"
    kept = tmp_path / "docs" / "results" / "permutation" / "small" / "figures" / "loss.png"
    assert kept.stat().st_size < 0.5 * drawn.stat().st_size
    with Image.open(drawn) as before, Image.open(kept) as after:
        colours = [np.asarray(picture.convert("RGB"), dtype=int) for picture in (before, after)]
    off = np.abs(colours[0] - colours[1]).max(axis=-1)
    assert (off > 16).mean() < 0.001  # of 256 shades


def test_curves_may_be_thinned_and_nothing_else(collect, small_run, tmp_path):
    assert collect.main([str(small_run), "permutation/small"], tmp_path / "docs") == 0
    assert collect.main([str(small_run), "permutation/thin", "3"], tmp_path / "docs") == 0
    whole, thin = (parquet.read_table(tmp_path / "docs" / "results" / "permutation" / name / "evidence.parquet")
                   for name in ("small", "thin"))  # fmt: skip
    assert thin.schema == whole.schema and thin.num_rows < whole.num_rows
    whole, thin = whole.to_pandas(), thin.to_pandas()
    others = [frame[frame["measure"] != "training"].reset_index(drop=True) for frame in (whole, thin)]
    assert others[0].equals(others[1])
    curve = {"member": 0, "measure": "training", "metric": "loss", "split": "held_out"}
    steps = [
        frame.loc[(frame[[*curve]] == pd.Series(curve)).all(axis=1), "step"].tolist()
        for frame in (whole, thin)
    ]
    assert steps[1] == [
        step for place, step in enumerate(steps[0]) if place % 3 == 0 or place == len(steps[0]) - 1
    ]
    assert collect.main([str(small_run), "permutation/thin", "0"], tmp_path / "docs") == 2


def test_a_folder_that_is_no_finished_run_is_refused(collect, tmp_path, capsys):
    assert collect.main([str(tmp_path), "permutation/small"], tmp_path / "docs") == 2
    assert collect.main([], tmp_path / "docs") == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[1].startswith("collect: expected RUN, NAME")


def test_the_record_of_a_users_study_names_its_file_without_its_folder(collect, tmp_path):
    record = tmp_path / "study.json"
    record.write_text(json.dumps({"reference": "/somewhere/copying.py:study"}), encoding="utf-8")
    collect._without_folder(record)
    assert json.loads(record.read_text(encoding="utf-8")) == {"reference": "copying.py:study"}
