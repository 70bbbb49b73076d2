"""Engines beside one another for one shape on a CPU, in float32 and bfloat16; the first is what a study would take."""

from collections.abc import Callable, Iterator
from functools import partial

from hopscope.errors import UserError
from hopscope.training import engines

from ._shapes import Ours, Program, contest, shape_of
from ._timing import Asked, Comparison


def measure(asked: Asked) -> Iterator[Comparison]:
    """One comparison, by default of the laptop's deep model; engines that cannot train it are left out."""
    shape = shape_of(asked, "depth")
    first = engines.choose(shape.task, shape.config, "cpu")
    names = [first, *(name for name in engines.ENGINES if name not in (first, "compiled"))]
    programs: dict[str, Callable[[], Program]] = {}
    refused: dict[str, str] = {}
    for precision in ("float32", "bfloat16"):
        for name in names:
            try:
                engines.load(name, shape.task, shape.config, "cpu")
            except UserError as error:
                refused[f"{name}, {precision}"] = str(error)
            else:
                programs[f"{name}, {precision}"] = partial(Ours, shape, range(shape.members), name, precision)
    yield contest(shape, programs, asked) | {"refused": refused}
