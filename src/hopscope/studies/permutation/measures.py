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
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import first_crossing
from hopscope.studies.chains import measures as chains
from hopscope.studies.chains.measures import Rows
from hopscope.study.measure import Context, measure
from hopscope.theory.posteriors import elimination_floor, training_floor

if TYPE_CHECKING:
    import pandas as pd

SCORES = ("elimination", "recall", "mass_recalled")
"""What is followed through training."""


def _is_whole(context: Context) -> bool:
    return context.job.label in context.options.whole


def _listed(context: Context, data: str, held_out: bool = True, limit: int | None = None) -> Any:
    task: Any = context.task
    device = context.ensemble.readout.weight.device
    return task.listed(data, held_out, limit or context.options.evaluation_limit, device)


@measure(when="training", name="training")
def training(context: Context) -> dict[str, Any]:
    """`elimination`, `recall` and `mass_recalled` through training, on a fixed part of the held-out sequences."""
    from hopscope.studies.permutation import answers

    plain, repeats = (_listed(context, data, limit=512) for data in ("plain", "repeats"))
    found = answers.skills(context.ensemble, plain, repeats)
    return {name: found[name].mean(1) for name in SCORES}


@measure
def probes(context: Context) -> dict[str, Any]:
    """Both skills at the end.

    `elimination`: accuracy at the last step without a repeat.  At a repeat `recall`, `mass_recalled` and `mass_unused`
    (probability of the value seen before, and of the unused ones), `repeat_mae`, `repeat_max_ae` and, expected among as
    many as the presentation probes, `repeat_max_ae_of_sample`.  `exhaustive`, parts `plain` and `repeats`: whether the
    sequences are all there are.
    """
    from hopscope.studies.permutation import answers

    task: Any = context.task
    listed = {data: _listed(context, data) for data in ("plain", "repeats")}
    found = answers.skills(context.ensemble, *listed.values())
    every = {data: float(task.listed_count(data) == batch.inputs.shape[1]) for data, batch in listed.items()}
    return {
        **{name: found[name].mean(1) for name in (*SCORES, "mass_unused")},
        "repeat_mae": found["mean_error"].mean(1),
        "repeat_max_ae": found["largest_error"].amax(1),
        # As many as repeats are among the 5,000 test sequences of the presentation, at 30 % (section 9).
        "repeat_max_ae_of_sample": answers.expected_maximum(found["largest_error"], 1500),
        **{f"exhaustive@{data}": [whole] * len(context.members) for data, whole in every.items()},
    }


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
    for split, held_out in (("train", False), ("held_out", True)):
        batch = _listed(context, "plain", held_out)
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
        whole = {"held_out_loss": loss} if held_out else {"memorised_share": _memorised(loss, task)}
        if count <= math.factorial(6):  # of more (V ≥ 7) it is not worked out
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


def _curve(context: Context, metric: str, split: str = "held_out", epochs: int | None = None) -> Any:
    # Values by step and member, of the last epochs or of all; those that diverged have none.
    gone = [step is not None for step in context.unit.diverged_at(context.step or 0)]
    curve = context.evidence.curve(metric, split=split)[[*context.members]]
    curve = curve.mask([gone] * len(curve))
    per_epoch = max(1, context.options.samples_per_epoch // context.samples_at(1))
    return curve if epochs is None else curve[curve.index > curve.index[-1] - epochs * per_epoch]


@measure
def last_epoch(context: Context) -> Rows:
    """`last_epoch_loss` (train): the mean training loss of the last epoch."""
    import numpy as np

    # Each value is a mean over the steps since the one before.
    late, steps = _curve(context, "loss", "train", 1), _curve(context, "loss", "train").index
    since = np.diff(steps, prepend=0)[-len(late) :]
    yield {"metric": "last_epoch_loss", "value": since @ late.to_numpy() / since.sum(), "split": "train"}


@measure
def late(context: Context) -> Rows:
    """Medians of the last five epochs: `elimination`, `recall`, `mass_recalled`; on plain data `memorised_share`."""
    task: Any = context.task
    for metric in SCORES:
        yield {"metric": metric, "value": _curve(context, metric, epochs=5).median(skipna=False)}
    if not task.repeat_ratio:
        loss = _curve(context, "loss", "train", 5).median(skipna=False)
        yield {"metric": "memorised_share", "value": _memorised(loss, task), "split": "train"}


@measure
def transition(context: Context) -> dict[str, Any] | None:
    """How sudden recall was (P5), in training samples; infinite where it never came.

    It has come if it ends a quarter above chance.  Its rise is taken `from_zero`, and `from_chance`, which is
    1/(V - 1): noticing that x came back lifts it so far.  `time` of `from_zero.start`, `.half`, `.end` (10 %, 50 %,
    90 % of the way), `width` between the first and the last, `relative_width` (of the time to the half), this also of
    elimination: `elimination.from_zero`.
    """
    task: Any = context.task
    if not task.repeat_ratio:
        return None
    names = ("relative_width@{}", "width@{}", "time@{}.start", "time@{}.half", "time@{}.end")
    found, chance = dict[str, Any](), 1 / (task.values - 1)
    for part, skill, least, start in (
        ("from_zero", "recall", chance, 0.0),
        ("from_chance", "recall", 0.0, chance),
        ("elimination.from_zero", "elimination", 1 / task.values, 0.0),
    ):
        curve = _curve(context, skill)
        curve.index = curve.index * context.samples_at(1)
        ways = zip(*(risen(own, least + 0.25, start) for _, own in curve.items()), strict=True)
        found |= {name.format(part): [*way] for name, way in zip(names, ways, strict=True)}
    return found


def risen(curve: "pd.Series[float]", least: float, start: float) -> tuple[float, ...]:
    """The way of a curve from a level to its end, from when it was lowest: its width, as a share of the time to its
    half and as it is, and the times of 10 %, 50 %, 90 %; infinite where it is below `least`, NaN without a curve."""
    end, earlier = float(curve.iloc[-3:].mean()), curve.iloc[: max(1, len(curve) - 3)]
    if curve.isna().all() or end - start < least:
        return (math.nan if math.isnan(end) else math.inf,) * 5
    since = curve.loc[earlier.index[earlier == earlier.min()][-1] :]
    levels = (start + share * (end - start) for share in (0.1, 0.5, 0.9))
    times = [first_crossing([*since.index], [*since], level).time for level in levels]
    first, half, last = (math.inf if time is None else time for time in times)
    relative = (last - first) / half if half else math.inf
    return relative, last - first, first, half, last


# How recall works.


@measure
def battery(context: Context) -> dict[str, Any] | None:
    """Causal tests of recall; the part is the test, at the last row where it does not say another.

    `recall` and `elimination`: `clean`; `mlp_ablation.mean`, `.resample`, `.zero` (output of the MLP);
    `equal_y_weights` (attention to the y made equal).  `to_other` and `stays`, shares of answers to repeats that become
    second's y or stay right: `position_code_swap`, `y_swap` (as values alone), `attention_swap`, each with
    `plain_accuracy` and `control_stays` (second exchanged with third); `head_interchange`, `mlp_interchange` (outputs
    from the same pairs with second's x repeated).  Largest changes of logits, parts `earlier_rows.uniform.repeats` …,
    when patterns of the earlier rows are replaced: `last_row_change`, `earlier_rows_change`; `self_change` of
    `head_interchange`, by the very same outputs.
    """
    from hopscope.circuits.interventions import EqualizeAttention, ReplacePattern
    from hopscope.studies.permutation import answers, causal

    if not _is_whole(context):
        return None
    config, bench = context.ensemble.config, causal.Bench(context.ensemble)
    found = dict[str, Any]()

    def test(part: str, edit: causal.Edit, **names: str) -> None:
        hit = bench.hits(edit)
        found.update({f"{name}@{part}": hit[each].mean(1) for name, each in names.items()})

    clean = bench.logits([])
    rules = {"uniform": "uniform", "identity": "identity", "random": bench.random_rule()}
    for name, rule in rules.items():
        changes = bench.changes(clean, [ReplacePattern(layer=0, rows={"place": 0}, by=rule)])
        for kind, (last, earlier) in changes.items():
            found[f"last_row_change@earlier_rows.{name}.{kind}"] = last
            found[f"earlier_rows_change@earlier_rows.{name}.{kind}"] = earlier
    exchanged = {"to_other": "to_other", "stays": "recall"}
    for part, what in (("position_code_swap", "code"), ("y_swap", "y"), ("attention_swap", "attention")):
        if config.position_count or what != "code":
            test(part, causal.swap(what, "first", "second"), **exchanged, plain_accuracy="elimination")
            if bench.task.values > 3:
                test(part, causal.swap(what, "second", "third"), control_stays="recall")
    heads = answers.cached(bench.model, bench.batch.inputs, causal.HEADS)
    same = bench.changes(clean, causal.put(causal.HEADS, heads))
    found["self_change@head_interchange"] = same["repeats"][0].maximum(same["plain"][0])
    test("head_interchange", causal.put(causal.HEADS, heads[:, bench.donor]), **exchanged)
    y_alike = EqualizeAttention(layer=0, rows={"place": 1}, keys={"kind": 1})
    skills: dict[str, causal.Edit] = {"clean": [], "equal_y_weights": [y_alike]}
    if config.mlp_size:
        own = answers.cached(bench.model, bench.batch.inputs, causal.MLP)
        test("mlp_interchange", causal.put(causal.MLP, own[:, bench.donor]), **exchanged)
        values = {"mean": bench.mean(causal.MLP), "resample": own[:, bench.any], "zero": own[:, :1] * 0.0}
        skills |= {f"mlp_ablation.{by}": causal.put(causal.MLP, each) for by, each in values.items()}
    for part, edit in skills.items():
        test(part, edit, recall="recall", elimination="elimination")
    return found


@measure
def roles(context: Context) -> dict[str, Any] | None:
    """What each head is for, by what its loss costs, and what one reads off its attention map (section 10).

    `recall_lost` and `elimination_lost` when its output at the last row is the mean one; part `heat_map`:
    `x_rows_to_earlier_y`, `y_rows_to_themselves`, `x_rows_to_preceding_y` (mean attention).
    """
    import torch

    from hopscope.studies.permutation import causal

    if not _is_whole(context):
        return None
    bench, heads = causal.Bench(context.ensemble), range(context.ensemble.config.heads)
    clean, mean = bench.hits([]), bench.mean(causal.HEADS)
    given = [bench.hits(causal.put(causal.HEADS, mean, head)) for head in heads]
    # Rounded once: a fall may have to meet a threshold.
    skills = ("recall", "elimination")
    lost = {skill: [(clean[skill] - each[skill]).mean(1) for each in given] for skill in skills}
    found = {f"{skill}_lost": torch.stack(of_heads, 1) for skill, of_heads in lost.items()}
    found |= {f"{name}@heat_map": each for name, each in bench.heat_map().items()}
    return {name: each[:, None] for name, each in found.items()}


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

    if context.options.circuits and _is_whole(context) and context.seeds[0] == 0:
        task, member, steps = context.task, context.members[0], spread(context.unit.steps, 16)
        models = [(step, context.at(context.unit, step).ensemble.member(0)) for step in steps]
        file = context.save(f"circuit-{member}", circuit(read(models[-1][1], task), models, task))
        yield {"metric": "circuit", "value": 1.0, "member": member, "file": f"{file}.about"}


MEASURES = (
    training, probes, posteriors, last_epoch, late, transition, battery, roles, patterns, explorer, circuits,
)  # fmt: skip
