"""What is measured of the paths of weights, and what predictors of the time of learning are worth.

Everything is of the whole run: the one looks at all checkpoints of a member, the other across members.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import hopscope as hs
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import learned_at
from hopscope.studies.reduced.paths import (
    directions,
    effective_rank,
    of_rank,
    product_size,
    products,
    shares,
    steps_of,
    walk_like,
)
from hopscope.studies.reduced.surrogate import PREDICTORS, Run, fitted, median_interval

if TYPE_CHECKING:
    import numpy as np

    from hopscope.runs import UnitFolder

KEPT = (1, 2, 3, 5)
"""Numbers of directions that are kept."""

RANKS = (1, 2, 4)
"""Ranks to which the change of every head's matrices is cut."""

FITTED, HELD_OUT = "fitted, B = ", "held out, B = "
"""How configurations of the sweep begin: those that predictors are fitted on, and those that they are tested on."""

Rows = Iterator[dict[str, Any]]


def label_of(unit: "UnitFolder") -> str:
    """The configuration that a unit's members are of."""
    return str(unit.record["plan"]["label"])


@hs.measure(when="run")
def paths(context: hs.Context) -> Rows:
    """Directions of every chain model's path through the checkpoints, and what is known with few of them.

    `path_share`, `walk_share`: share of the path in its first directions (the part is their number), and of a random
    walk with steps as long; `step_share`, `walk_step_share`: the same of the steps.  `coefficient`: way along a
    direction (the part), over the length of the whole change; `fastest`: the checkpoint before which the first one
    grew the most.  `kept_loss_step_k`: held-out loss with the first directions alone, at every checkpoint;
    `kept_learned_at`: when it was first under one half (part `directions: symbol`).  At the end: `without_…` (all but
    the first directions), `borrowed_…` (with those of the next seed), `rank_…` (the change of every head's matrices
    cut to a rank).  Of each head: `qk_rank`, `ov_rank` (effective rank of the change of its circuits), `qk_change` and
    `ov_change` (its size); without a head, their means over a layer.
    """
    for unit in context.units:
        if not label_of(unit).startswith((FITTED, HELD_OUT)):
            context.budget.check()
            yield from Paths(context, unit).rows()


class Paths:
    """The paths of a unit's members, and the models that they lead to."""

    def __init__(self, context: hs.Context, unit: "UnitFolder"):
        import numpy as np

        every = int(unit.record["plan"]["training"]["checkpoint_every"])
        last = max(step for step, _ in unit.checkpoints())
        found = [step for step, _ in unit.checkpoints() if step % every == 0 or step == last]
        self.steps = sorted(found)
        self.end = context.at(unit, last)
        flats = [self._flat(context.at(unit, step)) for step in self.steps]
        self.start, self.flats = flats[0].astype(np.float64), np.stack(flats[1:], 1)
        self.named = {name: weight.clone() for name, weight in self._weights(context.at(unit, self.steps[0]))}
        self.final = {name: weight.clone() for name, weight in self._weights(self.end)}
        self.samples = self.end.held_out
        moved = [self._of(place) for place in range(len(self.start))]
        self.moving = [bool(np.isfinite(path).all() and path.any()) for path in moved]
        self.directions = [
            directions(path, max(KEPT)) if moving else path[:0]
            for path, moving in zip(moved, self.moving, strict=True)
        ]
        self.coefficients = [path @ own.T for path, own in zip(moved, self.directions, strict=True)]
        self.products = [products(path) for path in moved]

    @staticmethod
    def _flat(context: hs.Context) -> "np.ndarray":
        """Weights of all members at a checkpoint, `[member, weight]`."""
        found: np.ndarray = context.ensemble.transformer.parameters.flat.detach().cpu().numpy().copy()
        return found

    @staticmethod
    def _weights(context: hs.Context) -> list[tuple[str, Any]]:
        return list(context.ensemble.transformer.parameters.views().items())

    def _of(self, place: int) -> "np.ndarray":
        """The path of a member, `[checkpoint, weight]`."""
        found: np.ndarray = self.flats[place] - self.start[place]
        return found

    def rows(self) -> Rows:
        """Every row of the unit."""
        for place, member in enumerate(self.end.members):
            if self.moving[place]:
                for row in (*self._shares(place), *self._course(place)):
                    yield {**row, "member": member}
        for row in (*self._kept(), *self._cut()):
            for member, value in zip(self.end.members, row["value"], strict=True):
                yield {**row, "value": value, "member": member}
        yield from self._heads()

    def _shares(self, place: int) -> Rows:
        path = self.products[place]
        walk = walk_like(path)
        found = {"path_share": path, "walk_share": walk, "step_share": steps_of(path),
                 "walk_step_share": steps_of(walk)}  # fmt: skip
        for metric, each in found.items():
            for count, share in zip(KEPT, shares(each, KEPT), strict=True):
                yield {"metric": metric, "part": str(count), "value": share, "step": self.steps[-1]}

    def _course(self, place: int) -> Rows:
        import numpy as np

        courses = self.coefficients[place] / np.sqrt(self.products[place][-1, -1])
        for number, course in enumerate(courses.T[:3], 1):
            for step, value in zip(self.steps, [0.0, *course], strict=True):
                yield {"metric": "coefficient", "part": str(number), "value": float(value), "step": step}
        grown = np.diff(courses[:, 0], prepend=0.0) / np.diff(self.steps)
        fastest = self.steps[1 + int(np.argmax(grown))]
        yield {"metric": "fastest", "value": float(fastest), "step": self.steps[-1]}

    def _losses(self, weights: Sequence["np.ndarray"], moving: Sequence[bool]) -> dict[str, list[float]]:
        """Held-out losses of the members with other weights, `[member]`; NaN for those that do not count."""
        import torch

        flat = self.end.ensemble.transformer.parameters.flat
        kept = flat.clone()
        for place, own in enumerate(weights):
            flat[place] = torch.as_tensor(own, dtype=flat.dtype, device=flat.device)
        predictions = self.end.ensemble(self.samples.inputs)
        losses = self.end.task.losses(predictions, self.samples)
        flat.copy_(kept)
        return {
            name: [float(value) if counts else math.nan for value, counts in zip(values, moving, strict=True)]
            for name, values in losses.items()
            if name.startswith("loss_step_")
        }

    def _kept(self) -> Rows:
        """Losses with the first directions alone, without them, and with the first ones of another seed."""
        whole, last, count = range(len(self.start)), self.steps[-1], len(self.start)
        for kept in KEPT:
            learned: dict[str, list[float]] = {}
            for at, step in enumerate(self.steps[1:]):
                weights = [
                    self.start[place] + self.coefficients[place][at, :kept] @ self.directions[place][:kept]
                    for place in whole
                ]
                for name, losses in self._losses(weights, self.moving).items():
                    yield {"metric": f"kept_{name}", "part": str(kept), "value": losses, "step": step}
                    times = learned.setdefault(name.removeprefix("loss_"), [math.inf] * count)
                    for place in whole:
                        if losses[place] < LEARNED and math.isinf(times[place]):
                            times[place] = float(step)
            for symbol, times in learned.items():
                times = [t if moving else math.nan for t, moving in zip(times, self.moving, strict=True)]
                yield {"metric": "kept_learned_at", "part": f"{kept}: {symbol}", "value": times, "step": last}
            ends = [self._of(place)[-1] for place in whole]
            own = [self.directions[place][:kept] for place in whole]
            others = [self.directions[(place + 1) % count][:kept] for place in whole]
            without = [self.start[p] + ends[p] - (ends[p] @ own[p].T) @ own[p] for p in whole]
            borrowed = [self.start[p] + (ends[p] @ others[p].T) @ others[p] for p in whole]
            both = [
                moving and self.moving[(place + 1) % count] and count > 1
                for place, moving in enumerate(self.moving)
            ]
            for metric, weights, counts in (
                ("without", without, self.moving),
                ("borrowed", borrowed, both),
            ):
                for name, losses in self._losses(weights, counts).items():
                    yield {"metric": f"{metric}_{name}", "part": str(kept), "value": losses, "step": last}

    def _cut(self) -> Rows:
        """Losses with the change of every head's matrices cut to a rank; all other weights as they were learned."""
        import numpy as np
        import torch

        config = self.end.ensemble.config
        names = [f"layers.{layer}.attention.{part}.weight" for layer in range(config.layers)
                 for part in ("query", "key", "value", "output")]  # fmt: skip
        views = self.end.ensemble.transformer.parameters.views()
        flat = self.end.ensemble.transformer.parameters.flat
        for rank in RANKS:
            for name in names:
                start = by_head(self.named[name].double().numpy(), name, config.heads)
                change = by_head(self.final[name].double().numpy(), name, config.heads) - start
                change[~np.array(self.moving)] = 0.0
                joined = joined_heads(start + of_rank(change, rank), name)
                views[name].copy_(torch.as_tensor(joined, dtype=flat.dtype))
            weights = list(flat.clone().cpu().numpy())
            for name in names:
                views[name].copy_(self.final[name])
            for name, losses in self._losses(weights, self.moving).items():
                yield {"metric": f"rank_{name}", "part": str(rank), "value": losses, "step": self.steps[-1]}

    def _heads(self) -> Rows:
        """Effective rank and size of the change of both circuits: of every head, and means over a layer's heads."""
        import numpy as np

        config = self.end.ensemble.config
        for layer in range(config.layers):
            found: dict[tuple[str, int], list[float]] = {}
            for place, head in np.ndindex(len(self.start), config.heads):
                if self.moving[place]:
                    for metric, value in self._of_head(layer, place, head).items():
                        found.setdefault((metric, place), []).append(value)
            for (metric, place), values in found.items():
                where = {"layer": layer, "member": self.end.members[place], "step": self.steps[-1]}
                for head, value in enumerate(values):
                    yield {"metric": metric, "value": value, "head": head, **where}
                yield {"metric": metric, "value": float(np.mean(values)), **where}

    def _of_head(self, layer: int, place: int, head: int) -> dict[str, float]:
        """`qk_rank`, `qk_change`, `ov_rank` and `ov_change` of a head of a member."""
        import numpy as np

        heads, found = self.end.ensemble.config.heads, {}
        for circuit, first, second in (("qk", "query", "key"), ("ov", "value", "output")):
            sides = []
            for weights in (self.final, self.named):
                pair = []
                for part in (first, second):
                    name = f"layers.{layer}.attention.{part}.weight"
                    each = weights[name][place : place + 1].double().numpy()
                    pair.append(by_head(each, name, heads)[0, head])
                sides.append((pair[0], pair[1].T if circuit == "qk" else pair[1]))
            (new, newer), (old, older) = sides
            # The change of a product is a product of twice the size: [A, a] [B; -b] = A B - a b.
            left, right = np.hstack([new, old]), np.vstack([newer, -older])
            found[f"{circuit}_rank"] = effective_rank(left, right)
            found[f"{circuit}_change"] = product_size(left, right)
        return found


def by_head(weight: "np.ndarray", name: str, heads: int) -> "np.ndarray":
    """A weight of attention as one matrix a head, `[member, head, row, column]`; that of `joined_heads` undoes it.

    Args:
        weight: `[member, width, heads · size]`, or for the output `[member, heads · size, width]`.
        name: of the tensor.
        heads: number of heads.
    """
    members, rows, columns = weight.shape
    if ".output." in name:
        return weight.reshape(members, heads, rows // heads, columns).copy()
    return weight.reshape(members, rows, heads, columns // heads).swapaxes(1, 2).copy()


def joined_heads(weight: "np.ndarray", name: str) -> "np.ndarray":
    """The weight of attention whose heads' matrices are given; see `by_head`."""
    members, heads, rows, columns = weight.shape
    if ".output." in name:
        return weight.reshape(members, heads * rows, columns)
    return weight.swapaxes(1, 2).reshape(members, rows, heads * columns)


# The sweep.


def runs_of(times: dict[int, float], batches: dict[int, float], ends: dict[int, float]) -> dict[int, Run]:
    """Member → its run, as predictors see it; members whose time is not known are left out."""
    return {
        member: Run(batches[member], time, ends[member])
        for member, time in times.items()
        if not math.isnan(time)
    }


def predicted(train: Sequence[Run], test: dict[int, Run]) -> dict[str, dict[int, float]]:
    """Predictor → member → predicted training step; nothing where there are not two batch sizes to fit on."""
    if len({run.batch for run in train}) < 2:
        return {name: {} for name in PREDICTORS}
    found = {}
    for name, (_, fit) in PREDICTORS.items():
        predictor = fit(train)
        found[name] = {member: predictor(run.batch) for member, run in test.items()}
    return found


@hs.measure(when="run", needs=(learned_at,))
def predictions(context: hs.Context) -> Rows:
    """Times that each predictor gives for held-out runs (the part is the predictor), and how far they are off.

    `predicted`: training step; `error`: |predicted - true| / true, of runs that learned; `median_error` with
    `median_error_low` and `median_error_high`: over them, with its bootstrap interval over seeds; `constant`: the
    surrogate's (`fastest` in steps, `noise` in samples).
    """
    labels = {record.member: label_of(context.run.unit(record.unit)) for record in context.run.members}
    plans = {record.member: context.run.unit(record.unit).record["plan"] for record in context.run.members}
    seeds = {record.member: record.seed for record in context.run.members}
    times = {
        row.member: math.nan if row.value is None else float(row.value)
        for row in context.rows("learned_at")
        if row.part == "step_1" and row.member is not None
    }
    sweep = {member for member, label in labels.items() if label.startswith((FITTED, HELD_OUT))}
    batches = {member: float(plans[member]["training"]["batch_size"]) for member in sweep}
    ends = {member: float(plans[member]["training"]["steps"]) for member in sweep}
    runs = runs_of({member: times[member] for member in sweep if member in times}, batches, ends)
    train = [run for member, run in runs.items() if labels[member].startswith(FITTED)]
    test = {member: run for member, run in runs.items() if labels[member].startswith(HELD_OUT)}
    for name, steps in predicted(train, test).items():
        errors = {}
        for member, step in steps.items():
            yield {"metric": "predicted", "part": name, "value": step, "member": member}
            if math.isfinite(test[member].time):
                errors[member] = abs(step - test[member].time) / test[member].time
                yield {"metric": "error", "part": name, "value": errors[member], "member": member}
        if errors:
            yield from _median(name, errors, seeds)
    if len({run.batch for run in train}) > 1:
        for name, value in fitted(train)._asdict().items():
            yield {"metric": "constant", "part": name, "value": value}


def _median(name: str, errors: dict[int, float], seeds: dict[int, int]) -> Rows:
    import numpy as np

    ends = median_interval(list(errors.values()), [seeds[member] for member in errors])
    for metric, value in zip(("", "_low", "_high"), (np.median(list(errors.values())), *ends), strict=True):
        yield {"metric": f"median_error{metric}", "part": name, "value": float(value)}
