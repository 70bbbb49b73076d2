"""Figures: which there are, and the rows of their data from made-up evidence."""

import subprocess
import sys

import pytest

from hopscope.figures.marks import in_lines
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PRESETS, Configuration, PermutationStudyConfig
from hopscope.studies.permutation.figures import figures, swept, training_words
from hopscope.studies.permutation.probes.change_points import transition

from .figure_evidence import cell, table

CONFIG = PermutationStudyConfig()


def figure_of(config, name):
    (figure,) = (figure for figure in figures(config) if figure.name == name)
    return figure


def rows_of(config, name, *cells):
    """The data of one figure of a run that measured no more than these."""
    return figure_of(config, name).draw(table(cells, config))[1]


def seeds_of(rows, **wanted):
    """Seed → value of the rows of seeds that have these columns."""
    chosen = [row for row in rows if wanted.items() <= row.items() and row["kind"] == "seed"]
    return {row["seed"]: row["value"] for row in chosen}


def means_of(rows, **wanted):
    return [row for row in rows if wanted.items() <= row.items() and row["kind"] == "mean"]


# Which figures there are.


def names(config):
    return {figure.name for figure in find_study("permutation").figures(config)}


def test_a_run_has_the_figures_for_which_it_has_data():
    alone = names(PermutationStudyConfig(configurations=("d16/1 plain",)))
    whole = names(PRESETS["laptop"])
    assert whole == names(PRESETS["smoke"]) and alone < whole
    assert names(PermutationStudyConfig(measurements="basic")) == alone
    two_heads = names(PermutationStudyConfig(configurations=("d32/2 plain",)))
    assert two_heads - alone == {"head_roles"} <= whole
    assert names(PermutationStudyConfig(configurations=("d16/1 repeats",), values=3)) == whole
    assert names(PermutationStudyConfig(configurations=("d32/2 repeats V=4",))) == {"tilt"}


def test_every_sweep_has_its_figure():
    whole = names(PRESETS["laptop"])
    swept_alone = {
        sweep: names(PermutationStudyConfig(sweeps=(sweep,))) - whole for sweep in ("ratio", "positions")
    }
    assert [len(added) for added in swept_alone.values()] == [1, 1]
    assert set.union(*swept_alone.values()) < names(PRESETS["paper"]) - whole
    (values,) = names(PermutationStudyConfig(configurations=("d16/1 plain", "d16/1 plain V=4"))) - whole
    assert values in names(PRESETS["paper"])


def test_names_load_no_torch():
    program = (
        "import sys; from hopscope.studies import find_study; study = find_study('permutation'); "
        "assert study.figures(study.presets['laptop']); assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_sweep_is_of_one_model():
    config = PermutationStudyConfig(configurations=("d16/1 repeats", "d16/1 repeats V=4"), sweeps=("values",))
    assert [each.name for each in swept(config, "repeats", "values")] == [
        f"d32/2 repeats V={values}" for values in (3, 4, 6, 7, 8)
    ]


# Curves.


def test_loss_rows():
    curves = {"train/loss": [([10.0, 20.0], [1.5, 1.25]), ([], [])]}
    rows = rows_of(CONFIG, "loss", cell("d16/1 plain", seeds=2, curves=curves))
    assert [(row["name"], row["seed"], row["at"], row["value"]) for row in rows] == [
        ("d16/1 plain", 3, 10, 1.5),
        ("d16/1 plain", 3, 20, 1.25),
    ]
    marks = figure_of(CONFIG, "loss").series.marks
    assert marks[0].label == "elimination floor 0.9575" and marks[0].value == pytest.approx(0.9575, abs=1e-4)
    assert len(marks) == 4  # with repeats in the grid there are two more
    plain = PermutationStudyConfig(configurations=("d16/1 plain",))
    assert len(figure_of(plain, "loss").series.marks) == 2


def test_skill_rows():
    times = [7.0, 14.0]
    curves = {"held_out/elimination": [(times, [0.5, 1.0])], "held_out/recall": [(times, [0.25, 0.0])]}
    rows = rows_of(CONFIG, "skills", cell("d16/1 plain", curves=curves))
    assert [(row["panel"], row["name"], row["seed"], row["at"], row["value"]) for row in rows] == [
        ("d16/1 plain", "elimination", 3, 7, 0.5),
        ("d16/1 plain", "elimination", 3, 14, 1.0),
        ("d16/1 plain", "recall", 3, 7, 0.25),
        ("d16/1 plain", "recall", 3, 14, 0.0),
    ]


def test_recall_by_slot():
    recalls = [[0.5, None], [0.75, None], [None, 1.0]]
    found = cell("d16/1 plain", seeds=3, frozen=[21], probes={"recall_by_slot": recalls})
    rows = rows_of(CONFIG, "recall_by_slot", found)
    assert {slot: seeds_of(rows, x=slot) for slot in ("x1", "x2")} == {"x1": {3: 0.5}, "x2": {5: 1.0}}


# Ideal observers.


def test_posterior_rows():
    posteriors = {
        "kl_uniform_train": [[0.5, 0.0], [0.25, 0.125]],
        "kl_uniform_held_out": [[1.0, 2.0], [3.0, 4.0]],
        "kl_training_train": None,  # too many training mappings
        "kl_training_held_out": [[0.75, None], [0.5, None]],
    }
    rows = rows_of(CONFIG, "posterior", cell("d16/1 plain", seeds=2, posteriors=posteriors))
    here, uniform, training = "d16/1 plain, ", "all mappings equally likely", "only training mappings"
    assert seeds_of(rows, panel=here + "training mappings", name=uniform, x="1") == {3: 0.5, 4: 0.25}
    assert seeds_of(rows, panel=here + "training mappings", name=uniform, x="2") == {3: 1e-7, 4: 0.125}
    assert seeds_of(rows, panel=here + "held-out mappings", name=uniform, x="2") == {3: 2.0, 4: 4.0}
    assert seeds_of(rows, panel=here + "held-out mappings", name=training, x="1") == {3: 0.75, 4: 0.5}
    assert {row["x"] for row in rows if row["name"] == training} == {"1"}


def accuracies(values):
    return {f"accuracy_{mappings}_by_step": [values] for mappings in ("train", "held_out")}


def test_accuracy_less_chance_with_the_published_numbers():
    found = cell("d16/1 plain", posteriors=accuracies([0.25, 0.25, 0.25, 0.25, 1.0]))
    rows = rows_of(CONFIG, "accuracy_by_step", found)
    for mappings in ("training mappings", "held-out mappings"):
        shown = [seeds_of(rows, name=mappings, x=f"{step}")[3] for step in (1, 2, 3, 4, 5)]
        assert shown == pytest.approx([0.05, 0.0, -1 / 12, -0.25, 0.0], abs=1e-5)
    crosses = {
        row["x"]: row["value"] for row in rows if row["kind"] == "mark" and row["panel"] == "d16/1 plain"
    }
    published = {"1": -0.1044, "2": -0.086, "3": -0.08773, "4": -0.0774, "5": 0.0}
    assert crosses == pytest.approx(published, abs=1e-5)
    assert {row["name"] for row in rows if row["kind"] == "mark"} == {"published (one seed)"}


@pytest.mark.parametrize(
    "config",
    [
        PermutationStudyConfig(configurations=("d32/2 plain",)),
        PermutationStudyConfig(configurations=("d16/1 plain",), values=4),
    ],
)
def test_the_source_printed_no_accuracies_of_others(config):
    (name,) = config.configurations
    rows = rows_of(config, "accuracy_by_step", cell(name, posteriors=accuracies([0.5] * config.values)))
    assert {row["kind"] for row in rows} == {"seed", "mean"}
    assert {row["x"] for row in rows} == {f"{step}" for step in range(1, config.values + 1)}


def test_tilt_rows():
    tilts = {"tilt_correlation": [9.0, 0.5, 0.25], "tilt_control": [9.0, -0.125, None]}
    rows = rows_of(CONFIG, "tilt", cell("d16/1 plain", seeds=3, frozen=[20], posteriors=tilts))
    assert seeds_of(rows, name="model", arm="measured") == {4: 0.5, 5: 0.25}
    assert seeds_of(rows, name="tilts of other sequences", arm="control (hollow)") == {4: -0.125}


# Causal tests, heads, probes.

STAYS, BECOMES = "stays y_j", "becomes y_k"


def battery(**changed):
    swap = {"to_other": [0.75], "stays": [0.125], "control_stays": [0.5]}
    skills = {"recall": [0.25], "elimination": [1.0]}
    return {
        "clean": {"recall": [0.875], "elimination": [1.0]},
        "position_code_swap": swap, "y_swap": swap, "attention_swap": swap,
        "head_interchange": {"to_other": [1.0], "stays": [0.0]},
        "mlp_interchange": {"to_other": [0.625], "stays": [0.375]},
        "mlp_ablation": {"mean": skills, "resample": skills, "zero": skills},
        "equal_y_weights": {**skills, "control_recall": [0.75], "control_elimination": [0.9375]},
        **changed,
    }  # fmt: skip


def test_battery_rows():
    rows = rows_of(CONFIG, "battery", cell("d32/2 repeats", battery=battery()))
    assert seeds_of(rows, y="nothing changed") == {3: 0.875}
    codes = in_lines("position codes of x_j and x_k exchanged (values)")
    assert seeds_of(rows, y=codes, name=BECOMES) == {3: 0.75}
    assert seeds_of(rows, y=codes, name=STAYS, arm="measured") == {3: 0.125}
    assert seeds_of(rows, y=codes, arm="control (hollow)") == {3: 0.5}
    donor = in_lines("FFN output from the same pairs with x_k repeated")
    assert seeds_of(rows, y=donor, name=BECOMES) == {3: 0.625}
    assert {row["arm"] for row in rows if row["y"] == donor} == {"measured"}


def test_what_was_not_measured_has_no_row_in_the_battery():
    swap = {"to_other": [0.75], "stays": [0.125], "control_stays": None}  # V = 3
    changed = battery(position_code_swap=None, y_swap=swap, attention_swap=swap, mlp_interchange=None)
    rows = rows_of(CONFIG, "battery", cell("d32/2 repeats", battery=changed))
    assert len({row["y"] for row in rows}) == 4
    assert not any("position" in row["y"] or "FFN" in row["y"] for row in rows)
    assert {row["arm"] for row in rows} == {"measured"}


def test_ablation_rows():
    rows = rows_of(CONFIG, "ablation", cell("d32/2 repeats", battery=battery()))
    assert seeds_of(rows, y="nothing changed", name="recall") == {3: 0.875}
    assert seeds_of(rows, y="FFN output: its mean", name="recall") == {3: 0.25}
    control = in_lines("control: attention to other x made equal")
    assert seeds_of(rows, y=control, name="elimination") == {3: 0.9375}
    equal = {"recall": [0.5], "elimination": [0.5], "control_recall": None, "control_elimination": None}
    changed = battery(mlp_ablation=None, equal_y_weights=equal)
    without = rows_of(CONFIG, "ablation", cell("d32/2 repeats", battery=changed))
    assert {row["y"] for row in without} == {"nothing changed", "attention to all y made equal"}


def test_head_rows():
    lost = {"recall_lost": [[0.5, -0.125], [9.0, 9.0]], "elimination_lost": [[0.0, 0.75], [9.0, 9.0]]}
    two = cell("d32/2 repeats", seeds=2, frozen=[21], roles=lost)
    one = cell("d32/1 repeats", roles={"recall_lost": [[0.25]], "elimination_lost": [[1.0]]})
    config = PermutationStudyConfig(configurations=("d32/2 repeats", "d32/1 repeats"))
    assert [tuple(row.values()) for row in rows_of(config, "head_roles", two, one)] == [
        ("d32/2 repeats", 3, "head 0.0", 0.5, 0.0),
        ("d32/2 repeats", 3, "head 0.1", -0.125, 0.75),
        ("d32/1 repeats", 3, "head 0.0", 0.25, 1.0),
    ]


def test_decoding_rows():
    def pair(linear, mlp):
        return {"linear": {"held_out": [linear]}, "mlp": {"held_out": [mlp]}}

    places = {"before": pair(0.25, 0.75), "after": pair(0.875, 1.0), "earlier_row": pair(0.125, 0.5)}
    decoding = {
        "answer": {"repeats": places}, "untrained": {"repeats": {**places, "before": pair(0.375, 0.625)}},
        "shuffled": pair(0.1875, 0.3125), "pointer": pair(0.5, 0.9375),
        "history": [pair(0.1, 0.2), pair(0.3, 0.4)],
        "floors": {"uniform": 0.2, "used": 0.25, "earlier_row": {"repeats": 0.26},
                   "majority": {"pointer": 0.21, "history": [0.22, 0.23]}},
    }  # fmt: skip
    rows = rows_of(CONFIG, "decoding", cell("d32/2 repeats", decoding=decoding))
    before = in_lines("answer of a repeat, before the FFN")
    assert seeds_of(rows, y=before, name="linear probe", arm="measured") == {3: 0.25}
    assert seeds_of(rows, y=before, name="MLP probe", arm="measured") == {3: 0.75}
    assert seeds_of(rows, y=before, name="MLP probe", arm="control (hollow)") == {3: 0.625}
    assert seeds_of(rows, y="history: y of slot 2", name="MLP probe") == {3: 0.4}
    floors = {row["y"].replace("|", " "): row["value"] for row in rows if row["kind"] == "mark"}
    assert floors == {
        "answer of a repeat, before the FFN": 0.25,
        "answer of a repeat, after the FFN": 0.25,
        "answer of a repeat, one row too early (control)": 0.26,
        "answer of a repeat, labels shuffled (control)": 0.2,
        "pointer: which slot is repeated": 0.21,
        "history: y of slot 1": 0.22,
        "history: y of slot 2": 0.23,
    }


# Formation.


def formation(**changed):
    five = [0.0, 0.25, 0.5, 0.5, 0.5]
    curve = [five, five, five]
    members = len(changed.get("history", curve))
    return {
        "checkpoints": {"step": [0, 1, 2, 3, 4], "samples": [0, 10, 20, 30, 40]},
        "match": [[[0.0, place / 4] for place in range(5)]] * 3,
        "best_head": [[0, 0, 0, 1, 1]] * 3,
        "history": [[0.4, 0.1, 0.1, 0.2, 0.3], five, five],
        "recall": curve, "elimination": curve, "order": [None] * members,
        **changed,
    }  # fmt: skip


def test_formation_rows():
    """The head is the best one at the end; history is relative to its last three checkpoints."""
    rows = rows_of(CONFIG, "formation", cell("d32/2 repeats", seeds=3, frozen=[21], formation=formation()))
    assert {row["panel"] for row in rows} == {"seed 3", "seed 5"}

    def curve(word, seed="seed 3"):
        chosen = [row for row in rows if row["name"].startswith(word) and row["panel"] == seed]
        return {row["at"]: row["value"] for row in chosen}

    assert curve("match") == {0: 0.0, 10: 0.25, 20: 0.5, 30: 0.75, 40: 1.0}
    assert curve("history") == pytest.approx({0: 2.0, 10: 0.5, 20: 0.5, 30: 1.0, 40: 1.5})
    assert curve("history", "seed 5") == {0: 0.0, 10: 0.5, 20: 1.0, 30: 1.0, 40: 1.0}
    assert curve("recall") == curve("elimination") == {0: 0.0, 10: 0.25, 20: 0.5, 30: 0.5, 40: 0.5}


def test_formation_leaves_out_what_is_not_finite():
    five = [0.0] * 5
    changed = formation(history=[five, five, five], recall=[[None] * 5, five, five])
    rows = rows_of(CONFIG, "formation", cell("d32/2 repeats", seeds=3, formation=changed))
    names = {
        seed: {row["name"].split(" ")[0] for row in rows if row["panel"] == f"seed {seed}"} for seed in (3, 4)
    }
    assert names == {3: {"elimination", "match"}, 4: {"elimination", "recall", "match"}}  # no history at all


def test_formation_has_a_panel_for_ten_seeds():
    five = [[0.5] * 5] * 13
    heads = {"match": [[[1.0, 1.0]] * 5] * 13, "best_head": [[1] * 5] * 13}
    whole = formation(**heads, history=five, recall=five, elimination=five)
    rows = rows_of(CONFIG, "formation", cell("d32/2 repeats", seeds=13, formation=whole))
    assert list(dict.fromkeys(row["panel"] for row in rows)) == [f"seed {seed}" for seed in range(3, 13)]


def test_order_rows():
    def half(time):
        if time is None:
            return {"half": {"time": None, "low": None, "high": None, "censored_at": 400.0}}
        return {"half": {"time": time, "low": time - 5.0, "high": time + 5.0, "censored_at": None}}

    apart = {"orders": {}, "first": {}, "reached": {}}
    orders = [
        {"parts": {"match": half(100.0), "history": half(200.0), "recall": half(300.0)}, **apart},
        {"parts": {"match": half(150.0), "history": half(None), "recall": half(None)}, **apart},
        None,
    ]
    times = [float(time) for time in range(0, 401, 10)]
    late = [min(1.0, max(0.0, (time - 280) / 40)) for time in times]
    losses = (times[1:], [1.5 - value / 2 for value in late[1:]])
    # The second seed never learned recall, and its loss is flat.
    flat = (times[1:], [1.5] * 40)
    curves = {"held_out/recall": [(times, late), (times, [0.0] * 41), (times, late)],
              "train/loss": [losses, flat, losses]}  # fmt: skip
    found = cell("d32/2 repeats", seeds=3, frozen=[22], formation=formation(order=orders), curves=curves)
    rows = {
        (row["y"], row["name"]): row
        for row in rows_of(CONFIG, "formation_order", found)
        if row["kind"] == "seed"
    }
    fall = "steepest fall of the loss"
    assert {seed for seed, _ in rows} == {"seed 3", "seed 4"}
    assert {part for seed, part in rows if seed == "seed 3"} == {"match", "history", "recall", fall}
    assert {part for seed, part in rows if seed == "seed 4"} - {fall} == {"match"}
    history = rows["seed 3", "history"]
    assert (history["value"], history["low"], history["high"]) == (200, 195, 205)
    steepest = transition(times, late, [None, *losses[1]], chance=1 / 4)["steepest_fall"]
    assert rows["seed 3", fall]["value"] == pytest.approx(steepest["time"], rel=1e-4)
    assert 280 <= steepest["time"] <= 320


# Sweeps and readings.


def test_value_rows():
    config = PermutationStudyConfig(values=7, sweeps=("values",), configurations=("d32/2 plain",))
    recall = cell("d32/2 repeats V=4", seeds=2, probes={"recall": [0.5, 0.25]})
    plain = cell("d32/2 plain", seeds=2, posteriors={"memorised_share": [-0.125, None]})
    rows = rows_of(config, "sweep_values", plain, recall)
    assert seeds_of(rows, x=4, panel="recall (trained with repeats)") == {3: 0.5, 4: 0.25}
    assert seeds_of(rows, x=7, panel="way to memorising (plain data)") == {3: -0.125}
    guesses = {(row["x"], row["name"]): row["value"] for row in rows if row["kind"] == "mark"}
    assert guesses[4, "guess among values shown"] == 0.33333
    assert guesses[4, "guess among all values"] == 0.25


def test_capacity_and_ratio_rows():
    one = cell("d8/1 repeats", probes={"recall": [0.5], "elimination": [1.0]})
    two = cell("d24/2 repeats", probes={"recall": [0.25], "elimination": [0.75]})
    config = PermutationStudyConfig(sweeps=("capacity", "ratio"))
    rows = rows_of(config, "sweep_capacity", one, two)
    assert seeds_of(rows, x=8, name="1 head") == {3: 0.5}
    assert seeds_of(rows, x=24, name="2 heads") == {3: 0.25}
    base = cell("d32/2 repeats", probes={"recall": [0.5], "elimination": [1.0]})
    many = cell("d32/2 repeats ratio=0.8", probes={"recall": [0.625], "elimination": [0.875]})
    rows = rows_of(config, "sweep_ratio", base, many)
    assert seeds_of(rows, x=0.3, name="elimination") == {3: 1.0}
    assert seeds_of(rows, x=0.8, name="recall") == {3: 0.625}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("", "slot 5 repeats any before"),
        (" slots=2", "slot 2 repeats any before"),
        (" slots=2+3+5", "slots 2, 3 or 5 repeats any before"),
        (" sources=4", "slot 5 repeats slot 4"),
        (" slots=4+5 sources=1+3", "slots 4 or 5 repeats slots 1 or 3"),
    ],
)
def test_training_words(changes, words):
    assert training_words(CONFIG, Configuration.parse(f"d32/2 repeats{changes}")) == words


def test_slot_pairs_are_means_over_seeds():
    names = ("d32/2 repeats", "d32/2 repeats sources=1")
    config = PermutationStudyConfig(values=3, configurations=names)
    none = [None, None, None]
    first = [none, [0.25, None, None], [0.5, 1.0, None]]
    second = [none, [0.75, None, None], [0.5, None, None]]
    found = cell(names[1], seeds=3, frozen=[22], slots={"recall": [first, second, first]})
    rows = {(row["y"], row["x"]): row for row in rows_of(config, "sweep_slots", found)}
    assert {place: row["value"] for place, row in rows.items()} == {
        ("2", "1"): 0.5,
        ("3", "1"): 0.5,
        ("3", "2"): 1.0,
    }
    assert {row["kind"] for row in rows.values()} == {"mean"}
    assert {place for place, row in rows.items() if row.get("outline")} == {("3", "1")}


def test_reading_rows():
    names = ("d32/2 repeats", "d32/2 repeats batch=128", "d32/2 repeats positions=none")
    config = PermutationStudyConfig(configurations=names)
    found = [cell(name, probes={"recall": [0.5], "elimination": [0.25]}) for name in names]
    rows = rows_of(config, "readings", *found)
    readings = [reading.replace("|", " ") for reading in dict.fromkeys(row["y"] for row in rows)]
    assert readings == [
        "batch 256, a code for each position",
        "batch 128, a code for each position",
        "batch 256, no position codes",
    ]
    assert seeds_of(rows, name="recall", y=in_lines(readings[2])) == {3: 0.5}
