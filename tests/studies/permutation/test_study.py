"""Configurations and their names, the grid of every preset, readings of the source, and what departs from it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.cli.run import read_options
from hopscope.errors import UserError
from hopscope.studies.permutation.options import ALL, SWEEPS, Cell
from hopscope.studies.permutation.readings import departures, named, readings_of
from hopscope.studies.permutation.study import study
from hopscope.study.jobs import plan
from hopscope.study.load import load

CHANGES = {
    "V": st.integers(3, 12),
    "ratio": st.sampled_from([0.05, 0.3, 1.0]),
    "slots": st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).map(tuple),
    "positions": st.sampled_from(["learned", "pair", "none"]),
    "batch": st.integers(1, 9999),
    "epochs": st.sampled_from([0.5, 20.0, 200.0]),
    "split": st.integers(0, 99),
}


@given(
    st.integers(1, 512),
    st.integers(1, 9),
    st.sampled_from(["plain", "repeats"]),
    st.fixed_dictionaries({}, optional=CHANGES),
)
def test_a_name_is_read_as_what_it_says(width, heads, data, changes):
    texts = {key: "+".join(map(str, each)) if key == "slots" else f"{each}" for key, each in changes.items()}
    behind = "".join(f" {key}={text}" for key, text in texts.items())
    cell = Cell.parse(f"d{width}/{heads} {data}{behind}")
    assert cell[2:] == (width, heads, data, changes) and cell.name == f"d{width}/{heads} {data}{behind}"
    kept = {key: each for key, each in changes.items() if key not in ("batch", "epochs", "split")}
    assert Cell.parse(cell.bare).changes == kept
    other = Cell.parse(cell.name, 7, 11)
    assert other.name == f"d7/11 {data}{behind}" and other[2:] == (7, 11, data, changes)


def test_width_and_heads_of_every_model_are_flags():
    words = ["--width", "24", "--heads=3", "--evaluation-limit", "5000"]
    fields = read_options(load("permutation"), words, "permutation")[1]
    assert fields == {"width": 24, "heads": 3, "evaluation_limit": 5000}
    chosen = study.chosen("smoke", fields)
    models = {each.label: chosen.of(each).model for each in chosen.grid()}
    assert [*models] == [*chosen.options.base] == ["d24/3 plain", "d24/3 repeats"]
    assert all((each.width, each.heads) == (24, 3) for each in models.values())


def test_a_completion_would_change_nothing_and_is_refused():
    with pytest.raises(UserError, match="completion: expected a field that the study"):
        read_options(load("permutation"), ["--completion", "gpt2-base"], "permutation")
    assert study.model_copy(update={"completion": "gpt2-base"}).changed({}).training == study.training


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"configurations": ["d32 repeats"]}, "expected names such as 'd32/2 repeats'"),
        ({"configurations": ["d32/2 repeats batch=3 batch=5"]}, "at most once, found 'd32/2 repeats batch=3 batch=5'"),
        ({"configurations": ["d32/2 repeats size=3"]}, "found 'd32/2 repeats size=3'"),
        ({"configurations": ["d32/2 repeats positions=odd"]}, "positions: expected"),
        ({"configurations": ["d32/2 repeats batch=0"]}, "batch_size: expected"),
        ({"configurations": ["d32/2 repeats epochs=inf"]}, "found 'd32/2 repeats epochs=inf'"),
        ({"configurations": []}, "expected at least one"),
        ({"sweeps": ["width"]}, "sweeps: expected some of batch, "),
        ({"task.values": 2}, "values: expected"),
        ({"configurations": ["d16/5 plain"]}, "width: expected a multiple of heads = 5"),
        ({"task.repeat_slots": [6]}, "slots from 1 to 5"),
        ({"model.width": 4}, "expected a field that the study 'permutation' leaves open"),
        ({"training.steps": 7}, "expected a field that the study 'permutation' leaves open"),
    ],
)  # fmt: skip
def test_what_a_study_cannot_train_is_said_in_a_line(fields, words):
    with pytest.raises(UserError, match=re.escape(words)) as error:
        plan(study.chosen("smoke", fields))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("preset", "cells", "models"),
    [("smoke", 2, 4), ("laptop", 2, 20), ("paper", 40, 190), ("readings", 66, 660)],
)
def test_presets(preset, cells, models):
    chosen = study.chosen(preset)
    grid = chosen.grid()
    assert (len(grid), sum(len(chosen.seeds_of(each)) for each in grid)) == (cells, models)
    assert [each.label for each in grid] == [*chosen.options.grid]
    assert chosen.options.whole <= {*chosen.options.claimed}
    assert {figure.name for figure in chosen.all_figures()} >= {"loss", "skills", "ablation"}


def test_what_every_configuration_is_trained_by():
    names = ("d32/2 repeats V=4 batch=128", "d16/1 plain")
    chosen = study.changed({"configurations": names, "task.repeat_slots": (3,)})
    repeats, plain = map(chosen.of, chosen.grid())
    assert (repeats.training.steps, plain.training.steps) == (39063, 7813)
    assert (repeats.task.values, repeats.task.repeat_ratio, plain.task.repeat_ratio) == (4, 0.3, 0.0)
    assert repeats.task.repeat_slots == plain.task.repeat_slots == (3,)
    assert (repeats.model.layers, repeats.model.width, plain.model.heads) == (1, 32, 1)


def test_readings_of_the_source():
    chosen = study.chosen("readings")
    readings = readings_of(chosen.options, chosen)
    assert [*readings] == [
        "batch 256", "batch 512", "batch 128", "batch 64", "batch 256, 20 epochs", "batch 256, 50 epochs",
        "batch 256, 200 epochs",
    ]  # fmt: skip
    own, *_, long = readings.values()
    assert len(named(own, "d32/2 plain")) == 10  # splits of the mappings
    assert [each.cell.name for each in named(long, "d32/2 plain")] == ["d32/2 plain epochs=200"]
    other = study.changed({"model.init": "gpt2", "task.split_seed": 3})
    assert [*readings_of(other.options, other)] == [
        "batch 256, init gpt2 instead of encoder, split seed 3 instead of 0"
    ]


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("d32/2 repeats", {}, []),
        ("d32/2 repeats", {"epochs_repeats": 3}, ["3 of 50 epochs"]),
        ("d32/2 repeats", {"samples_per_epoch": 1000}, ["0.5 of 50 epochs"]),
        ("d32/2 repeats epochs=20", {}, []),
        ("d16/1 plain", {"task.values": 7, "task.repeat_ratio": 0.5}, ["values 7 instead of 5"]),
        ("d16/1 repeats", {"task.repeat_ratio": 0.5}, ["repeat ratio 0.5 instead of 0.3"]),
        ("d16/1 plain", {"model.positions": "none", "training.clip_norm": 1.0},
         ["positions none instead of learned", "clip norm 1.0 instead of None"]),
        ("d16/1 plain V=7 positions=none", {}, []),
        ("d16/1 plain", {"model.causal": False, "training.schedule": "cosine", "training.examples": 1000},
         ["causal False instead of True", "schedule cosine instead of constant", "examples 1000 instead of None"]),
    ],
)  # fmt: skip
def test_departures_from_the_source(name, fields, expected):
    chosen = study.changed({"configurations": [name], **fields})
    ((cell,), (each,)) = chosen.options.grid.values(), chosen.grid()
    assert departures(chosen.options, cell, chosen.of(each)) == expected


def test_every_sweep_is_planned_with_its_seeds():
    chosen = study.changed({"sweeps": [*SWEEPS], "seeds": 2, "sweep_seeds": 3, "all_configurations": True})
    seeds = {each.label: len(chosen.seeds_of(each)) for each in chosen.grid()}
    assert {name: seeds[name] for name in ALL} == dict.fromkeys(ALL, 2)
    assert seeds["d32/2 repeats V=7"] == 3 and seeds["d32/2 plain V=4"] == 2
    assert {*seeds} == ({*ALL} | {name for names in SWEEPS.values() for name in names})
