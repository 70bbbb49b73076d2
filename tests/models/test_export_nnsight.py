"""An exported member is a plain torch module: nnsight traces it, and finds and changes what Hopscope does itself."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import hopscope
from hopscope.models.edits import Edits
from hopscope.models.export import export_module, load_module
from hopscope.models.interventions import AblateHead, ReplacePattern
from hopscope.runs import RunFolder
from hopscope.training.restore import load_member

from .samples import BATCH, HEAD_DIM, HEADS, OUTPUT, POSITIONS, WIDTH, batch, config, lively, only

WORKER = Path(__file__).with_name("nnsight_worker.py")
MEMBER, LAYER, HEAD = 1, 1, 3

CONFIGS = {
    "tokens, norms before": config(),
    "tokens, norms after": config(norm="post", activation="relu"),
    "vectors, neither norm nor mask": config(
        input_kind="vectors", positions="carried", position_size=5, norm="none", mlp_ratio=0.0, causal=False
    ),
}


def require(installed: bool, environment: Mapping[str, str]) -> None:
    """Skip without nnsight, or fail where the environment says that there must be one."""
    if installed:
        return
    missing = "nnsight is not installed: `pip install -e .[nnsight]`"
    if environment.get("HOPSCOPE_REQUIRE_NNSIGHT") == "1":
        pytest.fail(f"{missing}, and HOPSCOPE_REQUIRE_NNSIGHT=1 asks for it")
    pytest.skip(missing)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An export of each configuration, beside what nnsight saw in it."""
    require(find_spec("nnsight") is not None, os.environ)
    found = {}
    for name, shape in CONFIGS.items():
        model, folder = lively(shape), tmp_path_factory.mktemp("member")
        export_module(model.member(MEMBER), folder, {"run": "permutation/abc", "step": 500})
        given = batch(shape).inputs[MEMBER].numpy()
        np.savez(folder / "in.npz", inputs=given, layer=LAYER, head=(HEAD * HEAD_DIM, (HEAD + 1) * HEAD_DIM))
        found[name] = folder
    run_worker(WORKER, found.values())
    return found


def run_worker(worker: Path, folders: Iterable[Path]) -> None:
    """Trace exports in a process of its own, where a warning is an error: nnsight changes whatever imports it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(worker), *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=CONFIGS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return lively(CONFIGS[name])


@pytest.fixture
def asked(name):
    return batch(CONFIGS[name])


@pytest.fixture
def seen(folders, name):
    return {key: torch.from_numpy(array) for key, array in np.load(folders[name] / "out.npz").items()}


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.extras
@torch.no_grad()
def test_a_trace_shows_what_happens_inside(folders, name, model, asked, seen):
    assert seen["heads"].shape == (BATCH, POSITIONS, HEADS * HEAD_DIM)
    assert seen["stream"].shape == (BATCH, POSITIONS, WIDTH)
    assert seen["predictions"].shape == (BATCH, POSITIONS, OUTPUT)
    close(seen["predictions"], load_module(folders[name])(asked.inputs[MEMBER]))
    predictions, captured = model.capture(asked.inputs)
    close(seen["predictions"], predictions[MEMBER])
    close(seen["stream"], captured.streams[LAYER + 1][MEMBER])
    close(seen["heads"].unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2), captured.heads[LAYER][MEMBER])


def changed(model, asked, intervention):
    """Predictions, and the stream after the last layer, as Hopscope's own intervention makes them."""
    one, alone = model.select([MEMBER]), only(asked, MEMBER)
    predictions, captured = one.capture(alone.inputs, Edits(one, [intervention], alone))
    return predictions[0], captured.streams[-1][0]


@pytest.mark.extras
@torch.no_grad()
def test_a_head_that_is_zeroed(model, asked, seen):
    predictions, stream = changed(model, asked, AblateHead(layer=LAYER, heads=(HEAD,), by="zero"))
    close(seen["without_head"], predictions)
    close(seen["stream_without_head"], stream)
    assert (seen["without_head"] - seen["predictions"]).abs().max() > 0.01


@pytest.mark.extras
@torch.no_grad()
def test_a_head_without_queries_attends_uniformly(model, asked, seen):
    predictions, _ = changed(model, asked, ReplacePattern(layer=LAYER, heads=(HEAD,), by="uniform"))
    close(seen["without_queries"], predictions)
    assert (seen["without_queries"] - seen["predictions"]).abs().max() > 0.01


def test_nnsight_is_missed_only_where_it_may_be():
    require(True, {"HOPSCOPE_REQUIRE_NNSIGHT": "1"})
    with pytest.raises(pytest.skip.Exception, match=r"pip install -e .\[nnsight\]"):
        require(False, {})
    with pytest.raises(pytest.fail.Exception, match="HOPSCOPE_REQUIRE_NNSIGHT=1 asks for it"):
        require(False, {"HOPSCOPE_REQUIRE_NNSIGHT": "1"})


@pytest.mark.extras
def test_readme_example_runs(emergence_run, tmp_path):
    require(find_spec("nnsight") is not None, os.environ)
    run, readme = RunFolder.open(emergence_run), Path(__file__).parents[2] / "README.md"
    export_module(load_member(run, 0), tmp_path / "member0", {"run": run.hash, "step": 200})
    example = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)[-1]
    # The run of the tests has fewer positions.
    smaller = {"member0": str(tmp_path / "member0"), "1, 12, 8": "1, 6, 8"}
    for theirs, ours in smaller.items():
        assert theirs in example
        example = example.replace(theirs, ours)
    script = tmp_path / "example.py"  # nnsight reads the source of what it traces
    script.write_text(f"{example}\nprint(tuple(predictions.shape))\n")
    root = str(Path(hopscope.__file__).parents[1])
    known = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=known, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("(1, 6, 4)")  # predictions at every position
