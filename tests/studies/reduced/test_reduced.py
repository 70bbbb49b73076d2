"""The study of reduced dynamics: its grid, what its claims say of runs with a known result, its page, its measures."""

import math

import numpy as np
import pytest
import torch
from tests.story.user_run import texts
from tests.studies.quick_evidence import of_one_completion

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.reduced.measures import (
    FITTED,
    HELD_OUT,
    KEPT,
    RANKS,
    by_head,
    joined_heads,
    predicted,
    runs_of,
)
from hopscope.studies.reduced.paths import directions
from hopscope.studies.reduced.study import (
    ALONE,
    WHOLE,
    Options,
    claims,
    configurations,
    steps_of,
    sweep,
)
from hopscope.studies.reduced.surrogate import PREDICTORS, SURROGATE, Surrogate, emergence

OPTIONS, SEEDS, END = Options(), 8, 400


def law(batch):
    return emergence(40.0, 37.0, batch)


LAW = {"law": law, "power": lambda batch: 1_000.0 / batch**0.5, "the same": lambda batch: 90.0,
       "elsewhere": lambda batch: law(batch) * (3.0 if batch in OPTIONS.tested else 1.0),
       "never": lambda batch: math.inf}  # fmt: skip


def chain_rows(member, name, gone, learns, few, walk):
    """Rows of one model of two steps: what it does, and what its path shows."""
    good, value = name == WHOLE and learns, 0.1
    rows = []
    for step in (1, 2) if name == WHOLE else (2,):
        final = None if gone else value if good else 0.76
        rows += [
            Row(member, "training", f"loss_step_{step}", v, step=at) for at, v in {0: 1.1, END: final}.items()
        ]
        time = None if gone else 160.0 if good else math.inf
        rows.append(Row(member, "learned_at", "learned_at", time, step=END, part=f"step_{step}"))
    if gone:
        return rows
    last = {"measure": "paths", "step": END}
    first = 0.84 if name == ALONE else 0.83 if walk else 0.92
    for count in KEPT:
        part = str(count)
        for metric, share in (("path_share", first + 0.01 * count), ("walk_share", 0.82 + 0.01 * count),
                              ("step_share", 0.2), ("walk_step_share", 0.1)):  # fmt: skip
            rows.append(Row(member, metric=metric, value=min(1.0, share), part=part, **last))
        for step in (1, 2) if name == WHOLE else (2,):
            enough = good and few
            rows.append(
                Row(member, metric=f"kept_loss_step_{step}", value=0.2 if enough else 0.9, part=part, **last)
            )
            time = 160.0 if enough else math.inf
            rows.append(
                Row(member, metric="kept_learned_at", value=time, part=f"{count}: step_{step}", **last)
            )
            for metric in ("without", "borrowed"):
                rows.append(Row(member, metric=f"{metric}_loss_step_{step}", value=1.2, part=part, **last))
    for rank in RANKS:
        rows.append(Row(member, metric="rank_loss_step_2", value=1.0, part=str(rank), **last))
    for number in (1, 2, 3):
        rows += [
            Row(member, "paths", "coefficient", c, part=str(number), step=at)
            for at, c in ((0, 0.0), (END, 0.9))
        ]
    rows.append(Row(member, metric="fastest", value=160.0 if good else 20.0, **last))
    for layer in range(4):
        rows += [Row(member, metric=m, value=2.0, layer=layer, **last)
                 for m in ("qk_change", "qk_rank", "ov_change", "ov_rank")]  # fmt: skip
    return rows


def evidence(law="law", diverged=(), learns=True, few=True, walk=False, training_steps=END):
    members, rows, batches, ends, times = [], [], {}, {}, {}
    for each in configurations(OPTIONS):
        for seed in each.seeds:
            member, gone = len(members), len(members) in diverged
            members.append(
                {"member": member, "seed": seed, "configuration": each.label, "overrides": each.overrides}
            )
            if each.label in (WHOLE, ALONE):
                rows += chain_rows(member, each.label, gone, learns, few, walk)
                continue
            batch, end = each.overrides["training.batch_size"], each.overrides["training.steps"]
            time = LAW[law](batch) * (0.9 + 0.025 * (seed % 8))
            times[member] = math.nan if gone else time if time <= end else math.inf
            batches[member], ends[member] = float(batch), float(end)
            found = None if gone else times[member]
            rows.append(Row(member, "learned_at", "learned_at", found, step=end, part="step_1"))
            rows.append(Row(member, "training", "loss_step_1", None if gone else 0.1, step=end))
    rows += prediction_rows({m["member"]: m["configuration"] for m in members}, times, batches, ends)
    config = {"task": {}, "model": {"width": 512, "layers": 4}, "training": {"steps": training_steps},
              "options": OPTIONS.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def prediction_rows(labels, times, batches, ends):
    runs = runs_of(times, batches, ends)
    train = [run for member, run in runs.items() if labels[member].startswith(FITTED)]
    test = {member: run for member, run in runs.items() if labels[member].startswith(HELD_OUT)}
    for name, steps in predicted(train, test).items():
        off = []
        for member, step in steps.items():
            yield Row(member, "predictions", "predicted", step, part=name)
            if math.isfinite(test[member].time):
                off.append(abs(step / test[member].time - 1))
                yield Row(member, "predictions", "error", off[-1], part=name)
        if off:
            for end in ("", "_low", "_high"):
                yield Row(None, "predictions", f"median_error{end}", float(np.median(off)), part=name)
    if train:
        for name in ("fastest", "noise"):
            yield Row(None, "predictions", "constant", 40.0, part=name)


def verdicts(**changed):
    found = evidence(**changed)
    return of_one_completion(claims(OPTIONS), found)


def test_no_seed_and_no_size_is_fitted_and_tested():
    cells = {each.label: each for each in configurations(OPTIONS)}
    parts = {
        words: [cells[name] for name in sweep(OPTIONS) if name.startswith(words)]
        for words in (FITTED, HELD_OUT)
    }
    for of in (lambda each: set(each.seeds), lambda each: {each.overrides["training.batch_size"]}):
        one, other = (set().union(*map(of, parts[words])) for words in (FITTED, HELD_OUT))
        assert one and other and not one & other
    assert len(cells) == 10
    assert [steps_of(size, 2_500) for size in (4, 64, 512)] == [2_500, 250, 118]


def test_a_run_in_which_all_is_so():
    # D4 is about a share of seeds, and takes more of them than the study has.
    assert verdicts() == dict.fromkeys(("D1", "D2", "D2b", "D3"), "reproduced") | {"D4": "inconclusive"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"law": "elsewhere"}, {"D2": "inconclusive"}),  # a fifth of the runs has no number
        ({"law": "power"}, {"D2b": "refuted"}),
        ({"law": "never"}, {"D2": "not run", "D2b": "not run"}),
        ({"few": False}, {"D4": "inconclusive", "D1": "reproduced"}),
        ({"walk": True}, {"D1": "refuted"}),
        ({"learns": False}, {"D3": "not run", "D4": "inconclusive"}),
        ({"training_steps": 200}, {"D1": "inconclusive", "D2": "inconclusive", "D4": "inconclusive"}),
    ],
)
def test_a_run_that_goes_another_way(changed, expected):
    found = verdicts(**changed)
    assert {name: found[name] for name in expected} == expected


def test_times_that_do_not_depend_on_the_size_are_predicted_by_anything():
    """The model is right then, but no better than the mean, and exchanged sizes do as well."""
    assert verdicts(law="the same")["D2"] != "reproduced"


CASES = {
    "all": {},
    "elsewhere": {"law": "elsewhere"},
    "nothing": {"law": "never", "learns": False},
    "one diverged": {"diverged": (1, 20, 100)},
    "all diverged": {"diverged": range(1000)},
}
SAID = {
    "all": "The small model keeps the promise of 25 %",
    "elsewhere": "Its median error is not smaller than both",
    "nothing": "0 of 8 know x₂",
    "one diverged": "Training diverged in 2 of them",
    "all diverged": "Too little is known of the times for a fit",
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    program, found = find_study("reduced"), evidence(**CASES[case])
    config = program.configured("laptop", {})
    run = RunFolder.create(tmp_path, "reduced", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(OPTIONS)]))
    for name in figure_names(run.path / "figures"):
        render_figure(run.path / "figures", name)
    words = texts(run.read_json("story.json")).replace("\u00a0", " ")
    assert SAID[case] in words
    if case in ("elsewhere", "nothing", "all diverged"):
        assert SAID["all"] not in words


@pytest.mark.parametrize("name", ["query", "output"])
def test_heads_are_taken_apart_and_joined(name):
    shape = (2, 21, 11) if name == "output" else (2, 11, 21)
    weight, named = torch.arange(462.0).reshape(shape).numpy(), f"layers.0.attention.{name}.weight"
    parts = by_head(weight, named, 3)
    expected = weight[1, 14:21] if name == "output" else weight[1][:, 14:21]
    np.testing.assert_array_equal(parts[1, 2], expected)
    np.testing.assert_array_equal(joined_heads(parts, named), weight)


FIELDS = {
    "options.cell_seeds": 2, "training.steps": 60, "model.width": 24, "model.head_dim": 4, "model.layers": 2,
    "training.batch_size": 5, "options.longest": 6, "options.fitted": (3, 7), "options.tested": (5,),
}  # fmt: skip


def test_measures_are_those_of_a_slow_way(tmp_path):
    """Weights are put together one member at a time, from the full singular value decomposition of its path."""
    run = hs.run("reduced", fields=FIELDS, out=tmp_path)
    found, whole = run.evidence, {"configuration": WHOLE}
    weights = {
        step: run.ensemble(step=step, **whole).transformer.parameters.flat.clone() for step in (0, 20, 40, 60)
    }
    ensemble = run.ensemble(**whole)
    batch = ensemble.batch(256)
    members = list(found.last("path_share", part="1", **whole).index)
    for place, member in enumerate(members):
        path = torch.stack([weights[step][place] - weights[0][place] for step in (20, 40, 60)]).double()
        _, sizes, right = torch.linalg.svd(path, full_matrices=False)
        share = float(sizes[0] ** 2 / (sizes**2).sum())
        assert found.last("path_share", part="1", **whole)[member] == pytest.approx(share, abs=1e-6)
        np.testing.assert_allclose(np.abs(directions(path.numpy(), 1) @ right[0].numpy()), 1.0, atol=1e-6)
        kept = weights[0][place].double() + (path[1] @ right[:2].T) @ right[:2]
        other = run.ensemble(**whole)
        other.transformer.parameters.flat[place] = kept.float()
        loss = other.task.losses(other(batch.inputs), batch)["loss_step_2"][place]
        curve = found.curve("kept_loss_step_2", part="2", **whole)
        assert curve.loc[40, member] == pytest.approx(float(loss), abs=1e-5)
    # All three directions of three checkpoints are all that moved.
    every = found.last("kept_loss_step_2", part="3", **whole)
    plain = ensemble.task.losses(ensemble(batch.inputs), batch)["loss_step_2"]
    assert list(every) == pytest.approx(plain.tolist(), abs=1e-5)
    cut = found.last("rank_loss_step_2", part="4", **whole)  # heads of 4 have no higher rank
    assert list(cut) == pytest.approx(plain.tolist(), abs=1e-5)
    views, start = (run.ensemble(step=step, **whole).transformer.parameters.views() for step in (60, 0))
    query, key = ("layers.1.attention.query.weight", "layers.1.attention.key.weight")
    circuits = [each[query][0][:, 8:12] @ each[key][0][:, 8:12].T for each in (views, start)]
    change = torch.linalg.svdvals((circuits[0] - circuits[1]).double()) ** 2
    rank = found.last("qk_rank", layer=1, head=2, **whole)[members[0]]
    assert rank == pytest.approx(float(change.sum() ** 2 / (change**2).sum()), rel=1e-3)


def test_predictions_of_a_run(tmp_path):
    run = hs.run("reduced", fields={**FIELDS, "training.steps": 20}, out=tmp_path)
    found = run.evidence
    assert {*found.rows("predicted")["part"]} == {*PREDICTORS}
    constants = found.rows("constant").set_index("part")["value"]
    model = Surrogate(constants["fastest"], constants["noise"])
    rows = found.rows("predicted", part=SURROGATE)
    assert list(rows["value"]) == pytest.approx([model.at(5)] * 2)
    assert {found.configurations[member] for member in rows["member"]} == {f"{HELD_OUT}5"}


def test_no_option_takes_the_flag_of_a_field_that_every_study_has():
    assert not {*Options.model_fields} & {"seeds", "held_out"}
