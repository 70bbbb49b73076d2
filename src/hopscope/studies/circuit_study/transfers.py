"""The circuit of every seed run in every other seed: what of a circuit is the task's, and what is the seed's.

The layers and heads of the circuit are taken as they are numbered.  So a circuit holds in another seed only if the
same heads do the same there.  Rows are held-out and stand at the last training step of the member it is run in.

Measure `transfer`, of members that learned the whole chain; part `member I`, whose circuit it is (the member's own
among them; only circuits that were read):
    `transferred_loss_rules`, `transferred_loss_recomputed`: the loss where every pattern is its rule, and where paths
        use their own softmax.
    `transferred_share`: how much of what the model gained over the plateau the circuit keeps by its rules: 1 for the
        model's own loss, 0 for the plateau or worse.

This module loads no torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.circuits.history_rows import adding
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.runs.files import is_file
from hopscope.studies.analysis import RunAnalysis
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.members import Member, gather

if TYPE_CHECKING:
    from hopscope.training.budget import TimeBudget

FILE = "transfers.json"


def measure(run: RunFolder, options: ChainsConfig, budget: "TimeBudget", say: Callable[[str], None]) -> None:
    """Write what every circuit that was read reaches in every member that learned the whole chain.

    What is known of a member is kept; the file of the run is written last.

    Raises:
        TimeBudgetReached: between two members; the same call goes on.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    members = [member for member in gather(run, options) if member.learned_all and not member.crossed]
    found: dict[str, Any] = {}
    for member in members:
        name, step = f"transfers-{member.member}", options.training_steps
        if not is_file(member.unit.analysis_path(name, step)):
            budget.check()
            say(f"running every circuit in {member.name}")
            member.unit.write_analysis(name, step, _reached(run, member, members, step))
        found[str(member.member)] = member.unit.read_analysis(name, step)
    run.write_json(FILE, found)


def _reached(run: RunFolder, member: Member, members: list[Member], step: int) -> dict[str, Any]:
    """Member whose circuit it is → losses in one member, as JSON values."""
    from hopscope.circuits.circuit import Circuit
    from hopscope.circuits.comparison import transferred
    from hopscope.circuits.record import model_and_task

    read = [each for each in members if each.was_read]
    if not read:
        return {}
    circuits = [Circuit.model_validate(each.reading["circuit"]) for each in read]
    reached = transferred(*model_and_task(run, member.member, step), circuits)
    return {str(each.member): asdict(found) for each, found in zip(read, reached, strict=True)}


def measurements(run: RunFolder, options: ChainsConfig) -> Iterator[Row]:
    """The rows of a run whose circuits were run in all of its members.

    Raises:
        UserError: the file is damaged.
    """
    if not is_file(run.path / FILE):
        return  # a run from before this was measured
    plateau = options.task().plateau
    for member, reached in run.read_json(FILE).items():
        row = partial(adding(int(member), options.training_steps), "transfer", file=FILE)
        for other, loss in reached.items():
            part = f"member {other}"
            for mode in ("rules", "recomputed"):
                yield row(metric=f"transferred_loss_{mode}", value=loss[mode], part=part)
            share = (plateau - loss["rules"]) / (plateau - loss["full"])
            yield row(metric="transferred_share", value=min(1.0, max(0.0, share)), part=part)


circuits_in_other_members = RunAnalysis((FILE,), measure, measurements)
"""The circuit of every member run in every other one."""
