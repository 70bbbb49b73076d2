"""A model of ours as a Hugging Face folder, without any library of theirs: there and back."""

import itertools
import json
import os
from contextlib import suppress

import pytest
import torch
from safetensors.torch import load_file

import hopscope as hs
from hopscope.errors import UserError
from hopscope.language.gpt2_folder import CONFIG, ORIGIN, WEIGHTS, read_folder, write_folder
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import EquationsConfig
from hopscope.tasks.equations import EquationsTask

TASK = EquationsTask(EquationsConfig(chains=3, depths=(1, 2)))


def module_of(**changes):
    shape = {
        "layers": 2, "heads": 3, "width": 33, "mlp_ratio": 0.0, "positions": "learned", "length": TASK.positions,
        "input_size": TASK.input_size, "output_size": TASK.output_size, "readout": TASK.readout, "init": "encoder",
        **changes,
    }  # fmt: skip
    model = Transformer.initial(TransformerConfig(**shape), torch.tensor([5]))
    noise = torch.randn(model.parameters.flat.shape, generator=torch.Generator().manual_seed(7))
    model.parameters.flat += 0.1 * noise
    return model.member(0)


@pytest.mark.parametrize("mlp_ratio", [0.0, 2.0])
def test_there_and_back_the_logits_are_the_same(tmp_path, mlp_ratio):
    module = module_of(mlp_ratio=mlp_ratio)
    write_folder(module, TASK.vocabulary, tmp_path / "model", {"step": 11})
    found, vocabulary = read_folder(tmp_path / "model")
    assert vocabulary == TASK.vocabulary
    inputs = TASK.sample(torch.tensor([1]), "train", 0, 7).inputs[0]
    torch.testing.assert_close(found(inputs), module(inputs), rtol=0.0, atol=1e-4)
    assert not found.readout.bias.any()
    assert torch.equal(hs.load(tmp_path / "model")(inputs), found(inputs))


@pytest.mark.parametrize("size", [1.0, 1e30])
@torch.no_grad()
def test_the_bias_of_the_readout_is_carried_whatever_stood_in_memory(tmp_path, size):
    """Weights of a member that diverged may be of any size."""
    module = module_of()
    weight, bias = module.readout.weight, module.readout.bias
    for of_readout in (weight, bias):
        of_readout.copy_(size * of_readout.sign())
    weight[:, 1] = weight[:, 0]  # the rows are independent, but not in the first columns alone
    for _ in range(37):
        left = [torch.ones(module.config.width, dtype=torch.int32) for _ in range(53)]
        del left
        write_folder(module, TASK.vocabulary, tmp_path, {})
        moved = (
            load_file(tmp_path / WEIGHTS)["transformer.ln_f.bias"] - module.state_dict()["final_norm.bias"]
        )
        torch.testing.assert_close(weight @ moved, bias, rtol=1e-5, atol=0.0)


@torch.no_grad()
def test_a_readout_whose_rows_depend_on_each_other_is_refused(tmp_path):
    module = module_of()
    module.readout.weight[1] = module.readout.weight[0]
    with pytest.raises(UserError, match="expected a readout whose bias the last norm can carry"):
        write_folder(module, TASK.vocabulary, tmp_path, {})


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path):
    write_folder(module_of(), TASK.vocabulary, tmp_path, {"step": 1})
    write_folder(module_of(), TASK.vocabulary, tmp_path, {"step": 2})
    assert json.loads((tmp_path / ORIGIN).read_text())["origin"] == {"step": 2}
    (tmp_path / ORIGIN).unlink()
    with pytest.raises(UserError, match="expected an empty folder or an earlier export"):
        write_folder(module_of(), TASK.vocabulary, tmp_path, {})


@pytest.mark.parametrize(
    "changes",
    [{"norm": "post"}, {"causal": False}, {"positions": "none"}, {"head_dim": 5}, {"width": 18, "heads": 3}],
)
def test_what_the_layout_cannot_tell_is_refused(tmp_path, changes):
    with pytest.raises(UserError, match=r"expected (a causal pre-norm model|at least the \d+ tokens)"):
        write_folder(module_of(**changes), TASK.vocabulary, tmp_path, {})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["cut", "gone", "record"])
def test_a_damaged_folder_is_said_in_one_line(tmp_path, damage):
    write_folder(module_of(), TASK.vocabulary, tmp_path, {})
    if damage == "cut":
        (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:999])
    elif damage == "gone":
        (tmp_path / WEIGHTS).unlink()
    else:
        (tmp_path / ORIGIN).write_text("{}")
    with pytest.raises(UserError, match="export the member again") as error:
        read_folder(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "vocabulary"),
    [({"layers": 10**7}, None), ({"output_size": 10**9}, None), ({}, [7]), ({}, "words"), ({}, None)],
)
def test_a_record_of_another_model_is_said_in_one_line(tmp_path, changes, vocabulary):
    write_folder(module_of(), TASK.vocabulary, tmp_path, {})
    record = json.loads((tmp_path / ORIGIN).read_text())
    record["model"] |= changes
    if vocabulary or not changes:
        record["vocabulary"] = vocabulary
    (tmp_path / ORIGIN).write_text(json.dumps(record))
    with pytest.raises(UserError, match="expected an exported language model, found") as error:
        read_folder(tmp_path)
    assert "\n" not in str(error.value)


@torch.no_grad()
def test_an_export_that_is_cut_short_never_takes_one_model_for_another(tmp_path, monkeypatch):
    """Neither here nor in tools that open a folder by its config.json."""
    old, new = module_of(), module_of(layers=3)
    inputs = TASK.sample(torch.tensor([1]), "train", 0, 7).inputs[0]
    real, told = os.replace, []
    for cut in range(1, 8):
        write_folder(old, TASK.vocabulary, tmp_path, {}, exact=True)

        def replace(source, target, cut=cut, counted=itertools.count(1)):  # noqa: B008 - one for each cut
            if next(counted) == cut:
                raise KeyboardInterrupt
            real(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", replace)
            with suppress(KeyboardInterrupt):
                write_folder(new, TASK.vocabulary, tmp_path, {}, exact=True)
        layers = 3 if "transformer.h.2.ln_1.weight" in load_file(tmp_path / WEIGHTS) else 2
        if (tmp_path / CONFIG).exists():
            assert json.loads((tmp_path / CONFIG).read_text())["n_layer"] == layers
        try:
            loaded, _ = read_folder(tmp_path)
        except UserError as error:
            assert "found one that was cut short; export the member again" in str(error)
            told.append(cut)
        else:
            assert torch.equal(loaded(inputs), (old if layers == 2 else new)(inputs))
    assert told == [2, 3, 4, 5, 6, 7]
