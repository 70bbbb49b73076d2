"""How loops are compiled, and samples side by side: a number type that the processor's vector registers hold.

numba vectorises plain loops only after checking at run time that no two arrays overlap, and keeps sums in memory.
Short loops, as attention among a few dozen positions has, spend most of their time on that.  A value of this type is
one number of each of `LANES` samples; sums of it stay in registers, and there is nothing left to vectorise.

Compiled loops are cached by the file that they are in, and inlined functions of other files become part of them: who
changes one, here or in another file, must change or touch the files that import it.
"""

import operator
from collections.abc import Callable
from typing import Any

import llvmlite.binding
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


def _compiler(**options: Any) -> Callable[[Any], Any]:
    def compile(function: Any) -> Any:
        every = {"error_model": "numpy", "fastmath": set(_FAST), **options}
        try:
            return numba.njit(cache=True, **every)(function)
        except RuntimeError:  # there is no folder to keep it in
            return numba.njit(**every)(function)

    return compile


compiled, inlined = _compiler(), _compiler(forceinline=True)
_intrinsic: Callable[[Callable[..., Any]], Any] = intrinsic

LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 8
"""As many numbers as a vector register of this machine holds."""

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)

# 2^x for x from -1/2 to 1/2, by Taylor's series: the first term left out is below 1.3e-7.
_POWER_TERMS = [float(np.log(2.0) ** n / np.prod(np.arange(1.0, n + 1.0))) for n in range(7)]
_LEAST_EXPONENT = -126.0


class _LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _LanesType()


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


def _everywhere(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    indices = [*cgutils.unpack_tuple(builder, arguments[1]), context.get_constant(types.intp, 0)]
    place = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
    return builder.bitcast(place, _VECTOR.as_pointer())


@_intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """`array[index]`, where `index` (a tuple) leaves the last axis, that of the lanes."""
    return _lanes(array, index), lambda *of: of[1].load(_place(*of), align=4)


@_intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """`array[index] = value`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(context, builder, signature, arguments), align=4)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@_intrinsic
def spread(typing_context: Any, value: Any) -> Any:
    """The same float32 in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        one = builder.insert_element(nothing, arguments[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, nothing, ir.Constant(_INTEGERS, [0] * LANES))

    return _lanes(types.float32), generate


def _operation(emit: Callable[..., Any]) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit(builder, *arguments)

    if emit.__code__.co_argcount == 2:
        return _intrinsic(lambda typing_context, x: (_lanes(_lanes), generate))
    return _intrinsic(lambda typing_context, a, b: (_lanes(_lanes, _lanes), generate))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


larger = _operation(_larger)
"""The larger of two, lane by lane; the second where one is NaN."""


@_operation
def inverse_root(builder: Any, x: Any) -> Any:
    """1 / √x."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR])
    root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
    return builder.fdiv(_everywhere(1.0), builder.call(root, [x]))


@_operation
def power_of_two(builder: Any, x: Any) -> Any:
    """2^x for x <= 0, to a few units in the last place; NaN stays NaN."""
    least = _everywhere(_LEAST_EXPONENT)
    # NaN has no whole part: it goes on in the rest alone.
    x, number = _larger(builder, least, x), _larger(builder, x, least)
    # Truncation is rounding to the nearest whole number, of a number that is not positive, half a unit lower.
    whole = builder.fptosi(builder.fsub(number, _everywhere(0.5)), _INTEGERS)
    rest = builder.fsub(x, builder.sitofp(whole, _VECTOR))
    value = _everywhere(_POWER_TERMS[-1])
    for term in reversed(_POWER_TERMS[:-1]):
        value = builder.fadd(builder.fmul(value, rest, _FAST), _everywhere(term), _FAST)
    bias, places = (ir.Constant(_INTEGERS, [each] * LANES) for each in (127, 23))
    exponent = builder.shl(builder.add(whole, bias), places)
    return builder.fmul(value, builder.bitcast(exponent, _VECTOR))


def _define(symbol: Callable[..., Any], name: str) -> None:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments, flags=_FAST)

    type_callable(symbol)(lambda context: lambda a, b: _lanes if a is _lanes and b is _lanes else None)
    lower_builtin(symbol, _LanesType, _LanesType)(generate)


for _symbol in ("add", "sub", "mul"):
    _define(getattr(operator, _symbol), f"f{_symbol}")
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
