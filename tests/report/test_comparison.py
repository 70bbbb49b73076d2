"""A page of several runs begins with what they say of each claim, and with what differs."""

import json
import re

from hopscope.report.comparison import differences, flatten, run_names
from hopscope.report.page import build_report
from hopscope.report.record import read_run


def change(path, edit):
    value = json.loads(path.read_text(encoding="utf-8"))
    edit(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def page_of(tmp_path, *runs):
    build_report(runs, tmp_path / "both.html")
    return (tmp_path / "both.html").read_text(encoding="utf-8")


def test_every_claim_has_a_cell_for_every_run_of_its_study(run_path, tmp_path, synthetic):
    other = synthetic.write_synthetic_run(tmp_path / "runs", digest="7" * 64)
    change(other / "claims.json", lambda claims: claims.pop())
    change(other / "claims.json", lambda claims: claims[0].update(verdict="refuted"))
    matrix = re.search(r'<table class="matrix">.*?</table>', page_of(tmp_path, run_path, other), re.S)[0]
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", matrix, re.S)
    ids = [claim["id"] for claim in json.loads((run_path / "claims.json").read_text(encoding="utf-8"))]
    assert [re.search(r"claim-id\">(\w+)<", row)[1] for row in rows] == ids
    assert all(row.count("<td>") == 2 for row in rows)
    assert 'href="#run-1-claim-' in rows[0] and "refuted</a>" in rows[0].split("<td>")[2]
    assert rows[-1].endswith("<td>–</td>\n")


def test_runs_of_two_studies_have_a_table_each(run_path, tmp_path, synthetic):
    other = synthetic.write_synthetic_run(tmp_path / "runs", digest="7" * 64)
    change(other / "config.json", lambda config: config.update(study="depth"))
    page = page_of(tmp_path, run_path, other)
    assert re.findall(r"<caption>(.*?)</caption>", page) == ["permutation", "depth"]
    assert run_names([read_run(run_path), read_run(other)])[1].startswith("depth ")


def test_only_fields_that_differ_are_shown():
    one, two = ({"task": {"values": values}, "steps": 5} for values in (7, 11))
    found = differences([dict(flatten(one)), dict(flatten({**two, "seeds": 2}))])
    assert found == [("task.values", ["7", "11"]), ("seeds", ["", "2"])]


def test_the_same_run_twice_has_two_names(run_path):
    record = read_run(run_path)
    first, second = run_names([record, record])
    assert first != second


def test_one_run_is_not_compared(run_path, tmp_path):
    assert "runs, side by side" not in page_of(tmp_path, run_path)
