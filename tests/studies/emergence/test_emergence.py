"""Orders of events, and a real run of the study: circuits, clamps and crossed seeds, and that it can be taken up."""

import math

import pytest

import hopscope as hs
from hopscope.claims.crossings import Crossing
from hopscope.errors import UserError
from hopscope.studies.chains.circuits import Place
from hopscope.studies.emergence.claims import before_induction, out_of_order
from hopscope.study.load import load


def at(low, high):
    return Crossing((low + high) / 2, low, high, None)


NEVER = Crossing(None, None, None, 30.0)


@pytest.mark.parametrize(
    "times, after, before",
    [
        ([at(0, 10), at(10, 20), at(20, 30)], 0, 2),
        ([at(10, 20), at(0, 10), at(0, 10)], 1, 0),
        ([at(0, 10), NEVER], 0, 1),
        ([NEVER, NEVER], math.nan, math.nan),
        ([at(0, 10), None, at(20, 30)], 0, 1),
    ],
)
def test_neighbouring_steps_in_order(times, after, before):
    formed = {Place.of_step(5, k): time for k, time in enumerate(times, 1) if time is not None}
    found = [out_of_order(formed, len(times), 5, wanted) for wanted in ("after", "before")]
    assert found == pytest.approx([after, before], nan_ok=True)


def test_reads_before_the_induction_head():
    paths = [Place(3, layer, 0, "query 1 → second 2") for layer in (1, 2)]
    formed = {Place.of_step(3, 1): at(10, 20), paths[0]: at(0, 10), paths[1]: at(20, 30)}
    assert before_induction(formed, paths, 3) == 1.0
    assert math.isnan(before_induction({}, paths, 3))


@pytest.mark.parametrize("crossed", [1, 3])
def test_more_seeds_are_crossed_than_there_are(crossed):
    with pytest.raises(UserError, match="crossed: expected 0, or"):
        load("emergence").study.chosen("smoke", {"crossed": crossed}).grid()


@pytest.mark.long
def test_a_run_from_training_to_clamps(tmp_path, monkeypatch):
    monkeypatch.setattr("hopscope.page.page.write_page", lambda run, loaded: None)
    fields = {
        "crossed": 0,
        "training_steps": 300,
        "checkpoint_every": 100,
        "clamp_steps": 100,
        "random_circuits": 2,
    }
    fields |= {"seeds": 1, "orders": 0}
    run = hs.run("emergence", preset="smoke", out=tmp_path, device="cpu", threads=1, fields=fields)
    evidence = run.evidence
    assert evidence.last("was_read")[0] == 1.0
    start = int(evidence.last("clamped_from")[0])
    left = evidence.rows("clamped_loss_step_1", part="nothing clamped").set_index("step")["value"]
    clamped = evidence.rows("clamped_loss_step_1", part="step_1").set_index("step")["value"]
    assert (
        left.index[0] == start < left.index[-1] == clamped.index[-1]
        and abs(clamped.iloc[-1] - left.iloc[-1]) > 1e-3
    )
    rows = evidence.rows("attention")
    assert {0, 100, 200, 300} <= {*rows["step"]} and rows["value"].between(0, 1).all()
    kept = evidence.rows("explorer")
    assert {*kept["step"]} == {*rows["step"]} and "explorer-0.patterns" in evidence.arrays(
        kept["file"].iloc[0]
    )
    circuit = evidence.rows("circuit")["file"].iloc[0]
    assert {"circuit-0.about", "circuit-0.maps", "reading-0.both-0"} <= {*evidence.arrays(circuit)}
