"""Which models the page's explorer holds, and that their weights are those of the checkpoints."""

import base64
import json
import re

import numpy as np
import pytest
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.report import explorer
from hopscope.report.explorer import ExplorerBlock, explorer_payload
from hopscope.report.page import build_report

STEPS = (0, 700, 5100)
FAR = {"model": 3, "example": 0, "row": 8, "layer": 0, "head": 0}


@pytest.fixture
def block(synthetic):
    return ExplorerBlock.model_validate(synthetic.explorer())


def held(payload):
    return [
        (each["member"], [at["step"] for at in each["checkpoints"]]) for each in payload["script"]["models"]
    ]


def test_the_first_model_its_twin_and_other_configurations_are_there(run_path, block):
    payload = explorer_payload(run_path, block)
    assert held(payload) == [(4, [*STEPS]), (3, [*STEPS]), (5, [*STEPS])]
    assert payload["script"]["start"] == block.start.model_dump()
    assert payload["held"].startswith("Here are 3 of 3 models, with their checkpoints: 3 of width 3, seed 4")


def test_bytes_bound_what_is_there_and_the_page_says_so(run_path, block, monkeypatch):
    size = 8 / 3 * block.shapes[0].size
    monkeypatch.setattr(explorer, "MOST_CHARACTERS", 4.5 * size)
    payload = explorer_payload(run_path, block)
    assert held(payload) == [(4, [0, 5100]), (3, [5100]), (5, [5100])]
    assert "2 of width 3, seed 4; of the others the last" in payload["held"]
    monkeypatch.setattr(explorer, "MOST_CHARACTERS", 1.5 * size)
    payload = explorer_payload(run_path, block)
    assert held(payload) == [(4, [5100])]
    assert payload["other"] == 3
    monkeypatch.setattr(explorer, "MOST_CHARACTERS", 0.5 * size)
    assert explorer_payload(run_path, block) is None


def test_members_that_are_asked_for_come_first(run_path, block, monkeypatch):
    monkeypatch.setattr(explorer, "MOST_CHARACTERS", 4.5 * 8 / 3 * block.shapes[0].size)
    payload = explorer_payload(run_path, block, [5])
    assert held(payload)[0] == (5, [0, 700, 5100])
    assert payload["script"]["start"]["row"] == 8


def test_a_member_without_weights_is_refused(run_path, block):
    with pytest.raises(UserError, match=r"expected members with weights to explore, 3, 4, 5, found 6"):
        explorer_payload(run_path, block, [3, 6])


def test_weights_are_those_of_the_checkpoint_to_half_precision(run_path, block, synthetic):
    script = explorer_payload(run_path, block)["script"]
    for model, size in zip(script["models"], (3.0, 1.0, 2.0), strict=True):
        for checkpoint in model["checkpoints"]:
            assert checkpoint["format"] == "float16"
            found = np.frombuffer(base64.b64decode(checkpoint["weights"]), "<f2")
            known = synthetic.weights(size, checkpoint["step"])
            wanted = np.concatenate([known[name].ravel() for name, _ in block.shapes[0].layout])
            assert np.array_equal(found, wanted.astype("<f2"))


def test_weights_that_half_precision_cannot_hold_are_single(block, synthetic):
    arrays = {f"weights/{name}": found[None] for name, found in synthetic.weights(3.0, 700).items()}
    first = f"weights/{block.shapes[0].layout[0][0]}"
    arrays[first] = arrays[first].astype("float32")
    arrays[first].flat[0] = 70_000.0
    found = explorer.packed(arrays, block.shapes[0], 0)
    assert found["format"] == "float32"
    assert np.frombuffer(base64.b64decode(found["weights"]), "<f4")[0] == 70_000.0


def test_a_run_without_checkpoints_says_so_in_one_line(run_path):
    for path in run_path.glob("units/*/checkpoints/*"):
        path.unlink()
    build_report([run_path], run_path / "report.html")
    page = (run_path / "report.html").read_text(encoding="utf-8")
    assert "This run folder has no weights" in page
    assert 'class="explorer-data"' not in page
    assert "Try the model" not in page


def test_models_that_are_too_large_for_a_page_are_not_offered(run_path, block, monkeypatch):
    build_report([run_path], run_path / "report.html")
    assert "Try the model" in (run_path / "report.html").read_text(encoding="utf-8")
    size = block.shapes[0].size
    monkeypatch.setattr(explorer, "MOST_CHARACTERS", int(size * explorer._CHARACTERS) - 1)
    build_report([run_path], run_path / "report.html")
    page = (run_path / "report.html").read_text(encoding="utf-8")
    assert f"A model of this run has {size:,} weights, and a page has room for {size - 1:,}" in page
    assert "Try the model" not in page


def test_a_block_of_before_is_the_same_line(run_path):
    story = json.loads((run_path / "story.json").read_text(encoding="utf-8"))
    story["sections"][0]["blocks"][3] = {
        "kind": "explorer", "title": "Any sequence", "caption": "", "held_out": [],
        "models": [{"name": "of before"}], "sequences": [{"name": "plain", "tokens": [2, 3]}],
    }  # fmt: skip
    (run_path / "story.json").write_text(json.dumps(story), encoding="utf-8")
    build_report([run_path], run_path / "report.html")
    page = (run_path / "report.html").read_text(encoding="utf-8")
    assert "This run folder has no weights" in page


def test_what_the_page_is_given_travels_in_it(run_path, block):
    build_report([run_path], run_path / "report.html")
    page = (run_path / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'class="explorer-data">(.*?)</script>', page, flags=re.DOTALL)
    assert json.loads(data) == explorer_payload(run_path, block)["script"]


@pytest.mark.parametrize(
    "change",
    [{"models": []}, {"shapes": []}, {"tasks": []}, {"start": None}, {"start": FAR}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_blocks_that_contradict_themselves_are_refused(synthetic, change):
    with pytest.raises(ValidationError):
        ExplorerBlock.model_validate({**synthetic.explorer(), **change})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("models", 0, "index"), 7),
        (("models", 0, "index"), 10**30),
        (("shapes", 0, "layout", 0, 0), "no such weight"),
        (("shapes", 0, "layout", 0, 1), [7]),
    ],
)
def test_a_story_of_other_weights_is_refused(run_path, synthetic, place, value):
    """A member of a number that the checkpoint lacks was an error of the library for arrays."""
    told = json.loads(json.dumps(synthetic.explorer()))
    *way, last = place
    node = told
    for key in way:
        node = node[key]
    node[last] = value
    with pytest.raises(UserError, match=r"expected the weights .* of a unit, found a checkpoint that has"):
        explorer_payload(run_path, ExplorerBlock.model_validate(told), [told["models"][0]["member"]])


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("models", "unit", "a" * 300),
        ("shapes", "layout", []),
        ("shapes", "layout", [["w", [10**400]]]),
        ("shapes", "layout", [["w", [2**40] * 30]]),
    ],
    ids=["unit", "nothing", "large", "many"],
)
def test_what_no_run_can_have_is_refused(synthetic, part, field, value):
    told = json.loads(json.dumps(synthetic.explorer()))
    told[part][0][field] = value
    with pytest.raises(ValidationError):
        ExplorerBlock.model_validate(told)
