"""Nothing listens: no part of Hopscope takes connections, and its tests take them from this machine alone."""

import ast
import os
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
ASKS = {"ray.py"}
"""Whether an address answers; it takes none."""

GUARD = """
import os, sys

def _watch(event, arguments):
    if event == "socket.bind":
        with open(os.environ["BOUND"], "a") as file:
            file.write(f"{sys.argv} {arguments[1]!r}\\n")

sys.addaudithook(_watch)
"""
"""Python imports this module when it starts; it notes every address that a process takes."""


def nodes(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((path, node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def addresses(node):
    """Addresses that a call binds: `….bind((host, port))`, `…Server((host, port), …)`, `"--host", host`."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Tuple):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "bind" or name.endswith("Server"):
            yield getattr(node.args[0].elts[0], "value", None)
    if isinstance(node, ast.List):
        words = [getattr(each, "value", None) for each in node.elts]
        yield from (words[at + 1] for at, word in enumerate(words[:-1]) if word == "--host")


def test_the_package_has_no_server():
    for path, node in nodes("src"):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert not SERVERS & {*names} - ({"socket"} if path.name in ASKS else set()), f"{path}: {names}"
        assert not [*addresses(node)], f"{path}:{node.lineno}"


def test_servers_of_tests_and_benchmarks_take_loopback_alone():
    bound = [
        (path, at)
        for path, node in nodes("tests", "benchmarks", "docs", "examples")
        for at in addresses(node)
    ]
    assert bound and {at for _, at in bound} == {"127.0.0.1"}, bound


def test_the_guard_sees_a_server():
    tree = ast.parse('ThreadingHTTPServer(("", 0), None); one.bind(("0.0.0.0", 7)); start(["--host", "::"])')
    assert [address for node in ast.walk(tree) for address in addresses(node)] == ["", "0.0.0.0", "::"]


@pytest.mark.long
def test_a_run_with_its_workers_takes_no_address(tmp_path):
    """Workers, measures, claims, figures and page."""
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    bound, paths = tmp_path / "bound", [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "BOUND": str(bound)}
    # That the guard would have seen one.
    seen = "import socket; socket.socket().bind(('127.0.0.1', 0))"
    subprocess.run([sys.executable, "-c", seen], env=environment, check=True)
    assert "127.0.0.1" in bound.read_text()
    bound.unlink()
    code = "import sys; from hopscope.cli import main; sys.exit(main())"
    study = ROOT / "tests" / "faults" / "tiny.py"
    command = [sys.executable, "-c", code, "run", str(study), "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not bound.exists(), bound.read_text()
