"""Tests of other people's models: they need the extra `hf`, and build every model themselves."""

import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest


def require(there: bool, environment) -> None:
    """Skip without transformers, or fail where the environment says that there must be some."""
    if there:
        return
    missing = "transformers is not installed: `pip install -e .[hf]`"
    if environment.get("HOPSCOPE_REQUIRE_LLM") == "1":
        pytest.fail(f"{missing}, and HOPSCOPE_REQUIRE_LLM=1 asks for it")
    pytest.skip(missing)


@pytest.fixture(scope="session")
def planted():
    """The module of planted models."""
    require(find_spec("transformers") is not None, os.environ)
    name = "hopscope_tests_planted_heads"
    spec = spec_from_file_location(name, Path(__file__).with_name("planted.py"))
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=["gpt2", "llama", "qwen2"])
def planted_model(planted, request):
    """A planted model in one layout, with its heads found."""
    from hopscope.language.heads.model import attentive

    return attentive(f"planted {request.param}", planted.LAYOUTS[request.param](), planted.tokenizer())


def folder_of(planted, name, path, template=None):
    """A planted model as `save_pretrained` writes it."""
    planted.LAYOUTS[name]().save_pretrained(path)
    planted.tokenizer(template).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def planted_folder(planted, tmp_path_factory):
    return folder_of(planted, "gpt2", tmp_path_factory.mktemp("planted"))
