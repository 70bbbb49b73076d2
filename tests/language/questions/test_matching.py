"""The normal form of an answer, and when a text is an acceptable one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.language.questions.matching import matched, normal_form

CITIES = ("Amsterdam", "Berlin", "Cairo")


@pytest.mark.parametrize(
    "text",
    [
        "Berlin",
        " Berlin\n",
        "berlin",
        "BERLIN",
        "Berlin.",
        '"Berlin"',
        "“Berlin.”",
        "'Berlin'.",
        "`Berlin` .",
    ],
)
def test_a_word_is_itself_whatever_stands_around_it(text):
    assert matched(text, CITIES) == "Berlin"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "Berlin, Cairo",
        "The answer is Berlin",
        "Berlin!",
        "Berli",
        "Berlin Berlin",
        "x = Berlin",
    ],
)
def test_a_text_that_says_more_or_less_is_no_answer(text):
    assert matched(text, CITIES) is None


def test_numbers_are_words():
    numbers = tuple(map(str, range(11)))
    assert matched("1.", numbers) == "1"
    assert matched("10", numbers) == "10"
    assert matched("1.0", numbers) is None
    assert matched("01", numbers) is None
    assert matched("-1", numbers) is None


@given(st.text(max_size=7))
def test_a_normal_form_is_its_own(text):
    assert normal_form(normal_form(text)) == normal_form(text)


@given(st.sampled_from(CITIES), st.sampled_from([" ", '"', "'", "“", "\n", "` "]), st.booleans())
def test_wrapping_changes_nothing(city, around, stop):
    assert matched(around + city + ("." if stop else "") + around, CITIES) == city
