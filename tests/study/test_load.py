"""Finding studies by name, module, file and entry point; every way in which that can fail; and what code says."""

import linecache
import os
import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

import hopscope
from hopscope.claims.source import source_hash
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.study import load as loading
from hopscope.study.load import BUILT_IN, Loaded, load, loaded_as, split_reference, studies, studies_in
from hopscope.study.study import Study

TEXT = (
    "import hopscope as hs\nstudy = hs.Study(name='mine', question='Why?')\nother = hs.Study(name='other')\n"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file; its folder is on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, text=TEXT):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    yield write
    for name in [
        name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def with_points(monkeypatch, *points):
    made = [EntryPoint(name=name, value=value, group=loading.GROUP) for name, value in points]
    monkeypatch.setattr(loading, "entry_points", lambda group: [each for each in made if each.group == group])


def test_references():
    assert split_reference("a/b.py") == ("a/b.py", None)
    assert split_reference("a/b.py:other") == ("a/b.py", "other")
    assert split_reference("pkg.mod:name") == ("pkg.mod", "name")


def test_built_in_studies_have_names(monkeypatch):
    with_points(monkeypatch)
    assert studies() == [*BUILT_IN] and {"permutation", "tiny-lm", "first-steps"} <= {*BUILT_IN}
    assert BUILT_IN["tiny-lm"] == "hopscope.studies.tiny_lm.study:study"


def test_entry_points_are_names(monkeypatch, write):
    file = write("point_module.py")
    with_points(monkeypatch, ("mine", "point_module:study"), ("twin", "a:study"), ("twin", "b:study"))
    assert "mine" in studies()
    assert load("mine") == Loaded(load("point_module:study").study, "point_module:study", file, TEXT)
    with pytest.raises(
        UserError, match="expected one study named 'twin', found 2: a:study, b:study; uninstall"
    ):
        load("twin")
    with pytest.raises(
        UserError, match=r"expected one of permutation, .*, or a file such as study.py, found 'mime'"
    ):
        load("mime")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("study = 3", "expected a study named 'study', found int; its studies: none"),
        ("", "expected a study named 'study', found none"),
        (None, "No module named 'broken_point'"),
    ],
)
def test_an_entry_point_that_fails_is_one_line(monkeypatch, write, text, words):
    if text is not None:
        write("broken_point.py", text)
    with_points(monkeypatch, ("broken", "broken_point:study"))
    with pytest.raises(UserError) as error:
        load("broken")
    assert words in str(error.value) and "\n" not in str(error.value) and "broken_point" in str(error.value)


def test_a_script_that_imports_a_study_is_not_its_home(write, monkeypatch):
    file = write("a_home.py")
    made = load("a_home:study").study
    script = ModuleType("__main__")
    script.__file__, script.study = str(write("a_script.py")), made
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert loaded_as(made).file == file


def test_a_study_that_a_script_makes_when_it_is_run_is_trained_in_that_process(write, monkeypatch):
    file, study = write("guarded.py", "import hopscope as hs\n"), Study(name="guarded")
    script = ModuleType("__main__")
    script.__file__, script.study = str(file), study
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert loaded_as(study) == Loaded(study)
    write("guarded.py", "import hopscope as hs\nstudy = hs.Study(name='guarded')\n")
    assert loaded_as(study).reference == f"{file}:study"


def test_a_file_is_loaded_once_for_each_content(write):
    path = write("mine.py")
    first = load(str(path))
    assert load(f"{path}:study").study is first.study and first.reference == f"{path}:study"
    write("mine.py", TEXT.replace("Why?", "How?"))
    assert load(str(path)).study.question == "How?"
    assert {name: each.reference for name, each in studies_in(str(path)).items()} == {
        "mine": f"{path}:study", "other": f"{path}:other",
    }  # fmt: skip
    assert loaded_as(load(f"{path}:other").study).reference == f"{path}:other"
    assert loaded_as(Study(name="nowhere")) == Loaded(Study(name="nowhere"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import hopscope as hs\n\n1 / 0",
            r"found ZeroDivisionError: division by zero \(line 3\); mend the file",
        ),
        ("import sys\nsys.exit(3)", r"found SystemExit: 3, which ends the process \(line 2\); mend the file"),
        ("x = (", r"found SyntaxError: .* \(wrong.py, line 1\); mend the file"),
        (
            "import hopscope as hs\nhs.Study(name='a', seeds=0)",
            r"found study 'a': seeds: .* \(line 2\); mend the file",
        ),
        (
            "import hopscope as hs\nhs.Model(layers=0)",
            r"found Model: layers: expected .*, found 0 \(line 2\)",
        ),
        ("x = 3", "expected one study, or one named 'study', found none; write study = hs.Study"),
        (
            "import hopscope as hs\na = hs.Study(name='a')\nb = hs.Study(name='b')",
            r"found 2; choose one of \S+:a, \S+:b",
        ),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(write, text, words):
    path = write("wrong.py", text)
    for _ in range(2):
        with pytest.raises(UserError, match=words) as error:
            load(str(path))
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def test_what_is_no_readable_file_is_refused(tmp_path, write):
    with pytest.raises(UserError, match="expected a readable file with a study, found No such file"):
        load(str(tmp_path / "gone.py"))
    (tmp_path / "latin.py").write_bytes("# ä".encode("latin-1"))
    folder = tmp_path / os.fsdecode(b"mine-\xff")
    folder.mkdir()
    (folder / "mine.py").write_text(TEXT, encoding="utf-8")
    for path in (tmp_path / "latin.py", folder / "mine.py"):
        with pytest.raises(UserError, match="other bytes than UTF-8"):
            load(str(path))


def test_a_file_of_a_package_is_imported_by_its_name(write):
    write("lab_folder/__init__.py", "")
    write("lab_folder/inner/__init__.py", "")
    write("lab_folder/inner/near.py", "QUESTION = 'Near?'\n")
    text = (
        "import hopscope as hs\nfrom .near import QUESTION\nstudy = hs.Study(name='a', question=QUESTION)\n"
    )
    file = write("lab_folder/inner/asks.py", text)
    by_file, by_name = load(str(file)), load("lab_folder.inner.asks:study")
    assert by_file.study is by_name.study and by_file.study.question == "Near?"
    assert loaded_as(by_name.study).reference == "lab_folder.inner.asks:study"


def test_a_helper_stands_beside_its_file(write):
    text = (
        "import hopscope as hs\nfrom beside_one import QUESTION as Q\nstudy = hs.Study(name='a', question=Q)"
    )
    one, two = (write(f"{folder}/asks.py", text) for folder in ("one", "two"))
    helper, _ = (write(f"{folder}/beside_one.py", f"QUESTION = {folder!r}\n") for folder in ("one", "two"))
    assert load(str(one)).study.question == "one"
    with pytest.raises(
        UserError, match=f"{two}: expected beside_one.py beside it, found {helper} imported before"
    ):
        load(str(two))


def test_an_error_of_a_study_names_its_file_and_line(write):
    text = (
        "import hopscope as hs\ndef start(job):\n    raise job\n"
        "study = hs.Study(name='a', start=start, claims=lambda options:\n    1 / 0)\n"
    )
    loaded = load(str(write("later.py", text)))
    for run, words in (
        (loaded.study.all_claims, r"line 5: study 'a': claims: expected .*, found ZeroDivisionError"),
        (lambda: loaded.study.claims(None), r"line 5: expected code that runs, found ZeroDivisionError"),
    ):
        with pytest.raises(UserError, match=words) as error, loaded.naming():
            run()
        assert str(error.value).startswith(f"{loaded.file}")
    ours = compile("with loaded.naming():\n    raise other", str(hopscope.__file__), "exec")
    for other in (TimeBudgetReached("later"), KeyError("of ours"), UserError("cannot write x: full")):
        with pytest.raises(type(other)) as error:
            exec(ours, {"loaded": loaded, "other": other})
        assert error.value is other
    helper = write("helping.py", "def fails():\n    exit(0)\n")
    exec(compile(helper.read_text(), str(helper), "exec"), beside := {"loaded": loaded})
    fails = compile("with loaded.naming():\n    fails()", str(hopscope.__file__), "exec")
    with pytest.raises(UserError, match=f"{helper}, line 2: .* found SystemExit.*ends the process"):
        exec(fails, beside)
    with pytest.raises(TimeBudgetReached, match=r"^later$"), loaded.naming():
        loaded.study.start(TimeBudgetReached("later"))


# What code says.

CODE = '''
import helper_of_source
import hopscope as hs

FACTOR = 3

def doubled(value):
    return FACTOR * value

class Mine(hs.Task):
    """Words."""
    size: int = 5
    def sample(self, draws):
        from deep_helper import deep
        return doubled(deep(draws))  # twice

def closing(over):
    @hs.measure
    def inner(context):
        return over
    return inner

study = hs.Study(name="a")
'''


@pytest.fixture
def hashes(write):
    """Hashes of the class, and of a measure that closes over a value, in a file that is changed in one place."""

    def hashes(old="", new="", deep="def deep(draws):\n    return draws\n", over=2):
        for name in ("deep_helper", "helper_of_source"):
            sys.modules.pop(name, None)
        write("helper_of_source.py", "")
        write("deep_helper.py", deep)
        path = write("code.py", CODE.replace(old, new))
        linecache.checkcache()
        module = sys.modules[f"hopscope_file_{path.stem}_" + _digest(load(str(path)), path)]
        return source_hash(module.Mine), source_hash(module.closing(over).function)

    return hashes


def _digest(loaded, path):
    import hashlib

    return hashlib.sha256(str(path).encode() + loaded.text.encode()).hexdigest()[:12]


def test_what_changes_the_hash_of_code_and_what_does_not(hashes):
    task, measure = usual = hashes()
    assert usual == hashes()
    for old, new in (("# twice", "# again"), ('"""Words."""', '"""Others."""'), ('name="a"', 'name="b"'),
                     ("size: int = 5", "size: int  =  5\n")):  # fmt: skip
        assert hashes(old, new) == usual, old
    for old, new in (("FACTOR = 3", "FACTOR = 5"), ("* value", "+ value"), ("size: int = 5", "size: int = 7"),
                     ("doubled(deep(draws))", "doubled(draws)")):  # fmt: skip
        assert hashes(old, new)[0] != task and hashes(old, new)[1] == measure, old
    assert hashes(deep="def deep(draws):\n    return -draws\n")[0] != task
    assert hashes(deep="def deep(draws):\n    return draws\ndef other():\n    pass\n")[0] == task
    assert hashes("return over", "return -over")[1] != measure
    assert hashes(over=3)[1] != measure and hashes(over=3)[0] == task


def test_the_hash_is_that_of_what_was_loaded(write):
    text = "import hopscope as hs\ndef start(job):\n    return 3\nstudy = hs.Study(name='a', start=start)\n"
    before, same = (load(str(write(name, text))).study.start for name in ("one.py", "two.py"))
    write("one.py", text.replace("import", "\n\nimport").replace("3", "5"))
    assert source_hash(before) == source_hash(same)
    assert source_hash(load(before.__code__.co_filename).study.start) != source_hash(same)


def test_code_without_a_file_is_told_apart():
    def made(text):
        scope = {"__name__": "typed_in"}
        exec(text, scope)
        return source_hash(scope["f"])

    one, same, other = (made(f"def f(x):\n    return x + {n}") for n in (1, 1, 2))
    assert one == same != other
