"""Pages of the studies of chains: of runs that learned all or nothing, with diverged members, and of committed runs."""

from functools import partial
from pathlib import Path

import pytest
from made import page_of, rows_of, words_of

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
STUDIES = ("recipes", "first-steps", "depth")


def more_rows(name, outcome, diverged, planned):
    """Numbers of the measures, beside the losses and times."""
    yield from rows_of(planned, outcome, diverged)
    for job in planned:
        for member in (each.member for each in job.members):
            gone = diverged == "all" or member in diverged
            at = {"member": member, "step": job.training.steps}
            value = {"learned": 0.013, "nothing": 0.83}[outcome]
            if name == "first-steps" and job.label == "D=2, 4 layers":
                for head in range(2):
                    yield {**at, "measure": "rises", "metric": "rise", "layer": 0, "head": head, "part": "step_1",
                           "value": None if gone else 0.3 * head}  # fmt: skip
                yield {**at, "measure": "rises", "metric": "heads_used", "value": None if gone else 0.5}
                yield {**at, "measure": "rises", "metric": "largest_rise", "value": None if gone else 0.3}
            for part in (None, *(f"step_{step}" for step in range(1, 4))) if name == "depth" else ():
                asked = [f"step_{step}" for step in range(1, job.task["fields"]["steps"] + 1)]
                if part not in (None, *(asked if job.task["fields"]["targets"] == "ic" else asked[-1:])):
                    continue
                yield {
                    **at,
                    "measure": "final",
                    "metric": "final_loss",
                    "part": part,
                    "value": None if gone else value,
                }
                for metric in ("checkpoint_loss", "checkpoint_loss_error", *(["accuracy"] if part else [])):
                    number = {"accuracy": 1 - value}.get(metric, 0.01)
                    own = {**at, "measure": "retrieval", "metric": metric, "part": part}
                    yield {**own, "value": None if gone else number}
    for step in range(1, 4) if name != "recipes" else ():
        for metric, number in (("exact_layers", 1 + step), ("bound", 0.7 * step), ("bound_layers", step)):
            yield {
                "measure": "least_layers",
                "metric": metric,
                "part": f"step_{step}",
                "value": float(number),
            }


@pytest.fixture(autouse=True)
def _without_drawings(monkeypatch):
    """SVG and PNG of a figure take seconds; what the page shows is its specification."""
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("diverged", [(), (1,), "all"])
@pytest.mark.parametrize("outcome", ["learned", "nothing"])
def test_a_page_of_any_outcome(tmp_path, name, outcome, diverged):
    page, _ = page_of(tmp_path, name, "smoke", partial(more_rows, name, outcome, diverged))
    words = words_of(page)
    assert ("diverged" in words) == bool(diverged), words
    assert ("so there is no answer" in words) == (diverged == "all")
    assert "nan" not in words.lower().split() and "never [" not in words
    if name == "first-steps" and not diverged:
        every = "2 of 2" if outcome == "learned" else "0 of 2"
        assert f"Asked for the whole chain, {every} seeds learned its second symbol" in words


@pytest.mark.parametrize("run", ["recipes/details", "first-steps/laptop", "depth/laptop"])
def test_the_page_of_a_committed_run(tmp_path, run):
    page, ledger = page_of(tmp_path, run.split("/")[0], "laptop", parquet=RESULTS / run / "evidence.parquet")
    assert len(words_of(page)) > 3000 and all(verdict.id in page for verdict in ledger)


@pytest.mark.parametrize(("name", "preset", "folder", "field"), [
    ("permutation", "paper", "permutation/paper", "task.fields.repeat_ratio"),
    ("capacity", "laptop", "capacity/torch-schedule", "model.heads"),
])  # fmt: skip
def test_what_configurations_set_is_told_in_the_record_alone(name, preset, folder, field, tmp_path):
    page, _ = page_of(tmp_path, name, preset, parquet=RESULTS / folder / "evidence.parquet")
    assert f"{field}</th><td>by configuration</td>" in page
    protocols = page.count("by configuration</span>")
    assert page.count("by configuration") == page.count("<td>by configuration</td>") + protocols
