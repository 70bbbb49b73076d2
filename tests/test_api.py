"""`hopscope.show`: one member on one sequence, from a run folder whose weights are known."""

import shutil

import pytest
import torch

import hopscope
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash, save_checkpoint
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.splits import MappingSplit
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob

VALUES, STEPS = 3, (5, 11)
BELIEFS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.05, 0.75, 0.15, 0.05]])
"""What the two members hold of the tokens 0 … 3, whatever they see."""
PROBE = [2, 3, 1, 1, 2, 3]


def make_run(root, task=None):
    length = 2 * VALUES - 1
    job = TrainJob(
        label="d7/1 repeats",
        task=PermutationConfig(values=VALUES, repeat_ratio=0.5),
        model=TransformerConfig(width=7, length=length, input_size=VALUES + 1, output_size=VALUES + 1),
        training=TrainingConfig(steps=11),
        members=(MemberPlan(member=0, seed=13), MemberPlan(member=1, seed=17)),
    )
    recorded = job.model_dump(mode="json")
    plan = {**recorded, "task": task or recorded["task"]}
    members = [
        {"member": m.member, "unit": content_hash(plan), "index": i, "seed": m.seed, "overrides": {}}
        for i, m in enumerate(job.members)
    ]
    run = RunFolder.create(root, "permutation", {"values": VALUES}, members, None)
    unit = run.units[0].create({"label": job.label, "plan": plan})
    for step in STEPS:
        model = Transformer.initial(job.model, torch.tensor([13, 17]))
        model.weights["readout.weight"].zero_()
        model.weights["readout.bias"].copy_((BELIEFS if step == STEPS[-1] else BELIEFS.flip(0)).log())
        arrays = {f"weights/{name}": view.numpy() for name, view in model.weights.items()}
        save_checkpoint(unit.checkpoint_path(step), arrays, {"step": step})
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"))


def test_steps_are_plain_values(run):
    shown = hopscope.show(run, 1, PROBE)
    assert [step.x for step in shown.steps] == [2, 1, 2]
    assert [step.used for step in shown.steps] == [[], [3], [3, 1]]
    assert [step.target for step in shown.steps] == [3, 1, 3]
    assert [step.recall for step in shown.steps] == [None, None, 3]
    assert [step.elimination for step in shown.steps] == [None, None, 2]
    assert [step.ideal for step in shown.steps] == [[1 / 3] * 3, [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    for step in shown.steps:
        assert step.probabilities == pytest.approx([0.75, 0.15, 0.05], abs=1e-6)
    assert (shown.run, shown.member, shown.checkpoint) == (run.hash, 1, 11)
    assert (shown.sequence, shown.mapping) == (PROBE, (1, 3, 2))


def test_member_and_checkpoint_are_those_asked_for(run):
    assert hopscope.show(run, 0, PROBE).steps[0].probabilities == pytest.approx([0.2, 0.3, 0.4], abs=1e-6)
    early = hopscope.show(run, 0, PROBE, step=5)
    assert early.steps[0].probabilities == pytest.approx([0.75, 0.15, 0.05], abs=1e-6)
    assert early.checkpoint == 5


def test_a_run_may_be_given_by_its_path_or_its_root(run):
    expected = hopscope.show(run, 1, PROBE)
    assert hopscope.show(run.path, 1, PROBE) == expected
    assert hopscope.show(str(run.path.parents[1]), 1, PROBE) == expected


def test_it_prints_itself_and_draws_itself(run):
    shown = hopscope.show(run, 1, PROBE)
    text = str(shown)
    assert repr(shown) == text
    assert text.startswith("d7/1 repeats, member 1, seed 17, step 11\n")
    assert f"  y=3  0.050     ██{' ' * 33}|  ✓ target  ✕ used  ← recall\n" in text
    assert max(map(len, text.splitlines())) <= 100
    drawn = shown._repr_html_()
    assert drawn.count('<li class="step">') == 3
    assert "d7/1 repeats, member 1, seed 17, step 11" in drawn
    assert "<script" not in drawn


@pytest.mark.parametrize("side", ["train", "held_out"])
def test_it_says_on_which_side_the_mapping_is(run, side):
    split = MappingSplit(VALUES, 0.2, 0)
    for mapping in split.mapping(torch.arange(split.count(side)), side).tolist():
        plain = [token for x in (2, 3, 1) for token in (x, mapping[x - 1])]
        probe = [token for x in (2, 3, 2) for token in (x, mapping[x - 1])]
        for tokens in (plain, plain[:-1], probe, probe[:-1]):
            shown = hopscope.show(run, 0, tokens)
            assert shown.split == side
            words = "one of the training mappings" if side == "train" else "held out"
            assert words in str(shown)


def test_an_open_mapping_has_no_side(run):
    shown = hopscope.show(run, 0, [2, 3, 2, 3, 2, 3])
    assert (shown.mapping, shown.split) == (None, None)
    assert "The pairs leave more than one mapping." in str(shown)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((2, PROBE), "member: expected 0 to 1"),
        ((0, PROBE, 7), "expected a checkpoint of step 7, found steps 5, 11"),
        (
            (0, [2, 3, 1, 5, 4, 4, 3, 2, 5, 1]),
            "expected 6 tokens x y x y … for V = 3, or 5 without the last y",
        ),
        ((0, [2, 3, 1, 4, 2, 3]), "expected whole numbers from 1 to 3, found 4 at place 4"),
        ((0, [2, 3, 1, 1, 2, 2]), "expected one y for each x, found 2→3 and then 2→2"),
        ((0, [2, 3, 1, 3, 2, 3]), "expected another y for every x, found 2→3 and then 1→3"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(run, arguments, words):
    with pytest.raises(UserError) as caught:
        hopscope.show(run, *arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_of_another_task_is_refused(tmp_path):
    other = make_run(tmp_path, task={"kind": "chains", "chains": 4})
    with pytest.raises(UserError, match=r"expected a run of the permutation lookup task, found .*'chains'"):
        hopscope.show(other, 0, PROBE)
    shutil.rmtree(other.path)
    with pytest.raises(UserError):
        hopscope.show(other.path, 0, PROBE)


def refused(call):
    """The one line that a call is refused with."""
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_field_that_does_not_exist_is_refused_with_the_one_that_was_meant(tmp_path):
    out = tmp_path / "runs"
    said = refused(lambda: hopscope.run("depth", "smoke", out=out, seedz=3))
    assert all(part in said for part in ("study 'depth'", "'seedz'", "'seeds'"))
    said = refused(lambda: hopscope.run("permutation", "smoke", out=out, fields={"zzz": 3}))
    assert said.startswith("study 'permutation': no field 'zzz'; expected one of the fields seeds, ")
    assert refused(lambda: hopscope.Study(name="a", seedz=3)).endswith("'seedz'; did you mean 'seeds'?")
    assert not out.exists()


def test_more_seeds_than_a_run_can_hold_are_refused(tmp_path):
    many = 10**11
    task, model = PermutationConfig(), hopscope.Model(layers=1, heads=1, width=8)
    training = hopscope.Training(steps=1)
    for call in (
        lambda: hopscope.run("depth", "smoke", out=tmp_path / "runs", seeds=many),
        lambda: hopscope.Study(name="a", seeds=many),
        lambda: hopscope.train(task, model, training, seeds=many),
    ):
        said = refused(call)
        assert "seeds: expected" in said and "10,000" in said and f"found {many}" in said and "fewer" in said
    assert "10,000" in refused(lambda: hopscope.Configuration(label="a", seeds=many))
    assert not (tmp_path / "runs").exists()


def test_an_empty_folder_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(lambda: hopscope.run("depth", "smoke", out="")).startswith(
        "out: expected a folder, found an"
    )
    assert list(tmp_path.iterdir()) == []
