"""Markdown of a page: numbers tell where they came from, and markup in the text stays text."""

import json

import pytest

from hopscope.errors import UserError
from hopscope.report.page import build_report
from hopscope.report.prose import Prose
from hopscope.report.record import Number

PROSE = Prose({"n0": Number(value=0.95712, text="0.9571", file='a"b.json', key="mean<0>")})
SPAN = '<span class="number" tabindex="-1" title="a&#34;b.json · mean&lt;0&gt;">0.9571</span>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("A *word* and {n0}.", f"<p>A <em>word</em> and {SPAN}.</p>"),
        ("**{n0}**", f"<p><strong>{SPAN}</strong></p>"),
        ("- one {n0}\n- two", f"<ul>\n<li>one {SPAN}</li>\n<li>two</li>\n</ul>"),
        ("`loss {n0}`", f"<p><code>loss {SPAN}</code></p>"),
        ("<b>bold</b> & more", "<p>&lt;b&gt;bold&lt;/b&gt; &amp; more</p>"),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        (
            "[to]( https://example.org 'at {n0}')",
            '<p><a href="https://example.org" title="at 0.9571">to</a></p>',
        ),
        ("[to](javascript:alert(1))", "<p>[to](javascript:alert(1))</p>"),
        ("![shown](https://example.org/a.png)", '<p>!<a href="https://example.org/a.png">shown</a></p>'),
        ("    set in", "<p>set in</p>"),
        ("at 95 %", "<p>at 95\u00a0%</p>"),
        (r"a \{n0} `\{x}` {n0}", f"<p>a {{n0}} <code>{{x}}</code> {SPAN}</p>"),
        ("{n0}{n0}", f"<p>{SPAN}{SPAN}</p>"),
        ("\ue0000\ue001", "<p>0</p>"),
    ],
)
def test_markdown_becomes_html(text, html):
    assert PROSE.markdown(text).strip() == html


@pytest.mark.parametrize(("level", "tag"), [(1, "h3"), (2, "h4")])
def test_headings_stand_below_those_of_the_page(level, tag):
    assert PROSE.markdown("### Inner {n0}", level).strip() == f"<{tag}>Inner {SPAN}</{tag}>"


def test_a_table_can_be_scrolled():
    html = PROSE.markdown("| a | b |\n|---|---|\n| {n0} | 2 |")
    assert html.startswith('<div class="scroll" role="group" aria-label="Table">\n<table>')
    assert f"<td>{SPAN}</td>\n<td>2</td>" in html
    assert html.rstrip().endswith("</table>\n</div>")


@pytest.mark.parametrize("text", ["{loss}", "`{loss}`", "{n0} {}"])
def test_an_unknown_number_is_one_line(text):
    with pytest.raises(UserError, match=r"expected every \{key\} in its words") as caught:
        PROSE.markdown(text)
    assert "\n" not in str(caught.value)


def test_a_brace_may_mean_itself_in_all_words():
    assert PROSE.plain(r"in \{1, 2} {n0}") == "in {1, 2} 0.9571"
    assert PROSE.html(r"in \{1, 2}") == "in {1, 2}"


def test_a_block_of_markdown_is_on_the_page(run_path):
    story = json.loads((run_path / "story.json").read_text(encoding="utf-8"))
    number = next(iter(story["numbers"]))
    words = f"### Inner\n\nSome *words*, {{{number}}}."
    story["sections"][0]["blocks"].insert(0, {"kind": "markdown", "text": words})
    (run_path / "story.json").write_text(json.dumps(story), encoding="utf-8")
    for runs, tag in (([run_path], "h3"), ([run_path, run_path], "h4")):
        build_report(runs, run_path / "report.html")
        page = (run_path / "report.html").read_text(encoding="utf-8")
        assert f'<{tag}>Inner</{tag}>\n<p>Some <em>words</em>, <span class="number"' in page
