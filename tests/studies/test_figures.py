"""Figures: which there are, and the rows of their data from made-up evidence."""

import subprocess
import sys

import pytest

from hopscope.claims.intervals import bootstrap_mean
from hopscope.studies import find_study
from hopscope.studies.marks import in_lines
from hopscope.studies.permutation.config import PRESETS, PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.evidence import Evidence, Source, transitions
from hopscope.studies.permutation.figures import figure_names
from hopscope.studies.permutation.figures.bayes import accuracy_rows, posterior_rows, tilt_rows
from hopscope.studies.permutation.figures.causal import ablation_rows, battery_rows
from hopscope.studies.permutation.figures.common import swept
from hopscope.studies.permutation.figures.decoding import decoding_rows
from hopscope.studies.permutation.figures.formation import formation_rows, order_rows
from hopscope.studies.permutation.figures.readings import reading_rows
from hopscope.studies.permutation.figures.roles import head_rows
from hopscope.studies.permutation.figures.slots import pair_rows, slot_rows, training_words
from hopscope.studies.permutation.figures.sweeps import capacity_rows, guess_rows, ratio_rows, value_rows
from hopscope.studies.permutation.figures.training import averaged, loss_rows, skill_rows
from hopscope.studies.rows import summary_rows, thinned

CONFIG = PermutationStudyConfig()
CURVES = ["loss", "skills", "recall_by_slot", "posterior", "accuracy_by_step", "tilt", "attention"]
TAKEN_APART = ["head_roles", "battery", "ablation", "decoding", "formation", "formation_order"]
SWEPT = ["readings", "sweep_values", "sweep_capacity", "sweep_ratio", "sweep_slots"]


def evidence(name, seeds=1, frozen=(), curves=None, **records):
    """Evidence of one configuration: analyses as they are on disk; seeds are 3, 4, …, members 20, 21, …"""
    return Evidence(
        configuration=Configuration.parse(name),
        departures=[],
        members=list(range(20, 20 + seeds)),
        seeds=list(range(3, 3 + seeds)),
        sources={
            analysis: [Source("units/u/analysis/a.json", record, index) for index in range(seeds)]
            for analysis, record in records.items()
        },
        exhaustive=True,
        training_loss=[None] * seeds,
        frozen=list(frozen),
        curves=curves or {},
    )  # fmt: skip


def seeds_of(rows, **wanted):
    """Seed → value of the rows of seeds that have these columns."""
    chosen = [row for row in rows if wanted.items() <= row.items() and row["kind"] == "seed"]
    return {row["seed"]: row["value"] for row in chosen}


def means_of(rows, **wanted):
    return [row for row in rows if wanted.items() <= row.items() and row["kind"] == "mean"]


# Which figures there are.


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (PRESETS["smoke"], CURVES + TAKEN_APART),
        (PRESETS["laptop"], CURVES + TAKEN_APART),
        (PRESETS["paper"], CURVES + TAKEN_APART + SWEPT),
        (PermutationStudyConfig(configurations=("d16/1 plain",)), CURVES),
        (PermutationStudyConfig(configurations=("d32/2 plain",)), [*CURVES, "head_roles"]),
        (PermutationStudyConfig(configurations=("d16/1 repeats",), values=3), CURVES + TAKEN_APART),
        (PermutationStudyConfig(measurements="basic"), CURVES),
        (PermutationStudyConfig(sweeps=("ratio",)), [*CURVES, *TAKEN_APART, "sweep_ratio"]),
        (PermutationStudyConfig(sweeps=("positions",)), [*CURVES, *TAKEN_APART, "readings"]),
        (PermutationStudyConfig(configurations=("d32/2 repeats V=4",)), ["tilt"]),
        (PermutationStudyConfig(configurations=("d16/1 plain", "d16/1 plain V=4")),
         [*CURVES, "sweep_values"]),
    ],
)  # fmt: skip
def test_names(config, expected):
    assert sorted(figure_names(config)) == sorted(expected)
    assert find_study("permutation").figures(config) == figure_names(config)


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


# Rows that all share.


def test_seeds_and_their_mean():
    rows = summary_rows([5, 6, 7], [0.25, None, 0.5], skill="recall")
    assert [row for row in rows if row["kind"] == "seed"] == [
        {"skill": "recall", "kind": "seed", "seed": 5, "value": 0.25},
        {"skill": "recall", "kind": "seed", "seed": 7, "value": 0.5},
    ]
    (mean,) = means_of(rows)
    low, high = bootstrap_mean([0.25, 0.5])
    assert mean == {"skill": "recall", "kind": "mean", "value": 0.375, "low": low, "high": high}


def test_one_seed_has_no_interval_and_none_has_no_rows():
    assert means_of(summary_rows([5], [0.1])) == [{"kind": "mean", "value": 0.1, "low": None, "high": None}]
    assert summary_rows([5, 6], [None, None]) == []


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("short", ["short"]),
        ("aaa bbb ccc ddd", ["aaa bbb", "ccc ddd"]),  # and not "aaa bbb ccc", "ddd"
        ("aaaaaaaaaaaaaaaaa b", ["aaaaaaaaaaaaaaaaa", "b"]),  # a word stays whole
    ],
)
def test_labels_are_cut_evenly(label, lines):
    assert in_lines(label, 11) == "|".join(lines)


# Curves.


def test_thinned_from_the_end():
    curve = ([2, 3, 5, 7, 11], [0.2, 0.3, 0.5, 0.7, 1.1])
    assert thinned(curve, 1) == curve
    assert thinned(curve, 2) == ([2, 5, 11], [0.2, 0.5, 1.1])
    assert thinned(curve, 3) == ([3, 11], [0.3, 1.1])
    assert thinned(([], []), 2) == ([], [])


def test_averaged_losses_stay_means_over_what_was_trained():
    """Against the loss of each single sample."""
    samples, values = [2.0, 3.0, 5.0, 10.0, 17.0], [7.0, 5.0, 3.0, 2.0, 1.0]
    single = [7.0] * 2 + [5.0] + [3.0] * 2 + [2.0] * 5 + [1.0] * 7
    assert averaged((samples, values), 1) == (samples, values)
    for every, kept in ((2, [2, 5, 17]), (3, [3, 17])):
        found_samples, found_values = averaged((samples, values), every)
        assert found_samples == kept
        starts = [0, *kept[:-1]]
        expected = [sum(single[a:b]) / (b - a) for a, b in zip(starts, kept, strict=True)]
        assert found_values == pytest.approx(expected)
    assert averaged(([], []), 2) == ([], [])


def test_loss_rows():
    curves = {"train/loss": [([10.0, 20.0], [1.5, 1.25]), ([], [])]}
    rows = loss_rows(CONFIG, [evidence("d16/1 plain", seeds=2, curves=curves)])
    assert [row for row in rows if row["kind"] == "loss"] == [
        {"kind": "loss", "configuration": "d16/1 plain", "seed": 3, "samples": 10, "loss": 1.5},
        {"kind": "loss", "configuration": "d16/1 plain", "seed": 3, "samples": 20, "loss": 1.25},
    ]
    floors = {row["kind"]: row["loss"] for row in rows if row["kind"] != "loss"}
    assert floors["elimination floor"] == 0.9575
    assert len(floors) == 4  # with repeats in the grid there are two more


def test_skill_rows():
    times = [7.0, 14.0]
    curves = {"held_out/elimination": [(times, [0.5, 1.0])], "held_out/recall": [(times, [0.25, 0.0])]}
    assert skill_rows([evidence("d16/1 plain", curves=curves)]) == [
        {"configuration": "d16/1 plain", "seed": 3, "samples": 7, "elimination": 0.5, "recall": 0.25},
        {"configuration": "d16/1 plain", "seed": 3, "samples": 14, "elimination": 1.0, "recall": 0.0},
    ]


def test_recall_by_slot():
    recalls = [[0.5, None], [0.75, None], [None, 1.0]]
    rows = slot_rows([evidence("d16/1 plain", seeds=3, frozen=[21], probes={"recall_by_slot": recalls})])
    found = [(row["seed"], row["slot"], row["recall"]) for row in rows]
    assert found == [(3, "x1", 0.5), (5, "x2", 1.0)]


# Ideal observers.


def test_posterior_rows():
    posteriors = {
        "kl_uniform_train": [[0.5, 0.0], [0.25, 0.125]],
        "kl_uniform_held_out": [[1.0, 2.0], [3.0, 4.0]],
        "kl_training_train": None,  # too many training mappings
        "kl_training_held_out": [[0.75, None], [0.5, None]],
    }
    rows = posterior_rows([evidence("d16/1 plain", seeds=2, posteriors=posteriors)])
    here, uniform, training = "d16/1 plain, ", "all mappings equally likely", "only training mappings"
    assert seeds_of(rows, panel=here + "training mappings", observer=uniform, step=1) == {3: 0.5, 4: 0.25}
    assert seeds_of(rows, panel=here + "training mappings", observer=uniform, step=2) == {3: 1e-7, 4: 0.125}
    assert seeds_of(rows, panel=here + "held-out mappings", observer=uniform, step=2) == {3: 2.0, 4: 4.0}
    assert seeds_of(rows, panel=here + "held-out mappings", observer=training, step=1) == {3: 0.75, 4: 0.5}
    assert {row["step"] for row in rows if row["observer"] == training} == {1}


def accuracies(values):
    return {f"accuracy_{mappings}_by_step": [values] for mappings in ("train", "held_out")}


def test_accuracy_less_chance_with_the_published_numbers():
    rows = accuracy_rows(
        CONFIG, [evidence("d16/1 plain", posteriors=accuracies([0.25, 0.25, 0.25, 0.25, 1.0]))]
    )
    for mappings in ("training mappings", "held-out mappings"):
        found = [seeds_of(rows, mappings=mappings, step=step)[3] for step in (1, 2, 3, 4, 5)]
        assert found == pytest.approx([0.05, 0.0, -1 / 12, -0.25, 0.0], abs=1e-5)
    crosses = {row["step"]: row["value"] for row in rows if row["kind"] == "published"}
    assert crosses == pytest.approx({1: -0.1044, 2: -0.086, 3: -0.08773, 4: -0.0774, 5: 0.0}, abs=1e-5)


@pytest.mark.parametrize(
    ("config", "name"), [(CONFIG, "d32/2 plain"), (PermutationStudyConfig(values=4), "d16/1 plain")]
)
def test_the_source_printed_no_accuracies_of_others(config, name):
    rows = accuracy_rows(config, [evidence(name, posteriors=accuracies([0.5] * config.values))])
    assert {row["kind"] for row in rows} == {"seed", "mean"}
    assert {row["step"] for row in rows} == set(range(1, config.values + 1))


def test_tilt_rows():
    tilts = {"tilt_correlation": [9.0, 0.5, 0.25], "tilt_control": [9.0, -0.125, None]}
    found = evidence("d16/1 plain", seeds=3, frozen=[20], posteriors=tilts)
    rows = tilt_rows([found])
    assert seeds_of(rows, arm="model") == {4: 0.5, 5: 0.25}
    assert seeds_of(rows, arm="control (hollow): tilts of other sequences") == {4: -0.125}


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
    rows = battery_rows([evidence("d32/2 repeats", battery=battery())])
    assert seeds_of(rows, test="nothing changed") == {3: 0.875}
    codes = in_lines("position codes of x_j and x_k exchanged (values)")
    assert seeds_of(rows, test=codes, answer=BECOMES) == {3: 0.75}
    assert seeds_of(rows, test=codes, answer=STAYS, arm="test") == {3: 0.125}
    assert seeds_of(rows, test=codes, arm="control (hollow): other pairs exchanged") == {3: 0.5}
    donor = in_lines("FFN output from the same pairs with x_k repeated")
    assert seeds_of(rows, test=donor, answer=BECOMES) == {3: 0.625}
    assert {row["arm"] for row in rows if row["test"] == donor} == {"test"}


def test_what_was_not_measured_has_no_row_in_the_battery():
    swap = {"to_other": [0.75], "stays": [0.125], "control_stays": None}  # V = 3
    changed = battery(position_code_swap=None, y_swap=swap, attention_swap=swap, mlp_interchange=None)
    rows = battery_rows([evidence("d32/2 repeats positions=none", battery=changed)])
    assert len({row["test"] for row in rows}) == 4
    assert not any("position" in row["test"] or "FFN" in row["test"] for row in rows)
    assert {row["arm"] for row in rows} == {"test"}


def test_ablation_rows():
    rows = ablation_rows([evidence("d32/2 repeats", battery=battery())])
    assert seeds_of(rows, ablation="nothing changed", skill="recall") == {3: 0.875}
    assert seeds_of(rows, ablation="FFN output: its mean", skill="recall") == {3: 0.25}
    control = in_lines("control: attention to other x made equal")
    assert seeds_of(rows, ablation=control, skill="elimination") == {3: 0.9375}
    equal = {"recall": [0.5], "elimination": [0.5], "control_recall": None, "control_elimination": None}
    changed = battery(mlp_ablation=None, equal_y_weights=equal)
    without = ablation_rows([evidence("d32/2 repeats", battery=changed)])
    assert {row["ablation"] for row in without} == {"nothing changed", "attention to all y made equal"}


def test_head_rows():
    lost = {"recall_lost": [[0.5, -0.125], [9.0, 9.0]], "elimination_lost": [[0.0, 0.75], [9.0, 9.0]]}
    two = evidence("d32/2 repeats", seeds=2, frozen=[21], roles=lost)
    one = evidence("d32/1 repeats", roles={"recall_lost": [[0.25]], "elimination_lost": [[1.0]]})
    found = [tuple(row.values()) for row in head_rows([two, one])]
    assert found == [
        ("d32/2 repeats", 3, "head 1", 0.5, 0.0),
        ("d32/2 repeats", 3, "head 2", -0.125, 0.75),
        ("d32/1 repeats", 3, "head 1", 0.25, 1.0),
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
    rows = decoding_rows([evidence("d32/2 repeats", decoding=decoding)])
    before = in_lines("answer of a repeat, before the FFN")
    assert seeds_of(rows, target=before, probe="linear probe", arm="trained") == {3: 0.25}
    assert seeds_of(rows, target=before, probe="MLP probe", arm="trained") == {3: 0.75}
    assert seeds_of(rows, target=before, probe="MLP probe", arm="untrained (hollow)") == {3: 0.625}
    assert seeds_of(rows, target="history: y of slot 2", probe="MLP probe") == {3: 0.4}
    floors = {row["target"].replace("|", " "): row["value"] for row in rows if row["kind"] == "floor"}
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
    return {
        "checkpoints": {"samples": [0, 10, 20, 30, 40]},
        "match": [[[0.0, place / 4] for place in range(5)]] * 3,
        "best_head": [[0, 0, 0, 1, 1]] * 3,
        "history": [[0.4, 0.1, 0.1, 0.2, 0.3], five, five],
        "recall": curve, "elimination": curve,
        **changed,
    }  # fmt: skip


def test_formation_rows():
    """The head is the best one at the end; history is relative to its last three checkpoints."""
    rows = formation_rows(evidence("d32/2 repeats", seeds=3, frozen=[21], formation=formation()))
    assert {row["seed"] for row in rows} == {"seed 3", "seed 5"}

    def curve(word, seed="seed 3"):
        chosen = [row for row in rows if row["curve"].startswith(word) and row["seed"] == seed]
        return {row["samples"]: row["value"] for row in chosen}

    assert curve("match") == {0: 0.0, 10: 0.25, 20: 0.5, 30: 0.75, 40: 1.0}
    assert curve("history") == pytest.approx({0: 2.0, 10: 0.5, 20: 0.5, 30: 1.0, 40: 1.5})
    assert curve("history", "seed 5") == {0: 0.0, 10: 0.5, 20: 1.0, 30: 1.0, 40: 1.0}
    assert curve("recall") == curve("elimination") == {0: 0.0, 10: 0.25, 20: 0.5, 30: 0.5, 40: 0.5}


def test_formation_leaves_out_what_is_not_finite():
    five = [0.0] * 5
    changed = formation(history=[five, five, five], recall=[[None] * 5, five, five])
    rows = formation_rows(evidence("d32/2 repeats", seeds=3, formation=changed))
    assert {row["seed"] for row in rows} == {"seed 4", "seed 5"}
    assert {row["curve"].split(" ")[0] for row in rows} == {
        "elimination",
        "recall",
        "match",
    }  # no history at all


def test_formation_has_a_panel_for_ten_seeds():
    five = [[0.5] * 5] * 13
    heads = {"match": [[[1.0, 1.0]] * 5] * 13, "best_head": [[1] * 5] * 13}
    whole = formation(**heads, history=five, recall=five, elimination=five)
    rows = formation_rows(evidence("d32/2 repeats", seeds=13, formation=whole))
    assert list(dict.fromkeys(row["seed"] for row in rows)) == [f"seed {seed}" for seed in range(3, 13)]


def test_order_rows():
    def half(time):
        there = time is not None
        return {
            "half": {
                "time": time,
                "low": time - 5.0 if there else None,
                "high": time + 5.0 if there else None,
            }
        }

    orders = [
        {"parts": {"match": half(100.0), "history": half(200.0), "recall": half(300.0)}},
        {"parts": {"match": half(150.0), "history": half(None), "recall": half(None)}},
        None,
    ]
    times = [float(time) for time in range(0, 401, 10)]
    late = [min(1.0, max(0.0, (time - 280) / 40)) for time in times]
    losses = [(times[1:], [1.5 - value / 2 for value in late[1:]])] * 3
    curves = {"held_out/recall": [(times, late), (times, [0.0] * 41), (times, late)], "train/loss": losses}
    found = evidence("d32/2 repeats", seeds=3, frozen=[22], formation={"order": orders}, curves=curves)
    rows = {(row["seed"], row["part"]): row for row in order_rows(found, 5)}
    fall = "steepest fall of the loss"
    first = {("seed 3", part) for part in ("match", "history", "recall", fall)}
    assert set(rows) == first | {("seed 4", "match")}
    assert list(rows["seed 3", "history"].values()) == ["seed 3", "history", 200, 195, 205]
    steepest = transitions(found, 5)[0]["steepest_fall"]
    assert rows["seed 3", fall]["time"] == round(steepest["time"])
    assert 280 <= steepest["time"] <= 320


# Sweeps and readings.


def test_value_rows():
    config = PermutationStudyConfig(values=7, sweeps=("values",))
    recall = evidence("d32/2 repeats V=4", seeds=2, probes={"recall": [0.5, 0.25]})
    plain = evidence("d32/2 plain", seeds=2, posteriors={"memorised_share": [-0.125, None]})
    rows = value_rows(config, [recall, plain])
    assert seeds_of(rows, values=4, panel="recall (trained with repeats)") == {3: 0.5, 4: 0.25}
    assert seeds_of(rows, values=7, panel="way to memorising (plain data)") == {3: -0.125}
    guesses = {(row["values"], row["guess"]): row["value"] for row in guess_rows(config, [recall, plain])}
    assert guesses == {(4, "guess among values shown"): 0.33333, (4, "guess among all values"): 0.25}


def test_capacity_and_ratio_rows():
    one = evidence("d8/1 repeats", probes={"recall": [0.5], "elimination": [1.0]})
    two = evidence("d24/2 repeats", probes={"recall": [0.25], "elimination": [0.75]})
    rows = capacity_rows([one, two])
    assert seeds_of(rows, width=8, heads="1 head") == {3: 0.5}
    assert seeds_of(rows, width=24, heads="2 heads") == {3: 0.25}
    many = evidence("d32/2 repeats ratio=0.8", probes={"recall": [0.625], "elimination": [0.875]})
    rows = ratio_rows(CONFIG, [one, many])
    assert seeds_of(rows, ratio=0.3, skill="elimination") == {3: 1.0}
    assert seeds_of(rows, ratio=0.8, skill="recall") == {3: 0.625}


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
    config = PermutationStudyConfig(values=3)
    none = [None, None, None]
    first = [none, [0.25, None, None], [0.5, 1.0, None]]
    second = [none, [0.75, None, None], [0.5, None, None]]
    found = evidence(
        "d32/2 repeats sources=1", seeds=3, frozen=[22], slots={"recall": [first, second, first]}
    )
    rows = {(row["slot"], row["source"]): row for row in pair_rows(config, [found])}
    assert {place: row["recall"] for place, row in rows.items()} == {(2, 1): 0.5, (3, 1): 0.5, (3, 2): 1.0}
    assert {place: row["seeds"] for place, row in rows.items()} == {(2, 1): 2, (3, 1): 2, (3, 2): 1}
    assert {place for place, row in rows.items() if row["trained"] == "yes"} == {(3, 1)}


def test_reading_rows():
    names = ("d32/2 repeats", "d32/2 repeats batch=128", "d32/2 repeats positions=none")
    found = [evidence(name, probes={"recall": [0.5], "elimination": [0.25]}) for name in names]
    rows = reading_rows(CONFIG, found)
    readings = [reading.replace("|", " ") for reading in dict.fromkeys(row["reading"] for row in rows)]
    assert readings == [
        "batch 256, a code for each position",
        "batch 128, a code for each position",
        "batch 256, no position codes",
    ]
    assert seeds_of(rows, skill="recall", reading=in_lines(readings[2])) == {3: 0.5}
