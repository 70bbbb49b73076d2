"""The query of docs/evidence.md works over runs with different columns, and keeps the null of a diverged member."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


def evidence(path, **varied):
    """A table of two members with their losses at two steps; the second diverged."""
    path.parent.mkdir(parents=True)
    rows = [(0, 3, 7.0), (0, 5, 2.0), (1, 3, 11.0), (1, 5, None)]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("member", "step", "value"))}
    said = {"configuration": "plain", "metric": "loss", "split": "held_out", **varied}
    columns |= {name: [value] * len(rows) for name, value in said.items()}
    columns |= {name: pa.nulls(len(rows), pa.string()) for name in ("part", "layer", "head")}
    parquet.write_table(pa.table(columns), path)


def test_the_query_of_the_page(tmp_path):
    pytest.importorskip("duckdb", reason="needs pip install duckdb")
    evidence(tmp_path / "runs" / "copying" / "2" / "evidence.parquet")
    evidence(tmp_path / "runs" / "copying" / "3" / "evidence.parquet", **{"model.layers": 13})
    code = re.search(r'python -c "\n(.*?)"\n```', PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for run in "23":
        (first, second) = [line for line in done.stdout.splitlines() if f"copying/{run}/" in line]
        assert "2.0" in first and "NULL" in second
