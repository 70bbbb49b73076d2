import json
import re
import subprocess
import sys
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.report.environment import script_json
from hopscope.report.page import build_report


def build(*runs):
    target = runs[0] / "report.html"
    build_report(runs, target)
    return target.read_text(encoding="utf-8")


def words(page):
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


def change_json(path, change):
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_same_run_gives_the_same_bytes_anywhere(run_path, tmp_path, synthetic):
    other = synthetic.write_synthetic_run(tmp_path / "elsewhere")
    assert build(run_path) == build(other)


def test_nothing_on_the_page_is_fetched(run_path):
    page = build(run_path)
    assert not re.search(
        r"""\b(src|href)\s*=\s*["']?(https?:|//|[\w./]+\.(js|css|svg|png|ico))""", words(page)
    )
    assert "default-src 'none'" in unescape(page)
    assert "sourceMappingURL" not in page
    style = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL)[1]
    assert not re.search(r"@import|url\(", style)
    assert str(run_path.parent.parent.parent) not in page


def test_every_kind_of_block_is_there(run_path):
    page = build(run_path)
    text = words(page)
    assert text.count("<h1") == 1
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", text) == [
        "The task",
        "How it learns",
        "What the heads do",
        "Verdicts",
        "The record",
    ]
    assert text.count('class="chart"') == 3
    assert len(re.findall(r'<li class="cell role-[xy]">', text)) == 9
    assert text.count('class="cell role-other"') == 1
    assert '<th scope="col">final loss</th>' in text
    assert "<td>0.9983</td>" in text
    assert text.count('class="ledger-entry ') == 4
    assert text.count('<li class="step">') == 2
    assert text.count('<tr class="bar') == 10
    assert 'id="run-1-explorer"' in text and page.count('class="explorer-data"') == 1
    assert not re.search(r"\{\w+\}", text)


def test_worked_sequence_shows_marks_published_numbers_and_origin(run_path):
    text = words(build(run_path))
    figure = text[text.index('<figure class="worked"') : text.index('<figure class="worked explorer"')]
    rows = re.findall(r'<tr class="(bar[^"]*)">(.*?)</tr>', figure, flags=re.DOTALL)[5:]
    read = [(name, " ".join(re.sub(r"<[^>]+>", " ", row).split())) for name, row in rows]
    assert read == [
        ("bar is-used", "1 0.000 <0.001 ✕ used".replace("<", "&lt;")),
        ("bar is-elimination", "2 0.000 0.9987 0.9991 ← elimination"),
        (
            "bar is-target is-used is-recall",
            "3 1.000 <0.001 0.000 ✓ target ✕ used ← recall".replace("<", "&lt;"),
        ),
        ("bar is-used", "4 0.000 0.001 ✕ used"),
        ("bar is-used", "5 0.000 0.000 ✕ used"),
    ]
    assert 'title="units/7f/analysis/worked-step-5100.json · sequences.3.probabilities.1.1.2"' in figure
    assert '<th scope="col">published</th>' in figure
    assert "used: 3, 1, 4, 5; target: 3" in figure


def test_scripts_of_the_explorer_come_only_with_it(run_path):
    assert "hopscopeForward" in build(run_path)
    change_json(run_path / "story.json", lambda story: story["sections"][0]["blocks"].pop())
    assert "hopscopeForward" not in build(run_path)


def test_verdict_shows_sign_word_and_what_must_be_trusted(run_path):
    text = words(build(run_path))
    entry = text[text.index('id="run-1-claim-P3"') : text.index('id="run-1-claim-P10b"')]
    flat = " ".join(re.sub(r"<[^>]+>", " ", entry).replace("\u00a0", " ").split())
    for part in (
        "recall accuracy ≥ 99.9 %",
        "recall accuracy 99.96 % [99.91, 100]",
        "? inconclusive",
        "4 of 4 seeds agree; needs 10",
        "003 §8–9",
        "all 1,440 held-out sequences",
        "recall accuracy by seed 100 % 99.96 % 100 % –",
        "What must you trust? the held-out split: no mapping of it is ever trained on float32 evaluation",
    ):
        assert part in flat


def test_a_claim_is_one_line_and_its_values_unfold(run_path):
    def grow(claims):
        claims[0]["value"] = {f"kind {number}": number / 100 for number in range(9)}
        claims[0]["interval"] = None

    change_json(run_path / "claims.json", grow)
    page = words(build(run_path))
    line, folded = re.search(
        r'<details class="ledger-entry.*?<summary>(.*?)</summary>(.*?)</details>', page, re.S
    ).groups()
    assert re.findall(r"<small>(kind \d)</small>", line) == ["kind 0"]
    assert "and 8 more" in line
    assert re.findall(r"<small>(kind \d)</small>", folded) == [f"kind {number}" for number in range(9)]


LEAD = {
    "text": "It learned {floor} nats.",
    "figure": {"kind": "figure", "name": "attention", "alt": "Maps.", "caption": ""},
}


def test_the_lead_stands_before_the_sections(run_path):
    change_json(run_path / "story.json", lambda story: story.update(lead=LEAD))
    text = words(build(run_path))
    first = text[: text.index("</header>")]
    assert 'class="answer"' in first
    assert 'data-spec="run-1-spec-attention"' in first
    assert 'href="#run-1-the-task"' in first or "Try the model" in first


def test_a_layer_of_numbers_is_folded(run_path):
    change_json(run_path / "story.json", lambda story: story["sections"][-2].update(layer="numbers"))
    text = words(build(run_path))
    heading = re.search(r'<details class="part">\s*<summary><h3[^>]*>(.*?)</h3></summary>', text)
    assert heading[1] == "What the heads do"
    assert text.index("Verdicts</h2>") < text.index("The numbers</h2>") < heading.start()


def test_a_large_table_is_folded(run_path):
    def grow(story):
        table = next(
            block for section in story["sections"] for block in section["blocks"] if block["kind"] == "table"
        )
        table["rows"] = [table["rows"][0]] * 31

    assert 'class="fold"' not in words(build(run_path))
    change_json(run_path / "story.json", grow)
    assert "(31 rows)" in words(build(run_path))


def test_record_names_run_configuration_and_command(run_path, synthetic):
    text = words(build(run_path))
    assert f"hopscope report runs/permutation/{synthetic.HASH}</code>" in text
    assert '<th scope="row">training.betas</th><td>[0.9, 0.999]</td>' in text
    assert "Configuration (12 fields)" in text


def test_several_runs_share_a_page(run_path, tmp_path, synthetic):
    other = synthetic.write_synthetic_run(tmp_path / "runs", digest="7" * 64)
    text = words(build(run_path, other))
    assert re.findall(r'<article class="run" id="([^"]+)"', text) == ["run-1", "run-2"]
    assert text.count("<h1") == 1
    assert "<title>Hopscope: 2 runs</title>" in text
    anchors = re.findall(r'<a href="#([^"]+)"', text)
    ids = re.findall(r' id="([^"]+)"', text)
    assert set(anchors) <= set(ids)
    assert len(set(ids)) == len(ids)
    assert f"runs/permutation/{synthetic.HASH} runs/permutation/{'7' * 64}</code>" in text


def test_markup_in_story_and_claims_is_escaped(run_path):
    change_json(run_path / "story.json", lambda story: story.update(title="<i>title</i>"))
    change_json(run_path / "claims.json", lambda claims: claims[0].update(statement="a <b> & c", trust="<u>"))
    page = build(run_path)
    assert "<i>" not in page
    assert "a &lt;b&gt; &amp; c" in page
    assert "&lt;u&gt;" in page


def test_data_cannot_end_the_script_that_holds_it(run_path):
    (run_path / "figures" / "attention.csv").write_text(
        "head,query,key,weight\n</script><!--<script>,3,5,0.7\n", encoding="utf-8"
    )
    page = build(run_path)
    assert "</script><!--" not in page
    body = re.search(r'id="run-1-spec-attention">(.*?)</script>', page, flags=re.DOTALL)
    assert json.loads(body[1])["data"]["values"].endswith("</script><!--<script>,3,5,0.7\n")


@given(
    st.recursive(st.text(max_size=7), lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3))
)
def test_script_json_is_the_same_value_without_markup(value):
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


@pytest.mark.parametrize(
    ("file", "change", "found"),
    [
        ("story.json", lambda story: story["numbers"].pop("floor"), "'{floor}'"),
        ("story.json", lambda story: story["sections"][0]["blocks"][0].update(kind="film"), "film"),
        ("story.json", lambda story: story.update(schema_version=7), "made by a newer Hopscope"),
        ("story.json", lambda story: story["sections"][1]["blocks"][1].pop("alt"), "alt"),
        ("story.json", lambda story: story["sections"][1]["blocks"][1].update(name="../loss"), "../loss"),
        ("story.json", lambda story: story["sections"][0]["blocks"][2].pop("file"), "file"),
        (
            "story.json",
            lambda story: story["sections"][0]["blocks"][2]["steps"][0].update(target=9),
            "target",
        ),
        ("story.json", lambda story: story["sections"][0]["blocks"][3]["models"].clear(), "models"),
        ("story.json", lambda story: story["sections"][0]["blocks"][3]["tasks"].clear(), "task below 0"),
        ("claims.json", lambda claims: claims[0].update(verdict="proved"), "proved"),
        ("config.json", lambda config: config.pop("hash"), "hash"),
        ("config.json", lambda config: config.update(schema_version=7), "made by a newer Hopscope"),
    ],
)
def test_damaged_record_is_one_line(run_path, file, change, found):
    change_json(run_path / file, change)
    with pytest.raises(UserError) as caught:
        build(run_path)
    message = str(caught.value)
    assert file in message
    assert found in message
    assert "\n" not in message
    assert not (run_path / "report.html").exists()


def test_a_torn_map_is_one_line(run_path, circuit_cases):
    def tear(story):
        block = circuit_cases.block()
        maps = block["circuits"][0]["view"]["maps"][0]
        maps["data"] = maps["data"][:-8]  # eight letters are six bytes, or a padding less
        story["sections"][0]["blocks"].append(block)

    change_json(run_path / "story.json", tear)
    with pytest.raises(UserError, match=r"story\.json: at '.*maps\.0' expected: .* bytes for the shape"):
        build(run_path)


@pytest.mark.parametrize("file", ["config.json", "story.json", "claims.json"])
def test_missing_record_is_one_line(run_path, file):
    (run_path / file).unlink()
    with pytest.raises(UserError) as caught:
        build(run_path)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_runs_is_an_error(tmp_path):
    with pytest.raises(UserError, match="found none"):
        build_report([], tmp_path / "report.html")


def test_the_page_loads_neither_torch_nor_studies():
    code = (
        "import sys, hopscope.report.page\n"
        "print([name for name in sys.modules if name in ('torch', 'vl_convert', 'hopscope.studies')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
