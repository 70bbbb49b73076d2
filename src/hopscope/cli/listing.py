"""Many runs at a glance: a line for each, whatever state it is in."""

from dataclasses import dataclass

from hopscope.claims import Ledger
from hopscope.cli.terminal import say
from hopscope.errors import UserError
from hopscope.runs import RunFolder


@dataclass(frozen=True)
class ListedRun:
    """What a list says of a run.

    Attributes:
        run: its folder.
        study: the study's name; empty where its configuration cannot be read.
        preset: name of its preset, empty where it has none.
        outcome: how many claims came out how, or why nothing is told.
        fault: why it cannot be read; `None` where it can.
    """

    run: RunFolder
    study: str
    preset: str
    outcome: str
    fault: UserError | None = None


def listed(run: RunFolder) -> ListedRun:
    """Read what a list says of a run: its configuration and its ledger, each once."""
    study = preset = ""
    try:
        study, preset = run.asked_for
        finished = run.is_done or (run.path / "claims.json").is_file()
        outcome = read_ledger(run).closing_line if finished else "not finished: run the same study again"
    except UserError as error:
        lacks = "no ledger" if study else "no configuration"
        return ListedRun(run, study, preset, f"{lacks} that can be read", error)
    return ListedRun(run, study, preset, outcome)


def read_ledger(run: RunFolder) -> Ledger:
    """The ledger of a run, made again from the evidence where it is damaged or gone.

    Raises:
        UserError: there is nothing to make it from.
    """
    from hopscope.report import record

    try:
        return record.read_ledger(run.path)
    except UserError as damage:
        from hopscope.executors.finish import judge_again

        return judge_again(run, damage, say)
