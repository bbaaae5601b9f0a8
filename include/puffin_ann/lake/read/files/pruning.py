"""Pruning: which data files hold no row that is looked for, and which none but such rows.

What the manifest says of a file is asked: its partition, and the statistics of its columns. The
statistics of a row group are asked in the same way.
"""

import struct
from collections.abc import Callable, Mapping
from functools import cache

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    InclusiveProjection,
    StrictProjection,
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    bind,
    expression_evaluator,
    extract_field_ids,
    rewrite_not,
    visit,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record, StructProtocol
from pyiceberg.types import DoubleType, FloatType, IcebergType, LongType

from puffin_ann.lake.read.files.manifests import Entry, Statistics

ByPartition = Callable[[StructProtocol], bool]


def may_match(
    table: Table, row_filter: BooleanExpression, schema: Schema | None = None
) -> Callable[[Entry], bool]:
    """Return what tells of an entry, by its partition and statistics, if rows of it may match.

    Args:
        table: that has the rows.
        row_filter: what rows have to match.
        schema: of the table's, of which the filter speaks; None is the current one.

    Raises:
        ValueError, TypeError: the filter does not fit the schema.
    """
    schema = table.schema() if schema is None else schema
    return Pruning(schema, table.specs(), bound_to(schema, row_filter)).may_match


def bound_to(schema: Schema, row_filter: BooleanExpression) -> BooleanExpression:
    """Return a filter without negations, bound to a schema.

    Raises:
        ValueError, TypeError: the filter does not fit the schema.
    """
    return bind(schema, rewrite_not(row_filter), case_sensitive=True)


class Pruning:
    """Tells what can be told of rows by what metadata says; threads may share it.

    What metadata does not say, or not in a way that can be compared with the column as it is now,
    decides nothing.

    Args:
        schema: that the filter speaks of.
        specs: partition specs of the table, by id.
        bound: what rows have to match, bound to the schema. Negations of comparisons have to say
            that the column is not null, as those of a `Condition` do: PyIceberg's evaluators take
            null for a value that differs from all.
    """

    def __init__(
        self, schema: Schema, specs: Mapping[int, PartitionSpec], bound: BooleanExpression
    ) -> None:
        self._schema, self._specs, self._bound = schema, specs, bound
        some = _InclusiveMetricsEvaluator(schema, AlwaysTrue())
        every = _StrictMetricsEvaluator(schema, AlwaysTrue())
        some.expr = every.expr = bound  # which they would bind, each for itself
        self._some, self._all = some.eval, every.eval
        ids = extract_field_ids(bound)
        self._types = {field_id: schema.find_type(field_id) for field_id in ids}
        self._some_by_partition = cache(self._projected_inclusively)
        self._all_by_partition = cache(self._projected_strictly)

    def may_match(self, entry: Entry) -> bool:
        """Tell whether a row of a data file may match."""
        return _told(
            lambda: self._some_by_partition(entry.spec_id)(Record(*entry.partition)), doubt=True
        ) and self.some_of(entry.rows, entry.statistics)

    def must_match(self, entry: Entry) -> bool:
        """Tell whether every row of a data file matches."""
        return _told(
            lambda: self._all_by_partition(entry.spec_id)(Record(*entry.partition)), doubt=False
        ) or self.all_of(entry.rows, entry.statistics)

    def some_of(self, rows: int, told: Statistics | None) -> bool:
        """Tell whether any of some rows may match, by the statistics of their columns."""
        return _told(lambda: self._some(self._file(rows, told)), doubt=True)

    def all_of(self, rows: int, told: Statistics | None) -> bool:
        """Tell whether each of some rows matches, by the statistics of their columns.

        PyIceberg takes a column of which nulls or NaNs were not counted for one without.
        """
        if told is None or told.nulls is None or not self._types.keys() <= told.nulls.keys():
            return False
        of_floats = {
            field_id
            for field_id, kind in self._types.items()
            if isinstance(kind, FloatType | DoubleType)
        }
        if not of_floats <= (told.nans or {}).keys():
            return False
        return _told(lambda: self._all(self._file(rows, told)), doubt=False)

    def _projected_inclusively(self, spec_id: int) -> ByPartition:
        spec = self._specs[spec_id]
        projection = InclusiveProjection(self._schema, spec, case_sensitive=True)
        return self._evaluator(spec, visit(self._bound, projection))

    def _projected_strictly(self, spec_id: int) -> ByPartition:
        spec = self._specs[spec_id]
        if not all(isinstance(part.transform, IdentityTransform) for part in spec.fields):
            # Of values that are cut, bounds of files tell more.
            return lambda _partition: False
        projection = StrictProjection(self._schema, spec, case_sensitive=True)
        return self._evaluator(spec, visit(self._bound, projection))

    def _evaluator(self, spec: PartitionSpec, projected: BooleanExpression) -> ByPartition:
        fields = Schema(*spec.partition_type(self._schema).fields)
        return expression_evaluator(fields, projected, case_sensitive=True)

    def _file(self, rows: int, told: Statistics | None) -> DataFile:
        """Return as much of a file as its statistics are, as PyIceberg has it."""
        if told is None:
            return DataFile.from_args(record_count=rows)
        return DataFile.from_args(
            record_count=rows,
            value_counts=told.values,
            null_value_counts=told.nulls,
            nan_value_counts=told.nans,
            lower_bounds=self._promoted(told.lower),
            upper_bounds=self._promoted(told.upper),
        )

    def _promoted(self, bounds: Mapping[int, bytes] | None) -> dict[int, bytes]:
        """Return bounds of the columns asked for, as those have them by their types of now."""
        return {
            field_id: _promote(bounds[field_id], kind)
            for field_id, kind in self._types.items()
            if bounds and field_id in bounds
        }


def _promote(bound: bytes, kind: IcebergType) -> bytes:
    """Return the bound of a file that was written while the column was int or float."""
    if len(bound) == 4 and isinstance(kind, LongType):
        return struct.pack("<q", *struct.unpack("<i", bound))
    if len(bound) == 4 and isinstance(kind, DoubleType):
        return struct.pack("<d", *struct.unpack("<f", bound))
    return bound


def _told(test: Callable[[], bool], *, doubt: bool) -> bool:
    try:
        return bool(test())
    except Exception:  # any kind: what a file says of itself is decoded by the column's type
        return doubt
