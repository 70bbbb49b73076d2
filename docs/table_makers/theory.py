"""Tables that are counted anew: layers that retrieval needs, and models that prove it."""

import torch

from hopscope.circuits.plants import witness
from hopscope.tasks import Draws, Retrieval
from hopscope.theory import information_flow as flow
from table_makers.common import markdown


def theory() -> str:
    """Layers that a chain of D steps needs: the published bound and the counted minima."""
    columns = ["D", "theorem 1: log₃(2D)", "layers it allows", "exact, no mask", "exact, causal, deepest-first",
               "exact, causal, shallowest-first", "exact, one target, any mask and order"]  # fmt: skip
    rows = [
        [steps, f"{flow.theorem_bound(steps):.3f}", flow.bound_layers(steps),
         flow.exact_layers(steps, "none", "deepest-first"), flow.exact_layers(steps, "causal", "deepest-first"),
         flow.exact_layers(steps, "causal", "shallowest-first"), flow.exact_layers_single_target(steps)]
        for steps in range(1, 9)
    ]  # fmt: skip
    return markdown(columns, [[*map(str, row)] for row in rows])


def witnesses() -> str:
    """Losses of the hand-built transformers, which are made and measured on the spot."""
    columns = ["D", "mask", "layers", "heads", "width", "MSE", "worst"]
    return markdown(columns, [_witness(steps, causal) for causal in (True, False) for steps in range(1, 7)])


def _witness(steps: int, causal: bool) -> list[str]:
    task = Retrieval(steps=steps, position="pair")
    model, batch = (
        witness(task, causal=causal),
        task.sample(Draws(torch.tensor([0]), "held-out", range(1), 250)),
    )
    with torch.no_grad():
        losses = {name: float(loss) for name, loss in task.parts(model(batch.inputs[0])[None], batch).items()}
    sizes = [str(getattr(model.config, name)) for name in ("layers", "heads", "width")]
    found = (losses["loss"], max(losses.values()))
    shown = (f"{loss:.4f}" if loss >= 0.0001 else "< 0.0001" for loss in found)
    return [str(steps), "causal" if causal else "none", *sizes, *shown]
