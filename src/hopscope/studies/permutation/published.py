"""What the presentation prints: its tables and its worked sequences, to stand beside ours.  Numbers, no torch."""

from collections.abc import Mapping

Rows = Mapping[str, tuple[float, ...]]

VALUES = 5
"""V of everything that is printed."""

BY_STEP: Mapping[str, Rows] = {
    "d16/1 plain": {
        "accuracy": (0.0956, 0.1640, 0.2456, 0.4226, 1.0),
        "mean error": (0.012388, 0.015530, 0.018369, 0.015447, 0.000292),
        "largest error": (0.034079, 0.072218, 0.101983, 0.119183, 0.001334),
    },
    "d32/2 repeats": {
        "accuracy": (0.1456, 0.1640, 0.2336, 0.4150, 1.0, 1.0),
        "mean error": (0.014704, 0.020145, 0.021205, 0.020931, 0.000081, 0.000838),
        "largest error": (0.055206, 0.090151, 0.143933, 0.168254, 0.001548, 0.055650),
    },
}
"""Sections 6 and 9, one seed each: steps 1 to 5, then step 5 of sequences with a repeat."""

PLAIN, PLAIN_PROBE = "d16/1 plain, section 6", "d16/1 plain, section 7: the probe"
REPEATS, REPEATS_PROBE = "d32/2 repeats, section 9", "d32/2 repeats, section 9: the probe"

TITLES: Mapping[str, str] = {
    PLAIN: "no repeat (source: d16/1)",
    PLAIN_PROBE: "x comes back (source: d16/1)",
    REPEATS: "no repeat (source: d32/2)",
    REPEATS_PROBE: "x comes back (source: d32/2)",
}
"""What the page calls them, by the model for which the source shows them: its sections say nothing to most readers."""

SEQUENCES: Mapping[str, tuple[int, ...]] = {
    PLAIN: (2, 3, 1, 5, 4, 4, 3, 2, 5, 1),
    PLAIN_PROBE: (2, 4, 5, 3, 4, 5, 3, 2, 2, 4),
    REPEATS: (2, 3, 1, 5, 5, 1, 4, 4, 3, 2),
    REPEATS_PROBE: (2, 3, 1, 5, 5, 1, 4, 4, 2, 3),
}
"""The worked sequences, x₁ y₁ … x₅ y₅."""

PROBABILITIES: Mapping[str, tuple[tuple[float, ...] | None, ...]] = {
    PLAIN: (
        (0.208, 0.188, 0.201, 0.169, 0.233),
        (0.260, 0.236, 0.000, 0.236, 0.269),
        (0.347, 0.368, 0.000, 0.285, 0.000),
        (0.546, 0.454, 0.000, 0.000, 0.000),
        (0.9999, 0.000, 0.000, 0.000, 0.000),
    ),
    PLAIN_PROBE: (
        (0.214, 0.171, 0.213, 0.187, 0.215),
        (0.235, 0.239, 0.229, 0.000, 0.296),
        (0.288, 0.409, 0.001, 0.001, 0.302),
        (0.525, 0.474, 0.001, 0.001, 0.000),
        (0.9991, 0.000, 0.000, 0.000, 0.000),
    ),
    REPEATS: (
        (0.212, 0.208, 0.195, 0.183, 0.202),
        (0.256, 0.264, 0.000, 0.244, 0.236),
        (0.329, 0.322, 0.000, 0.349, 0.000),
        (0.000, 0.578, 0.000, 0.422, 0.000),
        (0.000, 0.9999, 0.000, 0.000, 0.000),
    ),
    REPEATS_PROBE: (None, None, None, None, (0.001, 0.000, 0.9985, 0.000, 0.001)),
}
"""What it prints for them, by step and value; `None` where it prints no numbers."""

OF_CONFIGURATION: Mapping[str, tuple[str, str]] = {
    "d16/1 plain": (PLAIN, PLAIN_PROBE),
    "d32/2 repeats": (REPEATS, REPEATS_PROBE),
}
"""Whose worked sequences they are: one without a repeat and one with."""


def worked_examples(values: int) -> dict[str, tuple[int, ...]]:
    """Sequences to work through: the published ones at V = 5, else one without a repeat and one with."""
    if values == VALUES:
        return dict(SEQUENCES)
    mapping = [*range(2, values + 1), 1]
    pairs = [(x, mapping[x - 1]) for x in range(1, values + 1)]
    plain = tuple(token for pair in pairs for token in pair)
    return {"without a repeat": plain, "with a repeat": plain[:-2] + plain[:2]}
