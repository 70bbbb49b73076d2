"""Witnesses: transformers with hand-built weights that solve the retrieval problem in the fewest layers possible.

`theory.information_flow` says how many layers are necessary in a model of attention; a witness is an ordinary
`Transformer` that needs no more.  `witness_plans` says who reads whom; `hand_built` turns that into weights.
"""

from hopscope.models.hand_built import Copy, Design, HeadDesign, build
from hopscope.models.transformer import Transformer
from hopscope.models.witness_plans import Mask, PlannedHead, plan
from hopscope.tasks.config import RetrievalConfig


def witness(task: RetrievalConfig, *, mask: Mask = "causal") -> Transformer:
    """A transformer of one member that solves the task: mean squared error below 0.01 for K ≥ 4, N = 4 and D ≤ 8.

    Symbols that almost coincide are confused.  That matters for many keys in few dimensions only: without a mask, the
    error is about 0.05 for K = 2, N = 5, D = 3.

    Args:
        task: any chains, steps and targets, with position codes by pair; with the causal mask, deepest first.
        mask: `"causal"`: one head a layer and 1 + ⌈log₂(D + 1)⌉ layers.  `"none"`: at most two heads, and the
            least t layers with (3^t - 1)/2 ≥ 2D.

    Returns:
        An ordinary transformer: pre-norm, GELU, codes carried by the inputs; only its first MLP does anything.

    Raises:
        ValueError: the task's position codes or order are others, or its codes too many to be told apart.
    """
    if task.position != "pair":
        raise ValueError(f"position: expected 'pair', as in the proof of Theorem 1, found {task.position!r}")
    deepest_first = task.order == "deepest-first" or task.order == tuple(range(task.steps, 0, -1))
    if mask == "causal" and not deepest_first:
        raise ValueError(f"order: expected 'deepest-first' with the causal mask, found {task.order!r}")
    planned = plan(task.steps, mask=mask, asked=task.asked)
    layers = tuple(
        tuple(planned_design(head) for head in heads) + (None,) * (planned.heads - len(heads))
        for heads in planned.layers
    )
    return build(task, Design(mask, layers, tuple(((2 * step, 1.0),) for step in task.asked)))


def planned_design(head: PlannedHead) -> HeadDesign:
    """A head of a plan as it is built."""
    copies = tuple(Copy(mine, theirs) for mine, theirs in head.copies)
    return HeadDesign(compares=(head.mine, head.theirs), copies=copies, avoid=head.avoid)
