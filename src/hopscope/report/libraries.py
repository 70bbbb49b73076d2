"""Vega, Vega-Lite and Vega-Embed as one script, kept once it has been made: bundling takes a second or two."""

from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from hopscope.errors import UserError
from hopscope.report.drawing import VL_VERSION
from hopscope.runs.files import write_atomic

KEPT = Path(__file__).with_name("__pycache__")
"""Folder of the kept script: beside the bytecode, where numba keeps what it compiled."""


@cache
def libraries() -> str:
    """The script, to stand within a script element."""
    # A heavy native library that `import hopscope.report` and the command line's help should not wait for.
    import vl_convert

    path = KEPT / f"vega-{version('vl-convert-python')}-{VL_VERSION}.js"
    kept = _read(path)
    if kept is not None:
        return kept
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VL_VERSION)
    script = bundle.replace("</script", "<\\/script")
    with suppress(UserError):  # in an installation that is read-only it is made each time
        write_atomic(path, f"{_digest(script.encode())}\n{script}")
    return script


def _read(path: Path) -> str | None:
    """The script on file, unless there is none or it is damaged."""
    try:
        digest, _, script = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return script.decode() if digest.decode(errors="replace") == _digest(script) else None


def _digest(script: bytes) -> str:
    return sha256(script).hexdigest()
