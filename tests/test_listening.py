"""Nothing listens: no part of Hopscope takes connections, and its tests take them from this machine alone."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SERVERS = {
    "socket",
    "socketserver",
    "http.server",
    "xmlrpc.server",
    "wsgiref",
    "asyncio",
    "multiprocessing.managers",
}

GUARD = """
import os, sys

def _watch(event, arguments):
    if event == "socket.bind":
        with open(os.environ["BOUND"], "a") as file:
            file.write(f"{sys.argv} {arguments[1]!r}\\n")

sys.addaudithook(_watch)
"""
"""Python imports this module when it starts; it notes every address that a process takes."""


def modules(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", modules("src", "campaigns"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_product_has_no_server(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        allowed = {"socket"} if path.name in ("on_ray.py", "ray.py") else set()  # it asks whether an address answers
        assert not SERVERS & set(names) - allowed, f"{path}: {names}"


def test_servers_of_tests_and_benchmarks_take_loopback_alone():
    bound = []
    for path in modules("tests", "benchmarks", "docs", "examples"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for address in _addresses(node):
                bound.append(address)
                assert address == "127.0.0.1", f"{path}:{node.lineno}: {address!r}"
    assert len(bound) >= 3


def _addresses(node):
    """Addresses that a call binds: `….bind((host, port))`, `…Server((host, port), …)`, `"--host", host`."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Tuple):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "bind" or name.endswith("Server"):
            yield getattr(node.args[0].elts[0], "value", None)
    if isinstance(node, ast.List):
        words = [getattr(each, "value", None) for each in node.elts]
        yield from (words[at + 1] for at, word in enumerate(words[:-1]) if word == "--host")


def test_the_guard_sees_a_server():
    tree = ast.parse('ThreadingHTTPServer(("", 0), None); one.bind(("0.0.0.0", 7)); start(["--host", "::"])')
    assert [address for node in ast.walk(tree) for address in _addresses(node)] == ["", "0.0.0.0", "::"]


@pytest.mark.extras
@pytest.mark.long
def test_a_run_with_its_workers_takes_no_address(small_run, processes, processes_module, tmp_path):
    """From an unfinished run on: workers, analysis, claims, figures and page."""
    out = tmp_path / "runs"
    shutil.copytree(small_run.parents[1], out)
    run = out / small_run.parent.name / small_run.name
    (run / "DONE").unlink()
    (run / "claims.json").unlink()
    for unit in (run / "units").iterdir():
        (unit / "DONE").unlink()
        shutil.rmtree(unit / "analysis")
    guard, bound = tmp_path / "guard", tmp_path / "bound"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    environment = {
        **processes.environment(), "PYTHONPATH": os.pathsep.join([str(guard), str(processes.home / "source")]),
        "BOUND": str(bound),
    }  # fmt: skip
    # That the guard would have seen one.
    seen = "import socket; socket.socket().bind(('127.0.0.1', 0))"
    subprocess.run([sys.executable, "-c", seen], env=environment, check=True)
    assert "127.0.0.1" in bound.read_text()
    bound.unlink()
    command = [sys.executable, "-m", "hopscope", "run", *map(str, processes_module.SMALL), "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not bound.exists(), bound.read_text()
