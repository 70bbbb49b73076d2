"""The figures of the permutation study; which a run has is known from its options.  Loads no chart library."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hopscope.page.figures import Figure, cells, curves, dots, sweep
from hopscope.studies.permutation.options import Options
from hopscope.tasks import Permutation
from hopscope.theory import posteriors

if TYPE_CHECKING:
    from hopscope.runs import Evidence
    from hopscope.study.study import Study

SKILLS = ("elimination", "recall")
MAPPINGS = {"train": "training mappings", "held_out": "held-out mappings"}
ABLATIONS = {
    "clean": "nothing changed",
    "mlp_ablation.mean": "MLP output: its mean",
    "mlp_ablation.resample": "MLP output: another sequence's",
    "mlp_ablation.zero": "MLP output: zero",
    "equal_y_weights": "attention to all y made equal",
    **{skill: skill for skill in SKILLS},
}


def figures(options: Options, study: "Study") -> Iterator[Figure]:
    task, base, grid = study.task, options.base, options.grid
    assert isinstance(task, Permutation)
    whole = [name for name in base if name in options.whole]
    recalling = [name for name in whole if grid[name].data == "repeats"][-2:]
    by_step = {f"step_{at}": f"{at}" for at in range(1, task.values + 1)}
    apart: Any = {"panel": "configuration"}

    def of(measure: str, names: Iterable[str], **more: Any) -> Any:
        return {"where": {"measure": measure, "configuration": [*names], **more}}

    def values(names: Iterable[str]) -> int | None:
        """Values V, where all have as many."""
        found = {grid[name].changes.get("V", task.values) for name in names}
        return found.pop() if len(found) == 1 else None

    def guess(names: Iterable[str]) -> dict[str, float]:
        number, moved = values(names), any("slots" in grid[name].changes for name in names)
        return {"guess among values shown": 1 / (number - 1)} if number and not moved else {}

    def final(name: str, names: Iterable[str]) -> Figure:
        return dots(
            SKILLS, y="configuration", by="metric", levels=guess(names), name=name, **of("probes", names)
        )

    same, repeated = values(base), any(cell.data == "repeats" for cell in grid.values())
    marks = observers(task.model_copy(update={"values": same}), repeated) if same else {}
    yield curves("loss", split="train", levels=marks, name="loss", **of("training", base))
    yield curves(
        SKILLS, by="metric", name="skills", title="held-out accuracy", **apart, **of("training", base)
    )
    yield final("final", options.claimed)
    yield sweep("accuracy", x="part", by="split", names={**by_step, **MAPPINGS}, name="accuracy_by_step", **apart,
                **of("posteriors", base, part=[*by_step]))  # fmt: skip
    if whole:
        yield dots([f"{skill}_lost" for skill in SKILLS], y="head", by="metric", name="head_roles", **apart,
                   **of("roles", whole, layer=0))  # fmt: skip
        yield cells("attention", x="key", y="query", panel="map", name="attention", rows=attention)
    if recalling:
        yield dots(SKILLS, y="part", by="metric", names=ABLATIONS, levels=guess(recalling), name="ablation", **apart,
                   **of("battery", recalling, part=[*ABLATIONS]))  # fmt: skip
    for name in options.sweeps:
        yield final(f"sweep_{name}", dict.fromkeys([*base, *options.of_sweeps(name)]))


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


def attention(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Mean attention of the first seeds' heads, without a repeat and where the last x comes back."""
    words = {"plain": "", "repeat": ", x comes back"}
    for row in evidence.rows("attention").to_dict("records") if "attention" in evidence else ():
        kind, query, key = row["part"].split(".")
        told = f"{row['configuration']}, seed {row['seed']}, head 0.{row['head']}{words[kind]}"
        yield {"map": told, "query": query, "key": key, "value": row["value"], "member": row["member"]}
