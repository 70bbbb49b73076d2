import json

from hopscope.studies import find_study, study_names
from hopscope.studies.permutation.config import PRESETS


def test_listed_as_json(hopscope):
    said = hopscope("studies", "--json")
    assert (said.status, said.err) == (0, "")
    studies = json.loads(said.out)
    assert [study["study"] for study in studies] == study_names()
    for study in studies:
        assert set(study) == {"study", "summary", "presets"}
        assert {entry["preset"]: entry["config"] for entry in study["presets"]} == {
            name: json.loads(config.model_dump_json())
            for name, config in find_study(study["study"]).presets.items()
        }
        assert all(entry["cost"] for entry in study["presets"])


def test_listed_in_words(hopscope):
    said = hopscope("studies")
    assert said.status == 0
    for preset in PRESETS:
        assert f"--preset {preset}" in said.out
    assert "laptop (default)" in said.out
