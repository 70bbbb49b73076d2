"""Mirrors at a URL: nothing is sent twice, nothing damaged is fetched, and a failing server loses nothing here."""

import shutil
import warnings

import fsspec
import pytest

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.mirror import fetch, mirror

from .conftest import TINY, told


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return {"memory": "memory://bücket/mirror of runs", "file": f"file://{tmp_path}/am anderen ort"}[
        request.param
    ]


class Server:
    """What is sent and fetched, by name; it fails behind so many files."""

    def __init__(self, url, monkeypatch):
        self.system, self.place = fsspec.core.url_to_fs(url)
        self.sent, self.fetched, self.most, kind = [], [], {}, type(self.system)
        for name, seen in (("put_file", self.sent), ("cat_file", self.fetched)):
            monkeypatch.setattr(kind, name, self.watched(name, getattr(kind, name), seen))

    def watched(self, name, function, seen):
        def called(own, *given, **options):
            if len(seen) == self.most.get(name):
                raise ConnectionResetError("the server\nwent away")
            seen.append(given[-1])
            return function(own, *given, **options)

        return called


@pytest.fixture
def server(url, monkeypatch):
    return Server(url, monkeypatch)


def test_a_finished_run_comes_back_byte_for_byte(url, server, finished, tmp_path):
    content = TINY.content(finished)
    for _ in range(2):
        mirror(finished, url)
        assert len(server.sent) == len(content), "what is there already is not sent again"
    for number, place in enumerate((url, f"{url}/tiny/{finished.path.name}", f"{url}/tiny/")):
        (run,) = fetch(place, tmp_path / f"hier {number}")
        assert run == RunFolder.named(tmp_path / f"hier {number}", "tiny", TINY.IDENTITY)
        assert TINY.content(run) == content and run.is_done


def test_an_unfinished_run_goes_on_elsewhere(url, server, finished, tmp_path):
    def evaluate(ensemble):
        if ensemble.step == 5 and len(ensemble) == 2:
            raise InterruptedError
        return TINY.evaluate(ensemble)

    with pytest.raises(InterruptedError):
        TINY.make(tmp_path / "eins", evaluate)
    run = RunFolder.opened(tmp_path / "eins")
    mirror(run, url)
    assert {name.split("/")[-3] for name in server.sent if "/checkpoints/" in name} == {"zwölf a"}
    (there,) = fetch(url, tmp_path / "zwei")
    assert [unit.is_whole for unit in there.units] == [True, False] and not there.is_done
    assert TINY.content(TINY.make(tmp_path / "zwei")) == TINY.content(finished)
    del server.sent[:]
    mirror(there, url)
    assert server.sent and not any("zwölf" in name for name in server.sent)
    (here,) = fetch(url, tmp_path / "eins")  # where the second unit has begun: it is replaced as a whole
    assert here == run and TINY.content(here) == TINY.content(finished) and here.is_done


def test_what_is_whole_here_stays(url, finished, run):
    mirror(finished, url)
    (run.path / "manifest.json").unlink()
    run.units[0].seal(engine="another")
    fetch(url, run.path.parent.parent)
    assert run.units[0].record["engine"] == "another"


DAMAGED = [
    "units/b/checkpoints/000000003.safetensors",
    "units/b/unit.json",
    "evidence.parquet",
    "config.json",
]


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_there_is_left_out_and_made_again(url, server, name, finished, tmp_path):
    mirror(finished, url)
    file = f"{server.place}/tiny/{finished.path.name}/{name}"
    content = server.system.cat_file(file)
    server.system.pipe_file(file, content[:50] + b"#" + content[51:])
    with pytest.warns(UserWarning, match=f"expected whole files, found {name} damaged; left out"):
        (run,) = fetch(url, tmp_path / "zwei")
    assert not (run.path / name).exists() and not run.is_done
    fetch(url, finished.path.parents[1])  # what was left out is no other run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert TINY.content(TINY.make(tmp_path / "zwei")) == TINY.content(finished)
    mirror(RunFolder.opened(tmp_path / "zwei"), url)
    assert TINY.content(fetch(url, tmp_path / "drei")[0]) == TINY.content(finished), (
        "the copy there is whole again"
    )
    checkpoint = finished.units[0].path / "checkpoints/000000007.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert not finished.units[0].is_whole
    fetch(url, finished.path.parents[1])
    assert finished.units[0].is_whole, "what is damaged here is brought"


@pytest.mark.parametrize("gone", [True, False])
def test_what_was_begun_here_is_kept_where_the_unit_there_is_no_whole_one(url, server, gone, finished, run):
    mirror(finished, url)
    file = f"{server.place}/tiny/{finished.path.name}/units/b/checkpoints/000000003.safetensors"
    server.system.rm_file(file) if gone else server.system.pipe_file(file, b"cut")
    begun = run.unit("b")
    for name in (begun.path / "unit.json", run.path / "manifest.json"):
        name.unlink()
    with pytest.warns(UserWarning, match="damaged; left out"):
        fetch(url, run.path.parents[1])
    assert begun.latest()[0] == 7 and not begun.is_whole and not (run.path / ".fetched").exists()
    mirror(run, url)  # a unit that is not whole is not sent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert TINY.content(TINY.make(run.path.parents[1])) == TINY.content(finished)


@pytest.mark.parametrize("name", ["units/../x", "../x", "/x", "units//x"])
def test_a_list_of_other_files_touches_nothing_here(url, server, name, finished, run):
    mirror(finished, url)
    file = f"{server.place}/tiny/{finished.path.name}/mirror.json"
    server.system.pipe_file(file, server.system.cat_file(file).replace(b"claims.json", name.encode()))
    (run.path / "manifest.json").unlink()
    with told("expected files of a run, found '.*x'; move it away"):
        fetch(url, run.path.parents[1])
    assert all(unit.is_whole for unit in run.units)


def test_a_measure_that_was_taken_here_is_not_replaced(url, run, tmp_path):
    other = RunFolder(shutil.copytree(run.path, tmp_path / "other" / "tiny" / run.path.name))
    for each, source in ((other, "old"), (run, "new")):
        each.reopen()
        each.whole.keep_measure("all", source, None, [{"metric": "n", "value": 1.0}])
    other.finish()
    mirror(other, url)
    fetch(url, run.path.parents[1])
    assert run.whole.measured("all", "new", None)


def test_another_run_is_never_overwritten(url, finished, tmp_path):
    mirror(finished, url)
    config = {**TINY.CONFIG, "registration": {"C1": "other"}}
    other = RunFolder.named(tmp_path, "tiny", TINY.IDENTITY).create(config)
    for act in (lambda: mirror(other, url), lambda: fetch(url, tmp_path)):
        with told(r"expected .* found .*(another run; name another URL|apart; move one away)"):
            act()
    assert other.config["registration"] == {"C1": "other"}
    assert TINY.content(fetch(url, tmp_path / "zwei")[0]) == TINY.content(finished)


def test_a_list_that_was_cut_short_is_made_again(url, server, finished, tmp_path):
    mirror(finished, url)
    file = f"{server.place}/tiny/{finished.path.name}/mirror.json"
    server.system.pipe_file(file, server.system.cat_file(file)[:40])
    other = RunFolder.named(tmp_path, "tiny", TINY.IDENTITY).create({**TINY.CONFIG, "registration": {}})
    with told("found another run; name another URL"):
        mirror(other, url)
    fetch(url, finished.path.parents[1])  # it says nothing of the run here
    mirror(finished, url)
    assert TINY.content(fetch(url, tmp_path / "zwei")[0]) == TINY.content(finished)


def test_units_beside_a_lost_record_are_of_no_run(url, server, finished, tmp_path):
    mirror(finished, url)
    server.system.pipe_file(f"{server.place}/tiny/{finished.path.name}/config.json", b"cut")
    with pytest.warns(UserWarning, match="config.json damaged; left out"):
        fetch(url, tmp_path / "zwei")
    config = {**TINY.CONFIG, "registration": {"C1": "other"}}
    other = RunFolder.named(tmp_path / "drei", "tiny", TINY.IDENTITY).create(config)
    fetch(url, tmp_path / "drei")
    assert not other.is_done and not any(unit.steps for unit in other.units)
    assert not list(fetch(url, tmp_path / "vier")[0].path.rglob("*.json"))
    mirror(other, url)  # whose list names nothing of the lost run
    with told("expected the run of .*, found one begun apart"):
        fetch(url, finished.path.parents[1])
    assert not any(unit.steps for unit in fetch(url, tmp_path / "vier")[0].units)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_a_server_that_fails_is_one_line_and_loses_nothing(url, server, most, finished, tmp_path):
    before = TINY.content(finished)
    words = "read and written, found ConnectionResetError: the server went away; nothing here is lost"
    server.most["put_file"] = most
    with told(words):
        mirror(finished, url)
    with told("expected a mirror of a run, found none"):
        fetch(url, tmp_path / "zwei")
    server.most["put_file"] = None
    mirror(finished, url)
    shutil.rmtree(fetch(url, tmp_path / "zwei")[0].path / "units" / "b")
    server.most["cat_file"] = len(server.fetched) + 2 + most
    with told(words):
        fetch(url, tmp_path / "zwei")
    server.most["cat_file"] = None
    assert TINY.content(finished) == before and RunFolder.opened(tmp_path / "zwei").units[0].is_whole
    assert TINY.content(fetch(url, tmp_path / "zwei")[0]) == before


@pytest.mark.parametrize(
    ("url", "words"), [("no://a/b", "Protocol not known"), ("ftp://me:secret@0.0.0.0:1/a", "refused")]
)
def test_a_url_that_nothing_serves_is_told_without_its_password(url, words, finished, tmp_path):
    for act in (lambda: mirror(finished, url), lambda: fetch(url, tmp_path)):
        with pytest.raises(UserError, match=words) as caught:
            act()
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
