"""Whatever stands in a field, of the library or of a command: it fits, or one line says what was expected and found."""

import json
import re
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hopscope as hs
from hopscope.cli import main
from hopscope.errors import UserError
from hopscope.study.load import load
from hopscope.tasks import Permutation, Retrieval

STUDIES = ("permutation", "depth", "first-steps", "tiny-lm", "curriculum")
VALUES = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(10**30), 10**400, 0.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), "", " ", "²", "٣", "0", "-1", "nan", "../outside", "a\nb", "\0", "\u2028", "{key}", "{{ 7 * 7 }}",
    "</script>", "x" * 2_000, [], {}, [[]], [None], {"": None}, {"²": 3}, [0, 0], [1, 2, 3], b"a", object(), (), {1: 2},
]  # fmt: skip
WORDS = [str(each) for each in VALUES if isinstance(each, str | int | float | list) and each != "\0"]
QUIET = settings(max_examples=50, suppress_health_check=list(HealthCheck))


def one_line(error):
    words = str(error)
    assert words.isprintable() and re.search(r"expected|found|did you mean|no field", words), words
    assert getattr(error, "exit_status", 2) == 2


@pytest.mark.parametrize("name", STUDIES)
def test_every_field_of_a_study(name):
    study = load(name).study
    fields = [flag.name for flag in study.fields()]

    @QUIET
    @given(st.sampled_from(fields), st.sampled_from(VALUES), st.sampled_from([None, *study.presets]))
    def check(field, value, preset):
        try:
            chosen = study.chosen(preset, {field: value})
            for cell in chosen.grid()[:2]:
                chosen.of(cell)
                chosen.seeds_of(cell)
        except UserError as error:
            one_line(error)

    check()


@pytest.mark.parametrize(
    "made", [hs.Model, hs.Training, Permutation, Retrieval, hs.Claim, hs.Shape, hs.Study]
)
def test_every_field_of_a_value_in_python(made):
    @QUIET
    @given(st.sampled_from([*made.model_fields, "learning_rat"]), st.sampled_from(VALUES))
    def check(field, value):
        try:
            made(**{field: value})
        except UserError as error:
            one_line(error)

    check()


def test_every_flag_of_a_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = [f"--{flag.name}" for flag in load("depth").study.fields()]
    flags += [
        "--preset",
        "--seeds",
        "--device",
        "--threads",
        "--time-budget",
        "--executor",
        "--tracker",
        "--nothing",
    ]
    # Nothing of it is trained: the last word does not fit.
    ends = ["--training.steps=-1", "--model.layers=no"]

    @QUIET
    @given(st.sampled_from(flags), st.sampled_from(WORDS) | st.text(max_size=5), st.sampled_from(ends))
    def check(flag, word, end):
        status = main(["run", "depth", "--preset", "smoke", f"{flag}={word}", end])
        said = capsys.readouterr()
        assert status == 2 and said.out == "" and "Traceback" not in said.err, (status, said)
        assert said.err.count("\n") == 1 and said.err.startswith("hopscope: "), said.err

    check()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "words",
    [["claims", "\udcff"], ["report", "a\nb"], ["circuit", "", "--member", "x"], ["theory", "--steps", "9" * 5_000],
     ["questions", "equations", "--count", "-1"], ["heads", "--model", " "], ["export", "x"], ["new", "study", "../x"],
     ["theory", "--steps", "3", "--order", "1,1"], ["run", "../../etc/passwd"], ["run", "a b.py"], ["\0"]],
    ids=str,
)  # fmt: skip
def test_words_that_nobody_meant(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("hopscope: ") and not said.out, said
    assert not [*tmp_path.iterdir()]


NAMES = ["größe – ∂  a b", "𝒳₁ 日本 é" + unicodedata.normalize("NFD", "é")]


@pytest.mark.parametrize("name", NAMES)
def test_names_with_spaces_and_beyond_ascii(name, tmp_path, capsys):
    """Of folder, file, configuration, metric, part, array and claim: all come back as they were written."""
    study = '''
import hopscope as hs

class Copy(hs.Task):
    """Repeat."""

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (3,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1], relations={NAME: draws.constant(0, (3,))})

@hs.measure
def told(context):
    file = context.save(NAME, context.held_out.inputs)
    return [{"metric": NAME, "part": NAME, "value": 7.0, "member": each, "file": file} for each in context.members]

def study():
    return hs.Study(
        name="tiny", question=NAME, task=Copy(), model=hs.Model(layers=1, heads=1, width=4), seeds=1, held_out=5,
        training=hs.Training(steps=2, batch_size=2), measures=[told, hs.measures.attention_to(NAME)],
        configurations=lambda options: [hs.Configuration(label=label, overrides={"model.layers": layers})
                                        for label, layers in ((NAME, 1), ("b", 2))],
        claims=[hs.Claim(id=NAME, statement=NAME, source=NAME, protocol=NAME, must=hs.at_least(0.0),
                         value=lambda table: table.last(NAME, part=NAME))],
        figures=[hs.figures.curves("loss")],
    )
'''
    space = {"NAME": name, "__name__": "made here"}
    exec(compile(study, "<study>", "exec"), space)  # as a cell of a notebook
    run = hs.run(space["study"](), out=tmp_path / name, threads=1)
    opened = hs.open_run(tmp_path / name)
    assert opened.evidence.last(name, part=name, configuration=name).tolist() == [7.0]
    assert opened.claims[name].statement == name
    (file,) = opened.evidence.rows(name, part=name, configuration=name)["file"].unique()
    assert next(iter(opened.evidence.arrays(file).values())).shape[-1] == 3
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert (
        name in page and name in json.loads((run.path / "claims.json").read_text(encoding="utf-8"))[0]["id"]
    )
    assert main(["claims", str(tmp_path / name)]) == 0 and name in capsys.readouterr().out
