"""Collections made of a run: what is in them, that they are made alike twice, and what is refused."""

import json
import shutil

import pytest
import torch

import hopscope as hs
from hopscope.collection.building import Source, build, rounded
from hopscope.collection.index import by_configuration, read_index, slug
from hopscope.collection.learning import Part, learned_at
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer


@pytest.fixture(scope="module")
def run(emergence_run, tmp_path_factory):
    """A copy: circuits are kept in the run that they are read of."""
    return shutil.copytree(emergence_run, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def collection(run, tmp_path_factory):
    """The collection of all members of the run."""
    to = tmp_path_factory.mktemp("collections") / "all"
    build([Source(run, None, "hopscope run emergence")], to)
    return to


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_members_are_those_of_the_run_but_for_rounding(run, collection):
    opened = hs.open_run(run)
    rows = read_index(collection)
    assert [row.member for row in rows] == [record.member for record in opened.members]
    for row in rows:
        trained, here = opened.member(row.member), hs.load(collection / row.name)
        for name, weights in trained.state_dict().items():
            assert torch.equal(weights.half().float(), here.state_dict()[name]), name
        assert torch.equal(trained.batch(7).inputs, here.batch(7).inputs)
        assert torch.equal(trained.batch(7, "train").inputs, here.batch(7, "train").inputs)
        assert row.verdict == opened.circuit(row.member).verdict
        assert 0.0 < row.change < 0.01


def test_the_same_command_makes_the_same_files(run, collection, tmp_path):
    copy = shutil.copytree(collection, tmp_path / "copy")
    build([Source(run, None, "hopscope run emergence")], copy)
    assert contents(copy) == contents(collection)


def test_some_members_alone(run, tmp_path):
    rows = build([Source.of(f"{run}:1")], tmp_path / "one")
    assert [row.member for row in rows] == [1]
    assert ":1 " in (tmp_path / "one" / "README.md").read_text("utf-8")
    groups = list(by_configuration(rows))
    assert [of["members"] for _, of in groups] == [1]
    with pytest.raises(UserError, match="expected no members but those of these runs"):
        build([Source.of(f"{run}:0")], tmp_path / "one")


def test_what_is_refused(run, tmp_path):
    with pytest.raises(UserError, match=r"expected RUN or RUN:NUMBERS.*found '.*:x'"):
        Source.of(f"{run}:x")
    with pytest.raises(UserError, match=r"expected members from 0 to \d+, found 77"):
        build([Source.of(f"{run}:77")], tmp_path / "new")
    with pytest.raises(UserError, match="expected members of different names, found two"):
        build([Source(run), Source(run)], tmp_path / "new")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(UserError, match="expected an empty folder or an earlier collection"):
        build([Source(run)], tmp_path / "other")
    assert not (tmp_path / "new").exists()


def test_a_unit_that_is_not_trained_is_refused(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    unit = hs.open_run(copy).units[0]
    (unit.path / "DONE").unlink()
    unit.checkpoints()[-1][1].unlink()
    with pytest.raises(UserError, match="expected a trained unit"):
        build([Source(copy)], tmp_path / "new")


def test_weights_that_float16_cannot_hold():
    config = TransformerConfig(
        layers=1, heads=1, width=3, mlp_ratio=0.0, length=2, input_size=5, output_size=7
    )
    parameters = Parameters(parameter_specs(config), 1)
    with torch.no_grad():
        parameters.flat.fill_(1.0 + 2.0**-12)
    assert set(rounded(Transformer(config, parameters)).parameters.flat.unique().tolist()) <= {0.0, 1.0}
    with torch.no_grad():
        parameters.flat[0, 0] = 65_536.0
    with pytest.raises(
        UserError, match="huge: expected weights that float16 holds, up to 65504, found one of 65536"
    ):
        rounded(Transformer(config, parameters), "huge")


def test_when_a_part_was_learned():
    loss, skill = Part("loss_step_1", 0.25), Part("recall", 0.9, rises=True)
    record = {"loss_step_1": {0: 1.0, 5: 0.2, 10: 0.3, 20: 0.24, 30: 0.1}, "recall": {0: 0.2, 30: 0.89}}
    parts = {"step_1": loss, "recall": skill, "unseen": Part("other", 1.0)}
    assert learned_at(parts, record) == {"step_1": 20, "recall": None, "unseen": None}


def test_names_of_folders():
    assert slug("first-steps D=2, 4 layers, x₂ alone seed-3") == "first-steps-d-2-4-layers-x2-alone-seed-3"


def test_the_index_is_one_object_a_line(collection):
    lines = (collection / "members.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["name"] for line in lines] == [row.name for row in read_index(collection)]
