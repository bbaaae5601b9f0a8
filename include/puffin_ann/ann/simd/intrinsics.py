"""Functions that Numba kernels call, and of which each is a few LLVM instructions in its caller.

`simd` is what they are made for: numbers of the kind `Vector`, and what can be done with them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

I32 = ir.IntType(32)


class Vector(types.Type):
    """A vector of `lanes` numbers of `bits` bits: unsigned, or float32."""

    def __init__(self, lanes: int, bits: int, floating: bool = False) -> None:
        self.lanes, self.bits, self.floating = lanes, bits, floating
        super().__init__(name=f"{'f' if floating else 'u'}{bits}x{lanes}")

    @property
    def llvm(self) -> Any:
        """The type in LLVM."""
        return ir.VectorType(ir.FloatType() if self.floating else ir.IntType(self.bits), self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, data_model_manager: Any, type: Any) -> None:
        super().__init__(data_model_manager, type, type.llvm)  # type: ignore[no-untyped-call]


Result = Vector | types.Type | None
"""Type of a result; None for that of the first argument."""
Emit = Callable[[Any, Any, list[Any]], Any]
"""Writes instructions: takes the builder, Numba's types of the arguments, and their values."""


def constant_vector(type: Any, values: Sequence[float]) -> Any:
    """Return lanes that are known when a kernel is compiled."""
    return ir.Constant(type, list(values))


def shuffled(builder: Any, one: Any, other: Any, places: Sequence[int]) -> Any:
    """Return the lanes of two vectors, counted through both, that are at some places."""
    mask = constant_vector(ir.VectorType(I32, len(places)), places)
    return builder.shuffle_vector(one, other, mask)


def undefined(type: Any) -> Any:
    """Return a value of which nothing is said."""
    return ir.Constant(type, ir.Undefined)


def called(builder: Any, name: str, result: Any, arguments: list[Any], **flags: Any) -> Any:
    """Return what a function of LLVM's own returns."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, arguments, **flags)


def _generator(emit: Emit) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return emit(builder, signature.args, list(values))

    return generate


def constant(result: Result, emit: Emit) -> Any:
    """Return a function of no argument that kernels can call; keep it in a global name."""

    def typed(context: Any) -> Any:
        return result(), _generator(emit)  # type: ignore[misc]

    return intrinsic(typed)


def unary(result: Result, emit: Emit) -> Any:
    """Return one of one argument, in the same way."""

    def typed(context: Any, x: Any) -> Any:
        return (result or x)(x), _generator(emit)

    return intrinsic(typed)


def binary(result: Result, emit: Emit) -> Any:
    """Return one of two arguments, in the same way."""

    def typed(context: Any, x: Any, y: Any) -> Any:
        return (result or x)(x, y), _generator(emit)

    return intrinsic(typed)


def ternary(result: Result, emit: Emit) -> Any:
    """Return one of three arguments, in the same way."""

    def typed(context: Any, x: Any, y: Any, z: Any) -> Any:
        return (result or x)(x, y, z), _generator(emit)

    return intrinsic(typed)


def _array_at(dtype: Any, extents: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        # Only compiling needs it, and what it imports: a fiftieth of a second.
        from numba.np.arrayobj import populate_array

        array = context.make_array(signature.return_type)(context, builder)
        step = context.get_value_type(types.intp)(dtype.bitwidth // 8)
        steps = [step]
        for extent in reversed(values[2:]):
            steps.insert(0, builder.mul(steps[0], extent))
        populate_array(  # type: ignore[no-untyped-call]
            array,
            data=builder.inttoptr(values[0], array.data.type),
            shape=values[1:],
            strides=steps,
            itemsize=step,
            meminfo=None,
        )
        return array._getvalue()

    def numbers(context: Any, address: Any, count: Any) -> Any:
        return types.Array(dtype, 1, "C")(address, types.intp), generate

    def rows(context: Any, address: Any, count: Any, width: Any) -> Any:
        return types.Array(dtype, 2, "C")(address, types.intp, types.intp), generate

    return intrinsic(numbers if extents == 1 else rows)


def numbers_at(dtype: Any) -> Any:
    """Return `numbers(address, count)`: the `(count,)` numbers in memory from an address on.

    Arrays whose number is known only when a kernel runs cannot be its arguments; their addresses,
    in one array, can. The caller holds the arrays as long as the kernel runs.
    """
    return _array_at(dtype, 1)


def rows_at(dtype: Any) -> Any:
    """Return `rows(address, count, width)`, which are `(count, width)`; see `numbers_at`."""
    return _array_at(dtype, 2)
