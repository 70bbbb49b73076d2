"""`hopscope circuit` and `hopscope.read_circuit` on a run whose member is a witness, beside one that never learned."""

import json

import pytest
import torch

import hopscope as library
from hopscope.circuits import record
from hopscope.circuits.built_in_tasks import PermutationCircuits
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash, save_checkpoint
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.zoo.permutations import planted_permutations
from hopscope.zoo.witnesses import witness

STEPS, MEMBERS = (7, 11), (3, 5)
WITNESS, UNTRAINED = MEMBERS
TASK = RetrievalConfig(steps=2, chains=3, position="pair")
KEYS = {"member", "checkpoint", "paths", "loss", "minimal_circuits", "verdict"}
PATH_KEYS = {
    "layer", "head", "query_role", "rule", "target_role", "mean_attention", "carries", "composition", "loss_if_removed",
    "needed_for",
}  # fmt: skip


def make_run(root) -> RunFolder:
    """The second checkpoint holds the witness and an untrained model, the first one two untrained ones."""
    return made_of(root, "depth", TASK, witness(TASK))


def made_of(root, study, task, built) -> RunFolder:
    job = TrainJob(
        label="built",
        task=task,
        model=built.config,
        training=TrainingConfig(steps=STEPS[-1]),
        members=tuple(MemberPlan(member=member, seed=member) for member in MEMBERS),
    )
    plan = job.model_dump(mode="json")
    entries = [
        {"member": member, "unit": content_hash(plan), "index": index, "seed": member, "overrides": {}}
        for index, member in enumerate(MEMBERS)
    ]
    run = RunFolder.create(root, study, {"made": "up"}, entries, None)
    unit = run.units[0].create({"label": job.label, "plan": plan})
    for step in STEPS:
        model = Transformer.initial(built.config, torch.tensor([13, 17]))
        both = Parameters(parameter_specs(built.config), 2)
        both.flat.copy_(model.parameters.flat)
        if step == STEPS[-1]:
            both.flat[0] = built.parameters.flat[0]
        arrays = {f"weights/{name}": view.numpy() for name, view in both.views().items()}
        save_checkpoint(unit.checkpoint_path(step), arrays, {"step": step})
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"))


def test_the_circuit_of_a_witness(hopscope, run):
    said = hopscope("circuit", run.path, "--member", WITNESS, "--json")
    assert (said.status, said.err) == (0, "")
    found = json.loads(said.out)
    assert found.keys() >= KEYS
    assert (found["member"], found["checkpoint"], found["verdict"]) == (WITNESS, STEPS[-1], "read")
    assert all(path.keys() == PATH_KEYS for path in found["paths"])
    reads = [
        (path["layer"], path["query_role"], path["rule"], path["target_role"]) for path in found["paths"]
    ]
    assert reads == [
        (0, "second 2", "previous", "first 2"),
        (0, "second 1", "previous", "first 1"),
        (1, "query", "hop_1", "second 1"),
        (2, "query", "hop_2", "second 2"),
    ]
    loss = found["loss"]
    assert loss["full"] < 0.01
    assert loss["rules"] < 0.05 > loss["recomputed"]
    assert loss["random_circuits"] > 0.6 < loss["complement"]


def test_what_a_witness_s_paths_carry(run):
    paths = library.read_circuit(run, WITNESS).record["paths"]
    mates, hops = paths[:2], paths[2:]
    for step, path in zip((2, 1), mates, strict=True):
        assert path["carries"] == [f"x_{step - 1}"]
        # The strongest use: whoever looks for the symbol before finds the token by it.
        assert path["composition"][0]["part"] == "K"
        assert path["composition"][0]["reader"] == {"layer": step, "head": 0, "query_role": "query"}
        removed = path["loss_if_removed"]
        assert removed["rules"] < 0.01, "under given patterns only values flow"
        assert removed["recomputed"] > 0.2
    assert [path["carries"] for path in hops] == [["x_1"], ["x_2"]]
    assert [use["part"] for use in hops[0]["composition"]] == ["Q", None]
    assert [use["reader"] for use in hops[1]["composition"]] == ["readout"]
    for path in hops:
        assert min(path["loss_if_removed"].values()) > 0.2
        assert path["mean_attention"] > 0.99


def test_a_model_that_never_learned_has_no_circuit(hopscope, run):
    said = hopscope("circuit", run.path, "--member", UNTRAINED, "--json")
    found = json.loads(said.out)
    assert (said.status, found["paths"], found["verdict"]) == (0, [], "no circuit: above plateau")


@pytest.mark.parametrize("flag", ["--step", "--checkpoint"])
def test_the_circuit_of_an_earlier_step(hopscope, run, flag):
    said = hopscope("circuit", run.path, "--member", WITNESS, flag, STEPS[0])
    assert (said.status, said.out) == (0, f"member {WITNESS}, step 7: no circuit: above plateau\n")


def test_the_first_member_is_read_where_none_is_named(hopscope, run):
    assert hopscope("circuit", run.path).out.splitlines()[0] == f"member {WITNESS}, step 11: read"


def test_the_table_names_what_is_read(hopscope, run):
    said = hopscope("circuit", run.path, "--member", WITNESS)
    assert said.status == 0
    for words in ("0.0", "second 2", "first 2", "hop_2", "1.0 K", "readout", "threshold 0.050"):
        assert words in said.out


def test_the_table_fits_eighty_columns(hopscope, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = hopscope("circuit", run.path, "--member", WITNESS)
    assert all(len(line) <= 80 for line in said.out.splitlines())
    for words in ("second 2", "previous", "hop_2", "1.0 K", "readout", "recomp.", "Loss without the path"):
        assert words in said.out


def test_a_reading_is_found_on_record(run, monkeypatch):
    first = library.read_circuit(run, WITNESS)
    monkeypatch.setattr(record, "read_circuit", None)
    again = library.read_circuit(run.path, WITNESS)
    assert again.record == first.record
    assert again.circuit == first.circuit
    assert again.verdict == "read"
    assert str(again).splitlines() == [
        f"member {WITNESS}, step 11: read",
        "layer 0, head 0: second 2 → first 2",
        "layer 0, head 0: second 1 → first 1",
        "layer 1, head 0: query → second 1",
        "layer 2, head 0: query → second 2",
    ]


def test_an_interrupted_reading_goes_on(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    whole, stages = [], []

    def stop_at(number):
        def progress(stage):
            stages.append(stage)
            if len(stages) == number:
                raise KeyboardInterrupt

        return progress

    with pytest.raises(KeyboardInterrupt):
        record.read_member(run, WITNESS, progress=stop_at(4))
    (partial,) = run.units[0].path.glob("analysis/circuit-*-stages-*.json")
    assert len(json.loads(partial.read_text())) == 3
    done, stages[:] = stages[:3], []
    whole.append(record.read_member(run, WITNESS, progress=stages.append))
    assert not set(done) & set(stages), "what is done is not done again"
    assert not partial.exists()
    for path in run.units[0].path.glob("analysis/circuit-*"):
        path.unlink()
    assert record.read_member(run, WITNESS) == whole[0]


def test_bad_input_is_one_line(hopscope, run, tmp_path):
    assert "member: expected" in hopscope("circuit", run.path, "--member", 2).complaint
    assert "checkpoint of step 8" in hopscope("circuit", run.path, "--member", 3, "--step", 8).complaint
    said = hopscope("circuit", run.path, "--member", WITNESS, "--tau", 1e-30)
    assert said.complaint.startswith("hopscope: tau: expected at least the loss of the unablated model, 0.0")
    assert "found nothing there" in hopscope("circuit", tmp_path / "none", "--member", 0).complaint


def test_a_run_without_checkpoints_is_one_line(hopscope, tmp_path):
    run = make_run(tmp_path)
    for path in run.units[0].path.glob("checkpoints/*"):
        path.unlink()
    said = hopscope("circuit", run.path, "--member", WITNESS)
    assert "expected a checkpoint, found none" in said.complaint


# Permutation lookup.


@pytest.fixture(scope="module")
def lookup(tmp_path_factory):
    """The matching head is the second one."""
    (plant,) = [plant for plant in planted_permutations() if plant.name == "recall: V = 4, matching head 1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PermutationCircuits, "samples", 32)
        yield made_of(tmp_path_factory.mktemp("lookup"), "permutation", plant.task, plant.model)


def test_the_circuit_of_a_permutation_model(hopscope, lookup):
    said = hopscope("circuit", lookup.path, "--member", WITNESS, "--json")
    assert (said.status, said.err) == (0, "")
    found = json.loads(said.out)
    assert found.keys() >= KEYS
    assert (found["verdict"], found["learned"]) == ("read", ["elimination", "recall"])
    assert all(path.keys() == PATH_KEYS for path in found["paths"])
    reads = [(path["head"], path["query_role"], path["rule"], path["target_role"]) for path in found["paths"]]
    assert reads == [
        (0, "x 2", "previous", "y 1"),
        (0, "x 3", "over_role", "all y"),
        (0, "x 4", "history", "all y"),
        (0, "x 4 repeat", "history", "all y"),
        (1, "x 4 repeat", "same_symbol", "any"),
    ]
    assert found["threshold"] == pytest.approx(found["loss"]["full"] + 0.02)
    assert [path["carries"] for path in found["paths"]] == [["y"], ["y"], ["y"], ["y"], ["x position"]]
    needed = [path["needed_for"] for path in found["paths"]]
    assert needed == [None, None, "elimination", "recall", "recall"]
    assert all([use["reader"] for use in path["composition"]] == ["readout"] for path in found["paths"])
    (pointer,) = [
        each for each in found["exchanges"] if each["head"] == 1 and each["exchanged"] == "x position"
    ]
    assert (pointer["query_role"], pointer["answers_kept"], pointer["answers_follow"]) == (
        "x 4 repeat",
        0.0,
        1.0,
    )


def test_the_table_of_a_permutation_model(hopscope, lookup):
    said = hopscope("circuit", lookup.path, "--member", WITNESS)
    assert said.status == 0
    for words in ("x 4 repeat", "same_symbol", "history", "x position", "readout", "elimination, recall"):
        assert words in said.out
    assert library.read_circuit(lookup, WITNESS).verdict == "read"


def test_an_untrained_permutation_model_has_no_circuit(hopscope, lookup):
    said = hopscope("circuit", lookup.path, "--member", UNTRAINED)
    assert (said.status, said.out) == (0, f"member {UNTRAINED}, step 11: no circuit: above plateau\n")


def test_a_threshold_for_a_permutation_model(hopscope, lookup):
    said = hopscope("circuit", lookup.path, "--member", WITNESS, "--tau", 0.5)
    assert said.complaint.startswith("hopscope: tau: expected at least the loss of the unablated model, 0.79")


def test_the_papers_proof_counts_no_head_that_shapes_what_others_attend_to(hopscope, run):
    """Of the witness's four reads two only make the keys that the other two look for."""
    said = hopscope("circuit", run.path, "--member", WITNESS, "--proof", "rules", "--json")
    found = json.loads(said.out)
    assert (said.status, found["verdict"]) == (0, "read")
    assert [(path["layer"], path["rule"]) for path in found["paths"]] == [(1, "hop_1"), (2, "hop_2")]
    assert found["loss"]["rules"] < 0.05 and found["loss"]["recomputed"] > 0.2
    both = hopscope("circuit", run.path, "--member", WITNESS, "--json")
    assert len(json.loads(both.out)["paths"]) == 4


def test_a_witness_is_read_alike_again(hopscope, run):
    """It has one circuit, so every reading finds it."""
    said = hopscope("circuit", run.path, "--member", WITNESS, "--again", "2", "--json")
    assert json.loads(said.out)["reread"] == {"readings": 3, "whole": 0.0, "by_paths": 0.0}
    words = " ".join(hopscope("circuit", run.path, "--member", WITNESS, "--again", "2").out.split())
    assert "3 readings, distance between two of them: by paths 0.00, by whole circuits 0.00" in words
    refused = hopscope("circuit", run.path, "--member", WITNESS, "--again", "-2")
    assert refused.status == 2 and "times: expected at least 1, found -2" in refused.err


def test_each_path_stands_between_two_bounds(hopscope, run):
    said = hopscope("circuit", run.path, "--member", WITNESS, "--bounds", "--json")
    found = json.loads(said.out)
    assert len(found["bounds"]) == len(found["paths"]) == 4
    for path, bounds in zip(found["paths"], found["bounds"], strict=True):
        assert len(bounds["others"]) in (1, 2)
        assert max(bounds["others"]) < 0.05 < 0.2 < bounds["removed"], path
        # One head a layer: to take the layer away is to take the head away.
        assert bounds["layer"] == bounds["removed"]
    shown = hopscope("circuit", run.path, "--member", WITNESS, "--bounds").out
    assert "largest" in shown and "in all heads of its layer" in shown


def test_the_circuit_of_another_member_is_run_in_this_one(hopscope, run):
    said = hopscope("circuit", run.path, "--member", WITNESS, "--circuit-of", WITNESS, "--json")
    found = json.loads(said.out)
    own = {mode: found["loss"][mode] for mode in ("full", "rules", "recomputed")}
    assert found["transferred"] == {"circuit_of": WITNESS, "loss": own}
    # A model without a circuit hands on the empty one: nothing is read.
    said = hopscope("circuit", run.path, "--member", WITNESS, "--circuit-of", UNTRAINED, "--json")
    assert json.loads(said.out)["transferred"]["loss"]["rules"] > 0.5
    said = hopscope("circuit", run.path, "--member", WITNESS, "--circuit-of", WITNESS)
    assert f"The circuit of member {WITNESS} in this model: by its rules 0.0" in said.out
    said = hopscope("circuit", run.path, "--member", UNTRAINED, "--circuit-of", WITNESS)
    assert said.complaint.startswith("hopscope: circuit: expected a model that has learned something")
