"""Rounded products train to what exact ones do."""

import pytest

from hopscope.claims.claim import read_ledger
from hopscope.executors.local import run_study
from hopscope.studies import find_study
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.evidence import LEARNED, gather

DEEPEST = DepthStudyConfig(seeds=2, deepest_seeds=2, layers=(6,), layers_last=(), members_per_unit=1)
"""The laptop preset's deepest models, which learn both symbols."""


@pytest.mark.soak
def test_bfloat16_learns_what_float32_does(tmp_path):
    """Takes a quarter of an hour on a CPU, on which bfloat16 products are no faster."""
    verdicts, partial = {}, {}
    for precision in ("float32", "bfloat16"):
        config = DEEPEST.model_copy(update={"precision": precision})
        run = run_study(find_study("depth"), config, out=tmp_path, device="cpu", engine="general")
        found = gather(run, config)[config.deepest()]
        verdicts[precision] = {claim.id: claim.verdict for claim in read_ledger(run.path / "claims.json")}
        partial[precision] = found.partial
    assert verdicts["bfloat16"] == verdicts["float32"]
    for step, exact in partial["float32"].items():
        rounded = partial["bfloat16"][step]
        assert max(*exact, *rounded) < LEARNED
        assert sum(rounded) / len(rounded) == pytest.approx(sum(exact) / len(exact), abs=0.01)
