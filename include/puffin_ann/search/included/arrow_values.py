"""Values of a column as Arrow has them, and as a columns blob keeps them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import promote
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from puffin_ann.blobs.shards.columns import (
    BLOCK_ROWS,
    Bounds,
    IncludedColumn,
    KeptColumn,
    ShardColumns,
    Values,
)
from puffin_ann.errors import BlobFormatError

KEPT_TYPES = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    StringType,
    UUIDType,
    FixedType,
    BinaryType,
)
"""Types of columns that can be included."""

WITHOUT_BOUNDS = (BooleanType, UUIDType, FixedType, BinaryType)
LONGEST_BOUND = 64
"""Bytes of a bound; of longer ones nothing is told."""

_TYPE = TypeAdapter(IcebergType)


def can_be_kept(kind: IcebergType) -> bool:
    """Tell whether values of a type can be included in an index."""
    return isinstance(kind, KEPT_TYPES)


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Return the type that columns of a table have in Arrow."""
    return schema_to_pyarrow(kind, include_field_ids=False)


def included_column(field_id: int, kind: IcebergType, column: pa.ChunkedArray) -> IncludedColumn:
    """Return a column of a shard's rows as a blob keeps it.

    Args:
        field_id: of the column.
        kind: its type, one that can be kept.
        column: its values, in the type that Arrow has for it.
    """
    stored = _stored_type(kind)
    blocks = []
    for start in range(0, len(column), BLOCK_ROWS):
        array = _whole(column.slice(start, BLOCK_ROWS))
        array = _storage(array).cast(stored)
        blocks.append((_values(array), _bounds(array, kind)))
    return IncludedColumn(field_id, str(kind), _bits(stored), blocks)


def arrow_values(kept: KeptColumn, values: Values, wanted: IcebergType) -> pa.Array | None:
    """Return values in the type that a column has by now; None where they cannot be had in it.

    Args:
        kept: what the blob says of the column.
        values: of it.
        wanted: type of the column.

    Raises:
        BlobFormatError: they are not values of the type that the blob names.
    """
    kind = kept_type(kept)
    if kind is None or not _is_promoted(kind, wanted):
        return None
    stored, target = _stored_type(kind), arrow_type(wanted)
    if _bits(stored) != kept.bits:
        raise BlobFormatError(f"columns blob: values of {kind} in {kept.bits} bits")
    buffers = [pa.py_buffer(np.packbits(values.valid, bitorder="little"))]
    if values.offsets is not None:
        buffers.append(pa.py_buffer(values.offsets))
    buffers.append(pa.py_buffer(np.array(np.frombuffer(values.data, np.uint8))))
    array = pa.Array.from_buffers(stored, len(values.valid), buffers)
    try:
        array.validate(full=True)
        if isinstance(target, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(target, array.cast(target.storage_type))
        return array.cast(target)
    except (pa.ArrowException, ValueError) as error:
        raise BlobFormatError(f"columns blob: no values of {kind}: {error}") from None


def check_values(values: ShardColumns) -> None:
    """Hold the values of a blob to the types that it names.

    Raises:
        BlobFormatError: they are of no type that is kept, or not of the one that is named.
    """
    for column in values.columns:
        kept = KeptColumn(column.field_id, column.type, column.bits)
        kind = kept_type(kept)
        if kind is None:
            raise BlobFormatError(f"columns blob: no column is of type {column.type[:80]!r}")
        for block in column.blocks:
            if block is not None:
                arrow_values(kept, block[0], kind)


def kept_type(kept: KeptColumn) -> IcebergType | None:
    """Return the type that a blob names; None if it is none that can be kept."""
    try:
        kind = _TYPE.validate_python(kept.type)
        if can_be_kept(kind):
            _stored_type(kind)
            return kind
    # PyIceberg and Arrow say in various ways that there is no such type.
    except (ValidationError, IcebergValidationError, ValueError, TypeError, OverflowError):
        pass
    return None


def _is_promoted(kind: IcebergType, wanted: IcebergType) -> bool:
    if kind == wanted:
        return True
    try:
        return bool(promote(kind, wanted) == wanted)
    except ResolveError:
        return False


def _stored_type(kind: IcebergType) -> pa.DataType:
    target = arrow_type(kind)
    if isinstance(target, pa.BaseExtensionType):
        target = target.storage_type
    if pa.types.is_large_string(target):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(target) else target


def _bits(stored: pa.DataType) -> int:
    is_wide = pa.types.is_string(stored) or pa.types.is_binary(stored)
    return 0 if is_wide and not pa.types.is_fixed_size_binary(stored) else int(stored.bit_width)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _values(array: pa.Array) -> Values:
    """Return values of an array of a stored type; what nulls stand for is 0, or nothing."""
    valid: NDArray[np.bool_] = np.asarray(
        pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_
    )
    rows, kind = len(array), array.type
    if pa.types.is_boolean(kind):
        flags = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        return Values(valid, np.packbits(flags.astype(np.bool_), bitorder="little").tobytes())
    if not _bits(kind):
        filled = pc.fill_null(array, "" if pa.types.is_string(kind) else b"")
        _, where, data = filled.buffers()
        offsets = np.frombuffer(where, np.int32)[filled.offset : filled.offset + rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Values(
            valid, data[first:last].to_pybytes() if last > first else b"", offsets - offsets[0]
        )
    width = _bits(kind) // 8
    fixed = np.frombuffer(array.buffers()[1], np.uint8)
    fixed = fixed[array.offset * width : (array.offset + rows) * width].reshape(rows, width)
    return Values(valid, np.where(valid[:, None], fixed, np.uint8(0)).tobytes())


def _bounds(array: pa.Array, kind: IcebergType) -> Bounds:
    nulls, nans = array.null_count, 0
    if isinstance(kind, FloatType | DoubleType):
        is_nan = pc.fill_null(pc.is_nan(array), False)
        nans = int(pc.sum(is_nan).as_py() or 0)
        array = array.filter(pc.invert(is_nan))
    if isinstance(kind, WITHOUT_BOUNDS) or array.null_count == len(array):
        return Bounds(nulls, nans)
    extremes = pc.min_max(array)
    lower, upper = (_bound(extremes[name], kind) for name in ("min", "max"))
    if lower is None or upper is None:
        return Bounds(nulls, nans)
    return Bounds(nulls, nans, lower, upper)


def _bound(scalar: pa.Scalar, kind: Any) -> bytes | None:
    if pa.types.is_date(scalar.type):
        scalar = scalar.cast(pa.int32())
    elif pa.types.is_temporal(scalar.type):
        scalar = scalar.cast(pa.int64())
    if not isinstance(kind, PrimitiveType):
        return None
    bound = to_bytes(kind, scalar.as_py())
    return bound if len(bound) <= LONGEST_BOUND else None
