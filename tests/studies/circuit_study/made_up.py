"""Members of runs that never were."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.story import user_run

from hopscope.circuits import circuit
from hopscope.circuits.history_rows import adding
from hopscope.circuits.path_history import DIVERGED, PathHistory
from hopscope.circuits.rereading import circuits_of
from hopscope.claims import JudgedClaim, Ledger, judge
from hopscope.models.patterns import OwnChain
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies import find_study, program
from hopscope.studies.circuit_study import page
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.members import Member, of_members
from hopscope.studies.circuit_study.proof import (
    PROOFS,
    Compared,
    proof_rows,
    reread_rows,
    unseen_rows,
)

CHECKPOINTS = tuple(range(0, 1001, 100))

ROLES = {"query": (2, 0), "first 1": (0, 1), "second 1": (1, 1), "first 2": (0, 2), "second 2": (1, 2)}


@dataclass(frozen=True)
class MadeUp(Member):
    """A member with its losses at the end of training: of all targets, and by step."""

    loss: float | None
    partial: dict[int, float]


def final_losses(members: Sequence[Member], config: ChainsConfig) -> Iterator[Row]:
    """Losses of some members at the end of training; nothing known of one that diverged."""
    for each in members:
        assert isinstance(each, MadeUp)
        found = {None: each.loss} | {f"step_{step}": each.partial.get(step) for step in each.curves}
        for part, loss in found.items():
            yield Row(
                each.member, "final", "final_loss", loss, step=config.training_steps, part=part, file=GATHERED
            )


def evidence_of(
    members: Sequence[Member], config: ChainsConfig, further: Sequence[Row] = (), folder: Path | None = None
) -> Evidence:
    """The evidence table of a run with these members, and maybe further rows."""
    rows = [*final_losses(members, config), *of_members(members, config), *further]
    return Evidence.of(map(_record, members), rows, config.model_dump(mode="json"), folder)


def training(members: Sequence[Member]) -> Iterator[Row]:
    """The training record of some members: partial losses, and losses over all targets that fall a little later."""
    for each in members:
        curves = {f"loss_step_{step}": curve for step, curve in each.curves.items()} | {
            "loss": falling(500.0)
        }
        every = [(name, "held_out", curve) for name, curve in curves.items()] + [
            ("loss", "train", falling(480.0))
        ]
        for name, split, (steps, values) in every:
            for step, value in zip(steps[::20], values[::20], strict=True):
                yield Row(
                    each.member, "training", name, None if each.diverged and step else value, split, step
                )


def presented(
    root: Path,
    study: Any,
    config: Any,
    members: Sequence[Member],
    further: Sequence[Row] = (),
    draw: bool = True,
) -> tuple[RunFolder, dict[str, Any]]:
    """A run of these members with its story, and its figures if they are wanted; and the story."""
    records = [
        {"member": each.member, "unit": "a", "index": number, **{name: _record(each)[name] for name in
         ("seed", "overrides")}} for number, each in enumerate(members)
    ]  # fmt: skip
    run = RunFolder.create(root, study.name, config.model_dump(mode="json"), records, None)
    places = config.task().positions
    maps = np.zeros((2, config.layers, config.heads, places, places), dtype=np.uint8)
    maps[1, 0, 0, 3, 1] = 102
    arrays = {"steps": np.array([0, CHECKPOINTS[-1]]), "maps": maps}
    run.unit("a").write_analysis("maps", CHECKPOINTS[-1], arrays)
    tokens = [{"role": "query", "chain": 0, "label": "x₁"}] * places
    of_run = [replace(each, unit=_Unit(_kept(arrays, each)), tokens=tokens) for each in members]
    evidence = evidence_of(
        members, config, [*training(members), *of_proofs(members, config), *further], run.path
    )
    ledger = Ledger([judge(claim, evidence) for claim in study.claims(config)])
    run.write_json("claims.json", ledger.to_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "gather", lambda run, config: of_run)
        if not draw:
            patch.setattr(program, "write_figures", lambda *given: None)
        study.present(run, config, evidence, ledger)
    return run, run.read_json("story.json")


def _kept(arrays: dict[str, np.ndarray], each: Member) -> dict[str, np.ndarray]:
    """Attention maps of the checkpoints that a member has."""
    there = np.isin(arrays["steps"], each.checkpoints)
    return {name: array[there] for name, array in arrays.items()}


class _Unit:
    """Stands for the folder of a unit, which has but the attention maps."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self._arrays = arrays

    def read_analysis(self, name: str, step: int) -> dict[str, np.ndarray]:
        """The maps."""
        return self._arrays


def _record(member: Member) -> dict[str, Any]:
    overrides = {"init_seed": member.init_seed, "data_seed": member.data_seed} if member.crossed else {}
    return {"member": member.member, "seed": member.seed, "configuration": "chains", "overrides": overrides}


_GOOD = {"loss": {"full": 0.01, "rules": 0.04, "recomputed": 0.05}, "without_first_head": {"rules": 0.07}}


def unseen_of(each: Member, loss: float = 0.04, first: float = 0.07) -> dict[str, Any]:
    """What a member's circuit reaches on unseen sequences."""
    paths = [
        {"layer": one.layer, "head": 0, "query_role": one.query, "target_role": one.target,
         "without": {"rules": one.removed["rules"]}} for one in each.every_path
    ]  # fmt: skip
    return {
        **_GOOD,
        "loss": {**_GOOD["loss"], "rules": loss},
        "paths": paths,
        "without_first_head": {"rules": first},
    }


def circuit_of(each: Member, shift: int) -> dict[str, Any]:
    """A member's circuit as a reading has it, so many layers higher, where other rows do the reads."""
    return {
        "paths": [
            {"layer": one.layer + shift, "head": 0, "query": f"{one.query} {shift}", "target": one.target}
            for one in each.every_path
        ]
    }


def of_proofs(
    members: Sequence[Member], config: ChainsConfig, *, by_rules: Sequence[Member] | None = None,
    unseen: Sequence[Mapping[str, Any]] | None = None, losses: Sequence[float] | None = None, again: int = 0,
    own: float | None = None,
) -> list[Row]:  # fmt: skip
    """Rows of losses at the last checkpoint, and of what both proofs say of members.

    Args:
        members: each with the circuit that also holds recomputed.
        config: of the run.
        by_rules: the members, each with the circuit that its rules alone prove; by default the same.
        unseen: what each member's circuits reach on unseen sequences.
        losses: of every step of each member at the last checkpoint; by default low where it was learned.
        again: how many layers higher the circuit is that is found at the second reading.
        own: distance of each member's two readings; by default that of their circuits.
    """
    rows: list[Row] = []
    compared: dict[int, Compared] = {}
    for number, each in enumerate(members):
        add = adding(each.member, config.training_steps)
        for step in each.curves:
            at = (0.05 if step in each.learned else 0.7) if losses is None else losses[number]
            value, part = None if each.diverged else at, f"step_{step}"
            rows.append(add("retrieval", "checkpoint_loss", value, part=part, file="units/a/retrieval.json"))
        if each.crossed:
            continue
        if each.diverged:
            rows.append(add("proof", "rules_was_read", None, file="units/a/proofs.json"))
            continue
        rows += proof_rows(add, each, each if by_rules is None else by_rules[number])
        usual = unseen_of(each) if each.learned else {}
        found = usual if unseen is None else unseen[number]
        rows += unseen_rows(add, {"both": found, "rules": found}, "units/a/proofs.json")
        if each.learned_all:
            readings = [circuits_of([circuit_of(each, number + shift)]) for shift in (0, again)]
            compared[each.member] = Compared(add, "units/a/proofs.json", dict.fromkeys(PROOFS, readings))
    apart = [
        replace(row, value=own) if own is not None and row.metric.endswith("reread_graph_distance") else row
        for row in reread_rows(compared)
    ]
    return [*rows, *apart]


def proven(
    members: Sequence[Member], config: ChainsConfig, *, untrained: float | None = 0.75, **given: Any
) -> Evidence:
    """The evidence table of a run whose members were read by both proofs.

    Args:
        members: of the run.
        config: of the run.
        untrained: held-out loss of each member before its first step; None if it was not measured.
        given: further arguments of `of_proofs`.
    """
    before = [] if untrained is None else [
        Row(each.member, "training", "loss", untrained, step=0) for each in members
    ]  # fmt: skip
    return evidence_of(members, config, [*before, *of_proofs(members, config, **given)])


def judged(
    study: str, members: Sequence[Member], config: ChainsConfig, **given: Any
) -> dict[str, JudgedClaim]:
    """Every claim of the paper in a study, on members, by its id; further arguments as of `proven`."""
    evidence = proven(members, config, **given)
    claims = [claim for claim in find_study(study).claims(config) if claim.id.startswith("R")]
    return {claim.id: judge(claim, evidence) for claim in claims}


def falling(at: float | None, low: float = 0.05) -> tuple[list[int], list[float]]:
    """A loss that falls through one half at a step, within 20 steps; or never."""
    steps = list(range(0, 1001, 10))
    return steps, [0.75 if at is None or step < at else low for step in steps]


def path(
    layer: int, query: str, target: str, formed: float | None, needed_for: int | None, **removed: float
) -> PathHistory:
    """A path of head 0 whose attention rises from 0.1 to 0.9 between the checkpoints around a step."""
    return PathHistory(
        layer=layer,
        head=0,
        query=query,
        target=target,
        rule="own_chain",
        attention=tuple(0.1 if formed is None or step <= formed else 0.9 for step in CHECKPOINTS),
        needed_for=needed_for,
        mean_attention=0.9,
        carries=("x_1",),
        removed={"rules": 0.5, "clean": 0.4, "recomputed": 0.6, **removed},
    )


def last_look(each: Member) -> Member:
    """A member of which the last checkpoint alone was left when its paths were followed."""
    paths = tuple(replace(one, attention=one.attention[-1:]) for one in each.paths)
    return replace(each, paths=paths, checkpoints=CHECKPOINTS[-1:])


def _of_circuit(found: PathHistory) -> circuit.Path:
    query, target = ROLES[found.query], ROLES[found.target.removeprefix("all ")]
    return circuit.Path(
        layer=found.layer,
        head=found.head,
        roles={"kind": query[0], "step": query[1]},
        rule=OwnChain(keys={"kind": target[0], "step": target[1]}),
        query=found.query,
        target=found.target,
    )


def _written(found: PathHistory) -> dict[str, Any]:
    """A path as a reading has it."""
    return {
        "layer": found.layer,
        "head": found.head,
        "query_role": found.query,
        "rule": found.rule,
        "target_role": found.target or None,
        "mean_attention": found.mean_attention,
        "carries": list(found.carries),
        "composition": [],
        "loss_if_removed": found.removed,
        "needed_for": None if found.needed_for is None else f"step_{found.needed_for}",
    }


def member(
    number: int = 0,
    paths: Sequence[PathHistory] = (),
    *,
    falls: Mapping[int, float | None] | None = None,
    loss: float | None = 0.005,
    verdict: str = "read",
    learned: Sequence[int] = (1, 2),
    rules: float = 0.04,
    init: int | None = None,
    data: int | None = None,
    merges: int = 0,
    full: float = 0.01,
    random: float = 0.95,
) -> Member:
    """A member of a task of two steps; by default one that learned both and was read."""
    falls = {1: 300.0, 2: 600.0} if falls is None else falls
    diverged = loss is None
    paths = () if diverged else paths
    smallest = circuit.Circuit(paths=tuple(map(_of_circuit, paths)))
    return MadeUp(
        member=number,
        seed=number if init is None else init,
        init_seed=number if init is None else init,
        data_seed=number if data is None else data,
        diverged=diverged,
        loss=loss,
        partial={} if diverged else {step: 0.05 if at is not None else 0.75 for step, at in falls.items()},
        curves={step: falling(at) for step, at in falls.items()},
        reading={
            "learned": [] if diverged else [f"step_{step}" for step in learned],
            "verdict": DIVERGED if diverged else verdict,
            "threshold": 0.05,
            "checkpoint": 1000,
            "circuit": smallest.model_dump(mode="json"),
            "reads": [list(read) for read in smallest.reads],
            "merges": [[[0, 0], [1, 0]]] * merges,
            "minimal_circuits": [{"found": 3, "paths": []}],
            "worst_recomputed": 0.06,
            "exchanges": [],
            "paths": [_written(each) for each in paths],
            "loss": {"full": full, "rules": rules, "recomputed": 0.05, "complement": 0.9, "random_circuits": random,
                     "random_circuits_range": [0.8, 1.1]},
        },
        checkpoints=CHECKPOINTS,
        paths=tuple(paths),
        maps_file=f"units/a/analysis/maps-step-{CHECKPOINTS[-1]:09d}.npz",
        tokens=[],
        rows=list(ROLES),
        reading_file=f"units/a/analysis/circuit-{number}.json",
        formation_file=f"units/a/analysis/formation-{number}.json",
        unit=None,  # type: ignore[arg-type]
    )  # fmt: skip


def induction(formed: float = 150.0, later: float = 450.0) -> list[PathHistory]:
    """Three paths: a pair is linked, the query reads x₁, then x₂."""
    return [
        path(0, "second 1", "first 1", formed, 1, rules=0.07),
        path(1, "query", "second 1", formed, 1, rules=0.8),
        path(2, "query", "second 2", later, 2, rules=0.3),
    ]


def reflected(formed: float = 150.0, later: float = 450.0) -> list[PathHistory]:
    """Another circuit for the same: the query first reads the first token that holds its symbol."""
    return [
        path(0, "query", "first 1", formed, 1, rules=0.08),
        path(1, "query", "second 1", formed, 1, rules=0.8),
        path(2, "second 1", "second 2", later, 2, rules=0.3),
        path(3, "query", "second 1", later, 2, rules=0.4),
    ]


def texts(story: Mapping[str, Any]) -> str:
    """All words of a story, with the numbers filled in and plain spaces."""
    return user_run.texts(story).replace("\u00a0", " ")
