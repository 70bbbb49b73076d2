"""Names of pretrained models: folders, GGUF files, packages; and what is said where there is none."""

import importlib.util
import os
from importlib.util import find_spec

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


def test_a_file_that_is_no_model(tmp_path, monkeypatch):
    require(find_spec("transformers") is not None, os.environ)
    if find_spec("gguf") is None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UserError, match=r"nothing\.gguf: expected a GGUF file, found none; check the path"):
        plain_folder(str(tmp_path / "nothing.gguf"))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(
        UserError, match="expected a GGUF file of an architecture that transformers reads"
    ) as raised:
        load_pretrained(str(damaged))
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "caches" / "hopscope" / "models").iterdir())


def test_other_names_are_left_as_they_are():
    assert plain_folder("organisation/model") == "organisation/model"


@pytest.mark.soak
@pytest.mark.parametrize("name", PACKAGES)
def test_a_packaged_model_repeats_what_it_has_read(name):
    """Induction, by the plainest means: the likeliest word after a list that begins again is the list's next one."""
    require(find_spec("transformers") is not None, os.environ)
    if find_spec(PACKAGES[name].distribution.replace("-", "_")) is None:
        pytest.skip(f"{PACKAGES[name].distribution} is not installed: `{PACKAGES[name].install}`")
    import torch

    model, tokenizer = load_pretrained(name)
    words = "river candle window seven paper orange music stone"
    text = f"{words}\n{words}\n{words.rsplit(' ', 1)[0]}"
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer(text).input_ids])).logits[0, -1]
    assert tokenizer.decode([int(logits.argmax())]).strip() == "stone"
