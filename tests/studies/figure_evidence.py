"""Made-up evidence of every configuration of a study, of the shapes that a run has; the numbers mean nothing."""

from types import SimpleNamespace

import numpy as np

from hopscope.studies.permutation.evidence import Evidence, Source


def made_up_evidence(config):
    """Evidence by name, as `gather` returns it."""
    gathered, member = {}, 0
    for configuration in config.grid():
        seeds = config.seeds_of(configuration)
        records = _records(config, configuration, seeds)
        members = list(range(member, member + seeds))
        member += seeds
        gathered[configuration.name] = Evidence(
            configuration=configuration,
            departures=[],
            members=members,
            seeds=list(range(seeds)),
            sources={
                name: [Source(f"units/u/analysis/{name}.json", record, index) for index in range(seeds)]
                for name, record in records.items()
            },
            exhaustive=True,
            training_loss=[1.0] * seeds,
            frozen=[],
            curves=_curves(config, configuration, seeds),
        )
    return gathered


def made_up_run(path, config, evidence):
    """As much of a run folder as figures need: where to write, and attention patterns."""
    length = 2 * config.values - 1
    scores = np.tril(1.0 + np.arange(length * length, dtype=float).reshape(length, length) % 7)
    maps = np.broadcast_to(scores / scores.sum(-1, keepdims=True), (1, 1, 4, length, length))
    names = ["plain", *(f"repeat_of_{source}" for source in range(1, config.values))]
    unit = SimpleNamespace(read_analysis=lambda name, step: dict.fromkeys(names, maps))
    everyone = [member for found in evidence.values() for member in found.members]
    return SimpleNamespace(
        path=path,
        members={member: SimpleNamespace(unit="u", index=0) for member in everyone},
        unit=lambda name: unit,
    )


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
        "order": [{"parts": parts} for _ in range(seeds)],
    }


def _curves(config, configuration, seeds):
    training = config.training(configuration)
    steps = range(config.evaluate_every, training.steps + 1, config.evaluate_every)
    samples = [float(step * training.batch_size) for step in steps]
    noise = [[_share(seed, place) for place in range(len(samples))] for seed in range(seeds)]
    losses = [(samples, [1.0 + 0.01 * each for each in of_seed]) for of_seed in noise]
    skills = [(samples, of_seed) for of_seed in noise]
    return {"train/loss": losses, "held_out/elimination": skills, "held_out/recall": skills}
