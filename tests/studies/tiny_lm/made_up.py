"""Small language models that were never trained: their exams, circuits and evidence."""

from dataclasses import replace

from hopscope.claims import judge
from hopscope.llm.answers import Tally, share
from hopscope.runs import content_hash
from hopscope.runs.evidence import Evidence
from hopscope.studies.tiny_lm.claims import claims
from hopscope.studies.tiny_lm.config import plan
from hopscope.studies.tiny_lm.evidence import Member
from hopscope.studies.tiny_lm.measures import of_members

UNREAD = {
    "learned": [], "paths": [], "minimal_circuits": [], "merges": [], "reads": [], "exchanges": [],
    "threshold": 0.07, "verdict": "no circuit: above plateau",
}  # fmt: skip


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
    for unit in plan(config):
        scores = [right[unit.label] if depth == config.depths[-1] else 89 for depth in config.depths]
        tallies = [tally(depth, score, 97) for depth, score in zip(config.depths, scores, strict=True)]
        members += [
            Member(
                member=each.member, seed=each.seed, mixture=unit.label, frozen=False,
                file=f"units/{content_hash(record(unit))}/analysis/exam.json", key=f"members.{index}",
                folder="models/m", tallies={one["depth"]: one for one in tallies},
                accuracy={depth: ([0, 5], [0.25, 0.95]) for depth in config.depths},
                loss={depth: ([0, 5], [1.4, 0.1]) for depth in config.depths},
                reading=UNREAD, reading_file="units/circuit.json", checkpoints=(0, 5), paths=(), tokens=[], rows=[],
                formation_file="units/formation.json", unit=None,
            )
            for index, each in enumerate(unit.members)
        ]  # fmt: skip
    return members


def diverged(member):
    """The member as it is told if its training broke off."""
    return replace(member, frozen=True, tallies={})


def evidence_of(members, config):
    """The evidence table of a run with these members."""
    known = [
        {"member": each.member, "seed": each.seed, "configuration": each.mixture,
         "overrides": {"mixture": each.mixture}}
        for each in members
    ]  # fmt: skip
    return Evidence.of(known, of_members(members, config), record(config))


def judged(members, config):
    """S6 on these members."""
    (claim,) = claims(config)
    return judge(claim, evidence_of(members, config))
