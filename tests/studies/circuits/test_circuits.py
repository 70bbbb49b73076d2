"""Distances of circuits, claims on made-up evidence, and pages of runs that learned all, nothing, or diverged."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from made import page_of, rows_of, words_of

from hopscope.circuits.reader import READ
from hopscope.circuits.rules import Related
from hopscope.runs import Evidence
from hopscope.studies.chains.circuits import of_read
from hopscope.studies.chains.readings import _of_formation, graphs_of, path_distance
from hopscope.studies.circuits.claims import ahead
from hopscope.studies.circuits.families import ahead_and_rest, families, hops, rows
from hopscope.study import jobs
from hopscope.study.load import load

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
FLAGS = ("learned_all", "was_read", "rules_was_read")

OF_FOUR = {"identity": {"options": {"chains": 4}}}


def reading(*paths):
    """A reading with one circuit, of layer, head, rows and what they read."""
    names = ("layer", "head", "query", "target")
    circuit = SimpleNamespace(
        paths=[SimpleNamespace(**dict(zip(names, path, strict=True))) for path in paths]
    )
    return graphs_of(SimpleNamespace(minimal=[(circuit, 1)]))


def test_distances_of_circuits():
    one = reading((0, 1, "second 1", "first 1"), (1, 0, "query 1", "second 1"))
    assert path_distance(one, one) == 0.0
    assert path_distance(one, reading((2, 0, "query 1", "match"))) == 1.0
    assert path_distance(one, reading((0, 2, "second 1", "first 1"))) == pytest.approx(1 / 2)
    moved = reading((0, 2, "second 1", "first 1"), (1, 0, "query 1", "second 1"))
    assert path_distance(one, moved) == 0.0  # which layer and head do a read is not counted


@pytest.mark.parametrize(
    "read, found",
    [
        ("second 2 → second 3", True), ("second 2 → first 3", True), ("second 2 → first 2", False),
        ("query 1 → second 3", False), ("second 3 → second 2", False),
    ],
)  # fmt: skip
def test_a_pair_that_looks_ahead(read, found):
    assert ahead(read) is found


@pytest.mark.parametrize(
    "read, found",
    [
        ("second 2 → first 2", {"link"}), ("query → second 2", {"q→2"}), ("second 2 → first 3 + second 3", {"2→3"}),
        ("first 3 → all second 1 + first 3", {"link"}), ("second 1 → mean_map", set()),
    ],
)  # fmt: skip
def test_what_a_path_does_along_its_chain(read, found):
    assert hops(read) == found


def test_families_are_seeds_that_do_the_same_layer_after_layer():
    def of(member, place, **more):
        layer, head, part = place
        where = {"split": "held-out", "step": 7, "measure": "circuit", "member": member}
        return {**where, "layer": layer, "head": head, "part": part, **more}

    reads = {
        0: [(0, 1, "second 2 → first 2"), (1, 0, "query → second 1"), (1, 5, "second 2 → second 3")],
        1: [(0, 3, "second 3 → first 3"), (3, 0, "query → second 1"), (3, 2, "second 2 → first 3")],
        2: [(0, 0, "second 1 → first 1"), (1, 0, "query → second 1"), (2, 1, "query → second 2")],
        3: [(0, 0, "query → second 2")],
    }
    found = [
        of(each, place, metric="mean_attention", value=0.9) for each, own in reads.items() for place in own
    ]
    for each in reads:  # the last one was not read
        found += [of(each, (None, None, None), metric="was_read", value=float(each < 3))]
        found += [of(each, (None, None, "step_1"), metric="checkpoint_loss", value=0.1)]
    planned = jobs.plan(load("circuits").study.chosen("smoke", {"seeds": 4}))
    evidence = Evidence.of(found, [member for job in planned for member in job.members], OF_FOUR)
    doubling, by_hops = (("link",), ("q→1", "2→3")), (("link",), ("q→1",), ("q→2",))
    assert families(evidence) == {doubling: [0, 1], by_hops: [2]}
    drawn = [(row["family"], row["layer that reads"], row["note"], row["value"]) for row in rows(evidence)]
    assert drawn[:2] == [("2 seeds (0, 1)", 1, "link", 0), ("2 seeds (0, 1)", 2, "q→1 2→3", 1)]
    assert drawn[2:] == [("seed 2", at, *done, 0) for at, done in enumerate(by_hops, 1)]


def test_a_cell_joins_what_a_row_does_and_breaks_lines():
    reads = (
        "query → second 1",
        "query → first 4",
        "second 1 → second 4",
        "second 2 → second 1",
        "first 3 → second 4",
    )
    rows_ = [
        {"member": 0, "metric": "mean_attention", "value": 0.9, "layer": 0, "head": at, "part": each}
        for at, each in enumerate(reads)
    ]
    rows_ += [
        {"member": 0, "metric": "was_read", "value": 1.0},
        {"member": 0, "metric": "checkpoint_loss", "part": "step_1", "value": 0.1},
    ]
    planned = jobs.plan(load("circuits").study.chosen("smoke", {"seeds": 1}))
    evidence = Evidence.of(rows_, [member for job in planned for member in job.members], OF_FOUR)
    (row,) = rows(evidence)
    assert row["note"] == "q→1,4 1→4 2→1|3→4" and row["value"] == 2 and row["family"] == "seed 0"


def test_who_looks_ahead_more_and_who_is_done_sooner(monkeypatch):
    evidence = Evidence.read(RESULTS / "circuits/five-steps/evidence.parquet")
    options = load("circuits").study.chosen("workstation", {"steps": 5, "layers": 8}).options
    assert ahead_and_rest(options, evidence).note == "only circuits from which it was made"
    monkeypatch.setattr("hopscope.studies.circuits.families._SEEN", (5, 0))
    found = ahead_and_rest(options, evidence)
    times = evidence.last("fell_at", part="step_5") - evidence.last("fell_at", part="step_1")
    times = times.dropna()  # the model that learned nothing has no time
    assert [rest for _, rest in found.values] == times.tolist() and len(times) == 15 and found.ranks
    ahead = dict(zip(times.index, [more for more, _ in found.values], strict=True))
    assert ahead[4] == max(ahead.values()) and ahead[0] == ahead[1] == min(ahead.values())  # six, and one


def test_a_read_has_formed_with_its_rows_and_a_step_with_its_last_read(monkeypatch):
    places = [
        (0, "query", "first 1", 500.0),
        (1, "second 1", "first 1", 740.0),
        (2, "second 1", "first 1", 900.0),
    ]
    paths = [
        SimpleNamespace(
            layer=layer, head=0, query=rows, read=read, target=read, rule=Related(relation="own"), at=at
        )
        for layer, rows, read, at in places
    ]
    found = [(path, {0: 0.0, path.at - 10: 0.0, path.at + 10: 1.0, 1000: 1.0}) for path in paths]
    monkeypatch.setattr("hopscope.circuits.history.formation", lambda *given: found)
    read = SimpleNamespace(circuit=SimpleNamespace(paths=paths), verdict=READ, learned=["step_1"],
                           evidence=[SimpleNamespace(needed_for="step_1")] * 3)  # fmt: skip
    context = SimpleNamespace(task=SimpleNamespace(asked=["step_1"]))
    rows = [row for row in _of_formation(read, [(1000, None)], context) if row.get("part") == "step_1"]
    assert {row["metric"]: row["value"] for row in rows}["formed_at"] == pytest.approx(740, abs=10)


def test_who_learned_all_by_more_samples_than_the_reader_took_is_missing():
    planned = jobs.plan(load("circuits").study.chosen("smoke"))
    flags = {
        "learned_all": [1.0, 0.0],
        "was_read": [1.0, 1.0],
        "heads": [3.0, 2.0],
        "checkpoint_loss": [0.1, 0.2],
    }
    made = [{"member": n, "metric": name, "value": value, "part": "step_1" if "loss" in name else None}
            for name, values in flags.items() for n, value in enumerate(values)]  # fmt: skip
    evidence = Evidence.of(made, [each for job in planned for each in job.members], OF_FOUR)
    found = of_read(evidence, "both", "heads")
    assert found[0] == 3.0 and found.isna()[1]


def test_pairs_cannot_look_ahead_in_another_order():
    study = load("circuits").study.chosen("workstation", {"order": "shallowest-first"})
    lacks = {claim.id: claim.at_scale(None) for claim in study.all_claims() if claim.id in ("N14", "N23")}
    assert all("order shallowest-first, not deepest-first" in each for each in lacks.values())


def more_rows(outcome, diverged, planned):
    """What the measures find of members that learned all, or nothing."""
    yield from rows_of(planned, outcome, diverged)
    for job in planned:
        for member in (each.member for each in job.members):
            gone = diverged == "all" or member in diverged
            at = {"member": member, "step": job.training.steps, "measure": "circuit"}
            loss = None if gone else {"learned": 0.013, "nothing": 0.83}[outcome]
            for metric, part in (
                ("final_loss", None),
                ("final_loss", "step_1"),
                ("checkpoint_loss", "step_1"),
            ):
                yield {**at, "metric": metric, "part": part, "value": loss}
            for flag in FLAGS:
                yield {**at, "metric": flag, "value": None if gone else float(outcome == "learned")}
            if gone or outcome == "nothing":
                continue
            for metric, value in {"heads": 2, "paths": 3, "minimal_circuits": 1, "circuit_class": 0}.items():
                yield {**at, "metric": metric, "value": float(value)}
            losses = {"full": 0.02, "rules": 0.03, "recomputed": 0.02, "complement": 0.7} | {
                "random_circuits": 0.8
            }
            for part, value in losses.items():
                yield {**at, "metric": "circuit_loss", "part": part, "value": value}
            for layer, read in ((0, "second 1 → first 1"), (1, "query 1 → second 1")):
                path = {**at, "layer": layer, "head": 1, "part": read}
                yield {**path, "metric": "mean_attention", "value": 0.9}
                yield {**path, "metric": "needed_for", "value": 1.0}
                for mode in ("rules", "clean", "recomputed"):
                    yield {**path, "metric": f"loss_without_{mode}", "value": 0.75}
                for end, value in (("", 1.0), ("_at", 70.0), ("_at_low", 50.0), ("_at_high", 100.0)):
                    yield {**path, "metric": f"formed{end}", "value": value}
            for event in ("formed", "fell"):
                for end, value in (("", 1.0), ("_at", 80.0), ("_at_low", 50.0), ("_at_high", 100.0)):
                    yield {**at, "part": "step_1", "metric": f"{event}{end}", "value": value}


@pytest.fixture(autouse=True)
def _without_drawings(monkeypatch):
    """SVG and PNG of a figure take seconds; what the page shows is its specification."""
    monkeypatch.setattr("hopscope.page.files._drawn", lambda name, spec: ("<svg/>", b""))


@pytest.mark.parametrize("name", ["circuits", "emergence"])
@pytest.mark.parametrize("diverged", [(), (1,), "all"])
@pytest.mark.parametrize("outcome", ["learned", "nothing"])
def test_a_page_of_any_outcome(tmp_path, name, outcome, diverged):
    page, _ = page_of(tmp_path, name, "smoke", lambda planned: more_rows(outcome, diverged, planned))
    words = words_of(page)
    assert ("so there is no answer" in words) == (diverged == "all")
    assert ("Training diverged in" in words) == bool(diverged)
    assert ("Is it better than chance?" in words) == (outcome == "learned" and diverged != "all")
    count = len(load(name).study.chosen("smoke").grid()) - 1 + 2
    if not diverged:
        every = f"{count} of {count}" if outcome == "learned" else f"0 of {count}"
        assert f"{every} models learned the whole chain" in words
    assert "nan" not in words.lower().split()


@pytest.mark.parametrize("run", ["circuits/laptop", "emergence/laptop"])
def test_the_page_of_a_committed_run(tmp_path, run):
    page, ledger = page_of(tmp_path, run.split("/")[0], "laptop", parquet=RESULTS / run / "evidence.parquet")
    words = words_of(page)
    assert "4 of 4 models learned the whole chain" in words and all(verdict.id in page for verdict in ledger)
