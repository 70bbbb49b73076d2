"""The figures of the permutation study; which a run has is known from its options.  Loads no chart library."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hopscope.page.figures import Figure, cells, curves, dots, sweep
from hopscope.studies.permutation.options import SWEEPS, Options
from hopscope.tasks import Permutation
from hopscope.theory import posteriors

if TYPE_CHECKING:
    from hopscope.runs import Evidence
    from hopscope.study.study import Study

SKILLS, TILTS = ("elimination", "recall"), ("tilt_correlation", "tilt_control")
MAPPINGS = {"train": "training mappings", "held_out": "held-out mappings"}
TESTS = {
    "position_code_swap": "position codes of x_j and x_k exchanged (values)",
    "y_swap": "y_j and y_k exchanged (values)",
    "attention_swap": "attention to x_j and x_k exchanged",
    "head_interchange": "all heads' output from the same pairs with x_k repeated",
    "mlp_interchange": "MLP output from the same pairs with x_k repeated",
    "to_other": "becomes y_k",
    "stays": "stays y_j",
    "control_stays": "control: stays y_j",
}
ABLATIONS = {
    "clean": "nothing changed",
    "mlp_ablation.mean": "MLP output: its mean",
    "mlp_ablation.resample": "MLP output: another sequence's",
    "mlp_ablation.zero": "MLP output: zero",
    "equal_y_weights": "attention to all y made equal",
    **{skill: skill for skill in SKILLS},
}


def figures(options: Options, study: "Study") -> list[Figure]:
    """Every figure that a run has something to show in."""
    task = study.task
    assert isinstance(task, Permutation)
    base, asked = [cell.name for cell in options.base], [cell.name for cell in options.claimed]
    whole = [name for name in base if name in options.whole]
    recalling = [name for name in whole if " repeats" in name][-2:]
    by_slot = {f"slot_{at}": f"x{at}" for at in range(1, task.values + 1)}
    by_step = {f"step_{at}": f"{at}" for at in range(1, task.values + 1)}
    guess: Any = {"guess among values shown": 1 / (task.values - 1)}
    apart: Any = {"panel": "configuration"}

    def of(measure: str, names: Iterable[str], parts: Iterable[str] = (), **more: Any) -> Any:
        part = {"part": [*parts]} if parts else {}
        return {"where": {"measure": measure, "configuration": [*names], **part, **more}}

    def final(name: str, names: Iterable[str]) -> Figure:
        return dots(SKILLS, y="configuration", by="metric", levels=guess, name=name, **of("probes", names))

    found = [
        curves("loss", split="train", levels=observers(task, any(cell.data == "repeats" for cell in options.grid)),
               name="loss", **of("training", base)),
        curves(SKILLS, by="metric", name="skills", title="held-out accuracy", **apart, **of("training", base)),
        final("final", asked),
        sweep("recall", x="part", names=by_slot, name="recall_by_slot", **apart, **of("probes", base, by_slot)),
        sweep("accuracy", x="part", by="split", names={**by_step, **MAPPINGS}, name="accuracy_by_step", **apart,
              **of("posteriors", base, by_step)),
        dots(TILTS, y="configuration", by="metric", name="tilt", **of("posteriors", asked)),
    ]  # fmt: skip
    if whole:
        found += [
            dots([f"{skill}_lost" for skill in SKILLS], y="head", by="metric", name="head_roles", **apart,
                 **of("roles", whole, layer=0)),
            cells("attention", x="key", y="query", panel="map", name="attention", rows=attention),
        ]  # fmt: skip
    if recalling:
        found += [
            curves("match", by="head", name="formation", **apart, **of("formation", recalling, layer=0)),
            dots(("to_other", "stays", "control_stays"), y="part", by="metric", names=TESTS, name="battery", **apart,
                 **of("battery", recalling, [*TESTS])),
            dots(SKILLS, y="part", by="metric", names=ABLATIONS, levels=guess, name="ablation", **apart,
                 **of("battery", recalling, [*ABLATIONS])),
        ]  # fmt: skip
    for name in options.sweeps:
        found.append(final(f"sweep_{name}", dict.fromkeys([*base, *SWEEPS[name]])))
    if "values" in options.sweeps:
        plain = [cell.name for cell in options.grid if cell.bare.startswith("d32/2 plain")]
        found.append(dots("memorised_share", y="configuration", split="train", name="memorised",
                          **of("posteriors", plain)))  # fmt: skip
    if "slots" in options.sweeps:
        found.append(cells("recall", x="configuration", y="part", name="recall_by_pair",
                           **of("slots", SWEEPS["slots"])))  # fmt: skip
    return found


def observers(task: Permutation, has_repeats: bool) -> dict[str, float]:
    """Loss of ideal observers, in nats; the last two where training has repeats of the presentation's kind."""
    found = {
        "all mappings equally likely": posteriors.elimination_floor(task.values),
        "knows the training mappings": posteriors.training_floor(task.values, task.mappings(False)),
    }
    if has_repeats and not (task.repeat_slots or task.repeat_sources):
        ratio = task.repeat_ratio
        found["repeats not noticed"] = posteriors.blind_to_repeats_floor(task.values, ratio)
        found["repeats noticed, not recalled"] = posteriors.unbound_repeats_floor(task.values, ratio)
    return found


def attention(evidence: "Evidence") -> list[dict[str, Any]]:
    """Mean attention of the first seeds' heads, without a repeat and where the last x comes back."""
    words, found = {"plain": "", "repeat": ", x comes back"}, []
    for row in evidence.rows("attention").to_dict("records") if "attention" in evidence else ():
        kind, query, key = row["part"].split(".")
        told = f"{row['configuration']}, seed {row['seed']}, head 0.{row['head']}{words[kind]}"
        found.append(
            {"map": told, "query": query, "key": key, "value": row["value"], "member": row["member"]}
        )
    return found
