"""The page of a declared study: what a template may say, and that no sentence contradicts the run."""

import json
import re
from dataclasses import replace
from importlib import resources

import jinja2
import pytest
from tests.studies.stories import blocks

from hopscope.errors import UserError
from hopscope.figures import chart, curves
from hopscope.report.page import build_report
from hopscope.report.record import read_run
from hopscope.runs.evidence import Evidence, Row
from hopscope.story.page import DEFAULT, StudyFacts, default_template, render_page

from .user_run import CASES, CONFIG, DEPTH, FACTS, FIGURES, claims, evidence, run_folder, texts, written


@pytest.fixture
def filled(tmp_path):
    """Words of a template for a case."""

    def fill(template, found=None, **changed):
        found = evidence(diverged=(4,)) if found is None else found
        story = render_page(template, replace(FACTS, **changed), found, [], FIGURES, run_folder(tmp_path))
        return texts(story).replace("\u00a0", " ")

    return fill


# Numbers.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('estimate("loss", **{"model.layers": 1})', "0.02 [0.01, 0.03] (n = 3 seeds)"),
        ('estimate("loss", **{"model.layers": 2})', "0.05 [0.04, 0.06] (n = 2 of 3 seeds, 1 diverged)"),
        ('estimate("accuracy", **{"model.layers": 1})', "97.4 % [96.1, 98.7] (n = 3 seeds)"),
        ('estimate("accuracy", configuration="layers 1", seed=[2, 5])', "97.4 % [96.1, 98.7] (n = 2 seeds)"),
        ('estimate("loss", member=0)', "0.01 (n = 1 seed)"),
        ('estimate("loss", member=0, unit="nats")', "0.01 nats (n = 1 seed)"),
        ('estimate("accuracy", member=0, unit="number")', "0.987 (n = 1 seed)"),
        ('estimate("loss", member=[0, 3])', "0.025 (n = 2 members of 1 seed)"),
        ('estimate("loss", member=4)', "no value (the member diverged)"),
        ('estimate("loss", **{"model.layers": 3})', "no value (the run has no such member)"),
        ('estimate("loss", member=0, **{"task.back": 3})', "0.01 (n = 1 seed)"),
        ('estimate("loss", member=0, **{"task.back": 4})', "no value (the run has no such member)"),
        ('estimate("loss", member=0, far=5)', "0.01 (n = 1 seed)"),
        ('estimate("loss", member=0, split="train", step=0)', "2 (n = 1 seed)"),
        ('estimate("attention_to_source", member=3, layer=1, head=1)', "61 % (n = 1 seed)"),
        ('value("loss", member=[0, 1])', "0.015"),
        ('value("loss", member=4)', "no value (the member diverged)"),
        ('range("accuracy", **{"model.layers": 1})', "96.1 % – 98.7 %"),
        ('range("accuracy", **{"model.layers": 2})', "92.2 % – 94.8 %"),
        ('range("loss", member=0)', "0.01"),
        ('range("loss", member=4)', "no value (the member diverged)"),
        ('median("loss", **{"model.layers": 1})', "0.02"),
        ('median("loss", **{"model.layers": 2})', "0.04"),  # the lower of two
        ('median("loss", member=4)', "no value (the member diverged)"),
        ('count("accuracy", above=0.95)', "3 of 5"),
        ('count("accuracy", above=0.93, below=0.97, **{"model.layers": 2})', "1 of 2"),
        ('count("loss", at_most=0.011)', "1 of 5"),
        ('count("loss", at_least=5).none', "True"),
        ('count("loss", member=4)', "0 of 0"),
        ('has("loss")', "True"),
        ('has("loss", member=4)', "True"),  # before it diverged
        ('has("attention_to_source", member=4)', "False"),
        ('has("recall")', "False"),
        ('has("loss", **{"task.back": 4})', "False"),
        ('rows("attention_to_source", member=3) | join("; ")', "21.0 %; 31.0 %; 51 %; 61 %"),
        ('rows("attention_to_source", member=3) | map(attribute="place") | join(" ")', "0.0 0.1 1.0 1.1"),
        ('rows("attention_to_source", member=4) | length', "0"),
        ('rows("loss", member=0)[0].step', "13"),
        ('number(1 / 3, "a third")', "0.3333"),
        ('number(1 / 3, "a third", unit="fraction")', "33.3 %"),
        ('number(0.5, "a half", unit="fraction", ends=(0.25, 0.75))', "50 % [25, 75]"),
        ('last("loss", **{"model.layers": 2}).n', "2"),
        ('last("loss", **{"model.layers": 2}).missing', "1"),
        ('"%.2f" | format(last("accuracy").highest)', "0.99"),
        ('"%.2f" | format(last("accuracy").lowest)', "0.92"),
        ('learned()', "5 of 6"),
        ('learned(below=0.035)', "3 of 6"),
        ('learned("accuracy").known', "True"),
        ('floors("accuracy")["chance"] < 0.15', "True"),
        ('setting("training.steps")', "13"),
        ('setting("model.layers")', "1 or 2 (varied)"),
        ('setting("far")', "5"),
        ('task.fields.values', "7"),
        ('diverged | join', "layers 2, seed 3"),
        ('configurations[1].diverged', "(4,)"),
        ('configurations[1].values["model.layers"]', "2"),
        ('study.source', "copying.py:study"),
        ('run.path[:13]', "runs/copying/"),
    ],
)  # fmt: skip
def test_what_a_template_may_say(filled, call, words):
    assert filled("## Here\n\nFound: {{ " + call + " }}.").splitlines()[-1] == f"Found: {words}."


@pytest.mark.parametrize(
    "condition",
    [
        'estimate("accuracy", **{"model.layers": 1}) > 0.973',
        'estimate("accuracy", **{"model.layers": 1}).low >= 0.96',
        'value("loss", member=0) < 0.011',
        'last("accuracy").mean >= 0.5',
        "not learned().all and not learned().none",
        '"accuracy" in metrics and "recall" not in metrics',
        # What there is not is in no comparison.
        'not (estimate("loss", member=4) > 0 or estimate("loss", member=4) <= 0)',
        'not (last("loss", member=4).lowest > 0 or last("loss", member=4).mean <= 0)',
        'range("accuracy", **{"model.layers": 1}).low > 0.96',
        'median("loss", **{"model.layers": 1}) < 0.03',
        'count("accuracy", above=0.5).all and count("accuracy", above=2).none',
        'number(3, "three") == 3 or number(3, "three") > 2',
    ],
)
def test_conditions_compare_numbers(filled, condition):
    assert filled("{% if " + condition + " %}\n## Yes\n\nyes\n{% endif %}").splitlines()[-1] == "yes"


def test_a_number_says_which_rows_it_is_from(tmp_path):
    template = 'Here {{ estimate("accuracy", **{"model.layers": 1}) }} and {{ value("loss", seed=3) }}.'
    story = render_page(template, FACTS, evidence(), [], FIGURES, run_folder(tmp_path))
    assert story["subtitle"].startswith("Here {n0} [{n1}, {n2}]")
    assert story["numbers"]["n0"] == {
        "value": pytest.approx(0.974),
        "text": "97.4 %",
        "file": "evidence.parquet",
        "key": "mean of metric = accuracy, split = held_out, model.layers = 1, last step, over 3 members",
    }
    assert [story["numbers"][name]["value"] for name in ("n1", "n2")] == pytest.approx([0.961, 0.987])
    assert story["numbers"]["n3"]["key"].endswith("seed = 3, last step, over 2 members")


def test_what_training_recorded_comes_before_other_measures(filled):
    rows = [Row(0, "training", "score", 3.0, step=7), Row(0, "mine", "score", 5.0, step=7)]
    assert "Found 3 (" in filled('Found {{ estimate("score") }}.', Evidence.of([{"member": 0}], rows))


def test_missing_is_told_from_diverged(filled):
    rows = [Row(0, "training", "loss", 3.0, step=7), Row(1, "training", "loss", 5.0, step=7),
            Row(0, "mine", "score", 2.0, step=7)]  # fmt: skip
    found = Evidence.of([{"member": 0}, {"member": 1}], rows)
    assert "2 (n = 1 of 2 seeds, 1 not measured)" in filled('{{ estimate("score") }}', found)
    assert "no value (not measured)" in filled('{{ estimate("score", member=1) }}', found)


def test_never_is_told_from_missing(filled):
    rows = [Row(n, "mine", "onset", value, step=7) for n, value in enumerate((3.0, float("inf"), None, 5.0))]
    found = Evidence.of([{"member": n} for n in range(4)], rows)
    words = filled(
        '{{ estimate("onset") }} {{ value("onset", member=1) }} {{ estimate("onset", member=[1, 2]) }}', found
    )
    assert "4.00 [3.00, 5.00] (n = 2 of 4 seeds, 1 never, 1 not measured)" in words
    assert "no value (it never happened) no value (in any of the members)" in words


def test_a_median_counts_what_never_happened_as_latest(filled):
    rows = [Row(n, "mine", "onset", value, step=7) for n, value in enumerate((3.0, float("inf"), None, 5.0))]
    found = Evidence.of([{"member": n} for n in range(4)], rows)
    words = filled(
        '{{ median("onset") }}, {{ median("onset", member=[0, 1]) }}, {{ median("onset", member=1) }}', found
    )
    assert words.endswith("5, 3, never, in more than half")
    assert filled('{{ range("onset") }}, {{ count("onset", below=4) }}', found).endswith("3 – 5, 1 of 3")


def of_the_run():
    """A share with its interval, of one member and of the whole run."""
    rows = [
        Row(0, "exam", name, value, step=7)
        for name, value in (("right", 0.5), ("right_low", 0.4), ("right_high", 0.6))
    ]
    asked = {"score": (0.75, None), "score_low": (0.5, None), "score_high": (0.875, None)}
    rows += [Row(None, "asked", name, value, part=part) for name, values in asked.items()
             for part, value in zip(("easy", "hard"), values, strict=True)]  # fmt: skip
    rows += [Row(None, "asked", "once", value, part="easy") for value in (1.0, 0.0, None, 1.0)]
    return Evidence.of([{"member": 0}], rows)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('share("right", member=0)', "50 % [40, 60]"),
        ('share("score", part="easy")', "75 % [50, 87.5]"),
        ('share("score", part="easy", unit="number")', "0.75 [0.50, 0.88]"),
        ('share("score", part="hard")', "–"),
        ('share("score", part="easy").low > 0.4', "True"),
        ('value("score", part="easy")', "0.75"),
        ('value("score", part="easy", unit="fraction")', "75 %"),
        ('value("score", part="hard")', "no value (not measured)"),
        ('value("once", decimals=2)', "0.67"),
        ('last("once").n', "3"),
        ('last("once").missing', "1"),
        ('has("score", part="easy") and not has("score", part="hard")', "True"),
    ],
)
def test_what_belongs_to_no_member_can_be_said(filled, call, words):
    assert (
        filled("## Here\n\nFound: {{ " + call + " }}.", of_the_run()).splitlines()[-1] == f"Found: {words}."
    )


def test_a_number_of_the_whole_run_says_which_row_it_is(tmp_path):
    template = '{{ value("score", part="easy") }} {{ share("score", part="easy") }} {{ value("once") }}'
    story = render_page(template, FACTS, of_the_run(), [], (), run_folder(tmp_path))
    keys = [number["key"] for number in story["numbers"].values()]
    assert keys == [
        *(f"metric = {name}, split = held_out, part = easy" for name in ("score", "score", "score_low", "score_high")),
        "mean of 3 rows, metric = once, split = held_out",
    ]  # fmt: skip


def test_numbers_that_are_no_rows_say_what_they_are(tmp_path):
    template = (
        '{{ number(0.5, "a half", ends=(0.25, 0.75), file="evidence.parquet") }} {{ number(7, "seven") }}'
    )
    story = render_page(template, FACTS, evidence(), [], (), run_folder(tmp_path))
    told = [(number["value"], number["key"], number["file"]) for number in story["numbers"].values()]
    assert told == [
        (0.5, "a half", "evidence.parquet"),
        (0.25, "lower end of a half", "evidence.parquet"),
        (0.75, "upper end of a half", "evidence.parquet"),
        (7, "seven", "config.json"),
    ]


def test_numbers_of_conditions_alone_are_not_of_the_page(tmp_path):
    template = '## S\n{% if count("loss", below=1).all %}\nAll {{ value("loss", member=0) }}.\n{% endif %}'
    story = render_page(template, FACTS, evidence(), [], (), run_folder(tmp_path))
    assert [number["value"] for number in story["numbers"].values()] == [pytest.approx(0.01)]


# Blocks.


def test_a_grid_has_the_rows_that_the_template_writes(tmp_path):
    template = (
        '## G\n{% call grid("Losses {a}.") %}\nmodel | loss \\| nats\n{% for each in members[:2] %}\n'
        '{{ each }} | {{ value("loss", member=each.member) }}\n{% endfor %}\n{% endcall %}\nafter'
    )
    story = render_page(template, FACTS, evidence(), [], (), run_folder(tmp_path))
    (block,) = blocks(story, "table")
    assert block["columns"] == ["model", "loss | nats"] and block["caption"] == "Losses \\{a}."
    assert block["rows"] == [["layers 1, seed 2", "{n0}"], ["layers 1, seed 3", "{n1}"]]
    assert blocks(story, "markdown")[0]["text"] == "after"


def test_a_table_has_a_row_for_each_group_and_the_floors_below(tmp_path):
    template = '## T\n{{ table(["loss", "accuracy"]) }}'
    story = render_page(template, FACTS, evidence(diverged=(4,)), [], (), run_folder(tmp_path))
    (block,) = blocks(story, "table")
    shown = [[re.sub(r"\{(n\d+)\}", lambda found: story["numbers"][found[1]]["text"], cell) for cell in row]
             for row in block["rows"]]  # fmt: skip
    assert block["columns"] == ["configuration", "held-out loss", "held-out accuracy", "n"]
    assert shown == [
        ["layers 1", "0.02 [0.01, 0.03]", "97.4 % [96.1, 98.7]", "3 seeds"],
        ["layers 2", "0.05 [0.04, 0.06]", "93.5 % [92.2, 94.8]", "2 of 3 seeds, 1 diverged"],
        ["floor: uniform guess", "1.946", "", ""],
        ["floor: copying", "1", "", ""],
        ["floor: chance", "", "14.3 %", ""],
    ]
    assert story["numbers"]["n12"]["file"] == "copying.py:study"
    assert story["numbers"]["n12"]["key"] == "Copy.floors(): uniform guess"


def test_floors_that_differ_have_a_column(tmp_path):
    facts = replace(FACTS, floors=lambda label: {"guess": 3.0} if label == "layers 1" else {"guess": 5.0})
    story = render_page(
        '## T\n{{ table("loss", by="model.layers") }}', facts, evidence(), [], (), run_folder(tmp_path)
    )
    (block,) = blocks(story, "table")
    assert block["columns"] == ["model.layers", "held-out loss", "floor: guess", "n"]
    assert [story["numbers"][row[2].strip("{}")]["text"] for row in block["rows"]] == ["3", "5"]
    assert len(block["rows"]) == 2


def test_figures_are_shown_once(tmp_path):
    first, second, third = (figure.name for figure in FIGURES)
    template = f'## F\nBefore {{{{ figure("{second}", caption="Mine.") }}}} after\n{{{{ figures() }}}}'
    story = render_page(template, FACTS, evidence(), [], FIGURES, run_folder(tmp_path))
    shown = blocks(story, "figure")
    assert [block["name"] for block in shown] == [second, first, third]
    assert shown[0]["caption"] == "Mine." and shown[1]["caption"].startswith("Held-out loss during training.")
    assert [block["text"].strip() for block in blocks(story, "markdown")] == ["Before", "after"]


def test_a_figure_may_be_named_by_its_place(tmp_path):
    story = render_page("## F\n{{ figure(1) }}", FACTS, evidence(), [], FIGURES, run_folder(tmp_path))
    assert blocks(story, "figure")[0]["name"] == FIGURES[1].name


def test_claims_are_there_for_words_and_conditions(tmp_path):
    template = (
        '## V\n{% if claim("C1").verdict == "reproduced" %}It holds: {{ claim("C1").statement }}{% endif %}\n'
        '{{ claim("C2").words }}, {{ claims | length }}\n{{ verdicts() }}'
    )
    _, story = written(tmp_path, evidence(), template, figures=())
    assert blocks(story, "markdown")[0]["text"] == (
        "It holds: One layer \\*copies\\* in every seed.\nno seed was looked at, 2"
    )
    assert blocks(story, "verdicts")


# From Markdown to sections.


def test_headings_make_sections(tmp_path):
    template = (
        "# A *title* {x}\n\nThe `lead`.\n\nAnd more.\n\n## One\ntext\n\n### Inner\n\n```\n## no heading\n```\n\n"
        "## Empty\n\n## One\n\nagain\n\nRecord\n------\nset apart\n"
    )
    story = render_page(template, FACTS, evidence(), [], (), run_folder(tmp_path))
    assert (story["title"], story["subtitle"]) == ("A title \\{x}", "The lead.")
    assert [(section["id"], section["heading"]) for section in story["sections"]] == [
        ("in-short", "In short"), ("one", "One"), ("one-2", "One"), ("record-2", "Record"),
    ]  # fmt: skip
    assert story["sections"][1]["blocks"] == [
        {"kind": "markdown", "text": "text\n\n### Inner\n\n```\n## no heading\n```"}
    ]


def test_a_page_without_title_and_lead_has_those_of_the_study(tmp_path):
    story = render_page("## One\n\ntext", FACTS, evidence(), [], (), run_folder(tmp_path))
    assert (story["title"], story["subtitle"]) == (
        "copying",
        "How many layers does it take to copy \\{1..3} places?",
    )


def test_braces_of_a_template_mean_themselves(tmp_path):
    template = '## S\n\n{n0} and {{ value("loss", member=0) }}, `{a: 1}` {{ table("loss", caption="{y}") }}'
    run, _ = written(tmp_path, evidence(), template, figures=())
    build_report([run.path], run.path / "report.html")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<p>\{n0\} and <span class=\"number\"[^>]*>0\.01</span>, <code>\{a: 1\}</code>", page)
    assert "<figcaption>{y}</figcaption>" in page


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("One\n{% if true %}\ntwo\n{% endif %}\nthree", "One\ntwo\nthree"),
        ("One {% if true %}two{% endif %}\nthree", "One two\nthree"),
        ("One\n  {# nothing\n   here #}\n{% set a = [\n1] -%}  \nthree", "One\nthree"),
        ("{% for n in (1, 2) %}\n- {{ n }}\n{% endfor %}\n", "- 1\n- 2"),
    ],
)
def test_lines_of_tags_leave_no_line(filled, template, words):
    assert filled("## S\n\n" + template).endswith(f"S\n{words}")


# What there is not.


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ('# T\n\n{{ estimate("accuraccy") }}', "line 3: estimate of 'accuraccy': expected one of the metrics"),
        ('{% if true %}\n{{ last("lossy") }}\n{% endif %}', "line 2: last of 'lossy': expected one of the metrics"),
        ("{% set a = 1 %}\n\n{{ unknown }}", "line 3: expected something that can be filled in, found 'unknown'"),
        ("\n{% if x", "line 2: expected a Jinja template, found unexpected end of template"),
        ('{{ estimate("loss", layers=1) }}', "line 1: estimate of 'loss': expected one of the columns member,"),
        ('{{ estimate("attention_to_source") }}', "line 1: estimate of 'attention_to_source': "),
        ('{{ estimate("loss", split="test") }}', "line 1: estimate of 'loss': "),
        ('{{ table("loss", by="layers") }}', "line 1: table of 'loss': expected by to be one of the columns"),
        ('\n{% call grid() %}\na | b\nc\n{% endcall %}', "line 2: grid: expected 2 cells in every row, found 1 in c"),
        ('{{ share("accuracy") }}', "line 1: share of 'accuracy': expected one of the metrics"),
        ('{{ count("lossy") }}', "line 1: count of 'lossy': expected one of the metrics"),
        ('{{ rows("loss", layers=1) }}', "line 1: rows of 'loss': expected one of the columns member,"),
        ('{{ claim("C1") }}', "line 1: claim: expected one of none, for the study has none, found 'C1'"),
        ('{{ figure("loss") }}', "line 1: figure: expected one of loss-by-model.layers, final-acc"),
        ("{{ figure(3) }}", "line 1: figure: expected one of"),
        ('{{ setting("model.depth") }}', "line 1: setting: expected a field of the study"),
        ('{{ floors("loss", "layers 3") }}', "line 1: floors: expected one of the configurations layers 1, layers 2"),
        ("{{ 1 / 0 }}", "line 1: expected something that can be filled in, found division by zero"),
        ('{% include "/etc/hostname" %}', "line 1: expected something that can be filled in"),
        ("{{ estimate.__globals__ }}", "line 1: expected something that can be filled in, found access to attribute"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_named_with_the_line(tmp_path, template, message):
    facts = replace(FACTS, template="mine.md.j2")
    with pytest.raises(UserError) as caught:
        render_page(template, facts, evidence(), [], FIGURES, run_folder(tmp_path))
    assert str(caught.value).startswith(f"mine.md.j2, {message}")
    assert "\n" not in str(caught.value)


# The default page.


@pytest.fixture(scope="module", params=CASES)
def page(request, tmp_path_factory):
    """The default page of each case: what it says, and the words of the built file."""
    run, story = written(tmp_path_factory.mktemp("page"), evidence(**CASES[request.param]))
    build_report([run.path], run.path / "report.html")
    html = (run.path / "report.html").read_text(encoding="utf-8")
    return request.param, texts(story), re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)


LEARNED = {
    "learned": "Every model learned the task: 6 of 6 ended",
    "nothing": "No model learned the task: 0 of 6 ended",
    "one diverged": "Some models learned the task: 5 of 6 ended",
    "all of a depth diverged": "Some models learned the task: 3 of 6 ended",
    "all diverged": "Training diverged in every model: the loss stopped being a number.",
}


def test_the_default_page_says_what_came_out(page):
    case, words, _ = page
    assert {name for name, sentence in LEARNED.items() if sentence in words} == {case}
    assert ("has no number" in words or "left out of the means" in words) == ("diverged" in case)
    assert ("## What is missing" in words) is False
    assert ("Training diverged in 1 of 6 models." in words) == (case == "one diverged")
    assert ("layers 2, seed 3" in words) == ("diverged" in case)
    assert ("layers 1, seed 2" in words) == (case == "all diverged")
    assert ("no value (every member diverged)" in words) == case.startswith("all")


def test_the_default_page_is_built(page):
    _, _, html = page
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", html) == [
        "What was trained", "What came out", "Verdicts", "What is missing", "Where the numbers come from", "The record",
    ]  # fmt: skip
    assert "<strong>The task: Copy.</strong> Repeat a token." in html and "Attributes" not in html
    assert html.count('class="chart"') == len(FIGURES)
    assert html.count('class="ledger-entry ') == len(claims())
    assert "layers 1 or 2 (varied); heads 2; width 32</td>" in html
    assert "How many layers does it take to copy {1..3} places?" in html
    assert "/somewhere" not in html
    assert not re.search(r"\{\w+\}|[\ue000-\ue003]|\{%|\{\{", html)


NEW = {
    "learned": "One layer is enough: its accuracy on held-out samples is 97.4 %",
    "nothing": "With one layer, the accuracy on held-out samples is 12.5 %",
    "one diverged": "Training diverged in 1 of 6 models; they have no values.",
    "all of a depth diverged": "Training diverged in 3 of 6 models; they have no values.",
    "all diverged": "No model with one layer was trained to its end.",
}


@pytest.mark.parametrize("case", CASES)
def test_the_template_of_a_new_study(tmp_path, case):
    """What `hopscope new` writes beside a study says what came out, too."""
    source = resources.files("hopscope.cli").joinpath("templates", DEFAULT).read_text(encoding="utf-8")
    template = jinja2.Environment().from_string(source).render(name="copying")
    _, story = written(tmp_path, evidence(**CASES[case]), template, figures=FIGURES[:1])
    assert NEW[case] in texts(story)


def test_the_story_is_the_same_every_time(tmp_path):
    stories = [json.dumps(written(tmp_path / place, evidence())[1]) for place in ("a", "b")]
    assert stories[0] == stories[1]


def test_the_default_page_of_one_model(tmp_path):
    facts = StudyFacts(name="one", task=FACTS.task, floors={"guess": 3.0})
    found = Evidence.of(
        [{"member": 0, "configuration": "one"}], [Row(0, "training", "loss", 0.5, step=7)], CONFIG
    )
    words = texts(render_page(None, facts, found, [], (), run_folder(tmp_path)))
    assert "One transformer was trained." in words
    assert "The model learned the task: 1 of 1 ended" in words
    assert "Verdicts" not in words and "missing" not in words


def test_the_default_page_of_a_study_that_trains_nothing(tmp_path):
    run = run_folder(tmp_path)
    story = render_page(None, StudyFacts(name="asked", question="Why?"), Evidence.of([], []), [], (), run)
    assert [section["heading"] for section in story["sections"]] == ["Where the numbers come from"]


def test_without_floors_nothing_is_said_of_learning(tmp_path):
    words = texts(render_page(None, replace(FACTS, floors=None), evidence(), [], (), run_folder(tmp_path)))
    assert "model learned" not in words and "97.4 % [96.1, 98.7]" in words


def test_figures_of_ones_own_have_their_words(tmp_path):
    mine = (chart("mine", print, "My {caption}.", "my words"), chart("bare", print), curves("loss"))
    story = render_page("## F\n{{ figures() }}", FACTS, evidence(), [], mine, run_folder(tmp_path))
    assert [(block["caption"], block["alt"]) for block in blocks(story, "figure")[:2]] == [
        ("My \\{caption}.", "my words"),
        ("", "Chart bare."),
    ]


def test_the_story_can_be_read_back(tmp_path):
    run, story = written(tmp_path, evidence())
    record = read_run(run.path)
    assert record.story.title == story["title"]
    assert {block.kind for section in record.story.sections for block in section.blocks} == {
        "markdown", "figure", "table", "verdicts",
    }  # fmt: skip


def test_the_default_template_can_be_copied(tmp_path):
    run = run_folder(tmp_path)
    own = render_page(default_template(), FACTS, evidence(), [], FIGURES, run)
    assert own == render_page(None, FACTS, evidence(), [], FIGURES, run)
    assert DEPTH in texts(own)


# What the pages of the built-in studies need.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('estimate("loss", n=false, **{"model.layers": 1})', "0.02 [0.01, 0.03]"),
        ('range("accuracy", decimals=2, **{"model.layers": 1})', "96.10 % – 98.70 %"),
        ('range("accuracy", member=0)', "98.7 %"),
        ('has("loss", member=4)', "True"),
        ('has("loss", member=4, step=13)', "False"),
        ('has("loss", part="none")', "False"),
        ('has_figure("loss")', "False"),
        ('has_figure("loss-by-model.layers")', "True"),
    ],
)
def test_what_tables_and_conditions_say(filled, call, words):
    assert filled("## Here\n\nFound: {{ " + call + " }}.").splitlines()[-1] == f"Found: {words}."


def test_large_means_have_no_decimals(tmp_path):
    """Such as training samples: nobody counts tenths of them."""
    members = [{"member": seed, "seed": seed, "configuration": "one"} for seed in range(3)]
    rows = [Row(seed, "formed", "samples_seen", 123456.7 + 1000.3 * seed) for seed in range(3)]
    template = '## F\n{{ estimate("samples_seen") }}'
    story = render_page(template, FACTS, Evidence.of(members, rows, CONFIG), [], (), run_folder(tmp_path))
    assert "124,457 [123,457, 125,457] (n" in texts(story)


def test_a_template_may_have_parts(tmp_path):
    def rendered(part):
        files = {"part.md.j2": part}
        template = "# T\n\n## A\n\n{% set word = 'here' %}\n{% include 'part.md.j2' %}\n"
        found, run = evidence(), run_folder(tmp_path)
        return texts(render_page(template, FACTS, found, [], (), run, parts=files.__getitem__))

    assert "Loss: 0.01, here." in rendered("Loss: {{ value('loss', member=0) }}, {{ word }}.\n")
    with pytest.raises(UserError, match=r"^part\.md\.j2, line 2: .*'nothing'"):
        rendered("Loss:\n{{ value('nothing') }}\n")
    with pytest.raises(UserError, match=r"^part\.md\.j2, line 1: expected a Jinja template"):
        rendered("Loss: {% if %}\n")


def test_a_template_without_parts_includes_nothing(tmp_path):
    with pytest.raises(UserError, match=r"line 1: .*part\.md\.j2"):
        render_page("{% include 'part.md.j2' %}", FACTS, evidence(), [], (), run_folder(tmp_path))
