"""Evidence made up by hand, where the right verdict is known."""

from hopscope.tasks.config import training_mappings
from hopscope.theory.posteriors import elimination_floor, training_floor

from .cells import Cell

STEPS = 5
TIMES = [float(time) for time in range(0, 2001, 10)]
LATE = [2e6 + 1e5 * time for time in range(11)]
"""Samples long after whatever happens in `TIMES`; the last five epochs are 500,000 samples."""


def evidence(name, seeds=10, frozen=(), exhaustive=True, **measured):
    """Evidence of one configuration; a value is that of every seed, or a list of theirs."""

    def each(key, default=0.5):
        value = measured.get(key, default)
        return list(value) if isinstance(value, list) else [value] * seeds

    records = {
        "probes": {
            **{key: each(key) for key in ("elimination", "recall", "mass_unused", "mass_recalled")},
            "accuracy_by_step": [[0.2, 0.25, 0.33, value, 1.0] for value in each("undetermined", 0.45)],
            "repeat_mae": each("repeat_mae", 0.4),
            "repeat_max_ae": each("max_ae"),
            "repeat_max_ae_of_sample": each("sampled_max_ae"),
            "exhaustive": {"plain": True, "repeats": exhaustive},
        },
        "posteriors": {
            # The worst step is the one that counts; used values are looked at from step 2 to step 4 only.
            "mae_uniform_held_out": [[value / 2, value, *[0.0] * (STEPS - 2)] for value in each("mae")],
            "used_mass_mean": [[0.9, 0.0, value / 3, value, 0.9] for value in each("used")],
            "tilt_correlation": each("tilt"),
            "tilt_control": each("tilt_control", 0.0),
            "train_minus_held_out": each("gap"),
            "memorised_share": each("memorised"),
            "held_out_loss": [memorising(name)(share) for share in each("memorised_held_out", -2.0)],
            "uniform_floor": memorising(name)(0.0),
            "training_floor": memorising(name)(1.0),
        },
        "battery": {
            "head_interchange": {"self_change": each("self_change", 0.0)},
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
            },
            "heat_map": {
                share: [list(heads) for heads in each(share, (0.5, 0.5))]
                for share in ("x_rows_to_earlier_y", "y_rows_to_themselves", "x_rows_to_preceding_y")
            },
        },
    }
    losses = [
        ([], []) if loss is None else ([*TIMES[1:], *LATE], [first, *[loss] * len([*TIMES[2:], *LATE])])
        for loss, first in zip(
            each("loss", 1.0) if "memorised" not in measured else map(memorising(name), each("memorised")),
            each("first_loss", 1.9),
            strict=True,
        )
    ]

    def late(key):
        """The last value of a skill, unless it is said to have been another one late in training."""
        return each(f"late_{key}", measured.get(key, 0.5))

    rises = each("rise", 0.0) if "rise" in measured else [None] * seeds
    recalls = [0.0 if "rise" in measured and length is None else value
               for length, value in zip(rises, late("recall"), strict=True)]  # fmt: skip
    curves = {
        "held_out/recall": [
            ([*TIMES, *LATE], [*rise(length), *[value] * len(LATE)])
            for length, value in zip(rises, recalls, strict=True)
        ],
        "train/loss": losses,
        "held_out/elimination": [
            ([*TIMES, *LATE], [*rise(length), *[value] * len(LATE)])
            for length, value in zip(each("elimination_rise", 2000.0), late("elimination"), strict=True)
        ],
        "held_out/mass_recalled": [(LATE, [value] * len(LATE)) for value in late("mass_recalled")],
    }  # fmt: skip
    members = list(range(100, 100 + seeds))
    return Cell(name, members, list(range(seeds)), records, curves, list(frozen))


def memorising(name):
    """Training loss of a share of the way to memorising the training mappings."""
    values = 4 if "V=4" in name else 5
    uniform, known = elimination_floor(values), training_floor(values, training_mappings(values, 0.2))
    return lambda share: uniform - share * (uniform - known)


def rise(length):
    """Recall that goes from 0 to 1 on a straight line of this length around time 1,000; `None`: it never rises."""
    if length is None:
        return [0.0] * len(TIMES)
    return [min(1.0, max(0.0, 0.5 + (time - 1000.0) / length)) for time in TIMES]
