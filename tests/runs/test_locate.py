import json

import pytest

from hopscope.errors import UserError
from hopscope.runs.locate import find_run, find_runs


@pytest.fixture
def root(tmp_path):
    """A root with much that is not ours, and no run."""
    root = tmp_path / "runs"
    model = root / "models" / "small"
    model.mkdir(parents=True)
    (root / "notes.txt").write_text("mine")
    (root / "config.json").write_text('{"hidden_size": 7}')
    (root / "units").write_text("a file of that name")
    (model / "config.json").write_text('{"hidden_size": 7}')
    (root / "models" / "config.json").write_text("{half")
    (root / ".git" / "objects").mkdir(parents=True)
    (root / "broken").symlink_to(root / "nowhere")
    return root


def assert_refused(path, match):
    with pytest.raises(UserError, match=match) as caught:
        find_run(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_is_found_by_each_of_its_paths(root, make_run):
    run = make_run(root)
    for path in (run.path, run.path.parent, root):
        assert find_run(path) == run


def test_a_run_may_be_moved_and_renamed(root, make_run):
    moved = make_run(root).path.rename(root / "best")
    assert find_run(moved).path == moved
    assert find_run(root).path == moved


def test_hidden_folders_are_not_searched(root, make_run):
    run = make_run(root)
    make_run(root, study=".trash")
    assert find_run(root) == run


def test_no_run_is_refused(root, tmp_path):
    assert_refused(root, "found no run")
    assert_refused(root / "models", "found no run")
    assert_refused(tmp_path / "none", "found nothing there")
    assert_refused(root / "notes.txt", "found a file")
    assert_refused(root / "notes.txt" / "deeper", "found nothing there")


def test_several_runs_are_listed(root, make_run):
    runs = [make_run(root, depth=depth) for depth in (2, 3)] + [make_run(root, study="depth")]
    message = assert_refused(root, "found 3: give one of")
    assert all(str(run.path) in message for run in runs)
    assert find_run(root / "depth") == runs[2]
    assert_refused(root / "permutation", "found 2")


@pytest.mark.parametrize(("count", "ending"), [(10, None), (13, " and 3 more")])
def test_a_long_list_is_cut(root, count, ending):
    for number in range(count):
        folder = root / "depth" / f"{number:012x}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    message = assert_refused(root, f"found {count}")
    assert message.count(str(root / "depth")) == 10
    assert message.endswith(ending or f"{9:012x}")


def test_a_damaged_run_is_told_as_such(root, make_run, unseal):
    run = make_run(root)
    unseal(run.path)
    (run.path / "config.json").write_text("{half")
    for path in (run.path, root):
        with pytest.raises(UserError, match=r"config.json: expected whole JSON"):
            find_run(path)
    (run.path / "config.json").unlink()
    for path in (run.path, root):
        with pytest.raises(UserError, match=r"config.json: expected a file, found none"):
            find_run(path)


def test_a_newer_run_is_told_as_such(root, make_run, unseal):
    path = make_run(root).path / "config.json"
    unseal(path.parent)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 2}))
    with pytest.raises(UserError, match="made by a newer Hopscope"):
        find_run(root)


def test_a_run_killed_while_it_was_made_does_not_count_beside_others(root, make_run):
    run, killed = make_run(root), make_run(root, depth=5)
    (killed.path / "config.json").unlink()
    assert find_run(root) == run


def test_several_paths_keep_their_order_and_name_each_run_once(root, make_run):
    one, other = make_run(root), make_run(root, study="depth")
    found = find_runs([other.path, one.path, root / "depth"])
    assert found == [other, one]
    with pytest.raises(UserError, match="found nothing there"):
        find_runs([one.path, root / "none"])
