"""reduced.py: in how few directions do weights move while a chain of two steps is learned?

Every path of weights has large first directions: a random walk too (Antognini and Sohl-Dickstein, arXiv 1806.08805).
So each share stands beside that of such a walk, and beside that of models that learn nothing.
"""

import math

import hopscope as hs
from hopscope.claims import as_large_as

TASK = hs.tasks.Retrieval(steps=2, chains=4, position="pair")
WHOLE, ALONE = "whole chain", "last symbol alone"
STEPS, EVERY = 400, 20  # training steps, and between checkpoints
SIZE = {"model.layers": 4, "model.heads": 4, "model.width": 512, "training.steps": STEPS}
KEPT = (1, 2, 3, 5)  # numbers of directions that are kept
LEARNED = 0.5  # loss of a learned symbol; by position alone it is 1 - 1/chains


def weights(module):
    """All weights of a module as one vector of doubles."""
    from torch.nn.utils import parameters_to_vector

    return parameters_to_vector(module.parameters()).detach().double().cpu().numpy()


def loss_of_last(member, vector, batch):
    """Held-out loss of x₂, the last symbol, of a member with other weights; a prediction of zeros has 1."""
    import torch
    from torch.nn.utils import vector_to_parameters

    vector_to_parameters(torch.as_tensor(vector, dtype=torch.float32), member.parameters())
    missed = member.intervene(batch, {}) - batch.targets  # [batch, readout, output]
    return float(missed[..., -TASK.symbol_dim :].square().mean())


def shares(products):
    """By number of first directions: share of the squares in them, from products of checkpoints less the start."""
    import numpy as np

    sizes = np.clip(np.linalg.eigvalsh(products)[::-1], 0.0, None)
    return {count: float(sizes[:count].sum() / sizes.sum()) for count in KEPT}


def walk_like(products):
    """The products of a random walk whose steps are as long: two checkpoints share the steps up to the earlier one."""
    import numpy as np

    difference = np.eye(len(products)) - np.eye(len(products), k=-1)
    travelled = np.cumsum(np.diag(difference @ products @ difference.T))
    return np.minimum.outer(travelled, travelled)


@hs.measure(when="run")
def paths(context):
    """Directions of every member's path through the checkpoints, and what it knows with few of them.

    `path_share`, `walk_share`: share of the path in its first directions (the part is their number), and of a random
    walk; `kept_loss_step_2`: held-out loss with the start of training and the change along the first directions alone;
    `borrowed_loss_step_2`: along those of the next member of the unit instead; `without_loss_step_2`: along all others.
    """
    import numpy as np

    for unit in context.run.units:
        context.budget.check()
        apart = context.at(unit).job.training.checkpoint_every
        at = [context.at(unit, step) for step in unit.steps if step % apart == 0 or step == unit.steps[-1]]
        last, count = at[-1], len(at[-1].members)
        every = np.stack([[weights(each.ensemble.member(i)) for i in range(count)] for each in at], 1)
        moved = every[:, 1:] - every[:, :1]  # [member, checkpoint, weight]
        still = [not (np.isfinite(path).all() and path.any()) for path in moved]
        own = [path[:0] if out else directions(path) for path, out in zip(moved, still, strict=True)]
        for index, number in enumerate(last.members):
            if still[index]:
                continue
            path = moved[index] @ moved[index].T
            for metric, each in (("path_share", path), ("walk_share", walk_like(path))):
                for kept, share in shares(each).items():
                    yield {"metric": metric, "part": str(kept), "member": number, "value": share}
            start, end, member = every[index, 0], moved[index, -1], last.ensemble.member(index)
            batch = member.batch(256)
            for kept in KEPT:
                first, other = own[index][:kept], own[(index + 1) % count][:kept]
                along, instead = (end @ each.T @ each for each in (first, other))
                changed = {"kept": start + along, "without": start + end - along, "borrowed": start + instead}
                for name, vector in changed.items():
                    if name == "borrowed" and (count == 1 or still[(index + 1) % count]):
                        continue
                    loss = loss_of_last(member, vector, batch)
                    row = {"metric": f"{name}_loss_step_2", "part": str(kept), "value": loss}
                    yield {**row, "member": number}


def directions(path):
    """The first directions of a path `[checkpoint, weight]`: orthonormal, `[direction, weight]`."""
    import numpy as np

    sizes, vectors = np.linalg.eigh(path @ path.T)
    first = [place for place in np.argsort(-sizes)[: max(KEPT)] if sizes[place] > 1e-12 * sizes.sum()]
    return (vectors[:, first].T @ path) / np.sqrt(sizes[first])[:, None]


def more_than_a_walk(configuration):
    """A function of the evidence: share of the path in its first direction, less that of a walk, `[member]`."""

    def found(evidence):
        path, walk = (
            evidence.last(metric, part="1", configuration=configuration)
            for metric in ("path_share", "walk_share")
        )
        return path - walk

    return found


def walk(evidence):
    return {"first three": evidence.last("walk_share", part="3", configuration=WHOLE)}


def more_than_idle(evidence):
    """By seed: the same of models asked for the whole chain, less that of the models asked for x₂ alone."""
    learning, idle = (
        {evidence.seeds[member]: value for member, value in more_than_a_walk(name)(evidence).items()}
        for name in (WHOLE, ALONE)
    )
    return hs.Samples([value - idle.get(seed, math.nan) for seed, value in learning.items()], unit="seed")


def knows(metric):
    """A function of the evidence: `[member]` of those that learned x₂, 1 where three directions are enough."""

    def found(evidence):
        loss, whole = (
            evidence.last(f"{name}loss_step_2", part=part, configuration=WHOLE)
            for name, part in ((f"{metric}_", "3"), ("", None))
        )
        return (loss < LEARNED).astype(float).where(loss.notna())[~(whole >= LEARNED)]

    return found


WALK, IDLE = "more than a walk", "more than where nothing is learned"
FEW, MOST = hs.at_least(0.9, unit="fraction"), hs.at_least(0.75, unit="fraction")

study = hs.Study(
    name="reduced",
    question="In how few directions do weights move while a chain is learned?",
    task=TASK,
    completion="gpt2-base",
    model=hs.Model(layers=4, heads=4, head_dim=8, width=512, mlp_ratio=0.0),
    training=hs.Training(
        steps=STEPS,
        batch_size=128,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        clip_norm=1.0,
        evaluate_every=EVERY,
        checkpoint_every=EVERY,
    ),
    configurations=lambda options: [
        hs.Configuration(label=WHOLE, overrides={"task.targets": "ic"}),
        hs.Configuration(label=ALONE, overrides={"task.targets": "last"}),
    ],
    seeds=8,
    members_per_unit=8,  # a measure compares members of one unit
    measures=[paths],
    claims=[
        hs.Claim(
            id="D1",
            statement="Weights move in few directions: fewer than in a random walk, and than where nothing is learned.",
            source="open question: reduced dynamics",
            protocol="squares of the path of weights through checkpoints: share in the first three directions; share "
            "in the first one, less that of a random walk with steps as long; and the same excess less that of the "
            "seed's model that is asked for x₂ alone; the control of the first number is that walk",
            value=lambda evidence: {
                "first three": evidence.last("path_share", part="3", configuration=WHOLE),
                WALK: more_than_a_walk(WHOLE)(evidence),
                IDLE: more_than_idle(evidence),
            },
            must={
                "first three": FEW,
                WALK: hs.at_least(0.0),
                IDLE: hs.at_least(0.0),
            },
            rule={"first three": "mean", WALK: "effect", IDLE: "effect"},
            seeds_needed=8,
            at_scale=as_large_as(SIZE),
            controls={"a random walk with steps as long": walk},
            must_not={"first three": FEW},
        ),
        hs.Claim(
            id="D4",
            statement="Three directions are enough to know x₂.",
            source="this file",
            protocol="start of training plus the change along the path's first three directions: of the models that "
            "learned x₂, the share with a held-out loss of x₂ under 0.5; the controls: along the next seed's, and "
            "along all others",
            value=knows("kept"),
            must=MOST,
            rule="share",
            seeds_needed=16,
            at_scale=as_large_as(SIZE),
            controls={"the next seed's": knows("borrowed"), "all others": knows("without")},
        ),
    ],
    figures=[hs.figures.curves("loss_step_2"), hs.figures.bars("path_share", part="3")],
    presets={"smoke": {"seeds": 2, "training.batch_size": 16, "model.width": 64}},
    held_out=256,
)
