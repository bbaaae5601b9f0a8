"""Vectors of the machine inside Numba kernels: types, arithmetic, byte shuffles, masks, prefetch.

A `Vector` is a Numba type whose form in LLVM is `<lanes x ...>`. Each function here writes one or a
few LLVM instructions into the kernel that calls it, so that kernels stay readable, need no compiled
extension, and are cached as any other. Loads and stores take a C-contiguous array of any shape and
an offset in elements from its first; nothing is checked, and offsets should be `uint64`.

`LEVEL` is chosen when this is imported (see `settings.simd_level`):

| level | machine | shuffle |
|---|---|---|
| `vbmi` | AVX-512 with VBMI and VNNI | 64 bytes out of 64, and dot products of bytes |
| `avx2` | AVX2 | 32 bytes, each half out of its own 16 |
| `portable` | any; NEON and SSSE3 have one instruction for it | 16 bytes out of 16 |

Functions for one level may be called on that level alone: choose by `if LEVEL == ...` at the top of
a module, so that the others are never compiled. Keep them global: a kernel that holds one in a
closure is never found in the cache again.
"""

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from puffin_ann.ann.simd.intrinsics import (
    I32,
    Emit,
    Vector,
    binary,
    called,
    constant,
    constant_vector,
    shuffled,
    ternary,
    unary,
    undefined,
)
from puffin_ann.settings import simd_level

LEVEL = simd_level()

_I64 = ir.IntType(64)

U8X16, U8X32, U8X64 = Vector(16, 8), Vector(32, 8), Vector(64, 8)
U16X8, U16X16 = Vector(8, 16), Vector(16, 16)
U32X16 = Vector(16, 32)
U64X8 = Vector(8, 64)
F32X16 = Vector(16, 32, True)


def _place(context: Any, builder: Any, type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(type)(context, builder, array).data
    return builder.gep(data, [offset])


# Memory


def load_of(vector: Vector) -> Any:
    """Return `load(array, offset) -> vector`; needs no alignment.

    The bytes are read as they lie, whatever the array's dtype: a `uint8` array can be loaded as
    vectors of any type.
    """

    def typed(context: Any, array: Any, offset: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = _place(context, builder, signature.args[0], *values)
            return builder.load(builder.bitcast(place, vector.llvm.as_pointer()), align=1)

        return vector(array, offset), generate

    return intrinsic(typed)


def store_of(vector: Vector) -> Any:
    """Return `store(array, offset, value)`; needs no alignment."""

    def typed(context: Any, array: Any, offset: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = _place(context, builder, signature.args[0], *values[:2])
            builder.store(values[2], builder.bitcast(place, vector.llvm.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(array, offset, value), generate

    return intrinsic(typed)


def _prefetch(context: Any, array: Any, offset: Any) -> Any:
    """`prefetch(array, offset)`: ask for a cache line; never faults, whatever the offset."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature.args[0], *values)
        pointer = builder.bitcast(place, ir.IntType(8).as_pointer())
        arguments = [pointer, I32(0), I32(3), I32(1)]
        called(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(array, offset), generate


prefetch: Any = intrinsic(_prefetch)


# Making and changing vectors


def fill_of(vector: Vector) -> Any:
    """Return `fill(x) -> vector` with one number, of any type, in every lane."""

    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        (number,) = values
        element = vector.llvm.element
        if vector.floating:
            if number.type != element:
                to_float = builder.fptrunc if kinds[0] == types.float64 else builder.sitofp
                number = to_float(number, element)
        elif number.type.width > vector.bits:
            number = builder.trunc(number, element)
        elif number.type.width < vector.bits:
            number = builder.zext(number, element)
        first = builder.insert_element(undefined(vector.llvm), number, I32(0))
        return shuffled(builder, first, undefined(vector.llvm), [0] * vector.lanes)

    return unary(vector, emit)


def constant_of(vector: Vector, values: Sequence[float]) -> Any:
    """Return `constant() -> vector` with the given lanes."""
    return constant(vector, lambda builder, kinds, none: constant_vector(vector.llvm, values))


def bits_as(vector: Vector) -> Any:
    """Return `as(x) -> vector`: the same bits under another type."""
    return unary(vector, lambda builder, kinds, values: builder.bitcast(values[0], vector.llvm))


def widened_to(vector: Vector) -> Any:
    """Return `widen(x) -> vector`: unsigned lanes in more bits."""
    return unary(vector, lambda builder, kinds, values: builder.zext(values[0], vector.llvm))


def narrowed_to(vector: Vector) -> Any:
    """Return `narrow(x) -> vector`: the lowest bits of each lane."""
    return unary(vector, lambda builder, kinds, values: builder.trunc(values[0], vector.llvm))


def floats_of(vector: Vector) -> Any:
    """Return `floats(x) -> vector`: unsigned lanes, below 2³¹, as float32."""
    return unary(vector, lambda builder, kinds, values: builder.sitofp(values[0], vector.llvm))


def bytes_of(vector: Vector) -> Any:
    """Return `bytes(x) -> vector`: float32 lanes in 0 to 255, cut to unsigned bytes."""

    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        whole = builder.fptosi(values[0], ir.VectorType(I32, vector.lanes))
        return builder.trunc(whole, vector.llvm)

    return unary(vector, emit)


def part_of(vector: Vector, first: int) -> Any:
    """Return `part(x) -> vector`: the lanes of a longer vector from `first` on."""
    places = range(first, first + vector.lanes)

    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        return shuffled(builder, values[0], undefined(kinds[0].llvm), places)

    return unary(vector, emit)


def interleaved_to(vector: Vector) -> Any:
    """Return `interleave(x, y) -> vector`: x₀, y₀, x₁, y₁ … of two vectors half as long."""
    half = vector.lanes // 2
    places = [lane for i in range(half) for lane in (i, half + i)]
    return binary(
        vector, lambda builder, kinds, values: shuffled(builder, values[0], values[1], places)
    )


def swapped_by(distance: int) -> Any:
    """Return `swapped(x)`: each lane in the place of that whose number differs by one bit."""

    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        places = [lane ^ distance for lane in range(kinds[0].lanes)]
        return shuffled(builder, values[0], undefined(kinds[0].llvm), places)

    return unary(None, emit)


# Arithmetic, lane by lane


def _arithmetic(whole: str, floating: str | None = None) -> Any:
    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        name = floating if kinds[0].floating and floating else whole
        return getattr(builder, name)(*values)

    return binary(None, emit)


add = _arithmetic("add", "fadd")
subtract = _arithmetic("sub", "fsub")
both = _arithmetic("and_")
either = _arithmetic("or_")


def _saturating(builder: Any, kinds: Any, values: list[Any]) -> Any:
    name = f"llvm.uadd.sat.v{kinds[0].lanes}i{kinds[0].bits}"
    return called(builder, name, kinds[0].llvm, values)


add_saturating = binary(None, _saturating)
"""`add_saturating(x, y)`: unsigned sums, the greatest number where they do not fit."""


def _multiplied_and_added(builder: Any, kinds: Any, values: list[Any]) -> Any:
    return called(builder, f"llvm.fmuladd.v{kinds[0].lanes}f32", kinds[0].llvm, values)


multiply_add = ternary(None, _multiplied_and_added)
"""`multiply_add(x, y, z)`: x · y + z of float32; rounded once where that is one instruction."""


def _shifted(instruction: str, bits: int) -> Any:
    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        by = constant_vector(kinds[0].llvm, [bits] * kinds[0].lanes)
        return getattr(builder, instruction)(values[0], by)

    return unary(None, emit)


def right_by(bits: int) -> Any:
    """Return `right(x)`: unsigned lanes shifted right."""
    return _shifted("lshr", bits)


def left_by(bits: int) -> Any:
    """Return `left(x)`: unsigned lanes shifted left."""
    return _shifted("shl", bits)


def _where_less(context: Any, x: Any, y: Any, one: Any, other: Any) -> Any:
    """`where_less(x, y, one, other)`: lanes of `one` where x[i] < y[i], of `other` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        compare = builder.fcmp_ordered if signature.args[0].floating else builder.icmp_unsigned
        return builder.select(compare("<", *values[:2]), *values[2:])

    return one(x, y, one, other), generate


where_less: Any = intrinsic(_where_less)


# Out of vectors


def _less(builder: Any, kinds: Any, values: list[Any]) -> Any:
    compare = builder.fcmp_ordered if kinds[0].floating else builder.icmp_unsigned
    mask = builder.bitcast(compare("<", *values), ir.IntType(kinds[0].lanes))
    return builder.zext(mask, _I64) if kinds[0].lanes < 64 else mask


less_mask = binary(types.uint64, _less)
"""`less_mask(x, y) -> uint64`: bit i is set where x[i] < y[i]; never for NaN."""

lowest_bit = unary(
    types.uint64, lambda builder, kinds, values: builder.cttz(values[0], ir.IntType(1)(1))
)
"""`lowest_bit(mask) -> uint64`: the place of the lowest set bit of a uint64 other than 0."""

bit_count = unary(types.uint64, lambda builder, kinds, values: builder.ctpop(values[0]))
"""`bit_count(mask) -> uint64`: how many bits of a uint64 are set."""


def _reduced(name: str, *flags: str) -> Any:
    def emit(builder: Any, kinds: Any, values: list[Any]) -> Any:
        # The sum of no lanes: fadd alone wants a number to begin with.
        start = [ir.Constant(ir.FloatType(), 0.0)] if name == "fadd" else []
        function = f"llvm.vector.reduce.{name}.v{kinds[0].lanes}f32"
        return called(builder, function, ir.FloatType(), start + values, fastmath=flags)

    return unary(types.float32, emit)


sum_of = _reduced("fadd", "reassoc")
"""`sum_of(x) -> float32`: the lanes' sum, in an order that depends on the machine."""
least_of = _reduced("fmin", "nnan", "nsz")
greatest_of = _reduced("fmax", "nnan", "nsz")


# Shuffles


def _target(name: str, result: Vector) -> Emit:
    """An instruction of one kind of machine: harmless elsewhere as long as nobody calls it."""
    return lambda builder, kinds, values: called(builder, name, result.llvm, values)


look_up_halves = binary(U8X32, _target("llvm.x86.avx2.pshuf.b", U8X32))
"""AVX2: `look_up_halves(table, places)`, u8x32: places, below 16, count in each 16 bytes apart."""

look_up_64 = binary(U8X64, _target("llvm.x86.avx512.permvar.qi.512", U8X64))
"""AVX-512 VBMI: `look_up_64(table, places)`: places below 64, of which higher bits are ignored."""


def _dot_of_bytes(builder: Any, kinds: Any, values: list[Any]) -> Any:
    # The instruction adds four unsigned times signed bytes to each lane. LLVM 21 gave its operands
    # the type they always meant.
    wanted = U8X64 if llvm.llvm_version_info[0] >= 21 else U32X16
    operands = [builder.bitcast(value, wanted.llvm) for value in values[1:]]
    name = "llvm.x86.avx512.vpdpbusd.512"
    return called(builder, name, U32X16.llvm, [values[0], *operands])


add_dot_of_bytes = ternary(U32X16, _dot_of_bytes)
"""AVX-512 VNNI: `add_dot_of_bytes(sums, x, y)`: u32x16 sums, each plus the products of four bytes
of x, unsigned, and of y, signed; both u8x64."""


def _looked_up(builder: Any, kinds: Any, values: list[Any]) -> Any:
    table, places = values
    places = builder.and_(places, constant_vector(U8X16.llvm, [15] * 16))
    result = undefined(U8X16.llvm)
    for lane in range(16):
        place = builder.zext(builder.extract_element(places, I32(lane)), I32)
        number = builder.extract_element(table, place)
        result = builder.insert_element(result, number, I32(lane))
    return result


look_up_16 = binary(U8X16, _looked_up)
"""Any machine: `look_up_16(table, places)`, u8x16: places count below 16. LLVM folds it into one
shuffle where the machine has one (SSSE3, NEON)."""
