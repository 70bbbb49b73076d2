"""The figures of the permutation study, from the evidence table alone.

Which figures a run has depends on what it trains, and is known from its configuration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hopscope.figures import Figure, cells, chart, dots, lines, sweep
from hopscope.figures.series import SHARE, Axis, Mark, Series, where_measured
from hopscope.runs.evidence_table import TRAINING
from hopscope.studies.analysis import deferred
from hopscope.studies.permutation.config import PUBLISHED, Configuration, PermutationStudyConfig
from hopscope.studies.permutation.probes.change_points import FINAL_EVALUATIONS
from hopscope.studies.permutation.published import BY_STEP, VALUES
from hopscope.tasks.config import training_mappings
from hopscope.theory.posteriors import (
    blind_to_repeats_floor,
    elimination_floor,
    training_floor,
    unbound_repeats_floor,
)
from hopscope.words import counted

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SKILLS = ("elimination", "recall")
"""In the order of their colours."""

ACCURACY = Axis("accuracy (held-out mappings)", SHARE, "%")
GUESS = "guess among values shown"

_OWN = "hopscope.studies.permutation.figures_own"


def figures(config: PermutationStudyConfig) -> tuple[Figure, ...]:
    """Every figure that a run of a configuration has something to show in.  Loads no torch and no chart library."""
    parts = (_curves, _observers, _heads, _probes, _formation, _sweeps, _verdicts)
    return tuple(filter(None, map(_of_measured, chain.from_iterable(part(config) for part in parts))))


def _verdicts(config: PermutationStudyConfig) -> Iterator[Figure]:
    if len(config.readings()) > 1:
        yield chart("verdicts_by_reading", partial(deferred(f"{_OWN}:by_reading"), config))


def _of_measured(figure: Figure) -> Figure | None:
    """A figure without the series that a run did not measure; none if the configuration has no series for it."""
    shown = figure.series
    if shown is None or callable(shown.series):
        return figure
    if not shown.series:
        return None
    return replace(figure, series=replace(shown, series=where_measured(shown.series)))


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


def _steps(config: PermutationStudyConfig, found: Configuration) -> range:
    return range(1, config.task(found).values + 1)


# Curves of training.


def _curves(config: PermutationStudyConfig) -> Iterator[Figure]:
    known = floors(config)
    low, high = min(known.values()), max(known.values())
    along: dict[str, Any] = {"across": Axis("training samples per seed"), "time": "samples"}
    yield lines(
        "loss",
        [series_of(each, "loss", TRAINING, split="train", name=each.name) for each in config.base()],
        Axis("training loss (nats per answer)", (low - 0.02, max(high + 0.05, low + 0.33))),
        marks=[Mark(value, f"{name} {value:.4f}") for name, value in known.items()],
        height=320,
        **along,
    )
    skills = [
        series_of(each, skill, TRAINING, name=skill, panel=each.name)
        for each in config.base()
        for skill in SKILLS
    ]
    yield lines("skills", skills, Axis("held-out accuracy", SHARE, "%"), height=170, **along)
    by_slot = [
        series_of(each, "recall", "probes", f"slot_{slot}", x=f"x{slot}", panel=each.name)
        for each in config.base()
        for slot in _steps(config, each)
    ]
    value, across = Axis("recall", (-0.03, 1.03), "%"), Axis("which x came back")
    yield sweep("recall_by_slot", by_slot, value, across=across, height=150)


# Ideal observers.

MAPPINGS = {"train": "training mappings", "held_out": "held-out mappings"}
"""Sets of mappings, by split, and what they are called."""

OBSERVERS = {"kl_uniform": "all mappings equally likely", "kl_training": "only training mappings"}
"""Divergences from the ideal observers, and what these hold possible."""

LEAST_DIVERGENCE = 1e-7
"""Divergences below this are rounding (32 bits), and are drawn here."""


def _observers(config: PermutationStudyConfig) -> Iterator[Figure]:
    def chance(found: Configuration, step: int) -> float:
        return 1 / (config.task(found).values - step + 1)

    places = [(each, split, mappings) for each in main(config) for split, mappings in MAPPINGS.items()]
    divergences = [
        series_of(each, divergence, "posteriors", f"step_{step}", split, name=observer, x=f"{step}",
                  panel=f"{each.name}, {mappings}", least=LEAST_DIVERGENCE)
        for each, split, mappings in places
        for divergence, observer in OBSERVERS.items()
        for step in _steps(config, each)
    ]  # fmt: skip
    value = Axis("divergence (nats)", format="~e", log=True)
    yield sweep("posterior", divergences, value, across=Axis("step"), height=170)
    accuracies = [
        series_of(each, "accuracy", "posteriors", f"step_{step}", split, name=mappings, x=f"{step}",
                  panel=each.name, less=chance(each, step))
        for each, split, mappings in places
        for step in _steps(config, each)
    ]  # fmt: skip
    printed = [
        Mark(accuracy - chance(each, step), "published (one seed)", panel=each.name, at=f"{step}")
        for each in main(config)
        if config.task(each).values == VALUES
        # What it prints after these is of sequences with a repeat.
        for step, accuracy in enumerate(BY_STEP.get(each.name, {}).get("accuracy", ())[:VALUES], start=1)
    ]
    value, marks = Axis("accuracy less chance (points)", format="+%"), [Mark(0.0, "chance"), *printed]
    yield sweep("accuracy_by_step", accuracies, value, across=Axis("step"), marks=marks, height=210)
    tilts = [
        series_of(each, metric, "posteriors", name=name, y=each.name, hollow=metric == "tilt_control")
        for each in config.grid()
        if config.is_asked(each)
        for metric, name in (("tilt_correlation", "model"), ("tilt_control", "tilts of other sequences"))
    ]
    value = Axis("correlation with the tilt of the training mappings")
    yield dots("tilt", tilts, value, marks=[Mark(0.0, "no correlation")])


# Heads and causal tests.

UNCHANGED = "nothing changed"
TESTS = {
    "position_code_swap": "position codes of x_j and x_k exchanged (values)",
    "y_swap": "y_j and y_k exchanged (values)",
    "attention_swap": "attention to x_j and x_k exchanged",
    "head_interchange": "all heads' output from the same pairs with x_k repeated",
    "mlp_interchange": "FFN output from the same pairs with x_k repeated",
}
"""Tests of the battery whose answer is y_j, y_k or neither, and what they change at the last row."""

STAYS = "stays y_j"
OUTCOMES = {"to_other": "becomes y_k", "stays": STAYS, "control_stays": STAYS}
"""What these tests count, and what becomes of the answer."""

ABLATIONS = {
    UNCHANGED: ("clean", ""),
    "FFN output: its mean": ("mlp_ablation.mean", ""),
    "FFN output: another sequence's": ("mlp_ablation.resample", ""),
    "FFN output: zero": ("mlp_ablation.zero", ""),
    "attention to all y made equal": ("equal_y_weights", ""),
    "control: attention to other x made equal": ("equal_y_weights", "control_"),
}
"""What is taken away at the last row, and where the accuracies stand: a part, and a prefix of the metric."""


def _heads(config: PermutationStudyConfig) -> Iterator[Figure]:
    if config.base():
        yield chart("attention", partial(deferred(f"{_OWN}:attention"), config))
    several = [
        each for each in config.base() if config.is_whole(each) and (each.data == "repeats" or each.heads > 1)
    ]
    if several:
        yield chart("head_roles", partial(deferred(f"{_OWN}:head_roles"), several))
    outcomes = [("clean", UNCHANGED, "recall", STAYS)]
    outcomes += [
        (test, label, metric, answer) for test, label in TESTS.items() for metric, answer in OUTCOMES.items()
    ]
    answers = [
        series_of(each, metric, "battery", test, name=answer, y=label, panel=each.name,
                  hollow=metric == "control_stays")
        for each in taken_apart(config)
        for test, label, metric, answer in outcomes
    ]  # fmt: skip
    yield dots("battery", answers, Axis("share of answers to held-out repeats", SHARE, "%"), height=44)
    skills = [
        series_of(each, f"{prefix}{skill}", "battery", part, name=skill, y=label, panel=each.name)
        for each in taken_apart(config)
        for label, (part, prefix) in ABLATIONS.items()
        for skill in SKILLS
    ]
    guess = [Mark(1 / (config.task(each).values - 1), GUESS) for each in taken_apart(config)[:1]]
    yield dots("ablation", skills, ACCURACY, marks=guess, height=36)


# What probes read.


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


def _probes(config: PermutationStudyConfig) -> Iterator[Figure]:
    shown = [
        series_of(each, metric, "decoding", f"{before}{part}{probe}", name=name, y=label, panel=each.name,
                  hollow=bool(before))
        for each in taken_apart(config)
        for label, (metric, part, _) in decoded(config.task(each).values).items()
        for before in ("", "untrained.")
        for probe, name in (("linear", "linear probe"), ("mlp", "MLP probe"))
    ]  # fmt: skip
    value = Axis("accuracy of the probe (held-out mappings)", SHARE, "%")
    yield dots("decoding", shown, value, marks=partial(_floors_of_probes, config))


def _floors_of_probes(config: PermutationStudyConfig, evidence: "Evidence") -> list[Mark]:
    marks: list[Mark] = []
    for each in taken_apart(config) if "floors" in evidence else []:
        for label, (_, _, floor) in decoded(config.task(each).values).items():
            rows = evidence.rows("floors", measure="decoding", part=floor, configuration=each.name)
            known = rows["value"].dropna()
            if len(known):
                marks.append(Mark(float(known.iloc[0]), "floor (guess)", panel=each.name, at=label))
    return marks


# What formed when.

SHOWN_SEEDS = 10
"""Seeds whose formation has a panel."""

HIGHEST = 1.2
"""Top of the axis: history, relative to its last level, may be higher before, and is not drawn then."""

MATCH, HISTORY = "match (attention to the earlier copy)", "history (share of its final level)"
FALL = "steepest fall of the loss"


def _formation(config: PermutationStudyConfig) -> Iterator[Figure]:
    for each in taken_apart(config)[:1]:
        curves, order = partial(formation_series, each), partial(order_series, each)
        yield lines("formation", curves, Axis("share", (0.0, HIGHEST)), time="samples", columns=3, height=110)
        yield dots("formation_order", order, Axis("training samples seen", format="~s"), height=32)


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


# One thing at a time.

LEAST_POINTS = 3
"""Points on the axis of a sweep; fewer show no course."""

OUTLINED = "outlined: in the training data"


def _sweeps(config: PermutationStudyConfig) -> Iterator[Figure]:
    yield from _readings(config)
    yield from _values(config)
    models = [each for each in config.grid() if each.data == "repeats" and not each.changes]
    if len({each.width for each in models}) >= LEAST_POINTS:
        recall = [
            series_of(each, "recall", "probes", x=each.width, name=counted(each.heads, "head"))
            for each in sorted(models, key=lambda each: (each.heads, each.width))
        ]
        value, across = Axis("recall (held-out mappings)", SHARE, "%"), Axis("width of the model")
        yield sweep("sweep_capacity", recall, value, across=across)
    ratios = swept(config, "repeats", "repeat_ratio")
    if len(ratios) >= LEAST_POINTS:
        skills = [
            series_of(each, skill, "probes", name=skill, x=config.task(each).repeat_ratio)
            for each in ratios
            for skill in SKILLS
        ]
        across = Axis("share of training sequences with a repeat", SHARE, "%")
        yield sweep("sweep_ratio", skills, ACCURACY, across=across)
    yield from _slots(config)


def _readings(config: PermutationStudyConfig) -> Iterator[Figure]:
    """The largest configuration with repeats, and what differs from it in nothing but the readings."""
    largest = largest_with_repeats(config)[:1]
    known = [
        each
        for each in config.grid()
        if config.is_asked(each) and replace(each, batch_size=None, positions=None) in largest
    ]
    if len(known) > 1:
        shown = [
            series_of(each, skill, "probes", name=skill, y=reading_words(config, each))
            for each in known
            for skill in SKILLS
        ]
        yield dots("readings", shown, ACCURACY, marks=[Mark(1 / (config.values - 1), GUESS)], height=40)


def _values(config: PermutationStudyConfig) -> Iterator[Figure]:
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
    across, value = Axis("V, number of values", format="d"), Axis("share", format="%")
    yield sweep("sweep_values", shown, value, across=across, marks=guesses, height=230)


def _slots(config: PermutationStudyConfig) -> Iterator[Figure]:
    known = swept(config, "repeats", "repeat_slots", "repeat_sources")
    if len(known) > 1:
        shown = [
            series_of(each, "recall", "slots", f"slot_{slot}.source_{source}", x=f"{source}", y=f"{slot}",
                      panel=training_words(config, each), outline=OUTLINED if (slot, source) in trained else "")
            for each in known
            for trained in [set(config.task(each).repeat_pairs())]
            for slot in _steps(config, each)
            for source in range(1, slot)
        ]  # fmt: skip
        across, value = Axis("slot that it copies"), Axis("mean recall", SHARE, "%")
        yield cells(
            "sweep_slots", shown, value, across=across, down="slot of the repeat", columns=3, height=23
        )


# Which configurations are shown, and what they are called.


def main(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that the presentation shows results of; without any of them, the first two others."""
    known = config.base()
    return [each for each in known if each.name in PUBLISHED] or known[:2]


def largest_with_repeats(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that train with repeats, the largest model first."""
    with_repeats = (each for each in config.base() if each.data == "repeats")
    return sorted(with_repeats, key=lambda each: (each.width, each.heads), reverse=True)


def taken_apart(config: PermutationStudyConfig) -> list[Configuration]:
    """The two largest of these, if the mechanism of recall is measured at all."""
    return [each for each in largest_with_repeats(config) if config.is_whole(each)][:2]


def swept(config: PermutationStudyConfig, data: str, *changed: str) -> list[Configuration]:
    """Configurations that differ in nothing but the fields `changed`, of the model that has most of them."""
    by_model: dict[tuple[int, int], list[Configuration]] = {}
    for each in config.grid():
        if each.data == data and set(each.changes) <= set(changed):
            by_model.setdefault((each.width, each.heads), []).append(each)
    return max(by_model.values(), key=len, default=[])


def floors(config: PermutationStudyConfig) -> dict[str, float]:
    """Loss of ideal observers, in nats, by name.

    One holds all V! mappings equally likely, one knows which are used in training.  Where training has repeats of the
    presentation's kind, one more sees the values used but never that an x came back, and one sees that too but not
    which value stood beside it.
    """
    known = training_mappings(config.values, config.held_out_share)
    found = {
        "elimination floor": elimination_floor(config.values),
        "training-mappings floor": training_floor(config.values, known),
    }
    page_repeats = not config.repeat_slots and not config.repeat_sources
    if page_repeats and any(configuration.data == "repeats" for configuration in config.grid()):
        found["repeats not noticed"] = blind_to_repeats_floor(config.values, config.repeat_ratio)
        found["repeats noticed, not recalled"] = unbound_repeats_floor(config.values, config.repeat_ratio)
    return found


POSITIONS = {
    "learned": "a code for each position",
    "pair": "one code for each pair",
    "none": "no position codes",
}


def reading_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Batch size and position codes in words."""
    here = config.of(configuration)
    return f"batch {here.batch_size}, {POSITIONS[here.positions]}"


def training_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Which slots repeat in a configuration's training, in words."""
    task = config.task(configuration)

    def in_words(slots: Sequence[int]) -> str:
        *first, last = map(str, sorted(set(slots)))
        return f"slots {', '.join(first)} or {last}" if first else f"slot {last}"

    sources = in_words(task.repeat_sources) if task.repeat_sources else "any before"
    return f"{in_words(task.repeat_slots or (task.values,))} repeats {sources}"
