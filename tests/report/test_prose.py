import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.report.prose import Prose
from hopscope.report.record import Number

PROSE = Prose({"loss": Number(value=0.95712, text="0.9571", file='a"b.json', key="mean<0>")})


def test_number_names_its_file_and_key():
    title = "a&#34;b.json · mean&lt;0&gt;"
    expected = f'It is <span class="number" tabindex="-1" title="{title}">0.9571</span> &lt;b&gt;.'
    assert PROSE.html("It is {loss} <b>.") == expected


def test_plain_words_have_no_markup():
    assert PROSE.plain("It is {loss} & <b>.") == "It is 0.9571 & <b>."


@pytest.mark.parametrize("text", ["{los}", "{}", "{ loss }", "{loss:.2f}"])
def test_unknown_key_is_one_line_that_names_it(text):
    for write in (PROSE.html, PROSE.plain):
        with pytest.raises(UserError) as caught:
            write(f"It is {text}.")
        assert f"'{text}'" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_blank_lines_part_paragraphs():
    assert PROSE.paragraphs("one\ntwo\n\n \nthree {loss}\n") == ["one\ntwo", PROSE.html("three {loss}")]


@given(st.text(st.characters(exclude_characters="{}"), max_size=23))
def test_words_without_keys_are_only_escaped(words):
    html = PROSE.html(words)
    assert "<" not in html
    assert html.unescape() == PROSE.plain(words)
