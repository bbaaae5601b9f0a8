"""What a Parquet footer says of the columns of a row group, as manifests say it of files."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType, PrimitiveType

from puffin_ann.lake.read.files.manifests import Statistics


def statistics_of(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    row_group: int,
    columns: Mapping[int, tuple[str, IcebergType]],
) -> Statistics:
    """Return the statistics of some columns of a row group; what is not told is left out.

    NaNs are not counted in Parquet, so nothing is told of them.

    Args:
        metadata: the footer.
        schema: Arrow's schema of the file.
        row_group: number of the row group.
        columns: by field id, the names of top-level columns in the file, and their types in the
            table's schema.
    """
    leaves = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    group = metadata.row_group(row_group)
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field_id, (name, kind) in columns.items():
        if name not in leaves or not isinstance(kind, PrimitiveType):
            continue
        told = group.column(leaves[name]).statistics
        if told is None:
            continue
        values[field_id] = group.num_rows
        if told.has_null_count:
            nulls[field_id] = told.null_count
        if told.has_min_max:
            bounds = [
                _bound(value, schema.field(name).type, kind) for value in (told.min, told.max)
            ]
            if bounds[0] is not None and bounds[1] is not None:
                lower[field_id], upper[field_id] = bounds[0], bounds[1]
    return Statistics(values, nulls, None, lower, upper)


def _bound(value: Any, in_file: pa.DataType, kind: PrimitiveType) -> bytes | None:
    """Return a bound in Iceberg's form; None if it cannot be told exactly."""
    try:
        scalar = pa.scalar(value, in_file).cast(schema_to_pyarrow(kind))
        if pa.types.is_date(scalar.type):
            scalar = scalar.cast(pa.int32())
        elif pa.types.is_temporal(scalar.type):
            scalar = scalar.cast(pa.int64())
        return to_bytes(kind, scalar.as_py())
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
