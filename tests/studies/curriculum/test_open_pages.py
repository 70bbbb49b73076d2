"""Pages of the studies of open questions: of runs that learned all or nothing, diverged, and of committed runs."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
from made import page_of

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
PRESETS = (
    "curriculum/smoke", "curriculum/circuits", "capacity/smoke", "capacity/laptop", "sharing/smoke",
    "sharing/workstation", "conditional/smoke", "conditional/heads",
)  # fmt: skip
RUNS = {
    "curriculum/torch-schedule": "workstation",
    "curriculum/settled": "laptop",
    "curriculum/circuits-torch-schedule": "circuits",
    "capacity/workstation": "workstation",
    "sharing/settled": "laptop",
    "conditional/torch-schedule": "workstation",
    "conditional/heads-torch-schedule": "heads",
    "conditional/heads-gpt2-base": "heads",
}
"""Committed run → its preset."""
FIELDS = {"sharing/settled": {"layers": (6,), "order_layers": (), "training.steps": 1600}}
"""Committed run → what it was given beside its preset."""
OUTCOMES = [("learned", ()), ("nothing", ()), ("learned", (1,)), ("nothing", "all")]
FINAL = {"learned": 0.013, "nothing": 0.83}


def symbols(job):
    """Parts that a member's losses have, those of groups among them."""
    fields = job.task["fields"]
    if "graph" not in fields:
        return [f"step_{step}" for step in range(1, fields["steps"] + 1)]
    return ["z", *(["z@chain", "z@branching"] if fields["chain_share"] else [])]


def rows_of(study, outcome, diverged, planned):
    """Losses, times of learning and the measures of every member, as if it learned all or nothing; or diverged."""
    for job, member in ((each, own.member) for each in planned for own in each.members):
        end, gone = job.training.steps, diverged == "all" or member in diverged

        def row(metric, value, step=end, member=member, gone=gone, **place):
            value = None if gone and step else value
            return {"member": member, "metric": metric, "step": step, "value": value, **place}

        for part in symbols(job):
            name, _, group = part.partition("@")
            for step, loss in ((0, 1.1), (end, FINAL[outcome])):
                for split in ("held_out", "train"):
                    yield row(f"loss_{name}", loss, step, part=group or None, split=split)
            time = end / 2 if outcome == "learned" else math.inf
            yield row("learned_at", time, part=part, measure="learned_at")
        yield from (row("loss", loss, step) for step, loss in ((0, 1.1), (end, FINAL[outcome])))
        if study == "curriculum/circuits" and outcome == "learned":
            for metric in ("was_read", "heads", "paths", "layers", "reread"):
                yield row(metric, 1.0, measure="circuit")
            for metric in ("within", "between", "same_start"):
                yield row(metric, 0.5, measure="distances")
        if job.task["name"] == "Branching" and job.task["fields"]["chain_share"]:
            for head in range(2):
                for part in ("chain", "branching"):
                    yield row("rise", 0.3 * head, layer=0, head=head, part=part, measure="rises")


def words_of(page):
    """The text of a page, without its scripts."""
    return " ".join(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page)).split())


@pytest.fixture(autouse=True)
def _without_drawings(monkeypatch):
    """SVG and PNG of a figure take seconds; what the page shows is its specification."""
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))


@pytest.mark.parametrize("study", PRESETS)
@pytest.mark.parametrize("outcome, diverged", OUTCOMES)
def test_a_page_of_any_outcome(tmp_path, study, outcome, diverged):
    name, preset = study.split("/")
    page, _ = page_of(tmp_path, name, preset, partial(rows_of, study, outcome, diverged))
    words = words_of(page)
    assert ("Training diverged in" in words) == bool(diverged), words
    assert ("so there is no answer" in words) == (diverged == "all")
    assert "nan" not in words.lower().split()
    if study == "curriculum/smoke" and not diverged:
        assert ("Nobody learned it even from the whole chain" in words) == (outcome == "nothing")


@pytest.mark.parametrize("run", RUNS)
def test_the_page_of_a_committed_run(tmp_path, run):
    given = {"parquet": RESULTS / run / "evidence.parquet", "fields": FIELDS.get(run)}
    page, ledger = page_of(tmp_path, run.split("/")[0], RUNS[run], **given)
    assert len(words_of(page)) > 2500 and all(verdict.id in page for verdict in ledger)
