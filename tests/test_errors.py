"""Errors are one line, whatever a foreign file says."""

import pytest

from hopscope.errors import HopscopeError, UserError, printable


@pytest.mark.parametrize("kind", [HopscopeError, UserError])
def test_an_error_is_one_line_that_commands_no_terminal(kind):
    assert str(kind("found 'a\r\n  b\u2028c'")) == "found 'a b c'"
    assert str(kind("found \x1b]0;title\x07 and \udcff")) == r"found \x1b]0;title\x07 and \udcff"


def test_other_text_stays_as_it_is():
    assert printable("näme  of two words ₂ → 7 %") == "näme  of two words ₂ → 7 %"
