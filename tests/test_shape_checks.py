"""The checks that the other tests run under notice what they are for."""

from collections.abc import Sequence

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.models.layers import Attention
from hopscope.models.transformer import Transformer


@pytest.fixture
def checked(shape_checks):
    """The decorator that the import hook puts on functions."""
    return shape_checks.jaxtyped(typechecker=None)


def product(
    left: Float[Tensor, "row inner"], right: Float[Tensor, "inner column"]
) -> Float[Tensor, "row column"]:
    return left @ right if left.sum() else left


def sizes(parts: Sequence[Int[Tensor, " part"]], name: str = "") -> list[int]:
    return [int(part.sum()) for part in parts]


def plain(name: str, count: int) -> str:
    return name * count if count else None


def test_axes_have_one_size_in_arguments_and_result(checked):
    guarded = checked(product)
    assert guarded(torch.ones(3, 5), torch.ones(5, 7)).shape == (3, 7)
    assert guarded(torch.ones(2, 3), torch.ones(3, 11)).shape == (2, 11)  # no call remembers another
    with pytest.raises(TypeError, match="parameter right"):
        guarded(torch.ones(3, 5), torch.ones(7, 5))
    with pytest.raises(TypeError, match="return"):
        guarded(torch.zeros(3, 5), torch.ones(5, 7))
    with pytest.raises(TypeError, match="parameter left"):
        guarded(torch.ones(3, 5, dtype=torch.int64), torch.ones(5, 7))


def test_shapes_within_containers_count_too(checked):
    guarded = checked(sizes)
    assert guarded([torch.ones(3, dtype=torch.int64)]) == [3]
    with pytest.raises(TypeError, match="parameter parts"):
        guarded([torch.ones(3, 2, dtype=torch.int64)])


def test_types_are_checked_where_no_shape_is_named(checked):
    guarded = checked(plain)
    assert guarded("ab", 2) == "abab"
    with pytest.raises(TypeError, match="parameter count"):
        guarded("ab", "2")
    with pytest.raises(TypeError, match="return"):
        guarded("ab", 0)


def quoted(left: Float[Tensor, "row"], right: "OnlyForTypeCheckers") -> "OnlyForTypeCheckers":  # noqa: F821
    return right


def test_a_name_in_quotes_is_not_looked_up_and_the_rest_is_checked(checked):
    guarded = checked(quoted)
    assert guarded(torch.ones(3), 5) == 5
    with pytest.raises(TypeError, match="parameter left"):
        guarded(torch.ones(3, 2), 5)


def test_a_function_inside_has_axes_of_its_own(checked):
    inner = checked(product)

    def twice(left: Float[Tensor, "row inner"]) -> Float[Tensor, "row inner"]:
        assert inner(left.T, left).shape == (5, 5)
        return left

    assert checked(twice)(torch.ones(3, 5)).shape == (3, 5)


def test_the_hook_has_put_them_on_functions_and_methods(shape_checks):
    assert Attention.pattern.__code__.co_name == "within_a_context"
    with pytest.raises(TypeError, match="violates type hint"):
        Transformer.initial(None, torch.tensor([3]))
    assert shape_checks.names_shapes({"x": Float[Tensor, "row"]})
    assert not shape_checks.names_shapes({"x": Tensor, "return": int})
