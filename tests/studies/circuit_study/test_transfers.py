"""The circuit of every seed in every other seed, on a small run whose members learn."""

import shutil

import pytest

import hopscope as hs
from hopscope.circuits.circuit import Circuit
from hopscope.runs import RunFolder
from hopscope.studies.circuit_study.charts import transfers as chart
from hopscope.studies.circuit_study.members import gather
from hopscope.studies.circuit_study.transfers import FILE, measure, measurements
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.training.budget import TimeBudget, TimeBudgetReached


@pytest.fixture(scope="module")
def measured(emergence_run, tmp_path_factory):
    run = RunFolder.open(shutil.copytree(emergence_run, tmp_path_factory.mktemp("transfers") / "run"))
    config = EmergenceConfig.model_validate(run.config)
    assert list(measurements(run, config)) == []
    heard = []
    with pytest.raises(TimeBudgetReached):
        measure(run, config, TimeBudget(0.0), heard.append)
    assert not (run.path / FILE).is_file()
    measure(run, config, TimeBudget(None), heard.append)
    return run, config, heard


def test_each_circuit_in_each_independent_member(measured):
    run, config, heard = measured
    members = [member for member in gather(run, config) if member.init_seed == member.data_seed]
    read = [member.member for member in members if member.was_read]
    assert len(heard) == len(members) == 2 and read
    found = run.read_json(FILE)
    assert {(int(into), int(of)) for into, reached in found.items() for of in reached} == {
        (member.member, of) for member in members for of in read
    }
    for member in members:
        if member.was_read:  # at home it is what the reader said
            own = found[str(member.member)][str(member.member)]
            assert own["rules"] == pytest.approx(member.reading["loss"]["rules"], abs=1e-6)
            assert own["full"] == pytest.approx(member.reading["loss"]["full"], abs=1e-6)


def test_it_is_what_the_library_says_of_one_pair(measured):
    run, config, _ = measured
    reading = next(member.reading for member in gather(run, config) if member.was_read and member.member == 0)
    reached = hs.open_run(run.path).transferred(1, Circuit.model_validate(reading["circuit"]))
    found = run.read_json(FILE)["1"]["0"]
    assert (found["full"], found["rules"]) == pytest.approx((reached.full, reached.rules), abs=1e-6)


def test_rows_and_shares(measured):
    run, config, _ = measured
    rows = {(row.member, row.part, row.metric): row.value for row in measurements(run, config)}
    for into, reached in run.read_json(FILE).items():
        for of, loss in reached.items():
            place = (int(into), f"member {of}")
            assert rows[*place, "transferred_loss_recomputed"] == loss["recomputed"]
            lost = (loss["rules"] - loss["full"]) / (1 - 1 / config.chains - loss["full"])
            assert rows[*place, "transferred_share"] == pytest.approx(min(1.0, max(0.0, 1.0 - lost)))


def test_what_is_known_is_not_measured_again(measured):
    run, config, _ = measured
    before = (run.path / FILE).read_bytes()
    (run.path / FILE).unlink()
    measure(run, config, TimeBudget(0.0), lambda words: pytest.fail(words))
    assert (run.path / FILE).read_bytes() == before


def test_the_matrix_has_a_cell_for_each_pair(measured):
    class Found:
        def __contains__(self, metric):
            return True

        def rows(self, metric):
            import pandas as pd

            rows = [row for row in measurements(run, config) if row.metric == metric]
            return pd.DataFrame(
                [{"member": row.member, "part": row.part, "value": row.value} for row in rows]
            )

    run, config, _ = measured
    _, rows = chart(config, Found())
    found = run.read_json(FILE)
    assert len(rows) == sum(map(len, found.values()))
    assert {(row["model"], row["circuit"]) for row in rows} <= {
        (config.names[one], config.names[other]) for one in map(int, found) for other in map(int, found)
    }
