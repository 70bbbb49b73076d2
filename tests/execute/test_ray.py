"""A study that Ray trains is the study that this machine trains; what a cluster can do wrong is told in one line."""

import pytest

import hopscope as hs
from hopscope.errors import UserError

pytestmark = pytest.mark.extras
ray = pytest.importorskip("ray")

STUDY = """
import hopscope as hs

study = hs.Study(
    name="tiny", task=hs.tasks.Retrieval(steps=1, chains=2), model=hs.Model(layers=1, heads=1, head_dim=8, width=16),
    training=hs.Training(steps=30, batch_size=3, checkpoint_every=10), seeds=2, held_out=7,
)
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "tiny_on_ray.py"
    path.write_text(STUDY, encoding="utf-8")
    return str(path)


def files(run):
    skipped = (".lock",)
    paths = (path for path in run.path.rglob("*") if path.is_file() and path.name not in skipped)
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in paths}


def test_a_run_on_a_cluster_has_the_same_bytes(study, tmp_path):
    here, there = hs.run(study, out=tmp_path / "a"), hs.run(study, out=tmp_path / "b", executor="ray")
    assert files(here) == files(there)
    assert not list((tmp_path / "b").glob(".jobs/*"))
    assert not ray.is_initialized()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_one_line(study, tmp_path, address):
    with pytest.raises(
        UserError, match=f"expected a Ray cluster at {address}, found .*; start one with"
    ) as error:
        hs.run(study, out=tmp_path, executor="ray", address=address)
    assert "\n" not in str(error.value)
