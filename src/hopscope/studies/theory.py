"""What the information-flow model says of the study's own masks and orders of pairs."""

from hopscope.studies.recipe import RecipeConfig
from hopscope.theory.information_flow import Mask, Order, exact_layers, layers_per_step


def mask_and_order(config: RecipeConfig) -> tuple[Mask, Order]:
    """Mask and order of pairs as the theory takes them.

    Where the order is random, a model must be right in every one, also in the worst; none is worse than deepest-first
    (docs/theory.md).
    """
    order: Order = "deepest-first" if config.order == "random" else config.order
    return ("causal" if config.causal else "none"), order


def exact_of(config: RecipeConfig, steps: int) -> int:
    """Exact minimum of layers for x_D."""
    return exact_layers(steps, *mask_and_order(config))


def exact_by_step(config: RecipeConfig, steps: int) -> dict[int, int]:
    """Exact minimum of layers for each x_k."""
    return layers_per_step(steps, *mask_and_order(config))
