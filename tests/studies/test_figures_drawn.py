"""Figures of whole runs: their data and that all of them can be drawn."""

import csv
import json
import re
from dataclasses import replace

import pytest

from hopscope.report.figures import figure_names as written_figures
from hopscope.report.figures import render_figure
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PRESETS, PermutationStudyConfig
from hopscope.studies.permutation.configurations import SWEEPS
from hopscope.studies.permutation.evidence import gather
from hopscope.studies.permutation.figures import FIGURES, figure_names, write_figures
from hopscope.studies.permutation.figures.attention import SHOWN_SEEDS, attention_rows

from .figure_evidence import made_up_evidence, made_up_run

CURVES = ["loss", "skills", "recall_by_slot", "posterior", "accuracy_by_step", "tilt", "attention"]
TAKEN_APART = ["head_roles", "battery", "ablation", "decoding", "formation", "formation_order"]
SWEPT = ["readings", "sweep_values", "sweep_capacity", "sweep_ratio", "sweep_slots"]
LARGEST_CSV = 400_000
WIDEST = 650.0


def checked_figures(path, config):
    """Every figure that the configuration promises is there, with the columns that it declares."""
    assert written_figures(path / "figures") == sorted(figure_names(config))
    rows = {}
    for name in figure_names(config):
        spec = json.loads((path / "figures" / f"{name}.vl.json").read_text(encoding="utf-8"))
        text = (path / "figures" / f"{name}.csv").read_text(encoding="utf-8")
        assert next(csv.reader([text.splitlines()[0]])) == list(spec["data"]["format"]["parse"])
        assert len(text) < LARGEST_CSV
        rows[name] = len(text.splitlines()) - 1
    return rows


def test_data_of_the_paper_preset(tmp_path):
    config = PRESETS["paper"]
    everything = made_up_evidence(config)
    write_figures(made_up_run(tmp_path, config, everything), config, everything)
    rows = checked_figures(tmp_path, config)
    assert all(rows.values())
    assert rows["recall_by_slot"] == 5 * 10 * 5
    assert rows["head_roles"] == 10 * (1 + 1 + 2 + 2)
    assert rows["attention"] == SHOWN_SEEDS * (1 + 1 + 1 + 2 + 2) * 45


BRIEF = {"epochs_plain": 1, "epochs_repeats": 1}
SMALL = PermutationStudyConfig(seeds=2, all_configurations=True, sweeps=tuple(SWEEPS), sweep_seeds=1, **BRIEF)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        PermutationStudyConfig(
            seeds=1, configurations=("d16/1 repeats",), values=3, positions="none", **BRIEF
        ),
        PermutationStudyConfig(seeds=2, values=8, **BRIEF),
    ],
    ids=["everything", "V = 3 without positions", "V = 8"],
)
def test_every_figure_is_drawn(tmp_path, config):
    everything = made_up_evidence(config)
    write_figures(made_up_run(tmp_path, config, everything), config, everything)
    assert all(checked_figures(tmp_path, config).values())
    for name in figure_names(config):
        svg, png = render_figure(tmp_path / "figures", name)
        assert png.read_bytes().startswith(b"\x89PNG")
        width = re.search(r'<svg[^>]* width="([\d.]+)"', svg.read_text(encoding="utf-8"))
        assert float(width[1]) < (WIDEST if config.values <= 5 else 2 * WIDEST), name


def _diverged(found):
    nothing = {metric: [([], []) for _ in found.members] for metric in found.curves}
    return replace(found, frozen=found.members, curves=nothing)


def test_every_seed_diverged(tmp_path):
    """There is nothing to show, and the page is still built."""
    everything = {name: _diverged(found) for name, found in made_up_evidence(SMALL).items()}
    write_figures(made_up_run(tmp_path, SMALL, everything), SMALL, everything)
    rows = checked_figures(tmp_path, SMALL)
    assert rows["battery"] == rows["formation"] == rows["attention"] == 0
    assert rows["loss"] == 4  # the floors
    for name in figure_names(SMALL):
        render_figure(tmp_path / "figures", name)


def test_figures_of_a_run(whole_run):
    """What a run wrote is what its evidence says."""
    run = RunFolder(whole_run)
    config = PermutationStudyConfig.model_validate(run.config)
    rows = checked_figures(whole_run, config)
    drawn = {path.name for path in (whole_run / "figures").iterdir()}
    assert drawn == {f"{name}{kind}" for name in rows for kind in (".vl.json", ".csv", ".svg", ".png")}
    found = gather(run, config)
    with (whole_run / "figures" / "tilt.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for name, each in found.items():
        shown = [float(row["value"]) for row in table
                 if (row["configuration"], row["arm"], row["kind"]) == (name, "model", "seed")]  # fmt: skip
        assert shown == pytest.approx(each.known("posteriors", "tilt_correlation"), rel=1e-4)


def test_attention_of_a_run(whole_run):
    run = RunFolder(whole_run)
    config = PermutationStudyConfig.model_validate(run.config)
    found = gather(run, config)["d32/2 repeats"]
    rows = attention_rows(run, config, [found])
    assert {row["map"] for row in rows} == {"d32/2 repeats|head 1", "d32/2 repeats|head 2"}
    assert len(rows) == 2 * len(found.members) * 45
    record = run.members[found.members[1]]
    patterns = run.unit(record.unit).read_analysis("patterns", config.training(found.configuration).steps)
    (cell,) = [row for row in rows if row["seed"] == f"seed {found.seeds[1]}" and row["map"].endswith("head 2")
               and (row["query"], row["key"]) == ("x5", "y2")]  # fmt: skip
    for which in ("plain", "repeat_of_3"):
        assert cell[which] == pytest.approx(patterns[which][record.index, 0, 1, 8, 3], abs=5e-4)
    diverged = attention_rows(run, config, [replace(found, frozen=found.members[:1])])
    assert f"seed {found.seeds[0]}" not in {row["seed"] for row in diverged}


def test_the_attention_map_follows_the_menu(whole_run, tmp_path):
    """Vega evaluates the choice of sequences: another one gives another drawing."""
    drawings = set()
    for which in ("plain", "repeat_of_2"):
        spec = json.loads((whole_run / "figures" / "attention.vl.json").read_text(encoding="utf-8"))
        (menu,) = spec["params"]
        assert menu["value"] == "plain" and which in menu["bind"]["options"]
        menu["value"] = which
        (tmp_path / "attention.vl.json").write_text(json.dumps(spec), encoding="utf-8")
        (tmp_path / "attention.csv").write_bytes((whole_run / "figures" / "attention.csv").read_bytes())
        drawings.add(render_figure(tmp_path, "attention")[0].read_text(encoding="utf-8"))
    assert len(drawings) == 2


def test_every_figure_is_listed_once():
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names) == len(CURVES + TAKEN_APART + SWEPT)
