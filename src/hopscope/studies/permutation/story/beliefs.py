"""How the models' probabilities compare with ideal observers, and why accuracy lies below chance."""

from collections.abc import Mapping

from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.numbers import DASH, written
from hopscope.studies.permutation.claims import PLAIN
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.published import BY_STEP, VALUES
from hopscope.studies.permutation.story.learning import base_only
from hopscope.studies.permutation.story.numbers import Numbers
from hopscope.studies.permutation.story.opening import sequences


def bayes_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block:
    """The presentation's two tables beside ours, and the distance to both references."""
    steps = range(config.values)
    columns = ["configuration", "measure", "", *[f"step {step + 1}" for step in steps], "repeat"]
    rows = []
    for found in base_only(config, evidence):
        rows += _table_rows(found, list(steps), numbers)
    chance = " / ".join(f"{100 / (config.values - used):.0f} %" for used in steps)
    return section(
        "bayes",
        "How close to the ideal observer",
        text(
            "Two ideal observers can be meant. One holds all mappings equally likely; the presentation compares with "
            "this one. The other knows which mappings are used in training. Held-out mappings are what the training "
            "ones leave out, so every step towards the second observer is a step away from the held-out answers."
        ),
        table(
            columns,
            rows,
            f"Held-out mappings, {sequences(evidence)}; mean over seeds, in brackets the lowest and the highest "
            "seed. Errors are against the observer that holds all mappings equally likely: the mean over "
            "sequences and values, and the largest over all of them. The presentation's numbers are of one seed "
            f"each. That observer is right in {chance} of the steps, and always at a repeat.",
        ),
        _distance_table(config, evidence, numbers),
        figure(
            "posterior",
            "Distance (Kullback–Leibler) from either observer to the model, by step, on training and on held-out "
            "mappings. Each point is a seed.",
            "Dot plots of the divergence of the models from two ideal observers by step.",
        ),
    )


def _table_rows(found: Evidence, steps: list[int], numbers: Numbers) -> list[list[str]]:
    rows = []
    measures = (
        ("accuracy", "accuracy_by_step", "recall", True),
        ("mean error", "mae_by_step", "repeat_mae", False),
        ("largest error", "max_ae_by_step", "repeat_max_ae", False),
    )
    for label, by_step, repeat, percent in measures:
        published = BY_STEP.get(found.name, {}).get(label)
        if published is not None and len(steps) == VALUES:
            said = [written(value, percent) for value in published]
            rows.append([found.name, label, "published", *said, *([DASH] if len(said) == len(steps) else [])])
        paths = [f"{by_step}.[m].{step}" for step in steps]
        ours = [
            f"{numbers.mean(found, path, percent=percent)} ({numbers.range(found, path, percent=percent)})"
            for path in [*paths, repeat]
        ]
        rows.append([found.name, label, f"here, {len(found.seeds)} seeds", *ours])
    return rows


def _distance_table(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block:
    rows = []
    for found in base_only(config, evidence):
        for split, words in (("held_out", "held-out"), ("train", "training")):
            for reference, name in (("uniform", "all mappings"), ("training", "training mappings")):
                path = f"kl_{reference}_{split}"
                if not found.has("posteriors", path):
                    continue
                cells = [
                    numbers.mean(found, f"{path}.[m].{step}", "posteriors", percent=False)
                    for step in range(config.values)
                ]
                rows.append([found.name, words, name, *cells])
        cells = [
            numbers.mean(found, f"used_mass_mean.[m].{step}", "posteriors") for step in range(config.values)
        ]
        rows.append([found.name, "held-out", "mass on used values", *cells])
    return table(
        ["configuration", "mappings", "observer", *[f"step {step + 1}" for step in range(config.values)]],
        rows,
        "Kullback–Leibler divergence from the observer to the model in nats, mean over sequences and seeds; and "
        "the mean probability that goes to values already used. On held-out mappings the second observer exists "
        "at the first steps only: prefixes that no training mapping fits are left out.",
    )


def sub_chance_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block | None:
    """Why accuracy at the first steps lies below chance on held-out mappings."""
    found = evidence.get(PLAIN)
    if found is None or not found.has("posteriors", "tilt_correlation"):
        return None
    rows = []
    for each in base_only(config, evidence):
        rows.append(
            [
                each.name,
                numbers.estimate(each, "train_minus_held_out", "posteriors"),
                numbers.estimate(each, "tilt_correlation", "posteriors", percent=False),
                numbers.estimate(each, "tilt_control", "posteriors", percent=False),
                numbers.estimate(each, "tilt_slope", "posteriors", percent=False),
                numbers.estimate(each, "memorised_share", "posteriors"),
            ]
        )
    return section(
        "sub-chance",
        "Why accuracy lies below chance at the first steps",
        text(
            "The presentation prints accuracies below chance at steps 1 to 4 and explains them by uncertainty "
            "alone. Uncertainty alone would give chance. If a model leans towards what is frequent among its "
            "training mappings, it must score above chance on those and, because the held-out mappings are the "
            "rest, below chance on these. Both can be measured: accuracy on training minus accuracy on held-out "
            "mappings, and the correlation of the model's tilt (its probability minus the even share) with the "
            "tilt of the training mappings' own counts, over held-out prefixes. The control takes the training "
            "tilt of other sequences: it must show nothing."
        ),
        table(
            ["configuration", "training minus held-out accuracy, steps before the last", "correlation of tilts",
             "its control", "slope of tilts", "way to memorising"],
            rows,
            "Mean over seeds [95 % interval]. The control is no null distribution: equal prefixes repeat, so few of "
            "its points are independent. A slope of 1 would be the observer that knows the training mappings. The "
            "way to memorising is the share of the way from the first observer's loss to the second's that the loss "
            "on all training sequences has gone; below zero means not even the first is reached.",
        ),
        figure(
            "accuracy_by_step",
            "Accuracy minus chance by step, on training and on held-out mappings; crosses are the "
            "presentation's numbers.",
            "Dot plots of accuracy relative to chance by step for training and held-out mappings.",
        ),
        figure(
            "tilt",
            "Correlation of the model's tilt with the training mappings' tilt, seed by seed, with its control.",
            "Dot strips of tilt correlation and control for each configuration.",
        ),
    )  # fmt: skip
