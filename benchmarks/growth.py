"""How the cost grows with layers, steps of the chain and members, beside plain PyTorch at every size."""

from collections.abc import Callable, Iterator
from functools import partial

from hopscope.errors import UserError
from hopscope.tasks import Retrieval

from ._plain import Plain
from ._shapes import Ours, Program, Shape, contest, shape_of
from ._timing import Asked, Comparison

GROWN = {"layers": (1, 2, 4, 6, 8, 12), "steps": (1, 2, 3, 4, 6, 8), "members": (1, 2, 4, 8, 16)}


def measure(asked: Asked) -> Iterator[Comparison]:
    """A comparison for each size, by default of the laptop's deep model."""
    shape = shape_of(asked, "depth")
    if not isinstance(shape.task, Retrieval):
        raise UserError(
            f"model: expected one on chains for growth, found {asked.model!r}; take depth or tiny"
        )
    for axis, values in GROWN.items():
        for value in values:
            grown = sized(shape, axis, value)
            seeds = range(grown.members)
            programs: dict[str, Callable[[], Program]] = {
                "hopscope": partial(Ours, grown, seeds),
                "plain PyTorch": partial(Plain, grown, seeds, "softmax"),
            }
            yield contest(grown, programs, asked) | {"axis": axis, "value": value}


def sized(shape: Shape, axis: str, value: int) -> Shape:
    """A shape of another size along one axis; members are half as many, but where they are the axis."""
    few = shape._replace(title=f"{axis} {value}", members=max(1, shape.members // 2))
    if axis == "members":
        return few._replace(members=value)
    if axis == "layers":
        return few._replace(model=shape.model.model_copy(update={"layers": value}))
    return few._replace(task=shape.task.model_copy(update={"steps": value}))
