"""Runs without training: the record of a study, evidence that is made up or committed, its claims, and its page."""

import re
from dataclasses import replace

from hopscope.claims.judge import judge
from hopscope.claims.verdict import Ledger
from hopscope.page.page import write_page
from hopscope.runs import Evidence, RunFolder
from hopscope.study import jobs
from hopscope.study.load import load

OUTCOMES = {"learned": 0.013, "nothing": 0.83}


def rows_of(planned, outcome, diverged=()):
    """Losses of every member through training, as if it learned all or nothing; some have none."""
    for job in planned:
        steps, names = job.training.steps, [f"step_{step}" for step in asked(job)]
        final = OUTCOMES[outcome]
        for member in (each.member for each in job.members):
            gone = diverged == "all" or member in diverged
            for name in ("loss", *(f"loss_{each}" for each in names)):
                for at, value in ((0, 1.1), (max(1, steps // 2), (1.1 + final) / 2), (steps, final)):
                    value = None if gone and at else value
                    yield {"member": member, "metric": name, "step": at, "value": value}
                    yield {"member": member, "metric": name, "step": at, "value": value, "split": "train"}
            at_end = {"member": member, "step": steps}
            for part in names:
                time = float(steps // 2) if outcome == "learned" else float("inf")
                yield {**at_end, "measure": "learned_at", "metric": "learned_at", "part": part,
                       "value": None if gone else time}  # fmt: skip


def asked(job):
    fields = job.task["fields"]
    return range(1, fields["steps"] + 1) if fields["targets"] == "ic" else [fields["steps"]]


def judged(tmp_path, name, preset, rows=None, parquet=None, fields=None):
    """A run of a study with these rows (a function of the planned jobs) or this table, its study, and its ledger."""
    loaded = load(name)
    study = loaded.study.chosen(preset, fields or {})
    planned = jobs.plan(study)
    record = jobs.record(loaded := replace(loaded, study=study), planned, preset)
    run = RunFolder.named(tmp_path, name, record["identity"]).create(record)
    if parquet is None:
        Evidence.of(rows(planned), run.members, run.config, run.path).write(run.path / "evidence.parquet")
    else:
        run.write("evidence.parquet", parquet.read_bytes())
    evidence = Evidence.read(run)
    ledger = Ledger(judge(claim, evidence, completion=study.completion) for claim in study.all_claims())
    run.write("claims.json", ledger.to_json())
    return run, loaded, ledger


def page_of(*given, **more):
    """The page of such a run, and its ledger."""
    run, loaded, ledger = judged(*given, **more)
    write_page(run, loaded)
    return run.read("report.html").decode(), ledger


def words_of(page):
    """The text of a page, without its scripts."""
    return " ".join(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page)).split())
