"""How many workers train beside each other is no part of the result."""

import pytest


@pytest.mark.extras
def test_one_worker_writes_what_two_do(processes, processes_module, depth_run, tmp_path):
    """The same three units, each on one thread, one after another: the same bytes in every file."""
    command = list(processes_module.DEPTH)
    command[command.index("--threads") + 1] = 1
    ended = processes.run("run", *command, "--out", tmp_path)
    assert ended.status == 0, ended.stderr
    (run,) = (path for path in tmp_path.glob("*/*") if path.is_dir())
    found, expected = processes_module.record(run), processes_module.record(depth_run)
    assert len(expected) > 30 and run.name == depth_run.name
    assert {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)} == set()
