"""`hopscope heads`, with models that are built here."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).parents[1] / "language" / "heads" / "planted.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A planted GPT-2 as `save_pretrained` writes it."""
    if importlib.util.find_spec("transformers") is None:
        if os.environ.get("HOPSCOPE_REQUIRE_LLM") == "1":
            pytest.fail("transformers is not installed, and HOPSCOPE_REQUIRE_LLM=1 asks for it")
        pytest.skip("transformers is not installed: `pip install -e .[hf]`")
    spec = importlib.util.spec_from_file_location("hopscope_tests_planted_for_cli", PLANTED)
    planted = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    path = tmp_path_factory.mktemp("planted")
    planted.gpt2().save_pretrained(path)
    planted.tokenizer().save_pretrained(path)
    return path


ASKED = ("--formulation", "equations", "--depth", 1, "--count", 9, "--draws", 2, "--top", 1, 3)


def test_json_and_heat_maps(hopscope, folder, tmp_path):
    said = hopscope("heads", "--model", folder, *ASKED, "--json", "--figures", tmp_path / "maps")
    assert said.status == 0, said.err
    found = json.loads(said.out)
    assert list(found) == [
        "model", "pretrained", "formulation", "depth", "chains", "count", "seed", "chat", "few_shot", "filler",
        "repeats", "complete", "precision", "settings", "layers", "heads", "targets", "rank", "top", "method",
        "ablation", "claims", "words",
    ]  # fmt: skip
    assert (found["model"], found["pretrained"], found["count"]) == (str(folder), False, 9)
    best = {(one["layer"], one["head"]) for one in found["top"][:3]}
    assert best == {(0, 2), (0, 5), (1, 3)}
    assert found["claims"][0]["verdict"] == "inconclusive"
    assert "not said to be pretrained" in found["words"]["S2"]
    drawn = (tmp_path / "maps" / "heads.svg").read_text(encoding="utf-8")
    assert "answer → hop 1" in drawn
    rows = (tmp_path / "maps" / "heads.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 16 * len(found["targets"])
    assert "answer → hop 1,1,3,1.0" in rows


def test_table(hopscope, folder):
    said = hopscope("heads", "--model", folder, *ASKED)
    assert said.status == 0, said.err
    (hop,) = [line for line in said.out.splitlines() if "answer → hop 1" in line]
    assert "1.3  1.000 [" in hop
    assert any("0.2 0.5 1.3" in line or "1.3" in line for line in said.out.splitlines() if "pts" in line)
    assert "S2: inconclusive." in said.out


@pytest.mark.parametrize(
    ("words", "found_words"),
    [
        ((), ["--model"]),
        (("--model", "FOLDER"), ["either a formulation or a passage"]),
        (("--model", "FOLDER", "--formulation", "riddles"), ["formulation", "'riddles'"]),
        (("--model", "FOLDER", "--formulation", "kingdoms", "--depth", "3"), ["expected 5 for kingdoms"]),
        (("--model", "FOLDER", "--formulation", "equations", "--count", "1"), ["count", "found 1"]),
        (
            ("--model", "FOLDER", "--formulation", "lives_with"),
            ["lives_with-d1-n4-s0-000000", "mention", "unknown"],
        ),
        (("--model", "FOLDER", "--formulation", "equations", "--chat"), ["chat template"]),
        (("--model", "FOLDER", "--formulation", "equations", "--device", "tpu"), ["device", "'tpu'"]),
        (("--model", "FOLDER", "--formulation", "best", "--few-shot", 2), ["few_shot", "formulation best"]),
        (("--model", "FOLDER", "--passage", "any.json", "--repeats", 2), ["repeats", "found a passage"]),
        (("--model", "./nowhere", "--formulation", "equations"), ["./nowhere", "config.json"]),
        (("--model", "FOLDER", "--passage", "nothing.json"), ["nothing.json", "expected a file, found none"]),
    ],
)
def test_refused(hopscope, folder, words, found_words):
    said = hopscope("heads", *(folder if word == "FOLDER" else word for word in words))
    assert all(part in said.complaint for part in found_words), said.complaint
