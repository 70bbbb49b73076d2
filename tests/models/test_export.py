"""A model in other tools has the logits that it has here."""

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.export import load, save, to_gpt2, to_transformer_lens
from hopscope.models.transformer import Transformer

SIZES = {"layers": 2, "heads": 3, "head_dim": 5, "width": 15, "length": 11, "input_size": 7, "output_size": 7}
TOKENS = torch.randint(7, (13, 11), generator=torch.Generator().manual_seed(3))


def model_of(members=None, **fields):
    config = TransformerConfig(**(SIZES | fields))
    return Transformer.initial(config, 17 if members is None else torch.arange(members))


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "fields",
    [{}, {"norm": "none", "positions": "pair", "activation": "relu"}, {"mlp_ratio": 0.0, "causal": False}],
    ids=str,
)
def test_transformer_lens(fields):
    pytest.importorskip("transformer_lens")
    model = model_of(**fields)
    found = to_transformer_lens(model)(TOKENS)
    torch.testing.assert_close(found, model(TOKENS, every_position=True), rtol=1e-4, atol=1e-5)


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fields", [{}, {"mlp_ratio": 0.0, "activation": "relu"}], ids=str)
def test_gpt2(fields, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = model_of(**fields)
    to_gpt2(model, tmp_path)
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)(TOKENS).logits
    torch.testing.assert_close(found, model(TOKENS, every_position=True), rtol=1e-4, atol=1e-5)


@pytest.mark.extras
def test_a_bias_that_the_norm_cannot_carry_is_told(tmp_path):
    pytest.importorskip("transformers")
    model = model_of()
    model.weights()["readout.weight"].zero_()
    with pytest.raises(UserError, match="whose bias the last norm can carry"):
        to_gpt2(model, tmp_path)


@pytest.mark.parametrize(
    "fields", [{"members": 2}, {"norm": "post"}, {"positions": "none"}, {"output_size": 5}], ids=str
)
def test_what_gpt2_has_no_place_for_is_told(fields, tmp_path):
    with pytest.raises(UserError, match="only such a model can be told in GPT-2's layout"):
        to_gpt2(model_of(**fields), tmp_path)


@pytest.mark.parametrize("fields", [{"members": 2}, {"norm": "post"}], ids=str)
def test_what_transformer_lens_lacks_is_told(fields):
    with pytest.raises(UserError, match="which TransformerLens has"):
        to_transformer_lens(model_of(**fields))


def test_a_member_is_saved_and_opened_again(tmp_path):
    sizes = {"input_kind": "vectors", "input_size": 5, "length": 7, "readout": (6,), "output_size": 3}
    model = model_of(**sizes, norm="post")
    for _ in range(2):  # an earlier export is replaced
        save(model, tmp_path / "new", {"study": "tiny"})
    again, inputs = load(tmp_path / "new"), torch.randn(2, 7, 5)
    assert again.config == model.config and torch.equal(again(inputs), model(inputs))
    assert "* study: tiny" in (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(UserError, match=r"model: expected a single one, found 2 members; take .member\(0\)"):
        save(model_of(members=2), tmp_path / "several", {})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("# mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"expected a new folder, or an earlier export, found README\.md"):
        save(model, tmp_path / "other", {})
    (tmp_path / "new" / "notes.txt").touch()
    with pytest.raises(UserError, match=r"expected a new folder, or an earlier export, found notes\.txt"):
        save(model, tmp_path / "new", {})
    weights = tmp_path / "new" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match="expected a model that Hopscope wrote"):
        load(tmp_path / "new")
    (tmp_path / "new" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="expected a model that Hopscope wrote"):
        load(tmp_path / "new")


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_nnsight_traces_a_member_as_it_is():
    nnsight, model = pytest.importorskip("nnsight"), model_of()
    traced = nnsight.NNsight(model)
    with traced.trace(TOKENS):
        stream, found = traced.layers[0].output.save(), traced.output.save()
    assert torch.equal(stream, model.cache(TOKENS)["blocks.0.hook_resid_post"])
    assert torch.equal(found, model(TOKENS))
