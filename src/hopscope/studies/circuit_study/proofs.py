"""A member's circuit under the rules alone beside the one that also holds recomputed, and both on unseen sequences.

The paper proves a circuit by its rules (appendix E); Hopscope asks besides that it holds where the circuit's patterns
are recomputed.  The first finds fewer heads.  Claims about circuits are judged by both ways (`docs/protocols.md`).
"""

from collections.abc import Mapping
from typing import Any

from hopscope.circuits.built_in_tasks import VectorCircuits, task_of
from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.circuit_task import Use
from hopscope.circuits.comparison import path_bounds
from hopscope.circuits.config import READ, SEQUENCES, Proof, reads_one_token
from hopscope.circuits.execution import Assignment, Execution, Mode, Slot
from hopscope.circuits.path_formation import formation
from hopscope.circuits.record import path_json, read_member
from hopscope.circuits.virtual_model import quickest
from hopscope.models.patterns import Learned, Rule, Uniform
from hopscope.models.transformer import Transformer
from hopscope.runs import UnitFolder
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.proof import PROOFS, proofs_name, reader_of
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import MemberPlan, TrainJob
from hopscope.training.restore import load_ensemble

UNSEEN = 256
"""Sequences that play no part in admitting a circuit (`docs/protocols.md`, R7)."""


def analyse(
    config: ChainsConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: RetrievalTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Write what both proofs say of every independent member of a trained unit; what is there already is kept.

    Args:
        config, unit, job, task, budget, device: as of any analysis of a unit.

    Raises:
        TimeBudgetReached: between two readings.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    read = task_of(task.config)
    assert isinstance(read, RetrievalTask)
    setting, step = VectorCircuits(read), job.training.steps
    for index, member in enumerate(job.members):
        crossed, name = member.init_seed != member.data_seed, proofs_name(member.member, config.read_again)
        if not crossed and not unit.analysis_path(name, step).is_file():
            budget.check()
            found = _of_member(config, unit, index, member, setting, budget, step=step)
            unit.write_analysis(name, step, found)


def _of_member(
    config: ChainsConfig,
    unit: UnitFolder,
    index: int,
    member: MemberPlan,
    setting: VectorCircuits,
    budget: TimeBudget,
    *,
    step: int,
) -> dict[str, Any]:
    """What is written of one member; its readings are made where they are not there."""

    def reading(proof: Proof, number: int = 0) -> dict[str, Any]:
        budget.check()
        return read_member(unit.run, member.member, step, reader_of(config, proof, again=number))

    readings = {proof: reading(proof) for proof in PROOFS}
    # Only members that learned the whole chain are compared (R6).
    compared = config.read_again and len(readings["both"]["learned"]) == config.steps
    anew = {
        proof: [reading(proof, number) for number in range(1, config.read_again + 1)]
        for proof in PROOFS
        if compared
    }
    models = [(at, load_ensemble(unit, at).select([index])) for at, _ in unit.checkpoints() if at <= step]
    return {
        "member": member.member,
        "checkpoint": step,
        "formation": formation(
            Circuit.model_validate(readings["rules"]["circuit"]),
            models,
            setting,
            setting.batch(0, SEQUENCES, "watch"),
        ),
        "unseen": {
            proof: unseen_losses(models[-1][1], setting, reading) for proof, reading in readings.items()
        },
        "bounds": bounds(models[-1][1], setting.task, readings["both"]) if compared else [],
        "read_again": {
            proof: [[circuit["circuit"] for circuit in each["minimal_circuits"]] for each in found]
            for proof, found in anew.items()
        },
    }


def bounds(model: Transformer, task: RetrievalTask, reading: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each path of a circuit costs between two bounds (`hopscope.circuits.comparison`), as JSON values."""
    return [
        {
            **path_json(each.path),
            "removed": each.removed,
            "others": list(each.others),
            "whole_layer": each.layer,
        }
        for each in path_bounds(model, task, Circuit.model_validate(reading["circuit"]))
    ]


def unseen_losses(
    model: Transformer, setting: VectorCircuits, reading: Mapping[str, Any], samples: int = UNSEEN
) -> dict[str, Any]:
    """What a circuit reaches on sequences that played no part in admitting it, and without its reads of single tokens.

    A member that was not read counts with the circuit that came nearest to the threshold under the rules; rows of it
    that follow no rule read uniformly.

    Args:
        model: the member, `member == 1`.
        setting: how its task is put to the reader.
        reading: as `hopscope circuit --json` prints it.
        samples: how many sequences.

    Returns:
        JSON values: `circuit`; mean squared errors over the targets that were learned: `loss` by mode (and `full`, of
        the model itself), `paths` with `without` by mode, and `without_first_head` by mode; empty for a member that
        learned nothing.
    """
    if not reading["learned"]:
        return {}
    circuit = _nearest(model, setting, reading)
    on = _Losses(model, setting, reading["learned"], "unseen", samples)
    whole = on.assigned(circuit)
    loss = {mode: on.of(whole, mode) for mode in ("rules", "recomputed")}
    sharp = [path for path in circuit.paths if reads_one_token(path.target)]
    first = [path for path in sharp if (path.layer, path.head) == (sharp[0].layer, sharp[0].head)]
    return {
        "circuit": circuit.model_dump(mode="json"),
        "loss": {"full": on.of(on.execution.untouched(), "rules"), **loss},
        "paths": [{**path_json(path), "without": on.without(whole, [path])} for path in sharp],
        "without_first_head": on.without(whole, first) if first else None,
    }


def _nearest(model: Transformer, setting: VectorCircuits, reading: Mapping[str, Any]) -> Circuit:
    """The circuit of a member: the one that was read, or the one with the least loss under the rules."""
    if reading["verdict"] == READ:
        return Circuit.model_validate(reading["circuit"])
    circuits = [Circuit.model_validate(found["circuit"]) for found in reading["minimal_circuits"]]
    on = _Losses(model, setting, reading["learned"], "check", setting.validation)
    return min(circuits, key=lambda circuit: on.of(on.assigned(circuit), "rules"))


class _Losses:
    """Losses of one model over the targets that it learned, under circuits, on sequences of one use."""

    def __init__(
        self, model: Transformer, setting: VectorCircuits, learned: list[str], use: Use, samples: int
    ):
        self.setting, self.learned = setting, learned
        grammar = setting.grammar(setting.batch(0, samples, use), causal=model.config.causal)
        self.execution = Execution(quickest(model), grammar)

    def assigned(self, circuit: Circuit) -> Assignment:
        """A circuit of which every row follows a rule."""
        rules = circuit.rules(self.execution.grammar, self.execution.slots)
        given: dict[Slot, Rule] = {
            slot: Uniform() if isinstance(rule, Learned) else rule for slot, rule in rules.items()
        }
        return self.execution.assigned(self.execution.untouched(), given)

    def of(self, assignment: Assignment, mode: Mode) -> float:
        """Mean squared error over the learned targets."""
        predictions = self.execution.run(assignment, mode).predictions
        losses = self.setting.task.losses(predictions, self.execution.grammar.batch)
        return sum(float(losses[f"loss_{name}"]) for name in self.learned) / len(self.learned)

    def without(self, whole: Assignment, paths: list[Path]) -> dict[str, float]:
        """The losses where some paths read uniformly, in three modes; *clean*: all else is the model's own."""
        roles = self.execution.grammar.roles
        gone: dict[Slot, Rule] = {
            (path.layer, path.head, roles.index(path.roles)): Uniform() for path in paths
        }
        removed = self.execution.assigned(whole, gone)
        alone = self.execution.assigned(self.execution.untouched(), gone)
        return {
            "rules": self.of(removed, "rules"),
            "clean": self.of(alone, "rules"),
            "recomputed": self.of(removed, "recomputed"),
        }
