"""The study of the first experiments from end to end, at a size for a second."""

import hopscope as hs
from hopscope.studies.diagnosis import diagnoses
from hopscope.studies.first_steps.study import HEADS, LAYERS, USED, WITH

FIELDS = {
    "seeds": 2,
    "model.width": 24,
    "model.head_dim": 2,
    "training.steps": 7,
    "training.batch_size": 5,
    "training.evaluate_every": 3,
    "options.layers": (3,),
    "options.most_steps": 2,
}


def test_a_run_measures_heads_and_failures(tmp_path):
    run = hs.run("first-steps", fields=FIELDS, out=tmp_path)
    evidence = run.evidence
    assert sorted(set(evidence.configurations.values())) == sorted(
        [WITH, "D=2, 4 layers, x₂ alone", "D=1, 3 layers", "D=2, 3 layers"]
    )
    rises = evidence.rows("rise")
    members = [member for member, label in evidence.configurations.items() if label == WITH]
    assert len(rises) == len(members) * LAYERS * HEADS * 2 and set(rises["member"]) == set(members)
    largest = rises.groupby(["member", "layer", "head"])["value"].max()
    for member in members:
        own = largest[member]
        assert evidence.last("largest_rise")[member] == own.max()
        assert evidence.last("heads_used")[member] == (own >= USED).mean()
    for each in diagnoses(run):
        assert evidence.last("signature", part=each.signature)[each.member] == 1
        causes = evidence.rows("cause", member=each.member)
        assert list(causes.loc[causes["value"] == 1, "part"]) == [each.cause.split(":")[0]]


def test_a_head_that_is_taken_out_gives_its_mean(tmp_path):
    """Against an intervention that is written out: head 1 of layer 2 of one member."""
    run = hs.run("first-steps", fields=FIELDS, out=tmp_path)
    ensemble = run.ensemble(configuration=WITH)
    batch = ensemble.batch(512)  # as many as the study holds out
    site, asked = "blocks.2.attn.hook_z", []

    def without(z):
        asked.append(len(z))
        z[..., 1, :] = z[..., 1, :].mean(1, keepdim=True)
        return z

    found = ensemble.intervene(batch, {site: without})
    losses = [ensemble.task.losses(each, batch)["loss_step_2"] for each in (found, ensemble(batch.inputs))]
    rise = run.evidence.rows("rise", layer=2, head=1, part="step_2").set_index("member")["value"]
    assert asked
    assert abs(rise.to_numpy() - (losses[0] - losses[1]).numpy()).max() < 1e-5
