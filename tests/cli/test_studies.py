import json
import sys

from hopscope.executors import probing
from hopscope.executors.costs import Costs, costs_file
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
        assert all(entry["cost"] and entry["probed"] is None for entry in study["presets"])


def test_listed_in_words(hopscope):
    said = hopscope("studies")
    assert said.status == 0
    for preset in PRESETS:
        assert f"--preset {preset}" in said.out
    assert "laptop (default)" in said.out
    lines = said.out.splitlines()
    # A study that trains nothing cannot be timed.
    trains = [line for line in lines if "--preset" in line and "questions to each model" not in line]
    assert all(line.endswith("(not probed here)") for line in trains)
    assert not any("questions to each model" in line and "probed" in line for line in lines)


def test_one_study_alone(hopscope):
    said = hopscope("studies", "--study", "markov")
    assert said.out.startswith("markov: ")
    assert "permutation" not in said.out
    assert "'no-such'" in hopscope("studies", "--study", "no-such").complaint


def test_figures_are_shown_once_there_are_some(hopscope):
    costs = Costs()
    for name, preset, seconds, reason in (
        ("capacity", "smoke", 480.0, ""), ("markov", "smoke", 480.0, ""), ("depth", "paper", None, "many days"),
    ):  # fmt: skip
        study = find_study(name)
        costs.keep(study, preset, study.presets[preset], seconds, reason)
    out = hopscope("studies").out
    assert out.count("about 8 min on this machine") == 1  # nothing is measured after training
    typed = find_study("markov").study.costs["smoke"]
    assert (
        f"; in all, as written: {typed}" in out and out.count("about 8 min of training on this machine") == 1
    )
    assert "made for a GPU (not probed here: many days)" in out
    (found,) = json.loads(hopscope("studies", "--study", "capacity", "--json").out)
    probed = {entry["preset"]: entry["probed"] for entry in found["presets"]}
    assert probed["smoke"]["seconds"] == 480.0 and probed["smoke"]["training_only"] is False
    assert probed["laptop"] is None


def test_a_damaged_file_of_figures_costs_one_line(hopscope):
    costs_file().parent.mkdir(parents=True)
    costs_file().write_text("{", encoding="utf-8")
    said = hopscope("studies", "--study", "markov")
    assert said.status == 0 and "not probed here" in said.out
    (line,) = said.err.splitlines()
    assert str(costs_file()) in line and "--probe" in line


def test_probing_keeps_what_it_tells(hopscope, monkeypatch):
    monkeypatch.setattr(
        probing,
        "trained",
        lambda program, config, units: [[(1, 2.0), (2, 2.5), (4, 3.5), (8, 5.5)] for _ in units],
    )
    said = hopscope("studies", "--probe", "--study", "capacity")
    assert said.status == 0
    assert said.err.splitlines() == [
        f"probing capacity --preset {preset}" for preset in find_study("capacity").presets
    ]
    assert "not probed here" not in said.out and "on this machine" in said.out
    assert hopscope("studies", "--study", "capacity").out == said.out
    # What is too long for a CPU is said to be so, and nothing is trained for it.
    monkeypatch.setattr(probing, "MOST_SECONDS", 0.0)
    assert "days of arithmetic on a CPU" in hopscope("studies", "--probe", "--study", "capacity").out


def test_listing_studies_loads_no_torch(hopscope, tmp_path):
    import subprocess

    code = (
        "import sys; from hopscope.cli.main import main; main(['studies']); sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
    )


def test_a_run_begins_with_its_figure(hopscope, tmp_path, monkeypatch):
    from hopscope.cli import run as command

    study = find_study("markov")
    config = study.presets["smoke"]
    options, _ = command.read_options(study, ["--preset", "smoke", "--out", str(tmp_path), "--device", "cpu"])
    assert command._expected(study, options, config) == ""
    Costs().keep(study, "smoke", config, 480.0)
    assert command._expected(study, options, config).startswith(
        "expected: about 8 min of training on this machine"
    )
    options.engine = "general"
    assert command._expected(study, options, config) == ""
    options.engine, options.threads = "auto", 97
    assert command._expected(study, options, config) == ""
    options.threads = None
    from hopscope.executors.local import prepare

    prepare(study, config, out=tmp_path)
    assert command._expected(study, options, config) == ""  # it has begun


def test_listing_studies_plans_none(hopscope, monkeypatch):
    """A plan may take long: one study counts whole texts for its own."""
    monkeypatch.setattr("hopscope.studies.natural.study.two_hop_shares", None)
    assert f"natural: {find_study('natural').study.question}" in hopscope("studies").out
