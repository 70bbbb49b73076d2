"""Evidence made up by hand, where the right verdict is known."""

from dataclasses import replace

from hopscope.runs.evidence import Evidence as Table
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.evidence import Analysed, Source
from hopscope.studies.permutation.measures import of_analyses, of_curves

STEPS = 5
TIMES = [float(time) for time in range(0, 2001, 10)]


def evidence(name, seeds=10, frozen=(), exhaustive=True, **measured):
    """Evidence of one configuration; a value is that of every seed, or a list of theirs."""

    def each(key, default=0.5):
        value = measured.get(key, default)
        return list(value) if isinstance(value, list) else [value] * seeds

    records = {
        "probes": {
            **{key: each(key) for key in ("elimination", "recall", "mass_unused", "mass_recalled")},
            "exhaustive": {"plain": True, "repeats": exhaustive},
        },
        "posteriors": {
            # The worst step is the one that counts; used values are looked at from step 2 to step 4 only.
            "mae_uniform_held_out": [[value / 2, value, *[0.0] * (STEPS - 2)] for value in each("mae")],
            "used_mass_mean": [[0.9, 0.0, value / 3, value, 0.9] for value in each("used")],
            "tilt_correlation": each("tilt"),
            "train_minus_held_out": each("gap"),
            "memorised_share": each("memorised"),
        },
        "battery": {
            "clean": {"recall": each("recall"), "elimination": each("elimination")},
            "mlp_ablation": {"mean": {"recall": each("ffn_recall"), "elimination": each("ffn_elimination")}},
            "earlier_rows": {
                "last_row_change": {
                    replacement: {"repeats": [0.0] * seeds, "plain": each("last_row")}
                    for replacement in ("uniform", "identity", "random")
                }
            },
        },
        "roles": {
            "assignment": {
                f"{skill}_lost_with_{head}_head": each(f"{skill}_lost_with_{head}_head")
                for skill in ("recall", "elimination")
                for head in ("recall", "elimination")
            }
        },
    }
    curves = [rise(length) for length in each("rise", None)]
    return Analysed(
        configuration=Configuration.parse(name),
        members=list(range(100, 100 + seeds)),
        seeds=list(range(seeds)),
        sources={
            analysis: [Source(f"units/x/analysis/{analysis}.json", record, index) for index in range(seeds)]
            for analysis, record in records.items()
        },
        training_loss=each("loss", 1.0),
        frozen=list(frozen),
        curves={
            "held_out/recall": [(TIMES, curve) for curve in curves],
            "train/loss": [(TIMES[1:], [1.0] * (len(TIMES) - 1)) for _ in curves],
        },
    )


def table(cells, config):
    """The evidence table of a run that trained these configurations, and only them.

    Args:
        cells: what `evidence` returned, in the run's order.
        config: of the study; how training departs from the source follows from it.
    """
    members, rows = [], []
    for cell in cells:
        first = len(members)
        numbers = [first + place for place in range(len(cell.members))]
        overrides = cell.configuration.overrides()
        members += [
            {"member": number, "seed": seed, "configuration": cell.name, "overrides": overrides}
            for number, seed in zip(numbers, cell.seeds, strict=True)
        ]
        frozen = {
            number for number, member in zip(numbers, cell.members, strict=True) if member in cell.frozen
        }
        numbered = replace(cell, members=numbers, frozen=sorted(frozen))
        for row in (*of_analyses(numbered, config), *of_curves(numbered, config)):
            # The table of a run has no values of a member after its training broke off.
            rows.append(replace(row, value=None) if row.member in frozen else row)
    return Table.of(members, rows, config.model_dump(mode="json"))


def rise(length):
    """Recall that goes from 0 to 1 on a straight line of this length around time 1,000; `None`: it never rises."""
    if length is None:
        return [0.0] * len(TIMES)
    return [min(1.0, max(0.0, 0.5 + (time - 1000.0) / length)) for time in TIMES]
