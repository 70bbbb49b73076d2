"""Small language models that were never trained: their exams, circuits, evidence and pages."""

from dataclasses import replace

import numpy as np

from hopscope.circuits.path_history import DIVERGED, path_histories
from hopscope.claims import Ledger, judge
from hopscope.language.questions.answers import Tally, share
from hopscope.runs import RunFolder, content_hash
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.tiny_lm import page
from hopscope.studies.tiny_lm.claims import claims
from hopscope.studies.tiny_lm.config import jobs
from hopscope.studies.tiny_lm.members import Member, of_members

UNREAD = {
    "learned": [], "paths": [], "minimal_circuits": [], "merges": [], "reads": [], "exchanges": [],
    "threshold": 0.07, "verdict": "no circuit: above plateau",
}  # fmt: skip

STEPS = (0, 4, 8)
ROLES = [
    "given 1", "equals 1", "found 1", "given 2", "equals 2", "found 2", "query 2", "word 2 “.”", "padding 1",
]  # fmt: skip


def record(config):
    return config.model_dump(mode="json")


def tally(depth, right, of):
    return Tally(
        model="m", formulation="equations", depth=depth, questions=of, accuracy=share(right, of),
        first_accuracy=share(right, of), acceptance=share(of, of), answered=share(of, of), guess=0.25, attempts=1.0,
        stuck=0, lost_chain=0, lost_steps={}, rejected={},
    ).model_dump(mode="json")  # fmt: skip


def members_of(config, right):
    """Models whose exams are made up, of 97 questions each; `right` of the mixture at the last depth."""
    members = []
    for unit in jobs(config):
        scores = [right[unit.label] if depth == config.depths[-1] else 89 for depth in config.depths]
        tallies = [tally(depth, score, 97) for depth, score in zip(config.depths, scores, strict=True)]
        members += [
            Member(
                member=each.member, seed=each.seed, mixture=unit.label, diverged=False,
                file=f"units/{content_hash(record(unit))}/analysis/exam.json",
                tallies={one["depth"]: one for one in tallies},
                accuracy={depth: ([0, 5], [0.25, 0.95]) for depth in config.depths},
                loss={depth: ([0, 5], [1.4, 0.1]) for depth in config.depths},
                reading=UNREAD, reading_file="units/circuit.json", checkpoints=(0, 5), paths=(), tokens=[], rows=[],
                formation_file="units/formation.json", unit=None,
            )
            for each in unit.members
        ]  # fmt: skip
    return members


def diverged(member):
    """The member as it is told if its training broke off."""
    reading = {**member.reading, "verdict": DIVERGED, "learned": [], "paths": [], "minimal_circuits": []}
    return replace(member, diverged=True, tallies={}, reading=reading, paths=())


# Circuits of models with a loss at steps 0, 4 and 8.


def path(layer, head, query, target, rule, needed):
    return {
        "layer": layer, "head": head, "query_role": query, "rule": rule, "target_role": target, "mean_attention": 0.9,
        "carries": ["value"], "composition": [], "needed_for": needed,
        "loss_if_removed": {"rules": 1.1, "clean": 0.4, "recomputed": 1.3},
    }  # fmt: skip


PATHS = [
    path(0, 2, "found 2", "given 2", "pair_mate", "D = 1"),
    path(1, 0, "word 2 “.”", "found 1", "hop_2", "D = 2"),
]
READING = {
    **UNREAD, "checkpoint": 8, "verdict": "read", "learned": ["D = 1", "D = 2"], "paths": PATHS,
    "minimal_circuits": [1], "worst_recomputed": 0.02,
    "loss": {"full": 0.001, "rules": 0.01, "recomputed": 0.06, "random_circuits": 4.5, "complement": 2.0,
             "random_circuits_range": [4.1, 4.9]},
}  # fmt: skip
FOLLOWED = {
    "paths": [
        {**PATHS[0], "attention": [0.1, 0.6, 0.9]},
        {**PATHS[1], "attention": [0.1, 0.2, 0.9]},
    ]
}


class Unit:
    """A unit whose attention maps are all alike."""

    def read_analysis(self, name, step):
        assert name.startswith("maps-")
        return {"steps": np.array(STEPS), "maps": np.full((3, 2, 3, 8, 8), 51, np.uint8)}


class Collected(Unit):
    """A unit of which the last maps were kept."""

    def read_analysis(self, name, step):
        return {key: values[-1:] for key, values in super().read_analysis(name, step).items()}


def read(member):
    """The member with a circuit that was read."""
    tokens = [{"role": role, "chain": -1 if "word" in role else 0, "label": "a"} for role in ROLES[:8]]
    return replace(
        member, reading=READING, checkpoints=STEPS, paths=path_histories(READING, FOLLOWED),
        loss={depth: (list(STEPS), [1.4, 0.7, 0.1]) for depth in member.loss},
        accuracy={depth: (list(STEPS), [0.25, 0.5, 1.0]) for depth in member.accuracy},
        tokens=tokens, rows=ROLES, unit=Unit(),
    )  # fmt: skip


# What is told of them.


def evidence_of(members, config, *more):
    """The evidence table of a run with these members, and with further rows."""
    known = [
        {"member": each.member, "seed": each.seed, "configuration": each.mixture,
         "overrides": {"mixture": each.mixture}}
        for each in members
    ]  # fmt: skip
    return Evidence.of(known, [*of_members(members, config), *more], record(config))


def training_rows(members):
    """The curves as training records them: those of a member that diverged end without numbers."""
    for each in members:
        curves = {f"{name}_depth_{depth}": curve for name in ("accuracy", "loss")
                  for depth, curve in getattr(each, name).items()}  # fmt: skip
        for metric, (steps, values) in curves.items():
            for step, value in zip(steps, values, strict=True):
                gone = each.diverged and step == steps[-1]
                yield Row(each.member, "training", metric, None if gone else value, step=step)


def judged(members, config):
    """S6 on these members."""
    (claim,) = claims(config)
    return judge(claim, evidence_of(members, config))


def presented(root, members, config, monkeypatch):
    """A run folder with the page and the figures of these members."""
    monkeypatch.setattr(page, "gather", lambda run, config: members)
    run = RunFolder.create(root, "tiny-lm", record(config), [], None)
    found = evidence_of(members, config, *training_rows(members))
    find_study("tiny-lm").present(run, config, found, Ledger([judged(members, config)]))
    return run
