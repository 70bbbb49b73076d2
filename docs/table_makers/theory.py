"""Tables that are counted anew: layers that retrieval needs, and chains that prove it."""

from collections import Counter
from itertools import permutations
from typing import Literal

from table_makers.common import markdown


def theory() -> str:
    """Layers that a chain of D steps needs: the published bound and the counted minima."""
    from hopscope.theory.information_flow import (
        bound_layers,
        exact_layers,
        exact_layers_single_target,
        theorem_bound,
    )

    columns = [
        "D",
        "theorem 1: log₃(2D)",
        "layers it allows",
        "exact, no mask",
        "exact, causal, deepest-first",
        "exact, causal, shallowest-first",
        "exact, one target, any mask and order",
    ]
    rows = [
        [
            steps,
            f"{theorem_bound(steps):.3f}",
            bound_layers(steps),
            exact_layers(steps, "none", "deepest-first"),
            exact_layers(steps, "causal", "deepest-first"),
            exact_layers(steps, "causal", "shallowest-first"),
            exact_layers_single_target(steps),
        ]
        for steps in range(1, 17)
    ]
    return markdown(columns, [[str(cell) for cell in row] for row in rows])


def theory_orders() -> str:
    """The layers of every order of the pairs, counted one by one."""
    from hopscope.theory.information_flow import exact_layers

    rows = []
    for steps in range(1, 9):
        needed = Counter(exact_layers(steps, "causal", order) for order in permutations(range(1, steps + 1)))
        orders = permutations(range(1, steps + 1))
        first = next(order for order in orders if exact_layers(steps, "causal", order) == min(needed))
        counts = "; ".join(f"{layers} layers: {count}" for layers, count in sorted(needed.items()))
        without = exact_layers(steps, "none", "deepest-first")
        rows.append([str(steps), str(without), counts, ",".join(map(str, first))])
    return markdown(["D", "no mask", "orders that need so many, causal", "one that needs fewest"], rows)


def witnesses() -> str:
    """Losses of the hand-built transformers, which are made and measured on the spot."""
    columns = ["D", "mask", "layers", "heads", "width", "MSE", "worst"]
    return markdown(columns, [_witness(steps, mask) for mask in ("causal", "none") for steps in range(1, 9)])


def _witness(steps: int, mask: Literal["causal", "none"]) -> list[str]:
    # Other tables do without torch.
    import torch

    from hopscope.tasks.config import RetrievalConfig
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.zoo.witnesses import witness

    task = RetrievalTask(RetrievalConfig(steps=steps, position="pair"))
    model, batch = witness(task.config, mask=mask), task.evaluation(250, annotate=False)
    with torch.no_grad():
        found = [float(loss) for loss in task.losses(model(batch.inputs), batch).values()]
    shape = model.config
    sizes = [str(size) for size in (shape.layers, shape.heads, shape.width)]
    return [str(steps), mask, *sizes, *(_small(loss) for loss in (found[0], max(found)))]


def _small(loss: float) -> str:
    return f"{loss:.4f}" if loss >= 0.0001 else "< 0.0001"


def witness_plan(steps: str, mask: Literal["causal", "none"]) -> str:
    """Who reads whom in a hand-built transformer."""
    from hopscope.zoo.witnesses import plan

    return f"```\n{plan(int(steps), mask=mask)}\n```\n"
