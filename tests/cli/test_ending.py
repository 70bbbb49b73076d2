"""SIGTERM and SIGHUP end a command as Ctrl-C does, and only where nobody else has a say in them."""

import contextlib
import os
import signal
import threading

import pytest

from hopscope.cli import ending
from hopscope.cli.main import main

LINE = "hopscope: interrupted; what is done is kept, the same command goes on\n"


@pytest.fixture
def handled():
    """Says how a signal is handled, which is as usual until then; it is put back afterwards."""
    usual = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield signal.signal
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def command(monkeypatch):
    """A command that does as the test says."""

    def does(what):
        monkeypatch.setattr("hopscope.cli.studies.main", lambda arguments: what())
        return main(["studies"])

    return does


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_asked_to_end(command, handled, capsys, number):
    before = signal.getsignal(number)
    assert command(lambda: os.kill(os.getpid(), number)) == 128 + number
    assert capsys.readouterr() == ("", LINE)
    assert signal.getsignal(number) is before


def test_what_a_package_makes_of_it_does_not_change_the_status(command, handled):
    def swallows():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        raise KeyboardInterrupt

    assert command(swallows) == 143


def test_a_wish_that_is_repeated_at_once_counts_once(command, handled, monkeypatch):
    """`timeout` sends SIGTERM twice, systemd SIGHUP after it: what is saved meanwhile must not be cut short."""
    saved, seconds = [], [7.0]
    monkeypatch.setattr(ending.time, "monotonic", lambda: seconds[0])

    def saves():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            saved.append("whole")
            seconds[0] += ending.REPEAT_SECONDS
            with pytest.raises(KeyboardInterrupt):  # who means it is obeyed
                os.kill(os.getpid(), signal.SIGHUP)

    assert command(saves) == 143 and saved == ["whole"]


def test_a_signal_that_is_ignored_stays_ignored(command, handled):
    """`nohup hopscope run …`: the terminal may close."""
    handled(signal.SIGHUP, signal.SIG_IGN)
    assert command(lambda: os.kill(os.getpid(), signal.SIGHUP) or 0) == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_s_handler_stays(command, handled):
    heard = []
    handled(signal.SIGTERM, lambda number, frame: heard.append(number))
    assert command(lambda: os.kill(os.getpid(), signal.SIGTERM) or 0) == 0
    assert heard == [signal.SIGTERM]


def test_a_thread_leaves_signals_alone(handled):
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(main(["--version"])))
    thread.start()
    thread.join()
    assert statuses == [0] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
