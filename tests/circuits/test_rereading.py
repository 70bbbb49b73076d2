"""How far readings of one model are apart, on circuits whose distances are known."""

import pytest

from hopscope.circuits.rereading import circuits_of, compared, distance, graph_distance, path_distance


def test_the_distance_by_paths_is_small_for_circuits_that_differ_in_one():
    paths = [(layer, 0, "query", "key") for layer in range(5)]
    whole, less, other = (frozenset({frozenset(each)}) for each in (paths[:4], paths[:3], paths[3:]))
    assert (path_distance(whole, whole), distance(whole, less)) == (0.0, 1.0)
    assert path_distance(whole, less) == path_distance(less, whole) == pytest.approx(1 / 4)
    assert path_distance(less, other) == 1.0
    nothing = frozenset({frozenset()})
    assert path_distance(nothing, nothing) == distance(nothing, nothing) == 0.0
    # Of two circuits in one set, each has its nearest: 3/4 both ways, and 1/5 for the other one alone.
    assert path_distance(whole, less | other) == pytest.approx(1 - (3 / 4 + (3 / 4 + 1 / 5) / 2) / 2)


def test_graphs_of_reads_are_the_same_whatever_layer_does_a_read():
    def circuit(*paths):
        return frozenset({frozenset(paths)})

    low, high = ((layer, layer % 2, "query", "key") for layer in (0, 3))
    further = (5, 0, "query", "value")
    assert (path_distance(circuit(low), circuit(high)), graph_distance(circuit(low), circuit(high))) == (
        1.0,
        0.0,
    )
    assert graph_distance(circuit(low), circuit(high, further)) == pytest.approx(1 / 2)


def record(*circuits):
    """A reading that found circuits, each named by what its heads of layer 0, 1, … read."""
    return {
        "minimal_circuits": [
            {"circuit": {"paths": [
                {"layer": layer, "head": 0, "query": "q", "target": target, "rule": None}
                for layer, target in enumerate(targets)
            ]}}
            for targets in circuits
        ]
    }  # fmt: skip


def test_readings_are_compared_in_pairs():
    """Two readings are equal, and the third shares one path of three with them: 2/3 apart in two of three pairs."""
    found = compared([record("ab"), record("ab"), record("ac")])
    assert found is not None
    assert found == (3, pytest.approx(2 / 3), pytest.approx(2 / 3 * (1 - 1 / 3)))


def test_a_reading_without_a_circuit_is_left_out():
    assert compared([record("ab"), record()]) is None
    assert compared([record("ab"), record(), record("ab")]) == (2, 0.0, 0.0)


def test_circuits_are_equal_by_their_reads():
    one, other = (
        record("ab")["minimal_circuits"][0]["circuit"],
        record("ac")["minimal_circuits"][0]["circuit"],
    )
    assert circuits_of([one]) == circuits_of([one, one]) != circuits_of([other])
