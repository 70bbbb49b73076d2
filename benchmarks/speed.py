"""Training speed of the engine that a study would take, beside plain PyTorch and, where it is installed, JAX."""

from collections.abc import Callable, Iterator

from ._jax import Jax, installed
from ._plain import Plain
from ._shapes import Ours, Program, contest, shape_of
from ._timing import Asked, Comparison


def measure(asked: Asked) -> Iterator[Comparison]:
    """One comparison, by default of permutation lookup."""
    shape = shape_of(asked, "permutation")
    seeds = range(shape.members)
    programs: dict[str, Callable[[], Program]] = {
        "hopscope": lambda: Ours(shape, seeds),
        "hopscope, autograd": lambda: Ours(shape, seeds, "autograd"),
        "plain PyTorch": lambda: Plain(shape, seeds),
        "plain PyTorch, softmax written out": lambda: Plain(shape, seeds, "softmax"),
    }
    if installed():
        programs["JAX, vmap"] = lambda: Jax(shape, seeds)
    yield contest(shape, programs, asked)
