"""Runs on a Ray cluster, and through submitit's executors, that end as runs on this machine do."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

FILE = '''"""counted.py: a study that only its file knows."""
import hopscope as hs


class Copy(hs.Task):
    """Repeat the first token."""

    length: int = 3
    values: int = 5

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=self.values, positions=self.length,
                        readout=(self.length - 1,), output_size=self.values)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


study = hs.Study(
    name="counted",
    task=Copy(),
    model=hs.Model(width=8),
    training=hs.Training(steps=12, batch_size=11, checkpoint_every=6, evaluate_every=3),
    seeds=2,
    held_out=23,
    vary={"model.layers": [1, 2]},
    claims=[hs.Claim(id="C1", statement="It copies.", source="this file", protocol="held-out accuracy",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.9), rule="always")],
)
'''


def require(package: str, environment: Mapping[str, str]) -> None:
    """Skip without a package, or fail where the environment says that it must be there."""
    if find_spec(package) is not None:
        return
    what = f"{package} not installed: `pip install -e .[ray,slurm]`"
    if environment.get("HOPSCOPE_REQUIRE_CLUSTERS") == "1":
        pytest.fail(f"{what}, and HOPSCOPE_REQUIRE_CLUSTERS=1 asks for it")
    pytest.skip(what)


def test_packages_are_missed_only_where_they_may_be():
    require("pytest", {"HOPSCOPE_REQUIRE_CLUSTERS": "1"})
    with pytest.raises(pytest.skip.Exception, match=r"pip install -e .\[ray,slurm\]"):
        require("no_such_package", {})
    with pytest.raises(pytest.fail.Exception, match="HOPSCOPE_REQUIRE_CLUSTERS=1 asks for it"):
        require("no_such_package", {"HOPSCOPE_REQUIRE_CLUSTERS": "1"})


def conclusions(root: Path, study: str) -> tuple[bytes, list[str]]:
    """The claims of the only run of a study, byte for byte, and what else lies in the root."""
    (run,) = (root / study).iterdir()
    return (run / "claims.json").read_bytes(), sorted(path.name for path in root.iterdir())


@pytest.fixture
def counted(tmp_path):
    """A study's file, of which nothing is installed."""
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "counted.py"
    path.write_text(FILE, encoding="utf-8")
    return path


# Submitit.


@pytest.mark.extras
@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_jobs_end_as_processes_do(processes, counted, tmp_path, cluster):
    require("submitit", os.environ)
    command = ["run", counted, "--device", "cpu", "--threads", 1]
    alone = processes.run(*command, "--out", tmp_path / "alone")
    assert alone.status == 0, alone.stderr
    jobs = processes.run(
        *command, "--out", tmp_path / "jobs", "--executor", "slurm", "--address", cluster, cwd=tmp_path
    )
    assert jobs.status == 0, jobs.stderr
    assert conclusions(tmp_path / "jobs", "counted") == conclusions(tmp_path / "alone", "counted")


# Ray.

LIMIT = 240.0
"""Seconds after which a run counts as hanging: a machine that does other work may be ten times as slow."""


class Cluster:
    """A cluster of this machine, until the `with` ends."""

    def __init__(self, nodes: int):
        script = Path(__file__).with_name("ray_cluster.py")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, script, str(nodes)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        started = self._line()
        self.address: str = started["address"]
        self.raylets: list[int] = started["raylets"]

    def _line(self):
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def kill(self, raylet: int) -> None:
        """Kill a node: no farewell, as when its power goes."""
        self.process.stdin.write(f"{raylet}\n")
        self.process.stdin.flush()
        assert self._line() == "killed"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=60)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


AT_WORK = {
    "training": lambda unit, said: any(unit.glob("checkpoints/*.safetensors")),
    "analysis": lambda unit, said: said[-1]["kind"] == "phase",
    "writing": lambda unit, said: any(unit.rglob(".*.tmp")),
}
"""What a node's worker is doing → whether it is, from the folder of its unit and all that it said."""


def node_at_work(root: Path, cluster: Cluster, doing: str, ended) -> int:
    """The raylet of a node other than the head, whose worker is at something and has more to do."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        assert ended() is None, "the run ended before a node could be killed"
        for messages in root.glob(".jobs/*/*.jsonl"):
            said = [json.loads(line) for line in messages.read_text().splitlines()]
            unit = next(root.glob(f"*/*/units/{messages.stem}"), None)
            if not said or unit is None or (unit / "DONE").exists() or not AT_WORK[doing](unit, said):
                continue
            raylet = parent([each for each in said if each["kind"] == "begun"][-1]["process"])
            if raylet in cluster.raylets[1:]:
                return raylet
        time.sleep(0.002 if doing == "writing" else 0.05)
    raise AssertionError(f"no worker was found at {doing} in time")


@pytest.mark.extras
@pytest.mark.long
@pytest.mark.parametrize(
    "doing", ["training", *(pytest.param(each, marks=pytest.mark.soak) for each in ("analysis", "writing"))]
)
def test_a_run_that_loses_a_node_concludes_as_one_on_this_machine(processes, tmp_path, doing):
    """Three nodes, one of which is killed while its worker trains, analyses or writes a file."""
    require("ray", os.environ)
    command = ["run", "depth", "--preset", "smoke", "--device", "cpu", "--threads", 1]
    alone = processes.run(*command, "--out", tmp_path / "alone")
    assert alone.status == 0, alone.stderr
    with Cluster(3) as cluster:
        root = tmp_path / "cluster"
        process = processes.start(*command, "--executor", "ray", "--address", cluster.address, "--out", root)
        cluster.kill(node_at_work(root, cluster, doing, process.poll))
        ended = processes.end(process)
    assert ended.status == 0, ended.stderr
    assert "its worker was lost, and another goes on" in ended.stderr
    assert conclusions(root, "depth") == conclusions(tmp_path / "alone", "depth")
