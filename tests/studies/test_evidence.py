import pytest

from hopscope.runs import RunFolder, write_evidence, write_part
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.evidence import curve, gather, last_epoch_loss

from .analysed import looked_up
from .made_up import evidence


@pytest.fixture
def run(tmp_path):
    """Two members of one unit, without any record yet."""
    members = [
        {"member": n, "unit": "aaaaaaaaaaaa", "index": 1 - n, "seed": 5 + n,
         "overrides": {"width": 16, "heads": 1, "data": "plain"}}
        for n in (0, 1)
    ]  # fmt: skip
    return RunFolder.create(tmp_path, "permutation", {"a": 1}, members, None)


def write_losses(run, losses):
    """Mean training losses as (member, step, value)."""
    rows = {name: [] for name in ("member", "step", "samples", "split", "metric", "value")}
    for member, step, value in losses:
        for name, entry in zip(rows, (member, step, 7 * step, "train", "loss", value), strict=True):
            rows[name].append(entry)
    write_part(run.units[0].path, 0, 100, rows)


def test_last_epoch_weighs_rows_by_their_steps(run):
    # Rows tell the mean since the row before: steps 1–2, 3–13, 14–17 and 18–23.
    write_losses(run, [(0, 2, 9.0), (0, 13, 7.0), (0, 17, 3.0), (0, 23, 2.0), (1, 2, 5.0), (1, 13, 1.0)])
    config = PermutationStudyConfig(samples_per_epoch=70, batch_size=7)  # ten steps: from 13 on
    found = last_epoch_loss(run, config)
    assert found == {0: pytest.approx((4 * 3.0 + 6 * 2.0) / 10), 1: pytest.approx((11 * 1.0) / 11)}


def test_last_epoch_of_a_run_that_is_shorter(run):
    write_losses(run, [(0, 1, 3.0), (0, 5, 2.0)])
    config = PermutationStudyConfig(samples_per_epoch=700, batch_size=7)
    assert last_epoch_loss(run, config) == {0: pytest.approx((3.0 + 4 * 2.0) / 5)}


def test_an_epoch_smaller_than_a_batch_is_the_last_row(run):
    write_losses(run, [(0, 1, 3.0), (0, 5, 2.0)])
    config = PermutationStudyConfig(samples_per_epoch=3, batch_size=7)
    assert last_epoch_loss(run, config) == {0: 2.0}


def test_curve(run):
    write_losses(run, [(1, 3, 0.5), (0, 3, 0.25), (0, 2, 0.75)])
    columns = curve(run, "train", "loss")
    assert {name: values.tolist() for name, values in columns.items()} == {
        "member": [0, 0, 1], "step": [2, 3, 3], "samples": [14, 21, 21], "value": [0.75, 0.25, 0.5]
    }  # fmt: skip
    assert len(curve(run, "held_out", "loss")["step"]) == 0
    write_evidence(run, [])
    assert curve(run, "train", "loss")["value"].tolist() == [0.75, 0.25, 0.5]


def test_frozen_members_and_missing_values_are_left_out():
    found = evidence("d32/2 repeats", seeds=3, recall=[0.25, None, 0.75], frozen=[100], loss=[7.0, 2.0, None])
    assert looked_up(found, "probes", "recall") == [None, None, 0.75]


def test_paths_lead_into_records():
    found = evidence("d32/2 repeats", seeds=2, mae=[0.25, 0.5], ffn_recall=[0.125, 0.75])
    assert looked_up(found, "posteriors", "mae_uniform_held_out.[m].1") == [0.25, 0.5]
    assert looked_up(found, "battery", "mlp_ablation.mean.recall") == [0.125, 0.75]


@pytest.mark.extras
@pytest.mark.long
def test_gathered_from_a_run(whole_run):
    run = RunFolder(whole_run)
    config = PermutationStudyConfig.model_validate(run.config)
    gathered = gather(run, config)
    assert list(gathered) == ["d16/1 plain", "d32/2 repeats"]
    for name, members in (("d16/1 plain", [0, 1, 2]), ("d32/2 repeats", [3, 4, 5])):
        found = gathered[name]
        assert found.configuration == Configuration.parse(name)
        assert (found.members, found.seeds, found.frozen) == (members, [0, 1, 2], [])
        assert {"probes", "posteriors", "battery", "roles", "decoding", "worked"} <= set(found.sources)
        for analysis, sources in found.sources.items():
            for source, member in zip(sources, members, strict=True):
                record = run.members[member]
                assert (run.path / source.file).is_file()
                assert (source.file.split("/")[1], source.index) == (record.unit, record.index)
                step = 16 if member < 3 else 24
                assert run.unit(record.unit).read_analysis(analysis, step) == source.record
                assert source.record["members"][source.index] == member
        for metric in ("train/loss", "held_out/recall"):
            assert len(found.curves[metric]) == len(members)
            assert all(len(samples) == len(values) > 3 for samples, values in found.curves[metric])


def test_a_frozen_member_is_known_from_its_checkpoint(small_run, tmp_path):
    """Also where the log of events was lost."""
    import shutil

    from hopscope.runs import load_checkpoint, save_checkpoint

    shutil.copytree(small_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    (run.path / "events.jsonl").unlink()
    record = run.members[1]
    path = run.unit(record.unit).checkpoint_path(8)
    tensors, metadata = load_checkpoint(path)
    metadata["frozen_at"][record.index] = 7
    save_checkpoint(path, tensors, metadata)
    gathered = gather(run, PermutationStudyConfig.model_validate(run.config))
    assert {name: found.frozen for name, found in gathered.items()} == {"d32/2 repeats": [1]}
