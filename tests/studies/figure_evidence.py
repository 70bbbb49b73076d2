"""Made-up evidence of every configuration of a study, of the shapes that a run has; the numbers mean nothing."""

from dataclasses import replace

import numpy as np

from hopscope.runs import Row
from hopscope.runs.arrays import npz_bytes

from . import cells
from .cells import Cell

PATTERNS = "patterns.npz"
"""Where the attention patterns of the made-up run are: the same for every unit."""


def cell(name, seeds=1, frozen=(), curves=None, **records):
    """Evidence of one configuration: analyses as they are on disk; seeds are 3, 4, …, members 20, 21, …"""
    members, numbers = list(range(20, 20 + seeds)), list(range(3, 3 + seeds))
    return Cell(name, members, numbers, records, curves or {}, list(frozen))


def table(found, config, folder=None):
    """The evidence table of a run that trained these configurations, with their training record.

    Args:
        found: as `cell` gives them; a frozen member has no values.
        config: of the study.
        folder: of the run, where there is one; there are attention patterns then.
    """

    def more(cell):
        rows = [*_training(cell), *(_patterns(cell, config) if folder else [])]
        return [replace(row, value=None) if row.member in cell.frozen else row for row in rows]

    return cells.table(found, config, folder, more)


def _training(found):
    """The training record, as far as there are curves; a step is a sample here."""
    for name, curves in found.curves.items():
        split, metric = name.split("/")
        for member, curve in zip(found.members, curves, strict=True):
            for at, value in zip(*curve, strict=True):
                yield Row(member, "training", metric, value, split, int(at), int(at))


def _patterns(found, config):
    return [
        Row(member, "patterns", "attention_pattern", None, step=found.jobs(config).training.steps, part=part,
            file=f"{len(found.members)}-{PATTERNS}")
        for member in found.members
        for part in ("plain", *(f"repeat_of_{source}" for source in range(1, config.values)))
    ]  # fmt: skip


def made_up_evidence(config, folder=None, diverged=False):
    """The evidence of a run in a folder, into which the attention patterns are written.

    Args:
        config: of the study.
        folder: of the run; without one there are no attention patterns.
        diverged: whether the training of every member broke off at once.
    """
    made = []
    for configuration in config.grid():
        seeds = config.seeds_of(configuration)
        # The curves of the others are in no figure, and would be most of the table.
        curves = _curves(config, configuration, seeds) if configuration in config.base() else None
        found = cell(configuration.name, seeds, curves=curves,
                     **_records(config, configuration, seeds))  # fmt: skip
        made.append(replace(found, frozen=found.members if diverged else []))
        if folder is not None:
            (folder / f"{seeds}-{PATTERNS}").write_bytes(npz_bytes(_maps(config, seeds)))
    return table(made, config, folder)


def _maps(config, seeds):
    length = 2 * config.values - 1
    scores = np.tril(1.0 + np.arange(length * length, dtype=float).reshape(length, length) % 7)
    maps = np.broadcast_to(scores / scores.sum(-1, keepdims=True), (seeds, 1, 4, length, length))
    names = ["plain", *(f"repeat_of_{source}" for source in range(1, config.values))]
    return dict.fromkeys(names, maps)


def _share(seed, salt):
    """A number between 0 and 1 that differs from seed to seed and from measure to measure."""
    return ((seed + 1) * 0.6180339887 + salt * 0.7548776662) % 1.0


def _records(config, configuration, seeds):
    task, heads = config.task(configuration), configuration.heads
    values, repeats = task.values, configuration.data == "repeats"
    salts = iter(range(10_000))

    def each(*shape):
        if not shape:
            salt = next(salts)
            return [_share(seed, salt) for seed in range(seeds)]
        columns = [each(*shape[1:]) for _ in range(shape[0])]
        return [list(column) for column in zip(*columns, strict=True)]

    def score():
        return {"held_out": each(), "train": each()}

    def pair():
        return {"linear": score(), "mlp": score()}

    records = {
        "probes": {"recall": each(), "elimination": each(), "recall_by_slot": each(values)},
        "posteriors": {
            **{f"kl_{observer}_{mappings}": each(values)
               for observer in ("uniform", "training") for mappings in ("train", "held_out")},
            **{f"accuracy_{mappings}_by_step": each(values) for mappings in ("train", "held_out")},
            "tilt_correlation": each(), "tilt_control": each(), "memorised_share": each(),
        },
        "slots": {"recall": [[[None if t >= s else _share(seed, s * t) for t in range(values)]
                              for s in range(values)] for seed in range(seeds)]},
    }  # fmt: skip
    if not config.is_whole(configuration):
        return records
    skills = {"recall": each(), "elimination": each()}
    swap = {"to_other": each(), "stays": each(), "control_stays": each() if values > 3 else None}
    coded = config.model(configuration).positions != "none"
    records["battery"] = {
        "floors": {"used": 1 / (values - 1), "uniform": 1 / values},
        "clean": skills,
        "position_code_swap": swap if coded else None,
        "y_swap": swap, "attention_swap": swap,
        "head_interchange": {"to_other": each(), "stays": each()},
        "mlp_interchange": {"to_other": each(), "stays": each()},
        "equal_y_weights": {**skills, **{f"control_{skill}": each() if values > 3 else None for skill in skills}},
        "mlp_ablation": {"mean": skills, "resample": skills, "zero": skills},
    }  # fmt: skip
    records["roles"] = {"recall_lost": each(heads), "elimination_lost": each(heads)}
    places = {place: pair() for place in ("before", "after", "earlier_row")}
    records["decoding"] = {
        "answer": {"repeats": places},
        "untrained": {"repeats": places},
        "shuffled": pair(),
        "pointer": pair(),
        "history": [pair() for _ in range(values - 1)],
        "floors": {
            "uniform": 1 / values, "used": 1 / (values - 1), "earlier_row": {"repeats": 1 / (values - 1)},
            "majority": {"pointer": 1 / values, "history": [1 / values] * (values - 1)},
        },
    }  # fmt: skip
    if repeats:
        records["formation"] = _formation(config, configuration, seeds, heads)
    return records


def _formation(config, configuration, seeds, heads):
    training = config.training(configuration)
    steps = list(range(0, training.steps + 1, config.checkpoint_every))
    samples = [step * training.batch_size for step in steps]
    rises = [[float(place > len(steps) // 2 + seed) for place in range(len(steps))] for seed in range(seeds)]
    half = {"time": samples[-1] / 2, "low": samples[-1] / 3, "high": samples[-1] * 0.7}
    parts = {name: {"half": half} for name in ("match", "history", "recall")}
    return {
        "checkpoints": {"step": steps, "samples": samples},
        "match": [[[rise] * heads for rise in curve] for curve in rises],
        "best_head": [[heads - 1] * len(steps) for _ in range(seeds)],
        "history": [[0.1 + rise for rise in curve] for curve in rises],
        "recall": rises,
        "elimination": rises,
        "order": [{"parts": parts, "orders": {}, "first": {}, "reached": {}} for _ in range(seeds)],
    }


def _curves(config, configuration, seeds):
    training = config.training(configuration)
    steps = range(config.evaluate_every, training.steps + 1, config.evaluate_every)
    samples = [float(step * training.batch_size) for step in steps]
    noise = [[_share(seed, place) for place in range(len(samples))] for seed in range(seeds)]
    losses = [(samples, [1.0 + 0.01 * each for each in of_seed]) for of_seed in noise]
    skills = [(samples, of_seed) for of_seed in noise]
    return {"train/loss": losses, "held_out/elimination": skills, "held_out/recall": skills}
