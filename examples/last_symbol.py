"""last_symbol.py: what is the least help with which a model learns the end of a chain that it does not learn alone?

Chains of three steps, x₀ → x₁ → x₂ → x₃.  Every sample asks for x₃; a share of the samples asks for x₁ and x₂ as well,
each by a draw of its own.  Two other kinds of help stand beside: x₂ alone is asked for too, or x₁ alone at first.
"""

import hopscope as hs
from hopscope.claims import as_large_as

SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
NEXT, FIRST = "x₂ in every sample", "x₁ alone for 300 steps, then x₃ alone"
LEARNED, PLATEAU = 0.25, 0.7
WRITTEN = {"model.layers": 4, "model.heads": 8, "model.width": 128, "training.steps": 1000}


def helped(share):
    return f"x₁ and x₂ in {share:.0%} of the samples"


ALONE, WHOLE = helped(0.0), helped(1.0)


def configurations(options):
    asked = {
        helped(share): {"task.shares": (share, share, 1.0), "task.emphasis": "subsets"} for share in SHARES
    }
    asked[NEXT] = {"task.shares": (0.0, 1.0, 1.0)}
    asked[FIRST] = {"task.targets": (1,), "task.schedule": ((300, "last"),)}
    return [hs.Configuration(label=name, overrides=fields) for name, fields in asked.items()]


def loss_of(name):
    """A function of the evidence: held-out loss of x₃ at the end, by seed."""
    return lambda evidence: evidence.last("loss_step_3", configuration=name)


def claim(id, statement, name, criterion, control):
    return hs.Claim(
        id=id,
        statement=statement,
        source="this file; paper, section 7.2, asks for x₃ alone and finds the plateau",
        protocol=f"held-out loss of x₃ at the end, every seed; {name}; the control: {control}",
        value=loss_of(name),
        must=criterion,
        seeds_needed=8,
        at_scale=as_large_as(WRITTEN),
        controls={control: loss_of(control)},
    )


def by_share(evidence):
    """Final loss of x₃ over the share of the samples that ask for the easier symbols as well."""
    return [
        {"share": share, "member": member, "seed": evidence.seeds[member], "value": loss}
        for share in SHARES
        for member, loss in loss_of(helped(share))(evidence).items()
    ]


study = hs.Study(
    name="last-symbol",
    question="What is the least help with which a model learns the end of a chain?",
    task=hs.tasks.Retrieval(steps=3, chains=4, position="pair"),
    model=hs.Model(layers=4, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=1000, batch_size=64, learning_rate=4e-3, evaluate_every=20, checkpoint_every=1000
    ),
    configurations=configurations,
    seeds=8,
    held_out=512,
    claims=[
        claim("L1", "Asked for alone, x₃ is not learned in 1,000 steps.", ALONE, hs.at_least(PLATEAU), WHOLE),
        claim(
            "L2",
            "Help in a tenth of the samples is enough, within 1,000 steps.",
            helped(0.1),
            hs.at_most(LEARNED),
            ALONE,
        ),
        claim("L3", "Asking for x₂ as well is enough, within 1,000 steps.", NEXT, hs.at_most(LEARNED), ALONE),
        claim(
            "L4",
            "A model that has learned x₁ learns x₃ alone within 700 more steps.",
            FIRST,
            hs.at_most(LEARNED),
            ALONE,
        ),
    ],
    figures=[
        hs.figures.sweep("loss_step_3", "share", rows=by_share, title="final held-out loss of x₃"),
        hs.figures.bars("loss_step_3", by="configuration"),
        hs.figures.curves("loss_step_3", by="configuration"),
    ],
    presets={
        "smoke": {
            "seeds": 2,
            "training.steps": 400,
            "training.batch_size": 8,
            "training.evaluate_every": 100,
            "model.width": 32,
            "model.layers": 1,
            "model.heads": 2,
            "held_out": 64,
        }
    },
)
