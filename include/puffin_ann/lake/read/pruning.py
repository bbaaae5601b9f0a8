"""File pruning: which data files may hold a row that is looked for, by what their manifest says."""

from collections.abc import Callable
from functools import cache

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record, StructProtocol

from puffin_ann.lake.read.manifests import Entry


def may_match(table: Table, row_filter: BooleanExpression) -> Callable[[Entry], bool]:
    """Return what tells of an entry, by its partition and statistics, if rows of it may match.

    What an entry does not say, or not in a way that can be compared with the column as it is now,
    excludes nothing. Threads may share what is returned.

    Args:
        table: whose current schema the filter speaks of.
        row_filter: what rows have to match.

    Raises:
        ValueError, TypeError: the filter does not fit the schema.
    """
    schema, specs = table.schema(), table.specs()
    by_statistics = _InclusiveMetricsEvaluator(schema, row_filter).eval

    @cache
    def by_partition(spec_id: int) -> Callable[[StructProtocol], bool]:
        spec = specs[spec_id]
        fields = Schema(*spec.partition_type(schema).fields)
        projected = inclusive_projection(schema, spec)(row_filter)
        return expression_evaluator(fields, projected, case_sensitive=True)

    def told(entry: Entry) -> bool:
        return _excludes_nothing_in_doubt(
            lambda: by_partition(entry.spec_id)(Record(*entry.partition))
        ) and _excludes_nothing_in_doubt(lambda: by_statistics(_file(entry)))

    return told


def _excludes_nothing_in_doubt(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except Exception:  # any kind: what a file says of itself is decoded by the column's type
        return True


def _file(entry: Entry) -> DataFile:
    """Return as much of an entry as its statistics are, as PyIceberg has it."""
    told = entry.statistics
    if told is None:
        return DataFile.from_args(record_count=entry.rows)
    return DataFile.from_args(
        record_count=entry.rows,
        value_counts=told.values,
        null_value_counts=told.nulls,
        nan_value_counts=told.nans,
        lower_bounds=told.lower,
        upper_bounds=told.upper,
    )
