"""Committed tables open, and answer as before."""

from pathlib import Path

import pandas as pd
import pytest

from hopscope.runs import Evidence as Before
from hopscope.runs.store import RunFolder
from hopscope_next.runs import Evidence

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RUNS = sorted(path.parent for path in RESULTS.rglob("evidence.parquet"))


def test_there_are_results():
    assert len(RUNS) > 30


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_a_committed_table_answers_as_before(path):
    before, found = Before.read(RunFolder.open(path)), Evidence.read(path)
    for name in ("members", "seeds", "configurations", "columns", "metrics"):
        assert getattr(found, name) == getattr(before, name), name
    pd.testing.assert_frame_equal(found.to_pandas(), before.to_pandas())
    frame = before.to_pandas()
    places = frame[frame["member"].notna()].drop_duplicates("metric")[::7]
    for row in places.astype(object).where(places.notna(), None).to_dict("records"):
        asked = {name: row[name] for name in ("measure", "split", "layer", "head", "part")}
        for ask in ("last", "curve"):
            expected = getattr(before, ask)(row["metric"], **asked)
            same = pd.testing.assert_series_equal if ask == "last" else pd.testing.assert_frame_equal
            same(getattr(found, ask)(row["metric"], **asked), expected)
        for name in ("seed", "configuration", *before.columns):
            own = before.last(row["metric"], **asked, **{name: row[name]})
            pd.testing.assert_series_equal(found.last(row["metric"], **asked, **{name: row[name]}), own)
            pd.testing.assert_frame_equal(
                found.rows(row["metric"], **{name: row[name]}),
                before.rows(row["metric"], **{name: row[name]}),
            )
