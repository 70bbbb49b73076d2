import pickle

import pytest

from hopscope.errors import HopscopeError, TimeBudgetReached, UserError, printable


@pytest.mark.parametrize("kind", [HopscopeError, UserError, TimeBudgetReached])
def test_an_error_is_one_line_that_commands_no_terminal_and_crosses_processes(kind):
    assert str(kind("found 'a\r\n  b\u2028c'")) == "found 'a b c'"
    error = kind("found \x1b]0;title\x07 and \udcff")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == r"found \x1b]0;title\x07 and \udcff"  # noqa: S301
    assert kind.exit_status == (75 if kind is TimeBudgetReached else 2)
    assert printable("näme  of two words ₂ → 7 %") == "näme  of two words ₂ → 7 %"
