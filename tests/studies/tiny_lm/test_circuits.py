"""The circuits on the page of small language models, from readings that are made up."""

import numpy as np

from hopscope.report.circuits import CircuitView
from hopscope.studies.followed import DIVERGED, followed_paths, view
from hopscope.studies.numbers import PageNumbers
from hopscope.studies.tiny_lm.circuits import circuit_section, followed
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.studies.tiny_lm.evidence import Member, depth_of

CONFIG = TinyLmConfig(
    chains=3, depths=(1, 2), layers=2, heads=3, width=33, training_steps=8, checkpoint_every=4
)
STEPS = (0, 4, 8)
ROLES = [
    "given 1",
    "equals 1",
    "found 1",
    "given 2",
    "equals 2",
    "found 2",
    "query 2",
    "word 2 “.”",
    "padding 1",
]


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
    "checkpoint": 8, "verdict": "read", "learned": ["D = 1", "D = 2"], "threshold": 0.07, "paths": PATHS,
    "loss": {"full": 0.001, "rules": 0.01, "recomputed": 0.06, "random_circuits": 4.5, "complement": 2.0},
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
        assert (name, step) == ("maps-5", 8)
        return {"steps": np.array(STEPS), "maps": np.full((3, 2, 3, 8, 8), 51, np.uint8)}


def member(**changes):
    tokens = [{"role": role, "chain": -1 if "word" in role else 0, "label": "a"} for role in ROLES[:8]]
    made = {
        "member": 5, "seed": 7, "mixture": "zipf", "frozen": False, "file": "exam.json", "key": "members.0",
        "folder": "models/member-5", "tallies": {}, "accuracy": {}, "reading": READING, "reading_file": "circuit.json",
        "loss": {depth: (list(STEPS), [1.4, 0.7, 0.1]) for depth in (1, 2)}, "checkpoints": STEPS,
        "paths": followed_paths(READING, FOLLOWED, depth_of), "tokens": tokens, "rows": ROLES,
        "formation_file": "formation.json", "unit": Unit(),
    }  # fmt: skip
    return Member(**{**made, **changes})


def test_the_player_shows_what_the_paths_name_and_the_losses_by_depth():
    found = CircuitView.model_validate(view(followed(CONFIG, member())))
    assert found.rows == ["given 1", "found 1", "given 2", "found 2", "word 2 “.”"]
    assert found.partial == {"D = 1": [1.4, 0.7, 0.1], "D = 2": [1.4, 0.7, 0.1]}
    assert [path.hop for path in found.paths] == [1, 2]
    assert [(each.layer, each.head) for each in found.maps] == [(0, 2), (1, 0)]


def test_the_section_tells_verdicts_and_when_each_path_formed():
    numbers = PageNumbers()
    gone = {**READING, "verdict": DIVERGED, "learned": [], "paths": []}
    members = [member(), member(member=6, reading=gone, paths=(), frozen=True)]
    blocks = circuit_section(CONFIG, members, numbers)["blocks"]
    readings, formed = (block for block in blocks if block["kind"] == "table")
    assert [row[:3] for row in readings["rows"]] == [
        ["zipf, seed 7", "D = 1, D = 2", "read"],
        ["zipf, seed 7", "nothing", "diverged"],
    ]
    told = {"{" + name + "}": entry for name, entry in numbers.entries.items()}
    times = [told[row[-1]] for row in formed["rows"]]
    # Half way between the checkpoints around it: 0.1 → 0.6 between 0 and 4, 0.2 → 0.9 between 4 and 8.
    assert [round(time["value"], 3) for time in times] == [3.2, 5.714]
    assert [row[3] for row in formed["rows"]] == ["D = 1", "D = 2"]
    assert {time["file"] for time in times} == {"formation.json"}
    (player,) = (block for block in blocks if block["kind"] == "circuit")
    assert [each["name"] for each in player["circuits"]] == ["zipf, seed 7"]
