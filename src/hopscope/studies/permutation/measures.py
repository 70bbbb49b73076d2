"""What is measured of permutation models: metrics stand in the docstrings, with the parts that they have.

Everything is asked on held-out mappings, unless a row's split is `train`; for V = 5 on all their sequences.  Of
configurations that only a sweep needs the basic numbers are measured, of the others everything.

Causal tests tell two accounts of recall apart, in models of one layer, whose last row reads embeddings and never what
other rows computed.  The *presentation's* (sections 10, 11): y rows attend to themselves and x rows to the y before,
which binds each pair; the MLP recognises a repeated x and looks its y up.  The *pointer* account: at the last row one
head attends to the earlier copy of x and imports its position code; a head with distinct weights for the slots writes a
weighted sum of the y's; the MLP uses the first to select from the second.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import Crossing, Rise, rise
from hopscope.studies.chains import measures as chains
from hopscope.study.measure import Context, measure
from hopscope.tasks.permutation import LARGEST_LISTED
from hopscope.theory.posteriors import elimination_floor, training_floor

if TYPE_CHECKING:
    import pandas as pd

Rows = Iterator[dict[str, Any]]

SCORES = ("elimination", "recall", "mass_recalled")
"""What is followed through training."""

CURVE_SEQUENCES, FORMATION_SEQUENCES = 512, 240
"""Sequences of each kind, with a repeat and without, on the curves, and at every checkpoint."""

SAMPLED_PROBES = 1_500
"""Repeats among the 5,000 test sequences that the presentation measures, at 30 % (section 9)."""

MOST_MAPPINGS = math.factorial(6)
"""Above so many training mappings (V ≥ 7 at the usual shares) the posterior under them is not worked out."""

LEAST_RECALL = 0.25
"""How far above chance recall must end for the member to have learned it."""

_LATE_EPOCHS, _FINAL = 5, 3  # epochs of `late`, and evaluations whose mean is a curve's end


def _is_whole(context: Context) -> bool:
    return context.job.label in context.options.whole


def _listed(
    context: Context, data: str, held_out: bool = True, limit: int = LARGEST_LISTED, **changes: Any
) -> Any:
    task: Any = context.task.model_copy(update=changes)
    return task.listed(data, held_out, limit, context.job.device)


@measure(when="training", name="training")
def training(context: Context) -> dict[str, Any]:
    """`elimination`, `recall` and `mass_recalled` through training, on a fixed part of the held-out sequences."""
    from hopscope.studies.permutation import answers

    plain, repeats = (_listed(context, data, limit=CURVE_SEQUENCES) for data in ("plain", "repeats"))
    found = answers.at_repeat(context.ensemble, repeats)
    found["elimination"] = answers.right(answers.predicted(context.ensemble, plain), plain)[..., -1]
    return {name: found[name].mean(1) for name in SCORES}


@measure
def probes(context: Context) -> dict[str, Any]:
    """Both skills at the end.

    `elimination`: accuracy at the last step without a repeat.  At a repeat `recall` (also by the slot that is copied,
    `slot_k`), `mass_recalled` and `mass_unused` (probability of the value seen before, and of the unused ones),
    `repeat_mae`, `repeat_max_ae` and, expected among as many as the presentation probes, `repeat_max_ae_of_sample`.
    `exhaustive`, parts `plain` and `repeats`: whether the sequences are all there are.
    """
    from hopscope.studies.permutation import answers

    task: Any = context.task
    plain, repeats = (_listed(context, data) for data in ("plain", "repeats"))
    found = answers.at_repeat(context.ensemble, repeats)
    source = repeats.relations["same_symbol"][0].amax(-1) // 2
    recall, largest = found["recall"], found["largest_error"]
    return {
        "elimination": answers.right(answers.predicted(context.ensemble, plain), plain)[..., -1].mean(1),
        **{name: found[name].mean(1) for name in ("recall", "mass_recalled", "mass_unused")},
        **{f"recall@slot_{slot + 1}": recall[:, source == slot].mean(1) for slot in sorted({*source.tolist()})},
        "repeat_mae": found["mean_error"].mean(1),
        "repeat_max_ae": largest.amax(1),
        "repeat_max_ae_of_sample": answers.expected_maximum(largest, SAMPLED_PROBES),
        **{f"exhaustive@{data}": [float(task.listed_count(data) <= LARGEST_LISTED)] * len(recall)
           for data in ("plain", "repeats")},
    }  # fmt: skip


@measure
def slots(context: Context) -> dict[str, Any] | None:
    """`recall` by the slot of a repeat and the slot it copies, `slot_3.source_1`, whatever slots training repeats."""
    from hopscope.studies.permutation import answers

    task: Any = context.task
    if not task.repeat_ratio:
        return None
    batch = _listed(context, "repeats", repeat_slots=(*range(2, task.values + 1),), repeat_sources=())
    recall = answers.at_repeat(context.ensemble, batch)["recall"]
    source, slot = (
        batch.relations["same_symbol"][0].amax(-1) // 2,
        batch.roles["repeat"][0, :, ::2].argmax(-1),
    )
    found = {}
    for later in range(1, task.values):
        for earlier in range(later):
            pair = (slot == later) & (source == earlier)
            found[f"recall@slot_{later + 1}.source_{earlier + 1}"] = recall[:, pair].mean(1)
    return found


@measure
def posteriors(context: Context) -> Rows:
    """Members against two ideal observers, without a repeat, by step (`step_k`) and split.

    One observer holds all mappings equally likely, one knows which are training mappings.  Held-out ones are the
    complement of these, so whatever a member knows of the second pushes it below chance on them.

    `accuracy`, `kl_uniform`, `kl_training`, `mae_uniform`, `max_ae_uniform`, `used_mass_mean` (of values shown before);
    without a step `held_out_loss`, `tilt_correlation`, `tilt_slope`, `tilt_control` (see `answers.tilt`),
    `train_minus_held_out` (accuracy, steps before the last) and, of training mappings, `memorised_share`: how far the
    loss has gone from the first observer's to the second's.
    """
    import torch

    from hopscope.studies.permutation import answers

    task: Any = context.task
    count, accuracy = task.mappings(False), dict[str, Any]()
    for split in ("train", "held_out"):
        batch = _listed(context, "plain", split == "held_out")
        found, uniform = answers.predicted(context.ensemble, batch), answers.even(batch)
        error, loss = (found - uniform)[..., 1:].abs(), answers.loss(found, batch)
        accuracy[split] = answers.right(found, batch).mean(1)
        by_step = {
            "accuracy": accuracy[split],
            "kl_uniform": answers.divergence(uniform, found),
            "mae_uniform": error.mean((1, 3)),
            "max_ae_uniform": error.amax((1, 3)),
            "used_mass_mean": (found * answers.used(batch)).sum(-1).double().mean(1),
        }
        held_out = split == "held_out"
        whole = {"held_out_loss": loss} if held_out else {"memorised_share": _memorised(loss, task)}
        if count <= MOST_MAPPINGS:
            known = answers.informed(batch, task.mapping(torch.arange(count, device=loss.device), False))
            by_step["kl_training"] = answers.divergence(known, found)
            if held_out:
                whole |= answers.tilt(found, uniform, known, task.split_seed)
        for name, values in by_step.items():
            whole |= {f"{name}@step_{step}": value for step, value in enumerate(values.unbind(1), 1)}
        for name, value in whole.items():
            if not value.isnan().all():  # no training mapping fits all that is shown of a held-out one
                yield {"metric": name, "value": value, "split": split}
    gap = accuracy["train"] - accuracy["held_out"]
    yield {"metric": "train_minus_held_out", "value": gap[:, :-1].mean(1)}


def _memorised(loss: Any, task: Any) -> Any:
    uniform, known = elimination_floor(task.values), training_floor(task.values, task.mappings(False))
    return (uniform - loss) / (uniform - known)


# Read off the record of training.


def _curve(context: Context, metric: str, split: str = "held_out") -> Any:
    # Values by step and member; those that diverged have none.
    gone = [step is not None for step in context.unit.diverged_at(context.step or 0)]
    curve = context.evidence.curve(metric, split=split)[[*context.members]]
    return curve.mask([gone] * len(curve))


def _late(context: Context, epochs: int, metric: str, split: str = "held_out") -> Any:
    # The same of the last epochs.
    per_epoch = max(1, context.options.samples_per_epoch // int(context.job.training.batch_size))
    curve = _curve(context, metric, split)
    return curve[curve.index > curve.index[-1] - epochs * per_epoch]


@measure
def last_epoch(context: Context) -> Rows:
    """`last_epoch_loss` (train): the mean training loss of the last epoch."""
    import numpy as np

    # Each value is a mean over the steps since the one before.
    late, steps = _late(context, 1, "loss", "train"), _curve(context, "loss", "train").index
    since = np.diff(steps, prepend=0)[-len(late) :]
    yield {"metric": "last_epoch_loss", "value": since @ late.to_numpy() / since.sum(), "split": "train"}


@measure
def late(context: Context) -> Rows:
    """Medians of the last five epochs: `elimination`, `recall`, `mass_recalled`; on plain data `memorised_share`."""
    task: Any = context.task
    for metric in SCORES:
        yield {"metric": metric, "value": _late(context, _LATE_EPOCHS, metric).median(skipna=False)}
    if not task.repeat_ratio:
        loss = _late(context, _LATE_EPOCHS, "loss", "train").median(skipna=False)
        yield {"metric": "memorised_share", "value": _memorised(loss, task), "split": "train"}


@measure
def transition(context: Context) -> dict[str, Any]:
    """How sudden recall was (P5), in training samples; infinite where it never came.

    The rise of held-out recall is taken `from_zero`, and `from_chance`, which is 1/(V - 1): noticing that x came back
    lifts it so far.  `time` of `from_zero.start`, `.half`, `.end` (10 %, 50 %, 90 % of the way), `width` between the
    first and the last, `relative_width` (of the time to the half), this also of elimination: `elimination.from_zero`.
    """
    task: Any = context.task
    found: dict[str, Any] = {}
    if not task.repeat_ratio:
        return found
    chance = {"recall": 1 / (task.values - 1), "elimination": 1 / task.values}
    for skill, part, start in (
        ("recall", "from_zero", 0.0),
        ("recall", "from_chance", chance["recall"]),
        ("elimination", "elimination.from_zero", 0.0),
    ):
        curve, least = _curve(context, skill), chance[skill] - start + LEAST_RECALL
        curve.index = curve.index * context.samples_at(1)
        ways = [None if own.isna().all() else risen(own, least, start) for _, own in curve.items()]
        for metric in ("relative_width", "width"):
            found[f"{metric}@{part}"] = [_of(way, metric) for way in ways]
        for point in ("start", "half", "end"):
            found[f"time@{part}.{point}"] = [_of(way and getattr(way, point), "time") for way in ways]
    return found


def _of(way: Any, name: str) -> float:
    found = math.nan if way is None else getattr(way, name)
    return math.inf if found is None else found


def risen(curve: "pd.Series[float]", least: float, start: float) -> Rise:
    """The crossings of a curve's way from a level to its end, from when it was lowest; none of a way below `least`."""
    end, earlier = float(curve.iloc[-_FINAL:].mean()), curve.iloc[: max(1, len(curve) - _FINAL)]
    if end - start < least:
        return Rise(*[Crossing(None, None, None, float(curve.index[-1]))] * 3)
    since = curve.loc[earlier.index[earlier == earlier.min()][-1] :]
    return rise([*since.index], [*since], start=start, end=end)


# How recall works.


@measure(when="checkpoints")
def formation(context: Context) -> dict[str, Any] | None:
    """`match`, by head: mean attention of a repeated x to its earlier copy."""
    from hopscope.studies.permutation import answers, causal

    task: Any = context.task
    if not (_is_whole(context) and task.repeat_ratio):
        return None
    batch = _listed(context, "repeats", limit=FORMATION_SEQUENCES)
    pattern = answers.cached(context.ensemble, batch.inputs, causal.PATTERN).double()
    copy = batch.relations["same_symbol"][:, :, None]  # of the one repeat of each sequence; -1 at other rows
    to_copy = pattern.take_along_dim(copy.clamp(min=0)[..., None], -1)[..., 0] * (copy >= 0)
    return {"match": to_copy.sum((1, 3))[:, None] / batch.inputs.shape[1]}


@measure
def battery(context: Context) -> dict[str, Any] | None:
    """Causal tests of recall; the part is the test, at the last row where it does not say another.

    `recall` and `elimination`: `clean`; `mlp_ablation.mean`, `.resample`, `.zero` (output of the MLP);
    `equal_y_weights` (attention to the y made equal).  `to_other` and `stays`, shares of answers to repeats that become
    second's y or stay right: `position_code_swap`, `y_swap` (as values alone) and `attention_swap` with second's, and
    `control_stays` of second's with third's, `plain_accuracy`; `head_interchange`, `mlp_interchange` (outputs from the
    same pairs with second's x repeated).  Largest changes of logits, parts `earlier_rows.uniform.repeats` …, when
    patterns of the earlier rows are replaced: `last_row_change`, `earlier_rows_change`; `self_change` of
    `head_interchange`, by the very same outputs.
    """
    from hopscope.circuits.interventions import EqualizeAttention, ReplacePattern
    from hopscope.studies.permutation import answers, causal

    if not _is_whole(context):
        return None
    task: Any = context.task
    config, bench = context.ensemble.config, causal.Bench(context.ensemble.cpu(), task)
    found = dict[str, Any]()
    rules = {"uniform": "uniform", "identity": "identity", "random": causal.random_rule(task)}
    for name, rule in rules.items():
        changes = bench.changes(causal.of(ReplacePattern(layer=0, rows={"place": 0}, by=rule)))
        for kind, (last, earlier) in changes.items():
            found[f"last_row_change@earlier_rows.{name}.{kind}"] = last
            found[f"earlier_rows_change@earlier_rows.{name}.{kind}"] = earlier

    for test, what in (("position_code_swap", "code"), ("y_swap", "y"), ("attention_swap", "attention")):
        if config.position_count or what != "code":
            outcome = bench.outcome(causal.swap(what, "first", "second"))
            found |= {f"{metric}@{test}": value for metric, value in outcome.items()}
            if task.values > 3:
                found[f"control_stays@{test}"] = bench.outcome(causal.swap(what, "second", "third"))["stays"]
    heads = answers.cached(bench.model, bench.batch.inputs, causal.HEADS)
    outputs = {"head": (causal.HEADS, heads)}
    y_alike = EqualizeAttention(layer=0, rows={"place": 1}, keys={"kind": 1})
    skills = {"clean": causal.of(), "equal_y_weights": causal.of(y_alike)}
    if config.mlp_size:
        own = answers.cached(bench.model, bench.batch.inputs, causal.MLP)
        outputs["mlp"] = causal.MLP, own
        values = {"mean": bench.mean(causal.MLP), "resample": own[:, bench.any], "zero": own[:, :1] * 0.0}
        skills |= {f"mlp_ablation.{by}": causal.put(causal.MLP, each) for by, each in values.items()}
    for part, (site, own) in outputs.items():
        outcome = bench.outcome(causal.put(site, own[:, bench.donor]))
        found |= {f"{metric}@{part}_interchange": outcome[metric] for metric in ("to_other", "stays")}
    for test, edit in skills.items():
        found |= {f"{skill}@{test}": hit.mean(1) for skill, hit in bench.hits(edit).items()}
    same = bench.changes(causal.put(causal.HEADS, heads))
    found["self_change@head_interchange"] = same["repeats"][0].maximum(same["plain"][0])
    return found


@measure
def roles(context: Context) -> dict[str, Any] | None:
    """What each head is for, by what its loss costs, and what one reads off its attention map (section 10).

    By head: `recall_lost` and `elimination_lost` when its output at the last row is the mean one; part `heat_map`:
    `x_rows_to_earlier_y`, `y_rows_to_themselves`, `x_rows_to_preceding_y` (mean attention).  Of several heads, part
    `assignment`: what is lost with each of the two that come closest to one for each skill; `heat_map_agrees`: whether
    the map names the same recall head.  `spread`: which of `causal.SPREADS` is true.
    """
    import torch

    from hopscope.studies.permutation import causal

    if not _is_whole(context):
        return None
    task: Any = context.task
    bench, heads = causal.Bench(context.ensemble.cpu(), task), range(context.ensemble.config.heads)
    clean, mean, maps = bench.hits(causal.of()), bench.mean(causal.HEADS), bench.heat_map()
    given = [bench.hits(causal.put(causal.HEADS, mean, head)) for head in heads]
    # Rounded once: a fall may have to meet a threshold.
    lost = {
        skill: torch.stack([(hit - each[skill]).mean(1) for each in given], 1) for skill, hit in clean.items()
    }
    falls = torch.stack([*lost.values()], 2).tolist()
    known = torch.stack([hit.mean(1) for hit in clean.values()]).amin(0) >= causal.NEEDED
    words = [
        causal.spread_of(own) if both else "a skill is missing"
        for own, both in zip(falls, known, strict=True)
    ]
    found: dict[str, Any] = {f"{skill}_lost": each[:, None] for skill, each in lost.items()}
    found |= {f"{name}@heat_map": each[:, None] for name, each in maps.items()}
    found |= {f"spread@{word}": [float(each == word) for each in words] for word in causal.SPREADS}
    if len(heads) > 1:
        first, *costs = zip(*map(causal.assigned, falls), strict=True)
        names = [f"{skill}_lost_with_{role}_head@assignment" for role in lost for skill in lost]
        read = (maps["y_rows_to_themselves"] + maps["x_rows_to_preceding_y"]).argmax(1).tolist()
        found |= dict(zip(names, costs, strict=True))
        found["heat_map_agrees"] = [float(one == other) for one, other in zip(read, first, strict=True)]
    return found


# What pages show.


@measure
def patterns(context: Context) -> Rows:
    """`attention` of each head of the first member, mean over sequences: parts `plain.x3.y1` …, `repeat.x5.x2` …."""
    from hopscope.studies.permutation import answers, causal

    first = context.members[0]
    for name, data in (("plain", "plain"), ("repeat", "repeats")) if _is_whole(context) else ():
        model, batch = context.ensemble.select([0]), _listed(context, data)
        for head, rows in enumerate(answers.cached(model, batch.inputs, causal.PATTERN)[0].mean(0).tolist()):
            words = [f"{'xy'[at % 2]}{at // 2 + 1}" for at in range(len(rows))]
            for query, key in ((at, of) for at in range(len(rows)) for of in range(at + 1)):
                place = {"layer": 0, "head": head, "part": f"{name}.{words[query]}.{words[key]}"}
                yield {"metric": "attention", "value": rows[query][key], "member": first, **place}


@measure
def explorer(context: Context) -> Rows:
    """What the page's explorer shows of the first member."""
    if _is_whole(context):
        yield from chains.explorer.function(context)


@measure
def circuits(context: Context) -> Rows:
    """The circuit of the first seed of a configuration, read and followed through training, for the page's player."""
    from hopscope.circuits.reader import read
    from hopscope.page.explorer import circuit, spread
    from hopscope.study.jobs import ensemble_of

    if context.options.circuits and _is_whole(context) and context.seeds[0] == 0:
        task, member = context.task, context.members[0]
        models = [
            (step, ensemble_of(context.unit, task, step).member(0)) for step in spread(context.unit.steps, 16)
        ]
        file = context.save(f"circuit-{member}", circuit(read(models[-1][1], task), models, task))
        yield {"metric": "circuit", "value": 1.0, "member": member, "file": f"{file}.about"}


MEASURES = (
    training, probes, posteriors, slots, last_epoch, late, transition, formation, battery, roles, patterns,
    explorer, circuits,
)  # fmt: skip
