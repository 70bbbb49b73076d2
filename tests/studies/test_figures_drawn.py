"""Figures of whole runs: their data and that all of them can be drawn."""

import csv
import json
import re

import pytest

from hopscope.figures import write_figures
from hopscope.report.figures import figure_names as written_figures
from hopscope.report.figures import render_figure
from hopscope.runs import Row, RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.permutation.config import PRESETS, SWEEPS, PermutationStudyConfig
from hopscope.studies.permutation.figures import figures
from hopscope.studies.permutation.figures_own import SHOWN_SEEDS, attention_rows

from .figure_evidence import made_up_evidence

LARGEST_CSV = 400_000
WIDEST = 720.0


def written(path, config, **changed):
    """The figures of a made-up run, written into a folder; name → rows of data."""
    write_figures(RunFolder(path), figures(config), made_up_evidence(config, path, **changed))
    return checked_figures(path, config)


def checked_figures(path, config):
    """Every figure that the configuration promises is there, with the columns that it declares."""
    names = [figure.name for figure in figures(config)]
    assert written_figures(path / "figures") == sorted(names)
    assert len(set(names)) == len(names)
    rows = {}
    for name in names:
        spec = json.loads((path / "figures" / f"{name}.vl.json").read_text(encoding="utf-8"))
        text = (path / "figures" / f"{name}.csv").read_text(encoding="utf-8")
        assert next(csv.reader([text.splitlines()[0]])) == list(spec["data"]["format"]["parse"])
        assert len(text) < LARGEST_CSV
        # Vega reads an empty name as none, and draws nothing of its row.
        assert all(row.get("name", name) for row in csv.DictReader(text.splitlines())), name
        rows[name] = len(text.splitlines()) - 1
    return rows


@pytest.mark.extras
def test_data_of_the_paper_preset(tmp_path):
    rows = written(tmp_path, PRESETS["paper"])
    assert all(rows.values())
    assert rows["recall_by_slot"] == 5 * 5 * (10 + 1)  # each seed, and their mean
    assert rows["head_roles"] == 10 * (1 + 1 + 2 + 2)
    assert rows["attention"] == SHOWN_SEEDS * (1 + 1 + 1 + 2 + 2) * 45


BRIEF = {"epochs_plain": 1, "epochs_repeats": 1}
SMALL = PermutationStudyConfig(seeds=2, all_configurations=True, sweeps=tuple(SWEEPS), sweep_seeds=1, **BRIEF)


@pytest.mark.extras
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
    rows = written(tmp_path, config)
    assert all(rows.values())
    for name in rows:
        svg, png = render_figure(tmp_path / "figures", name)
        assert png.read_bytes().startswith(b"\x89PNG")
        width = re.search(r'<svg[^>]* width="([\d.]+)"', svg.read_text(encoding="utf-8"))
        assert float(width[1]) < (WIDEST if config.values <= 5 else 2 * WIDEST), name


@pytest.mark.extras
def test_every_seed_diverged(tmp_path):
    """There is nothing to show, and the page is still built."""
    rows = written(tmp_path, SMALL, diverged=True)
    marks = {"accuracy_by_step": 10, "sweep_values": 12}
    assert {name: count for name, count in rows.items() if count} == marks
    for name in rows:
        render_figure(tmp_path / "figures", name)


@pytest.mark.extras
def test_figures_of_a_run(whole_run):
    """What a run wrote is what its evidence says."""
    run = RunFolder(whole_run)
    config = PermutationStudyConfig.model_validate(run.config)
    rows = checked_figures(whole_run, config)
    drawn = {path.name for path in (whole_run / "figures").iterdir()}
    assert drawn == {f"{name}{kind}" for name in rows for kind in (".vl.json", ".csv", ".svg", ".png")}
    evidence = Evidence.read(run)
    with (whole_run / "figures" / "tilt.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for name in set(evidence.configurations.values()):
        shown = [float(row["value"]) for row in table
                 if (row["y"], row["name"], row["kind"]) == (name, "model", "seed")]  # fmt: skip
        assert shown == pytest.approx(list(evidence.last("tilt_correlation", configuration=name)), rel=1e-4)


@pytest.mark.extras
def test_attention_of_a_run(whole_run):
    run = RunFolder(whole_run)
    config = PermutationStudyConfig.model_validate(run.config)
    found = Evidence.read(run).where(configuration="d32/2 repeats")
    rows = attention_rows(config, found)
    assert {row["map"] for row in rows} == {"d32/2 repeats|head 0.0", "d32/2 repeats|head 0.1"}
    assert len(rows) == 2 * len(found.members) * 45
    for member, seed in found.seeds.items():
        record = run.members[member]
        (step,) = set(found.rows("attention_pattern", member=member)["step"])
        patterns = run.unit(record.unit).read_analysis("patterns", step)
        (cell,) = [row for row in rows if row["seed"] == f"seed {seed}" and row["map"].endswith("head 0.1")
                   and (row["query"], row["key"]) == ("x5", "y2")]  # fmt: skip
        for which in ("plain", "repeat_of_3"):
            assert cell[which] == pytest.approx(patterns[which][record.index, 0, 1, 8, 3], abs=5e-4)


def test_the_attention_of_a_diverged_seed_is_not_shown(tmp_path):
    config = PermutationStudyConfig(seeds=3, configurations=("d32/2 repeats",), **BRIEF)
    evidence = made_up_evidence(config, tmp_path)
    rows = [
        {**row, "value": None} if row["member"] == 1 and row["measure"] == "training" else row
        for row in evidence.to_arrow().to_pylist()
    ]
    keys = (
        "member",
        "measure",
        "metric",
        "value",
        "split",
        "step",
        "samples",
        "layer",
        "head",
        "part",
        "file",
    )
    members = [{"member": n, "seed": n + 3, "configuration": "d32/2 repeats"} for n in range(3)]
    broken = Evidence.of(
        members, [Row(*(row[key] for key in keys)) for row in rows], evidence.config, tmp_path
    )
    assert {row["seed"] for row in attention_rows(config, broken)} == {"seed 3", "seed 5"}


@pytest.mark.extras
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
