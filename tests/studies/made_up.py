"""Evidence made up by hand, where the right verdict is known."""

from .cells import Cell

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
    losses = [
        ([], []) if loss is None else (TIMES[1:], [loss] * len(TIMES[1:])) for loss in each("loss", 1.0)
    ]
    curves = {
        "held_out/recall": [(TIMES, rise(length)) for length in each("rise", None)],
        "train/loss": losses,
    }
    members = list(range(100, 100 + seeds))
    return Cell(name, members, list(range(seeds)), records, curves, list(frozen))


def rise(length):
    """Recall that goes from 0 to 1 on a straight line of this length around time 1,000; `None`: it never rises."""
    if length is None:
        return [0.0] * len(TIMES)
    return [min(1.0, max(0.0, 0.5 + (time - 1000.0) / length)) for time in TIMES]
