"""`hopscope diagnose`: a line on each member's failure, its curve, and the same as JSON."""

import json
from pathlib import Path

from hopscope.cli.diagnose import sparkline

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_every_member_has_a_signature_and_a_curve(hopscope):
    run = str(RESULTS / "depth/laptop")
    lines = hopscope("diagnose", run).out.splitlines()
    members = [line for line in lines if line.startswith("member ")]
    assert len(members) == 39
    assert members[0] == "member 0, IC D=3, 1 layer, seed 0: early plateau"
    assert "x₁" in lines[1] and "too few layers: x₁ needs 2, and there are 1" in lines[1]
    assert lines[-1] == "13 learned · 12 early plateau · 12 long chains fail · 2 only induction heads"
    found = json.loads(hopscope("diagnose", run, "--json").out)
    assert [each["member"] for each in found] == [*range(39)]
    assert found[0]["signature"] == "early plateau" and set(found[0]["curves"]) == {"1", "2", "3"}


def test_a_curve_is_drawn_from_0_to_1():
    assert sparkline([1.7, 1.0, 0.5, 0.0]) == "██▅▁"
    assert sparkline([0.3]) == "▃"
    falling = sparkline([1 - step / 200 for step in range(200)])
    assert len(falling) == 16 and falling == "".join(sorted(falling, reverse=True))


def test_another_task_is_refused(hopscope):
    complaint = hopscope("diagnose", str(RESULTS / "permutation/paper")).complaint
    assert "expected members trained to follow chains" in complaint
