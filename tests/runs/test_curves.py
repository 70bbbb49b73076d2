import pytest

from hopscope.runs import RunFolder, write_part
from hopscope.runs.curves import Metrics

UNIT = "aaaaaaaaaaaa"


@pytest.fixture
def run(tmp_path):
    """Two members of one unit, without any record yet."""
    members = [{"member": n, "unit": UNIT, "index": n, "seed": n, "overrides": {}} for n in (0, 1)]
    return RunFolder.create(tmp_path, "any", {}, members, None)


def write(run, rows):
    """Rows as (member, step, split, metric, value); a step is seven samples."""
    names = ("member", "step", "samples", "split", "metric", "value")
    whole = [(member, step, 7 * step, *rest) for member, step, *rest in rows]
    columns = {name: [row[place] for row in whole] for place, name in enumerate(names)}
    write_part(run.units[0].path, 0, 100, columns)


def test_curves_are_apart_by_split_metric_and_member(run):
    write(run, [(1, 3, "train", "loss", 0.5), (0, 3, "train", "loss", 0.25), (0, 2, "train", "loss", 0.75),
                (0, 2, "held_out", "loss", 2.0), (0, 2, "train", "recall", 3.0)])  # fmt: skip
    train, held_out = Metrics(run, "train"), Metrics(run)
    assert train.curve("loss", 0) == ([2, 3], [0.75, 0.25])
    assert train.curve("loss", 1) == ([3], [0.5])
    assert train.curve("recall", 0) == ([2], [3.0])
    assert held_out.curve("loss", 0) == ([2], [2.0])
    assert held_out.curve("loss", 1) == train.curve("other", 0) == ([], [])
    assert train.final("loss", 0, [3, 2, 5]) == 0.5


def test_a_split_without_rows_has_no_curves(run):
    """As where every member diverged before it was first evaluated."""
    assert Metrics(run).curve("loss", 0) == ([], [])
    write(run, [(0, 2, "train", "loss", 0.75)])
    assert Metrics(run).curve("loss", 0) == ([], [])
    assert Metrics(run, "train").curve("loss", 0) == ([2], [0.75])
