"""What notebooks show: nothing comes from outside, and no word of a study or a file becomes a tag."""

import re
import struct
import zlib
from base64 import b64decode

import pytest
import torch

import hopscope
from hopscope import display
from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.record import path_json
from hopscope.models.cache import MOST_MAPS, Cache
from hopscope.models.patterns import Related, Uniform
from hopscope.opened import ReadCircuit
from hopscope.runs import RunFolder

EVIL = "<script>alert(1)</script>"
SAFE = "&lt;script&gt;"


def test_cells_are_text():
    shown = display.table((EVIL,), [(EVIL, "one\ntwo\x1b[31m")])
    assert "<script" not in shown and shown.count(SAFE) == 2
    assert "one\ntwo" in shown and "\x1b" not in shown
    assert "<script" not in display.paragraph(EVIL) + display.folded(EVIL, "") + display.heat_map(
        [b"\0"], EVIL
    )


def test_a_heat_map_is_a_picture_of_its_shares():
    shown = display.heat_map([bytes([0, 255, 3]), bytes([7, 11, 13])], "two rows")
    picture = b64decode(re.search(r"base64,([^\"]+)", shown)[1])
    assert struct.unpack(">II", picture[16:24]) == (3, 2), "width, then height"
    start = picture.index(b"IDAT")
    (length,) = struct.unpack(">I", picture[start - 4 : start])
    pixels = zlib.decompress(picture[start + 4 : start + 4 + length])
    assert list(pixels) == [0, 255, 0, 252, 0, 248, 244, 242], "a filter byte a row; a share of 255 is black"


@pytest.mark.parametrize("lead", [(5,), (2, 5)])
def test_a_cache_shows_the_patterns_of_its_first_sample(lead):
    patterns = torch.zeros(*lead, 3, 7, 7)
    patterns[..., 0] = 1.0
    cache = Cache({"blocks.0.attn.hook_pattern": patterns, "predictions": torch.zeros(*lead, 1, 11)})
    shown = cache._repr_html_()
    assert shown.count("<img") == 3 and "layer 0, head 2" in shown
    assert f"[{', '.join(map(str, lead))}, 1, 11]" in shown and "2 sites" in shown


def test_a_cache_of_many_heads_says_how_many_are_left_out():
    shown = Cache({"blocks.0.attn.hook_pattern": torch.zeros(2, MOST_MAPS + 5, 3, 3)})._repr_html_()
    assert shown.count("<img") == MOST_MAPS and "and 5 more heads" in shown


def read(*paths):
    circuit = Circuit(paths=paths)
    removed = {"rules": 1.0, "clean": 0.5, "recomputed": 0.25}
    measured = {"mean_attention": 0.75, "carries": ["x_1"], "composition": [], "loss_if_removed": removed}
    record = {
        "member": 3,
        "checkpoint": 1100,
        "verdict": "read",
        "threshold": 0.05,
        "loss": {"full": 0.031, "rules": 0.029},
        "paths": [path_json(path) | measured for path in paths],
    }
    return ReadCircuit(circuit, record)


def test_a_circuit_shows_its_graph_its_paths_and_its_proof():
    first = Path(
        layer=0, head=1, roles={"kind": 0}, rule=Related(relation="pair_mate"), query="second", target="first"
    )
    second = Path(
        layer=2, head=0, roles={"kind": 1}, rule=Related(relation="pair_mate"), query=EVIL, target="second"
    )
    shown = read(first, second)._repr_html_()
    assert "member 3, step 1,100: read" in shown and shown.count("<svg") == 1
    assert "0.031" in shown and "every pattern given by its rule" in shown
    assert "<script" not in shown and SAFE in shown


def test_a_circuit_whose_paths_name_nothing_is_a_table():
    path = Path(layer=0, head=0, roles={"kind": 0}, rule=Uniform(), query="query", target="")
    shown = read(path)._repr_html_()
    assert "<svg" not in shown and "uniform" in shown
    assert "<table" not in read()._repr_html_()


def test_a_run_that_is_not_complete_says_so(tmp_path):
    plain = {"unit": "u", "index": 0, "member": 0, "seed": 0, "overrides": {}}
    made = RunFolder.create(tmp_path, "markov", {"a": EVIL}, [plain], preset=EVIL)
    shown = hopscope.open_run(made.path)._repr_html_()
    assert "Run of the study markov" in shown and "1 in 1 unit" in shown and "not complete" in shown
    assert "<script" not in shown and SAFE in shown
    assert "claims.json" in shown, "why there is no ledger"
