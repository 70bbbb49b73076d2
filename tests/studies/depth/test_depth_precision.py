"""Rounded products answer, and train to, what exact ones do."""

import pytest

from hopscope.claims import Ledger
from hopscope.executors.local import run_study
from hopscope.probes.retrieval import measure_retrieval
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.values import LEARNED
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import job_of
from hopscope.training.restore import load_ensemble

DEEPEST = DepthStudyConfig(seeds=2, deepest_seeds=2, layers=(6,), layers_last=(), members_per_unit=1)
"""The laptop preset's deepest models, which learn both symbols and still improve when training ends."""

ONE_STEP = DEEPEST.model_copy(
    update={"steps": 1, "layers": (2,), "seeds": 3, "deepest_seeds": 3, "training_steps": 1600}
)
"""Models that have settled by the end."""

CLOSE = 0.01


def trained(config: DepthStudyConfig, precision: str, out):
    """The run, its verdicts, and partial losses of its deepest models."""
    config = config.model_copy(update={"precision": precision})
    run = run_study(find_study("depth"), config, out=out, device="cpu", engine="general")
    verdicts = {claim.id: claim.verdict for claim in Ledger.read(run.path)}
    evidence, deepest = Evidence.read(run), config.deepest()
    final = {
        step: evidence.last("final_loss", part=f"step_{step}", configuration=deepest.name).tolist()
        for step in deepest.asked_steps
    }
    return run, verdicts, final


@pytest.mark.soak
def test_models_that_have_settled_are_as_good_in_bfloat16(tmp_path):
    _, exact_verdicts, exact = trained(ONE_STEP, "float32", tmp_path)
    _, verdicts, rounded = trained(ONE_STEP, "bfloat16", tmp_path)
    assert verdicts == exact_verdicts
    assert exact.keys() == rounded.keys() == {1}
    assert max(exact[1]) < 0.1
    assert rounded[1] != exact[1]
    assert rounded[1] == pytest.approx(exact[1], abs=CLOSE)


@pytest.mark.soak
def test_bfloat16_learns_what_float32_does(tmp_path):
    """Ten minutes on a CPU, on which bfloat16 products are slower.

    While models still improve their losses go up and down by more than `CLOSE` from one evaluation to the next,
    whatever the precision; so what is compared is what was learned, and the answers of the same weights.
    """
    run, exact_verdicts, exact = trained(DEEPEST, "float32", tmp_path)
    _, verdicts, rounded = trained(DEEPEST, "bfloat16", tmp_path)
    assert verdicts == exact_verdicts
    assert all(max(*exact[step], *rounded[step]) < LEARNED for step in (1, 2))
    for unit in run.units:
        model, task = load_ensemble(unit), RetrievalTask(job_of(unit).task)
        losses = [measure_retrieval(model.at(p), task, 256)["partial"] for p in ("float32", "bfloat16")]
        assert losses[0] != losses[1]
        assert losses[1][0] == pytest.approx(losses[0][0], abs=CLOSE)
