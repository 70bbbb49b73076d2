"""Pages: what came out stands first, templates cannot contradict a run, and no word of a user becomes code."""

import html
import json
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.page.conftest import QUESTION, claims, config, rows

from hopscope import api
from hopscope.claims import Claim, Ledger, at_most
from hopscope.claims.judge import judge
from hopscope.errors import UserError
from hopscope.page.figures import bars
from hopscope.page.page import index, page, script_json, write_page
from hopscope.page.template import Held, fill
from hopscope.runs import Evidence, RunFolder
from hopscope.study.load import Loaded
from hopscope.study.study import Study

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 191 }}"


def text(made, selector=""):
    """A page, or the part of it that begins with `selector`, as the words that a reader sees."""
    made = made[made.index(selector) :] if selector else made
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", made, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def test_the_first_verdict_is_the_one_at_the_runs_own_scale(make):
    made = page(make(claims=claims()))
    first = text(made, '<ul class="outcomes"')
    for words in ("holds here in 5 of 6 members", "fails here", "inconclusive"):
        assert words in first[:700]
    assert made.index("is-good") < made.index("Of the source")
    assert re.findall(r'class="verdict is-(\w+)"', made)[:3] == ["good", "bad", "open"]
    assert QUESTION in text(made)[:900]


def test_a_run_without_a_template_has_the_default_one(make):
    words = text(page(make(claims=claims())))
    for each in (
        "What came out", "Do the claims hold?", "What was trained", "Chains of hops.", "floor: position",
        "2 of 3 seeds, 1 diverged", "3 layers, seed 17", "L1 Every model", "What must you trust? The split.",
    ):  # fmt: skip
        assert each in words
    assert "how many" not in words  # a docstring's list of attributes


@pytest.mark.parametrize("diverged", [(), (0, 1, 2, 3, 4, 5)], ids=["learned", "all diverged"])
def test_the_default_template_fits_what_came_out(diverged, make):
    words = text(page(make(rows=rows(diverged))))
    assert ("4 of 6 models learned the task" in words) == (not diverged)
    assert ("Training of every model diverged, so there is no answer." in words) == bool(diverged)
    assert "contradict" not in words and "nan" not in words.lower().split()


def test_a_run_that_measured_nothing_has_a_page(make):
    assert QUESTION in text(page(make(rows=[], figures=[])))


def test_numbers_are_calls_and_tell_where_they_come_from(make):
    template = """# T

{{ estimate("loss") }} | {{ estimate("loss", **{"model.layers": 2}).value }} | {{ count("loss", below=0.2) }}
{% if estimate("loss") < 0.5 and has("accuracy") and not has("nothing") %}low{% endif %}
{% for row in rows("rise", head=1, member=0) %}{{ row }}={{ row.value }}@{{ row.layer }}.{{ row.head }}{% endfor %}
{{ learned(below=0.2).all }} {{ members[0].seed }} {{ configurations[1].values["model.layers"] }}
{{ setting("options.depth") }}
{{ rows("loss") | length }}
{% if count("loss", below=0.2) == 3 and not count("loss", below=-1) and not count("loss", below=0.2) != 3 %}
{{ members[0] == "2 layers, seed 11" }}{% endif %}
{{ estimate("accuracy").median }} {{ number(5, "depth", "hops") }} {{ symbol("x_2") }}

{{ table("loss", by="seed") }}
"""
    made = page(make(template=template))
    words = text(made)
    assert re.search(
        r"0\.2\d* \[.*\] \(n = 5 of 6 members of 3 seeds, 1 diverged\) \| 0\.17 \| 3 of 5 low 1=1\.0@1\.1",
        words,
    )
    assert "False 11 3 5 5 True 40 % 5 hops x₂" in words and "seed 17" in words
    assert re.search('title="evidence.parquet · [^"]*metric = loss', made)


def test_a_caption_beside_a_figure_is_kept_and_who_diverged_is_not_counted(make):
    template = """# T
{% call answer("loss-by-model.layers") %}{{ learned(below=2) }} stayed.{% endcall %}
{{ figure("loss-by-model.layers", "Words of the template.") }}
"""
    words = text(page(make(template=template)))
    assert "5 of 5 stayed." in words and "Words of the template." in words and "stands at the top" in words


def test_the_record_has_what_was_trained(make):
    units = [
        {"name": f"u{layers}", "label": f"{layers} layers", "training": {"steps": 7},
         "model": {"layers": layers, "width": 11, "heads": None}}
        for layers in (2, 3)
    ]  # fmt: skip
    identity = {"model": {"layers": 1, "width": 5, "heads": 1}, "training": {"steps": 1}, "held_out": 13}
    words = text(page(make(units=units, identity=identity)))
    for told in ("model.layers by configuration", "model.width 11", "training.steps 7", "held_out 13"):
        assert told in words
    assert "model.heads" not in words


def test_labels_are_written_as_they_are_and_sections_have_names_of_their_own(make):
    template = """# T

{% call grid(plain("c_d")) %}
label | number
{{ plain("a_b [c|d] *e*") }} | 7
{% endcall %}

## Part 2

x

## Part

{{ plain("y|z") }}

## Part

z
"""
    made = page(make(template=template))
    assert (
        "a_b [c|d] *e* 7" in text(made)
        and "c_d" in text(made)
        and "c\\_d" not in text(made)
        and "y|z" in text(made)
    )
    names = [*dict.fromkeys(re.findall(r"s-part[-\d]*", made))]
    assert {*names} == {"s-part-2", "s-part", "s-part-3"}


@pytest.mark.parametrize(
    ("template", "line", "words"),
    [
        ("# T\n\n{{ estimate('lose') }}", 3, "expected one of accuracy, loss"),
        ("# T\n\n\n{{ figure('no') }}", 4, "expected one of loss-by-model.layers, final-accuracy, found 'no'"),
        ("{{ claim('X') }}", 1, "expected one of none, for the study has no claims, found 'X'"),
        ("# T\n{{ nothing }}", 2, "'nothing' is undefined"),
        ("# T\n{% if %}", 2, "expected a Jinja template"),
        ("a\n{% call answer() %}1{% endcall %}\n{% call answer() %}2{% endcall %}", 3, "expected one answer"),
        ("{% call grid() %}\na | b\nc\n{% endcall %}", 1, "expected 2 cells in every row"),
        ("\n{{ 1 / 0 }}", 2, "division by zero"),
        ("{{ ''.__class__ }}", 1, "unsafe"),
        ("{{ estimate('rise') }}", 1, "expected a number of the whole, found it by layer, head; name one, as in"),
        ("{% include '../../secrets' %}", 1, "secrets"),
        ("x\n{% include 'part.md.j2' %}", 2, "part.md.j2, line 2: "),
    ],
)  # fmt: skip
def test_a_fault_of_a_template_is_one_line_that_names_it_and_the_line(template, line, words, make):
    with pytest.raises(UserError) as caught:
        page(make(template=template, about={"parts": {"part.md.j2": "y\n{{ setting('no') }}"}}))
    told = str(caught.value)
    assert words in told and "\n" not in told
    assert told.startswith("part.md.j2" if "part.md" in words else f"own.md.j2, line {line}: ")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])))
def test_words_that_a_template_prints_are_no_tags(words):
    held = Held()
    filled = fill(
        "# T\n\n{{ words }} {{ number }}",
        "t",
        {"words": words, "number": held.number(words, words)},
        lambda _: None,
    )
    _, question, sections = held.sections(filled)
    made = "".join(each.html for each in sections)
    assert (
        "<script" not in made
        and "<img" not in made
        and "onerror=" not in re.sub(r">[^<]*<", "><", made).replace(words, "")
    )
    assert isinstance(question, str)


def test_every_word_of_a_user_is_escaped_and_only_known_scripts_may_run(make):
    run = make(
        study="layers", question=ATTACK, claims=[each.model_copy(update=dict.fromkeys(("statement", "source"), ATTACK))
                                                 for each in claims()],
        template="# {{ study.question }}\n\n" + ATTACK + "\n\n{{ claims() }}\n\n{{ figures() }}",
        about={"docstring": ATTACK}, preset=ATTACK,
    )  # fmt: skip
    made = page(run)
    assert "<script>alert" not in made and "1337" in made
    assert "<img" not in re.sub(r"<script\b.*?</script>", "", made, flags=re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    policy = re.search(r'Security-Policy" content="([^"]*)"', made)[1]
    known = {html.unescape(each) for each in re.findall(r"sha256-[A-Za-z0-9+/=]+", html.unescape(policy))}
    assert known == {f"sha256-{b64encode(sha256(each.encode()).digest()).decode()}" for each in scripts}
    assert policy.startswith("default-src &#39;none&#39;") and "unsafe-eval" not in policy
    assert not re.search(r'(?:src|href)="(?:https?:)?//', made)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_in_a_script_cannot_end_it(value):
    assert "<" not in script_json(value)
    assert json.loads(script_json(value)) == value


def test_the_same_folder_gives_the_same_page(make):
    run = make(claims=claims())
    assert page(run) == page(RunFolder.opened(run.path))
    assert len(page(run)) < 2_000_000


def test_several_runs_stand_side_by_side(make):
    first, second = (
        make("a" * 12, claims=claims()),
        make("b" * 12, claims=claims()[:2], preset="full", rows=rows(())),
    )
    words = text(page(first, second))
    for each in (
        "2 runs, side by side",
        "laptop aaaaaaaa",
        "full bbbbbbbb",
        "Every model ends below 0.5.",
        "Curves",
        "What differs",
    ):
        assert each in words
    other = make("c" * 12, study="other", identity={"model": {"layers": 191}}, rows=[], figures=[])
    assert "191" in text(page(first, other)) and "Runs of other make no claims." in text(page(first, other))
    with pytest.raises(UserError, match="expected at least one run"):
        page()


def test_an_index_links_the_pages_of_a_root(make, tmp_path):
    finished, broken = make("a" * 12, claims=claims()), tmp_path / "layers" / ("d" * 12)
    finished.write("report.html", "x")
    broken.mkdir()
    (broken / "config.json").write_text("{")
    begun = RunFolder(tmp_path / "layers" / ("e" * 12)).create(config())
    made = index([finished, begun, RunFolder(broken)], tmp_path)
    assert f'href="layers/{"a" * 12}/report.html"' in made
    words = text(made)
    assert "fails here: 1" in words and "not finished: 0 of 2 units" in words and "config.json" in words


def test_an_unfinished_run_says_what_is_missing(tmp_path):
    run = RunFolder(tmp_path / "layers" / "0123456789ab").create(config())
    words = text(page(run))
    assert "layers: not finished" in words and "0 of 2 units are trained" in words
    for step in (0, 5):
        told = [{"metric": "loss", "split": "held_out", "step": step, "value": [1.2, 1.1, 1.0]}]
        run.units[0].keep(told, ({"weights/readout": np.zeros((3, 2, 2), np.float32)}, {"step": step}))
    words = text(page(run))
    assert "2 layers 11, 13, 17 5 7 begun" in words and "Held-out loss during training" in words


def test_a_study_gives_its_figures_and_its_template_with_what_that_includes(make, tmp_path):
    (tmp_path / "page.md.j2").write_text("# Own\n\n{% include 'more.md.j2' %}\n\n{{ figures() }}")
    (tmp_path / "more.md.j2").write_text("The question: {{ study.question }}")
    study = Study(name="layers", question=QUESTION, page="page.md.j2", figures=[bars("loss")])
    run = make(figures=[])
    write_page(run, Loaded(study, None, tmp_path / "study.py", None))
    words = text((run.path / "report.html").read_text())
    assert "The question: " + QUESTION in words and "figures/final-loss.svg" in words
    again = page(RunFolder.opened(run.path))
    (tmp_path / "page.md.j2").unlink()
    assert page(run) == again
    with pytest.raises(UserError, match="expected a template, or its file beside the study's, found no"):
        write_page(run, Loaded(study, None, tmp_path / "study.py", None))
    (tmp_path / "page.md.j2").write_bytes("# ä".encode("latin-1"))
    with pytest.raises(UserError, match=r"page.md.j2: expected a template in UTF-8, found other bytes"):
        write_page(run, Loaded(study, None, tmp_path / "study.py", None))


def test_runs_under_several_completions_are_judged_together(make):
    own = {"source": "here", "protocol": "p", "kind": "general", "seeds_needed": 2}
    claim = Claim(
        id="G", statement="Losses are low.", must=at_most(0.01), value=lambda table: table.last("loss"), **own
    )
    runs = []
    for name, completion in (("a" * 12, "gpt2-base"), ("b" * 12, "torch-base")):
        run = make(name)
        run.write("claims.json", Ledger([judge(claim, Evidence.read(run), completion=completion)]).to_json())
        runs.append(run)
    assert "Together, of the source: refuted; " in text(page(*runs))
    assert "Together" not in text(page(*runs[:1] * 2)) and "Together" not in text(page(runs[0]))


def test_a_notebook_shows_a_run_in_short(make):
    run = api.Run(make(claims=claims(), preset=ATTACK))
    shown = run._repr_html_()
    assert "holds here in 5 of 6 members" in shown and "<script>" not in shown and "6 members" in shown


def test_no_torch_is_loaded_for_a_page():
    code = "import sys, hopscope.page.page\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
