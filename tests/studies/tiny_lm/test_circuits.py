"""The circuits on the page of small language models, from readings that are made up."""

import math
from dataclasses import replace

import pytest
from tests.studies.stories import blocks, table

from hopscope.circuits.path_history import view
from hopscope.report.circuits import CircuitView
from hopscope.studies.tiny_lm.config import TinyLmConfig

from .made_up import STEPS, Collected, diverged, members_of, presented, read

CONFIG = TinyLmConfig(
    seeds=2, mixtures=("zipf",), chains=3, depths=(1, 2), layers=2, heads=3, width=33, training_steps=8,
    checkpoint_every=4,
)  # fmt: skip
MEMBERS = members_of(CONFIG, {"zipf": 97})


def test_the_player_shows_what_the_paths_name_and_the_losses_by_depth():
    found = CircuitView.model_validate(view(read(MEMBERS[0]), math.log(CONFIG.chains)))
    assert found.rows == ["given 1", "found 1", "given 2", "found 2", "word 2 “.”"]
    assert found.partial == {"D = 1": [1.4, 0.7, 0.1], "D = 2": [1.4, 0.7, 0.1]}
    assert found.checkpoints == list(STEPS)
    assert [path.hop for path in found.paths] == [1, 2]
    assert [(each.layer, each.head) for each in found.maps] == [(0, 2), (1, 0)]


def test_maps_of_the_last_checkpoint_alone_leave_the_slider_its_steps():
    """So a campaign keeps them: the curves stay, and the player has no maps."""
    member = read(MEMBERS[0])
    found = CircuitView.model_validate(view(replace(member, unit=Collected()), math.log(CONFIG.chains)))
    whole = CircuitView.model_validate(view(member, math.log(CONFIG.chains)))
    assert found.maps is None and whole.maps is not None
    assert found.model_copy(update={"maps": whole.maps}) == whole


def test_the_page_tells_verdicts_and_when_each_path_formed(tmp_path, monkeypatch):
    run = presented(tmp_path, [read(MEMBERS[0]), diverged(MEMBERS[1])], CONFIG, monkeypatch)
    story = run.read_json("story.json")
    readings, formed = table(story, "Which heads", 0), table(story, "Which heads", 1)
    assert [
        [row["model"], row["learned"], row["verdict"], row["paths"], row["rules"]] for row in readings
    ] == [
        ["zipf, seed 0", "D = 1, D = 2", "read", "2", "0.010"],
        ["zipf, seed 1", "nothing", "diverged", "–", "–"],
    ]
    assert [[row["head"], row["reads"], row["needed first for"], row["formed at step"]] for row in formed] == [
        ["0.2", "found 2 → given 2", "D = 1", "3"], ["1.0", "word 2 “.” → found 1", "D = 2", "6"],
    ]  # fmt: skip
    # Half way between the checkpoints around it: 0.1 → 0.6 between 0 and 4, 0.2 → 0.9 between 4 and 8.
    times = [number["value"] for number in story["numbers"].values() if "formed_at" in number["key"]]
    assert times == pytest.approx([3.2, 40 / 7])
    (player,) = blocks(story, "circuit")
    assert [each["name"] for each in player["circuits"]] == ["zipf, seed 0"]
