"""Trained members that know their task: `Ensemble`, and the members that it hands out."""

import copy
import subprocess
import sys

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.ensemble import Ensemble
from hopscope.models.export import export_module, load_module
from hopscope.models.interventions import ReplacePattern
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.draws import Draws
from hopscope.tasks.task import Shape, Task

from .samples import HEADS, MEMBERS, OUTPUT, POSITIONS, SEEDS, SYMBOLS, WIDTH, config, inputs, lively

READOUT = (1, 4, 7)
SAMPLES = 37
SHAPE = config(readout=READOUT)


class Copying(Task):
    """Say the token that stands `back` places before each readout position."""

    back: int = 1

    def shape(self) -> Shape:
        return Shape(
            inputs="tokens", input_size=SYMBOLS, positions=POSITIONS, readout=READOUT, output_size=OUTPUT
        )

    def sample(self, draws: Draws) -> Batch:
        tokens = draws.integers("tokens", SYMBOLS, (POSITIONS,))
        asked = torch.tensor(READOUT)
        return Batch(
            tokens,
            tokens[..., asked - self.back],
            weights=torch.ones(1, 1, len(READOUT)),
            groups={"even": tokens[..., 0] % 2 == 0},
            roles={"place": lambda: torch.arange(POSITIONS).expand_as(tokens)},
            relations={"source": lambda: (torch.arange(POSITIONS) - self.back).expand_as(tokens)},
        )


class OwnSamples(TaskOnDevice):
    """A task whose held-out samples differ from member to member."""

    def evaluation(self, count: int, *, annotate: bool = True) -> Batch:
        return self.sample(SEEDS, "held-out", 0, count, annotate=annotate)


@pytest.fixture
def task():
    return TaskOnDevice(Copying())


@pytest.fixture
def ensemble(task):
    return Ensemble(lively(SHAPE), task, members=(5, 8), seeds=SEEDS.tolist(), step=1300)


@pytest.fixture
def lonely():
    """Members without a task."""
    return Ensemble(lively(SHAPE))


def test_it_says_what_it_is(ensemble, lonely, task):
    assert len(ensemble) == MEMBERS and ensemble.config == SHAPE
    assert (ensemble.members, ensemble.seeds, ensemble.step) == ((5, 8), (31, 37), 1300)
    assert ensemble.task is task and ensemble.member(1).task is task
    said = ("members 5, 8", "3 layers", "5 heads", "width 17", "step 1,300")
    assert all(part in repr(ensemble) for part in said)
    assert (lonely.members, lonely.seeds, lonely.step, lonely.task) == ((0, 1), None, None, None)
    with pytest.raises(ValueError, match="seeds: expected 2, found 3"):
        Ensemble(lively(SHAPE), seeds=[2, 3, 5])


@torch.no_grad()
def test_it_answers_at_the_readout_positions(ensemble):
    given = inputs(SHAPE)
    found = ensemble(given)
    assert torch.equal(found, ensemble.transformer(given))
    assert found.shape[2:] == (len(READOUT), OUTPUT)
    assert torch.equal(ensemble(given[0])[0], found[0])
    with pytest.raises(UserError, match=r"inputs: expected 1 to 11 positions, found 12"):
        ensemble(torch.zeros(3, 12, dtype=torch.int64))


def test_a_batch_is_held_out_samples_of_its_task(ensemble, task):
    batch, expected = ensemble.batch(SAMPLES), task.evaluation(SAMPLES)
    assert torch.equal(batch.inputs, expected.inputs) and batch.inputs.shape == (1, SAMPLES, POSITIONS)
    assert torch.equal(batch.relations["source"], expected.relations["source"])
    assert ensemble.batch().inputs.shape[1] == 64
    assert torch.equal(ensemble.batch(SAMPLES, "held_out").inputs, batch.inputs)


def test_the_batch_of_a_member_has_no_member_axis(ensemble):
    member, together = ensemble.member(1), ensemble.batch(SAMPLES)
    batch = member.batch(SAMPLES)
    assert batch.inputs.shape == (SAMPLES, POSITIONS) and batch.targets.shape == (SAMPLES, len(READOUT))
    assert batch.weights.shape == (1, len(READOUT)) and batch.groups["even"].shape == (SAMPLES,)
    assert batch.roles["place"].shape == batch.relations["source"].shape == (SAMPLES, POSITIONS)
    assert torch.equal(batch.inputs, together.inputs[0]) and torch.equal(batch.targets, together.targets[0])
    some = batch.take(slice(7))
    assert some.inputs.shape == (7, POSITIONS) and some.targets.shape == (7, len(READOUT))
    assert some.roles["place"].shape == (7, POSITIONS) and some.groups["even"].shape == (7,)
    assert member.batch().inputs.shape == (64, POSITIONS)


def test_members_whose_samples_differ_get_their_own():
    ensemble = Ensemble(lively(SHAPE), OwnSamples(Copying()))
    together = ensemble.batch(SAMPLES)
    assert together.inputs.shape == (MEMBERS, SAMPLES, POSITIONS)
    for index in range(MEMBERS):
        assert torch.equal(ensemble.member(index).batch(SAMPLES).inputs, together.inputs[index])
    assert not torch.equal(together.inputs[0], together.inputs[1])


@pytest.mark.parametrize("use", ["train", "probe"])
def test_samples_of_other_uses_are_those_of_the_members_seeds(ensemble, task, use):
    together = ensemble.batch(SAMPLES, use)
    assert torch.equal(together.inputs, task.sample(SEEDS, use, 0, SAMPLES).inputs)
    for index in range(MEMBERS):
        assert torch.equal(ensemble.member(index).batch(SAMPLES, use).inputs, together.inputs[index])
    assert not torch.equal(together.inputs[0], together.inputs[1])


def test_an_exhaustive_set_gives_as_many_as_it_is_asked_for():
    class Few(Copying):
        def cases(self, use):
            return self.sample(Draws.of(torch.tensor([3]), use, 0, 19))

    ensemble = Ensemble(lively(SHAPE), TaskOnDevice(Few()))
    every = ensemble.batch(23)
    assert every.inputs.shape[1] == 19
    assert torch.equal(ensemble.batch(7).inputs, every.inputs[:, :7])
    assert ensemble.member(0).batch(7).roles["place"].shape == (7, POSITIONS)


def test_cache_and_intervene_as_the_surface_promises(ensemble):
    member, batch = ensemble.member(1), ensemble.member(1).batch(SAMPLES)
    cache = member.cache(batch.inputs)
    assert cache["blocks.0.attn.hook_pattern"].shape == (SAMPLES, HEADS, POSITIONS, POSITIONS)
    stream = ensemble.cache(ensemble.batch(SAMPLES).inputs)["blocks.1.hook_resid_post"]
    assert stream.shape == (MEMBERS, SAMPLES, POSITIONS, WIDTH)
    torch.testing.assert_close(stream[1], cache["blocks.1.hook_resid_post"], rtol=1e-5, atol=1e-5)
    interventions = (
        [ReplacePattern(layer=0, by="one_hot", relation="source")],
        {"blocks.0.attn.hook_pattern": lambda pattern: pattern.roll(1, -1)},
    )
    for each in interventions:
        found = member.intervene(batch, each)
        assert found.shape == (SAMPLES, len(READOUT), OUTPUT)
        for given in (batch, ensemble.batch(SAMPLES)):
            together = ensemble.intervene(given, each)
            torch.testing.assert_close(together[1], found, rtol=1e-5, atol=1e-5)
        assert (found - cache["predictions"]).abs().max() > 0.01


def test_an_unknown_site_is_one_clear_line_with_the_names_that_come_close(ensemble):
    for inside in (ensemble.cache(inputs(SHAPE)), ensemble.member(0).cache(inputs(SHAPE)[0])):
        with pytest.raises(UserError) as caught:
            inside["blocks.0.hook_mlp"]
        parts = ("site: ", "3 layers", "found 'blocks.0.hook_mlp'", "close to it: blocks.0.hook_mlp_out")
        assert all(part in str(caught.value) for part in parts)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_member_that_is_not_there_is_refused(ensemble, index):
    with pytest.raises(
        UserError, match=rf"member: expected 0 to 1 \(these are members 5, 8 .*\), found {index}"
    ):
        ensemble.member(index)


# The task: none, or found late.


def test_weights_without_a_task_can_be_looked_into_but_have_no_batch(lonely, tmp_path):
    export_module(lonely.member(0), tmp_path / "out", {"step": 3})
    for model in (lonely, lonely.member(0), load_module(tmp_path / "out")):
        assert model.task is None
        assert "predictions" in model.cache(inputs(SHAPE)[0])
        with pytest.raises(UserError, match=r"^batch: .*found weights alone; .*open_run\(…\)\.member\(…\)"):
            model.batch()


def test_a_task_is_found_when_it_is_first_needed_and_then_kept(task):
    calls = []

    def find():
        calls.append(1)
        return task

    ensemble = Ensemble(lively(SHAPE), find)
    member = ensemble.member(1)
    ensemble.cache(inputs(SHAPE))
    member.intervene(
        Batch(inputs(SHAPE)[0], inputs(SHAPE)[0][:, :3]), [ReplacePattern(layer=0, by="uniform")]
    )
    assert not calls
    assert member.task is task and ensemble.task is task and ensemble.batch(3).inputs.shape[1] == 3
    assert calls == [1]


def test_a_task_that_cannot_be_found_says_why_and_the_cache_goes_on():
    def find():
        raise UserError("copying.py: expected the file of the run, found another; put it back")

    ensemble = Ensemble(lively(SHAPE), find)
    for model in (ensemble, ensemble.member(0)):
        for refused in (model.batch, lambda model=model: model.task):
            with pytest.raises(UserError, match="expected the file of the run, found another; put it back"):
                refused()
        assert model.cache(inputs(SHAPE)[0])["hook_embed"].any()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"n": 0}, "n: expected at least 1 sample, found 0"),
        ({"use": "test"}, "use: expected 'held-out', 'train' or 'probe', found 'test'"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(ensemble, arguments, complaint):
    for model in (ensemble, ensemble.member(0)):
        with pytest.raises(UserError, match=complaint):
            model.batch(**arguments)


def test_training_samples_need_the_members_seeds(task):
    ensemble = Ensemble(lively(SHAPE), task)
    for model in (ensemble, ensemble.member(0)):
        with pytest.raises(UserError, match="expected 'held-out' for members whose seeds are not known"):
            model.batch(3, use="train")


def test_a_member_that_knows_its_task_is_still_a_plain_module(ensemble):
    member = ensemble.member(0)
    assert isinstance(member, torch.nn.Module)
    plain = ensemble.transformer.member(0)
    assert list(member.state_dict()) == list(plain.state_dict())
    assert {name for name, _ in member.named_modules()} == {name for name, _ in plain.named_modules()}
    twin = copy.deepcopy(member)
    assert torch.equal(twin.batch(3).inputs, member.batch(3).inputs)
    assert member(member.batch(3).inputs).shape == (3, POSITIONS, OUTPUT)


LEARNED = {"layers": 1, "heads": 1, "width": 4, "positions": "learned", "output_size": 5}
TOKENS = TransformerConfig(**LEARNED, length=3, readout=(2,), input_kind="tokens", input_size=7)
VECTORS = TransformerConfig(**LEARNED, length=3, readout=(2,), input_kind="vectors", input_size=7)


@pytest.mark.parametrize(
    ("config", "inputs", "words"),
    [
        (TOKENS, torch.tensor([[7, 2]]), "expected token ids from 0 to 6, found 2 to 7"),
        (TOKENS, torch.tensor([[-1, 2]]), "expected token ids from 0 to 6, found -1 to 2"),
        (TOKENS, torch.tensor([1, 2]), "expected a tensor [batch, 1 to 3 positions], found shape [2]"),
        (TOKENS, torch.zeros(2, 11, dtype=torch.int64), "[batch, 1 to 3 positions], found shape [2, 11]"),
        (TOKENS, torch.zeros(2, 3), "expected token ids as int64, found float32"),
        (VECTORS, torch.zeros(2, 3), "[batch, 1 to 3 positions, 7], found shape [2, 3]"),
        (VECTORS, torch.zeros(2, 3, 5), "[batch, 1 to 3 positions, 7], found shape [2, 3, 5]"),
        (VECTORS, torch.zeros(2, 11, 7), "[batch, 1 to 3 positions, 7], found shape [2, 11, 7]"),
    ],
)
def test_a_member_refuses_inputs_that_it_cannot_read(config, inputs, words):
    member = Transformer.initial(config, torch.tensor([3])).member(0)
    with pytest.raises(UserError) as caught:
        member(inputs)
    assert str(caught.value).startswith("inputs: expected ") and words in str(caught.value)


def test_a_member_reads_as_many_positions_as_it_has():
    member = Transformer.initial(TOKENS, torch.tensor([3])).member(0)
    assert [member(torch.full((2, length), 6)).shape for length in (1, 3)] == [(2, 1, 5), (2, 3, 5)]


def test_a_member_says_what_a_list_should_be():
    """In a process of its own: these tests check the types of arguments before the member can."""
    script = (
        "import torch; from hopscope.models.config import TransformerConfig as C; "
        "from hopscope.models.member import MemberTransformer as M; "
        f"M.empty(C.model_validate({TOKENS.model_dump()!r}))([[1, 2]])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    line = done.stderr.splitlines()[-1]
    assert all(part in line for part in ("UserError: inputs: ", "[batch, 1 to 3 positions]", "found a list"))
