"""Real servers of a model whose answers are known: `transformers serve` over the network, and Inspect's own `hf/`."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from scipy.stats import binomtest

from hopscope.errors import UserError
from hopscope.language.questions.answers import rows, tallies

from .own import ask as ask_sets
from .tiny import build

ANSWERS = {"0": 0.2, "1": 0.1, "2": 0.3, "3": 0.1, "zz": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tiny"), ANSWERS)


@contextmanager
def served(model, home, port=None):
    """`transformers serve` of a folder on a port of this machine; yields the port."""
    # Without the hub's folder the server fails as soon as it lists its models.
    (home / "hub").mkdir(parents=True, exist_ok=True)
    if port is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(model), "--device", "cpu"]
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    with (home / "output").open("w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, home / "output")
        yield port
    finally:
        process.kill()
        process.wait()


def wait_for(url, process, output):
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{output.read_text()}")


def ask(model, folder, **how):
    (log,) = ask_sets([model], ["equations"], log_dir=folder, depths=[2], **how)
    return rows(log)


def check_distribution(found, count):
    """First answers have the distribution of the model, and what is not acceptable was asked again."""
    assert len(found) == count
    first = Counter(row.first if row.first else row.rejected[0].text for row in found)
    assert set(first) <= set(ANSWERS)
    for word, probability in ANSWERS.items():
        low, high = binomtest(first[word], count).proportion_ci(0.9999)
        assert low < probability < high
    assert all(row.attempts == 1 + len(row.rejected) for row in found if row.answer)
    assert count < 30 or any(row.attempts > 1 for row in found)


def test_in_this_process(folder, tmp_path):
    found = ask(f"hf/{folder}", tmp_path, count=31, max_tokens=4, timeout=None)
    check_distribution(found, 31)


def serve_and_ask(folder, tmp_path, monkeypatch, count):
    monkeypatch.setenv("SERVED_API_KEY", "none")
    # The server names its model by the path that it was given.
    model = f"openai-api/served/{folder}"
    how = {"max_connections": 4, "max_tokens": 4}
    with served(folder, tmp_path / "home") as port:
        url = f"http://127.0.0.1:{port}/v1"
        found = ask(model, tmp_path / "logs", count=count, base_url=url, **how)
    check_distribution(found, count)
    assert tallies(found)[0].answered.count == count - sum(row.stuck for row in found)
    return model, url, port, how


def test_through_a_server(folder, tmp_path, monkeypatch):
    serve_and_ask(folder, tmp_path, monkeypatch, 7)


@pytest.mark.soak
def test_through_a_server_that_goes_away_and_comes_back(folder, tmp_path, monkeypatch):
    model, url, port, how = serve_and_ask(folder, tmp_path, monkeypatch, 101)
    with pytest.raises(UserError, match="0 of 17 questions are answered"):
        ask(model, tmp_path / "logs", count=17, base_url=url, timeout=1, **how)
    with served(folder, tmp_path / "home", port):
        check_distribution(ask(model, tmp_path / "logs", count=17, base_url=url, timeout=50, **how), 17)


@pytest.mark.soak
def test_a_greedy_server_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVED_API_KEY", "none")
    folder = build(tmp_path / "greedy", {"0": 0.3, "zz": 0.7}, sampled=False)
    with served(folder, tmp_path / "home") as port:
        found = ask(
            f"openai-api/served/{folder}",
            tmp_path / "logs",
            count=5,
            base_url=f"http://127.0.0.1:{port}/v1",
            temperature=0,
        )
    assert [(row.attempts, row.stuck, row.answer) for row in found] == [(3, True, None)] * 5
