"""What a measure of the permutation study finds of a model, and made-up evidence."""

from types import SimpleNamespace

import pytest

from hopscope.models.transformer import Transformer
from hopscope.runs import Evidence, Member
from hopscope.studies.permutation.options import Options
from hopscope.study.measure import Context, rows_of


class Unit(SimpleNamespace):
    """Members, with what was recorded in training."""

    steps = [0]

    @property
    def members(self):
        return [
            Member(member=number, seed=number, configuration="d8/1 repeats") for number in range(self.count)
        ]

    def diverged_at(self, step):
        return self.diverged or [None] * self.count


def measured(measure, model, task, *, record=(), diverged=None, batch_size=10, **options):
    """(metric, part, split, head) → value, `[member]` or of one member."""
    model = (
        model
        if model.members
        else Transformer(model.config, 1).load({k: w[None] for k, w in model.weights().items()})
    )
    options = Options(configurations=("d8/1 repeats",), **options)
    unit = Unit(count=len(model), diverged=diverged)
    members = [*range(len(model))]
    training = SimpleNamespace(batch_size=batch_size)
    job = SimpleNamespace(label="d8/1 repeats", device="cpu", training=training)
    context = Context(
        measure, "", SimpleNamespace(config={}, path=None), unit, options, None, 7, job,
        of_members=(model.knowing(task, [0] * len(model), 7), None), of_part=lambda name, function: [],
        of_measure=lambda name: [{"measure": name, "member": members, **row} for row in record],
    )  # fmt: skip
    rows = rows_of(measure(context), context)
    found = {(r["metric"], r.get("part"), r["split"], r.get("head")): r["value"] for r in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="session")
def measure_of():
    return measured


def made_up(cells, seeds=10, diverged=()):
    """Evidence of configurations, name → {(metric, measure, part, head, split): value of every seed, or a list}."""
    members, rows = [], []
    for name, numbers in cells.items():
        own = [Member(member=len(members) + seed, seed=seed, configuration=name) for seed in range(seeds)]
        members += own
        for (metric, measure, part, head, split), value in numbers.items():
            values = value if isinstance(value, list) else [value] * seeds
            values = [None if each.seed in diverged else one for each, one in zip(own, values, strict=True)]
            row = {
                "metric": metric,
                "measure": measure,
                "part": part,
                "head": head,
                "split": split,
                "step": 5,
            }
            row |= {"layer": None if head is None else 0}
            rows.append({**row, "member": [each.member for each in own], "value": values})
    return Evidence.of(rows, members)


@pytest.fixture(scope="session")
def evidence_of():
    return made_up
