"""The figures of the permutation study, from the evidence table alone.

Which figures a run has depends on what it trains, and is known from its configuration.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hopscope.figures import Drawing, Figure, cells, chart, dots, lines, sweep
from hopscope.figures.series import SHARE, Axis, Mark, Series, where_measured
from hopscope.probes.onsets import FINAL_EVALUATIONS
from hopscope.runs.evidence_table import TRAINING
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.published import BY_STEP, VALUES
from hopscope.studies.permutation.shown import (
    floors,
    largest_with_repeats,
    main,
    reading_words,
    swept,
    taken_apart,
    training_words,
)

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SKILLS = ("elimination", "recall")
"""In the order of their colours."""

ACCURACY = Axis("accuracy (held-out mappings)", SHARE, "%")
GUESS = "guess among values shown"
SAMPLES = Axis("training samples per seed")


def figures(config: PermutationStudyConfig) -> tuple[Figure, ...]:
    """Every figure that a run of a configuration has something to show in.  Loads no torch and no chart library."""
    return tuple(figure for make in _EVERY if (figure := make(config)) is not None)


def series_of(
    found: Configuration,
    metric: str,
    measure: str,
    part: str | None = None,
    split: str = "held_out",
    **shown: Any,
) -> Series:
    """A metric of one configuration; `shown` are further fields of `Series`."""
    where = {"configuration": found.name, "measure": measure, "part": part, "split": split}
    return Series(metric, where=where, **shown)


def _made(
    shape: Callable[..., Figure], name: str, shown: Sequence[Series], value: Axis, **further: Any
) -> Figure | None:
    """A figure of series, unless a configuration has none for it; what a run did not measure is left out of it."""
    return shape(name, where_measured(shown), value, **further) if shown else None


# Curves of training.


def _loss(config: PermutationStudyConfig) -> Figure | None:
    known = floors(config)
    low, high = min(known.values()), max(known.values())
    marks = [Mark(value, f"{name} {value:.4f}") for name, value in known.items()]
    shown = [series_of(each, "loss", TRAINING, split="train", name=each.name) for each in config.base()]
    value = Axis("training loss (nats per answer)", (low - 0.02, max(high + 0.05, low + 0.33)))
    return _made(lines, "loss", shown, value, across=SAMPLES, marks=marks, time="samples", height=320)


def _skills(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        series_of(each, skill, TRAINING, name=skill, panel=each.name)
        for each in config.base()
        for skill in SKILLS
    ]
    value = Axis("held-out accuracy", SHARE, "%")
    return _made(lines, "skills", shown, value, across=SAMPLES, time="samples", height=170)


SHOWN_SEEDS = 10
"""Seeds whose formation has a panel."""

HIGHEST = 1.2
"""Top of the axis: history, relative to its last level, may be higher before, and is not drawn then."""

MATCH, HISTORY = "match (attention to the earlier copy)", "history (share of its final level)"


def _formation(config: PermutationStudyConfig) -> Figure | None:
    shown = taken_apart(config)[:1]
    if not shown:
        return None
    series = partial(formation_series, shown[0])
    value = Axis("share", (0.0, HIGHEST))
    return lines("formation", series, value, time="samples", columns=3, height=110)


def formation_series(found: Configuration, evidence: "Evidence") -> list[Series]:
    """Both skills, match of the head that is best at the end, and history over its own last level, seed by seed.

    The last level of history is its mean over the last checkpoints.  A member without a best head diverged.
    """
    if "best_head" not in evidence:
        return []
    here = evidence.where(configuration=found.name)
    heads = here.last("best_head", measure="formation").dropna().head(SHOWN_SEEDS).astype(int).to_dict()
    history = here.curve("history", measure="formation")
    series = []
    for member, head in heads.items():
        of_member = {"measure": "formation", "member": member}
        of_head = {**of_member, "layer": 0, "head": head}
        series += [Series(skill, skill, panel="seed {seed}", where=of_member) for skill in SKILLS]
        series.append(Series("match", MATCH, panel="seed {seed}", where=of_head))
        last = history[member].dropna().to_list()[-FINAL_EVALUATIONS:]
        if last and fmean(last) > 0:
            series.append(Series("history", HISTORY, panel="seed {seed}", where=of_member, over=fmean(last)))
    return series


def _formation_order(config: PermutationStudyConfig) -> Figure | None:
    shown = taken_apart(config)[:1]
    value = Axis("training samples seen", format="~s")
    return dots("formation_order", partial(order_series, shown[0]), value, height=40) if shown else None


FALL = "steepest fall of the loss"


def order_series(found: Configuration, evidence: "Evidence") -> list[Series]:
    """When each part was half-way, seed by seed, and the interval in which the checkpoints leave it.

    The training loss has its evaluations for a clock, the others the checkpoints.  What never formed is not shown.
    """
    series = []
    for member, seed in evidence.where(configuration=found.name).seeds.items():
        for part in ("match", "history", "recall"):
            time, *ends = ({"part": f"{part}.half.{end}"} for end in ("time", "low", "high"))
            where = {"measure": "formation", "member": member, **time}
            series.append(Series("formed", part, y=f"seed {seed}", where=where, ends=(ends[0], ends[1])))
        where = {"measure": "transition", "member": member, "part": "steepest_fall"}
        series.append(Series("time", FALL, y=f"seed {seed}", where=where, ends=("low", "high")))
    return where_measured(series)(evidence)


# Ideal observers.

MAPPINGS = {"train": "training mappings", "held_out": "held-out mappings"}
"""Sets of mappings, by split, and what they are called."""

OBSERVERS = {"kl_uniform": "all mappings equally likely", "kl_training": "only training mappings"}
"""Divergences from the ideal observers, and what these hold possible."""

LEAST_DIVERGENCE = 1e-7
"""Divergences below this are rounding (32 bits), and are drawn here."""

PRINTED = "published (one seed)"


def _posterior(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        series_of(each, divergence, "posteriors", f"step_{step}", split, name=observer, x=f"{step}",
                  panel=f"{each.name}, {mappings}", least=LEAST_DIVERGENCE)
        for each in main(config)
        for split, mappings in MAPPINGS.items()
        for divergence, observer in OBSERVERS.items()
        for step in _steps(config, each)
    ]  # fmt: skip
    value = Axis("divergence (nats)", format="~e", log=True)
    return _made(sweep, "posterior", shown, value, across=Axis("step"), height=170)


def _accuracy_by_step(config: PermutationStudyConfig) -> Figure | None:
    def chance(found: Configuration, step: int) -> float:
        return 1 / (config.task(found).values - step + 1)

    shown = [
        series_of(each, "accuracy", "posteriors", f"step_{step}", split, name=mappings, x=f"{step}",
                  panel=each.name, less=chance(each, step))
        for each in main(config)
        for split, mappings in MAPPINGS.items()
        for step in _steps(config, each)
    ]  # fmt: skip
    printed = [
        Mark(accuracy - chance(each, step), PRINTED, panel=each.name, at=f"{step}")
        for each in main(config)
        if config.task(each).values == VALUES
        # What it prints after these is of sequences with a repeat.
        for step, accuracy in enumerate(BY_STEP.get(each.name, {}).get("accuracy", ())[:VALUES], start=1)
    ]
    value = Axis("accuracy less chance (points)", format="+%")
    marks = [Mark(0.0, "chance"), *printed]
    return _made(sweep, "accuracy_by_step", shown, value, across=Axis("step"), marks=marks, height=210)


def _steps(config: PermutationStudyConfig, found: Configuration) -> range:
    return range(1, config.task(found).values + 1)


def _tilt(config: PermutationStudyConfig) -> Figure | None:
    arms = (("tilt_correlation", "model", False), ("tilt_control", "tilts of other sequences", True))
    shown = [
        series_of(each, metric, "posteriors", name=name, y=each.name, hollow=hollow)
        for each in config.grid()
        if config.is_asked(each)
        for metric, name, hollow in arms
    ]
    value = Axis("correlation with the tilt of the training mappings")
    return _made(dots, "tilt", shown, value, marks=[Mark(0.0, "no correlation")])


# Heads and causal tests.


def _attention(config: PermutationStudyConfig) -> Figure | None:
    def drawn(evidence: "Evidence") -> Drawing:
        from hopscope.studies.permutation.figures_own import attention  # loads the chart library

        return attention(config, evidence)

    return chart("attention", drawn) if config.base() else None


def _head_roles(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        each for each in config.base() if config.is_whole(each) and (each.data == "repeats" or each.heads > 1)
    ]

    def drawn(evidence: "Evidence") -> Drawing:
        from hopscope.studies.permutation.figures_own import head_roles  # loads the chart library

        return head_roles(shown, evidence)

    return chart("head_roles", drawn) if shown else None


UNCHANGED = "nothing changed"
TESTS = {
    "position_code_swap": "position codes of x_j and x_k exchanged (values)",
    "y_swap": "y_j and y_k exchanged (values)",
    "attention_swap": "attention to x_j and x_k exchanged",
    "head_interchange": "all heads' output from the same pairs with x_k repeated",
    "mlp_interchange": "FFN output from the same pairs with x_k repeated",
}
"""Tests of the battery whose answer is y_j, y_k or neither, and what they change at the last row."""

BECOMES, STAYS = "becomes y_k", "stays y_j"


def _battery(config: PermutationStudyConfig) -> Figure | None:
    outcomes = [("clean", UNCHANGED, "recall", STAYS, False)]
    for test, label in TESTS.items():
        outcomes += [
            (test, label, "to_other", BECOMES, False),
            (test, label, "stays", STAYS, False),
            (test, label, "control_stays", STAYS, True),
        ]
    shown = [
        series_of(each, metric, "battery", test, name=answer, y=label, panel=each.name, hollow=control)
        for each in taken_apart(config)
        for test, label, metric, answer, control in outcomes
    ]
    value = Axis("share of answers to held-out repeats", SHARE, "%")
    return _made(dots, "battery", shown, value, height=44)


ABLATIONS = {
    UNCHANGED: ("clean", ""),
    "FFN output: its mean": ("mlp_ablation.mean", ""),
    "FFN output: another sequence's": ("mlp_ablation.resample", ""),
    "FFN output: zero": ("mlp_ablation.zero", ""),
    "attention to all y made equal": ("equal_y_weights", ""),
    "control: attention to other x made equal": ("equal_y_weights", "control_"),
}
"""What is taken away at the last row, and where the accuracies stand: a part, and a prefix of the metric."""


def _ablation(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        series_of(each, f"{prefix}{skill}", "battery", part, name=skill, y=label, panel=each.name)
        for each in taken_apart(config)
        for label, (part, prefix) in ABLATIONS.items()
        for skill in SKILLS
    ]
    guess = [Mark(1 / (config.task(each).values - 1), GUESS) for each in taken_apart(config)[:1]]
    return _made(dots, "ablation", shown, ACCURACY, marks=guess, height=36)


# What probes read.

PROBES = {"linear": "linear probe", "mlp": "MLP probe"}


def decoded(values: int) -> dict[str, tuple[str, str, str]]:
    """What is decoded: label → metric, the part of it before the probe's name, and the part of its floor."""
    answer = "answer of a repeat"
    return {
        f"{answer}, before the FFN": ("answer", "repeats.before.", "used"),
        f"{answer}, after the FFN": ("answer", "repeats.after.", "used"),
        f"{answer}, one row too early (control)": ("answer", "repeats.earlier_row.", "earlier_row.repeats"),
        f"{answer}, labels shuffled (control)": ("shuffled", "", "uniform"),
        "pointer: which slot is repeated": ("pointer", "", "majority.pointer"),
        **{
            f"history: y of slot {slot}": ("history", f"slot_{slot}.", f"majority.history.slot_{slot}")
            for slot in range(1, values)
        },
    }


def _decoding(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        series_of(each, metric, "decoding", f"{before}{part}{probe}", name=name, y=label, panel=each.name,
                  hollow=bool(before))
        for each in taken_apart(config)
        for label, (metric, part, _) in decoded(config.task(each).values).items()
        for before in ("", "untrained.")
        for probe, name in PROBES.items()
    ]  # fmt: skip
    value = Axis("accuracy of the probe (held-out mappings)", SHARE, "%")
    marks = partial(_floors_of_probes, config)
    return _made(dots, "decoding", shown, value, marks=marks)


def _floors_of_probes(config: PermutationStudyConfig, evidence: "Evidence") -> list[Mark]:
    marks: list[Mark] = []
    for each in taken_apart(config) if "floors" in evidence else []:
        for label, (_, _, floor) in decoded(config.task(each).values).items():
            rows = evidence.rows("floors", measure="decoding", part=floor, configuration=each.name)
            known = rows["value"].dropna()
            if len(known):
                marks.append(Mark(float(known.iloc[0]), "floor (guess)", panel=each.name, at=label))
    return marks


# One thing at a time.


def _recall_by_slot(config: PermutationStudyConfig) -> Figure | None:
    shown = [
        series_of(each, "recall", "probes", f"slot_{slot}", x=f"x{slot}", panel=each.name)
        for each in config.base()
        for slot in _steps(config, each)
    ]
    value = Axis("recall", (-0.03, 1.03), "%")
    return _made(sweep, "recall_by_slot", shown, value, across=Axis("which x came back"), height=150)


def _readings(config: PermutationStudyConfig) -> Figure | None:
    """The largest configuration with repeats, and what differs from it in nothing but the readings."""
    largest = largest_with_repeats(config.base())[:1]
    known = [
        each
        for each in config.grid()
        if config.is_asked(each) and replace(each, batch_size=None, positions=None) in largest
    ]
    if len(known) < 2:
        return None
    shown = [
        series_of(each, skill, "probes", name=skill, y=reading_words(config, each))
        for each in known
        for skill in SKILLS
    ]
    guess = [Mark(1 / (config.values - 1), GUESS)]
    return _made(dots, "readings", shown, ACCURACY, marks=guess, height=40)


LEAST_POINTS = 3
"""Points on the axis of a sweep; fewer show no course."""


def _sweep_values(config: PermutationStudyConfig) -> Figure | None:
    """Of the models that recall and of those that memorise, as far as there are several numbers of values."""
    panels = {
        "repeats": ("recall (trained with repeats)", "recall", "probes", "held_out"),
        "plain": ("way to memorising (plain data)", "memorised_share", "posteriors", "train"),
    }
    shown, guesses = [], []
    for data, (panel, metric, measure, split) in panels.items():
        of_values = [(config.task(each).values, each) for each in swept(config, data, "values")]
        numbers = sorted({values for values, _ in of_values})
        if len(numbers) < 2:
            continue
        shown += [
            series_of(each, metric, measure, split=split, x=values, panel=panel) for values, each in of_values
        ]
        guesses += [
            Mark(1 / among, label, panel=panel, at=values)
            for values in (numbers if data == "repeats" else ())
            for label, among in ((GUESS, values - 1), ("guess among all values", values))
        ]
    across = Axis("V, number of values", format="d")
    value = Axis("share", format="%")
    return _made(sweep, "sweep_values", shown, value, across=across, marks=guesses, height=230)


def _sweep_capacity(config: PermutationStudyConfig) -> Figure | None:
    known = [each for each in config.grid() if each.data == "repeats" and not each.changes]
    if len({each.width for each in known}) < LEAST_POINTS:
        return None
    shown = [
        series_of(each, "recall", "probes", x=each.width, name=f"{each.heads} head{'s' * (each.heads > 1)}")
        for each in sorted(known, key=lambda each: (each.heads, each.width))
    ]
    value = Axis("recall (held-out mappings)", SHARE, "%")
    return _made(sweep, "sweep_capacity", shown, value, across=Axis("width of the model"))


def _sweep_ratio(config: PermutationStudyConfig) -> Figure | None:
    known = swept(config, "repeats", "repeat_ratio")
    if len(known) < LEAST_POINTS:
        return None
    shown = [
        series_of(each, skill, "probes", name=skill, x=config.task(each).repeat_ratio)
        for each in known
        for skill in SKILLS
    ]
    across = Axis("share of training sequences with a repeat", SHARE, "%")
    return _made(sweep, "sweep_ratio", shown, ACCURACY, across=across)


OUTLINED = "outlined: in the training data"


def _sweep_slots(config: PermutationStudyConfig) -> Figure | None:
    known = swept(config, "repeats", "repeat_slots", "repeat_sources")
    if len(known) < 2:
        return None
    shown = [
        series_of(each, "recall", "slots", f"slot_{slot}.source_{source}", x=f"{source}", y=f"{slot}",
                  panel=training_words(config, each), outline=OUTLINED if (slot, source) in trained else "")
        for each in known
        for trained in [set(config.task(each).repeat_pairs())]
        for slot in _steps(config, each)
        for source in range(1, slot)
    ]  # fmt: skip
    across = Axis("slot that it copies")
    value = Axis("mean recall", SHARE, "%")
    return _made(cells, "sweep_slots", shown, value, across=across, down="slot of the repeat", columns=3,
                 height=23)  # fmt: skip


_EVERY: tuple[Callable[[PermutationStudyConfig], Figure | None], ...] = (
    _loss, _skills, _recall_by_slot, _posterior, _accuracy_by_step, _tilt, _attention, _head_roles, _battery,
    _ablation, _decoding, _formation, _formation_order, _readings, _sweep_values, _sweep_capacity, _sweep_ratio,
    _sweep_slots,
)  # fmt: skip
