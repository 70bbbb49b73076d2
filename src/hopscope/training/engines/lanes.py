"""How loops are compiled, and eight samples side by side: a number type that the processor's vector registers hold.

numba vectorises plain loops only after checking at run time that no two arrays overlap, and keeps sums in memory.
Short loops, as attention among a few dozen positions has, spend most of their time on that.  A value of this type is
one number of each of `LANES` samples; sums of it stay in registers, and there is nothing left to vectorise.

Compiled loops are cached by the file that they are in, and these functions become part of them: who changes this file
must change or touch those that import it.
"""

import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

Array = Any
"""A numpy array; numba reads shapes and types from the values."""

# Reassociation and the like, but not "no NaN": the divergence guard must see one.
_FAST = ("nsz", "arcp", "contract", "afn", "reassoc")

compiled = numba.njit(cache=True, error_model="numpy", fastmath=set(_FAST))
inlined = numba.njit(cache=True, error_model="numpy", fastmath=set(_FAST), forceinline=True)

LANES = 8

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)

# 2^x for x from -1/2 to 1/2, by Taylor's series: the first term left out is below 1.3e-7.
_POWER_TERMS = [float(np.log(2.0) ** n / np.prod(np.arange(1.0, n + 1.0))) for n in range(7)]
_LEAST_EXPONENT = -126.0


_operation: Callable[[Callable[..., Any]], Any] = intrinsic


class LanesType(types.Type):
    """The type of a number of each of `LANES` samples."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes_type = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where the lanes of an entry begin."""
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    indices = cgutils.unpack_tuple(builder, arguments[1])
    indices = [*indices, context.get_constant(types.intp, 0)]
    place = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
    return builder.bitcast(place, _VECTOR.as_pointer())


@_operation
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """`array[index]`, where `index` (a tuple) leaves the last axis, that of the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, arguments), align=4)

    return lanes_type(array, index), generate


@_operation
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Store a vector: `array[index] = value`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature, arguments), align=4)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@_operation
def spread(typing_context: Any, value: Any) -> Any:
    """The same float32 in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = builder.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.Constant(ir.IntType(32), 0)
        )
        mask = ir.Constant(_INTEGERS, [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), mask)

    return lanes_type(types.float32), generate


@_operation
def larger(typing_context: Any, a: Any, b: Any) -> Any:
    """The larger of two, lane by lane; `b` where one is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = arguments
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return lanes_type(lanes_type, lanes_type), generate


@_operation
def inverse_root(typing_context: Any, x: Any) -> Any:
    """The inverse square root, 1 / √x."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
        return builder.fdiv(_constant(1.0), builder.call(root, arguments))

    return lanes_type(lanes_type), generate


@_operation
def power_of_two(typing_context: Any, x: Any) -> Any:
    """2^x for x <= 0, to a few units in the last place; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = arguments[0]
        low = builder.fcmp_ordered("<", x, _constant(_LEAST_EXPONENT))
        x = builder.select(low, _constant(_LEAST_EXPONENT), x)
        # Truncation is rounding to the nearest whole number, of a number that is not positive, half a unit lower.
        whole = builder.fptosi(builder.fsub(x, _constant(0.5)), _INTEGERS)
        rest = builder.fsub(x, builder.sitofp(whole, _VECTOR))
        value = _constant(_POWER_TERMS[-1])
        for term in reversed(_POWER_TERMS[:-1]):
            value = builder.fadd(builder.fmul(value, rest, _FAST), _constant(term), _FAST)
        exponent = builder.shl(
            builder.add(whole, ir.Constant(_INTEGERS, [127] * LANES)), ir.Constant(_INTEGERS, [23] * LANES)
        )
        return builder.fmul(value, builder.bitcast(exponent, _VECTOR))

    return lanes_type(lanes_type), generate


def _define(symbol: Callable[..., Any], name: str) -> None:
    @type_callable(symbol)
    def type_of(context: Any) -> Any:
        def typed(a: Any, b: Any) -> Any:
            return lanes_type if a is lanes_type and b is lanes_type else None

        return typed

    lowered: Callable[[Callable[..., Any]], Any] = lower_builtin(symbol, LanesType, LanesType)

    @lowered
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments, flags=_FAST)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


@inlined
def sum_of_lanes(lanes: Array) -> np.float32:
    """The sum of the numbers of all lanes."""
    room = np.empty((1, LANES), dtype=np.float32)
    store(room, (0,), lanes)
    total = np.float32(0.0)
    for n in range(LANES):
        total += room[0, n]
    return total
