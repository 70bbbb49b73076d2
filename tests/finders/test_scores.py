"""Scores against numbers that were worked out by hand, and truths against the plans that plants were built from."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from tests.circuits.external import hand_set, zoo_model

from hopscope.errors import UserError
from hopscope.finders.benchmark import finder_of, run, smallest
from hopscope.finders.catalogue import ZooModel, chosen, export_model, models_in, zoo_models
from hopscope.finders.circuit_file import (
    CircuitFile,
    FoundCircuit,
    ScoredEdge,
    ScoredRow,
    edges_said,
    read_circuits,
)
from hopscope.finders.contract import ranked
from hopscope.finders.edges import edges_of
from hopscope.finders.scores import SHARES, Bench, area, auroc, best_auroc, best_match
from hopscope.finders.truth import LEAST_RISE, true_edges


@cache
def zoo() -> dict[str, ZooModel]:
    return {model.name: model for model in zoo_models()}


@cache
def bench(name: str) -> Bench:
    return Bench(zoo()[name])


# Measures.


def test_auroc_counts_pairs_and_ties():
    assert auroc([0.9, 0.4], [0.5, 0.1, 0.4]) == pytest.approx((3 + 0 + 1 + 0.5) / 6)
    assert auroc([], [1.0]) is None and auroc([1.0], []) is None


def test_of_several_circuits_the_nearest_counts_and_the_others_do_not_count_against():
    one, other = frozenset("abx"), frozenset("aby")
    assert best_match(frozenset("abx"), [one, other]) == (1.0, 1.0)
    assert best_match(frozenset("abxy"), [one, other]) == (1.0, 1.0)
    assert best_match(frozenset("abz"), [one, other]) == (2 / 3, 2 / 3)
    assert best_match(frozenset(), [one]) == (None, 0.0)
    assert best_auroc(dict(zip("abxyz", (3.0, 2.0, 1.0, 9.0, 1.5), strict=True)), [one]) == pytest.approx(
        2 / 6
    )
    assert best_auroc(dict(zip("abxyz", (3.0, 2.0, 1.0, 9.0, 1.5), strict=True)), [one, other]) == 1.0


def test_areas_are_those_of_trapezoids():
    assert area([1.0] * len(SHARES)) == pytest.approx(0.999)
    assert area(SHARES) == pytest.approx((1.0 - 0.001**2) / 2.0)


def test_ties_stand_in_an_order_that_is_always_the_same():
    edges = edges_of(zoo()["chain-007"].build().config)
    assert ranked(dict.fromkeys(edges, 0.0)) == ranked(dict.fromkeys(reversed(edges), 0.0)) != edges
    values = {edge: float(number - 20) for number, edge in enumerate(edges)}
    assert ranked(values)[0] == edges[-1] and ranked(values, signed=False)[-1] == edges[20]


# Truth.


def test_the_truth_of_a_walk_is_its_plan():
    """The query hops by what it has read before, keys are found by their mates, and the logits want every symbol."""
    walk = next(model for model in zoo().values() if model.truth.title.startswith("walk, D = 2:"))
    (found,) = true_edges(walk, walk.build())
    (mates, first, second) = sorted(found.heads)
    one, two, three = (f"a{layer}.h{head}" for layer, head in (mates, first, second))
    assert set(map(str, found.edges)) == {
        f"{one}->{two}<k>", f"{one}->{three}<k>", f"{two}->{three}<q>", f"{two}->logits", f"{three}->logits",
    }  # fmt: skip
    assert found.loss < 0.001 and found.most_false < 1e-6 and found.least_true > 0.1


@pytest.mark.soak
def test_rises_of_true_edges_are_far_from_those_of_others():
    for model in [*zoo().values(), *map(zoo_model, hand_set().values())]:
        for found in true_edges(model, model.build()):
            assert found.edges, model.name
            assert found.least_true > 5 * LEAST_RISE, model.name
            assert found.most_false is None or found.most_false < LEAST_RISE / 5, model.name


# Scores.


def circuit(name: str, edges: dict[str, float | None], **more) -> FoundCircuit:
    said = tuple(ScoredEdge(edge=edge, score=score) for edge, score in edges.items())
    return FoundCircuit(model=name, edges=said, **more)


def test_a_right_circuit_and_its_curve():
    """Two of five edges: at a share of 0.2 there is one, at 0.5 two, at 1 all."""
    found = bench("chain-000")
    scores = found.score(circuit("chain-000", {"a0.h0->a1.h0<k>": 0.5, "a1.h0->logits": 0.7}))
    assert (scores.precision, scores.recall, scores.auroc) == (1.0, 1.0, 1.0)
    assert (scores.head_precision, scores.head_recall, scores.head_auroc) == (1.0, 1.0, None)
    (last,) = [edge for edge in found.patching.edges if str(edge) == "a1.h0->logits"]
    one = found.faithfulness([last])
    assert scores.curve == pytest.approx([0.0] * 7 + [one, 1.0, 1.0], abs=1e-6)
    assert scores.cpr == pytest.approx(0.1 * one / 2 + 0.3 * (one + 1.0) / 2 + 0.5, abs=1e-6)
    assert scores.cmd == pytest.approx(
        0.099 + 0.1 * (1 + abs(1 - one)) / 2 + 0.3 * abs(1 - one) / 2, abs=1e-6
    )
    assert scores.faithfulness == pytest.approx(1.0, abs=1e-6)
    assert found.faithfulness([]) == 0.0


def test_signed_scores_are_ranked_by_sign_for_cpr_and_by_size_for_cmd():
    name = "chain-000"
    edges = {str(edge): 0.0 for edge in bench(name).patching.edges}
    signed = bench(name).score(circuit(name, edges | {"a0.h0->a1.h0<k>": -0.5, "a1.h0->logits": -0.7}))
    positive = bench(name).score(circuit(name, edges | {"a0.h0->a1.h0<k>": 0.5, "a1.h0->logits": 0.7}))
    assert signed.cmd == positive.cmd and signed.cpr < positive.cpr
    assert signed.auroc == 0.0


def test_circuits_without_scores_have_no_curve():
    scores = bench("chain-001").score(circuit("chain-001", {"a0.h1->a1.h0<k>": None, "a1.h1->logits": None}))
    assert (scores.precision, scores.recall) == (0.5, 0.5)
    assert (scores.head_precision, scores.head_recall) == (2 / 3, 1.0)
    assert scores.auroc is scores.cpr is scores.cmd is scores.curve is None


def test_head_rows_stand_for_the_edges_between_their_heads():
    rows = [(0, 1, "second 1", 0.4), (1, 0, "query", 0.9)]
    found = FoundCircuit(
        model="chain-001",
        heads=tuple(ScoredRow(layer=a, head=b, rows=rows, score=score) for a, b, rows, score in rows),
    )
    scores = bench("chain-001").score(found)
    assert (scores.row_precision, scores.row_recall) == (1.0, 1.0)
    assert (scores.head_precision, scores.head_recall, scores.head_auroc) == (1.0, 1.0, 1.0)
    assert (scores.precision, scores.recall) == (2 / 5, 1.0)
    said = {
        str(edge): each.score
        for edge, each in edges_said(found, bench("chain-001").transformer.config).items()
    }
    assert said == {
        "a0.h1->a1.h0<q>": 0.4, "a0.h1->a1.h0<k>": 0.4, "a0.h1->a1.h0<v>": 0.4, "a0.h1->logits": 0.4,
        "a1.h0->logits": 0.9,
    }  # fmt: skip


# Files and folders.


def written(path: Path, *circuits: dict, **more) -> Path:
    path.write_text(
        json.dumps({"format": "hopscope-circuits", "schema_version": 1, "circuits": circuits, **more})
    )
    return path


EDGE = {"edge": "a0.h0->a1.h0<k>"}


@pytest.mark.parametrize(
    ("circuits", "words"),
    [
        ([{"model": "chain-999", "edges": []}], "found 'chain-999'"),
        ([{"model": "chain-000", "edges": []}] * 2, "found 'chain-000' again"),
        ([{"model": "chain-000"}], "expected edges or heads, found neither"),
        ([{"model": "chain-000", "edges": [{**EDGE, "score": 1.0}, EDGE]}], "found 1 of 2"),
        ([{"model": "chain-000", "edges": [{"edge": 3}]}], "circuits.0.edges.0.edge"),
        ([{"model": "chain-000", "edges": [{**EDGE, "weight": 1}]}], "no field"),
    ],
)
def test_a_file_that_says_something_else_is_refused_in_one_line(tmp_path, circuits, words):
    with pytest.raises(UserError, match=words) as error:
        read_circuits(written(tmp_path / "f.json", *circuits), list(zoo().values()))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"edges": [{"edge": "a0.h0->a1.h1<k>"}]}, "found 'a0.h0->a1.h1<k>'"),
        ({"edges": [{"edge": "input->logits"}]}, "found 'input->logits'"),
        ({"heads": [{"layer": 0, "head": 5}]}, "layer 0, head 5"),
    ],
)
def test_absent_edges_and_heads_are_refused(said, words):
    found = FoundCircuit.model_validate({"model": "chain-000", **said})
    with pytest.raises(UserError, match=words):
        bench("chain-000").score(found)


@pytest.mark.parametrize("name", ["chain-001", "permutation-00"])
def test_exported_models_say_the_same(tmp_path, name):
    export_model(zoo()[name], tmp_path)
    (again,) = models_in(tmp_path)
    assert again.truth == zoo()[name].truth
    inputs = bench(name).patching.batch.inputs
    assert (again.build()(inputs) == zoo()[name].build()(inputs)).all()


def test_damaged_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"expected folders with circuit\.json"):
        list(models_in(tmp_path))
    folder = export_model(zoo()["chain-000"], tmp_path)
    (folder / "circuit.json").write_text('{"format": "hopscope-planted"}')
    with pytest.raises(UserError, match="export the model again"):
        list(models_in(tmp_path))
    with pytest.raises(UserError, match="found 'nobody'"):
        chosen(("nobody",), list(zoo().values()))


def test_plants_of_other_make_become_models_of_the_benchmark(tmp_path):
    plant = zoo_model(hand_set()["walk, D = 1, post-norm, decoys"])
    export_model(plant, tmp_path)
    (found,) = [Bench(model) for model in models_in(tmp_path)]
    assert [set(map(str, each.edges)) for each in found.truth] == [{"a0.h1->a1.h1<k>", "a1.h1->logits"}]
    outside = zoo_model(hand_set()["content at the other chain"])
    assert not outside.truth.grammar and outside.heads == (frozenset({(0, 0), (1, 0), (2, 0)}),)


# The benchmark.


def test_a_run_is_gone_on_with_and_takes_anybodys_finder(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from hopscope.finders import Patching, ScoredEdge\n"
        "def find(model, task, budget):\n"
        "    patching = Patching.drawn(model, task, budget)\n"
        "    return [ScoredEdge(edge=str(edge), score=1.0) for edge in patching.edges]\n"
    )
    finders = {"mine": finder_of(f"{mine}:find"), "acdc": finder_of("acdc")}
    models = [zoo()["chain-000"], zoo()["permutation-01"]]
    told: list[str] = []
    run(models[:1], {"mine": finders["mine"]}, tmp_path / "scores.json", told.append)
    record = run(models, finders, tmp_path / "scores.json", told.append)
    assert [line.partition(",")[0] for line in told] == [
        "chain-000: mine", "chain-000: acdc", "permutation-01: mine", "permutation-01: acdc",
    ]  # fmt: skip
    assert json.loads((tmp_path / "scores.json").read_text()) == json.loads(json.dumps(record, default=list))
    chains = record["summary"]["chains, rules describe them"]
    assert chains["mine"]["precision"] == {"mean": 0.4, "interval": None, "n": 1}
    assert chains["acdc"]["precision"]["mean"] == 1.0
    assert record["truth"]["chain-000"]["circuits"][0]["edges"] == ["a0.h0->a1.h0<k>", "a1.h0->logits"]
    (tmp_path / "scores.json").write_text("{}")
    with pytest.raises(UserError, match="expected a record of hopscope zoo run"):
        run(models, finders, tmp_path / "scores.json")


def test_the_finder_of_the_documentation_works(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(example, encoding="utf-8")
    record = run(
        [zoo()["chain-000"]], {"mine": finder_of(f"{tmp_path / 'mine.py'}:find")}, tmp_path / "scores.json"
    )
    (scores,) = record["scores"]["mine"]
    assert (scores["precision"], scores["recall"]) == (1.0, 1.0)
    (file,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "circuits.json").write_text(file, encoding="utf-8")
    found = read_circuits(tmp_path / "circuits.json", list(zoo().values()))
    assert [len(each.edges or each.heads) for each in found.circuits] == [2, 1]


@pytest.mark.parametrize(("name", "words"), [("nobody", "found 'nobody'"), ("none.py:find", "none.py:find")])
def test_finders_that_there_are_not(name, words):
    with pytest.raises(UserError, match=words):
        finder_of(name)


def test_a_file_without_the_function(tmp_path):
    (tmp_path / "mine.py").write_text("found = 1\n")
    with pytest.raises(UserError, match=r"expected a function find\(model, task, budget\)"):
        finder_of(f"{tmp_path / 'mine.py'}:find")


def test_the_smallest_models_of_every_family_come_first():
    models = smallest(zoo().values(), 2)
    families = [model.truth.family for model in models]
    half = len(set(families))
    assert set(families[:half]) == set(families[half:]) == {model.truth.family for model in zoo().values()}
    assert {"walk", "copies", "leaking", "permutation recall"} < set(families)
    assert len(smallest(zoo().values(), None)) == len(zoo()) == 126 + 18


def test_circuits_are_json():
    found = CircuitFile(circuits=(circuit("chain-000", {"a1.h0->logits": 0.7}),))
    assert CircuitFile.model_validate_json(found.model_dump_json()) == found
